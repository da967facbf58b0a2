"""The commit names the live tail of its topic (tail rules 1 and 4), and is written where nothing has closed."""

from dataclasses import replace

import pytest

from tests.common.log_format import build
from tests.uploader.committing.elections import committed
from tests.uploader.committing.lineages import ask, stored, write_log_start
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, Lineage, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.restored import Restored, RestoredPartition, RestoredTopic
from ts_common.archive.view import open_view
from ts_common.errors import DataLoss, SegmentChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing import commit_writer
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import ForgetFormer, Position, ReadPosition, Shipped, WriteCommit

LEADERSHIP = Leadership(5, ID, 0)


@pytest.fixture
def commits(store: ObjectStore) -> CommitLog:
    return tailing(store)


def tailing(store: ObjectStore, log: str | None = "1", broker: int = 1) -> CommitLog:
    return CommitLog(CLUSTER, broker, lambda _: store, tail_log=lambda _: log)


def live(store: ObjectStore) -> Live | None:
    return stored(store)[0].live


def named(store: ObjectStore, next_offset: int, epoch: int, tail: Live | None, *epochs: tuple[int, int]) -> None:
    """Write a commit of another broker's leadership."""
    before = replace(committed(store, next_offset, *epochs), epoch=epoch, live=tail)
    store.put(KEYS.commit, before.encode())


def move(commits: CommitLog, position: Position, end: int, epoch: int = 5) -> Position:
    """Commit a segment from the next offset to `end`."""
    start, leadership = position.next_offset, replace(LEADERSHIP, epoch=epoch)
    run = (Shipped(TP, 0, leadership, start, end, end, ((epoch, start),), end, 1, 0, 0.0),)
    return commits.write(WriteCommit(TP, 0, leadership, position, run)).position


def log_of(local: LocalDirectory, *bases: int, end: int) -> None:
    """Write a log whose active segment is not empty."""
    local.segments(*bases)
    local.write(bases[-1], build.batch(bases[-1], [build.record(n) for n in range(end - bases[-1])], epoch=5))


def test_with_the_tail_off_no_commit_names_one(store: ObjectStore, local: LocalDirectory) -> None:
    """Not even where another agent's commit names one."""
    named(store, 100, 4, Live("2", (), EpochHistory(((4, 100),))), (4, 0))
    local.segments(0, 100)
    local.epochs((4, 0), (5, 120))
    position = ask(tailing(store, None), local, 5).position
    assert live(store) is None
    move(tailing(store, None), position, 200)
    assert b"live" not in store.get(KEYS.commit)[0]


def test_a_leadership_names_its_log_and_those_whose_entries_count(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Former leaderships are carried on, and the one that is replaced is added; `ahead` is the broker's list."""
    named(store, 100, 4, Live("2", (("3", 3),), EpochHistory(((3, 100), (4, 130)))), (3, 0))
    local.segments(0, 100)
    local.epochs((3, 0), (4, 130), (5, 160))
    ask(commits, local, 5)
    assert live(store) == Live("1", (("3", 3), ("2", 4)), EpochHistory(((3, 100), (4, 130), (5, 160))))


@pytest.mark.parametrize(
    ("next_offset", "former"),
    [(129, (("3", 3), ("2", 4))), (130, (("2", 4),)), (159, (("2", 4),)), (160, ())],
)
def test_a_former_leadership_is_named_until_its_epoch_ends_at_or_below_the_next_offset(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, next_offset: int, former: tuple[tuple[str, int], ...]
) -> None:
    """Its entries are below the next offset then; `ahead` begins there."""
    named(store, 100, 4, Live("2", (("3", 3),), EpochHistory(((3, 100), (4, 130)))), (3, 0))
    local.segments(0, 100)
    local.epochs((3, 0), (4, 130), (5, 160))
    position = ask(commits, local, 5).position
    ship = Shipped(
        TP,
        0,
        LEADERSHIP,
        100,
        next_offset,
        next_offset,
        tuple(pair for pair in ((3, 100), (4, 130), (5, 160)) if pair[1] < next_offset),
        next_offset,
        1,
        0,
        0.0,
    )
    commits.write(WriteCommit(TP, 0, LEADERSHIP, position, (ship,)))
    local_list = EpochHistory(((3, 0), (4, 130), (5, 160)))
    assert live(store) == Live("1", former, local_list.from_offset(next_offset))


def test_a_leadership_without_a_record_replaces_none(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Its epoch ends where it began."""
    named(store, 100, 4, Live("2", (), EpochHistory(((4, 100),))), (3, 0))
    local.segments(0, 100)
    local.epochs((3, 0), (5, 100))
    ask(commits, local, 5)
    assert live(store) == Live("1", (), EpochHistory(((5, 100),)))


def test_where_the_list_begins_above_only_leaderships_of_the_list_are_named(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention or compaction removed what shows whether the entries of others are of this log."""
    former = (("3", 2), ("3", 3), ("2", 4))
    named(store, 100, 6, Live("2", former, EpochHistory(((2, 100),))), (2, 0))
    local.segments(120)
    local.epochs((4, 120), (6, 150), (7, 200))
    ask(commits, local, 7)
    ahead = EpochHistory(((4, 120), (6, 150), (7, 200)))
    assert live(store) == Live("1", (("2", 4), ("2", 6)), ahead)


def test_epochs_that_retention_removed_are_those_of_the_replaced_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Otherwise no former leadership is named, and a position that was read in the tail parts from the log later."""
    named(store, 100, 4, Live("2", (("3", 3),), EpochHistory(((2, 100), (3, 110), (4, 130)))), (2, 0))
    local.segments(160)
    local.epochs((4, 160), (5, 200))
    ask(commits, local, 5)
    ahead = EpochHistory(((2, 100), (3, 110), (4, 130), (5, 200)))
    assert live(store) == Live("1", (("3", 3), ("2", 4)), ahead)


def test_a_commit_that_goes_back_names_former_leaderships(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Their entries below the loss are of this log too."""
    named(store, 200, 4, Live("2", (), EpochHistory(((4, 200),))), (3, 0), (4, 100))
    log_of(local, 0, 100, end=300)
    local.epochs((3, 0), (5, 150))
    ask(commits, local, 5)
    commit, _ = stored(store)
    assert (commit.next_offset, commit.lineage) == (100, Lineage(5, 100, 200))
    assert commit.live == Live("1", (("2", 4),), EpochHistory(((3, 100), (5, 150))))


def test_a_rebuilt_commit_names_no_former_leadership(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The lost one may have named fewer."""
    named(store, 100, 4, Live("2", (("3", 3),), EpochHistory(((4, 100),))), (4, 0))
    local.segments(0, 100)
    local.epochs((4, 0), (5, 160))
    known = ask(commits, local, 5).position.commit
    assert isinstance(known, Commit)
    store.delete([KEYS.commit])
    read = ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, known, 0)
    commits.read(read)
    assert live(store) == Live("1", (), EpochHistory(((4, 0), (5, 160))))


def test_after_the_switch_an_agent_writes_a_commit_of_the_same_leadership_once(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """Entries count only after a commit that names their log."""
    local.segments(0, 100)
    local.epochs((5, 0))
    move(tailing(store, None), ask(tailing(store, None), local, 5).position, 100)
    position = ask(tailing(store), local, 5).position
    assert live(store) == Live("1", (), EpochHistory(((5, 100),)))
    assert ask(tailing(store), local, 5).position == position


def test_when_the_tail_is_switched_off_the_next_commit_drops_it(store: ObjectStore, local: LocalDirectory) -> None:
    """A read of the position in the same leadership writes nothing."""
    local.segments(0, 100)
    local.epochs((5, 0))
    position = move(tailing(store), ask(tailing(store), local, 5).position, 100)
    assert ask(tailing(store, None), local, 5).position == position
    move(tailing(store, None), position, 200)
    assert live(store) is None


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("latest", [False, True])
def test_an_archive_begins_with_a_commit_where_nothing_has_closed(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, is_there: bool, latest: bool
) -> None:
    """Line 1 is the next offset, and names no object; also if the agent before was killed after `log.start`."""
    log_of(local, 50, end=60)
    local.epochs((4, 50), (5, 55))
    if is_there:
        write_log_start(store, 50)
    position = ask(commits, local, 5, first=50, latest=latest).position
    commit, start = stored(store)
    assert (position.next_offset, position.highest_base, start.offset) == (50, None, 50)
    assert store.get(KEYS.commit)[0].startswith(b"%020d\n" % 50)
    assert (commit.next_offset, commit.epochs) == (50, EpochHistory())
    assert (commit.last_stable_offset, commit.tail) == (None, None)
    assert commit.live == Live("1", (), EpochHistory(((4, 50), (5, 55))))
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.end) == (50, 50)
    assert ask(commits, local, 5).position == replace(position, start=ask(commits, local, 5).position.start)


def test_with_the_tail_off_an_archive_has_no_commit_before_its_first_segment(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """Nor if the agent before was killed."""
    local.segments(50)
    local.epochs((5, 50))
    for _ in range(2):
        assert ask(tailing(store, None), local, 5, first=50).position.commit is None
    assert read_commit(store, KEYS) == (None, None)


def test_the_first_segment_gives_line_1_its_base(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """It can be below the next offset: a restored log continues in its last segment."""
    write_log_start(store, 50)
    log_of(local, 40, end=60)
    local.epochs((5, 40))
    part = RestoredPartition(50, None, EpochHistory(), ())
    store.put(KEYS.cluster.restored, Restored(1, "ops", {"t": RestoredTopic(None, "c", 0, "t", {0: part})}).encode())
    local.epochs((0, 40), (5, 50))
    ask(commits, local, 5)
    assert stored(store)[0].highest_base == 50
    position = ask(commits, local, 5).position  # of an agent that was restarted
    run = (Shipped(TP, 0, LEADERSHIP, 40, 80, 80, ((0, 40), (5, 50)), 80, 1, 0, 0.0),)
    commits.write(WriteCommit(TP, 0, LEADERSHIP, position, run))
    assert (stored(store)[0].highest_base, stored(store)[0].next_offset) == (40, 80)


def begun(commits: CommitLog, local: LocalDirectory) -> None:
    """Begin an archive at offset 50, in leader epoch 4."""
    log_of(local, 50, end=60)
    local.epochs((4, 50))
    ask(commits, local, 4, first=50)


def test_an_election_that_lost_the_beginning_moves_the_first_commit_back(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The new leader appends below `log.start`, and no one else has those records. No archived record was lost."""
    begun(tailing(store, "2", 2), local)
    local.unlink(50)
    log_of(local, 30, end=45)
    local.epochs((5, 45))
    found = ask(tailing(store), local, 5)
    commit, start = stored(store)
    assert (found.position.next_offset, found.lost, start.offset) == (45, None, 45)
    assert commit.lineage == start.lineage == Lineage(5, 45, 50)
    assert commit.live == Live("1", (), EpochHistory(((5, 45),)))


@pytest.mark.parametrize("end", [45, 70])
def test_an_archive_without_segments_begins_where_a_log_that_was_lost_begins_again(
    store: ObjectStore, local: LocalDirectory, end: int
) -> None:
    """All replicas have new disks, and no one else has the new records, whether the log is as long again or not."""
    begun(tailing(store, "2", 2), local)
    local.unlink(50)
    log_of(local, 0, end=end)
    local.epochs((6, 0))
    found = ask(tailing(store), local, 6)
    commit, start = stored(store)
    assert (found.position.next_offset, found.lost, start.offset) == (0, None, 0)
    assert commit.lineage == start.lineage == Lineage(6, 0, 50)


@pytest.mark.parametrize("bases", [(40,), (40, 50)])
def test_an_election_that_lost_nothing_leaves_the_first_commit(
    store: ObjectStore, local: LocalDirectory, bases: tuple[int, ...]
) -> None:
    """Segments of the next leader can begin below `log.start`."""
    begun(tailing(store, "2", 2), local)
    local.unlink(50)
    log_of(local, *bases, end=70)
    local.epochs((4, 50), (5, 70))
    assert ask(tailing(store), local, 5).position.next_offset == 50
    assert stored(store)[0].live == Live("1", (("2", 4),), EpochHistory(((4, 50), (5, 70))))


def test_a_shorter_log_in_the_same_epoch_is_data_loss(commits: CommitLog, local: LocalDirectory) -> None:
    """As with a run."""
    begun(commits, local)
    local.unlink(50)
    log_of(local, 30, end=45)
    with pytest.raises(DataLoss):
        ask(commits, local, 4)


def test_an_election_that_lost_restored_records_moves_the_first_commit_back(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The log is long enough, and has other records there."""
    part = RestoredPartition(50, None, EpochHistory(), ())
    store.put(KEYS.cluster.restored, Restored(1, "ops", {"t": RestoredTopic(None, "c", 0, "t", {0: part})}).encode())
    log_of(local, 40, end=60)
    local.epochs((0, 40), (4, 50))
    ask(tailing(store, "2", 2), local, 4)
    assert stored(store)[0].next_offset == 50
    local.epochs((0, 40), (5, 45))
    ask(tailing(store), local, 5)
    assert (stored(store)[0].next_offset, stored(store)[1].offset) == (45, 45)


def forget(commits: CommitLog, position: Position) -> Position:
    return commits.forget_former(ForgetFormer(TP, 0, LEADERSHIP, position)).position


def test_former_leaderships_are_forgotten_at_the_same_next_offset(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """All else of the commit stays, and the next one names none either."""
    named(store, 100, 4, Live("2", (("3", 3),), EpochHistory(((3, 100), (4, 130)))), (3, 0))
    local.segments(0, 100)
    local.epochs((3, 0), (4, 130), (5, 160))
    position = ask(commits, local, 5).position
    before, _ = stored(store)
    assert before.live is not None
    position = forget(commits, position)
    after, _ = stored(store)
    assert after == replace(before, time=after.time, nonce=after.nonce, live=replace(before.live, former=()))
    assert ask(commits, local, 5).position == replace(position, start=ask(commits, local, 5).position.start)


def test_another_log_of_the_same_leadership_stays_named(store: ObjectStore, local: LocalDirectory) -> None:
    """A topic was put into a group: its entries in the former log reach above the beginning of the leadership."""
    local.segments(0, 100)
    local.epochs((5, 0))
    move(tailing(store), ask(tailing(store), local, 5).position, 100)
    grouped = tailing(store, "1.secret")
    position = forget(grouped, ask(grouped, local, 5).position)
    assert live(store) == Live("1.secret", (("1", 5),), EpochHistory(((5, 100),)))
    local.epochs((5, 0), (6, 140))
    position = ask(grouped, local, 6).position
    assert live(store) == Live("1.secret", (("1", 5), ("1.secret", 5)), EpochHistory(((5, 100), (6, 140))))
    assert position.next_offset == 100


def test_the_agent_of_a_deleted_topic_keeps_what_the_last_leader_named(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """It acts in the same epoch, with another broker's log."""
    named(store, 100, 5, Live("2", (("3", 4),), EpochHistory(((4, 100), (5, 130)))), (4, 0))
    local.segments(0, 100)
    local.epochs((4, 0), (5, 130))
    before = live(store)
    read = ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, None, 0, over=True)
    position = tailing(store).read(read).position
    assert live(store) == before
    ship = Shipped(TP, 0, LEADERSHIP, 100, 120, 120, ((4, 100),), 120, 1, 0, 0.0)
    tailing(store).write(WriteCommit(TP, 0, LEADERSHIP, position, (ship,)))
    assert live(store) == Live("1", (("3", 4), ("2", 5)), EpochHistory(((4, 120), (5, 130))))


def test_a_commit_is_not_written_once_the_broker_follows_another_leader(
    store: ObjectStore, local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list of epochs is that leader's then."""
    local.segments(0, 100)
    local.epochs((5, 0))
    monkeypatch.setattr(commit_writer, "local_epochs", lambda _: EpochHistory(((5, 0), (6, 90))))
    with pytest.raises(SegmentChanged):
        ask(tailing(store), local, 5)
    assert read_commit(store, KEYS) == (None, None)


def test_a_log_without_leader_epochs_has_no_tail(store: ObjectStore, local: LocalDirectory) -> None:
    """Batches of magic 0 and 1 are shipped once their segment is closed."""
    local.segments(50)
    local.no_epochs()
    ask(tailing(store), local, 5, first=50)
    assert stored(store)[0].live is None
