r"""Plans of `tsctl gc`: which objects retention deletes, in `gc/<run>/` of a cluster.

::

    <base prefix>/ts-uploader~cluster~<cluster>/gc/20261127T020000000Z-1f2e3d4c/
        moves-00000.jsonl        partitions, written before any log.start is moved: `tsctl gc undo` reads them
        part-00000.jsonl         partitions and their objects, by listings after log.start was moved
        plan.json                written last: without it there is no plan
        claim.json               {"version":1,"use":"delete"} or "undo": the first one to put it decides
        log-<time>-00000.jsonl   what was deleted, one line for each object of the plan
        done.json                the counts, once nothing of the plan is left to do

A part has one JSON text in each line. An object of a plan belongs to the partition in the last line before it::

    {"topic":"orders","partition":3,"directory":"orders","from":100,"to":250,"nonce":"1f..","lineage":null,"over":false}
    ["00000000000000000100.log",1048576,"\"9e10...\""]

`from` and `to` are the `log.start` before and after. All objects of a plan are chosen after `log.start` was moved
(retention rule 2). A plan can only narrow what is deleted: the deletion works out again what is due.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ts_common.archive.incarnations import is_directory_of
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, ObjectNotFound, PreconditionFailed
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
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore

PLAN_NAME: Final = "plan.json"
CLAIM_NAME: Final = "claim.json"
DONE_NAME: Final = "done.json"
PART: Final = "part"
MOVES: Final = "moves"
PART_BYTES: Final = 4 << 20  # about 40,000 objects
_RUN: Final = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}")
_LARGEST_PART: Final = 2 * PART_BYTES
_LARGEST: Final = 4 << 20  # of a policy with ten thousand rules
_LINE: Final = 16 << 10
_PLAN: Final = "a plan of tsctl gc"


class Use(StrEnum):
    """What a plan is used for; it is decided once."""

    DELETE = "delete"
    UNDO = "undo"


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
        over: whether the incarnation is over, so that its commit and `log.start` are in the plan too.
    """

    partition: TopicPartition
    directory: str
    before: int
    after: int
    nonce: str
    lineage: Lineage | None
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


@dataclass(frozen=True, slots=True)
class RunObjects:
    """The objects of one run, by a listing.

    Attributes:
        run: name of the run.
        directory: common prefix of its keys, which ends with a slash.
        planned: when `plan.json` was written, seconds since the epoch by the store's clock; None without it.
        claimed: whether `claim.json` exists.
        done: whether `done.json` exists.
        objects: all of them.
    """

    run: str
    directory: str
    planned: float | None
    claimed: bool
    done: bool
    objects: tuple[ObjectInfo, ...]

    @property
    def is_pending(self) -> bool:
        """Whether the run has a plan that is not done."""
        return self.planned is not None and not self.done


def run_directory(keys: ClusterKeys, run: str) -> str:
    """Return the common prefix of a run's keys.

    Raises:
        ValueError: it is no name of a run.
    """
    if not _RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name of a run, as in 20261127T020000000Z-1f2e3d4c")
    return f"{keys.gc_runs}{run}/"


def list_runs(store: ObjectStore, keys: ClusterKeys) -> list[RunObjects]:
    """Return the runs of a cluster in a store, oldest first; objects with other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: dict[str, list[ObjectInfo]] = {}
    for info in store.list(keys.gc_runs):
        run, slash, _ = info.key.removeprefix(keys.gc_runs).partition("/")
        if slash and _RUN.fullmatch(run):
            found.setdefault(run, []).append(info)
    return [_run(keys, run, infos) for run, infos in sorted(found.items())]


def _run(keys: ClusterKeys, run: str, infos: Iterable[ObjectInfo]) -> RunObjects:
    directory = run_directory(keys, run)
    by_name = {info.key.removeprefix(directory): info for info in infos}
    plan = by_name.get(PLAN_NAME)
    return RunObjects(
        run,
        directory,
        None if plan is None else plan.modified,
        CLAIM_NAME in by_name,
        DONE_NAME in by_name,
        tuple(by_name.values()),
    )


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


def numbered_key(keys: ClusterKeys, run: str, kind: str, number: int) -> str:
    """Return the key of a part or of one of the moves; they are numbered from 0."""
    return f"{run_directory(keys, run)}{kind}-{number:05d}.jsonl"


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
            raise CorruptData(f"{key}: this part of a plan is missing; the next run makes another plan") from error
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
        CorruptData: the moves are damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for key in sorted(info.key for info in run.objects if info.key.startswith(f"{run.directory}{MOVES}-")):
        for line in get_small(store, key, _LARGEST_PART)[0].splitlines():
            with decoding(key, "moves of a plan", line):
                yield _partition(_fields(parse_json(line, key, _LINE)))


def planned_log_start(
    store: ObjectStore, keys: PartitionKeys, cluster: ClusterKeys, lineage: Lineage | None
) -> int | None:
    """Return the greatest `log.start` of a partition in pending plans and the newest that was not undone, if any.

    A lost `log.start` gets this offset at least, so that no reader sees what a policy hid.

    Args:
        store: of the partition.
        keys: of the partition.
        cluster: of its cluster.
        lineage: of the partition's commit. A plan of another lineage is void.

    Raises:
        CorruptData, NewerFormat: a plan is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: list[int] = []
    is_newest = True
    for run in reversed(list_runs(store, cluster)):
        if run.planned is None or not (is_newest or run.is_pending):
            continue
        if run.claimed and read_claim(store, cluster, run.run) is Use.UNDO:
            continue  # an earlier plan can have deleted objects
        is_newest = False
        parts = read_parts(store, cluster, read_plan(store, cluster, run.run))
        found += [each.after for each, _ in parts if each.keys(cluster) == keys and each.lineage == lineage]
    return max(found, default=None)


def claim(store: ObjectStore, keys: ClusterKeys, run: str, use: Use) -> Use:
    """Decide what a plan is used for, and return what was decided; an earlier decision stays.

    Raises:
        CorruptData: the claim is damaged.
        OutcomeUnknown: the store did not answer.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    data = (json.dumps({"version": VERSION, "use": use}, separators=(",", ":")) + "\n").encode()
    if put_once(store, run_directory(keys, run) + CLAIM_NAME, data):
        return use
    return read_claim(store, keys, run)


def read_claim(store: ObjectStore, keys: ClusterKeys, run: str) -> Use:
    """Return what a plan is used for.

    Raises:
        ObjectNotFound: nothing was decided.
        CorruptData: the claim is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = run_directory(keys, run) + CLAIM_NAME
    data, _ = get_small(store, key, _LINE)
    fields = parse_fields(data, key, "a claim of a plan", _LINE)
    with decoding(key, "a claim of a plan", data):
        return Use(text(fields["use"]))


def put_once(store: ObjectStore, key: str, data: bytes) -> bool:
    """Put an object where none exists; return whether the key had none.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        store.put(key, data, condition=IfAbsent())
    except PreconditionFailed:
        return False
    return True


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
        over,
    )


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not an object")  # noqa: TRY004  (the data is wrong)
    return value


def _object(fields: object) -> PlannedObject:
    name, size, etag = rows(fields)
    return PlannedObject(text(name), optional_number(size) or 0, text(etag))
