"""Elections that lost records (protocol rule 5): where the archive goes back to, against a real store (a directory)."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.common.log_format import build
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData, DataLoss, PreconditionFailed, SegmentChanged
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import IfMatch, ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.events import Leadership
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.tasks import PositionRead, ReadPosition

LEADERSHIP = Leadership(5, ID, 0)


@pytest.fixture
def commits(store: ObjectStore) -> CommitLog:
    return CommitLog(CLUSTER, 1, lambda _: store)


def committed(store: ObjectStore, next_offset: int, *epochs: tuple[int, int], highest: int = 0) -> Commit:
    """A commit as an earlier leader epoch left it."""
    commit = Commit(highest, next_offset, epochs[-1][0] if epochs else 0, EpochHistory(epochs), 0, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    return commit


def ask(commits: CommitLog, local: LocalDirectory, leadership: Leadership = LEADERSHIP) -> PositionRead:
    return commits.read(ReadPosition(TP, 0, leadership, local.listing(), 0, None, 0))


def put_segment(store: ObjectStore, base: int, data: bytes, end: int) -> None:
    metadata = SegmentMetadata(end, None, None, None, None, 0)
    store.put(KEYS.segment(SegmentName(base)), data, metadata=metadata.encode())


def test_u05_an_unclean_election_takes_the_commit_back_to_where_the_logs_part(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """First a commit at the new epoch, its epochs cut and continued from the broker's own; then shipping goes on."""
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


def test_u26_a_replica_that_came_back_behind_takes_the_commit_back_to_its_log_end(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The local log ends below the next offset, inside its active segment."""
    committed(store, 300, (4, 0))
    local.segments(0, 100)
    local.write(100, build.batch(100, [build.record(n) for n in range(30)], epoch=4))
    local.epochs((4, 0), (5, 130))
    assert ask(commits, local).lost == (130, 300)


def test_u26_an_empty_replica_takes_the_commit_back_to_its_beginning(
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
    """The commit says what it said."""
    commit = committed(store, 300, (1, 0), (3, 200))
    local.segments(0, 320)
    local.epochs((1, 0), (3, 200), (5, 310))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.next_offset) == (None, 300)
    assert said_by(store, commit) == commit


def said_by(store: ObjectStore, before: Commit) -> Commit:
    """What the commit says now, apart from who wrote it, when, and in which leader epoch."""
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    return replace(commit, epoch=before.epoch, broker=before.broker, time=before.time, nonce=before.nonce)


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


def test_a_log_whose_beginning_retention_took_is_no_loss(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The broker's checkpoint begins with the log: what lay below is not contradicted."""
    committed(store, 300, (1, 0), (3, 200))
    local.segments(290, 320)
    local.epochs((3, 290), (5, 310))
    assert ask(commits, local).lost is None
    local.epochs((5, 310))
    assert ask(commits, local).lost is None


def test_u28_a_broker_that_has_not_begun_the_leadership_is_not_believed(
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


def test_a_leader_epoch_checkpoint_that_is_gone_since_the_listing_is_no_old_magic(local: LocalDirectory) -> None:
    """The directory was renamed away, or the broker changes the format: look again."""
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    listed = local.listing()
    check_leader_epoch(listed, LEADERSHIP)
    local.no_epochs()
    with pytest.raises(SegmentChanged, match="no longer exists"):
        check_leader_epoch(listed, LEADERSHIP)


def test_u06_a_commit_of_the_same_leadership_is_never_taken_back(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """No log loses anything within its own leadership: an agent that believes so beside a wiped follower is stale."""
    commit = committed(store, 300, (5, 0))
    local.segments(0)
    local.epochs((5, 0))
    with pytest.raises(DataLoss, match="committed up to 300"):
        ask(commits, local)
    assert read_commit(store, KEYS)[0] == commit


def test_u32_back_to_the_first_broker_the_epochs_decide(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Two unclean elections: what the middle leadership committed dies, what the first one had lives again."""
    committed(store, 150, (1, 0), (2, 100))
    local.segments(0, 100, 200)
    local.epochs((1, 0), (5, 200))
    asked = ask(commits, local)
    assert asked.lost == (100, 150)
    assert asked.position.epochs == EpochHistory(((1, 0), (5, 200)))


def old_batches(base: int, *values: bytes) -> bytes:
    return b"".join(build.message(1, base + n, value) for n, value in enumerate(values))


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


def test_u32_what_goes_back_is_compared_below_too(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list joins two lines, since a leader whose own list began above took it back; this log knows better."""
    committed(store, 300, (1, 0), (2, 100), (3, 200))
    metadata = SegmentMetadata(200, ((1, 0), (2, 100)), 200, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(100, [build.record(0)], epoch=3))
    local.segments(220)
    local.epochs((1, 0), (3, 100), (5, 220))
    assert ask(commits, local).lost == (100, 300)


def test_u40_a_damaged_object_far_below_is_no_reason_to_end_the_comparison(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A Java uploader's, without metadata, whose bytes are none of a log: whole copies are compared all the same."""
    store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    test_u32_what_an_earlier_leader_could_not_tell_this_log_tells(commits, store, local, 200, (100, 300))


@pytest.mark.parametrize(
    ("base", "epochs", "records", "lost_from"),
    [
        pytest.param(0, ((1, 0),), 100, 50, id="an older leader epoch's, where compaction left nothing here"),
        pytest.param(60, ((1, 60),), 40, 60, id="one that begins further up"),
        pytest.param(0, ((3, 0),), 100, 0, id="a later leader epoch's"),
        pytest.param(0, ((1, 0), (2, 60)), 100, 50, id="both leader epochs'"),
        pytest.param(0, ((1, 0), (2, 50)), 100, None, id="this log's own"),
        pytest.param(0, ((1, 0),), 90, None, id="one that may have nothing there"),
    ],
)
def test_u32_where_the_list_is_silent_copies_are_compared(
    commits: CommitLog,
    store: ObjectStore,
    local: LocalDirectory,
    base: int,
    epochs: tuple[tuple[int, int], ...],
    records: int,
    lost_from: int | None,
) -> None:
    """A leader whose log began above took the commit back, and nobody knew what of the copies below it was dead."""
    committed(store, 300, (3, 200))
    metadata = SegmentMetadata(100, epochs, records, None, None, 0)
    store.put(KEYS.segment(SegmentName(base)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(80, [build.record(0)], epoch=2))
    local.segments(200, 300)
    local.epochs((1, 0), (2, 50), (3, 200), (5, 300))
    assert ask(commits, local).lost == (None if lost_from is None else (lost_from, 300))


def test_u32_a_copy_that_begins_further_up_is_compared_where_it_begins(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Where the lists begin to differ nothing stands that could tell which one is right."""
    committed(store, 300, (1, 0), (3, 200))
    metadata = SegmentMetadata(100, ((1, 60),), 40, None, None, 0)
    store.put(KEYS.segment(SegmentName(60)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(50, [build.record(0)], epoch=2))
    local.segments(200, 300)
    local.epochs((1, 0), (2, 50), (3, 200), (5, 300))
    assert ask(commits, local).lost == (60, 300)


@pytest.mark.parametrize(
    ("epoch", "lost", "epochs"),
    [(2, (60, 100), ((1, 0), (2, 200), (3, 230), (5, 250))), (4, None, ((1, 0), (4, 60)))],
    ids=["a lower epoch", "the run's last epoch"],
)
def test_u32_what_deleted_files_hold_contradicts_a_later_epoch_below(
    commits: CommitLog,
    store: ObjectStore,
    local: LocalDirectory,
    epoch: int,
    lost: tuple[int, int] | None,
    epochs: tuple[tuple[int, int], ...],
) -> None:
    """Retention cut the broker's list above the next offset: only the files that hang tell that epoch 4 was lost."""
    committed(store, 100, (1, 0), (4, 60))
    batches = [build.batch(200, [build.record(n) for n in range(30)], epoch=epoch)]
    batches.append(build.batch(230, [build.record(n) for n in range(20)], epoch=max(epoch, 3)))
    local.write(200, b"".join(batches))
    local.write(250, build.batch(250, [build.record(0)], epoch=5))
    local.rename(200)
    local.epochs((5, 250))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.epochs) == (lost, EpochHistory(epochs))


@pytest.mark.parametrize(
    "epochs",
    [((200, 1), (230, 5)), ((200, 2), (220, 2), (210, 3), (230, 5))],
    ids=["one batch is of a lower epoch", "batches do not rise"],
)
def test_u32_a_deleted_file_with_a_flipped_bit_contradicts_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epochs: tuple[tuple[int, int], ...]
) -> None:
    """No CRC covers the epoch and the base offset of a batch, so one wrong batch must not move a commit back."""
    committed(store, 100, (1, 0), (4, 60))
    batches = [build.batch(offset, [build.record(n) for n in range(10)], epoch=epoch) for offset, epoch in epochs]
    local.write(200, b"".join(batches))
    local.write(240, build.batch(240, [build.record(0)], epoch=5))
    local.rename(200)
    local.epochs((5, 240))
    assert ask(commits, local).lost is None


def test_u32_a_dead_tail_below_the_log_start_contradicts_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """All elections were clean: a follower returned with a tail of epoch 2 that was never replicated.

    The leader's list began with epoch 4 at 260, above that tail, so the follower truncated to 260 only.
    """
    committed(store, 100, (1, 0), (3, 60))
    local.write(200, b"".join(build.batch(base, [build.record(n) for n in range(25)], epoch=2) for base in (200, 225)))
    tail = build.batch(250, [build.record(n) for n in range(10)], epoch=2)
    local.write(250, tail + build.batch(260, [build.record(n) for n in range(40)], epoch=4))
    local.segments(300)
    local.rename(200)
    local.epochs((4, 260), (5, 300))
    assert ask(commits, local).lost is None


def test_u32_a_run_that_a_later_leader_vouched_for_is_not_contradicted(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention renamed the whole dead tail, but the agent of epoch 4 wrote the commit, and kept the run."""
    commit = replace(committed(store, 100, (1, 0), (3, 60)), epoch=4)
    store.put(KEYS.commit, commit.encode())
    tail = [build.batch(base, [build.record(n) for n in range(25)], epoch=2) for base in (200, 225)]
    local.write(200, b"".join(tail) + build.batch(250, [build.record(n) for n in range(50)], epoch=4))
    local.write(300, build.batch(300, [build.record(0)], epoch=4))
    local.rename(200)
    local.epochs((4, 300), (5, 301))
    assert ask(commits, local).lost is None


def test_u32_a_copy_that_the_going_back_would_show_is_compared_too(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Seed 577: epoch 2 is dead below a list that begins with epoch 1, and would live below one that begins with 3."""
    committed(store, 300, (1, 60), (3, 200))
    for base, end, epoch in ((0, 50, 2), (60, 100, 1)):
        metadata = SegmentMetadata(end, ((epoch, base),), end - base, None, None, 0)
        store.put(KEYS.segment(SegmentName(base)), b"", metadata=metadata.encode())
    local.segments(0, 200, 300)
    local.epochs((3, 0), (5, 300))
    assert ask(commits, local).lost == (0, 300)


def test_u32_a_contradiction_at_the_lowest_offset_that_a_log_holds_ends_the_comparison(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Seed 538: the agent has nothing to compare below that offset, and once compared it without end."""
    committed(store, 300, (1, 0), (3, 90), (4, 200))
    metadata = SegmentMetadata(200, ((3, 95),), 105, None, None, 0)
    store.put(KEYS.segment(SegmentName(95)), b"", metadata=metadata.encode())
    local.segments(100, 200, 300)
    local.write(100, build.batch(100, [build.record(0)], epoch=2))
    local.epochs((2, 100), (4, 200), (5, 300))
    assert ask(commits, local).lost == (100, 300)


def test_u32_below_log_start_no_copy_is_compared(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """The list is silent there since the view was cut, and nobody is shown what stands there."""
    committed(store, 300, (1, 0), (3, 200))
    store.put(KEYS.log_start, encode_log_start(100))
    metadata = SegmentMetadata(100, ((1, 0),), 100, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=0) + build.batch(80, [build.record(0)], epoch=1))
    local.segments(200, 300)
    local.epochs((0, 0), (1, 80), (3, 200), (5, 300))
    assert ask(commits, local).lost is None


def test_a_last_batch_that_compaction_took_contradicts_nothing(
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


def test_u26_another_batch_in_the_place_of_the_last_committed_one_is_told(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Lost and written anew within one epoch: the epochs agree, the bytes do not, and nothing is shipped over them."""
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
    """What cannot be compared is said, and stops nothing: a corrupt segment is shipped as it is, and marked."""
    whole = build.batch(0, [build.record(n) for n in range(30)], epoch=5)
    tail = scan_segment(io.BytesIO(whole), len(whole)).tail
    commit = replace(committed(store, 30, (5, 0)), tail=tail)
    store.put(KEYS.commit, commit.encode())
    local.write(0, b"\xff" * 100 + whole)
    local.segments(30)
    local.epochs((5, 0))
    assert ask(commits, local).position.commit == commit


def compacted_log(local: LocalDirectory, *batches: tuple[int, int]) -> None:
    """One closed segment up to 320, with these (offset, epoch) left in it."""
    local.write(0, b"".join(build.batch(offset, [build.record(0)], epoch=epoch) for offset, epoch in batches))
    local.segments(320)


def test_an_epoch_that_compaction_emptied_is_no_loss(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A replica that was filled since does not know the epoch; elected next, at the end of the run, it lost nothing."""
    commit = committed(store, 300, (1, 0), (4, 200), highest=200)
    compacted_log(local, (0, 1), (199, 1))
    local.epochs((1, 0), (5, 320))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.next_offset, said_by(store, commit)) == (None, 300, commit)


@pytest.mark.parametrize(
    ("batches", "local_epochs", "leadership"),
    [
        (((0, 1), (250, 1)), ((1, 0), (5, 320)), 5),  # records of another line stand there
        (((0, 1), (199, 1)), ((1, 0), (5, 260)), 5),  # its own leadership begins below the next offset
        (((0, 1), (199, 1)), ((1, 0), (6, 320)), 6),  # another leader epoch may lie between, and be compacted too
    ],
)
def test_u05_what_may_have_been_lost_is_not_taken_for_compaction(
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
    """The commit that it took back names it; the next leader's log has records of an older epoch in its place."""
    committed(store, 200, (1, 0), (3, 200))
    compacted_log(local, (0, 1), (250, 1))
    local.epochs((1, 0), (5, 320))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.epochs) == (None, EpochHistory(((1, 0), (5, 320))))
    stands = asked.position.commit
    assert isinstance(stands, Commit)
    assert stands.last_stable_offset is None  # its own log told that one
    committed(store, 200, (1, 0), (2, 200), (3, 240))  # two of them
    assert ask(commits, local).position.epochs == EpochHistory(((1, 0), (5, 320)))
    committed(store, 200, (1, 0), (3, 200))
    local.epochs((1, 0), (3, 200), (5, 320))
    compacted_log(local, (0, 1), (250, 3))
    asked = ask(commits, local)
    stands = asked.position.commit
    assert isinstance(stands, Commit)
    assert (stands.epochs, stands.last_stable_offset) == (EpochHistory(((1, 0), (3, 200))), 0)


@pytest.mark.parametrize(("records", "lost"), [(200, (100, 300)), (150, None)])
def test_u32_what_an_earlier_leader_could_not_tell_this_log_tells(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, records: int, lost: tuple[int, int] | None
) -> None:
    """Dead records that were taken into the run below a shorter log; one with gaps may lack what compaction took."""
    committed(store, 300, (1, 0), (2, 200))
    metadata = SegmentMetadata(200, ((1, 0),), records, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(100, build.batch(100, [build.record(0)], epoch=2))
    local.segments(320)
    local.epochs((2, 100), (5, 320))
    asked = ask(commits, local)
    assert asked.lost == lost
    if lost is not None:
        assert asked.position.epochs == EpochHistory(((1, 0), (2, 100), (5, 320)))
