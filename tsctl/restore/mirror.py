"""A logical restore: Kafka's MirrorMaker 2 reads the plan's topics from `ts-endpoint`, and writes them into a cluster.

`prepare` checks what MirrorMaker would never copy, creates the topics, and sets the groups' offsets at the endpoint.
MirrorMaker runs until someone ends it, so `behind` finds whether it has copied everything. Its position is in a topic
of Kafka Connect in the target. Records and position are in the same transaction.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import javaproperties

from ts_common.errors import ConfigurationError, QueryError, TransientError
from ts_common.json_objects import MAX_INT32, decoding, parse_fields, parse_json, whole_number
from ts_common.model import TopicPartition
from ts_common.wording import counted
from ts_reader.reading.parallel import in_threads
from tsctl.restore.documents import Created, RestorePlan
from tsctl.restore.new_cluster import LARGEST_REQUEST, PERMISSIVE, NewCluster, create_topics, other_topics
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.verify.kafka_cluster import ClusterAway, KafkaCluster, KafkaTopic

SOURCE_SERVERS: Final = "source.bootstrap.servers"
POSITIONS: Final = TopicPartition("mm2-offsets.source.internal", 0)
_COPIER: Final = "MirrorSourceConnector"  # another connector translates groups
_READ_COMMITTED: Final = "read_committed"
_LARGEST_POSITION: Final = 4096
_SHOWN: Final = 10
# MirrorMaker's own rules (`ReplicationPolicy.isInternalTopic`), and its topic of heartbeats.
_LEFT_OUT: Final = re.compile(r"__.*|\..*|.*[-.]internal|heartbeats")
_NO_PATTERN: Final = re.compile(r"[^A-Za-z0-9_-]")
_WHY: Final = {
    "cleanup.policy": "the copy would lack older records of a key, and Kafka refuses records without a key",
    "retention.ms": "Kafka deletes old records during the copy",
    "retention.bytes": "Kafka deletes old records during the copy",
    "message.timestamp.type": "Kafka replaces the timestamps",
    "message.timestamp.before.max.ms": "Kafka refuses older records",
    "message.timestamp.after.max.ms": "Kafka refuses later records",
    "max.message.bytes": "Kafka refuses larger batches, and MirrorMaker sends them without compression",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """The endpoint and the target before the copy.

    Attributes:
        archive: the cluster that the endpoint serves.
        served: the topics that the endpoint serves.
        bounds: first offset and end of their partitions.
        stops: the endpoint's error at the first hole of a partition; absent if readers continue after it.
        existing: the topics that the target has.
        used: the partitions of the plan that have records in the target, now or before.
        settings: of the plan's topics that the target has, with defaults.
        has_positions: whether the target has positions of an earlier MirrorMaker.
    """

    archive: str
    served: Mapping[str, KafkaTopic]
    bounds: Mapping[TopicPartition, tuple[int, int]]
    stops: Mapping[TopicPartition, str]
    existing: Mapping[str, KafkaTopic]
    used: frozenset[TopicPartition]
    settings: Mapping[str, Mapping[str, str]]
    has_positions: bool = False


def prepare(plan: RestorePlan, source: NewCluster, target: NewCluster) -> Created:
    """Check the copy, create the topics that the target lacks, and set the groups' offsets at the endpoint.

    Raises:
        ConfigurationError: with everything that MirrorMaker would not copy; nothing was written.
        QueryError, ClusterAway, OperatorError: as `create_topics`.
    """
    facts = _facts(plan, source, target)
    if problems := list(problems_of(plan, facts)):
        raise ConfigurationError("MirrorMaker cannot copy this plan", problems)
    missing = {name: topic for name, topic in plan.topics.items() if name not in facts.existing}
    created = create_topics(target, replace(plan, topics=missing), PERMISSIVE)
    former = {name: facts.existing[name].topic_id for name in plan.topics if name in facts.existing}
    for group, offsets in plan.groups.offsets.items():
        # The endpoint has no partition without a segment; `begin_untranslated` sets these.
        if held := {each: offset for each, offset in offsets.items() if plan.partitions[each].steps}:
            source.set_offsets(group, held, plan.groups.metadata.get(group))
    return replace(created, topics={**former, **created.topics})


def problems_of(plan: RestorePlan, facts: Facts) -> Iterator[str]:
    """Yield why MirrorMaker would not copy the whole plan as it is, and what to do."""
    if plan.is_served:
        yield "the plan puts files on a broker of the cluster; make a plan without --seed and --restart"
        return
    if facts.archive != plan.cluster:
        yield _other_archive(plan, facts.archive)
        return
    if facts.has_positions:
        yield (
            f"{POSITIONS.topic}: MirrorMaker has copied into the target before, and would continue there; if none uses "
            "them, delete the topics mm2-*.internal and source.checkpoints.internal of the target"
        )
    for name, topic in plan.topics.items():
        if _LEFT_OUT.fullmatch(name):
            yield f"topic {name}: MirrorMaker leaves such names out; make a plan without it"
        served, existing = facts.served.get(name), facts.existing.get(name)
        needed = {number for number, part in topic.partitions.items() if part.steps}
        if needed and (served is None or not needed <= set(served.partitions)):
            yield f"topic {name}: the endpoint lacks partitions of it; let its user read the topic"
        if existing is None:
            continue
        if len(existing.partitions) != len(topic.partitions):
            found = counted(len(existing.partitions), "partition")
            yield f"topic {name}: the target has {found}, the plan {len(topic.partitions)}; delete the topic there"
        for setting, wanted in PERMISSIVE.items():
            value = facts.settings[name].get(setting, wanted)  # older brokers lack some
            if value != wanted and not (setting.endswith((".max.ms", ".bytes")) and _covers(value, wanted)):
                yield (
                    f"topic {name}: {setting}={value} in the target: {_WHY[setting]}; set {wanted} until the last "
                    "step, or delete the empty topic"
                )
    for partition, part in plan.partitions.items():
        if partition in facts.used:
            yield f"{partition}: the target has records; delete the topic there"
        if partition in facts.bounds:
            yield from _other_log(partition, part, facts.bounds[partition])
        if part.end != part.stored_end:
            yield f"{partition}: MirrorMaker copies everything; make a plan without --at and --end"
        if any(source.time_max is None and source.size for step in part.steps for source in step.sources):
            yield f"{partition}: records without timestamps (magic 0) would get the time of the copy; leave them out"
        if partition in facts.stops:
            yield (
                f"{partition}: the endpoint stops at lost offsets ({facts.stops[partition]}); start it with "
                "--on-hole=skip, or repair the archive"
            )


def _other_archive(plan: RestorePlan, found: str) -> str:
    return f"--source: it serves {found}; an endpoint of the archive {plan.cluster} is expected"


def _other_log(partition: TopicPartition, part: PartitionPlan, served: tuple[int, int]) -> Iterator[str]:
    """Yield what is wrong if the endpoint serves another log than the plan's; new records may follow."""
    if served[0] != part.start or served[1] < part.end:
        yield (
            f"{partition}: the endpoint serves offsets {served[0]} to {served[1]}, the plan has {part.start} to "
            f"{part.end}; make a plan of the newest incarnation, in another directory"
        )


def _covers(value: str, wanted: str) -> bool:
    return value.isdecimal() and wanted.isdecimal() and int(value) >= int(wanted)


def _facts(plan: RestorePlan, source: NewCluster, target: NewCluster) -> Facts:
    existing = target.reading.topics()
    present = plan.topics.keys() & existing.keys()
    bounds = target.reading.bounds(each for each in plan.partitions if each.topic in present)
    served = source.reading.topics()
    stops = in_threads(lambda each: _stop(source.reading, *each), plan.partitions.items())
    return Facts(
        archive=source.cluster_id(),
        served=served,
        bounds=source.reading.bounds(_stored(plan, served)),
        stops={partition: stop for partition, stop in zip(plan.partitions, stops, strict=True) if stop is not None},
        existing=existing,
        used=frozenset(partition for partition, (_, last) in bounds.items() if last > 0),
        settings=target.reading.settings(present),
        has_positions=_has_positions(target.reading, existing),
    )


def _has_positions(target: KafkaCluster, existing: Mapping[str, KafkaTopic]) -> bool:
    """Return whether another MirrorMaker has used the topic of positions; its number of partitions can differ."""
    found = existing.get(POSITIONS.topic)
    return found is not None and (len(found.partitions) != 1 or bool(positions(target)))


def _stored(plan: RestorePlan, served: Mapping[str, KafkaTopic]) -> list[TopicPartition]:
    """Return the partitions with segments that an endpoint serves."""
    return [
        name
        for name, part in plan.partitions.items()
        if part.steps and name.topic in served and name.partition in served[name.topic].partitions
    ]


def _stop(source: KafkaCluster, partition: TopicPartition, part: PartitionPlan) -> str | None:
    """Return the endpoint's error at the first hole of a partition; None without one."""
    if not part.lost:
        return None
    try:
        next(source.records(partition, part.lost[0].start, part.end, _READ_COMMITTED), None)
    except ClusterAway as error:
        return str(error)
    return None


def mirror_properties(plan: RestorePlan, source: str, target: str, further: Mapping[str, str]) -> str:
    """Return the file for `connect-mirror-maker.sh`.

    Args:
        source: bootstrap servers of the endpoint.
        target: bootstrap servers of the target.
        further: settings that are added, or replace these.
    """
    replicas = str(max((len(part.replicas) for part in plan.partitions.values()), default=1))
    settings = {
        "clusters": "source,target",
        SOURCE_SERVERS: source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "source->target.topics": ",".join(map(_pattern, plan.topics)),
        "source->target.groups": ",".join(map(_pattern, plan.groups.offsets)),
        "topics.exclude": "",
        "groups.exclude": "",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        # Each record once: positions are in the transactions of their records. Aborted records are not read.
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "target.exactly.once.source.support": "enabled",
        "source.consumer.isolation.level": _READ_COMMITTED,
        "tasks.max": "4",
        "target.producer.max.request.size": str(LARGEST_REQUEST),
        "target.producer.buffer.memory": str(LARGEST_REQUEST),
        # The endpoint is read-only, and `tsctl restore finish` sets the topics' configurations.
        "offset-syncs.topic.location": "target",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "5",
        "emit.checkpoints.interval.seconds": "1",
        "offset.lag.max": "0",
        "offset.storage.partitions": "1",
        **dict.fromkeys(
            (
                "replication.factor",
                "offset-syncs.topic.replication.factor",
                "checkpoints.topic.replication.factor",
                "heartbeats.topic.replication.factor",
                "offset.storage.replication.factor",
                "config.storage.replication.factor",
                "status.storage.replication.factor",
            ),
            replicas,
        ),
        **further,
    }
    text: str = javaproperties.dumps(settings, timestamp=False)
    return text


def _pattern(name: str) -> str:
    """Return a regular expression of Java for a name; a group can have a comma, which separates expressions."""
    return _NO_PATTERN.sub(lambda found: "[.]" if found[0] == "." else ".", name)


def check_copied(plan: RestorePlan, created: Created, source: NewCluster, target: NewCluster) -> None:
    """Check that MirrorMaker has copied everything of the plan that it can read.

    Raises:
        QueryError: a topic of the target is another one, or the endpoint serves other records.
        TransientError: it has not yet; with the first partitions and their positions.
        CorruptData, ClusterAway, AccessDenied: as `behind`.
    """
    if wrong := other_topics(target.reading.topics(), created):
        raise QueryError(f"{'; '.join(wrong[:_SHOWN])}. Begin again with another directory")
    if (archive := source.cluster_id()) != plan.cluster:
        raise QueryError(_other_archive(plan, archive))
    bounds = source.reading.bounds(_stored(plan, source.reading.topics()))
    if wrong := [text for name, found in bounds.items() for text in _other_log(name, plan.partitions[name], found)]:
        raise QueryError("; ".join(wrong[:_SHOWN]))
    if left := behind(plan, source.reading, target.reading):
        shown = "; ".join(
            f"{name}: offsets below {at} of {stable_end(plan.partitions[name])}"
            for name, at in [*left.items()][:_SHOWN]
        )
        raise TransientError(
            f"{len(left)} of {counted(len(plan.partitions), 'partition')} not copied yet: {shown}. Wait, and repeat "
            "the command; if the offsets stay, read MirrorMaker's log"
        )


def begin_untranslated(plan: RestorePlan, target: NewCluster) -> int:
    """Set the groups' offsets that MirrorMaker did not translate to the beginning; return their number.

    It translates none below its oldest position that it remembers. A consumer without an offset can begin at the end.

    Raises:
        ClusterAway, OperatorError: a request failed, also because the group has members.
    """
    count = 0
    for group, offsets in plan.groups.offsets.items():
        missing = offsets.keys() - target.reading.group_offsets(group).keys()
        starts = target.reading.bounds(missing)
        if missing:
            target.set_offsets(group, {partition: starts[partition][0] for partition in missing})
        count += len(missing)
    return count


def behind(plan: RestorePlan, source: KafkaCluster, target: KafkaCluster) -> dict[TopicPartition, int]:
    """Return the partitions with records of the plan that MirrorMaker has not copied yet, each with its position.

    A position can be below the end although nothing is left: markers, and records of aborted transactions, follow.

    Raises:
        CorruptData: the topic of positions has other records.
        ClusterAway, AccessDenied: a request failed.
    """
    reached = positions(target)

    def left(item: tuple[TopicPartition, PartitionPlan]) -> int | None:
        partition, part = item
        at, end = reached.get(partition, part.start), stable_end(part)
        is_done = at >= end or next(source.records(partition, at, end, _READ_COMMITTED), None) is None
        return None if is_done else at

    found = in_threads(left, plan.partitions.items())
    return {partition: at for partition, at in zip(plan.partitions, found, strict=True) if at is not None}


def stable_end(part: PartitionPlan) -> int:
    """Return the offset after the last that MirrorMaker can read: it waits for the end of each transaction."""
    return min((each.first_offset for each in part.ended), default=part.end)


def positions(target: KafkaCluster) -> dict[TopicPartition, int]:
    """Return the offset after the last copied record of each partition; empty before MirrorMaker's first start.

    Raises:
        CorruptData: Kafka Connect did not write a record.
        ClusterAway, AccessDenied: a request failed.
    """
    if POSITIONS.topic not in target.topics():
        return {}
    start, end = target.bounds([POSITIONS])[POSITIONS]
    found: dict[TopicPartition, int] = {}
    for record in target.records(POSITIONS, start, end, _READ_COMMITTED):
        what = f"{POSITIONS}, offset {record.offset}"
        with decoding(what, "a position of MirrorMaker"):
            key: Any = parse_json(record.key or b"", what, _LARGEST_POSITION)  # [connector, partition]
            if key[0] != _COPIER:
                continue
            name = TopicPartition(str(key[1]["topic"]), whole_number(key[1]["partition"], most=MAX_INT32))
            if record.value is None:
                found.pop(name, None)
            else:
                position = parse_fields(record.value, what, "a position of MirrorMaker", _LARGEST_POSITION)
                found[name] = whole_number(position["offset"]) + 1
    return found
