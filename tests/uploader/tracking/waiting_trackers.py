"""Trackers with one partition that waits, by reason."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from tests.uploader.checkpoint_files import until_they_count
from tests.uploader.tracking.led_partition import led
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    LOG_DIR,
    TP,
    changed,
    elsewhere,
    failed,
    listing,
    shipped,
    succeeded,
    watermark,
)
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import EpochFile, HighWatermarks, LastEpoch, Led, Listing, SeveralDirectories
from ts_uploader.messages.results import Fenced, PositionRead, Result
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, Ship, Task, WriteCommit
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.tracker import Tracker


def without(*events: Led | Listing | SeveralDirectories | HighWatermarks) -> Tracker:
    tracker = Tracker(OffsetReset.EARLIEST)
    for event in (Led(TP, LEADERSHIP), *events):
        assert tracker.observe(event) == []
    return tracker


def repeated(kind: type[Task], end: Callable[[Task], Result]) -> Tracker:
    """Return a tracker after ten tasks of a kind ended with `end`.

    Tasks of other kinds succeed, except that nothing else is shipped or committed.
    """
    tracker, ask = led(0, 100)
    tasks: list[AnyTask] = [ask]
    for ends in itertools.count():
        task = next(task for task in tasks if isinstance(task, kind) or not isinstance(task, Ship | WriteCommit))
        tasks.remove(task)
        if not isinstance(task, kind):
            tasks += tracker.conclude(succeeded(task, 0))
            tasks += tracker.observe(listing(0, 100)) if isinstance(task, Rescan) else []
            continue
        tasks += tracker.conclude(end(task))
        if ends > 8:
            return tracker
    raise AssertionError


def fenced() -> Tracker:
    tracker, ask = led(0, 100)
    tracker.conclude(Fenced(TP, ask.generation, LEADERSHIP, "later"))
    return tracker


def torn() -> Tracker:
    tracker, ask = led(0, 100, 200)
    ship = tracker.conclude(succeeded(ask, 50))[0]
    assert isinstance(ship, Ship)
    tracker.conclude(shipped(ship, end=40))
    return tracker


def gone() -> Tracker:
    tracker, ask = led(300, 400)
    tracker.conclude(succeeded(ask, 50))
    return tracker


def asking() -> Tracker:
    return led(0, 100)[0]


def short() -> Tracker:
    tracker, ask = led(0, 100, high_watermark=60)
    tracker.conclude(succeeded(ask, 0))
    for _ in range(3):
        tracker.observe(watermark(60))
    return tracker


def committing() -> Tracker:
    tracker, ask = led(0, 100)
    (ship,) = tracker.conclude(succeeded(ask, 0))
    (commit,) = tracker.conclude(succeeded(ship, 0))
    for _ in range(3):
        assert isinstance(commit, WriteCommit)
        (ask,) = tracker.conclude(failed(commit))  # type: ignore[assignment]
        (commit,) = tracker.conclude(succeeded(ask, 0))
    return tracker


def stopped() -> ContainedTracker:
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    for event in (Led(TP, LEADERSHIP), listing(0, 100)):
        tracker.observe(event)
    (ask,) = until_they_count(tracker, LOG_DIR, {("t", 0): 100})
    answer = succeeded(ask, 0)
    assert isinstance(answer, PositionRead)
    tracker.conclude(replace(answer, position=replace(answer.position, next_offset=cast("int", "x"))))
    return tracker


# Makes a partition wait for each reason, so no reason is without a cause.
WAITS: dict[WaitReason, Callable[[], Tracker | ContainedTracker]] = {
    WaitReason.SEGMENT: lambda: without(listing()),
    WaitReason.TOPIC_ID: lambda: without(listing(0, 100, topic_id="another"), watermark(100)),
    WaitReason.DIRECTORIES: lambda: without(SeveralDirectories(TP, (listing(0, 100), elsewhere(0, 100)))),
    WaitReason.EPOCH: lambda: without(replace(listing(0, 100), last_epoch=LastEpoch(EpochFile.READ, 0))),
    WaitReason.RENAMES: lambda: without(listing(0, 100, swapping=True), watermark(100)),
    WaitReason.HIGH_WATERMARK: lambda: without(listing(0, 100)),
    WaitReason.STORE: lambda: repeated(ReadPosition, failed),
    WaitReason.LEADERSHIP: fenced,
    WaitReason.HOLE: torn,
    WaitReason.GAP: gone,
    WaitReason.POSITION: asking,
    WaitReason.BELOW_HIGH_WATERMARK: short,
    WaitReason.CHANGED: lambda: repeated(Ship, changed),
    WaitReason.UPLOAD: lambda: repeated(Ship, failed),
    WaitReason.COMMIT: committing,
    WaitReason.DEFECT: stopped,
}
# A partition that waits for these is shown only once it is stuck.
ORDINARY = {WaitReason.POSITION}
# No source reports a leader here, so the partition is in no backlog.
UNHEARD = {WaitReason.LEADER}
