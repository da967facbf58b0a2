"""Which `.deleted` files the tracker ships (protocol rule 10)."""

from dataclasses import replace

from tests.uploader.tracking.led_partition import CHECKPOINT, LedPartition, begun_with_deleted, taken
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    TP,
    bases,
    failed,
    listing,
    looked_below,
    position_read,
    shipped,
    state_of,
    watermarks,
)
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import Led
from ts_uploader.messages.results import Changed
from ts_uploader.messages.tasks import FillGap, LookBelow, PassGap, Rescan, Ship
from ts_uploader.tracking.tracker import Tracker


def test_u07_what_retention_renamed_is_shipped_from_its_deleted_files() -> None:
    """A segment that was seen live in this leadership is shipped from its renamed files, with the neighbour it had."""
    led = LedPartition(0, 100, 200, 300, 400)
    assert bases(led.at(0)) == [0, 100, 200, 300]
    first = led.tracker.observe(replace(listing(300, 400), deleted=(0, 100, 200)))
    assert first == []
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.hole) == (0, 4, False)


def test_u07_a_segment_that_failed_is_tried_again_from_its_deleted_files() -> None:
    """It is retried while the files exist, and nothing becomes a gap before two listings agree."""
    led = LedPartition(0, 100, 200)
    first, second = (task for task in led.at(0) if isinstance(task, Ship))
    taken(led, 200, deleted=(0, 100))
    (again,) = led.tracker.conclude(failed(first))
    assert [(t.base, t.next_base) for t in led.tracker.conclude(position_read(again, 0)) if isinstance(t, Ship)] == [
        (0, 100)
    ]
    assert led.tracker.conclude(shipped(second)) == []


def test_u39_a_deleted_file_never_seen_as_a_live_segment_is_shipped_if_it_hangs_on_the_live_log() -> None:
    """It is shipped at once, for its own batches only. One that does not hang can be of a dead log."""
    tracker, look = begun_with_deleted(100, 0, 100, 150)
    (ship,) = tracker.conclude(looked_below(look, (100, 200)))
    assert isinstance(ship, Ship)
    assert (ship.base, ship.next_base, ship.hangs, ship.seen) == (100, 200, state_of(100), False)


def test_u39_a_live_segment_seen_in_this_leadership_is_shipped_with_its_neighbour() -> None:
    """The agent needs no read for it."""
    led = LedPartition(0, 100, 200)
    first, _ = (task for task in led.at(0) if isinstance(task, Ship))
    tasks = taken(led, 200, deleted=(0, 100))
    assert [task for task in tasks if isinstance(task, LookBelow)] == []
    (again,) = led.tracker.conclude(failed(first))
    (ship,) = [task for task in led.tracker.conclude(position_read(again, 0)) if isinstance(task, Ship)]
    assert (ship.base, ship.next_base, ship.hangs, ship.seen) == (0, 100, None, True)


def test_a_listing_that_is_not_whole_vouches_for_no_neighbour() -> None:
    """Its two bases can be of two instants, so a `.deleted` file counts by its own batches."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(0, 100, 200), whole=False))
    (ask,) = watermarks(tracker, 200)
    assert [t.seen for t in tracker.conclude(position_read(ask, 0)) if isinstance(t, Ship)] == [False, False]
    (look,) = [
        task for task in tracker.observe(replace(listing(200, 300), deleted=(0, 100))) if isinstance(task, LookBelow)
    ]
    assert look.seen == frozenset()


def test_u39_a_gap_ends_where_the_chain_begins() -> None:
    """The offsets below it become a gap; files that hang did not delay that."""
    tracker, look = begun_with_deleted(50, 100)
    (ship,) = [task for task in tracker.conclude(looked_below(look, (100, 200))) if isinstance(task, Ship)]
    tracker.conclude(shipped(ship))
    tasks = tracker.observe(replace(listing(200, 300, taken_at=100 + CHECKPOINT), deleted=(100,)))
    (gap,) = [task for task in tasks if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)


def test_u39_no_gap_before_the_deleted_files_were_looked_at() -> None:
    """Two whole listings agree by then, but the read of the `.deleted` files has not ended."""
    tracker, look = begun_with_deleted(50, 100)
    late = replace(listing(200, 300, taken_at=100 + CHECKPOINT), deleted=(100,))
    assert tracker.observe(late) == []
    assert [type(task) for task in tracker.conclude(looked_below(look))] == [PassGap]


def test_u39_files_that_do_not_hang_hold_up_no_gap() -> None:
    """Retention renames more every few minutes, so some file is always below; the agent waits for none of them."""
    tracker, look = begun_with_deleted(50, 60)
    tracker.conclude(looked_below(look))
    tasks = tracker.observe(replace(listing(300, 400, taken_at=100 + CHECKPOINT), deleted=(60, 200)))
    (gap,) = [task for task in tasks if isinstance(task, PassGap)]
    assert gap.end == 200  # seen live


def test_a_look_that_failed_is_repeated() -> None:
    """The directory changed meanwhile; that does not disturb a commit that is under way."""
    tracker, look = begun_with_deleted(50, 100)
    (ask,) = tracker.conclude(failed(look))
    (again,) = [task for task in tracker.conclude(position_read(ask, 50)) if isinstance(task, LookBelow)]
    assert again.wanted == 50


def test_a_failed_look_that_is_no_longer_needed_is_no_longer_reported() -> None:
    """Another agent committed past the missing range, so the status names no failed look (histories, seed 1092)."""
    tracker, look = begun_with_deleted(50, 100)
    (ask,) = tracker.conclude(failed(look))
    tracker.conclude(position_read(ask, 300))
    assert tracker.backlog()[TP].wait is None


def test_u39_a_file_that_is_not_the_one_that_hung_is_looked_at_again() -> None:
    """Another was renamed over it: the worker saw that, and ships nothing before the next listing."""
    tracker, look = begun_with_deleted(100, 100)
    (ship,) = tracker.conclude(looked_below(look, (100, 200)))
    assert isinstance(ship, Ship)
    tracker.conclude(Changed(TP, ship.generation, ship.leadership, 100, "another file"))
    tasks = tracker.observe(replace(listing(200, 300, taken_at=200), deleted=(100,)))
    assert [type(task) for task in tasks if not isinstance(task, Rescan)] == [LookBelow]


def test_u39_another_leadership_looks_again() -> None:
    """A segment that was seen live in the leadership before counts no more than for an agent that starts."""
    led = LedPartition(0, 100, 200)
    led.at(100)
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert led.tracker.observe(replace(listing(200, 300), deleted=(0, 100))) == []
    (ask,) = watermarks(led.tracker, 300)
    (look,) = [task for task in led.tracker.conclude(position_read(ask, 100)) if isinstance(task, LookBelow)]
    assert (look.wanted, look.seen) == (100, frozenset())


def test_nothing_is_looked_at_while_nothing_is_missing() -> None:
    """Retention of shipped segments leaves `.deleted` files all the time."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(200, 300), deleted=(0, 100)))
    (ask,) = watermarks(tracker, 300)
    assert bases(tracker.conclude(position_read(ask, 200))) == [200]


def test_u39_a_recorded_gap_is_filled_from_files_that_hang() -> None:
    """An agent whose broker did not have the files recorded it."""
    tracker, look = begun_with_deleted(200, 100, gaps=((100, 200),))
    assert look.wanted == 100
    (ship,) = [task for task in tracker.conclude(looked_below(look, (100, 200))) if isinstance(task, Ship)]
    (fill,) = tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)
