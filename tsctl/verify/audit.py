"""Both sides at once: what a running cluster holds, beside what the store holds of it."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from tsctl.verify.copies import digests
from tsctl.verify.coverage import Coverage
from tsctl.verify.findings import (
    ABOUT_TO_BE_LOST,
    HOLE,
    INCARNATION_NOT_SHIPPED,
    LOST_BEFORE_SHIPPED,
    RECORDS_DIFFER,
    STORE_AHEAD,
    STORE_BEGINS_LATER,
    TOPIC_GONE,
    TOPIC_NOT_SHIPPED,
    Finding,
)
from tsctl.verify.inventory import list_partition
from tsctl.verify.kafka_cluster import KafkaCluster, KafkaTopic, Keeping

# Of the retention: what is that old and not in the store is about to be lost.
RISK_SHARE = 0.75

Digests = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Side:
    """One partition on both sides.

    Attributes:
        partition: which.
        kafka_start: the cluster's log start offset.
        kafka_end: its high watermark.
        coverage: in the store; None where it has no directory.
    """

    partition: TopicPartition
    kafka_start: int
    kafka_end: int
    coverage: Coverage | None

    @property
    def behind(self) -> int:
        """How many offsets the cluster holds that are not in the store yet."""
        reached = self.coverage.end if self.coverage else self.kafka_start
        return max(0, self.kafka_end - max(reached, self.kafka_start))


@dataclass(frozen=True, slots=True)
class Audit:
    """What both sides together tell.

    Attributes:
        sides: each partition that the cluster has and that is shipped, or that the store holds of such a topic.
        findings: what only both sides together show.
    """

    sides: tuple[Side, ...]
    findings: tuple[Finding, ...]


def audit(
    cluster: KafkaCluster,
    coverages: Sequence[Coverage],
    ships: Callable[[str], bool],
    now: float,
    *,
    in_flight_seconds: float,
    reached: Callable[[Coverage], int],
    asks: Callable[[TopicPartition], bool] = lambda _: True,
) -> Audit:
    """Hold the store against the cluster.

    Args:
        cluster: the running one.
        coverages: of all topics that are asked about.
        ships: whether a topic is to be in the store.
        now: seconds since the epoch.
        in_flight_seconds: what is younger may not have been shipped yet.
        reached: the next offset of a partition in the store by now: it may have taken hours to look at all of them.
        asks: whether a partition is asked about; the coverages are of those alone.

    Raises:
        ClusterAway, AccessDenied: the cluster's.
        StoreUnavailable, AccessDenied: of the store that is asked again.
    """
    known = cluster.topics()
    held = {coverage.topic for coverage in coverages}
    cluster.check_unknown(held - known.keys())
    findings = [
        Finding(TOPIC_GONE, topic, "the cluster does not know it any more") for topic in sorted(held - known.keys())
    ]
    topics = {name: topic for name, topic in known.items() if name in held or ships(name)}
    partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    bounds = cluster.bounds(partition for partition in partitions if asks(partition))
    sides: list[Side] = []
    for name, topic in sorted(topics.items()):
        mine = [coverage for coverage in coverages if coverage.topic == name]
        living = _living(mine, topic)
        if mine and not living:
            ids = ", ".join(sorted({coverage.topic_id or "unknown" for coverage in mine}))
            detail = f"the cluster's topic id is {topic.topic_id}, the store holds {ids}"
            findings.append(Finding(INCARNATION_NOT_SHIPPED, name, detail))
            continue
        by_number = {coverage.partition: coverage for coverage in living}
        sides += [
            Side(TopicPartition(name, number), *bounds[TopicPartition(name, number)], by_number.get(number))
            for number in topic.partitions
            if TopicPartition(name, number) in bounds
        ]
    findings += _lacking(cluster, [side for side in sides if ships(side.partition.topic)], now - in_flight_seconds)
    for side in sides:
        findings += _compare(side, reached)
    findings += _at_risk(cluster, sides, cluster.keeping({side.partition.topic for side in sides}), now, reached)
    return Audit(tuple(sides), tuple(findings))


def _lacking(cluster: KafkaCluster, sides: Sequence[Side], old: float) -> Iterator[Finding]:
    """Partitions that the store knows nothing of, although they have had records since before `old`."""
    empty = [side for side in sides if side.coverage is None and side.kafka_end > side.kafka_start]
    young = cluster.first_since({side.partition: int(old * 1000) for side in empty})
    lacking = [side.partition for side in empty if young.get(side.partition) != side.kafka_start]
    for topic, partitions in groupby(lacking, key=lambda partition: partition.topic):
        numbers = ", ".join(str(partition.partition) for partition in partitions)
        detail = f"its partitions {numbers} have records, and the store has no directory of them"
        yield Finding(TOPIC_NOT_SHIPPED, topic, detail)


def _living(coverages: Iterable[Coverage], topic: KafkaTopic) -> list[Coverage]:
    """Of a topic's lives the one that the cluster has; one whose topic id nobody knows may be it."""
    found = list(coverages)
    same = [coverage for coverage in found if topic.topic_id is not None and coverage.topic_id == topic.topic_id]
    directories = {coverage.where.rpartition("-")[0] for coverage in same}
    if topic.topic_id is not None:  # a later life names its id, also where nothing is committed yet
        directories |= {
            directory
            for directory in (coverage.where.rpartition("-")[0] for coverage in found)
            if directory.endswith(f"~{topic.topic_id}")
        }
    if not directories and all(coverage.topic_id is None for coverage in found):
        directories = {coverage.where.rpartition("-")[0] for coverage in found}
    return [coverage for coverage in found if coverage.where.rpartition("-")[0] in directories]


def _compare(side: Side, reached: Callable[[Coverage], int]) -> Iterator[Finding]:
    coverage = side.coverage
    if coverage is None:
        return
    first, last = side.kafka_start, side.kafka_end
    held = f"the cluster holds [{first}, {last}), the store [{coverage.start}, {coverage.end})"
    if first > coverage.end and first > reached(coverage):
        yield Finding(LOST_BEFORE_SHIPPED, coverage.where, held, coverage.prefix, coverage.end, first)
    if coverage.end > last:
        yield Finding(STORE_AHEAD, coverage.where, held, coverage.prefix, last, coverage.end)
    if first < coverage.start:
        yield Finding(STORE_BEGINS_LATER, coverage.where, held, coverage.prefix, first, min(last, coverage.start))


def _at_risk(
    cluster: KafkaCluster,
    sides: Iterable[Side],
    keeping: dict[str, Keeping],
    now: float,
    reached: Callable[[Coverage], int],
) -> Iterator[Finding]:
    """Offsets that are not in the store, and nearly as old as the topic's retention."""
    limits = {
        side.partition: (side, limit)
        for side in sides
        if side.behind and (limit := keeping[side.partition.topic].retention_ms) is not None
    }
    since = cluster.first_since(
        {partition: int(now * 1000 - RISK_SHARE * limit) for partition, (_, limit) in limits.items()}
    )
    for partition, (side, limit) in limits.items():
        young = since.get(partition)
        end = side.kafka_end if young is None else min(young, side.kafka_end)
        start = max(side.kafka_start, side.coverage.end if side.coverage else side.kafka_start)
        if partition in since and start < end and side.coverage:
            start = max(start, reached(side.coverage))
        if partition in since and start < end:
            detail = f"older than {RISK_SHARE:.0%} of retention.ms={limit}, and not in the store"
            where = side.coverage.where if side.coverage else str(partition)
            yield Finding(ABOUT_TO_BE_LOST, where, detail, None, start, end)


def with_cluster(findings: Iterable[Finding], sides: Iterable[Side]) -> list[Finding]:
    """The same findings; a hole says what of it the cluster still holds."""
    by_where = {side.coverage.where: side for side in sides if side.coverage}
    told = []
    for finding in findings:
        side = by_where.get(finding.where)
        if finding.kind is HOLE and side is not None and finding.start is not None and finding.end is not None:
            low, high = max(finding.start, side.kafka_start), min(finding.end, side.kafka_end)
            held = f"the cluster still holds [{low}, {high}) of it" if low < high else "the cluster holds none of it"
            told.append(replace(finding, detail=f"{finding.detail}; {held}"))
        else:
            told.append(finding)
    return told


def compare_records(
    store: ObjectStore, keys: PartitionKeys, cluster: KafkaCluster, side: Side, *, compacts: bool
) -> Iterator[Finding]:
    """Whether the store and the cluster hold the same records where both answer; the first difference is told.

    Args:
        store: where the partition lies.
        keys: of the partition.
        cluster: the running one.
        side: the partition on both sides.
        compacts: whether the cluster may have dropped records since; then only what both hold is compared.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable: the store's.
        ClusterAway, AccessDenied: the cluster's.
    """
    if side.coverage is None:
        return
    for low, high in side.coverage.held:
        start, end = max(side.kafka_start, low), min(side.kafka_end, high)
        if start >= end:
            continue
        stored, held = _stored(store, keys, start, end), cluster.digests(side.partition, start, end)
        different = _first_difference(stored, held, compacts=compacts)
        if different is not None:
            offset, how = different
            yield Finding(RECORDS_DIFFER, side.coverage.where, f"offset {offset} {how}", keys.prefix, offset, end)
            return


def _stored(store: ObjectStore, keys: PartitionKeys, start: int, end: int) -> Digests:
    """Each record that readers are shown, once, in order; holes are passed over."""
    view = open_view(store, list_partition(store, keys).catalog)
    for step in view.plan(start, end):
        if isinstance(step, ReadRange):
            copies = [digests(store, copy, step.start, step.end) for copy in step.copies]
            for _, same in groupby(heapq.merge(*copies), key=lambda entry: entry[0]):
                yield next(iter(same))


def _first_difference(stored: Digests, held: Digests, *, compacts: bool) -> tuple[int, str] | None:
    one, other = next(stored, None), next(held, None)
    while one is not None or other is not None:
        if one is not None and other is not None and one[0] == other[0]:
            if one[1] != other[1]:
                return one[0], "is another record in the store than in the cluster"
            one, other = next(stored, None), next(held, None)
        elif one is not None and (other is None or one[0] < other[0]):
            if not compacts:
                return one[0], "is a record in the store, and none in the cluster"
            one = next(stored, None)
        elif other is not None:
            if not compacts:
                return other[0], "is a record in the cluster, and none in the store"
            other = next(held, None)
    return None
