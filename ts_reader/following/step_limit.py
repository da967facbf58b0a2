"""The size of one step of a stream: offsets shared out over the partitions.

Source of the rule: `KafkaMicroBatchStream.rateLimit` in Spark.
"""

import math
from collections.abc import Mapping

from ts_common.model import TopicPartition


def limited(
    most: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends at or below `end`, about `most` offsets after `start`, in proportion to each partition's lag.

    A small partition gets one offset at least, so that it does not starve; the sum can be above `most` by that.

    Args:
        most: offsets of all partitions together.
        start: of each partition of `end`.
        end: the offsets that there are; one below its start stays.
    """
    behind = {partition: at - start[partition] for partition, at in end.items() if at > start[partition]}
    total = sum(behind.values())
    if total <= most:
        return dict(end)
    shares = {partition: most * size / total for partition, size in behind.items()}
    return {
        partition: min(at, start[partition] + (math.floor(shares[partition]) or 1)) if partition in shares else at
        for partition, at in end.items()
    }
