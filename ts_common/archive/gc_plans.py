r"""Plans of `tsctl gc`: which objects retention deletes. `ts_common.archive.gc_runs` has their places.

A part has one JSON text in each line. An object of a plan belongs to the partition in the last line before it::

    {"topic":"orders","partition":3,"directory":"orders","from":100,"to":250,"nonce":"1f..","lineage":null,
     "writtenBy":"20261127T020000000Z-1f2e3d4c","over":false}     (in one line)
    ["00000000000000000100.log",1048576,"\"9e10...\""]

`from` and `to` are the `log.start` before and after. All objects of a plan are chosen after `log.start` was moved
(retention rule 2). A plan can only narrow what is deleted: the deletion works out again what is due.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ts_common.archive.commit import Lineage, LogStart
from ts_common.archive.gc_runs import (
    MOVES,
    PART,
    PLAN_NAME,
    RunObjects,
    Use,
    list_runs,
    numbered,
    numbered_key,
    read_claim,
    run_directory,
)
from ts_common.archive.incarnations import is_directory_of
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.format_version import VERSION
from ts_common.json_objects import (
    MAX_INT32,
    decoding,
    optional_number,
    parse_fields,
    parse_json,
    rows,
    shown,
    text,
    whole_number,
)
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectStore

PART_BYTES: Final = 4 << 20  # about 40,000 objects
_LARGEST_PART: Final = 2 * PART_BYTES
_LARGEST: Final = 4 << 20  # of a policy with ten thousand rules
_LINE: Final = 16 << 10
_PLAN: Final = "a plan of tsctl gc"


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of a plan.

    Attributes:
        partition: topic and number.
        directory: of its incarnation, as `Incarnation.directory`.
        before: `log.start` before the plan.
        after: `log.start` when the objects were chosen.
        nonce: of the commit that was read then.
        lineage: of both.
        written_by: as `LogStart.written_by` when the objects were chosen. The plan is void for any other `log.start`.
        over: whether the incarnation is over, so that its commit and `log.start` are in the plan too.
    """

    partition: TopicPartition
    directory: str
    before: int
    after: int
    nonce: str
    lineage: Lineage | None
    written_by: str | None = None
    over: bool = False

    def keys(self, cluster: ClusterKeys) -> PartitionKeys:
        """Return the keys of the partition."""
        return cluster.partition(self.partition, self.directory)

    def encode(self) -> str:
        """Return the line of a part."""
        fields = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "directory": self.directory,
            "from": self.before,
            "to": self.after,
            "nonce": self.nonce,
            "lineage": None if self.lineage is None else self.lineage.encode(),
            "writtenBy": self.written_by,
            "over": self.over,
        }
        return json.dumps(fields, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object of a plan.

    Attributes:
        name: its key without the prefix of the partition.
        size: bytes.
        etag: its ETag when the plan was made.
    """

    name: str
    size: int
    etag: str

    def encode(self) -> str:
        """Return the line of a part."""
        return json.dumps([self.name, self.size, self.etag], separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Plan:
    """The head of a plan.

    Attributes:
        run: its name, which begins with the time.
        time: milliseconds since the epoch, by the clock of the store.
        due: from this time on, milliseconds since the epoch, the objects can be deleted.
        parts: number of parts.
        partitions: number of partitions.
        objects: number of objects.
        size: bytes of these objects.
        policy: that the plan follows, as JSON.
    """

    run: str
    time: int
    due: int
    parts: int
    partitions: int
    objects: int
    size: int
    policy: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the content of `plan.json`."""
        fields = {
            "version": VERSION,
            "time": self.time,
            "due": self.due,
            "parts": self.parts,
            "partitions": self.partitions,
            "objects": self.objects,
            "bytes": self.size,
            "policy": self.policy,
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def read_plan(store: ObjectStore, keys: ClusterKeys, run: str) -> Plan:
    """Return the head of a plan. Its times are not before the time when the store got it.

    Raises:
        ObjectNotFound: the run has no plan.
        CorruptData: it is damaged.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = run_directory(keys, run) + PLAN_NAME
    data, info = get_small(store, key, _LARGEST)
    fields = parse_fields(data, key, _PLAN, _LARGEST)
    with decoding(key, _PLAN, data):
        policy = _fields(fields["policy"])
        time, due = whole_number(fields["time"]), whole_number(fields["due"])
        late = max(0, int(info.modified * 1000) - time)
        return Plan(
            run,
            time + late,
            due + late,
            whole_number(fields["parts"], 0, 1 << 20),
            whole_number(fields["partitions"]),
            whole_number(fields["objects"]),
            whole_number(fields["bytes"]),
            policy,
        )


def read_parts(
    store: ObjectStore, keys: ClusterKeys, plan: Plan
) -> Iterator[tuple[PlannedPartition, list[PlannedObject]]]:
    """Yield each partition of a plan with its objects; one partition is in memory at a time.

    Raises:
        CorruptData: a part is damaged or missing.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    partition: PlannedPartition | None = None
    objects: list[PlannedObject] = []
    for number in range(plan.parts):
        key = numbered_key(keys, plan.run, PART, number)
        try:
            data, _ = get_small(store, key, _LARGEST_PART)
        except ObjectNotFound as error:
            raise CorruptData(f"{key}: this part of a plan is missing") from error
        for line in data.splitlines():
            with decoding(key, "a part of a plan", line):
                fields = parse_json(line, key, _LINE)
                if isinstance(fields, dict):
                    found = _partition(fields)
                    if partition is not None and found != partition:
                        yield partition, objects
                        objects = []
                    partition = found
                elif partition is None:
                    raise ValueError("an object without a partition")
                else:
                    objects.append(_object(fields))
    if partition is not None:
        yield partition, objects


def read_moves(store: ObjectStore, run: RunObjects) -> Iterator[PlannedPartition]:
    """Yield the partitions whose `log.start` a run moves, also of a run that ended before it had a plan.

    Raises:
        CorruptData: the moves are damaged, or one of their objects is missing.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = sorted(info.key for info in run.objects if info.key.startswith(f"{run.directory}{MOVES}-"))
    for number, key in enumerate(found):
        if key != (expected := f"{run.directory}{numbered(MOVES, number)}"):
            raise CorruptData(f"{expected}: these moves of a plan are missing")
        for line in get_small(store, key, _LARGEST_PART)[0].splitlines():
            with decoding(key, "moves of a plan", line):
                yield _partition(_fields(parse_json(line, key, _LINE)))


def decode_planned(data: bytes, key: str) -> PlannedPartition:
    """Parse the line of a partition, in an object of its own.

    Raises:
        CorruptData: it is damaged.
    """
    with decoding(key, "a partition of a plan", data):
        return _partition(_fields(parse_json(data, key, _LINE)))


@dataclass(frozen=True, slots=True)
class PlannedLogStart:
    """Where a plan moved the `log.start` of a partition.

    Attributes:
        began: when the run wrote its moves, before any `log.start`: milliseconds since the epoch by the store's clock.
        content: of `log.start` afterwards.
    """

    began: int
    content: LogStart


def planned_log_starts(store: ObjectStore, keys: PartitionKeys, cluster: ClusterKeys) -> list[PlannedLogStart]:
    """Return where plans moved the `log.start` of a partition: the pending ones, and the newest that contains it.

    A plan that was undone does not count. A run leaves a partition out that is held, is in doubt, or has no rule any
    more. Earlier plans then have its `log.start`. If a hold showed the partition again, the offset before the plan
    counts.

    Args:
        store: of the partition.
        keys: of the partition.
        cluster: of its cluster.

    Raises:
        CorruptData, NewerFormat: a plan is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: list[PlannedLogStart] = []
    is_newest = True
    for run in reversed(list_runs(store, cluster)):
        if run.planned is None or not (is_newest or run.is_pending):
            continue
        if run.claimed and read_claim(store, cluster, run.run) is Use.UNDO:
            continue  # an earlier plan can have deleted objects
        hidden = _hidden(store, cluster, run, keys)
        is_newest = is_newest and not hidden
        moves = (info.modified for info in run.objects if info.key.startswith(f"{run.directory}{MOVES}-"))
        began, shown = int(min(moves, default=run.planned) * 1000), run.shows(keys.directory)
        found += [
            PlannedLogStart(began, LogStart(each.before if shown else each.after, each.lineage)) for each in hidden
        ]
    return found


def _hidden(store: ObjectStore, cluster: ClusterKeys, run: RunObjects, keys: PartitionKeys) -> list[PlannedPartition]:
    """Return what a plan has of one partition; of a void plan what it began to move.

    The moves contain each partition of the plan. They are smaller than its parts, which also contain the objects.
    """
    try:
        moves = list(read_moves(store, run))
    except CorruptData:
        if run.void:
            raise
        moves = []
    mine = [each for each in moves if each.keys(cluster) == keys]
    if run.void or (moves and not mine):
        return mine
    parts = read_parts(store, cluster, read_plan(store, cluster, run.run))
    return [each for each, _ in parts if each.keys(cluster) == keys]


def _partition(fields: Mapping[str, Any]) -> PlannedPartition:
    topic, directory = text(fields["topic"]), text(fields["directory"])
    if not is_topic_name(topic) or not is_directory_of(topic, directory):
        raise ValueError(f"{directory!r} is no directory of a topic {topic!r}")
    lineage, before, over = fields["lineage"], whole_number(fields["from"]), fields["over"]
    if type(over) is not bool:
        raise ValueError(f"over: {shown(over)} is neither true nor false")
    return PlannedPartition(
        TopicPartition(topic, whole_number(fields["partition"], 0, MAX_INT32)),
        directory,
        before,
        whole_number(fields["to"], before),  # an undo would move `log.start` up else, and hide records
        text(fields["nonce"]),
        None if lineage is None else Lineage.decode(lineage),
        None if fields["writtenBy"] is None else text(fields["writtenBy"]),
        over,
    )


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not an object")  # noqa: TRY004  (the data is wrong)
    return value


def _object(fields: object) -> PlannedObject:
    name, size, etag = rows(fields)
    return PlannedObject(text(name), optional_number(size) or 0, text(etag))
