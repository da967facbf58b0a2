"""Compares the store with a running cluster."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from tsctl.verify.copy_comparison import Digests, digests, side_by_side
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import (
    ABOUT_TO_BE_LOST,
    HOLE,
    INCARNATION_NOT_SHIPPED,
    LOST_BEFORE_SHIPPED,
    RECORDS_DIFFER,
    STORE_AHEAD,
    STORE_BEGINS_LATER,
    TOPIC_GONE,
    TOPIC_NOT_SHIPPED,
)
from tsctl.verify.findings import Finding
from tsctl.verify.inventory import list_partition

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster, KafkaTopic, Keeping

# Share of the retention time after which unshipped records are at risk.
RISK_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Side:
    """One partition in the cluster and in the store.

    Attributes:
        kafka_start: the cluster's log start offset.
        kafka_end: its high watermark.
        coverage: in the store; None if the store has no directory for it.
    """

    partition: TopicPartition
    kafka_start: int
    kafka_end: int
    coverage: Coverage | None

    @property
    def behind(self) -> int:
        """The number of offsets in the cluster above the end of the store."""
        reached = self.coverage.end if self.coverage else self.kafka_start
        return max(0, self.kafka_end - max(reached, self.kafka_start))


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the comparison.

    Attributes:
        sides: each partition of the cluster whose topic is shipped, or is in the store.
        findings: what only the comparison shows.
    """

    sides: tuple[Side, ...]
    findings: tuple[Finding, ...]


def audit(
    cluster: "KafkaCluster",
    coverages: Sequence[Coverage],
    ships: Callable[[str], bool],
    now: float,
    *,
    in_flight_seconds: float,
    reached: Callable[[Coverage], int],
    in_scope: Callable[[TopicPartition], bool] = lambda _: True,
) -> Audit:
    """Compare the store with the cluster.

    Args:
        coverages: of all topics in scope.
        ships: returns whether the agents ship a topic.
        now: seconds since the epoch.
        in_flight_seconds: younger records may not have been shipped yet.
        reached: reads the next offset of a partition again, because the check of the store may have taken hours.
        in_scope: returns whether a partition is in scope; `coverages` has no other.

    Raises:
        ClusterAway, AccessDenied: a request to the cluster failed.
        StoreUnavailable, AccessDenied: a request to the store failed.
    """
    known = cluster.topics()
    held = {coverage.topic for coverage in coverages}
    cluster.check_unknown(held - known.keys())
    gone = sorted(held - known.keys())
    findings = [Finding(TOPIC_GONE, topic, "the cluster no longer has this topic") for topic in gone]
    topics = {name: topic for name, topic in known.items() if name in held or ships(name)}
    bounds = cluster.bounds(filter(in_scope, _partitions(topics)))
    sides: list[Side] = []
    for name, topic in sorted(topics.items()):
        mine = [coverage for coverage in coverages if coverage.topic == name]
        living = _living(mine, topic)
        if mine and not living:
            ids = ", ".join(sorted({coverage.topic_id or "unknown" for coverage in mine}))
            detail = f"the cluster's topic id is {topic.topic_id}; the store has {ids}"
            findings.append(Finding(INCARNATION_NOT_SHIPPED, name, detail))
        else:
            sides += _sides(name, topic, living, bounds)
    findings += _lacking(cluster, [side for side in sides if ships(side.partition.topic)], now - in_flight_seconds)
    for side in sides:
        findings += _compare(side, reached)
    findings += _at_risk(cluster, sides, cluster.keeping({side.partition.topic for side in sides}), now, reached)
    return Audit(tuple(sides), tuple(findings))


def _partitions(topics: "Mapping[str, KafkaTopic]") -> Iterator[TopicPartition]:
    for name, topic in topics.items():
        for number in topic.partitions:
            yield TopicPartition(name, number)


def _sides(
    name: str, topic: "KafkaTopic", living: Sequence[Coverage], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator[Side]:
    """Yield the partitions of a topic that are in scope, with what the store has of them."""
    by_number = {coverage.partition: coverage for coverage in living}
    for number in topic.partitions:
        partition = TopicPartition(name, number)
        if partition in bounds:
            yield Side(partition, *bounds[partition], by_number.get(number))


def _lacking(cluster: "KafkaCluster", sides: Sequence[Side], old: float) -> Iterator[Finding]:
    """Find partitions without a directory in the store, although they have had records since before `old`."""
    empty = [side for side in sides if side.coverage is None and side.kafka_end > side.kafka_start]
    young = cluster.first_since({side.partition: int(old * 1000) for side in empty})
    lacking = [side.partition for side in empty if young.get(side.partition) != side.kafka_start]
    for topic, partitions in groupby(lacking, key=lambda partition: partition.topic):
        numbers = ", ".join(str(partition.partition) for partition in partitions)
        detail = f"its partitions {numbers} have records, but no directory in the store"
        yield Finding(TOPIC_NOT_SHIPPED, topic, detail)


def _living(coverages: Sequence[Coverage], topic: "KafkaTopic") -> list[Coverage]:
    """Return the coverages of the incarnation that the cluster has.

    An incarnation without a topic id may be this one, if no incarnation has the id.
    """
    id_ = topic.topic_id
    # The directory of a later incarnation has its id, even before the first commit.
    same = [each for each in coverages if id_ and (each.topic_id == id_ or each.directory.endswith(f"~{id_}"))]
    if not same and all(coverage.topic_id is None for coverage in coverages):
        return list(coverages)
    directories = {coverage.directory for coverage in same}
    return [coverage for coverage in coverages if coverage.directory in directories]


def _compare(side: Side, reached: Callable[[Coverage], int]) -> Iterator[Finding]:
    coverage = side.coverage
    if coverage is None:
        return
    first, last = side.kafka_start, side.kafka_end
    held = f"the cluster has [{first}, {last}), the store [{coverage.start}, {coverage.end})"
    if first > coverage.end and first > reached(coverage):
        yield Finding(LOST_BEFORE_SHIPPED, coverage.where, held, coverage.prefix, coverage.end, first)
    if coverage.end > last:
        yield Finding(STORE_AHEAD, coverage.where, held, coverage.prefix, last, coverage.end)
    if first < coverage.start:
        yield Finding(STORE_BEGINS_LATER, coverage.where, held, coverage.prefix, first, min(last, coverage.start))


def _at_risk(
    cluster: "KafkaCluster",
    sides: Iterable[Side],
    keeping: "dict[str, Keeping]",
    now: float,
    reached: Callable[[Coverage], int],
) -> Iterator[Finding]:
    """Find offsets that are not in the store and nearly as old as the topic's retention."""
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
            detail = f"older than {RISK_SHARE:.0%} of retention.ms={limit} and not in the store"
            where = side.coverage.where if side.coverage else str(partition)
            yield Finding(ABOUT_TO_BE_LOST, where, detail, None, start, end)


def with_cluster(findings: Iterable[Finding], sides: Iterable[Side]) -> list[Finding]:
    """Return the findings; add to each hole which of its offsets the cluster still has."""
    by_where = {side.coverage.where: side for side in sides if side.coverage}
    told = []
    for finding in findings:
        side = by_where.get(finding.where)
        if finding.kind is HOLE and side is not None and finding.start is not None and finding.end is not None:
            low, high = max(finding.start, side.kafka_start), min(finding.end, side.kafka_end)
            held = f"the cluster still has [{low}, {high})" if low < high else "the cluster has no offset of it"
            told.append(replace(finding, detail=f"{finding.detail}; {held}"))
        else:
            told.append(finding)
    return told


def compare_records(
    store: ObjectStore, keys: PartitionKeys, cluster: "KafkaCluster", side: Side, *, compacts: bool
) -> Iterator[Finding]:
    """Compare the records of the store and the cluster; yield a finding for the first difference.

    Args:
        keys: the keys of the partition.
        side: the partition in both.
        compacts: whether the cluster may have compacted the records; then only records of both are compared.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable: the store could not be read.
        ClusterAway, AccessDenied: the cluster could not be read.
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
    """Yield each record that readers return, once and in order; skip holes."""
    view = open_view(store, list_partition(store, keys).catalog, shows_records=False)
    for step in view.plan(start, end):
        if isinstance(step, ReadRange):
            copies = [digests(store, copy, step.start, step.end) for copy in step.copies]
            for _, same in groupby(heapq.merge(*copies), key=lambda entry: entry[0]):
                yield next(iter(same))


def _first_difference(stored: Digests, held: Digests, *, compacts: bool) -> tuple[int, str] | None:
    for offset, one, other in side_by_side(stored, held):
        if one is None or other is None:
            if not compacts:
                has, lacks = ("cluster", "store") if one is None else ("store", "cluster")
                return offset, f"has a record in the {has}, but not in the {lacks}"
        elif one != other:
            return offset, "has different records in the store and in the cluster"
    return None
