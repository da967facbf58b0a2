"""Each partition that does not move has a reason (U35)."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.uploader.tracking.led_partition import led
from tests.uploader.tracking.messages import TP, changed, failed, listing, succeeded
from tests.uploader.tracking.waiting_trackers import ORDINARY, UNHEARD, WAITS
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.results import LookDue
from ts_uploader.messages.tasks import LookBelow, WriteCommit
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tracking.blocked import WAIT_REASONS, Wait, WaitReason
from ts_uploader.tracking.stuck import StuckWatch
from ts_uploader.tracking.tracker import Tracker

STUCK_SECONDS = 900.0


def test_each_reason_is_tried() -> None:
    """Every reason has a tracker that waits for it, and an explanation."""
    assert WAITS.keys() | UNHEARD == set(WaitReason) == WAIT_REASONS.keys()


@pytest.mark.parametrize("reason", WaitReason)
def test_u35_each_wait_has_its_reason_its_series_and_its_line(reason: WaitReason) -> None:
    """A partition that waits for each reason has the one series that the alert uses."""
    watch = StuckWatch()
    tracker = Tracker(OffsetReset.EARLIEST) if reason in UNHEARD else WAITS[reason]()
    unheard = {TP: Wait(reason, "its leader")} if reason in UNHEARD else {}
    backlog = tracker.backlog()
    if reason not in UNHEARD:
        wait = backlog[TP].wait
        assert wait is not None
        assert (wait.reason, wait.ordinary) == (reason, reason in ORDINARY)
        assert (backlog[TP].waits_for is None) == wait.ordinary
    for seconds in (0.0, STUCK_SECONDS - 1):
        look = watch.look(backlog, unheard, STUCK_SECONDS, seconds)
        assert (len(look.stuck), look.begun, look.ended) == (0, [], [])
    with capture_logs() as logs:
        for seconds in (STUCK_SECONDS, STUCK_SECONDS + 2):
            look = watch.look(backlog, unheard, STUCK_SECONDS, seconds)
            look.log()
    assert [(line["log_level"], line["partition"], line["reason"]) for line in logs] == [("error", "t-0", reason.value)]
    registry = CollectorRegistry()
    registry.register(BacklogCollector(lambda: backlog, lambda _: TopicRetention(), stuck=lambda: look.stuck))
    labels = {"topic": "t", "partition": "0", "reason": reason.value}
    assert registry.get_sample_value("ts_uploader_partition_stuck_seconds", labels) == STUCK_SECONDS + 2
    counts = {one: registry.get_sample_value("ts_uploader_stuck_partitions", {"reason": one}) for one in WaitReason}
    assert counts == {one: float(one is reason) for one in WaitReason}
    with capture_logs() as logs:
        watch.look({}, {}, STUCK_SECONDS, STUCK_SECONDS + 4).log()
    assert [(line["log_level"], line["partition"]) for line in logs] == [("info", "t-0")]


def test_a_first_failure_and_what_is_under_way_are_ordinary() -> None:
    """They are reasons, but neither shown nor counted."""
    tracker, ask = led(0, 100, 200, high_watermark=100)
    assert tracker.backlog()[TP].wait == Wait(
        WaitReason.POSITION, "the position in the store, which is being read", True
    )
    (ship,) = tracker.conclude(succeeded(ask, 0))
    seen = [tracker.backlog()[TP].wait]
    tracker.conclude(changed(ship))  # type: ignore[arg-type]
    seen.append(tracker.backlog()[TP].wait)
    tracker.conclude(LookDue(TP, ask.generation))
    (ship,) = tracker.observe(listing(0, 100, 200))
    (commit,) = tracker.conclude(succeeded(ship, 0))
    seen.append(tracker.backlog()[TP].wait)
    tracker.conclude(succeeded(commit, 0))
    seen.append(tracker.backlog()[TP].wait)
    reasons = (WaitReason.UPLOAD, WaitReason.CHANGED, WaitReason.COMMIT, WaitReason.BELOW_HIGH_WATERMARK)
    assert [(wait.reason, wait.ordinary) for wait in seen if wait is not None] == [(one, True) for one in reasons]


def test_u35_a_commit_that_another_agent_made_instead_is_not_waited_for() -> None:
    """The second of two agents has its commit rejected, finds all committed, and waits for nothing."""
    tracker, ask = led(0, 100)
    (ship,) = tracker.conclude(succeeded(ask, 0))
    (commit,) = tracker.conclude(succeeded(ship, 0))
    assert isinstance(commit, WriteCommit)
    (ask,) = tracker.conclude(failed(commit))  # type: ignore[assignment]
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert wait.reason is WaitReason.COMMIT
    assert not tracker.conclude(succeeded(ask, 100))
    assert tracker.backlog()[TP].wait is None


def test_u35_a_look_at_deleted_files_that_fails_is_named_with_its_error() -> None:
    """A gap that cannot be decided waits for that read, and the text has its error."""
    tracker, ask = led(300, 400)
    tasks = tracker.observe(replace(listing(300, 400), deleted=(100,), whole=True))
    tasks += tracker.conclude(succeeded(ask, 50))
    (look,) = [task for task in tasks if isinstance(task, LookBelow)]
    tracker.conclude(failed(look))
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert (wait.reason, wait.text) == (WaitReason.GAP, "a read of the .deleted files: because")
