"""Offsets that exist nowhere any more: recorded, and passed by the commit (protocol rule 10)."""

import json
from dataclasses import replace

import pytest

from tests.asked_store import AskedStore
from tests.common.log_format import build
from tests.uploader.committing.gaps import ask, at_100, pass_gap
from tests.uploader.committing.stored_segments import LEADERSHIP, put_segment
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import open_view
from ts_common.errors import PreconditionFailed, SegmentChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.tasks import PassGap, ReadPosition
from ts_uploader.shipping.metadata_cache_writer import write_cache_object


def test_a_gap_is_recorded_and_passed_with_its_reason(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The record has its range, reason, time and broker, and readers meet a hole with a reason."""
    position = at_100(store, commits, local, 300, 400)
    committed = pass_gap(commits, local, position, 300)
    assert (committed.gaps, committed.position.next_offset) == (((100, 300),), 300)
    record = json.loads(store.get(KEYS.gap(100, 300))[0])
    assert {name: record[name] for name in ("from", "to", "broker")} == {"from": 100, "to": 300, "broker": 1}
    assert record["reason"] == "retention or DeleteRecords removed the segments before they were shipped"
    assert record["time"] > 1_700_000_000_000
    assert committed.position.epochs == EpochHistory(((1, 0), (5, 300)))
    view = open_view(store, read_catalog(store, KEYS))
    assert view.plan(0, 300)[1] == Hole(100, 300, recorded=True)


def test_u24_a_gap_that_delete_records_made_reports_this_as_its_reason(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The broker's log start offset is inside its first segment: only DeleteRecords moves it there."""
    position = at_100(store, commits, local, 300, 400)
    local.log_start(350)
    assert pass_gap(commits, local, position, 300).reason.startswith("DeleteRecords moved the log start to 350")


def test_u07_a_log_start_where_a_segment_begins_is_not_attributed_to_delete_records(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention moves it there first and removes the segments then: a checkpoint of between names it."""
    position = at_100(store, commits, local, 300, 400)
    local.log_start(300)
    assert pass_gap(commits, local, position, 300).reason.startswith("retention or DeleteRecords")


def test_a_segment_that_exists_in_the_store_is_no_gap(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Shipped in an earlier leader epoch and never committed, it is between two gaps, and its epochs are the run's."""
    position = at_100(store, commits, local, 400, 500)
    local.epochs((5, 400))  # retention cuts the broker's checkpoint too
    put_segment(store, 200, 300, (2, 200))
    committed = pass_gap(commits, local, position, 400)
    assert committed.gaps == ((100, 200), (300, 400))
    assert (committed.position.highest_base, committed.position.epochs) == (
        200,
        EpochHistory(((1, 0), (2, 200), (5, 400))),
    )
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 400)
    assert [type(step) for step in steps] == [ReadRange, Hole, ReadRange, Hole]


def test_a_gap_requests_no_segment_that_the_metadata_cache_contains(store: ObjectStore, local: LocalDirectory) -> None:
    """Of a partition with many thousands of segments each gap would else cost as many requests."""
    for base in range(0, 1000, 100):
        put_segment(store, base, base + 100, (1, base))
    write_cache_object(store, KEYS, 1000)
    commit = Commit(900, 1000, 1, EpochHistory(((1, 0),)), 1000, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    local.segments(1100, 1200)
    local.epochs((1, 1100), (5, 1200))
    asked = AskedStore(store)
    commits = CommitLog(CLUSTER, 1, lambda _: asked)
    assert pass_gap(commits, local, ask(commits, local), 1100).gaps == ((1000, 1100),)
    assert [key for key in asked.opened + asked.headed if key.endswith(".log")] == []


def test_what_reaches_above_the_next_offset_is_no_gap(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A segment that was shipped by a leader with other boundaries, and never committed, begins below it."""
    position = at_100(store, commits, local, 400, 500)
    local.epochs((5, 400))
    put_segment(store, 50, 250, (1, 50), (2, 100))
    committed = pass_gap(commits, local, position, 400)
    assert (committed.gaps, committed.position.epochs) == (((250, 400),), EpochHistory(((1, 0), (2, 100), (5, 400))))


def test_u05_a_gap_does_not_bring_back_what_an_election_lost(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit went back and names the leadership that begins there; retention removed the live records since."""
    at_100(store, commits, local, 300, 400)
    for base in (50, 150, 200):
        put_segment(store, base, base + 100, (1, base))  # of the dead line
    taken_back = Commit(0, 100, 4, EpochHistory(((1, 0), (4, 100))), 100, ID, 2, 0, "taken back")
    store.put(KEYS.commit, taken_back.encode())
    local.epochs((4, 300), (5, 350))
    committed = pass_gap(commits, local, ask(commits, local), 300)
    assert (committed.gaps, committed.position.epochs) == (((100, 300),), EpochHistory(((1, 0), (4, 100))))
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 300)
    assert {type(step) for step in steps if step.end > 100} == {Hole}


def test_u32_leaderships_that_a_moved_back_commit_names_ahead_have_precedence_over_stored_segments(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The leader that moved it back named them from its own log; a dead line's segments have others."""
    at_100(store, commits, local, 300, 400)
    put_segment(store, 100, 200, (2, 100), (3, 150))
    put_segment(store, 120, 180, (1, 120), (4, 150))  # of a line that is dead since
    taken_back = Commit(0, 100, 4, EpochHistory(((1, 0), (2, 100), (3, 150), (4, 190))), 100, ID, 2, 0, "taken back")
    store.put(KEYS.commit, taken_back.encode())
    local.epochs((5, 300))
    committed = pass_gap(commits, local, ask(commits, local), 300)
    assert committed.gaps == ((190, 300),)
    assert committed.position.epochs == EpochHistory(((1, 0), (2, 100), (3, 150), (4, 190), (5, 300)))


def test_segments_that_continue_as_this_log_does_have_precedence_over_a_dead_leaders_leaderships(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Seed 558: the commit went back, and names leaderships of a line that another election ended.

    A segment of the line that returned is live by its last epoch. A later leader of the dead line parts below it. By
    the dead leaderships it would part above, and readers would find a hole in place of the segment.
    """
    at_100(store, commits, local, 300, 400)
    put_segment(store, 200, 350, (3, 200), (5, 280))
    put_segment(store, 100, 150, (2, 100), (4, 120))
    dead = EpochHistory(((1, 0), (2, 100), (4, 120)))
    store.put(KEYS.commit, Commit(0, 100, 4, dead, 100, ID, 2, 0, "taken back").encode())
    local.epochs((5, 300))
    passed = pass_gap(commits, local, ask(commits, local), 300)
    assert passed.position.epochs == EpochHistory(((1, 0), (2, 100), (3, 200), (5, 280)))
    assert passed.gaps == ((120, 200),)  # the dead leadership's records too
    local.epochs((1, 0), (2, 100), (4, 120), (7, 500))
    local.unlink(300, 400)
    local.segments(0, 250, 450, 500)
    asked = commits.read(ReadPosition(TP, 0, replace(LEADERSHIP, epoch=7), local.listing(), 0, None, 0))
    assert asked.lost == (120, 300)
    view = open_view(store, read_catalog(store, KEYS))
    steps = [step for step in view.plan(view.start, view.end) if isinstance(step, Hole)]
    assert (view.end, steps) == (120, [])


def test_u05_below_the_list_of_a_moved_back_commit_the_stored_copies_determine_the_epochs(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list begins above the gap. The later epoch of two copies is live, but no epoch above the list's."""
    put_segment(store, 0, 100, (1, 0))
    put_segment(store, 40, 80, (2, 40))
    put_segment(store, 50, 200, (6, 50))  # of a line that an election ended
    taken_back = Commit(0, 0, 4, EpochHistory(((4, 350),)), 0, ID, 2, 0, "taken back")
    store.put(KEYS.commit, taken_back.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    local.segments(300, 400)
    local.epochs((3, 300), (4, 350), (7, 400))
    leadership = replace(LEADERSHIP, epoch=7)
    position = commits.read(ReadPosition(TP, 0, leadership, local.listing(), 0, None, 0)).position
    passed = commits.pass_gap(PassGap(TP, 0, leadership, position, local.listing(), 300))
    assert passed.gaps == ((80, 300),)
    assert passed.position.epochs == EpochHistory(((1, 0), (2, 40), (3, 300), (4, 350)))


def test_u05_an_epoch_that_a_moved_back_commit_names_above_those_in_the_log_was_lost(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Another election ended epoch 4 before anything of it was shipped: the file behind the gap is of epoch 3."""
    at_100(store, commits, local, 300, 400)
    taken_back = Commit(0, 100, 4, EpochHistory(((1, 0), (4, 150))), 100, ID, 2, 0, "taken back")
    store.put(KEYS.commit, taken_back.encode())
    local.write(250, build.batch(250, [build.record(n) for n in range(50)], epoch=3))
    local.write(300, build.batch(300, [build.record(0)], epoch=5))
    local.rename(250)
    local.epochs((5, 300))
    passed = pass_gap(commits, local, ask(commits, local), 250)
    assert (passed.gaps, passed.position.epochs) == (((100, 250),), EpochHistory(((1, 0),)))


def test_an_emptied_segment_behind_a_gap_hides_nothing_of_an_epoch_that_continues(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list names epoch 2 from the first batch that compaction left; the store has earlier ones."""
    position = at_100(store, commits, local, 300, 400)
    put_segment(store, 200, 300, (2, 200))
    local.epochs((1, 300), (2, 420), (5, 450))
    local.write(400, build.batch(420, [build.record(0)], epoch=2))
    local.segments(500)
    passed = pass_gap(commits, local, position, 300)
    assert (passed.gaps, passed.position.epochs) == (((100, 200),), EpochHistory(((1, 0), (2, 200))))


def test_an_epoch_below_the_brokers_list_ends_no_leadership_at_a_gap(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """No CRC covers the epoch of a batch: if the list names a higher one there, the agent uses the list."""
    position = at_100(store, commits, local, 300, 400)
    put_segment(store, 200, 300, (2, 200))
    local.epochs((3, 300), (5, 350))
    local.write(300, build.batch(300, [build.record(0)], epoch=1))
    passed = pass_gap(commits, local, position, 300)
    assert (passed.gaps, passed.position.epochs) == (((100, 200),), EpochHistory(((1, 0), (2, 200), (3, 300))))


def test_a_dead_tail_behind_a_gap_hides_nothing(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """A follower returned with a tail of epoch 2. The agent uses the broker's list, which begins above that tail."""
    position = at_100(store, commits, local, 250, 300)
    put_segment(store, 100, 250, (3, 100))
    local.epochs((4, 260), (5, 300))
    tail = build.batch(250, [build.record(n) for n in range(10)], epoch=2)
    local.write(250, tail + build.batch(260, [build.record(n) for n in range(40)], epoch=4))
    passed = pass_gap(commits, local, position, 250)
    assert (passed.gaps, passed.position.epochs) == ((), EpochHistory(((1, 0), (3, 100))))


def test_without_any_batch_the_brokers_list_determines_the_epochs_below_a_gap(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Compaction emptied all segments, and the broker still lists older epochs: the agent uses the one there."""
    position = at_100(store, commits, local, 300, 400)
    put_segment(store, 200, 300, (2, 200))
    local.epochs((1, 280), (2, 300), (5, 450))
    assert pass_gap(commits, local, position, 300).gaps == ((100, 200),)


def test_a_file_behind_a_gap_that_cannot_be_read_stops_no_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The file is a link, or its disk fails: the agent uses the broker's list."""
    position = at_100(store, commits, local, 300, 400)
    log = local.path / "00000000000000000300.log"
    log.unlink()
    log.symlink_to("elsewhere")
    assert pass_gap(commits, local, position, 300).gaps == ((100, 300),)


def test_a_gap_that_the_directory_shows_no_more_is_not_recorded(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The task waited, and the segment is back, the cleaner renames, or the leadership is over: nothing is written."""
    position = at_100(store, commits, local, 300, 400)
    task = PassGap(TP, 0, LEADERSHIP, position, local.listing(), 300)
    local.segments(100)
    with pytest.raises(SegmentChanged):
        commits.pass_gap(task)
    local.unlink(100)
    (local.path / "00000000000000000100.log.swap").touch()
    with pytest.raises(SegmentChanged):
        commits.pass_gap(task)
    (local.path / "00000000000000000100.log.swap").unlink()
    local.epochs((1, 0), (6, 300))
    with pytest.raises(SegmentChanged, match="ends with 6"):
        commits.pass_gap(task)
    assert read_catalog(store, KEYS).gaps == ()


def test_a_gap_is_not_recorded_over_another_agents_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Another agent committed since: the gap has to be found again."""
    position = at_100(store, commits, local, 300, 400)
    store.put(KEYS.commit, Commit(0, 200, 5, EpochHistory(((1, 0),)), 0, ID, 2, 0, "another").encode())
    with pytest.raises(PreconditionFailed):
        pass_gap(commits, local, position, 300)
    assert read_catalog(store, KEYS).gaps == ()


def test_a_passed_gap_does_not_look_like_a_lost_election(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit has the epoch that begins at its end, so another leader's log is compared by that."""
    position = at_100(store, commits, local, 300, 400)
    pass_gap(commits, local, position, 300)
    local.segments(0, 150)
    local.epochs((1, 0), (4, 150), (5, 300))
    asked = commits.read(ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, None, 0))
    assert asked.lost is None
    assert asked.position.gaps == ((100, 300),)


def test_u30_a_lost_log_start_is_written_again_with_the_lowest_segment(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Readers begin with the lowest segment meanwhile, so nothing changes for them."""
    at_100(store, commits, local, 100, 200)
    store.delete([KEYS.log_start])
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.warning is not None) == (0, True)
    ask(commits, local)
    assert store.get(KEYS.log_start)[0] == encode_log_start(0)


def test_u30_a_lost_commit_is_walked_over_its_recorded_gaps(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A lifecycle rule removed `offset.wm`: the run continues after the stored segments, across a recorded gap."""
    pass_gap(commits, local, at_100(store, commits, local, 300, 400), 300)
    put_segment(store, 300, 400, (5, 300))
    store.delete([KEYS.commit])
    position = ask(commits, local)
    assert (position.next_offset, position.commit) == (400, read_commit(store, KEYS)[0])
    assert position.epochs == EpochHistory(((1, 0), (5, 300)))


def test_u30_the_agents_own_last_commit_stays_valid_after_its_object_is_lost(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The agent's last commit stays true up to its next offset (protocol rule 12)."""
    at_100(store, commits, local, 300, 400)
    known = Commit(200, 300, 5, EpochHistory(((1, 0), (4, 150))), None, ID, 1, 0, "ours")
    store.delete([KEYS.commit])
    local.epochs((1, 0), (4, 150), (5, 300))
    position = ask(commits, local, known)
    assert (position.next_offset, position.highest_base) == (300, 200)
    assert position.epochs == EpochHistory(((1, 0), (4, 150), (5, 300)))


def test_a_foreign_commit_whose_segment_is_missing_begins_with_a_gap(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Nothing is left of what it names: the archive begins there, and the gap is reported (protocol rule 12)."""
    store.put(KEYS.commit, b"00000000000000000200")
    local.segments(300, 400)
    local.epochs((5, 300))
    position = commits.read(ReadPosition(TP, 0, LEADERSHIP, local.listing(), 300, None, 0)).position
    assert position.next_offset == 200
    assert pass_gap(commits, local, position, 300).gaps == ((200, 300),)
