"""Fills a topic on a real broker, closes its segments and lists their files."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.bench.measuring.records import json_value, key
from dev.local.kafka.cluster import LocalCluster, Record, wait_for

SEGMENT_BYTES = 64 << 20
CODECS = ("none", "lz4", "zstd")
_DISTINCT_VALUES = 20_000
_ROLL_MS = 100


@dataclass(frozen=True)
class ClosedPart:
    """The closed segments of one partition.

    Attributes:
        end: base offset of the active segment; all lower offsets are closed.
    """

    partition: int
    logs: tuple[Path, ...]
    end: int

    @property
    def files(self) -> list[Path]:
        """The `.log` files and their indexes."""
        return [
            beside
            for log in self.logs
            for suffix in (".index", ".timeindex", ".txnindex", ".log")
            if (beside := log.with_suffix(suffix)).exists()
        ]


def produce(cluster: LocalCluster, topic: str, partition: int, codec: str, records: int) -> None:
    """Append records in batches of 16 KiB, as a producer with that codec sends them.

    Raises:
        RuntimeError: a record was not acknowledged.
    """
    generator = random.Random(7)
    values = [json_value(generator, number) for number in range(_DISTINCT_VALUES)]
    producer = cluster.producer({"compression.type": codec, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % _DISTINCT_VALUES], key(number), partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError(f"{topic}-{partition}: some of {records} records were not acknowledged")


def closed_parts(cluster: LocalCluster, topic: str, partitions: Iterable[int]) -> list[ClosedPart]:
    """Return the closed segments on broker 1."""
    parts = []
    for partition in partitions:
        logs = sorted(cluster.brokers[1].partition_directory(topic, partition).glob("*.log"))
        parts.append(ClosedPart(partition, tuple(logs[:-1]), int(logs[-1].stem)))
    return parts


def close_last(cluster: LocalCluster, topic: str, partitions: Sequence[int]) -> list[ClosedPart]:
    """Close the active segments: a record after `segment.ms` is written to the next segment, alone."""
    ends = {partition: cluster.latest(topic, partition) for partition in partitions}
    cluster.alter_config(topic, {"segment.ms": str(_ROLL_MS)})

    def rolled() -> bool:
        for part in closed_parts(cluster, topic, partitions):
            if part.end < ends[part.partition]:
                cluster.produce(topic, [Record(b"rolls the segment", key=b"roll")], partition=part.partition)
                return False
        return True

    wait_for(rolled, f"the last segments of {topic} to be closed", every=_ROLL_MS / 500)
    cluster.alter_config(topic, {"segment.ms": str(7 * 24 * 3_600_000)})
    return closed_parts(cluster, topic, partitions)
