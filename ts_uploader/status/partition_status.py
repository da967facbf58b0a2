"""What the status page and `/status.json` report of each partition, and the totals over all of them.

The facts are those that the log has: no value of a setting is among them.
"""

from dataclasses import dataclass

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.process.work_queue import URGENT_BELOW
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.tracking.backlog import Backlog, oldest_waiting
from ts_uploader.tracking.stuck import Stuck


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition that this agent's broker leads; the names are those of the metrics.

    Attributes:
        next_offset: the end of the run; None while it is unknown.
        lag_offsets: from there to the high watermark; None while one of the two is unknown.
        unshipped_segments: closed segments that are not yet below the next offset.
        unshipped_bytes: the size of these segments.
        oldest_unshipped_age_seconds: age of the oldest of them; 0.0 if all are shipped.
        retention_left_ratio: share of its retention that the oldest has left, 1.0 to 0.0; 1.0 if all are shipped.
        hole: whether no segment on the broker continues the run.
        waits_for: the condition before the commit can move; None if the partition waits for nothing.
        stuck_seconds: time since the last commit; None if the partition is not stuck.
    """

    topic: str
    partition: int
    next_offset: int | None
    lag_offsets: int | None
    unshipped_segments: int
    unshipped_bytes: int
    oldest_unshipped_age_seconds: float
    retention_left_ratio: float
    hole: bool
    waits_for: str | None
    stuck_seconds: float | None = None

    @property
    def urgent(self) -> bool:
        """Whether Kafka may soon delete unshipped segments."""
        return self.unshipped_segments > 0 and self.retention_left_ratio < URGENT_BELOW

    @property
    def severity_key(self) -> tuple[bool, bool, float, bool, float, float, int]:
        """Sort key: holes first, then urgent, stuck and waiting partitions, then the oldest segments."""
        waits = self.waits_for is not None
        return (
            self.hole,
            self.urgent,
            self.stuck_seconds or 0.0,
            waits,
            1.0 - self.retention_left_ratio,
            self.oldest_unshipped_age_seconds,
            self.unshipped_bytes,
        )


def partition_status(
    partition: TopicPartition, waiting: Backlog, retention: TopicRetention, sizes: SegmentSizes, stuck: Stuck | None
) -> PartitionStatus:
    """Return the status of a partition; reads the sizes of its files."""
    oldest = oldest_waiting(waiting, retention, sizes)
    return PartitionStatus(
        topic=partition.topic,
        partition=partition.partition,
        next_offset=waiting.next_offset,
        lag_offsets=waiting.lag,
        unshipped_segments=waiting.segments,
        unshipped_bytes=0 if oldest is None else oldest.unshipped_bytes,
        oldest_unshipped_age_seconds=0.0 if oldest is None else round(oldest.age_seconds, 1),
        retention_left_ratio=1.0 if oldest is None else round(oldest.retention_left, 4),
        hole=waiting.hole,
        waits_for=waiting.waits_for if stuck is None else stuck.wait.text,
        stuck_seconds=None if stuck is None else round(stuck.seconds, 1),
    )


@dataclass(slots=True)
class Totals:
    """Sums over all partitions that the broker leads.

    Attributes:
        holes: partitions with a hole.
        urgent: partitions with less than half of their retention left.
        waiting: partitions that wait for a condition.
        unshipped_segments: closed segments not yet shipped.
        lag_offsets: sum of the lags that are known.
    """

    partitions: int = 0
    holes: int = 0
    urgent: int = 0
    waiting: int = 0
    unshipped_segments: int = 0
    unshipped_bytes: int = 0
    lag_offsets: int = 0

    def add(self, status: PartitionStatus) -> None:
        """Add one partition."""
        self.partitions += 1
        self.holes += status.hole
        self.urgent += status.urgent
        self.waiting += status.waits_for is not None
        self.unshipped_segments += status.unshipped_segments
        self.unshipped_bytes += status.unshipped_bytes
        self.lag_offsets += status.lag_offsets or 0
