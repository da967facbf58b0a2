"""Shipping one segment, file by file, to a real store (a directory)."""

import os
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format import build
from tests.uploader.batches import batch
from tests.uploader.shipping.partition_log import KEYS, Interrupted, Log, flipped, refuse, uploader
from ts_common.archive.cache_rewriting import cache_entry
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import describe
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import TxnIndexState, decode_metadata
from ts_common.errors import AccessDenied, CorruptData, StoreUnavailable
from ts_uploader.messages.observations import FileState


def test_an_older_files_abort_index_does_not_count_next_to_a_live_log(log: Log) -> None:
    """The cleaner's merged file has none where no abort is left in it; the old one's bears `.deleted` for an hour."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    (log.path / f"{0:020d}.txnindex.deleted").write_bytes(struct.pack(">hqqqq", 0, 9, 0, 10, 0))
    log.ship(0)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.txnindex is None


def test_a_symbolic_link_is_not_followed(log: Log, tmp_path: Path) -> None:
    """It could lead out of the log directories (fault U19)."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    outside = tmp_path / "outside"
    (log.path / f"{0:020d}.log").rename(outside)
    (log.path / f"{0:020d}.log").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic"):
        log.ship(0)
    assert log.names() == []


def test_u02_the_log_is_written_last_and_not_without_its_indexes(interrupted: tuple[Log, Interrupted]) -> None:
    """The `.log` object is the sign that the segment is whole: an index that fails keeps it back."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    (log.path / f"{0:020d}.txnindex").touch()
    log.put(10, b"")

    def fail() -> None:
        raise StoreUnavailable("SlowDown")

    store.before[".timeindex"] = fail
    with pytest.raises(StoreUnavailable, match="SlowDown"):
        log.ship(0)
    assert log.names() == []
    store.order.clear()
    log.ship(0)
    assert sorted(store.order[:-1]) == [".index", ".timeindex", ".txnindex"]
    assert store.order[-1] == ".log"


def test_the_entry_of_a_segment_that_was_put_is_the_one_that_the_store_shows(log: Log) -> None:
    """For the cache object, which then needs no request for it; a segment that was found has none."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    shipped = log.ship(0)
    (listed,) = (info for info in log.store.list(KEYS.prefix) if info.key.endswith(".log"))
    assert shipped.stored == cache_entry(log.store, SegmentName(0), listed)
    assert log.ship(0).stored is None


def test_what_an_aborted_transaction_left_is_bound_to_the_log(log: Log) -> None:
    """The metadata names the `.txnindex` by its CRC, and whether each abort marker has its entry."""
    marker = build.batch(10, [build.record(0, key=b"\0\0\0\0")], attributes=0x30, producer_id=9)
    log.put(0, batch(0, 10) + marker)
    log.put(11, b"")
    log.ship(0)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.txnindex == (0, TxnIndexState.CORRUPT)
    index = struct.pack(">hqqqq", 0, 9, 0, 10, 0)
    (log.path / f"{0:020d}.txnindex").write_bytes(index)
    log.put(0, batch(0, 9) + batch(9, 1) + marker)
    log.ship(0)
    found = {c.metadata.txnindex for c in describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)}
    assert (crc32c(index), TxnIndexState.COMPLETE) in found


def test_an_abort_index_of_a_dead_segment_with_the_same_base_is_not_trusted(log: Log) -> None:
    """Retention removed the dead segment, then the live one, which has no `.txnindex` to rename over the old one."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    task = replace(log.task(0), seen=True)
    log.retire(0)
    index = struct.pack(">hqqqq", 0, 9, 0, 5, 0)
    (log.path / f"{0:020d}.txnindex.deleted").write_bytes(index)
    uploader(log).ship(task)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.txnindex == (crc32c(index), TxnIndexState.CORRUPT)


def test_metadata_names_the_time_of_shipping(log: Log) -> None:
    """Retention counts from it: a copy of a bucket resets the modification time of an object."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    before = int(time.time() * 1000)
    log.ship(0)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.shipped is not None
    assert before <= copy.metadata.shipped <= time.time() * 1000


def test_metadata_has_the_number_of_transaction_markers(log: Log) -> None:
    """Readers count the rows of a segment without reading it."""
    log.put(0, build.batch(0, attributes=build.TRANSACTIONAL, producer_id=5) + build.marker(1, 5, 1))
    log.put(2, batch(2, 8))
    log.put(10, b"")
    log.ship(0)
    log.ship(2)
    copies = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert [(copy.metadata.records, copy.metadata.control) for copy in copies] == [(2, 1), (8, 0)]


def test_a_segment_is_read_once_however_often_the_store_refuses_it(
    interrupted: tuple[Log, Interrupted], scans: list[int]
) -> None:
    """Retrying never ends, so it must not read the disk; and once it is shipped, nothing of it is remembered."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    log.put(10, b"")
    ships = uploader(log)
    for suffix in (".index", ".log", ".timeindex"):
        store.before[suffix] = refuse
        with pytest.raises(AccessDenied):
            ships.ship(log.task(0))
    assert ships.ship(log.task(0)).end == 10
    assert len(scans) == 1
    assert store.get(KEYS.segment(SegmentName(0)))[0] == batch(0, 10)
    ships.ship(log.task(0))
    assert len(scans) == 2


def test_r08_metadata_names_the_time_index_that_the_batches_bear_out(
    interrupted: tuple[Log, Interrupted], scans: list[int]
) -> None:
    """The one that is shipped, also where a broker wrote another between two attempts that read the log once."""
    log, store = interrupted
    first, second = struct.pack(">qi", 2000, 9), struct.pack(">qi", 3000, 9)
    for base, index, then, named in (
        (0, first, first, True),
        (10, first[:11], first, False),
        (20, first, second, False),
    ):
        log.put(base, batch(base, 10))
        log.put(base + 10, b"")
        path = log.path / f"{base:020d}.timeindex"
        path.write_bytes(index)
        store.before[".log"] = refuse
        ships = uploader(log)
        with pytest.raises(AccessDenied):
            ships.ship(log.task(base))
        path.write_bytes(then)
        ships.ship(log.task(base))
        metadata = decode_metadata(store.head(KEYS.segment(SegmentName(base))).metadata, "k")
        assert metadata is not None
        assert store.get(KEYS.segment(SegmentName(base), ".timeindex"))[0] == then
        assert metadata.timeindex == (crc32c(then) if named else None)
    assert len(scans) == 3


def test_a_segment_with_impossible_content_is_read_once(log: Log, scans: list[int]) -> None:
    """It waits until retention removes it or an operator repairs the file, and is not read again until then."""
    log.put(0, flipped(batch(0, 10)))
    log.put(10, b"")
    ships = uploader(log)
    for _ in range(3):
        with pytest.raises(CorruptData, match="no batch"):
            ships.ship(log.task(0))
    assert len(scans) == 1
    log.put(0, batch(0, 5) + batch(5, 5))
    assert ships.ship(log.task(0)).end == 10


@pytest.mark.parametrize("change", ["appended", "truncated, then appended", "put in its place"])
def test_a_file_that_changed_between_two_attempts_is_read_again(
    interrupted: tuple[Log, Interrupted], scans: list[int], change: str
) -> None:
    """A broker that recovers cuts a file and appends to it, and the cleaner sets times back: all of it shows."""
    log, store = interrupted
    log.put(0, batch(0, 10, epoch=1))
    log.put(20, b"")
    path = log.path / f"{0:020d}.log"
    before = path.stat()
    ships = uploader(log)
    store.before[".log"] = refuse
    with pytest.raises(AccessDenied):
        ships.ship(log.task(0))
    match change:
        case "appended":
            with path.open("ab") as file:
                file.write(batch(10, 10, epoch=1))
        case "truncated, then appended":
            with path.open("r+b") as file:
                file.truncate(0)
                file.write(batch(0, 10, epoch=2))
            while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system is coarse
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        case _:
            other = log.path / "other"
            other.write_bytes(batch(0, 10, epoch=2))
            os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
            other.rename(path)
    ships.ship(log.task(0))
    assert len(scans) == 2
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.crc32c == crc32c(path.read_bytes())


def test_a_scan_that_the_store_finds_to_be_of_other_bytes_is_forgotten(
    interrupted: tuple[Log, Interrupted], scans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the clock of the file system is too coarse to show a change, the CRC of the body does."""
    monkeypatch.setattr("ts_uploader.shipping.uploader.file_state", lambda log: FileState(0, 0, log.size, 0))
    log, store = interrupted
    log.put(0, batch(0, 10, epoch=1))
    log.put(10, b"")
    ships = uploader(log)
    store.before[".log"] = refuse
    with pytest.raises(AccessDenied):
        ships.ship(log.task(0))
    log.put(0, batch(0, 10, epoch=2))
    with pytest.raises(CorruptData, match="CRC"):
        ships.ship(log.task(0))
    assert log.names() == []
    ships.ship(log.task(0))
    assert len(scans) == 2
    assert store.get(KEYS.segment(SegmentName(0)))[0] == batch(0, 10, epoch=2)
