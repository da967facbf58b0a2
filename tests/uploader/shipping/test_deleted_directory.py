"""What becomes of a directory that the broker renamed to `-delete`: made file by file, with a store of files."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.archive import read_incarnation
from tests.uploader.batches import batch
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.fetch import fetch
from ts_common.archive.high_watermarks import End
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.config.cluster_config import OffsetReset
from ts_common.errors import SegmentChanged, StoreUnavailable, TransientError
from ts_common.store.contract import IfMatch, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs.deleted_directories import checkpointed_end, reported_end
from ts_uploader.log_dirs.directory_scan import list_partition, read_high_watermarks
from ts_uploader.messages.observations import DirectoryDeleted, Leadership, Listing
from ts_uploader.messages.results import Committed, DeletedPending, DeletedShipped
from ts_uploader.messages.tasks import UNKNOWN_EPOCH, ReadPosition, Ship, ShipDeleted, WriteCommit
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.deleted_task import again
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.tracker import Tracker
from ts_uploader.workers.task_queues import TaskQueues

OTHER_ID = "B" * 21 + "Q"
EPOCH = 3
SECOND = 1_000_000_000


class Doomed:
    """A log of 30 offsets in batches of five: two closed segments `[0,10) [10,20)` and the active one `[20,30)`."""

    def __init__(self, log_dir: Path, store: ObjectStore) -> None:
        self.local = LocalDirectory(log_dir)
        self.local.epochs((EPOCH, 0))
        for base in (0, 10, 20):
            self.local.write(base, batch(base, 5, EPOCH) + batch(base + 5, 5, EPOCH))
        self.store = store
        self.deleted: bool | None = True  # the log's topic id
        self.other_deleted: bool | None = False  # any other topic id
        self.reported: End | None = None  # by an earlier process of the agent
        self.committed: list[Committed] = []

    def shipper(self, broker: int = 1) -> DeletedShipper:
        uploader = Uploader(lambda _: self.store, lambda _: TopicRetention())
        commits = CommitLog(CLUSTER, broker, lambda _: self.store)
        return DeletedShipper(broker, lambda _: self.store, uploader, commits, self._is_deleted, self._reported)

    def _reported(self, listing: Listing) -> int | None:
        return reported_end(listing.directory, self.reported, 5.0)

    def _is_deleted(self, _: str, topic_id: str) -> bool | None:
        return self.deleted if topic_id == ID else self.other_deleted

    def led(self, broker: int = 1) -> None:
        """Let an agent that leads write the commit of its leadership, and ship nothing yet."""
        listing = self.local.listing()
        commits = CommitLog(CLUSTER, broker, lambda _: self.store)
        commits.read(ReadPosition(TP, 0, Leadership(EPOCH, ID, 0), listing, 0, None, 0))

    def rename(self) -> Listing:
        """Rename the directory as the broker does."""
        path = self.local.path.with_name(f"{TP}.{'a' * 32}-delete")
        self.local.path.rename(path)
        listing = list_partition(TP, self.local.log_dir, path.name)
        assert listing is not None
        return listing

    def task(self, high_watermark: int | None, *, led: bool = True) -> ShipDeleted:
        leadership = Leadership(EPOCH, ID, 0)
        return ShipDeleted(TP, -1, leadership, self.rename(), high_watermark, led=led, latest=False)

    def ship(self, task: ShipDeleted, broker: int = 1) -> DeletedShipped | DeletedPending:
        shipper = self.shipper(broker)
        return shipper.ship(shipper.note_log(task), self.committed.append)

    def archived(self, keys: PartitionKeys = KEYS) -> tuple[int, list[int], tuple[tuple[int, int], ...]]:
        """The next offset, 0 without a commit, the bases of the stored segments, and the gaps."""
        catalog = read_catalog(self.store, keys)
        next_offset = catalog.commit.next_offset if isinstance(catalog.commit, Commit) else 0
        return next_offset, [segment.name.base for segment in catalog.segments], catalog.gaps

    def read(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The offsets that readers receive, and the holes."""
        records, holes = read_incarnation(self.store, KEYS)
        return [record.offset for record in records], holes

    def stored(self, base: int) -> bytes:
        return b"".join(fetch(self.store, KEYS.segment(SegmentName(base))))


@pytest.fixture
def doomed(tmp_path: Path, store: ObjectStore) -> Doomed:
    return Doomed(tmp_path / "log-dir", store)


def test_u45_all_of_the_log_is_shipped_up_to_its_high_watermark(doomed: Doomed) -> None:
    """The closed segments, and the active one as it is in the file: nothing is a gap."""
    doomed.led()
    result = doomed.ship(doomed.task(30))
    assert isinstance(result, DeletedShipped)
    assert doomed.archived() == (30, [0, 10, 20], ())
    assert doomed.stored(20) == batch(20, 5, EPOCH) + batch(25, 5, EPOCH)


@pytest.mark.parametrize(
    ("high_watermark", "bases", "gap"),
    [(25, [0, 10, 20], 25), (27, [0, 10, 20], 25), (15, [0, 10], 15), (20, [0, 10], 20)],
)
def test_u45_no_record_above_the_last_high_watermark_is_shipped(
    doomed: Doomed, high_watermark: int, bases: list[int], gap: int
) -> None:
    """Its segment is cut there, and a gap record names what may never have been committed."""
    doomed.led()
    doomed.ship(doomed.task(high_watermark))
    assert doomed.archived() == (30, bases, ((gap, 30),))
    if gap % 10:
        assert doomed.stored(bases[-1]) == batch(bases[-1], 5, EPOCH)
    (last,) = [each for each in doomed.committed if each.gaps]
    assert last.with_topic
    assert str(high_watermark) in last.reason


def test_u45b_an_unknown_high_watermark_makes_the_rest_a_gap(doomed: Doomed) -> None:
    """Nothing is shipped whose commitment no file proves; the gap record gives that reason."""
    doomed.led()
    doomed.ship(doomed.task(None))
    assert doomed.archived() == (30, [], ((0, 30),))
    assert "high watermark" in doomed.committed[-1].reason


@pytest.mark.parametrize(
    ("when", "counts"), [("early", False), ("live", True), ("late", False), ("removing", False), ("known", False)]
)
def test_u45b_the_end_that_the_agent_wrote_to_the_store_counts(doomed: Doomed, when: str, *, counts: bool) -> None:
    """It is of the last leader epoch and from before the rename; a later one can be of a topic created again."""
    begun = time.time_ns() - 60 * SECOND
    os.utime(doomed.local.path / "leader-epoch-checkpoint", ns=(begun, begun))
    doomed.led()
    task = doomed.task(15 if when == "known" else None)
    if when == "removing":
        (task.listing.directory / "partition.metadata").touch()
        (task.listing.directory / "left").touch()
    written = {"early": begun + 9 * SECOND, "late": time.time_ns() + SECOND}.get(when, begun + 11 * SECOND)
    doomed.reported = End(25, written // 1_000_000)
    doomed.ship(task)
    end = 25 if counts else 15 if when == "known" else 0
    assert doomed.archived()[2] == ((end, 30),)


def test_u45_a_directory_that_vanishes_before_it_is_shipped_becomes_a_gap(doomed: Doomed) -> None:
    """The store is away until the broker has removed the files: the end of the log is known, and recorded."""

    class Away(WrappedStore):
        def put(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise StoreUnavailable("no answer")

    doomed.led()
    task, store = doomed.task(30), doomed.store
    doomed.store = Away(store, threads=1)
    shipper = doomed.shipper()
    task = shipper.note_log(task)
    with pytest.raises(StoreUnavailable):
        shipper.ship(task, doomed.committed.append)
    shutil.rmtree(task.listing.directory)
    doomed.store = store
    pending = again(task, "no answer")
    assert isinstance(pending, DeletedPending)
    assert isinstance(doomed.ship(pending.task), DeletedShipped)
    assert doomed.archived() == (30, [], ((0, 30),))
    assert doomed.committed[-1].with_topic
    assert "removed the files" in doomed.committed[-1].reason


def test_u45_a_replica_that_only_moved_is_not_shipped(doomed: Doomed) -> None:
    """The cluster has the topic id: another broker leads, and its agent ships. Without an answer nothing is decided."""
    task = doomed.task(30)
    doomed.deleted = False
    assert isinstance(doomed.ship(task), DeletedPending)
    doomed.deleted = None
    with pytest.raises(TransientError):
        doomed.ship(task)
    shutil.rmtree(task.listing.directory)
    doomed.deleted = False
    assert isinstance(doomed.ship(task), DeletedShipped)
    assert not list(doomed.store.list())


@pytest.mark.parametrize("led", [True, False])
def test_u45_a_replica_of_a_replaced_topic_id_is_not_shipped(doomed: Doomed, *, led: bool) -> None:
    """An operator adopted the new id of a live topic, and a replica with the old one moved (KAFKA-14190)."""
    first_commit(doomed, broker=1 if led else 2)
    known, etag = read_incarnations(doomed.store, CLUSTER, TP.topic)
    assert etag is not None
    adopted = known.adopted(OTHER_ID, int(time.time() * 1000))
    doomed.store.put(CLUSTER.incarnations(TP.topic), adopted.encode(), condition=IfMatch(etag))
    task = doomed.task(15, led=led)
    assert isinstance(doomed.ship(task), DeletedPending)
    assert doomed.archived() == (10, [0], ())
    doomed.other_deleted = None
    with pytest.raises(TransientError):
        doomed.ship(task)
    doomed.other_deleted = True
    doomed.ship(replace(task, patient=True))
    assert doomed.archived()[1] == [0, 10]


def test_u45a_a_replica_that_moves_before_a_replaced_id_is_adopted_loses_nothing(doomed: Doomed) -> None:
    """It counts as deleted, and its rest becomes a gap; the leader ships into the gap once the id is adopted."""
    first_commit(doomed, broker=2)
    leader = Doomed(doomed.local.log_dir.parent / "leader", doomed.store)
    task = replace(doomed.shipper().note_log(doomed.task(15, led=False)), patient=True)
    shutil.rmtree(task.listing.directory)
    doomed.ship(task)
    assert doomed.archived() == (30, [0], ((10, 30),))
    assert doomed.committed[-1].with_topic
    known, etag = read_incarnations(doomed.store, CLUSTER, TP.topic)
    adopted = known.adopted(OTHER_ID, int(time.time() * 1000))
    doomed.store.put(CLUSTER.incarnations(TP.topic), adopted.encode(), condition=IfMatch(etag or ""))
    leader.local.topic_id(OTHER_ID)
    leader.local.write(30, b"")
    listing, leadership = leader.local.listing(), Leadership(EPOCH, OTHER_ID, 0)
    commits = CommitLog(CLUSTER, 2, lambda _: doomed.store)
    position = commits.read(ReadPosition(TP, 0, leadership, listing, 0, None, 0)).position
    assert (position.next_offset, position.gaps) == (30, ((10, 30),))
    uploader = Uploader(lambda _: doomed.store, lambda _: TopicRetention())
    for base in (10, 20):
        ship = Ship(TP, 0, leadership, position.keys, listing, base, base + 10, position.epochs, 30, seen=True)
        uploader.ship(replace(ship, gaps=position.gaps))
    assert doomed.read() == ([*range(30)], [])


def test_u45_a_topic_that_was_created_again_keeps_its_own_archive(doomed: Doomed) -> None:
    """The deleted one's records are in its incarnation, although a later one is open."""
    doomed.led()
    task = doomed.task(30)
    later = LocalDirectory(doomed.local.log_dir)
    later.topic_id(OTHER_ID)
    later.epochs((0, 0))
    later.write(0, batch(0, 5, 0))
    commits = CommitLog(CLUSTER, 1, lambda _: doomed.store)
    commits.read(ReadPosition(TP, 0, Leadership(0, OTHER_ID, 0), later.listing(), 0, None, 0))
    doomed.ship(task)
    assert doomed.archived() == (30, [0, 10, 20], ())
    incarnations, _ = read_incarnations(doomed.store, CLUSTER, TP.topic)
    assert [entry.topic_id for entry in incarnations.entries] == [ID, OTHER_ID]
    assert not read_catalog(doomed.store, CLUSTER.partition(TP, incarnations.newest_directory)).segments


def test_u45_a_deleted_topic_is_not_opened_after_one_that_can_be_later(doomed: Doomed) -> None:
    """No agent saw it: next to a topic of its name it gets no incarnation, since readers would use that one."""
    later = LocalDirectory(doomed.local.log_dir.parent / "other")
    later.topic_id(OTHER_ID)
    later.epochs((0, 0))
    later.write(0, batch(0, 5, 0))
    commits = CommitLog(CLUSTER, 1, lambda _: doomed.store)
    commits.read(ReadPosition(TP, 0, Leadership(0, OTHER_ID, 0), later.listing(), 0, None, 0))
    task = doomed.shipper().note_log(doomed.task(30))
    with pytest.raises(Exception, match="can be later"):
        doomed.ship(task)
    incarnations, _ = read_incarnations(doomed.store, CLUSTER, TP.topic)
    assert [entry.topic_id for entry in incarnations.entries] == [OTHER_ID]


def test_u45_the_agent_of_the_last_leader_is_first(doomed: Doomed) -> None:
    """Another replica's agent waits, then ships what it has, and records the rest once the directory is removed."""
    doomed.led(broker=2)
    first_commit(doomed, broker=2)
    task = doomed.task(25, led=False)
    waiting = doomed.ship(task)
    assert isinstance(waiting, DeletedPending)
    assert waiting.task.patient
    assert waiting.task.after_seconds > 0
    assert doomed.archived()[0] == 10
    helped = doomed.ship(waiting.task)
    assert isinstance(helped, DeletedPending)
    assert doomed.archived() == (25, [0, 10, 20], ())
    shutil.rmtree(task.listing.directory)
    assert isinstance(doomed.ship(helped.task), DeletedShipped)
    assert doomed.archived() == (30, [0, 10, 20], ((25, 30),))


@pytest.mark.parametrize("known", [None, 15, 25])
def test_u45_a_follower_waits_and_leaves_no_gap_while_its_directory_exists(doomed: Doomed, known: int | None) -> None:
    """No agent committed in the epoch, so no commit shows who led: the last leader's agent ships everything."""
    follower = Doomed(doomed.local.log_dir.parent / "follower", doomed.store)
    waiting = follower.ship(follower.task(known, led=False), broker=2)
    assert isinstance(waiting, DeletedPending)
    assert not list(doomed.store.list())
    waiting = follower.ship(waiting.task, broker=2)
    assert isinstance(waiting, DeletedPending)
    assert follower.archived()[2] == ()
    assert isinstance(follower.ship(waiting.task, broker=2), DeletedPending)  # its own commit does not make it leader
    doomed.ship(doomed.task(30))
    assert doomed.read() == ([*range(30)], [])
    assert doomed.archived()[2] == ()
    assert isinstance(follower.ship(waiting.task, broker=2), DeletedShipped)


@pytest.mark.parametrize(("known", "end"), [(None, 30), (15, 30), (25, 30), (None, 25), (15, 25)])
def test_u45_the_leader_ships_into_the_gap_that_a_follower_recorded(
    doomed: Doomed, known: int | None, end: int
) -> None:
    """The follower's directory is removed first; its log can end below the leader's."""
    follower = Doomed(doomed.local.log_dir.parent / "follower", doomed.store)
    if end == 25:
        follower.local.write(20, batch(20, 5, EPOCH))
    waiting = follower.ship(follower.task(known, led=False), broker=2)
    assert isinstance(waiting, DeletedPending)
    shutil.rmtree(waiting.task.listing.directory)
    doomed.led()
    follower.ship(waiting.task, broker=2)
    assert doomed.archived()[2] == ((0, end),)
    doomed.ship(doomed.task(30))
    assert doomed.read() == ([*range(30)], [])


@pytest.mark.parametrize("is_removed", [False, True], ids=["", "its directory is removed first"])
@pytest.mark.parametrize("known", [None, 30])
def test_u45_a_follower_whose_log_begins_later_hides_nothing_of_the_leaders(
    doomed: Doomed, known: int | None, *, is_removed: bool
) -> None:
    """Its retention removed what the leader has, and its agent begins the archive: below its log is a gap to fill."""
    follower = Doomed(doomed.local.log_dir.parent / "follower", doomed.store)
    follower.local.unlink(0)
    waiting = follower.ship(follower.task(20, led=False), broker=2)
    assert isinstance(waiting, DeletedPending)
    if is_removed:
        shutil.rmtree(waiting.task.listing.directory)
        opened = CommitLog(CLUSTER, 1, lambda _: doomed.store)
        opened.read(ReadPosition(TP, 0, Leadership(EPOCH, ID, 0), doomed.local.listing(), 0, None, 0))
        doomed.store.delete([KEYS.log_start])  # as if it was killed before it
    follower.ship(waiting.task, broker=2)
    doomed.ship(doomed.task(known))
    offsets, holes = doomed.read()
    if known is None:
        assert offsets == ([] if is_removed else [*range(10, 20)])
        assert doomed.archived()[2] == (((0, 30),) if is_removed else ((0, 10), (20, 30)))
    else:
        assert (offsets, holes) == ([*range(30)], [])


def test_u45_no_upload_waits_for_the_answer_whether_a_topic_was_deleted(doomed: Doomed) -> None:
    """The question is a lookup, repeated until it is answered; the task is an upload from then on."""
    queues = TaskQueues(lambda _: None)
    task = doomed.task(30)
    queues.put([task])
    confirmed = doomed.shipper().confirm(task)
    assert isinstance(confirmed, ShipDeleted)
    assert (len(queues.lookups), len(queues.uploads)) == (1, 0)
    queues.put([confirmed])
    assert (len(queues.lookups), len(queues.uploads)) == (1, 1)


def test_u45_a_directory_that_the_broker_is_removing_has_changed(doomed: Doomed) -> None:
    """Its segments vanish before the directory does, before or after its log was noted: no defect of the agent."""
    doomed.led()
    task = doomed.task(30)
    noted = doomed.shipper().note_log(task)
    for file in task.listing.directory.glob("*.log"):
        file.unlink()
    with pytest.raises(SegmentChanged):
        doomed.ship(noted)
    empty = list_partition(TP, task.listing.log_dir, task.listing.renamed)
    assert empty is not None
    with pytest.raises(SegmentChanged):
        doomed.ship(replace(task, listing=empty))


@pytest.mark.parametrize("end", [10, 30])
def test_u45_a_later_leader_is_not_contradicted(doomed: Doomed, end: int) -> None:
    """The commit is of a later epoch: nothing is written, and what that leader's agent never shipped is reported."""
    doomed.led()
    first_commit(doomed, broker=2, epoch=EPOCH + 1)
    catalog = read_catalog(doomed.store, KEYS)
    assert isinstance(catalog.commit, Commit)
    commit = replace(catalog.commit, next_offset=end, tail=None)
    doomed.store.put(KEYS.commit, commit.encode(), condition=IfMatch(catalog.commit_etag or ""))
    before = {info.key: info.etag for info in doomed.store.list()}
    task = replace(doomed.shipper().note_log(doomed.task(30, led=False)), patient=True)
    ended = doomed.ship(task)
    if end < 30:  # that agent may still have more
        assert isinstance(ended, DeletedPending)
        shutil.rmtree(task.listing.directory)
        ended = doomed.ship(ended.task)
    assert isinstance(ended, DeletedShipped)
    assert ended.lost == (end < 30)
    assert {info.key: info.etag for info in doomed.store.list()} == before


@pytest.mark.parametrize("end", [20, 25])
def test_u45_a_follower_with_a_shorter_log_ships_into_the_gap_of_the_leader(doomed: Doomed, end: int) -> None:
    """The leader's agent counted an earlier high watermark, and its commit passes the end of the follower's log."""
    follower = Doomed(doomed.local.log_dir.parent / "follower", doomed.store)
    follower.local.write(20, batch(20, 5, EPOCH) if end == 25 else b"")
    doomed.led()
    doomed.ship(doomed.task(15))
    assert doomed.archived()[2] == ((15, 30),)
    waiting = follower.ship(follower.task(end, led=False), broker=2)
    assert isinstance(waiting, DeletedPending)
    assert isinstance(follower.ship(waiting.task, broker=2), DeletedShipped)
    assert doomed.read() == ([*range(end)], [(end, 30)])


def first_commit(doomed: Doomed, broker: int, epoch: int = EPOCH) -> None:
    """Ship and commit the first segment as a broker's agent that leads in an epoch."""
    doomed.local.epochs(*([(EPOCH, 0)] if epoch == EPOCH else [(EPOCH, 0), (epoch, 30)]))
    listing, leadership = doomed.local.listing(), Leadership(epoch, ID, 0)
    commits = CommitLog(CLUSTER, broker, lambda _: doomed.store)
    position = commits.read(ReadPosition(TP, 0, leadership, listing, 0, None, 0)).position
    uploader = Uploader(lambda _: doomed.store, lambda _: TopicRetention())
    shipped = uploader.ship(Ship(TP, 0, leadership, KEYS, listing, 0, 10, seen=True))
    commits.write(WriteCommit(TP, 0, leadership, position, (shipped,)))
    doomed.local.epochs((EPOCH, 0))


def checkpoint(doomed: Doomed, offset: int) -> None:
    (doomed.local.log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} {offset}\n")


def test_u45_a_checkpoint_counts_well_after_the_epoch_began_if_no_other_directory_has_the_name(doomed: Doomed) -> None:
    """An earlier file can have the value of a log that was cut since; the entry can be of a topic created again."""
    (doomed.local.log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} 25\n")
    file = doomed.local.log_dir / "replication-offset-checkpoint"
    begun = time.time_ns() - 60 * SECOND
    os.utime(doomed.local.path / "leader-epoch-checkpoint", ns=(begun, begun))
    directory = doomed.rename().directory

    def read(seconds: int) -> int | None:
        os.utime(file, ns=(begun + seconds * SECOND, begun + seconds * SECOND))
        return checkpointed_end(directory, TP, 5.0)

    assert read(11) == 25
    assert read(9) is None
    doomed.local.path.mkdir()
    assert read(11) is None
    doomed.local.path.rename(directory.with_name(f"{TP}.{'b' * 32}-delete"))
    assert read(11) is None


def test_u45_the_last_reading_of_the_live_directory_counts(doomed: Doomed) -> None:
    """A later one can be of a topic created again; so can one of another directory. Or an election cut the log."""
    log_dir, path = doomed.local.log_dir, doomed.local.path
    tracker = Tracker(OffsetReset.EARLIEST)
    checkpoint = log_dir / "replication-offset-checkpoint"

    def see(offset: int) -> None:
        checkpoint.with_suffix(".tmp").write_text(f"0\n1\n{TP.topic} {TP.partition} {offset}\n")
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        tracker.observe(read_high_watermarks(log_dir))

    tracker.observe(doomed.local.listing())
    for offset in (5, 10, 15, 25):
        see(offset)
    listing = doomed.rename()
    path.mkdir()
    see(99)
    (task,) = tracker.observe(DirectoryDeleted(listing, None))
    assert isinstance(task, ShipDeleted)
    assert (task.high_watermark, task.led, task.leadership.epoch) == (25, False, EPOCH)
    later = replace(listing.last_epoch, epoch=EPOCH + 1)
    for other in (replace(listing, identity=(0, 0)), replace(listing, last_epoch=later)):
        assert [getattr(each, "high_watermark", 0) for each in tracker.observe(DirectoryDeleted(other, 7))] == [7]
    assert not tracker.observe(DirectoryDeleted(replace(listing, topic_id=None), None))


def test_u45_a_log_without_a_leader_epoch_is_not_left_in_silence(doomed: Doomed) -> None:
    """A log of magic 0 or 1, and the agent started since: another agent shipped it, or it counts as lost."""
    doomed.led()
    doomed.local.no_epochs()
    (task,) = Tracker(OffsetReset.EARLIEST).observe(DirectoryDeleted(doomed.rename(), 30))
    assert isinstance(task, ShipDeleted)
    assert task.leadership.epoch == UNKNOWN_EPOCH
    waiting = doomed.ship(task)
    assert isinstance(waiting, DeletedPending)
    shutil.rmtree(task.listing.directory)
    lost = doomed.ship(waiting.task)
    assert isinstance(lost, DeletedShipped)
    assert lost.lost
    commit = Commit(EPOCH, 30, 2, EpochHistory(((EPOCH, 0),)), 20, ID, 30, 0, "ours")
    doomed.store.put(KEYS.commit, commit.encode())
    done = doomed.ship(waiting.task)
    assert isinstance(done, DeletedShipped)
    assert not done.lost
