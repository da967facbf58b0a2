from dataclasses import replace

import pytest

from tests.uploader.checkpoint_files import until_they_count
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    LOG_DIR,
    TP,
    asked,
    bases,
    listing,
    position,
    watermark,
    watermarks,
)
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.events import DirectoryGone, FileState, Led, Listing, NotLed
from ts_uploader.tasks import (
    AnyTask,
    Changed,
    Committed,
    Failed,
    Fenced,
    FillGap,
    Hanging,
    LookBelow,
    LookDue,
    LookedBelow,
    PassGap,
    ReadPosition,
    Rescan,
    Ship,
    Shipped,
    Task,
    WriteCommit,
)
from ts_uploader.tracking.tracker import Tracker


def shipped(task: Task, end: int | None = None) -> Shipped:
    assert isinstance(task, Ship)
    return Shipped(
        partition=task.partition,
        generation=task.generation,
        leadership=task.leadership,
        base=task.base,
        next_base=task.next_base,
        end=task.next_base if end is None else end,
        epochs=((1, task.base),),
        last_stable_offset=None,
        bytes_sent=1,
        corruptions=0,
        seconds=0.0,
        variants_below=task.variants_below,
    )


def failed(task: Task) -> Failed:
    base = task.base if isinstance(task, Ship) else None
    return Failed(task.partition, task.generation, task.leadership, base, type(task).__name__, "because")


def ships(tasks: list[AnyTask]) -> list[Ship]:
    return [task for task in tasks if isinstance(task, Ship)]


class Led1:
    """A tracker whose partition is led, listed, below a high watermark, and about to be asked for in the store."""

    def __init__(self, *live: int, high_watermark: int = 10**6, reset: OffsetReset = OffsetReset.EARLIEST) -> None:
        self.tracker = Tracker(reset)
        assert self.tracker.observe(Led(TP, LEADERSHIP)) == []
        assert self.tracker.observe(listing(*live)) == []
        (self.ask,) = watermarks(self.tracker, high_watermark)

    def at(self, next_offset: int) -> list[AnyTask]:
        """The store says where the run ends."""
        return self.tracker.conclude(asked(self.ask, next_offset))


def test_only_closed_segments_below_the_high_watermark_go() -> None:
    """The active segment stays, and so does what followers may not have yet (protocol rule 1, fault U08)."""
    led = Led1(0, 100, 200, 300, high_watermark=250)
    assert bases(led.at(0)) == [0, 100]
    assert bases(led.tracker.observe(watermark(300))) == [200]


def test_a_partition_without_an_entry_in_the_checkpoint_waits() -> None:
    """No entry means that nothing is known, not that all is committed."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100))
    assert until_they_count(tracker, LOG_DIR, {("t", 1): 5}) == []


def test_a_directory_of_another_topic_id_is_not_shipped() -> None:
    """Only the directory of the incarnation that the leadership source names may go (fault U09)."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100, topic_id="old"))
    assert watermarks(tracker, 100) == []
    tracker.observe(listing(0, 100, topic_id="id", inode=2, taken_at=150))
    assert watermarks(tracker, 100) != []


def test_u04_shipping_goes_on_with_the_segment_that_contains_the_next_offset() -> None:
    """Another broker has other boundaries, so names above the first line mean nothing (protocol rule 4)."""
    led = Led1(0, 90, 250, 300)
    tasks = led.at(200)
    assert bases(tasks) == [90, 250]
    (commit,) = [t for t in led.tracker.conclude(shipped(tasks[0])) if isinstance(t, WriteCommit)]  # type: ignore[arg-type]
    assert [(segment.base, segment.end) for segment in commit.run] == [(90, 250)]


def test_u01_the_commit_waits_before_a_segment_that_keeps_failing() -> None:
    """Later segments may be up; the commit moves along the run only, and the failing one is tried again."""
    led = Led1(0, 100, 200, 300)
    first, second, third = (task for task in led.at(0) if isinstance(task, Ship))
    assert led.tracker.conclude(shipped(second)) == []
    (again,) = led.tracker.conclude(failed(first))
    assert isinstance(again, ReadPosition)
    assert again.attempt == 1
    assert led.tracker.conclude(shipped(third)) == []
    (retry,) = led.tracker.conclude(asked(again, 0))
    assert isinstance(retry, Ship)
    assert retry.base == 0
    (commit,) = led.tracker.conclude(shipped(retry))
    assert isinstance(commit, WriteCommit)
    assert [segment.base for segment in commit.run] == [0, 100, 200]


def test_what_was_shipped_with_epochs_that_cannot_follow_is_shipped_anew() -> None:
    """The epochs of an emptied segment were guessed from a run that reached less far: no commit would ever take it."""
    led = Led1(0, 100, 200, 300)
    (first, second, third) = ships(led.at(0))
    led.tracker.conclude(shipped(second))
    led.tracker.conclude(replace(shipped(third), epochs=((2, 200),)))
    (again,) = led.tracker.conclude(failed(first))
    theirs = replace(asked(again, 100), position=replace(position(100), epochs=EpochHistory(((1, 0), (2, 50)))))
    assert bases(led.tracker.conclude(theirs)) == [100]


def test_what_the_same_run_shipped_is_not_read_again() -> None:
    """The upload would be the same. The commit rejects it with a reason at each retry, and reads no file."""
    led = Led1(100, 200, 300)
    (task, _) = ships(led.at(100))
    run = EpochHistory(((1, 0), (2, 50)))
    (commit,) = led.tracker.conclude(replace(shipped(task), run=run, run_end=100))
    assert isinstance(commit, WriteCommit)
    (again,) = led.tracker.conclude(failed(commit))
    tasks = led.tracker.conclude(replace(asked(again, 100), position=replace(position(100), epochs=run)))
    assert bases(tasks) == []
    assert isinstance(tasks[0], WriteCommit)
    (again,) = led.tracker.conclude(failed(tasks[0]))
    led.tracker.observe(replace(listing(100, 200, 300, taken_at=200), stamp=(2, 2)))
    tasks = led.tracker.conclude(replace(asked(again, 100), position=replace(position(100), epochs=run)))
    assert bases(tasks) == [100]  # the cleaner may have removed the batch that the commit rejects


def test_a_failing_segment_is_tried_again_however_many_later_ones_are_up() -> None:
    """The bound on what is ahead of the run never stops the run itself."""
    led = Led1(*range(0, 10_000, 100))
    waiting = [task for task in led.at(0) if isinstance(task, Ship)]
    failing = waiting.pop(0)
    while waiting:
        waiting += [t for t in led.tracker.conclude(shipped(waiting.pop(0))) if isinstance(t, Ship)]
    (again,) = led.tracker.conclude(failed(failing))
    assert bases(led.tracker.conclude(asked(again, 0))) == [0]


def test_one_commit_at_a_time_and_it_takes_all_that_came_meanwhile() -> None:
    """While a commit is under way nothing else is committed; the next one moves over everything since."""
    led = Led1(0, 100, 200, 300)
    first, second, third = (task for task in led.at(0) if isinstance(task, Ship))
    (commit,) = led.tracker.conclude(shipped(first))
    assert isinstance(commit, WriteCommit)
    assert led.tracker.conclude(shipped(second)) == []
    assert led.tracker.conclude(shipped(third)) == []
    (after,) = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, position(100)))
    assert isinstance(after, WriteCommit)
    assert [segment.base for segment in after.run] == [100, 200]


def test_a_fenced_leadership_does_not_come_back() -> None:
    """After the store showed a later leader epoch, an unchanged leadership source changes nothing (fault U06)."""
    led = Led1(0, 100)
    assert led.tracker.conclude(Fenced(TP, led.ask.generation, LEADERSHIP, "later")) == []
    led.tracker.observe(Led(TP, LEADERSHIP))
    assert watermarks(led.tracker, 10**6) == []
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert watermarks(led.tracker, 10**6) != []


@pytest.mark.parametrize(
    "change",
    [NotLed(TP), Led(TP, replace(LEADERSHIP, epoch=2)), DirectoryGone(TP), listing(0, 100, 200, inode=9)],
    ids=["demoted", "new leader epoch", "directory gone", "directory replaced"],
)
def test_results_of_a_past_life_do_not_count(change: NotLed | Led | DirectoryGone | Listing) -> None:
    """What was under way when leadership or directory changed is dropped when it ends."""
    led = Led1(0, 100, 200)
    task = led.at(0)[0]
    led.tracker.observe(change)
    assert led.tracker.conclude(shipped(task)) == []  # type: ignore[arg-type]


def test_a_repeated_saying_of_the_same_leadership_changes_nothing() -> None:
    """The source is level-triggered; work under way goes on (fault U16)."""
    led = Led1(0, 100, 200)
    task = led.at(0)[0]
    assert led.tracker.observe(Led(TP, replace(LEADERSHIP, seen_at=999))) == []
    assert led.tracker.conclude(shipped(task)) != []  # type: ignore[arg-type]


def test_a_changed_segment_waits_for_a_new_listing() -> None:
    """After the cleaner was at work nothing is taken from the old listing any more."""
    led = Led1(0, 100, 200, 300)
    task = led.at(0)[0]
    assert isinstance(task, Ship)
    (rescan,) = led.tracker.conclude(Changed(TP, task.generation, task.leadership, task.base, "cleaner"))
    assert rescan == Rescan(TP, task.generation, 1, reason="cleaner")
    assert led.tracker.conclude(LookDue(TP, task.generation)) == []
    assert bases(led.tracker.observe(listing(0, 200, 300))) == [0]


def test_a_segment_with_a_new_neighbour_is_weighed_anew() -> None:
    """Merged by the cleaner, it answers for more than when it was shipped."""
    led = Led1(0, 100, 200, 300)
    tasks = [task for task in led.at(0) if isinstance(task, Ship)]
    led.tracker.conclude(shipped(tasks[1]))
    assert 100 in bases(led.tracker.observe(listing(0, 100, 300)))


def test_latest_begins_with_the_active_segment() -> None:
    """Without a commit LATEST begins where the log is written now, EARLIEST where it begins."""
    assert isinstance(ask := Led1(0, 100, 200, reset=OffsetReset.LATEST).ask, ReadPosition)
    assert ask.first_base == 200
    assert isinstance(ask := Led1(50, 100, 200).ask, ReadPosition)
    assert ask.first_base == 50


@pytest.mark.parametrize("said", [Led(TP, LEADERSHIP), NotLed(TP)])
def test_a_partition_that_the_source_never_spoke_of_is_told_apart(said: Led | NotLed) -> None:
    """It may be led here, and then nobody ships it: after a while, until the source says anything of it."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(listing(0, 10, taken_at=100))
    assert tracker.untold(100) == []
    assert tracker.untold(101) == [TP]
    tracker.observe(said)
    assert tracker.untold(101) == []
    tracker.observe(DirectoryGone(TP))
    assert tracker.untold(101) == []


def test_a_hole_is_shown_and_nothing_is_shipped_over_it() -> None:
    """Where the next offset lies below every live segment, the backlog says so."""
    led = Led1(100, 200, 300)
    assert bases(led.at(50)) == [100, 200]
    waiting = led.tracker.backlog()[TP]
    assert waiting.hole
    assert Led1(100, 200, 300).at(100) != []


def test_the_backlog_names_the_oldest_segment_that_waits() -> None:
    """Oldest unshipped, count and lag are what operators look at."""
    led = Led1(0, 100, 200, 300, high_watermark=350)
    led.at(100)
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.lag, waiting.hole) == (100, 2, 250, False)


def test_while_the_next_offset_is_not_known_all_that_is_closed_counts_as_waiting() -> None:
    """After a start, and in a new leader epoch until the store has answered: the cautious bound."""
    led = Led1(0, 100, 200)
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.next_offset, waiting.hole) == (0, 2, None, False)
    led.at(100)
    assert led.tracker.backlog()[TP].base == 100
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert led.tracker.backlog()[TP].base == 0


def test_a_question_that_keeps_failing_is_shown_with_its_reason() -> None:
    """Once is the ordinary course of a new leader epoch; twice is not, and an answer ends it."""
    led = Led1(0, 100)
    ask = led.ask
    for waits_for in (None, "where to go on: because", "where to go on: because"):
        assert isinstance(ask, ReadPosition)
        (ask,) = led.tracker.conclude(failed(ask))
        assert led.tracker.backlog()[TP].waits_for == waits_for
    led.tracker.conclude(asked(ask, 0))
    assert led.tracker.backlog()[TP].waits_for is None


def test_an_upload_that_keeps_failing_is_no_question_that_fails() -> None:
    """What waits then is known, and counted."""
    led = Led1(0, 100, 200, 300)
    for ship in led.at(0):
        assert isinstance(ship, Ship)
        led.tracker.conclude(failed(ship))
    assert led.tracker.backlog()[TP].waits_for is None


def test_a_fenced_partition_is_shown_until_the_source_says_that_it_is_not_led() -> None:
    """Whoever believes the source expects it to be shipped from here."""
    led = Led1(0, 100, 200)
    led.at(100)
    led.tracker.conclude(Fenced(TP, led.ask.generation, LEADERSHIP, "later"))
    led.tracker.observe(Led(TP, LEADERSHIP))
    waiting = led.tracker.backlog()[TP]
    assert waiting.waits_for is not None
    assert "the store shows a later leader epoch" in waiting.waits_for
    assert (waiting.base, waiting.segments) == (0, 2)
    led.tracker.observe(NotLed(TP))
    assert led.tracker.backlog() == {}


def test_a_partition_stays_in_sight_while_its_directory_is_listed_anew() -> None:
    """A segment that changes at each attempt would otherwise hide the partition most of the time."""
    led = Led1(0, 100, 200)
    task = led.at(0)[0]
    assert isinstance(task, Ship)
    led.tracker.conclude(Changed(TP, task.generation, task.leadership, task.base, "cleaner"))
    assert led.tracker.backlog()[TP].segments == 2
    led.tracker.observe(DirectoryGone(TP))
    assert led.tracker.backlog() == {}


def test_a_partition_whose_directory_is_gone_is_forgotten_without_another_word() -> None:
    """The source is not asked about it any more, so it never says that it is not led."""
    led = Led1(0, 100)
    led.tracker.observe(DirectoryGone(TP))
    for _ in range(2):
        led.tracker.forget_absent()
    led.tracker.observe(listing(0, 100, inode=2))
    assert watermarks(led.tracker, 100) == []
    led.tracker.observe(Led(TP, LEADERSHIP))
    assert watermarks(led.tracker, 100) != []


def test_a_partition_that_moves_to_another_disk_keeps_its_leadership() -> None:
    """For a moment no log dir holds it; the source has nothing new to say of that."""
    led = Led1(0, 100)
    led.tracker.forget_absent()
    led.tracker.observe(DirectoryGone(TP))
    led.tracker.forget_absent()
    led.tracker.observe(listing(0, 100, inode=2))
    led.tracker.forget_absent()
    assert watermarks(led.tracker, 100) != []


def test_results_never_meet_a_partition_that_was_forgotten_and_came_back() -> None:
    """A topic deleted and re-created under its name has nothing to do with uploads of its first life (fault U09)."""
    led = Led1(0, 100, 200)
    task = led.at(0)[0]
    led.tracker.observe(NotLed(TP))
    led.tracker.observe(DirectoryGone(TP))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, topic_id="new")))
    led.tracker.observe(listing(0, 80, 160, topic_id="new", inode=2))
    led.tracker.observe(watermark(160))
    assert led.tracker.conclude(shipped(task)) == []  # type: ignore[arg-type]
    assert led.tracker.conclude(asked(led.ask, 0)) == []


def test_a_fence_holds_for_its_topic_id_only() -> None:
    """A re-created topic begins with low epochs again, and is shipped."""
    led = Led1(0, 100)
    assert isinstance(led.ask, ReadPosition)
    led.tracker.conclude(Fenced(TP, led.ask.generation, replace(LEADERSHIP, epoch=9), "later"))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, topic_id="new")))
    led.tracker.observe(listing(0, 100, topic_id="new", inode=2))
    assert watermarks(led.tracker, 100) != []


def test_u25_nothing_is_asked_for_in_the_middle_of_the_cleaners_renames() -> None:
    """What is lowest cannot be told then, and `log.start` is written once and for ever."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(100, 200, 300), swapping=True))
    assert watermarks(tracker, 300) == []
    (ask,) = tracker.observe(listing(0, 200, 300))
    assert isinstance(ask, ReadPosition)
    assert ask.first_base == 0


def test_a_lost_tail_is_shown_as_a_hole() -> None:
    """A torn closed segment answers for less than its name says, and the partition waits visibly (fault U13)."""
    led = Led1(0, 100, 200)
    first = next(task for task in led.at(0) if isinstance(task, Ship))
    (commit,) = [t for t in led.tracker.conclude(shipped(first, end=90)) if isinstance(t, WriteCommit)]
    again = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, position(90)))
    (retry,) = [task for task in again if isinstance(task, Ship) and task.base == 0]
    led.tracker.conclude(shipped(retry, end=90))
    assert led.tracker.backlog()[TP].hole


CHECKPOINT = 5_000_000_000  # ns


def taken(led: Led1, *live: int, deleted: tuple[int, ...] = (), taken_at: int = 200) -> list[AnyTask]:
    """Retention renamed the lowest segments."""
    return led.tracker.observe(replace(listing(*live, taken_at=taken_at), deleted=deleted))


def test_u07_what_retention_renamed_is_shipped_from_its_deleted_files() -> None:
    """Seen live in this leadership, a segment goes up under its next name, with the neighbour that it had."""
    led = Led1(0, 100, 200, 300, 400)
    assert bases(led.at(0)) == [0, 100, 200, 300]
    first = led.tracker.observe(replace(listing(300, 400), deleted=(0, 100, 200)))
    assert first == []
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.hole) == (0, 4, False)


def test_u07_a_segment_that_failed_is_tried_again_from_its_deleted_files() -> None:
    """As long as they are there; then what is left is shipped, and nothing is a gap before it is sure."""
    led = Led1(0, 100, 200)
    first, second = (task for task in led.at(0) if isinstance(task, Ship))
    taken(led, 200, deleted=(0, 100))
    (again,) = led.tracker.conclude(failed(first))
    assert [(t.base, t.next_base) for t in led.tracker.conclude(asked(again, 0)) if isinstance(t, Ship)] == [(0, 100)]
    assert led.tracker.conclude(shipped(second)) == []


def state_of(base: int) -> FileState:
    return FileState(1, base, 100, 100)


def looked(task: AnyTask, *hanging: tuple[int, int]) -> LookedBelow:
    """What hangs, of all `.deleted` files below the lowest live segment."""
    assert isinstance(task, LookBelow)
    found = tuple(Hanging(base, end, state_of(base)) for base, end in hanging)
    below = frozenset(base for base in task.listing.deleted if base < task.listing.bases[0])
    return LookedBelow(task.partition, task.generation, task.leadership, found, below, task.wanted)


def begun_with_deleted(
    next_offset: int, *deleted: int, gaps: tuple[tuple[int, int], ...] = ()
) -> tuple[Tracker, LookBelow]:
    """An agent that begins where retention renamed everything below 200 before, and asks what of it counts."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(200, 300), deleted=deleted))
    (ask,) = watermarks(tracker, 300)
    answer = replace(asked(ask, next_offset), position=replace(position(next_offset), gaps=gaps))
    (look,) = [task for task in tracker.conclude(answer) if isinstance(task, LookBelow)]
    return tracker, look


def test_u39_a_deleted_file_that_was_never_seen_live_is_shipped_if_it_hangs() -> None:
    """At once, and for its own batches only; the one that does not hang may be of a line that died."""
    tracker, look = begun_with_deleted(100, 0, 100, 150)
    (ship,) = tracker.conclude(looked(look, (100, 200)))
    assert isinstance(ship, Ship)
    assert (ship.base, ship.next_base, ship.hangs, ship.seen) == (100, 200, state_of(100), False)


def test_u39_what_was_seen_live_in_this_leadership_is_shipped_with_its_neighbour() -> None:
    """Nothing is to be found out about it."""
    led = Led1(0, 100, 200)
    first, _ = (task for task in led.at(0) if isinstance(task, Ship))
    tasks = taken(led, 200, deleted=(0, 100))
    assert [task for task in tasks if isinstance(task, LookBelow)] == []
    (again,) = led.tracker.conclude(failed(first))
    (ship,) = [task for task in led.tracker.conclude(asked(again, 0)) if isinstance(task, Ship)]
    assert (ship.base, ship.next_base, ship.hangs, ship.seen) == (0, 100, None, True)


def test_a_listing_that_is_not_whole_vouches_for_no_neighbour() -> None:
    """Its two bases may be of two instants: a `.deleted` file goes by its own batches then."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(0, 100, 200), whole=False))
    (ask,) = watermarks(tracker, 200)
    assert [t.seen for t in tracker.conclude(asked(ask, 0)) if isinstance(t, Ship)] == [False, False]
    (look,) = [
        task for task in tracker.observe(replace(listing(200, 300), deleted=(0, 100))) if isinstance(task, LookBelow)
    ]
    assert look.seen == frozenset()


def test_u39_a_gap_ends_where_the_chain_begins() -> None:
    """What is gone below it is passed; what hangs was not waited for."""
    tracker, look = begun_with_deleted(50, 100)
    (ship,) = [task for task in tracker.conclude(looked(look, (100, 200))) if isinstance(task, Ship)]
    tracker.conclude(shipped(ship))
    tasks = tracker.observe(replace(listing(200, 300, taken_at=100 + CHECKPOINT), deleted=(100,)))
    (gap,) = [task for task in tasks if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)


def test_u39_no_gap_before_the_deleted_files_were_looked_at() -> None:
    """Two whole listings agree by then, and the look does not end."""
    tracker, look = begun_with_deleted(50, 100)
    late = replace(listing(200, 300, taken_at=100 + CHECKPOINT), deleted=(100,))
    assert tracker.observe(late) == []
    assert [type(task) for task in tracker.conclude(looked(look))] == [PassGap]


def test_u39_files_that_do_not_hang_hold_up_no_gap() -> None:
    """Retention renames more every few minutes, so some file always lies below; none of them is waited for."""
    tracker, look = begun_with_deleted(50, 60)
    tracker.conclude(looked(look))
    tasks = tracker.observe(replace(listing(300, 400, taken_at=100 + CHECKPOINT), deleted=(60, 200)))
    (gap,) = [task for task in tasks if isinstance(task, PassGap)]
    assert gap.end == 200  # seen live


def test_a_look_that_failed_is_repeated() -> None:
    """The directory changed meanwhile; a commit that is under way is not disturbed by it."""
    tracker, look = begun_with_deleted(50, 100)
    (ask,) = tracker.conclude(failed(look))
    (again,) = [task for task in tracker.conclude(asked(ask, 50)) if isinstance(task, LookBelow)]
    assert again.wanted == 50


def test_a_look_that_failed_and_is_wanted_no_more_is_told_no_more() -> None:
    """Another agent committed past the missing range, so the status names no failed look (histories, seed 1092)."""
    tracker, look = begun_with_deleted(50, 100)
    (ask,) = tracker.conclude(failed(look))
    tracker.conclude(asked(ask, 300))
    assert tracker.backlog()[TP].wait is None


def test_u39_a_file_that_is_not_the_one_that_hung_is_looked_at_again() -> None:
    """Another was renamed over it: the worker saw that, and nothing is shipped before the next look."""
    tracker, look = begun_with_deleted(100, 100)
    (ship,) = tracker.conclude(looked(look, (100, 200)))
    assert isinstance(ship, Ship)
    tracker.conclude(Changed(TP, ship.generation, ship.leadership, 100, "another file"))
    tasks = tracker.observe(replace(listing(200, 300, taken_at=200), deleted=(100,)))
    assert [type(task) for task in tasks if not isinstance(task, Rescan)] == [LookBelow]


def test_u39_another_leadership_looks_again() -> None:
    """What was seen live in the one before counts no more than what an agent finds that begins."""
    led = Led1(0, 100, 200)
    led.at(100)
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert led.tracker.observe(replace(listing(200, 300), deleted=(0, 100))) == []
    (ask,) = watermarks(led.tracker, 300)
    (look,) = [task for task in led.tracker.conclude(asked(ask, 100)) if isinstance(task, LookBelow)]
    assert (look.wanted, look.seen) == (100, frozenset())


def test_below_what_a_lineage_may_have_deleted_only_variants_are_shipped() -> None:
    """A deletion of the former lineage may be late, and names plain objects."""
    led = Led1(0, 100, 200)
    where = replace(position(0), lineage=Lineage(1, 0, 150))
    ships = led.tracker.conclude(replace(asked(led.ask, 0), position=where))
    assert [task.variants_below for task in ships if isinstance(task, Ship)] == [150, 150]


def test_u36_what_a_new_lineage_found_shipped_or_under_way_goes_again_as_a_variant() -> None:
    """The commit was lost in mid-leadership: plain names below the third element are no part of the new run."""
    led = Led1(0, 100, 200, 300, 400)
    at_0, at_100, at_200, at_300 = ships(led.at(0))
    (write,) = led.tracker.conclude(shipped(at_0))
    assert isinstance(write, WriteCommit)
    assert led.tracker.conclude(shipped(at_200)) == []
    (ask,) = led.tracker.conclude(failed(write))
    assert led.tracker.conclude(shipped(at_100)) == []
    where = replace(position(100), lineage=Lineage(1, 100, 300))
    tasks = led.tracker.conclude(replace(asked(ask, 100), position=where))
    again, last = ships(tasks)
    assert len(tasks) == 2
    assert [(task.base, task.variants_below) for task in (again, last)] == [(100, 300), (200, 300)]
    led.tracker.conclude(shipped(at_300))  # at the third element a plain name is as good as any
    (write,) = led.tracker.conclude(shipped(again))
    assert isinstance(write, WriteCommit)
    assert [done.base for done in write.run] == [100]
    led.tracker.conclude(shipped(last))
    (write,) = led.tracker.conclude(Committed(TP, write.generation, write.leadership, replace(where, next_offset=200)))
    assert isinstance(write, WriteCommit)
    assert [done.base for done in write.run] == [200, 300]


def test_u36_what_is_under_way_when_a_new_lineage_is_known_goes_again_as_a_variant() -> None:
    """An upload may end after the store said where to go on."""
    led = Led1(0, 100, 200)
    at_0, at_100 = ships(led.at(0))
    (ask,) = led.tracker.conclude(failed(at_0))
    where = replace(position(0), lineage=Lineage(1, 0, 200))
    assert bases(led.tracker.conclude(replace(asked(ask, 0), position=where))) == [0]
    (again,) = ships(led.tracker.conclude(shipped(at_100)))
    assert (again.base, again.variants_below) == (100, 200)


def test_nothing_is_looked_at_while_nothing_is_missing() -> None:
    """Retention of shipped segments leaves `.deleted` files all the time."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(200, 300), deleted=(0, 100)))
    (ask,) = watermarks(tracker, 300)
    assert bases(tracker.conclude(asked(ask, 200))) == [200]


def test_u39_a_recorded_gap_is_filled_from_files_that_hang() -> None:
    """An agent recorded it whose broker did not hold them."""
    tracker, look = begun_with_deleted(200, 100, gaps=((100, 200),))
    assert look.wanted == 100
    (ship,) = [task for task in tracker.conclude(looked(look, (100, 200))) if isinstance(task, Ship)]
    (fill,) = tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)


def test_compaction_leaves_no_segment_to_ship_behind() -> None:
    """A base that is gone while a lower one lives went into that one."""
    led = Led1(0, 100, 200, 300)
    led.at(0)
    led.tracker.observe(replace(listing(0, 200, 300), deleted=(0, 100)))
    led.tracker.observe(replace(listing(200, 300), deleted=(0, 100)))
    assert led.tracker.backlog()[TP].base == 0


def gap_of(led: Led1, next_offset: int, *live: int) -> list[AnyTask]:
    """Two listings a checkpoint interval apart, both above the next offset."""
    (rescan,) = [task for task in led.at(next_offset) if isinstance(task, Rescan)]
    assert rescan.after_seconds == 5
    return led.tracker.observe(listing(*live, taken_at=100 + CHECKPOINT))


def test_u07_what_is_gone_becomes_a_gap_when_two_listings_agree() -> None:
    """A checkpoint interval apart, and up to the lowest live segment."""
    led = Led1(100, 200)
    (gap,) = [task for task in gap_of(led, 50, 100, 200) if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)


def test_what_vanished_since_the_first_listing_is_no_part_of_the_gap() -> None:
    """Retention deleted another segment in between, so only one listing lacks it (histories, seed 99)."""
    led = Led1(100, 200, 300, high_watermark=100)
    (gap,) = [task for task in gap_of(led, 50, 200, 300) if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)
    led.tracker.observe(watermark(300))
    passed = Committed(TP, gap.generation, gap.leadership, position(100))
    assert [task for task in led.tracker.conclude(passed) if isinstance(task, PassGap)] == []
    tasks = led.tracker.observe(listing(200, 300, taken_at=100 + 2 * CHECKPOINT))
    assert [(task.position.next_offset, task.end) for task in tasks if isinstance(task, PassGap)] == [(100, 200)]


def test_a_gap_needs_two_whole_listings() -> None:
    """One that met renames may miss what is there; another is asked for, one at a time."""
    led = Led1(100, 200)
    torn = replace(listing(100, 200), whole=False)
    led.tracker.observe(torn)
    (rescan,) = [task for task in led.at(50) if isinstance(task, Rescan)]
    assert rescan.after_seconds == 5
    assert led.tracker.observe(replace(torn, taken_at=100 + 2 * CHECKPOINT)) == []
    assert led.tracker.conclude(LookDue(TP, rescan.generation)) == []
    assert led.tracker.observe(replace(torn, taken_at=101 + 2 * CHECKPOINT)) == [rescan]
    led.tracker.observe(listing(100, 200, taken_at=100 + 3 * CHECKPOINT))
    tasks = led.tracker.observe(listing(100, 200, taken_at=100 + 4 * CHECKPOINT))
    assert [type(task) for task in tasks] == [PassGap]


def test_a_gap_needs_a_checkpoint_interval_between_its_two_listings() -> None:
    """A listing that comes earlier proves nothing."""
    led = Led1(100, 200)
    led.at(50)
    assert [t for t in led.tracker.observe(listing(100, 200, taken_at=99 + CHECKPOINT)) if isinstance(t, PassGap)] == []


@pytest.mark.parametrize(
    "between",
    [replace(listing(100, 200), swapping=True), listing(0, 100, 200), Led(TP, replace(LEADERSHIP, epoch=2))],
    ids=["renames under way", "the segment is back", "another leader epoch"],
)
def test_u25_what_interrupts_two_listings_makes_the_wait_begin_anew(between: Listing | Led) -> None:
    """No gap from two listings with something else in between."""
    led = Led1(100, 200)
    led.at(50)
    led.tracker.observe(between)
    tasks = led.tracker.observe(listing(100, 200, taken_at=100 + CHECKPOINT))
    assert [task for task in tasks if isinstance(task, PassGap)] == []


def test_no_gap_while_a_segment_is_still_read_from_an_open_file() -> None:
    """Its names are gone, its bytes are not."""
    led = Led1(0, 100, 200)
    first, second = (task for task in led.at(0) if isinstance(task, Ship))
    led.tracker.conclude(shipped(second))
    taken(led, 200, taken_at=100)
    assert [t for t in taken(led, 200, taken_at=100 + CHECKPOINT) if isinstance(t, PassGap)] == []
    (commit,) = led.tracker.conclude(shipped(first))
    assert isinstance(commit, WriteCommit)
    assert [done.base for done in commit.run] == [0, 100]


def test_no_gap_above_the_high_watermark() -> None:
    """What is not committed cannot be passed."""
    led = Led1(100, 200, high_watermark=60)
    assert [task for task in gap_of(led, 50, 100, 200) if isinstance(task, PassGap)] == []
    assert [type(task) for task in led.tracker.observe(watermark(100))] == [PassGap]


def test_a_recorded_gap_that_this_log_holds_is_filled() -> None:
    """On taking over: its segments are shipped, then its epochs are corrected; the run goes on meanwhile."""
    led = Led1(0, 100, 200, 300, 400)
    assert isinstance(led.ask, ReadPosition)
    where = replace(position(300), gaps=((150, 250),))
    tasks = led.tracker.conclude(replace(asked(led.ask, 0), position=where))
    assert bases(tasks) == [100, 200, 300]
    first, second, ahead = (task for task in tasks if isinstance(task, Ship))
    assert led.tracker.conclude(shipped(first)) == []
    (fill,) = led.tracker.conclude(shipped(second))
    assert isinstance(fill, FillGap)
    assert (fill.gap, [done.base for done in fill.run]) == ((150, 250), [100, 200])
    assert led.tracker.conclude(shipped(ahead)) == []
    after = led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=())))
    (commit,) = [task for task in after if isinstance(task, WriteCommit)]
    assert [done.base for done in commit.run] == [300]


@pytest.mark.parametrize("leaderships_on", [True, False])
def test_a_gap_is_filled_once_in_a_leadership(leaderships_on: bool) -> None:
    """Its record never goes, so the store names it at every question; a new leader epoch looks once more."""
    led = Led1(0, 100, 200, 300)
    where = replace(position(300), gaps=((100, 200),))
    tasks = led.tracker.conclude(replace(asked(led.ask, 0), position=where))
    (ship,) = (task for task in tasks if isinstance(task, Ship))
    (fill,) = led.tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=()))) == []
    if leaderships_on:
        led.tracker.observe(watermark(250))  # below the next offset: the store is asked again
        assert led.tracker.conclude(replace(asked(led.ask, 0), position=where)) == []
    else:
        led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
        (ask,) = watermarks(led.tracker, 300)
        assert bases(led.tracker.conclude(replace(asked(ask, 0), position=where))) == [100]


def test_a_gap_that_could_not_be_filled_is_filled_later() -> None:
    """Only its own commit ends it, not one that moves along the run."""
    led = Led1(0, 100, 200, 300)
    where = replace(position(200), gaps=((100, 200),))
    inside, ahead = (t for t in led.tracker.conclude(replace(asked(led.ask, 0), position=where)) if isinstance(t, Ship))
    (fill,) = led.tracker.conclude(shipped(inside))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(shipped(ahead)) == []
    (ask,) = led.tracker.conclude(failed(fill))
    (commit,) = led.tracker.conclude(replace(asked(ask, 0), position=where))
    assert isinstance(commit, WriteCommit)
    moved = replace(position(300), gaps=where.gaps)
    (again,) = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, moved))
    assert isinstance(again, FillGap)


def test_u26_a_high_watermark_below_the_next_offset_asks_again_once() -> None:
    """The log may end below what is committed: whether an election lost records is found out by the store's epochs."""
    led = Led1(0, 100, 200)
    led.at(200)
    (again,) = led.tracker.observe(watermark(150))
    assert isinstance(again, ReadPosition)
    led.tracker.conclude(asked(again, 200))
    assert led.tracker.observe(watermark(150)) == []


def test_our_last_commit_is_remembered_over_leaderships() -> None:
    """A foreign one that is found in its place does not make it untrue (protocol rule 12)."""
    led = Led1(0, 100)
    assert isinstance(led.ask, ReadPosition)
    ours = Commit(0, 100, 1, EpochHistory(((1, 0),)), None, "id", 1, 0, "n")
    led.tracker.conclude(replace(asked(led.ask, 100), position=replace(position(100), commit=ours)))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    (again,) = watermarks(led.tracker, 100)
    assert isinstance(again, ReadPosition)
    assert again.known == ours


def looks(tracker: Tracker, begin: int) -> list[int]:
    """The seconds after `begin` at which the store is asked within three hours, though nothing happens."""
    seconds = []
    for second in range(begin, begin + 3 * 3600, 10):
        tasks = tracker.observe(listing(0, 100, taken_at=second * 10**9))
        for task in tasks:
            if isinstance(task, ReadPosition):
                seconds.append(second - begin)
                tracker.conclude(replace(asked(task, 0), beside_java=True))
    return seconds


AN_HOUR_OF_LOOKS = [30, 90, 210, 450, 930, 1890, 3810]


def test_u29_behind_a_java_uploader_the_store_is_asked_again_now_and_then() -> None:
    """What it had queued may come late, also where nothing is shipped for days: after 30 s, a minute, and so on."""
    led = Led1(0, 100)
    led.tracker.conclude(replace(asked(led.ask, 0), foreign=True))
    assert looks(led.tracker, 10) == AN_HOUR_OF_LOOKS


@pytest.mark.parametrize("restarted", [True, False], ids=["the agent is restarted", "another leader epoch begins"])
def test_u29_the_looks_begin_again_with_a_leadership_and_with_the_agent(restarted: bool) -> None:
    """Our own commit stands by then and says that a Java uploader's stood there lately; later answers add nothing."""
    led = Led1(0, 100)
    led.tracker.conclude(replace(asked(led.ask, 0), foreign=True))
    led.tracker.observe(listing(0, 100, taken_at=10**9))
    if restarted:
        led = Led1(0, 100)
        ask: AnyTask = led.ask
    else:
        led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
        (ask,) = watermarks(led.tracker, 100)
    led.tracker.conclude(replace(asked(ask, 0), beside_java=True))
    assert looks(led.tracker, 40) == AN_HOUR_OF_LOOKS


def test_u29_a_gap_that_was_filled_is_looked_at_again_after_a_java_uploader_wrote() -> None:
    """It may have put a shorter segment over the very one that filled it."""
    led = Led1(0, 100, 200, 300)
    where = replace(position(300), gaps=((100, 200),))
    (ship,) = led.tracker.conclude(replace(asked(led.ask, 0), position=where))
    assert isinstance(ship, Ship)
    (fill,) = led.tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=()))) == []
    (ask,) = led.tracker.observe(watermark(250))
    assert bases(led.tracker.conclude(replace(asked(ask, 0), position=where, foreign=True))) == [100]


def test_u29_a_java_uploader_that_wrote_again_is_looked_for_as_soon_as_before() -> None:
    """Each late write may not be the last; without one the store is not asked for that at all."""
    led = Led1(0, 100)
    led.tracker.conclude(replace(asked(led.ask, 0), foreign=True))
    assert led.tracker.observe(listing(0, 100, taken_at=10**9)) == []
    (again,) = led.tracker.observe(listing(0, 100, taken_at=31 * 10**9))
    led.tracker.conclude(replace(asked(again, 0), foreign=True))
    assert led.tracker.observe(listing(0, 100, taken_at=40 * 10**9)) == []
    assert len(led.tracker.observe(listing(0, 100, taken_at=70 * 10**9))) == 1
    ours = Led1(0, 100)
    ours.at(0)
    assert ours.tracker.observe(listing(0, 100, taken_at=10**9)) == []
    assert ours.tracker.observe(listing(0, 100, taken_at=10**14)) == []
