"""Elections that lost records (protocol rule 5): where the commit goes back to, on a real store (a directory)."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.common.log_format import build
from tests.uploader.committing.elections import (
    LEADERSHIP,
    ask,
    committed,
    compacted_log,
    old_batches,
    put_segment,
    said_by,
)
from tests.uploader.local_directory import ID, KEYS, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData, DataLoss, PreconditionFailed, SegmentChanged
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import IfMatch, ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.messages.observations import Leadership


def test_u05_an_unclean_election_moves_the_commit_back_to_where_the_logs_part(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """First a commit at the new epoch, its epochs cut and continued by the broker's own; then shipping continues."""
    committed(store, 300, (1, 0), (3, 200), highest=200)
    for base, end in ((0, 100), (100, 200), (200, 300)):
        put_segment(store, base, b"", end)
    local.segments(0, 120, 260)
    local.epochs((1, 0), (5, 250))
    asked = ask(commits, local)
    assert asked.lost == (200, 300)
    assert asked.position.next_offset == 200
    stands, etag = read_commit(store, KEYS)
    assert isinstance(stands, Commit)
    assert (stands.epoch, stands.next_offset, stands.highest_base) == (5, 200, 100)
    assert stands.epochs == EpochHistory(((1, 0), (5, 250)))
    assert asked.position == replace(asked.position, etag=etag, commit=stands, epochs=stands.epochs)


def test_u26_a_replica_that_returned_behind_moves_the_commit_back_to_its_log_end(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The local log ends below the next offset, inside its active segment."""
    committed(store, 300, (4, 0))
    local.segments(0, 100)
    local.write(100, build.batch(100, [build.record(n) for n in range(30)], epoch=4))
    local.epochs((4, 0), (5, 130))
    assert ask(commits, local).lost == (130, 300)


def test_u26_an_empty_replica_moves_the_commit_back_to_its_beginning(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Nothing is left of what was committed; readers see nothing until the new leader epoch's records are there."""
    committed(store, 300, (1, 0), (2, 100))
    local.segments(0)
    local.epochs((5, 0))
    asked = ask(commits, local)
    assert asked.lost == (0, 300)
    assert asked.position.epochs == EpochHistory(((5, 0),))


def test_a_clean_election_loses_nothing(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """The commit is unchanged."""
    commit = committed(store, 300, (1, 0), (3, 200))
    local.segments(0, 320)
    local.epochs((1, 0), (3, 200), (5, 310))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.next_offset) == (None, 300)
    assert said_by(store, commit) == commit


def test_u06_a_leadership_is_made_known_before_anything_is_shipped(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A late commit of the former leader's agent is refused; the same leadership writes no other."""
    committed(store, 300, (1, 0))
    _, before = read_commit(store, KEYS)
    assert before is not None
    local.segments(0, 320)
    local.epochs((1, 0), (5, 310))
    ask(commits, local)
    commit, etag = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    assert (commit.epoch, commit.next_offset, commit.broker) == (5, 300, 1)
    late = Commit(0, 310, 1, EpochHistory(((1, 0),)), 0, ID, 2, 0, "late")
    with pytest.raises(PreconditionFailed):
        store.put(KEYS.commit, late.encode(), condition=IfMatch(before))
    ask(commits, local)
    assert read_commit(store, KEYS)[1] == etag


def test_a_log_whose_beginning_retention_deleted_is_no_loss(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The broker's checkpoint begins with the log: what lay below is not contradicted."""
    committed(store, 300, (1, 0), (3, 200))
    local.segments(290, 320)
    local.epochs((3, 290), (5, 310))
    assert ask(commits, local).lost is None
    local.epochs((5, 310))
    assert ask(commits, local).lost is None


def test_u28_a_leadership_that_the_broker_has_not_begun_is_not_accepted(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """It may be a follower still, that truncates: its checkpoint must end with the leadership's epoch."""
    committed(store, 300, (1, 0))
    local.segments(0, 100)
    local.epochs((1, 0))
    with pytest.raises(SegmentChanged, match="ends with 1, the leader epoch is 5"):
        ask(commits, local)
    local.epochs((1, 0), (6, 100))
    with pytest.raises(SegmentChanged, match="ends with 6"):
        ask(commits, local)
    local.epochs()
    with pytest.raises(SegmentChanged, match="ends with nothing"):
        ask(commits, local)
    local.no_epochs()
    with pytest.raises(SegmentChanged, match="no leader epoch checkpoint"):
        ask(commits, local)


@pytest.mark.parametrize("damage", ["torn", "no file that is read"])
@pytest.mark.parametrize("next_offset", [None, 300], ids=["nothing is in the store", "a commit is"])
def test_an_unreadable_leader_epoch_checkpoint_stops_before_anything_is_written(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, next_offset: int | None, damage: str
) -> None:
    """It is no sign of an old magic: that one has no such file, and any leadership counts for its log."""
    stands = committed(store, next_offset, (1, 0)) if next_offset is not None else None
    local.segments(0, 100)
    if damage == "torn":
        (local.path / "leader-epoch-checkpoint").write_text("0\n1\n5 ")
    else:
        (local.path / "leader-epoch-checkpoint").mkdir()
    with pytest.raises((CorruptData, OSError), match=r"leader epoch checkpoint|Is a directory"):
        ask(commits, local)
    assert read_commit(store, KEYS)[0] == stands
    assert stands is not None or list(store.list("")) == []


def test_a_leader_epoch_checkpoint_removed_after_the_listing_does_not_mean_an_old_magic(local: LocalDirectory) -> None:
    """The directory was renamed away, or the broker changes the format: look again."""
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    listed = local.listing()
    check_leader_epoch(listed, LEADERSHIP)
    local.no_epochs()
    with pytest.raises(SegmentChanged, match="no longer exists"):
        check_leader_epoch(listed, LEADERSHIP)


def test_u06_a_commit_of_the_same_leadership_is_never_moved_back(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A log loses no record within its own leadership: an agent that finds this next to a wiped follower is stale."""
    commit = committed(store, 300, (5, 0))
    local.segments(0)
    local.epochs((5, 0))
    with pytest.raises(DataLoss, match="committed up to 300"):
        ask(commits, local)
    assert read_commit(store, KEYS)[0] == commit


def test_u32_back_to_the_first_broker_the_epochs_decide(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Two unclean elections: the middle leadership's commits die, and the first one's are live again."""
    committed(store, 150, (1, 0), (2, 100))
    local.segments(0, 100, 200)
    local.epochs((1, 0), (5, 200))
    asked = ask(commits, local)
    assert asked.lost == (100, 150)
    assert asked.position.epochs == EpochHistory(((1, 0), (5, 200)))


def test_logs_without_epochs_are_compared_by_the_bytes_of_the_last_batch(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Magic 1 has no leader epochs: the same last batch is the same past, another one is not."""
    committed(store, 4)
    local.no_epochs()
    put_segment(store, 0, old_batches(0, b"a", b"b"), 2)
    put_segment(store, 2, old_batches(2, b"c", b"d"), 4)
    local.segments(0, 3, 5)
    local.write(0, old_batches(0, b"a", b"b", b"c"))
    local.write(3, old_batches(3, b"d", b"e"))
    assert ask(commits, local).lost is None
    local.write(3, old_batches(3, b"other", b"e"))
    asked = ask(commits, local, Leadership(6, ID, 0))
    assert asked.lost == (2, 4)


def test_a_last_batch_that_compaction_removed_contradicts_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Magic 1, compacted: the log lacks the last committed batch and holds later ones; older batches decide."""
    committed(store, 4)
    local.no_epochs()
    put_segment(store, 0, old_batches(0, b"a", b"b"), 2)
    put_segment(store, 2, old_batches(2, b"c", b"d"), 4)
    local.segments(0, 5, 8)
    local.write(0, old_batches(0, b"a", b"b"))
    local.write(5, old_batches(5, b"later"))
    assert ask(commits, local).lost is None
    local.write(0, old_batches(0, b"a", b"other"))
    assert ask(commits, local, Leadership(6, ID, 0)).lost == (0, 4)


def test_u26_a_list_that_is_silent_below_the_next_offset_does_not_vouch_for_it(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list begins above the next offset, and the new leader's own epoch began below it: that was lost."""
    committed(store, 8, (1, 41), (4, 60))
    local.segments(0)
    local.epochs((5, 1))
    assert ask(commits, local).lost == (1, 8)


lines = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40)), max_size=6).map(
    lambda pairs: EpochHistory(
        tuple(zip(sorted({epoch for epoch, _ in pairs}), sorted({start for _, start in pairs}), strict=False))
    )
)


@given(shared=lines, mine=st.integers(1, 20), theirs=st.integers(1, 20), data=st.data())
def test_the_shared_end_is_where_two_histories_part(
    shared: EpochHistory, mine: int, theirs: int, data: st.DataObject
) -> None:
    """Two logs with one past, each continued in epochs of its own: what they truncate to is what they share."""
    last, start = shared.pairs[-1] if shared.pairs else (0, 0)
    common = EpochHistory(shared.pairs or ((0, 0),))
    parted = data.draw(st.integers(start, 60))
    follower = EpochHistory((*common.pairs, (last + 1, parted))) if parted > start else common
    leader = EpochHistory((*common.pairs, (last + 2, parted))) if parted > start else common
    if follower == leader:
        assert follower.shared_end(parted + mine, leader, parted + theirs) == parted + min(mine, theirs)
    else:
        assert follower.shared_end(parted + mine, leader, parted + theirs) == parted


def test_u26_another_batch_in_the_place_of_the_last_committed_one_is_reported(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Lost and rewritten within one epoch: the epochs agree, the bytes do not, and nothing is shipped over them."""
    ours = build.batch(0, [build.record(n, value=b"ours") for n in range(30)], epoch=5)
    other = build.batch(0, [build.record(n, value=b"other") for n in range(30)], epoch=5)
    tail = scan_segment(io.BytesIO(ours), len(ours)).tail
    assert tail is not None
    commit = replace(committed(store, 30, (5, 0)), tail=tail)
    store.put(KEYS.commit, commit.encode())
    local.write(0, ours)
    local.segments(30)
    local.epochs((5, 0))
    assert ask(commits, local).position.commit == commit
    local.write(0, other)
    with pytest.raises(DataLoss, match="differs from the one that was committed"):
        ask(commits, local)
    local.write(0, build.batch(0, [build.record(n) for n in range(40)], epoch=5))  # with other bounds
    with pytest.raises(DataLoss, match="differs from the one that was committed"):
        ask(commits, local)
    local.write(0, build.batch(0, [build.record(29)], last_offset_delta=29, epoch=5))  # the cleaner's work
    assert ask(commits, local).position.commit == commit


def test_a_log_that_is_damaged_before_the_last_committed_batch_is_shipped_on(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A batch that cannot be compared is logged and stops nothing: a corrupt segment is shipped and marked."""
    whole = build.batch(0, [build.record(n) for n in range(30)], epoch=5)
    tail = scan_segment(io.BytesIO(whole), len(whole)).tail
    commit = replace(committed(store, 30, (5, 0)), tail=tail)
    store.put(KEYS.commit, commit.encode())
    local.write(0, b"\xff" * 100 + whole)
    local.segments(30)
    local.epochs((5, 0))
    assert ask(commits, local).position.commit == commit


def test_an_epoch_that_compaction_emptied_is_no_loss(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A replica that was filled since lacks the epoch; elected next, at the end of the run, it lost nothing."""
    commit = committed(store, 300, (1, 0), (4, 200), highest=200)
    compacted_log(local, (0, 1), (199, 1))
    local.epochs((1, 0), (5, 320))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.next_offset, said_by(store, commit)) == (None, 300, commit)


@pytest.mark.parametrize(
    ("batches", "local_epochs", "leadership"),
    [
        (((0, 1), (250, 1)), ((1, 0), (5, 320)), 5),  # records of another line follow
        (((0, 1), (199, 1)), ((1, 0), (5, 260)), 5),  # its own leadership begins below the next offset
        (((0, 1), (199, 1)), ((1, 0), (6, 320)), 6),  # another leader epoch may lie between, and be compacted too
    ],
)
def test_u05_a_possible_loss_is_not_treated_as_compaction(
    commits: CommitLog,
    store: ObjectStore,
    local: LocalDirectory,
    batches: tuple[tuple[int, int], ...],
    local_epochs: tuple[tuple[int, int], ...],
    leadership: int,
) -> None:
    """Only the very next leader epoch, begun at the end of the run, with nothing in between, lost nothing."""
    committed(store, 300, (1, 0), (4, 200))
    compacted_log(local, *batches)
    local.epochs(*local_epochs)
    assert ask(commits, local, Leadership(leadership, ID, 0)).lost == (200, 300)


def test_u32_a_leadership_that_was_lost_before_it_shipped_anything_is_forgotten(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit that it moved back names it; the next leader's log has records of an older epoch in its place."""
    committed(store, 200, (1, 0), (3, 200))
    compacted_log(local, (0, 1), (250, 1))
    local.epochs((1, 0), (5, 320))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.epochs) == (None, EpochHistory(((1, 0), (5, 320))))
    stands = asked.position.commit
    assert isinstance(stands, Commit)
    assert stands.last_stable_offset is None  # only its own log had that offset
    committed(store, 200, (1, 0), (2, 200), (3, 240))  # two of them
    assert ask(commits, local).position.epochs == EpochHistory(((1, 0), (5, 320)))
    committed(store, 200, (1, 0), (3, 200))
    local.epochs((1, 0), (3, 200), (5, 320))
    compacted_log(local, (0, 1), (250, 3))
    asked = ask(commits, local)
    stands = asked.position.commit
    assert isinstance(stands, Commit)
    assert (stands.epochs, stands.last_stable_offset) == (EpochHistory(((1, 0), (3, 200))), 0)
