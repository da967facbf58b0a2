"""The backlog as metrics, computed at each scrape.

By default an agent reports sums, counts, and the extremes over its partitions: enough for each alert, and the same few
series however many partitions there are. The hundred partitions that are stuck for the longest time have a series each.
With `metrics.partitions=true` every partition has series, as `ts_uploader_partition_*`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.metrics.counters import PREFIX
from ts_uploader.process.work_queue import URGENT_BELOW
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tracking.backlog import Backlog, Oldest, oldest_waiting
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.stuck import SERIES, StuckPartitions

_WHILE_UNKNOWN = (
    "While the next offset is unknown (after a start, or without an answer from the store), all closed segments count."
)


class BacklogCollector(Collector):
    """The backlog in total and, if configured, of each partition.

    Args:
        backlog: returns the tracker's backlog.
        retention: returns a topic's retention.
        partitions: returns whether each partition has series.
        sizes: of segments; one cache for all users.
        untold: returns the number of partitions here whose leader was never reported.
        stuck: returns the stuck partitions.
    """

    def __init__(
        self,
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        retention: Callable[[str], TopicRetention],
        partitions: Callable[[], bool] = lambda: False,
        sizes: SegmentSizes | None = None,
        untold: Callable[[], int] = lambda: 0,
        stuck: Callable[[], StuckPartitions] = StuckPartitions,
    ) -> None:
        self._backlog = backlog
        self._retention = retention
        self._partitions = partitions
        self._sizes = sizes or SegmentSizes()
        self._untold = untold
        self._stuck = stuck

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the families without samples, so that registering reads nothing."""
        none = StuckPartitions()
        return [
            *_unshipped({}, {}),
            *_retention_left({}),
            *_waiting({}, 0),
            *_stuck_families(none),
            *(_Family(name, text, ()) for name, text, _ in _BY_PARTITION),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families; a partition's samples are computed only when they are rendered, as there may be many."""
        backlog = self._backlog()
        oldest = {}
        for partition, waiting in backlog.items():
            found = oldest_waiting(waiting, self._retention(partition.topic), self._sizes)
            if found is not None:
                oldest[partition] = found
        yield from _unshipped(backlog, oldest)
        yield from _retention_left(oldest)
        yield from _waiting(backlog, self._untold())
        yield from _stuck_families(self._stuck())
        if self._partitions():
            for name, text, value_of in _BY_PARTITION:
                yield _Family(name, text, _samples(name, value_of, backlog, oldest))


def _unshipped(
    backlog: Mapping[TopicPartition, Backlog], oldest: Mapping[TopicPartition, Oldest]
) -> Iterator[GaugeMetricFamily]:
    yield _gauge("led_partitions", "Partitions that this broker leads.", len(backlog))
    yield _gauge("unshipped_partitions", "Partitions led here with an unshipped closed segment.", len(oldest))
    yield _gauge(
        "unshipped_segments",
        f"Closed segments that are not below the next offset. {_WHILE_UNKNOWN}",
        sum(waiting.segments for waiting in backlog.values()),
    )
    yield _gauge(
        "unshipped_bytes",
        "Bytes of closed segments that are not below the next offset.",
        sum(found.unshipped_bytes for found in oldest.values()),
    )
    yield _gauge(
        "oldest_unshipped_age_seconds",
        "Seconds since the last write to the oldest unshipped closed segment; 0 without one.",
        max((found.age_seconds for found in oldest.values()), default=0.0),
    )


def _retention_left(oldest: Mapping[TopicPartition, Oldest]) -> Iterator[GaugeMetricFamily]:
    urgent = [found.seconds_left for found in oldest.values() if found.retention_left < URGENT_BELOW]
    yield _gauge(
        "retention_left_ratio",
        "Remaining share of the retention of unshipped closed segments, the minimum of all: 1 for a "
        "new segment, 0 when Kafka may delete it.",
        min((found.retention_left for found in oldest.values()), default=1.0),
    )
    yield _gauge(
        "retention_left_seconds",
        "Seconds until retention deletes an unshipped segment, the minimum of all; +Inf if nothing "
        "waits or nothing is deleted.",
        min((found.seconds_left for found in oldest.values()), default=math.inf),
    )
    yield _gauge(
        "urgent_retention_left_seconds",
        "As retention_left_seconds, but of urgent partitions only, so that a topic kept for an hour "
        "raises no alert before half of that has passed.",
        min(urgent, default=math.inf),
    )
    yield _gauge(
        "urgent_partitions",
        "Partitions whose oldest unshipped segment has used more than half of its retention.",
        len(urgent),
    )


def _waiting(backlog: Mapping[TopicPartition, Backlog], untold: int) -> Iterator[GaugeMetricFamily]:
    yield _gauge(
        "lag_offsets",
        "Offsets from the next offset to the high watermark of all partitions, active segments included.",
        sum(waiting.lag or 0 for waiting in backlog.values()),
    )
    yield _gauge(
        "position_unknown_partitions",
        "Partitions whose next offset the agent has not read from the store yet.",
        sum(waiting.next_offset is None for waiting in backlog.values()),
    )
    yield _gauge(
        "position_deferred_partitions",
        "Partitions whose next offset is of the positions object: the agent reads one of them a second.",
        sum(waiting.is_deferred for waiting in backlog.values()),
    )
    waits = [waiting.wait for waiting in backlog.values() if waiting.wait is not None]
    reasons = Counter(wait.reason for wait in waits if not wait.ordinary)
    reasons[WaitReason.LEADER] = untold
    family = GaugeMetricFamily(
        f"{PREFIX}_waiting_partitions",
        "Partitions that cannot ship now, by reason.",
        labels=["reason"],
    )
    for reason in WaitReason:
        family.add_metric([reason.value], reasons[reason])
    yield family


def _stuck_families(stuck: StuckPartitions) -> Iterator[GaugeMetricFamily]:
    total = GaugeMetricFamily(
        f"{PREFIX}_stuck_partitions",
        "Partitions without a commit for `ts.segment.uploader.stuck.after.ms` although something waits, by reason.",
        labels=["reason"],
    )
    for reason, count in stuck.counts().items():
        total.add_metric([reason.value], count)
    yield total
    each = GaugeMetricFamily(
        f"{PREFIX}_partition_stuck_seconds",
        f"Seconds since the last progress of a stuck partition; other partitions have no series. At most {SERIES} "
        "partitions have one: those stuck for the longest time.",
        labels=["topic", "partition", "reason"],
    )
    for partition, one in stuck.longest():
        each.add_metric([partition.topic, str(partition.partition), one.wait.reason.value], one.seconds)
    yield each


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


_ValueOf = Callable[[Backlog, Oldest | None], float | None]
# Name, meaning, and value; None if there is no value.
_BY_PARTITION: tuple[tuple[str, str, _ValueOf], ...] = (
    (
        "partition_oldest_unshipped_age_seconds",
        "Seconds since the last write to the oldest closed segment that is not below the next offset. "
        f"{_WHILE_UNKNOWN}",
        lambda _, oldest: 0.0 if oldest is None else oldest.age_seconds,
    ),
    (
        "partition_retention_left_ratio",
        "Remaining share of this segment's retention: 1 for a new segment, 0 when Kafka may delete it.",
        lambda _, oldest: 1.0 if oldest is None else oldest.retention_left,
    ),
    (
        "partition_retention_left_seconds",
        "Seconds until retention deletes it; +Inf if nothing waits or nothing is deleted.",
        lambda _, oldest: math.inf if oldest is None else oldest.seconds_left,
    ),
    (
        "partition_unshipped_bytes",
        "Bytes of closed segments that are not below the next offset.",
        lambda _, oldest: 0 if oldest is None else oldest.unshipped_bytes,
    ),
    (
        "partition_unshipped_segments",
        "Closed segments that are not below the next offset.",
        lambda waiting, _: waiting.segments,
    ),
    (
        "partition_lag_offsets",
        "Offsets from the next offset to the high watermark.",
        lambda waiting, _: waiting.lag,
    ),
    (
        "partition_next_offset",
        "The next offset: readers see the offsets below it.",
        lambda waiting, _: waiting.next_offset,
    ),
    (
        "partition_hole",
        "1 if the broker holds no segment that continues the shipped ones.",
        lambda waiting, _: waiting.hole,
    ),
    (
        "partition_waiting",
        "1 if the partition cannot ship now: see `ts_uploader_waiting_partitions`. The log has the reason.",
        lambda waiting, _: waiting.waits_for is not None and not waiting.hole,
    ),
)


def _samples(
    name: str, value_of: _ValueOf, backlog: Mapping[TopicPartition, Backlog], oldest: Mapping[TopicPartition, Oldest]
) -> Iterator[Sample]:
    for partition, waiting in backlog.items():
        value = value_of(waiting, oldest.get(partition))
        if value is not None:
            labels = {"topic": partition.topic, "partition": str(partition.partition)}
            yield Sample(f"{PREFIX}_{name}", labels, value)


class _Family(GaugeMetricFamily):
    """A family whose samples are computed once, and never stored in a list."""

    def __init__(self, name: str, text: str, samples: Iterable[Sample]) -> None:
        super().__init__(f"{PREFIX}_{name}", text, labels=["topic", "partition"])
        self.samples = samples  # type: ignore[assignment]  # rendering only iterates
