"""Records of a gap that only the live tail has become segments, before the commit passes the gap (protocol rule 10)."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format.build import TRANSACTIONAL, batch, record
from tests.uploader.committing.stored_segments import LEADERSHIP, put_segment
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from tests.uploader.shipping.test_deleted_directory import EPOCH, Doomed
from tests.uploader.workers.test_task_runner import Parts
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, Live, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName, pack_name
from ts_common.archive.plan import Hole
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_pack import PackHead, encode_pack
from ts_common.archive.view import open_view
from ts_common.errors import AccessDenied, NewerFormat, OperatorError, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader.reading.transactions import stable_end
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import Committed, DeletedShipped, Failed
from ts_uploader.messages.tasks import PassGap, Position, ReadPosition
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping import tail_segments
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.workers.task_queues import TaskQueues

EPOCHS = EpochHistory(((1, 0), (4, 150), (5, 400)))


def batches(start: int, end: int) -> bytes:
    """Return batches of ten records, in the epochs of the log."""
    return b"".join(
        batch(base, [record(at) for at in range(10)], epoch=EPOCHS.at(base) or 0) for base in range(start, end, 10)
    )


def pack(store: ObjectStore, number: int, *ranges: tuple[int, int], rows: Sequence[TailEntry] = ()) -> list[TailEntry]:
    """Put a pack with an entry of each range, and rows of earlier ones; return all rows."""
    entries, bodies, at = list[TailEntry](), list[bytes](), 0
    for start, end in ranges:
        body = batches(start, end)
        epochs = EPOCHS.from_offset(start).below(end).pairs
        facts = (len(body), crc32c(body), epochs, end, (), end - start, 2000)
        entries.append(TailEntry(KEYS.directory, 5, start, end, "", at, *facts))
        bodies.append(body)
        at += len(body)
    data = encode_pack(PackHead("1", number, "n", 1), [*rows, *entries], bodies)
    store.put(CLUSTER.tail("1") + pack_name(number), data)
    first = len(data) - at
    return [*rows, *(row._replace(object=pack_name(number), position=row.position + first) for row in entries)]


@pytest.fixture
def parts(store: ObjectStore) -> Parts:
    return Parts(store, CLUSTER)


def at_100(store: ObjectStore, local: LocalDirectory, *live: int) -> Position:
    """The archive ends at 100 and has a live tail; this broker's log begins above."""
    put_segment(store, 0, 100, (1, 0))
    tail = Live("1", (), EPOCHS.from_offset(100))
    commit = Commit(0, 100, 5, EpochHistory(((1, 0),)), 100, ID, 1, 0, "ours", live=tail)
    info = store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    local.segments(*live)
    local.epochs((4, live[0]), (5, 400))
    return Position(KEYS, 0, 100, 0, commit.epochs, info.etag, commit)


def passed(parts: Parts, local: LocalDirectory, position: Position, end: int) -> Committed:
    done = parts.runner.run(PassGap(TP, 0, LEADERSHIP, position, local.listing(), end))
    assert isinstance(done, Committed), done
    return done


def shown(store: ObjectStore, end: int) -> list[tuple[int, int, bool]]:
    """Return the ranges of a view above 100, and whether each is a hole."""
    steps = open_view(store, read_catalog(store, KEYS)).plan(100, end)
    return [(step.start, step.end, isinstance(step, Hole)) for step in steps]


def test_u47_records_of_a_lost_segment_that_packs_have_are_no_gap(
    parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention removed it while no agent ran; merges drop the entries once the commit has passed them."""
    position = at_100(store, local, 300, 400)
    rows = pack(store, 1, (100, 180))
    pack(store, 2, (180, 240), (240, 290), rows=rows)
    done = passed(parts, local, position, 300)
    assert done.gaps == ((290, 300),)
    assert done.position.epochs == EpochHistory(((1, 0), (4, 150)))
    assert shown(store, 300) == [(100, 290, False), (290, 300, True)]
    assert store.get(KEYS.segment(SegmentName(100)))[0] == batches(100, 290)


def test_u47_a_damaged_entry_is_a_gap_and_hides_no_other(
    parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """Those on either side become a segment each."""
    position = at_100(store, local, 300, 400)
    rows = pack(store, 1, (100, 180), (180, 240), (240, 300))
    key = CLUSTER.tail("1") + rows[1].object
    data = bytearray(store.get(key)[0])
    data[rows[1].position + 70] ^= 1
    store.put(key, bytes(data))
    done = passed(parts, local, position, 300)
    assert done.gaps == ((180, 240),)
    assert shown(store, 300) == [(100, 180, False), (180, 240, True), (240, 300, False)]


def test_u47_a_tail_that_cannot_be_read_is_a_gap(parts: Parts, store: ObjectStore, local: LocalDirectory) -> None:
    """No reader shows its records either, and the commit does not wait for it."""
    position = at_100(store, local, 300, 400)
    (row,) = pack(store, 1, (100, 180))
    store.put(CLUSTER.tail("1") + row.object, b"?")
    assert passed(parts, local, position, 300).gaps == ((100, 300),)


def test_u47_a_batch_whose_epoch_fell_stops_no_gap(store: ObjectStore, local: LocalDirectory) -> None:
    """No CRC covers the epoch of a batch; readers show it, because the batch behind it is of the log."""
    position = at_100(store, local, 300, 400)
    body = b"".join(batch(at, epoch=epoch) for at, epoch in ((100, 1), (101, 0), (102, 1)))
    epochs = ((1, 100), (0, 101), (1, 102))
    row = TailEntry(KEYS.directory, 5, 100, 103, "", 0, len(body), crc32c(body), epochs, 103, (), 3, 2000)
    store.put(CLUSTER.tail("1") + pack_name(1), encode_pack(PackHead("1", 1, "n", 1), [row], [body]))
    gap = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    for _ in range(2):  # the first attempt was killed before the commit
        Uploader(lambda _: store, lambda _: TopicRetention()).ship_tail(gap)
    assert CommitLog(CLUSTER, 1, lambda _: store).pass_gap(gap).gaps == ((103, 300),)


def test_u47_only_whole_batches_below_the_log_of_the_broker_become_a_segment(
    parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """Entries reach into it. Those that overlap are cut where readers continue with the next one."""
    position = at_100(store, local, 300, 400)
    rows = pack(store, 1, (100, 220))
    pack(store, 2, (180, 350), rows=rows)
    assert passed(parts, local, position, 300).gaps == ()
    assert store.get(KEYS.segment(SegmentName(100)))[0] == batches(100, 300)


def test_u47_large_tails_become_several_segments_with_indexes(
    parts: Parts, store: ObjectStore, local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host needs room for one of them at a time; a killed attempt is repeated without another object."""
    monkeypatch.setattr(tail_segments, "_SEGMENT_BYTES", 2000)
    position = at_100(store, local, 300, 400)
    pack(store, 1, *((start, start + 50) for start in range(100, 300, 50)))
    task = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    uploader = Uploader(lambda _: store, lambda _: TopicRetention())
    uploader.ship_tail(task)
    names = [info.key for info in store.list(KEYS.prefix)]
    uploader.ship_tail(task)
    assert [info.key for info in store.list(KEYS.prefix)] == names
    assert passed(parts, local, position, 300).gaps == ()
    catalog = read_catalog(store, KEYS)
    assert [segment.name.base for segment in catalog.segments] == [0, 100, 200]
    assert all({".index", ".timeindex"} <= segment.suffixes for segment in catalog.segments[1:])


def test_u47_the_packs_of_a_deleted_topic_become_segments(tmp_path: Path, store: ObjectStore) -> None:
    """Its files do not exist any more, and the transaction that is open at the end of the tail stays hidden."""
    doomed = Doomed(tmp_path / "log", store)
    commits = CommitLog(CLUSTER, 1, lambda _: store, tail_log=lambda _: "1")
    leadership = Leadership(EPOCH, ID, 0)
    commits.read(ReadPosition(TP, 0, leadership, doomed.local.listing(), 0, None, 0))
    body = batch(0, [record(at) for at in range(5)], epoch=EPOCH)
    body += batch(5, [record(at) for at in range(5)], epoch=EPOCH, attributes=TRANSACTIONAL, producer_id=7)
    row = TailEntry(KEYS.directory, EPOCH, 0, 10, "", 0, len(body), crc32c(body), ((EPOCH, 0),), 5, (), 10, 2000)
    store.put(CLUSTER.tail("1") + pack_name(1), encode_pack(PackHead("1", 1, "n", 1), [row], [body]))
    task = doomed.shipper().note_log(doomed.task(30))
    shutil.rmtree(task.listing.directory)
    assert isinstance(doomed.ship(task), DeletedShipped)
    assert doomed.archived() == (30, [0], ((10, 30),))
    assert doomed.read()[0] == list(range(10))
    view = open_view(store, read_catalog(store, KEYS))
    assert stable_end(store, view) == 5


class Watched(WrappedStore):
    """A store with a function that is called with the key before each read."""

    def __init__(self, inner: ObjectStore, before: Callable[[str, ByteRange | None], object]) -> None:
        super().__init__(inner, threads=1)
        self._before = before

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store."""
        self._before(key, byte_range)
        return super().open(key, byte_range)


@pytest.mark.parametrize("refusal", [AccessDenied("no right to read"), NewerFormat("of a later release")])
def test_u47_packs_that_an_operator_can_make_readable_are_no_gap(
    store: ObjectStore, local: LocalDirectory, refusal: OperatorError
) -> None:
    """The commit waits: once it has passed them, merges drop the only copy."""
    position = at_100(store, local, 300, 400)
    pack(store, 1, (100, 300))

    def refuse(key: str, _: ByteRange | None) -> None:
        if "/tail/" in key:
            raise refusal

    task = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    failed = Parts(Watched(store, refuse), CLUSTER).runner.run(task)
    assert isinstance(failed, Failed)
    assert str(refusal) in failed.reason
    assert passed(Parts(store, CLUSTER), local, position, 300).gaps == ()


def test_u47_an_entry_that_a_merge_moves_meanwhile_is_no_gap(store: ObjectStore, local: LocalDirectory) -> None:
    """A large gap needs longer than the grace after which the agent deletes merged packs."""
    position = at_100(store, local, 300, 400)
    rows = pack(store, 1, (100, 180), (180, 300))
    key = CLUSTER.tail("1") + rows[1].object

    def merge(read: str, part: ByteRange | None) -> None:
        if read == key and part is not None and part.start == rows[1].position:
            pack(store, 2, (100, 240), (240, 300))
            store.delete([key])

    assert passed(Parts(Watched(store, merge), CLUSTER), local, position, 300).gaps == ()
    assert store.get(KEYS.segment(SegmentName(100)))[0] == batches(100, 300)


def test_u47_an_attempt_continues_where_the_one_before_failed(
    store: ObjectStore, local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails now and then would never let a large gap be passed."""
    monkeypatch.setattr(tail_segments, "_SEGMENT_BYTES", 2000)
    position = at_100(store, local, 300, 400)
    rows = pack(store, 1, *((start, start + 50) for start in range(100, 300, 50)))
    bases = {row.position: row.start for row in rows}
    read = list[int]()

    def fail_once(key: str, part: ByteRange | None) -> None:
        if part is not None and part.start in bases and "/tail/" in key:
            read.append(bases[part.start])
            if read == [100, 150, 200, 250]:
                raise StoreUnavailable("once")

    watched = Parts(Watched(store, fail_once), CLUSTER)
    task = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    assert isinstance(watched.runner.run(task), Failed)
    assert passed(watched, local, position, 300).gaps == ()
    assert read == [100, 150, 200, 250, 200, 250]


def test_u47_a_late_agent_puts_nothing(parts: Parts, store: ObjectStore, local: LocalDirectory) -> None:
    """Its chain can have records that an election lost, and another agent decides what the run has."""
    position = at_100(store, local, 300, 400)
    pack(store, 1, (100, 300))
    assert isinstance(position.commit, Commit)
    store.put(KEYS.commit, replace(position.commit, nonce="of another").encode())
    names = [info.key for info in store.list(KEYS.prefix)]
    task = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    assert isinstance(parts.runner.run(task), Failed)
    assert [info.key for info in store.list(KEYS.prefix)] == names


def test_u47_a_segment_that_an_election_lost_stays_hidden(
    parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit names the epochs of the leader's log in the gap; retention has cut the leader's own list since."""
    position = at_100(store, local, 300, 400)
    assert isinstance(position.commit, Commit)
    commit = replace(position.commit, live=Live("1", (), EpochHistory(((1, 100), (5, 120)))))
    position = replace(position, commit=commit, etag=store.put(KEYS.commit, commit.encode()).etag)
    local.epochs((5, 300))
    put_segment(store, 100, 290, (1, 100), (4, 120))
    assert passed(parts, local, position, 300).gaps == ((120, 300),)
    assert shown(store, 300) == [(100, 120, False), (120, 300, True)]


def test_u47_no_commit_waits_for_the_records_of_a_gap(store: ObjectStore, local: LocalDirectory) -> None:
    """Two threads write the commits of all partitions, and a gap can have a gigabyte in packs."""
    queues = TaskQueues(lambda _: None)
    position = at_100(store, local, 300, 400)
    queues.put([PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)])
    assert (len(queues.uploads), len(queues.commits)) == (1, 0)


@pytest.mark.parametrize("broker", [1, 2])
def test_u47_records_whose_leadership_the_next_commit_does_not_name_are_kept(
    store: ObjectStore, local: LocalDirectory, broker: int
) -> None:
    """The broker was elected again, and its list begins above; an unclean election of another may have lost them."""
    at_100(store, local, 500, 600)
    pack(store, 1, (100, 400))
    local.epochs((6, 500))
    leadership = Leadership(6, ID, 0)
    uploader = Uploader(lambda _: store, lambda _: TopicRetention())
    commits = CommitLog(CLUSTER, broker, lambda _: store, tail_log=lambda _: f"{broker}", keep_tail=uploader.ship_tail)
    position = commits.read(ReadPosition(TP, 0, leadership, local.listing(), 0, None, 0)).position
    assert isinstance(position.commit, Commit)
    assert position.commit.live == Live(f"{broker}", (), EpochHistory(((6, 500),)))
    gap = PassGap(TP, 0, leadership, position, local.listing(), 500)
    uploader.ship_tail(gap)
    kept = 400 if broker == 1 else 100
    assert commits.pass_gap(gap).gaps == ((kept, 500),)
    assert shown(store, 500)[-1] == (kept, 500, True)
