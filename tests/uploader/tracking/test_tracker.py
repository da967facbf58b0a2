"""Which segments the tracker ships, and when it commits."""

from dataclasses import replace

from tests.uploader.checkpoint_files import until_they_count
from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    LOG_DIR,
    TP,
    bases,
    failed,
    listing,
    position,
    position_read,
    shipped,
    ships,
    watermark,
    watermarks,
)
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import Led
from ts_uploader.messages.results import Changed, Committed, LookDue
from ts_uploader.messages.tasks import ReadPosition, Rescan, Ship, WriteCommit
from ts_uploader.tracking.tracker import Tracker


def test_only_closed_segments_below_the_high_watermark_are_shipped() -> None:
    """The active segment stays, and so do offsets that followers may lack (protocol rule 1, fault U08)."""
    led = LedPartition(0, 100, 200, 300, high_watermark=250)
    assert bases(led.at(0)) == [0, 100]
    assert bases(led.tracker.observe(watermark(300))) == [200]


def test_a_partition_without_an_entry_in_the_checkpoint_waits() -> None:
    """Without an entry the high watermark is unknown, so nothing counts as committed."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100))
    assert until_they_count(tracker, LOG_DIR, {("t", 1): 5}) == []


def test_a_directory_of_another_topic_id_is_not_shipped() -> None:
    """Only the directory of the incarnation that the leadership source names is shipped (fault U09)."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100, topic_id="old"))
    assert watermarks(tracker, 100) == []
    tracker.observe(listing(0, 100, topic_id="id", inode=2, taken_at=150))
    assert watermarks(tracker, 100) != []


def test_u04_shipping_continues_with_the_segment_that_contains_the_next_offset() -> None:
    """Another broker has other boundaries, so names above the commit's first line mean nothing (protocol rule 4)."""
    led = LedPartition(0, 90, 250, 300)
    tasks = led.at(200)
    assert bases(tasks) == [90, 250]
    (commit,) = [t for t in led.tracker.conclude(shipped(tasks[0])) if isinstance(t, WriteCommit)]  # type: ignore[arg-type]
    assert [(segment.base, segment.end) for segment in commit.run] == [(90, 250)]


def test_u01_the_commit_waits_before_a_segment_that_keeps_failing() -> None:
    """Later segments are uploaded; the commit moves along the run only, and the failing one is retried."""
    led = LedPartition(0, 100, 200, 300)
    first, second, third = (task for task in led.at(0) if isinstance(task, Ship))
    assert led.tracker.conclude(shipped(second)) == []
    (again,) = led.tracker.conclude(failed(first))
    assert isinstance(again, ReadPosition)
    assert again.attempt == 1
    assert led.tracker.conclude(shipped(third)) == []
    (retry,) = led.tracker.conclude(position_read(again, 0))
    assert isinstance(retry, Ship)
    assert retry.base == 0
    (commit,) = led.tracker.conclude(shipped(retry))
    assert isinstance(commit, WriteCommit)
    assert [segment.base for segment in commit.run] == [0, 100, 200]


def test_a_segment_shipped_with_epochs_that_cannot_follow_is_shipped_again() -> None:
    """The epochs of an emptied segment were derived from a shorter run, so no commit would ever accept it."""
    led = LedPartition(0, 100, 200, 300)
    (first, second, third) = ships(led.at(0))
    led.tracker.conclude(shipped(second))
    led.tracker.conclude(replace(shipped(third), epochs=((2, 200),)))
    (again,) = led.tracker.conclude(failed(first))
    theirs = replace(position_read(again, 100), position=replace(position(100), epochs=EpochHistory(((1, 0), (2, 50)))))
    assert bases(led.tracker.conclude(theirs)) == [100]


def test_what_the_same_run_shipped_is_not_read_again() -> None:
    """The upload would be the same. The commit rejects it with a reason at each retry, and reads no file."""
    led = LedPartition(100, 200, 300)
    (task, _) = ships(led.at(100))
    run = EpochHistory(((1, 0), (2, 50)))
    (commit,) = led.tracker.conclude(replace(shipped(task), run=run, run_end=100))
    assert isinstance(commit, WriteCommit)
    (again,) = led.tracker.conclude(failed(commit))
    tasks = led.tracker.conclude(replace(position_read(again, 100), position=replace(position(100), epochs=run)))
    assert bases(tasks) == []
    assert isinstance(tasks[0], WriteCommit)
    (again,) = led.tracker.conclude(failed(tasks[0]))
    led.tracker.observe(replace(listing(100, 200, 300, taken_at=200), stamp=(2, 2)))
    tasks = led.tracker.conclude(replace(position_read(again, 100), position=replace(position(100), epochs=run)))
    assert bases(tasks) == [100]  # the cleaner may have removed the batch that the commit rejects


def test_a_failing_segment_is_tried_again_however_many_later_ones_are_up() -> None:
    """The limit on segments ahead of the run never stops the run itself."""
    led = LedPartition(*range(0, 10_000, 100))
    waiting = [task for task in led.at(0) if isinstance(task, Ship)]
    failing = waiting.pop(0)
    while waiting:
        waiting += [t for t in led.tracker.conclude(shipped(waiting.pop(0))) if isinstance(t, Ship)]
    (again,) = led.tracker.conclude(failed(failing))
    assert bases(led.tracker.conclude(position_read(again, 0))) == [0]


def test_one_commit_runs_at_a_time_and_the_next_includes_all_that_was_shipped_meanwhile() -> None:
    """While a commit is under way nothing else is committed; the next one covers everything since."""
    led = LedPartition(0, 100, 200, 300)
    first, second, third = (task for task in led.at(0) if isinstance(task, Ship))
    (commit,) = led.tracker.conclude(shipped(first))
    assert isinstance(commit, WriteCommit)
    assert led.tracker.conclude(shipped(second)) == []
    assert led.tracker.conclude(shipped(third)) == []
    (after,) = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, position(100)))
    assert isinstance(after, WriteCommit)
    assert [segment.base for segment in after.run] == [100, 200]


def test_a_changed_segment_waits_for_a_new_listing() -> None:
    """After the cleaner changed a segment, the old listing is no longer used."""
    led = LedPartition(0, 100, 200, 300)
    task = led.at(0)[0]
    assert isinstance(task, Ship)
    (rescan,) = led.tracker.conclude(Changed(TP, task.generation, task.leadership, task.base, "cleaner"))
    assert rescan == Rescan(TP, task.generation, 1, reason="cleaner")
    assert led.tracker.conclude(LookDue(TP, task.generation)) == []
    assert bases(led.tracker.observe(listing(0, 200, 300))) == [0]


def test_a_segment_with_a_new_neighbour_is_shipped_again() -> None:
    """After the cleaner merged it, it covers more offsets than when it was shipped."""
    led = LedPartition(0, 100, 200, 300)
    tasks = [task for task in led.at(0) if isinstance(task, Ship)]
    led.tracker.conclude(shipped(tasks[1]))
    assert 100 in bases(led.tracker.observe(listing(0, 100, 300)))


def test_latest_begins_with_the_active_segment() -> None:
    """Without a commit, LATEST begins at the active segment, EARLIEST at the first."""
    assert isinstance(ask := LedPartition(0, 100, 200, reset=OffsetReset.LATEST).read, ReadPosition)
    assert ask.first_base == 200
    assert isinstance(ask := LedPartition(50, 100, 200).read, ReadPosition)
    assert ask.first_base == 50


def test_u25_nothing_is_requested_in_the_middle_of_the_cleaners_renames() -> None:
    """The lowest base is uncertain then, and `log.start` is written once and never changed."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(100, 200, 300), swapping=True))
    assert watermarks(tracker, 300) == []
    (ask,) = tracker.observe(listing(0, 200, 300))
    assert isinstance(ask, ReadPosition)
    assert ask.first_base == 0


def test_u26_a_high_watermark_below_the_next_offset_triggers_one_more_position_read() -> None:
    """The log may end below the commit. The store's epochs show whether an election lost records."""
    led = LedPartition(0, 100, 200)
    led.at(200)
    (again,) = led.tracker.observe(watermark(150))
    assert isinstance(again, ReadPosition)
    led.tracker.conclude(position_read(again, 200))
    assert led.tracker.observe(watermark(150)) == []


def test_our_last_commit_is_remembered_over_leaderships() -> None:
    """A foreign commit that replaces it does not make it untrue (protocol rule 12)."""
    led = LedPartition(0, 100)
    assert isinstance(led.read, ReadPosition)
    ours = Commit(0, 100, 1, EpochHistory(((1, 0),)), None, "id", 1, 0, "n")
    led.tracker.conclude(replace(position_read(led.read, 100), position=replace(position(100), commit=ours)))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    (again,) = watermarks(led.tracker, 100)
    assert isinstance(again, ReadPosition)
    assert again.known == ours
