"""What a consumer did per tier: values, and a part of librdkafka's statistics."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ts_consumer.consumer_parts import ConsumerParts
from ts_consumer.delivery import Delivery
from ts_consumer.partitions import AssignedState


@dataclass(frozen=True)
class TierStatistics:
    """What a consumer did since it was made.

    Attributes:
        archive_records: that applications got from the archive.
        kafka_records: that applications got from Kafka.
        partitions: the number of assigned partitions by state: `resolve`, `history`, `join`, `live`, `wait`, `failed`.
        buffered_bytes: of records that are read ahead from the archive.
        to_history: how often a partition began to read the archive.
        to_live: how often a partition began to read Kafka.
        back: how often Kafka had removed the next offset of a partition that read it.
        skipped_offsets: that no tier has and that were passed over by option.
        dropped_messages: live messages that a partition did not want.
    """

    archive_records: int
    kafka_records: int
    partitions: dict[str, int]
    buffered_bytes: int
    to_history: int
    to_live: int
    back: int
    skipped_offsets: int
    dropped_messages: int


def statistics_of(parts: ConsumerParts, delivery: Delivery) -> TierStatistics:
    """Return the statistics of a consumer; from any thread."""
    states = Counter(part.state for part in parts.assignment)
    passages = parts.transitions.passages
    return TierStatistics(
        archive_records=delivery.archive_records,
        kafka_records=delivery.kafka_records,
        partitions={state.name.lower(): states[state] for state in AssignedState},
        buffered_bytes=parts.prefetch.nbytes,
        to_history=passages.to_history,
        to_live=passages.to_live,
        back=passages.back,
        skipped_offsets=passages.skipped,
        dropped_messages=passages.dropped,
    )


def with_tiers(callback: Callable[[str], Any], statistics: Callable[[], TierStatistics]) -> Callable[[str], Any]:
    """Return a callback for librdkafka's statistics, which adds those of the tiers as `tiers`.

    Args:
        callback: the application's `stats_cb`.
    """

    def added(text: str) -> Any:
        return callback(json.dumps({**json.loads(text), "tiers": asdict(statistics())}))

    return added
