"""An unexpected error stops its partition. The others continue, and the partition starts over later."""

from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.uploader.checkpoint_files import written
from tests.uploader.tracking.messages import LEADERSHIP, LOG_DIR, TP, listing, position_read, watermarks
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Led, Listing, NotLed
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, Ship
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.contained_tracker import ContainedTracker

OTHER = TopicPartition("t", 1)
FIVE_MINUTES = 300 * 1_000_000_000


def other(event: Listing) -> Listing:
    return replace(event, partition=OTHER, identity=(1, 9))


def stopped(*, log: list[Any] | None = None) -> ContainedTracker:
    """Return a tracker of two partitions; the first has met an error."""
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    for event in (Led(TP, LEADERSHIP), listing(0, 100), Led(OTHER, LEADERSHIP), other(listing(0, 100))):
        assert tracker.observe(event) == []
    tasks: list[AnyTask] = []
    while not tasks:
        tasks = tracker.observe(written(LOG_DIR, {("t", 0): 100, ("t", 1): 100}))
    question = next(task for task in tasks if task.partition == TP)
    answer = position_read(question, 0)
    poisoned = replace(answer, position=replace(answer.position, next_offset=cast("int", "x")))
    with capture_logs() as logs:
        assert tracker.conclude(poisoned) == []
    if log is not None:
        log += logs
    (second,) = [task for task in tasks if task.partition == OTHER]
    assert [task.base for task in tracker.conclude(position_read(second, 0)) if isinstance(task, Ship)] == [0]
    return tracker


def test_u42_the_partition_waits_with_a_reason_and_the_log_has_the_traceback() -> None:
    """The log names the partition and what to report; the other partition ships."""
    logs: list[Any] = []
    tracker = stopped(log=logs)
    waiting = tracker.backlog()
    wait = waiting[TP].wait
    assert wait is not None
    assert wait.reason is WaitReason.DEFECT
    assert "TypeError" in wait.text
    assert waiting[OTHER].waits_for is None
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["partition"] == "t-0"
    assert line["exc_info"]


def test_u42_it_is_left_alone_for_five_minutes_and_then_starts_over() -> None:
    """Listings arrive all the time, and each would meet the same object again."""
    tracker = stopped()
    assert tracker.observe(listing(0, 100, 200, taken_at=200)) == []
    assert tracker.observe(written(LOG_DIR, {("t", 0): 200})) == []
    assert tracker.observe(listing(0, 100, 200, taken_at=199 + FIVE_MINUTES)) == []
    assert tracker.backlog()[TP].wait is not None
    assert tracker.observe(listing(0, 100, 200, taken_at=200 + FIVE_MINUTES)) == []
    assert [type(task) for task in watermarks(tracker, 200)] == [ReadPosition]


def test_u42_its_directory_is_listed_after_five_minutes_so_that_it_starts_over() -> None:
    """A directory that does not change is not listed otherwise. The request is repeated if no listing arrives."""
    tracker = stopped()
    asked = []
    for seconds in range(0, 1000, 50):
        asked += [(seconds, task.partition) for task in tracker.tick(seconds * 10**9) if isinstance(task, Rescan)]
    assert asked == [(300, TP), (600, TP), (900, TP)]
    assert tracker.observe(listing(0, 100, taken_at=900 * 10**9)) == []
    assert [type(task) for task in watermarks(tracker, 100)] == [ReadPosition]
    assert tracker.tick(10**14) == []


@pytest.mark.parametrize(
    "event", [Led(TP, replace(LEADERSHIP, epoch=2)), NotLed(TP)], ids=["another leader epoch", "not led"]
)
def test_it_starts_over_when_its_leadership_changes(event: Led | NotLed) -> None:
    """The error may belong to the leadership before."""
    tracker = stopped()
    tracker.observe(event)
    tracker.observe(listing(0, 100, taken_at=200))
    assert (TP in tracker.backlog()) == isinstance(event, Led)
    tasks = watermarks(tracker, 100)
    assert [type(task) for task in tasks] == ([ReadPosition] if isinstance(event, Led) else [])
