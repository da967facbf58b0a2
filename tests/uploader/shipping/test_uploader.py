"""Shipping one segment, file by file, to a real store (a directory)."""

import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format import build
from tests.uploader.batches import batch
from ts_common.archive.catalog import describe, read_catalog
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import TxnIndexState, decode_metadata
from ts_common.errors import AccessDenied, CorruptData, OutcomeUnknown, SegmentChanged, StoreUnavailable
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import CORRUPTION_LIMIT, Readable, SegmentScan, scan_segment
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.directory.driver import FileStore
from ts_common.store.factory import open_store
from ts_uploader.events import FileState, Leadership
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tasks import Ship, Shipped

TP = TopicPartition("t", 0)
KEYS = ClusterKeys("c").partition(TP)


class Log:
    """A partition's directory, and what ships from it."""

    def __init__(self, directory: Path, store: ObjectStore) -> None:
        self.path = directory / "t-0"
        self.path.mkdir()
        self.store = store
        self.epoch = 1

    def put(self, base: int, data: bytes) -> None:
        for suffix in (".index", ".timeindex"):
            (self.path / f"{base:020d}{suffix}").touch()
        (self.path / f"{base:020d}.log").write_bytes(data)

    def epochs(self, *pairs: tuple[int, int]) -> None:
        lines = ["0", str(len(pairs)), *(f"{epoch} {start}" for epoch, start in pairs)]
        (self.path / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
        self.epoch = pairs[-1][0] if pairs else 1

    def retire(self, *bases: int) -> None:
        """As retention does."""
        for base in bases:
            for path in list(self.path.glob(f"{base:020d}.*")):
                path.rename(path.with_name(path.name + ".deleted"))

    def task(self, base: int) -> Ship:
        listing = list_partition(TP, self.path, self.path.parent)
        assert listing is not None
        next_base = next(other for other in listing.bases if other > base)
        return Ship(TP, 0, Leadership(self.epoch, None, 0), KEYS, listing, base, next_base, seen=True)

    def ship(self, base: int) -> Shipped:
        return Uploader(lambda _: self.store, lambda _: TopicRetention()).ship(self.task(base))

    def names(self) -> list[str]:
        return [info.key.rpartition("/")[2] for info in self.store.list() if info.key.endswith(".log")]


def uploader(log: Log) -> Uploader:
    return Uploader(lambda _: log.store, lambda _: TopicRetention())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "store").mkdir()
    with open_store((tmp_path / "store").as_uri()) as store:
        yield Log(tmp_path, store)


def test_a_segment_whose_neighbours_were_emptied_answers_for_more_under_another_name(log: Log) -> None:
    """The same bytes with a larger coverage, again and again: readers get it each time, under names of their own."""
    log.put(0, batch(0, 10))
    for end in (100, 200, 300):
        log.put(end, b"")
        assert log.ship(0).end == end
        catalog = read_catalog(log.store, KEYS)
        assert max(copy.end for copy in describe(log.store, KEYS, catalog.segments)) == end
        (log.path / f"{end:020d}.log").unlink()
    assert len(log.names()) == 3


@pytest.mark.parametrize(
    ("local", "epochs"),
    [
        (((0, 0), (3, 50), (4, 90)), ((0, 0), (3, 60), (4, 90))),
        (((0, 0),), ((0, 0), (2, 30))),  # compaction emptied epoch 2 before this broker fetched it
    ],
)
def test_an_emptied_segment_that_fills_gaps_bears_the_brokers_epochs_there(
    log: Log, local: tuple[tuple[int, int], ...], epochs: tuple[tuple[int, int], ...]
) -> None:
    """The run never saw what stood in a gap; with its epochs there no commit would take what surrounds the segment."""
    log.put(0, b"")
    log.put(100, b"")
    log.epochs(*local)
    run = EpochHistory(((0, 0), (9, 200))) if len(local) > 1 else EpochHistory(((0, 0), (2, 30), (9, 200)))
    task = replace(log.task(0), epochs=run, next_offset=300, gaps=((10, 20), (60, 200)))
    assert uploader(log).ship(task).epochs == epochs


def test_an_emptied_tail_that_fills_a_gap_bears_the_brokers_epochs_there(log: Log) -> None:
    """Its only batch is of epoch 1, and the run does not know epoch 4, which wrote what compaction took behind it."""
    log.put(40, batch(42, 2, epoch=1))
    log.put(60, b"")
    log.epochs((1, 0), (4, 50))
    task = replace(log.task(40), epochs=EpochHistory(((1, 0), (4, 80))), next_offset=100, gaps=((30, 80),))
    assert uploader(log).ship(task).epochs == ((1, 40), (4, 50))


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


def test_what_stands_in_the_store_already_is_not_sent_again(log: Log) -> None:
    """A restart finds its own bytes by size and CRC."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    assert log.ship(0).bytes_sent > 0
    assert log.ship(0).bytes_sent == 0


def test_u05_other_bytes_under_a_taken_name_become_a_variant(log: Log) -> None:
    """Both stay: the plain name is the first writer's, and the other bytes stand beside it."""
    log.put(0, batch(0, 10, epoch=1))
    log.put(10, b"")
    log.ship(0)
    log.put(0, batch(0, 10, epoch=2))
    log.ship(0)
    plain, variant = sorted(log.names(), key=len)
    assert plain == "00000000000000000000.log"
    assert variant.startswith("00000000000000000000.e1.")


def test_a_shorter_copy_of_what_stands_there_is_done(log: Log) -> None:
    """Theirs begins with our bytes and answers for as much: nothing to send."""
    log.put(0, batch(0, 10) + batch(10, 10))
    log.put(20, b"")
    log.ship(0)
    log.put(0, batch(0, 10))
    log.put(10, b"")
    shipped = log.ship(0)
    assert (shipped.bytes_sent, shipped.end) == (0, 10)


def test_the_epochs_of_a_segment_are_the_brokers_own_where_its_batches_agree(log: Log) -> None:
    """Compaction took the first batches of epoch 3; the checkpoint still knows where it began."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs((2, 0), (3, 20))
    assert log.ship(0).epochs == ((2, 0), (3, 20))


@pytest.mark.parametrize("pairs", [((2, 0), (3, 55)), ((7, 0),)])
def test_the_epochs_of_a_segment_are_its_batches_own_where_the_checkpoint_disagrees(
    log: Log, pairs: tuple[tuple[int, int], ...]
) -> None:
    """A list that gives a batch another epoch would make readers drop it."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs(*pairs)
    assert log.ship(0).epochs == ((2, 0), (3, 50))


def test_an_epoch_that_falls_inside_a_segment_is_told_and_not_shipped(log: Log) -> None:
    """The batch CRC leaves the epoch out, so a flipped bit there would make readers drop what follows."""
    log.put(0, batch(0, 10, epoch=2) + batch(10, 10, epoch=70000) + batch(20, 10, epoch=2))
    log.put(30, b"")
    with pytest.raises(CorruptData, match="leader epoch 2 at offset 20 after 70000"):
        log.ship(0)
    assert log.names() == []


def test_u25_a_neighbour_that_is_none_gives_no_coverage(log: Log) -> None:
    """With a rename under way the next base proves nothing, and nothing is shipped."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    (log.path / f"{0:020d}.log.swap").touch()
    with pytest.raises(SegmentChanged, match="cleaner"):
        log.ship(0)
    assert log.names() == []


def test_u25_a_live_segment_in_between_gives_no_coverage(log: Log) -> None:
    """The task names a neighbour that a torn listing showed: a whole one shows the true one."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    task = log.task(0)
    log.put(50, b"")
    with pytest.raises(SegmentChanged, match="100 is not the next live segment"):
        uploader(log).ship(task)
    assert log.names() == []


def test_u35_what_the_cleaner_left_or_prepares_is_no_reason_to_wait(log: Log) -> None:
    """Between two live segments `.deleted` files stand for an hour, and `.cleaned` ones while the cleaner copies."""
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


def after_reading(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Something happens once a segment has been read and before anything else."""

    def scan(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        found = scan_segment(reader, size, timeindex)
        happens()
        return found

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", scan)


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


def test_u25_the_old_file_does_not_stand_in_for_one_that_retention_took_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merged file is renamed over the old one: its name leads to another file then than the one that was read."""
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


def test_a_segment_that_was_never_seen_live_is_not_shipped_from_its_deleted_file(log: Log) -> None:
    """A listing that is not whole showed its live name: the `.deleted` name may lead to an older file."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    task = replace(log.task(0), seen=False)
    log.retire(0)
    with pytest.raises(SegmentChanged, match="no longer exists"):
        uploader(log).ship(task)


def test_an_older_files_abort_index_does_not_count_beside_a_live_log(log: Log) -> None:
    """The cleaner's merged file has none where no abort is left in it; the old one's bears `.deleted` for an hour."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    (log.path / f"{0:020d}.txnindex.deleted").write_bytes(struct.pack(">hqqqq", 0, 9, 0, 10, 0))
    log.ship(0)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.txnindex is None


def test_merge_and_retention_between_two_looks_ship_what_the_file_holds(log: Log) -> None:
    """0.log.deleted is the merged file by now, and reaches beyond the neighbour that it was seen with."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    task = log.task(0)
    log.put(0, batch(0, 5) + batch(150, 10))
    log.put(300, b"")
    log.retire(0, 100)
    assert uploader(log).ship(task).end == 160


def test_a_neighbour_that_was_seen_bounds_what_retention_took(log: Log) -> None:
    """Compaction took the tail; the neighbour that the segment was seen live with tells how far it answers."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    log.put(200, b"")
    task = log.task(0)
    log.retire(0, 100)
    assert uploader(log).ship(task).end == 100


def test_a_plain_name_that_a_deletion_may_still_name_is_not_used(log: Log) -> None:
    """Below the third element of the lineage: a plain name is neither written nor counted as done."""
    log.put(0, batch(0, 10))
    log.put(10, batch(10, 10))
    log.put(20, b"")
    log.ship(0)
    below, above = replace(log.task(0), variants_below=10), replace(log.task(10), variants_below=10)
    assert uploader(log).ship(below).bytes_sent > 0
    assert uploader(log).ship(below).bytes_sent == 0
    uploader(log).ship(above)
    variant, *plain = sorted(log.names())
    assert plain == [f"{0:020d}.log", f"{10:020d}.log"]
    assert variant.startswith(f"{0:020d}.e1.")


def test_u13_a_torn_tail_is_no_coverage(log: Log) -> None:
    """What is no whole batch is not answered for, and the metadata says so."""
    log.put(0, batch(0, 10) + batch(10, 10)[:-5])
    log.put(20, b"")
    assert log.ship(0).end == 10


def flipped(data: bytes) -> bytes:
    """With another last byte, so that the CRC fails."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_corrupt_batch_before_good_ones_takes_nothing_from_a_compacted_tail(log: Log) -> None:
    """The cleaner took the tail, so the next base bounds the coverage: the run goes on, and the object is marked."""
    log.put(0, batch(0, 10) + flipped(batch(10, 10)) + batch(20, 10))
    log.put(40, b"")
    shipped = log.ship(0)
    assert (shipped.end, shipped.corruptions) == (40, 1)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert (copy.metadata.end, copy.metadata.corruptions) == (40, 1)


@pytest.mark.parametrize("places", [1, CORRUPTION_LIMIT + 1])
@pytest.mark.parametrize("behind", [b"", bytes(100)], ids=["end", "zeros"])
def test_a_corrupt_batch_behind_the_last_good_one_is_no_coverage(log: Log, places: int, behind: bytes) -> None:
    """What is no whole batch is not answered for, also where there are more such places than a scan tells of."""
    before, last = [flipped(batch(10 * n, 10)) for n in range(1, places)], 10 * places
    log.put(0, b"".join([batch(0, 10), *before, batch(last, 10), flipped(batch(last + 10, 10)), behind]))
    log.put(last + 20, b"")
    shipped = log.ship(0)
    assert (shipped.end, shipped.corruptions) == (last + 10, places)


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


class Interrupted(FileStore):
    """A store in which something else happens just before an object is put.

    Attributes:
        before: by suffix of the key.
        order: the suffixes that were put, in order.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before: dict[str, Callable[[], object]] = {}
        self.order: list[str] = []

    def put(self, key: str, *arguments: object, **named: object) -> ObjectInfo:
        suffix = Path(key).suffix
        self.before.pop(suffix, lambda: None)()
        self.order.append(suffix)
        return super().put(key, *arguments, **named)  # type: ignore[arg-type]


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[tuple[Log, Interrupted]]:
    (tmp_path / "store").mkdir()
    with Interrupted(tmp_path / "store") as store:
        yield Log(tmp_path, store), store


def test_u02_the_log_goes_last_and_not_without_its_indexes(interrupted: tuple[Log, Interrupted]) -> None:
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


def test_u27_a_log_that_another_agent_put_meanwhile_is_not_overwritten(interrupted: tuple[Log, Interrupted]) -> None:
    """Its name was free when we looked and is taken when we put: refused, and the next attempt makes a variant."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    log.put(10, b"")
    key = KEYS.segment(SegmentName(0))
    theirs = batch(0, 5, epoch=7)
    store.before[".log"] = lambda: FileStore.put(store, key, theirs)
    with pytest.raises(OutcomeUnknown, match="another agent wrote it meanwhile"):
        log.ship(0)
    assert store.get(key)[0] == theirs
    log.ship(0)
    assert store.get(key)[0] == theirs
    assert len(log.names()) == 2


def test_u33_a_segment_that_is_replaced_while_it_is_read_is_not_shipped(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner swapped the file under the reader: what was read is no longer what stands there."""
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


def test_u25_a_rename_that_begins_during_the_upload_takes_nothing_back(
    interrupted: tuple[Log, Interrupted],
) -> None:
    """How far these bytes answer was found out before; else a busy cleaner would stop a slow upload for ever."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    log.put(100, b"")
    store.before[".log"] = (log.path / f"{100:020d}.log.swap").touch
    assert log.ship(0).end == 100


def test_u25_a_rename_that_begins_while_a_segment_is_read_gives_no_coverage(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing that counts is taken after reading."""
    log.put(0, batch(0, 10))
    log.put(100, b"")
    after_reading(monkeypatch, (log.path / f"{100:020d}.log.swap").touch)
    with pytest.raises(SegmentChanged, match="cleaner"):
        log.ship(0)
    assert log.names() == []


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


def test_an_abort_index_of_a_dead_segment_with_the_same_base_is_not_believed(log: Log) -> None:
    """Retention took the dead segment, then the living one, which has no `.txnindex` to rename over the old one."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    task = replace(log.task(0), seen=True)
    log.retire(0)
    index = struct.pack(">hqqqq", 0, 9, 0, 5, 0)
    (log.path / f"{0:020d}.txnindex.deleted").write_bytes(index)
    uploader(log).ship(task)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.txnindex == (crc32c(index), TxnIndexState.CORRUPT)


def test_u07_a_segment_that_retention_renamed_is_shipped(log: Log) -> None:
    """Its four files are renamed one by one: each is found under the name that it has."""
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
    """What is held open cannot be lost to an unlink."""
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
def test_a_segment_that_is_gone_and_not_by_retention_is_not_shipped(log: Log, left: str) -> None:
    """Merged by the cleaner, in the middle of its renames, or truncated by a follower: look again first."""
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


def test_the_run_knows_better_than_a_followers_checkpoint_where_an_epoch_began(log: Log) -> None:
    """Below the next offset the commit's epochs count, as far as no batch contradicts them; above it the broker's."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs((2, 0), (3, 50), (4, 60))
    task = replace(log.task(0), epochs=EpochHistory(((2, 0), (3, 20))), next_offset=40)
    assert uploader(log).ship(task).epochs == ((2, 0), (3, 20))
    wrong = replace(log.task(0), epochs=EpochHistory(((3, 0),)), next_offset=40)
    assert uploader(log).ship(wrong).epochs == ((2, 0), (3, 50))


def test_bytes_whose_metadata_would_make_readers_drop_them_get_another_name(log: Log) -> None:
    """The same bytes stand there with the epochs of somebody who knew less: what is committed must be alive."""
    log.put(0, batch(0, 10, epoch=2))
    log.put(60, b"")
    log.epochs((2, 0))
    first = replace(log.task(0), leadership=Leadership(2, None, 0))
    assert uploader(log).ship(first).epochs == ((2, 0),)
    task = replace(first, epochs=EpochHistory(((2, 0), (3, 20))), next_offset=60)
    shipped = uploader(log).ship(task)
    assert (shipped.bytes_sent > 0, shipped.epochs) == (True, ((2, 0), (3, 20)))
    assert len(log.names()) == 2
    assert uploader(log).ship(task).bytes_sent == 0


def test_metadata_names_the_time_of_shipping(log: Log) -> None:
    """Retention counts from it: a copy of a bucket resets the time at which an object was last modified."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    before = int(time.time() * 1000)
    log.ship(0)
    (copy,) = describe(log.store, KEYS, read_catalog(log.store, KEYS).segments)
    assert copy.metadata.shipped is not None
    assert before <= copy.metadata.shipped <= time.time() * 1000


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each segment that is read from its begin to its end, in order."""
    read: list[int] = []

    def counted(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        read.append(size)
        return scan_segment(reader, size, timeindex)

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", counted)
    return read


def refuse() -> None:
    raise AccessDenied("PutObject")


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


def test_a_segment_that_says_what_cannot_be_is_read_once(log: Log, scans: list[int]) -> None:
    """It waits until retention takes it or somebody mends the file, and costs no read until then."""
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
