"""Which partitions count as stuck (U35)."""

from dataclasses import replace

from prometheus_client import CollectorRegistry

from tests.uploader.tracking.led_partition import led
from tests.uploader.tracking.messages import TP, succeeded
from tests.uploader.tracking.waiting_trackers import WAITS
from ts_common.model import TopicPartition
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.stuck import SERIES, StuckPartitions, StuckWatch

HOUR = 3600.0
STUCK_SECONDS = 900.0


def test_u35_a_partition_is_stuck_from_its_first_wait_or_its_last_progress() -> None:
    """A commit that moves restarts the time; another reason, a new file or a lost position does not."""
    tracker = WAITS[WaitReason.CHANGED]()
    before = tracker.backlog()[TP]
    watch = StuckWatch()

    def stuck(now: float, **changes: object) -> bool:
        return bool(watch.look({TP: replace(before, **changes)}, {}, STUCK_SECONDS, now).stuck)  # type: ignore[arg-type]

    assert not stuck(0.0, next_offset=10)
    assert not stuck(500.0, next_offset=11)
    other = Wait(WaitReason.UPLOAD, "x")
    assert [stuck(1399.0, next_offset=None), stuck(1400.0, next_offset=11, wait=other)] == [False, True]
    assert not stuck(1402.0, next_offset=12)
    assert not stuck(2301.0, next_offset=5)  # an election lost what was committed
    assert stuck(2302.0, next_offset=5)


def test_u35_what_has_nothing_to_commit_is_not_stuck() -> None:
    """A partition whose segments are all shipped waits for nothing, however long."""
    tracker, ask = led(0, 100)
    tracker.conclude(succeeded(ask, 100))
    backlog = tracker.backlog()
    assert backlog[TP].wait is None
    watch = StuckWatch()
    assert [len(watch.look(backlog, {}, STUCK_SECONDS, now).stuck) for now in (0.0, 10 * HOUR)] == [0, 0]


def test_u35_of_very_many_stuck_partitions_the_longest_stuck_have_a_series() -> None:
    """The total counts all of them."""
    backlog = WAITS[WaitReason.CHANGED]().backlog()[TP]
    watch = StuckWatch()
    known = {}
    for number in range(SERIES + 50):
        known[TopicPartition("t", number)] = backlog
        found = watch.look(known, {}, STUCK_SECONDS, float(number)).stuck
    found = watch.look(known, {}, STUCK_SECONDS, HOUR).stuck
    registry = CollectorRegistry()
    registry.register(BacklogCollector(dict, lambda _: TopicRetention(), stuck=lambda: found))
    (family,) = [one for one in registry.collect() if one.name == "ts_uploader_partition_stuck_seconds"]
    assert {sample.labels["partition"] for sample in family.samples} == {str(number) for number in range(SERIES)}
    assert registry.get_sample_value("ts_uploader_stuck_partitions", {"reason": "changed"}) == SERIES + 50
    assert len(list(StuckPartitions().longest())) == 0
