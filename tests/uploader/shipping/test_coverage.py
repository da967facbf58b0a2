"""The coverage of a segment whose files the broker may rename, rewrite or delete while it is read."""

from dataclasses import replace

import pytest

from tests.uploader.batches import batch
from tests.uploader.shipping.partition_log import KEYS, Interrupted, Log, after_reading, flipped, uploader
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import describe
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import SegmentChanged
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import CORRUPTION_LIMIT, Readable, SegmentScan, scan_segment
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.uploader import Uploader


def test_u28_a_log_that_another_leader_cut_and_filled_again_is_not_shipped(log: Log) -> None:
    """Seed 26: names and ends are what they were, but the batches are of the line that won."""
    log.put(0, batch(0, 10, epoch=3))
    log.put(10, b"")
    log.epochs((3, 0))
    task = log.task(0)
    log.put(0, batch(0, 10, epoch=2))
    log.epochs((2, 0))
    with pytest.raises(SegmentChanged, match="ends with 2, the leader epoch is 3"):
        uploader(log).ship(task)
    assert log.names() == []


def test_u25_a_neighbour_during_renames_gives_no_coverage(log: Log) -> None:
    """During a rename the next base proves nothing, and nothing is shipped."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    (log.path / f"{0:020d}.log.swap").touch()
    with pytest.raises(SegmentChanged, match="renames were in progress"):
        log.ship(0)
    assert log.names() == []


def test_u25_a_live_segment_in_between_gives_no_coverage(log: Log) -> None:
    """The task has a neighbour from a torn listing: a whole listing shows the true one."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    task = log.task(0)
    log.put(50, b"")
    with pytest.raises(SegmentChanged, match="100 is not the next live segment"):
        uploader(log).ship(task)
    assert log.names() == []


def test_u35_what_the_cleaner_left_or_prepares_is_no_reason_to_wait(log: Log) -> None:
    """Between two live segments `.deleted` files exist for an hour, and `.cleaned` ones while the cleaner copies."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    for name in (
        f"{0:020d}.log.deleted",
        f"{50:020d}.log.deleted",
        f"{50:020d}.index.deleted",
        f"{0:020d}.log.cleaned",
    ):
        (log.path / name).write_bytes(batch(50, 10))
    assert log.ship(0).end == 100


def test_u25_a_coverage_that_the_neighbour_bounds_needs_the_brokers_own_word_on_the_epoch(log: Log) -> None:
    """A follower that drops its whole log creates the new segment before it renames the former ones."""
    log.put(0, batch(0, 10, epoch=1))
    log.put(100, b"")
    task = log.task(0)
    log.epochs((1, 0), (2, 100))
    with pytest.raises(SegmentChanged, match="ends with 2"):
        uploader(log).ship(task)
    assert log.names() == []


def test_u25_the_old_file_of_a_merged_segment_never_answers_for_the_new_one(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """{100, 200} become one: between two renames only 100.log.deleted is there, and it holds nothing from 200 on.

    The listing that the task was made from shows the merged state already: a large directory is read in several calls.
    """
    log.put(100, batch(100, 50) + batch(250, 10))
    log.put(300, b"")
    task = log.task(100)
    live, old = log.path / f"{100:020d}.log", log.path / f"{100:020d}.log.deleted"
    merged = live.rename(live.with_name(live.name + ".swap"))
    old.write_bytes(batch(100, 100))
    after_reading(monkeypatch, lambda: merged.rename(live))
    with pytest.raises(SegmentChanged):
        uploader(log).ship(task)
    assert log.names() == []


def test_u25_the_old_file_is_not_shipped_in_place_of_one_that_retention_deleted_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merged file is renamed over the old one: then its name leads to another file than the one that was read."""
    log.put(100, batch(100, 50) + batch(250, 10))
    log.put(300, b"")
    task = log.task(100)
    live, old = log.path / f"{100:020d}.log", log.path / f"{100:020d}.log.deleted"
    merged = live.rename(live.with_name(live.name + ".swap"))
    old.write_bytes(batch(100, 100))
    log.epochs((1, 0))
    after_reading(monkeypatch, lambda: merged.rename(old))
    with pytest.raises(SegmentChanged, match="replaced"):
        uploader(log).ship(task)
    assert log.names() == []


def test_a_segment_never_seen_as_a_live_segment_is_not_shipped_from_its_deleted_file(log: Log) -> None:
    """A listing that was not whole showed its live name: the `.deleted` name may lead to an older file."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    task = replace(log.task(0), seen=False)
    log.retire(0)
    with pytest.raises(SegmentChanged, match="no longer exists"):
        uploader(log).ship(task)


def test_merge_and_retention_between_two_looks_ship_what_the_file_holds(log: Log) -> None:
    """0.log.deleted is the merged file by now, and reaches beyond the neighbour that it was seen with."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    task = log.task(0)
    log.put(0, batch(0, 5) + batch(150, 10))
    log.put(300, b"")
    log.retire(0, 100)
    assert uploader(log).ship(task).end == 160


def test_a_neighbour_that_was_seen_bounds_what_retention_deleted(log: Log) -> None:
    """Compaction removed the tail; the neighbour from when the segment was live bounds the coverage."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    log.put(200, b"")
    task = log.task(0)
    log.retire(0, 100)
    assert uploader(log).ship(task).end == 100


def test_u13_a_torn_tail_is_no_coverage(log: Log) -> None:
    """Bytes that are no whole batch are not covered, and the metadata shows it."""
    log.put(0, batch(0, 10) + batch(10, 10)[:-5])
    log.put(20, b"")
    assert log.ship(0).end == 10


def test_a_corrupt_batch_before_good_ones_does_not_reduce_the_coverage_of_a_compacted_tail(log: Log) -> None:
    """The cleaner removed the tail, so the next base bounds the coverage: the run continues, the object is marked."""
    log.put(0, batch(0, 10) + flipped(batch(10, 10)) + batch(20, 10))
    log.put(40, b"")
    shipped = log.ship(0)
    assert (shipped.end, shipped.corruptions) == (40, 1)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert (copy.metadata.end, copy.metadata.corruptions) == (40, 1)


@pytest.mark.parametrize("places", [1, CORRUPTION_LIMIT + 1])
@pytest.mark.parametrize("behind", [b"", bytes(100)], ids=["end", "zeros"])
def test_a_corrupt_batch_behind_the_last_good_one_is_no_coverage(log: Log, places: int, behind: bytes) -> None:
    """Bytes that are no whole batch are not covered, even with more damaged places than a scan lists."""
    before, last = [flipped(batch(10 * n, 10)) for n in range(1, places)], 10 * places
    log.put(0, b"".join([batch(0, 10), *before, batch(last, 10), flipped(batch(last + 10, 10)), behind]))
    log.put(last + 20, b"")
    shipped = log.ship(0)
    assert (shipped.end, shipped.corruptions) == (last + 10, places)


def test_u33_a_segment_that_is_replaced_while_it_is_read_is_not_shipped(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner replaced the file during the read: the bytes that were read are no longer those of the segment."""
    log.put(0, batch(0, 10))
    log.put(10, b"")

    def scan_then_swap(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        scan = scan_segment(reader, size, timeindex)
        swap = log.path / "swap"
        swap.write_bytes(batch(0, 10, epoch=1))
        swap.rename(log.path / f"{0:020d}.log")
        return scan

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", scan_then_swap)
    with pytest.raises(SegmentChanged, match="replaced"):
        log.ship(0)
    assert log.names() == []


def test_u25_a_rename_that_begins_during_the_upload_does_not_revoke_the_coverage(
    interrupted: tuple[Log, Interrupted],
) -> None:
    """The coverage was found before the upload; else a busy cleaner would stop a slow upload forever."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    log.put(100, b"")
    store.before[".log"] = (log.path / f"{100:020d}.log.swap").touch
    assert log.ship(0).end == 100


def test_u25_a_rename_that_begins_while_a_segment_is_read_gives_no_coverage(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a listing from after the read counts."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    after_reading(monkeypatch, (log.path / f"{100:020d}.log.swap").touch)
    with pytest.raises(SegmentChanged, match="renames were in progress"):
        log.ship(0)
    assert log.names() == []


def test_u07_a_segment_that_retention_renamed_is_shipped(log: Log) -> None:
    """Its four files are renamed one by one: each is found under its current name."""
    data = batch(0, 10, epoch=1)
    log.put(0, data)
    log.put(10, b"")
    log.epochs((1, 0))
    task = log.task(0)
    for suffix in (".log", ".timeindex"):
        path = log.path / f"{0:020d}{suffix}"
        path.rename(path.with_name(path.name + ".deleted"))
    shipped = Uploader(lambda _: log.store, lambda _: TopicRetention()).ship(task)
    assert (shipped.end, log.names()) == (10, ["00000000000000000000.log"])
    assert log.store.get(KEYS.segment(SegmentName(0)))[0] == data


def test_u07_a_segment_that_retention_unlinks_while_it_is_read_is_shipped_from_the_open_file(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open file survives an unlink."""
    data = batch(0, 10, epoch=1)
    log.put(0, data)
    log.put(10, b"")
    log.epochs((1, 0))

    def unlinked(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        scan = scan_segment(reader, size, timeindex)
        for path in log.path.glob(f"{0:020d}.*"):
            path.unlink()
        return scan

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", unlinked)
    assert log.ship(0).end == 10
    assert log.store.get(KEYS.segment(SegmentName(0)))[0] == data


@pytest.mark.parametrize("left", ["lower segment", "renames", "another leader epoch"])
def test_a_segment_removed_other_than_by_retention_is_not_shipped(log: Log, left: str) -> None:
    """Merged by the cleaner, in the middle of its renames, or truncated by a follower: the agent lists again first."""
    log.put(10, batch(10, 10, epoch=1))
    log.put(20, b"")
    log.epochs((1, 0))
    task = log.task(10)
    for path in log.path.glob(f"{10:020d}.*"):
        path.rename(path.with_name(path.name + ".deleted"))
    match left:
        case "lower segment":
            log.put(0, b"")
        case "renames":
            (log.path / f"{10:020d}.log.swap").touch()
        case _:
            log.epochs((1, 0), (2, 15))
    with pytest.raises(SegmentChanged):
        Uploader(lambda _: log.store, lambda _: TopicRetention()).ship(task)
    assert log.names() == []
