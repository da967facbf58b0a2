"""When the tracker repairs (protocol rule 13)."""

from dataclasses import replace

from tests.uploader.tracking.led_partition import LedPartition, taken
from tests.uploader.tracking.messages import (
    TP,
    bases,
    failed,
    looked_below,
    position,
    position_read,
    shipped,
    watermark,
)
from ts_common.archive.repair_requests import Damage, Outcome, RepairRequest
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import NotLed, RepairWanted
from ts_uploader.messages.results import Committed, Repaired
from ts_uploader.messages.tasks import AnyTask, LookBelow, ReadPosition, Repair, Ship
from ts_uploader.tracking.tracker import Tracker


def wanted(start: int, end: int, number: int = 0) -> RepairWanted:
    request = RepairRequest(
        f"{number:013d}-00000000", "t", 0, "t-0", Damage.MISSING, start, end, None, None, None, 1, "o"
    )
    return RepairWanted(TP, request)


def repairs(tasks: list[AnyTask]) -> list[Repair]:
    return [task for task in tasks if isinstance(task, Repair)]


def answered(task: Repair, *objects: str) -> Repaired:
    return Repaired(TP, task.generation, task.leadership, task.request, Outcome.REPAIRED, "why", objects)


def test_the_segments_of_a_range_are_repaired_one_request_at_a_time() -> None:
    """A request that is sent again while it waits or runs changes nothing."""
    led = LedPartition(0, 100, 200, 300)
    led.at(300)
    (first,) = repairs(led.tracker.observe(wanted(50, 150)))
    assert bases(list(first.segments)) == [0, 100]
    assert repairs(led.tracker.observe(wanted(50, 150))) == []
    assert repairs(led.tracker.observe(wanted(200, 300, 1))) == []
    (second,) = repairs(led.tracker.conclude(answered(first)))
    assert bases(list(second.segments)) == [200]
    assert repairs(led.tracker.conclude(answered(second))) == []


def test_a_request_waits_for_what_is_not_closed_not_below_the_high_watermark_or_being_shipped() -> None:
    """It stays in the store, and the next minute sends it again."""
    led = LedPartition(0, 100, 200, high_watermark=150)
    (ship,) = [task for task in led.at(50) if isinstance(task, Ship)]
    assert repairs(led.tracker.observe(wanted(0, 50))) == []
    (commit,) = led.tracker.conclude(shipped(ship))
    committed = Committed(TP, commit.generation, ship.leadership, position(100))
    (repair,) = repairs(led.tracker.conclude(committed))
    assert repair.lowest == 0
    led = LedPartition(0, 100, 200, high_watermark=150)
    led.at(150)
    assert repairs(led.tracker.observe(wanted(120, 140))) == []
    (last,) = led.tracker.observe(watermark(200))
    assert isinstance(last, Ship)
    assert repairs(led.tracker.conclude(shipped(last))) == []
    assert repairs(led.tracker.conclude(Committed(TP, last.generation, last.leadership, position(200)))) != []
    led = LedPartition(0, 100)
    led.at(150)
    assert repairs(led.tracker.observe(wanted(120, 140))) == []


def test_no_request_delays_the_segment_that_is_shipped_next() -> None:
    """It contains the next offset too; it is repaired once it is committed, however many requests wait for it."""
    led = LedPartition(0, 100, 200)
    led.tracker.observe(wanted(0, 50))
    led.tracker.observe(wanted(20, 50, 1))
    tasks = led.at(50)
    assert bases(tasks) == [0, 100]
    assert repairs(tasks) == []
    first, _ = tasks
    assert isinstance(first, Ship)
    (commit,) = led.tracker.conclude(shipped(first))
    (repair,) = repairs(led.tracker.conclude(Committed(TP, commit.generation, first.leadership, position(100))))
    assert bases(list(repair.segments)) == [0]


def test_a_request_is_of_the_leader_only() -> None:
    """The agent of another broker ignores it, and one that loses the leadership forgets it."""
    tracker = Tracker(OffsetReset.EARLIEST)
    assert tracker.observe(wanted(0, 50)) == []
    led = LedPartition(0, 100, 200)
    led.at(200)
    (repair,) = repairs(led.tracker.observe(wanted(0, 50)))
    led.tracker.observe(NotLed(TP))
    assert led.tracker.conclude(answered(repair, "x.log")) == []
    assert led.tracker.observe(wanted(0, 50)) == []


def test_after_a_failure_the_request_is_handled_when_it_is_sent_again() -> None:
    """The agent reads the position again before: that writes a lost `log.start`, which the repair waits for."""
    led = LedPartition(0, 100, 200)
    led.at(200)
    (repair,) = repairs(led.tracker.observe(wanted(0, 50)))
    (read,) = led.tracker.conclude(failed(repair))
    assert isinstance(read, ReadPosition)
    assert led.tracker.observe(wanted(0, 50)) == []
    assert len(repairs(led.tracker.conclude(position_read(read, 200)))) == 1


def test_a_request_that_fails_each_time_delays_no_other_one() -> None:
    """It is sent again with the others each minute, and has the lowest id of all."""
    led = LedPartition(0, 100, 200)
    led.at(200)
    (first,) = repairs(led.tracker.observe(wanted(0, 50)))
    led.tracker.observe(wanted(100, 150, 1))
    (read,) = led.tracker.conclude(failed(first))
    assert isinstance(read, ReadPosition)
    (second,) = repairs(led.tracker.conclude(position_read(read, 200)))
    assert second.request == wanted(100, 150, 1).request
    led.tracker.observe(wanted(0, 50))
    assert [task.request for task in repairs(led.tracker.conclude(answered(second)))] == [first.request]


def test_deleted_files_are_examined_before_a_range_below_the_live_log_is_given_up() -> None:
    """What hangs on the live log is repaired from there; below it nothing is left."""
    led = LedPartition(200, 300)
    led.at(300)
    taken(led, 200, 300, deleted=(50, 100))
    (look,) = [task for task in led.tracker.observe(wanted(60, 150)) if isinstance(task, LookBelow)]
    assert look.wanted == 60
    (repair,) = repairs(led.tracker.conclude(looked_below(look, (100, 200))))
    assert (bases(list(repair.segments)), repair.lowest) == ([100], 100)
    led.tracker.conclude(answered(repair))
    (look,) = [task for task in led.tracker.observe(wanted(10, 40, 1)) if isinstance(task, LookBelow)]
    (repair,) = repairs(led.tracker.conclude(looked_below(look, (100, 200))))
    assert (repair.segments, repair.lowest) == ((), 100)


def test_a_repaired_gap_counts_again() -> None:
    """It was filled in this leadership, and an object of it was removed since: the agent reads what is missing."""
    led = LedPartition(0, 100, 200)
    read = led.read
    assert isinstance(read, ReadPosition)
    led.tracker.conclude(replace(position_read(read, 200), position=replace(position(200), gaps=((0, 50),))))
    state = led.tracker._partitions[TP]
    state.filled_gaps = ((0, 50), (100, 120))
    state.in_flight = frozenset()
    (repair,) = repairs(led.tracker.observe(wanted(10, 50)))
    assert [type(task) for task in led.tracker.conclude(answered(repair, "x.log"))] == [ReadPosition]
    assert list(state.filled_gaps) == [(100, 120)]
