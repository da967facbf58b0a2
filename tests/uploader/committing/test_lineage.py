"""Lineages: the commit goes back, `log.start` follows, and readers join the two (protocol rules 5 and 8)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from tests.common.log_format import build
from tests.uploader.committing.dying_store import Dying
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive import catalog as catalogs
from ts_common.archive.catalog import StoredLogStart, read_catalog, read_commit
from ts_common.archive.commit import Commit, LogStart, decode_log_start, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.view import open_view
from ts_common.errors import LineageUnsettled, OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.going_back import settle_log_start
from ts_uploader.events import Leadership
from ts_uploader.log_dirs.leader_epoch import FencedLeaderEpoch
from ts_uploader.tasks import Position, PositionRead, ReadPosition, Shipped, WriteCommit

OLD = Lineage(3, 100, 250)


@pytest.fixture
def commits(store: ObjectStore) -> CommitLog:
    return CommitLog(CLUSTER, 1, lambda _: store)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers try as often as ever, without their backoff."""
    monkeypatch.setattr(catalogs, "_LINEAGE_WAITS_SECONDS", (0.0,) * 5)


def write_commit(
    store: ObjectStore, next_offset: int, *epochs: tuple[int, int], lineage: Lineage | None = None
) -> None:
    commit = Commit(0, next_offset, epochs[-1][0], EpochHistory(epochs), 0, ID, 2, 0, "theirs", lineage=lineage)
    store.put(KEYS.commit, commit.encode())


def write_log_start(store: ObjectStore, offset: int, lineage: Lineage | None = None) -> None:
    store.put(KEYS.log_start, LogStart(offset, lineage).encode())


def put_segment(
    store: ObjectStore, base: int, end: int, *epochs: tuple[int, int], name: SegmentName | None = None, lacks: int = 0
) -> None:
    metadata = SegmentMetadata(end, epochs, end - base - lacks, None, None, 0)
    store.put(KEYS.segment(name or SegmentName(base)), b"x", metadata=metadata.encode())


def ask(commits: CommitLog, local: LocalDirectory, epoch: int, *, first: int = 0, latest: bool = False) -> PositionRead:
    return commits.read(ReadPosition(TP, 0, Leadership(epoch, ID, 0), local.listing(), first, None, 0, latest))


def stored(store: ObjectStore) -> tuple[Commit, LogStart]:
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    return commit, decode_log_start(store.get(KEYS.log_start)[0], "log.start")


class Unanswered(WrappedStore):
    """A store that takes a commit and answers neither that nor anything after it, until it is mended."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.mended = self._silent = False

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """As the inner store, and no answer."""
        info = super().put(key, *arguments, **named)
        if key == KEYS.commit and not self.mended:
            self._silent = True
            raise OutcomeUnknown("no answer")
        return info

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store, before the commit."""
        if self._silent and not self.mended:
            raise StoreUnavailable("no answer")
        return super().open(key, byte_range)


def empty_replica(local: LocalDirectory, epoch: int) -> None:
    """It came back without a record, and leads."""
    local.segments(0)
    local.epochs((epoch, 0))


def test_u36_an_election_below_log_start_takes_it_down(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A replica that came back empty leads: its records from 0 on are shown, though the archive began at 120."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    asked = ask(commits, local, 5)
    lineage = Lineage(5, 0, 300)
    commit, start = stored(store)
    assert (asked.lost, asked.position.next_offset, asked.position.lineage) == ((0, 300), 0, lineage)
    assert (commit.next_offset, commit.lineage, start) == (0, lineage, LogStart(0, lineage))
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.end) == (0, 0)


@pytest.mark.parametrize("key", [KEYS.commit, KEYS.log_start])
def test_u36_killed_before_either_write_the_next_life_completes_it(
    store: ObjectStore, local: LocalDirectory, key: str
) -> None:
    """Readers in between see nothing false, and the commit goes back once."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    with pytest.raises(StoreUnavailable):
        ask(CommitLog(CLUSTER, 1, lambda _: Dying(store, key)), local, 5)
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.end) == ((120, 300) if key == KEYS.commit else (0, 0))
    before = stored(store)[0]
    ask(CommitLog(CLUSTER, 1, lambda _: store), local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, start) == (0, LogStart(0, Lineage(5, 0, 300)))
    assert (commit == before) == (key == KEYS.log_start)


def test_u36_a_loss_is_told_once_also_where_the_store_took_the_commit_and_did_not_answer(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The next attempt finds a commit that went back already, and could not say from where."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    unanswered, told = Unanswered(store), []
    commits = CommitLog(CLUSTER, 1, lambda _: unanswered, lost=lambda *loss: told.append(loss))
    with pytest.raises(StoreUnavailable):
        ask(commits, local, 5)
    unanswered.mended = True
    assert ask(commits, local, 5).position.next_offset == 0
    assert told == [(TP, (0, 300), False)]


def test_u36_a_late_agent_of_the_old_lineage_is_refused(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """What it read before is no condition any more, whatever of the two objects it writes."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    local.segments(120, 300)
    local.epochs((1, 120), (4, 300))
    late = CommitLog(CLUSTER, 2, lambda _: store)
    position = ask(late, local, 4).position
    data, info = store.get(KEYS.log_start)
    local.unlink(120, 300)
    empty_replica(local, 5)
    ask(commits, local, 5)
    after = stored(store)
    shipped = Shipped(TP, 0, Leadership(4, ID, 0), 300, 400, 400, ((4, 300),), 400, 1, 0, 0.0)
    with pytest.raises(FencedLeaderEpoch, match="is of leader epoch 5"):
        late.write(WriteCommit(TP, 0, Leadership(4, ID, 0), position, (shipped,)))
    read = StoredLogStart(decode_log_start(data, "log.start"), info.etag)
    with pytest.raises(PreconditionFailed):
        settle_log_start(store, KEYS, read, Lineage(4, 120, 300), 120)
    local.epochs((4, 0))
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 5"):
        ask(late, local, 4)
    assert stored(store) == after


def test_u36_log_start_gets_the_lineage_also_where_its_number_stays(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Other bytes, another ETag: a late write that retention has under way is refused."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 0)
    _, old = store.get(KEYS.log_start)
    local.segments(0, 100)
    local.write(100, build.batch(100, [build.record(n) for n in range(30)], epoch=1))
    local.epochs((1, 0), (5, 130))
    ask(commits, local, 5)
    assert stored(store)[1] == LogStart(0, Lineage(5, 130, 300))
    assert store.get(KEYS.log_start)[1].etag != old.etag


def test_u36_log_start_goes_no_lower_than_what_the_leader_holds(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Below that lies what retention took from the leader: readers would be told of a loss that was none of theirs."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 230)
    local.segments(220, 300)
    local.epochs((1, 220), (5, 300))
    ask(commits, local, 5)
    assert stored(store)[1] == LogStart(220, Lineage(5, 200, 230))


def test_u36_an_archive_that_shipped_nothing_begins_below_its_log_start(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Killed after `log.start`; then an empty replica leads: the commit is written first, and nothing is hidden."""
    write_log_start(store, 12)
    empty_replica(local, 5)
    local.segments(8)
    with pytest.raises(StoreUnavailable):
        ask(CommitLog(CLUSTER, 1, lambda _: Dying(store, KEYS.log_start)), local, 5)
    assert ask(commits, local, 5).position.next_offset == 0
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start) == (0, Lineage(5, 0, 12), LogStart(0, Lineage(5, 0, 12)))


@pytest.mark.parametrize(("records", "next_offset"), [(60, 50), (30, 0)])
def test_u34_with_latest_log_start_goes_down_only_where_the_log_ends_below_it(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, records: int, next_offset: int
) -> None:
    """Another broker's active segment may begin lower and hold the offset all the same."""
    write_log_start(store, 50)
    local.write(0, build.batch(0, [build.record(n) for n in range(records)], epoch=5))
    local.epochs((5, 0))
    assert ask(commits, local, 5, latest=True).position.next_offset == next_offset


def test_u36_a_commit_that_a_late_agent_made_again_begins_another_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit was lost; an agent of epoch 1 that saw none long ago makes one, under the lineage of epoch 3."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 100, OLD)
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    with pytest.raises(LineageUnsettled, match="the lineage Lineage"):
        read_catalog(store, KEYS)
    assert ask(commits, local, 5).lost is None
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage) == (200, Lineage(5, 200, 250))
    assert start == LogStart(100, Lineage(5, 200, 250))
    read_catalog(store, KEYS)


def test_u36_a_log_start_above_the_next_offset_of_its_own_lineage_is_taken_down(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Only a lost commit leaves that behind; what lies in between would never be shown."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 230)
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    ask(commits, local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start.offset) == (200, Lineage(5, 200, 230), 200)


def test_u36_a_log_start_of_an_older_lineage_above_the_third_element_is_taken_down(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention moved it while the commit was lost, and may delete below it: plain names there are no longer used."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 280)
    local.segments(0, 300)
    local.epochs((3, 100), (5, 300))
    assert ask(commits, local, 5).lost is None
    commit, start = stored(store)
    assert commit.lineage == Lineage(5, 200, 280)
    assert start == LogStart(200, Lineage(5, 200, 280))


@pytest.mark.parametrize("name", [None, SegmentName(100, 6, 7)])
def test_u36_an_agent_below_the_epoch_of_a_stored_segment_rebuilds_no_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, name: SegmentName | None
) -> None:
    """A later leader shipped here: this agent would take its segment for its own."""
    write_log_start(store, 0)
    put_segment(store, 0, 100, (1, 0))
    put_segment(store, 100, 200, (6 if name is None else 1, 100), name=name or SegmentName(100))
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    with pytest.raises(FencedLeaderEpoch, match="a segment of leader epoch 6"):
        ask(commits, local, 5)


@pytest.mark.parametrize("other", [None, Lineage(2, 50, 60), Lineage(3, 90, 250)])
def test_u36_whoever_asks_writes_log_start_with_the_commits_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, other: Lineage | None
) -> None:
    """An agent was killed between the two; also where a second going back of the same epoch came to nothing more."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 150, other)
    local.segments(0, 300)
    local.epochs((3, 100), (5, 300))
    position = ask(commits, local, 5).position
    assert stored(store)[1] == LogStart(100, OLD)
    assert (position.log_start, position.next_offset, position.lineage) == (100, 200, OLD)


def test_u36_an_agent_below_the_lineage_of_log_start_steps_back(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A later leader's agent took the commit back: whatever stands of the commit, this one has no say."""
    write_log_start(store, 100, Lineage(6, 100, 250))
    local.segments(0, 200)
    local.epochs((5, 0))
    for stands in ("nothing", "a segment", "a commit"):
        if stands == "a segment":
            put_segment(store, 0, 200, (5, 0))
        elif stands == "a commit":
            write_commit(store, 9, (4, 0))
        with pytest.raises(
            FencedLeaderEpoch, match=r"log.start has a lineage of leader epoch 6, this broker leads in 5"
        ):
            ask(commits, local, 5)
    assert stored(store)[1].lineage == Lineage(6, 100, 250)


def rebuilt(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, *, latest: bool = False
) -> tuple[Position, Commit, LogStart]:
    position = ask(commits, local, 5, latest=latest).position
    commit, start = stored(store)
    assert position.lineage == commit.lineage == start.lineage
    assert (position.next_offset, position.log_start) == (commit.next_offset, start.offset)
    return position, commit, start


def test_u30_a_rebuilt_commit_begins_a_lineage_though_it_lost_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Late writes of before the loss are fenced, up to the end of whatever stands in the store."""
    write_log_start(store, 0)
    for base, end in ((0, 100), (100, 200), (300, 450)):
        put_segment(store, base, end, (1, base))
    local.segments(0, 500)
    local.epochs((1, 0), (5, 500))
    _, commit, start = rebuilt(commits, store, local)
    assert (commit.next_offset, commit.highest_base, commit.lineage) == (200, 100, Lineage(5, 200, 450))
    assert start.offset == 0


@pytest.mark.parametrize("lineage", [Lineage(3, 200, 300), Lineage(1, 50, 60), None])
def test_u30_a_known_commit_of_before_another_leader_took_it_back_is_not_believed(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, lineage: Lineage | None
) -> None:
    """The commit is lost, and this agent leads again: `log.start` shows that the archive went another way since.

    Its own log begins above and vouches for neither copy. Where nobody took the commit back, what it knew stays true.
    """
    write_log_start(store, 0, lineage)
    put_segment(store, 0, 200, (1, 0))
    put_segment(store, 200, 300, (1, 200))
    put_segment(store, 200, 300, (3, 200), name=SegmentName(200, 3, 7))
    put_segment(store, 300, 400, (3, 300))
    local.segments(400, 500)
    local.epochs((3, 400), (5, 500))
    of_its_own = None if lineage is None or lineage.epoch == 3 else lineage
    known = Commit(200, 300, 1, EpochHistory(((1, 0),)), None, ID, 1, 0, "ours", (299, 7), lineage=of_its_own)
    asked = commits.read(ReadPosition(TP, 0, Leadership(5, ID, 0), local.listing(), 0, known, 0))
    went_another_way = lineage is not None and lineage.epoch == 3
    assert asked.position.epochs == EpochHistory(((1, 0), (3, 200 if went_another_way else 300), (5, 500)))


def test_u30_what_a_known_commit_says_of_its_last_batch_is_not_taken_over_from_another_line(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Both lines end at 300: the dead batch's CRC in the rebuilt commit would stop the partition for good."""
    write_log_start(store, 0, Lineage(3, 200, 300))
    put_segment(store, 0, 200, (1, 0))
    put_segment(store, 200, 300, (3, 200))
    local.segments(300, 500)
    local.epochs((3, 300), (5, 500))
    known = Commit(200, 300, 1, EpochHistory(((1, 0),)), 250, ID, 1, 0, "ours", (299, 7))
    commits.read(ReadPosition(TP, 0, Leadership(5, ID, 0), local.listing(), 0, known, 0))
    commit, _ = stored(store)
    assert (commit.next_offset, commit.tail, commit.last_stable_offset == 250) == (300, None, False)


def test_u40_a_damaged_object_far_below_ends_no_walk(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A Java uploader's, without metadata, whose bytes are none of a log: it answers for nothing."""
    write_log_start(store, 0)
    for base in (0, 100):
        put_segment(store, base, base + 100, (1, base))
    store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    local.segments(0, 500)
    local.epochs((1, 0), (5, 500))
    assert rebuilt(commits, store, local)[1].next_offset == 200


def test_u30_a_rebuilt_commit_goes_back_to_where_a_walk_mixed_two_lines(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A dead segment of epoch 2 fits between two living ones: the local log's own batch contradicts it."""
    write_log_start(store, 0)
    put_segment(store, 0, 100, (1, 0))
    put_segment(store, 100, 200, (2, 100), lacks=1)  # so that it is no evidence by itself
    put_segment(store, 100, 200, (1, 100), name=SegmentName(100, 3, 7))
    put_segment(store, 200, 300, (3, 200))
    for base in (0, 100):
        local.write(base, build.batch(base, [build.record(n) for n in range(100)], epoch=1))
    local.write(200, build.batch(200, [build.record(n) for n in range(100)], epoch=3))
    local.segments(300)
    local.epochs((1, 0), (3, 200), (5, 300))
    _, commit, _ = rebuilt(commits, store, local)
    assert (commit.next_offset, commit.epochs) == (100, EpochHistory(((1, 0), (3, 200), (5, 300))))


def test_u30_a_rebuilt_commit_goes_back_to_a_log_that_begins_below_log_start(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """An earlier lineage may have moved it there: what the leader holds is shown."""
    write_log_start(store, 200)
    put_segment(store, 200, 300, (1, 200))
    local.segments(100, 300)
    local.epochs((1, 100), (5, 300))
    _, commit, start = rebuilt(commits, store, local)
    assert (commit.next_offset, start.offset) == (100, 100)


@pytest.mark.parametrize(("shipped", "begins"), [((200,), 200), ((150, 200), 150)])
def test_u34_with_latest_a_rebuilt_commit_ships_nothing_that_no_agent_ever_shipped(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, shipped: tuple[int, ...], begins: int
) -> None:
    """The log below is not the archive's; what was shipped below `log.start` was shown once, so it is shown again."""
    write_log_start(store, 200)
    for base in shipped:
        put_segment(store, base, base + 50, (1, base))
    local.segments(0, 100, 150, 200, 250)
    local.epochs((1, 0), (5, 250))
    _, commit, start = rebuilt(commits, store, local, latest=True)
    assert (commit.next_offset, start.offset) == (250 if begins == 200 else begins, begins)


@pytest.mark.parametrize(
    ("epoch", "restarted", "begins"),
    [
        pytest.param(5, False, False, id="the same leadership"),
        pytest.param(5, True, True, id="another life of the agent"),
        pytest.param(6, False, True, id="another leadership"),
    ],
)
def test_an_upload_that_fails_before_the_first_commit_begins_no_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epoch: int, restarted: bool, begins: bool
) -> None:
    """Only who saw the archive empty in this leadership knows that no commit was lost."""
    local.segments(0, 100, 200, 300)
    local.epochs((5, 0))
    assert ask(commits, local, 5).position.next_offset == 0
    put_segment(store, 100, 200, (5, 0))
    local.epochs((5, 0), *(() if epoch == 5 else ((epoch, 300),)))
    commits = CommitLog(CLUSTER, 1, lambda _: store) if restarted else commits
    assert ask(commits, local, epoch).position.next_offset == 0
    commit, _ = read_commit(store, KEYS)
    lineage = commit.lineage if isinstance(commit, Commit) else None
    assert lineage == (Lineage(epoch, 0, 200) if begins else None)


@pytest.mark.parametrize("raised", [False, True])
def test_u30_a_commit_that_was_written_and_lost_in_one_leadership_begins_a_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, raised: bool
) -> None:
    """Neither once this agent saw a commit, nor where `log.start` is another object than the one that stood alone."""
    local.segments(0, 100, 200)
    local.epochs((5, 0))
    ask(commits, local, 5)
    put_segment(store, 0, 100, (5, 0))
    if raised:
        write_log_start(store, 50)
    else:
        assert ask(commits, local, 5).position.next_offset == 100
        store.delete([KEYS.commit])
    ask(commits, local, 5)
    assert stored(store)[0].lineage is not None


def test_the_first_takeover_of_a_foreign_commit_begins_no_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """No `log.start` stood before, so nothing of an earlier life can be late."""
    put_segment(store, 0, 100, (1, 0))
    store.put(KEYS.commit, b"%020d" % 0)
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    ask(commits, local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start) == (100, None, LogStart(0))
    assert encode_log_start(0) == store.get(KEYS.log_start)[0]


def test_the_lineage_goes_on_with_each_commit(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """Also with the one that makes the next leadership known; its third element only rises."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 100, OLD)
    local.segments(0, 200)
    local.epochs((3, 100), (5, 200))
    ask(commits, local, 5)
    assert stored(store)[0].lineage == OLD
    local.unlink(200)
    local.write(0, build.batch(0, [build.record(n) for n in range(150)], epoch=3))
    local.epochs((3, 100), (6, 150))
    ask(commits, local, 6)
    assert stored(store)[0].lineage == Lineage(6, 150, 250)


def test_the_commits_epochs_are_cut_at_log_start(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """What retention took needs no epochs, and the list of a long-lived partition stays short."""
    write_commit(store, 300, (0, 0), (1, 100), (2, 150), (3, 250))
    write_log_start(store, 200)
    local.segments(200, 300)
    local.epochs((2, 200), (3, 250), (5, 300))
    ask(commits, local, 5)
    assert stored(store)[0].epochs == EpochHistory(((2, 200), (3, 250)))


def test_a_gap_below_log_start_is_not_filled(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """Retention took it from readers: a broker that holds it ships it not, and of another the part that is shown."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 200)
    for start, end in ((50, 100), (150, 250)):
        store.put(KEYS.gap(start, end), b"{}")
    local.segments(0, 300)
    local.epochs((1, 0), (5, 300))
    assert ask(commits, local, 5).position.gaps == ((200, 250),)


def test_a_stretch_that_the_cleaner_emptied_before_older_records_is_not_compacted_away(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Two unclean elections, back to the first broker: its own dead records stand above what the other one rewrote."""
    write_commit(store, 120, (0, 0), (1, 90))
    write_log_start(store, 0)
    batches = ((0, 0), (120, 0), (160, 2))
    local.write(0, b"".join(build.batch(offset, [build.record(0)], epoch=epoch) for offset, epoch in batches))
    local.segments(200)
    local.epochs((0, 0), (2, 160))
    assert ask(commits, local, 2).lost == (90, 120)


Pair = tuple[Lineage | None, Lineage | None, int | None]


@pytest.mark.parametrize(
    ("of_commit", "of_log_start", "shown"),
    [
        (None, None, 150),
        (OLD, OLD, 150),
        (OLD, None, 100),
        (OLD, Lineage(2, 160, 170), 100),
        (OLD, Lineage(3, 90, 250), None),
        (OLD, Lineage(4, 90, 250), None),
        (None, OLD, None),
    ],
)
def test_u36_readers_join_commit_and_log_start_by_their_lineages(
    store: ObjectStore, of_commit: Lineage | None, of_log_start: Lineage | None, shown: int | None
) -> None:
    """Of an older lineage the view begins no higher than the commit went back to; of another, it is an error."""
    write_commit(store, 200, (3, 0), lineage=of_commit)
    write_log_start(store, 150, of_log_start)
    if shown is None:
        with pytest.raises(LineageUnsettled, match="repeat the query"):
            read_catalog(store, KEYS)
    else:
        assert open_view(store, read_catalog(store, KEYS)).start == shown


class Settling(WrappedStore):
    """A store in which something happens before the second read of the commit."""

    def __init__(self, inner: ObjectStore, happens: Callable[[], None]) -> None:
        super().__init__(inner, threads=1)
        self._happens = happens
        self._reads = 0

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store."""
        self._reads += key == KEYS.commit
        if key == KEYS.commit and self._reads == 2:
            self._happens()
        return super().open(key, byte_range)


def test_u36_a_reader_between_the_two_writes_reads_again(store: ObjectStore) -> None:
    """It read the commit before, and `log.start` after: the commit that it reads next has that lineage."""
    write_commit(store, 200, (3, 0))
    write_log_start(store, 100, OLD)
    settling = Settling(store, lambda: write_commit(store, 120, (3, 0), lineage=OLD))
    catalog = read_catalog(settling, KEYS)
    assert (catalog.log_start, open_view(settling, catalog).end) == (100, 120)


def test_u36_refused_between_the_two_writes_an_agent_reads_both_again(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention moved `log.start` meanwhile: nothing is written over it, and the next question settles it."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 0)
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    moved = replace(LogStart(0), offset=90)

    class Moving(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key == KEYS.log_start and "condition" in named and store.get(key)[0] == encode_log_start(0):
                store.put(key, moved.encode())
            return super().put(key, *arguments, **named)

    racing = CommitLog(CLUSTER, 1, lambda _: Moving(store, threads=1))
    with pytest.raises(PreconditionFailed):
        ask(racing, local, 5)
    assert stored(store)[1] == moved
    ask(racing, local, 5)
    assert stored(store)[1] == LogStart(90, Lineage(5, 100, 300))
