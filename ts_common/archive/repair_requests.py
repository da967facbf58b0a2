r"""Requests to repair: `tsctl repair` writes them, the agent next to the partition's leader answers them.

::

    <base prefix>/ts-uploader~cluster~<cluster>/repairs/1700000000000-1a2b3c4d.json
    {"version":1,"topic":"orders","partition":0,"directory":"orders-0","kind":"damaged","from":100,"to":200,
     "object":"10111/prod/orders-0/00000000000000000100.log","etag":"\"f99d...\"","size":4711,
     "time":1700000000000,"by":"operator@host"}

    <base prefix>/ts-uploader~cluster~<cluster>/repairs/1700000000000-1a2b3c4d.done.json
    {"version":1,"status":"repaired","reason":"...","objects":["10111/prod/orders-0/00000000000000000100.e7.1a2b3c4d.log"],
     "broker":1,"time":1700000000000}

Both are written where no object is, and never change. A request without an answer stays valid: agents list them every
minute. A request can name any object, so an agent compares that with the partition's keys before it reads one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys, SegmentName
from ts_common.format_version import VERSION
from ts_common.json_objects import MAX_INT32, decoding, optional_number, parse_fields, rows, shown, text, whole_number
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectInfo, ObjectStore

# Unanswered requests of one store that are read: any identity that can write to the bucket can put millions.
MOST_REQUESTS: Final = 5_000
REQUEST_BYTES: Final = 64 << 10
ANSWER_BYTES: Final = 1 << 20
_KEY_CHARACTERS: Final = 4096
_NAME: Final = re.compile(r"(?P<id>[0-9]{13}-[0-9a-f]{8})(?P<done>\.done)?\.json")


class Damage(StrEnum):
    """What is to be repaired."""

    MISSING = "missing"
    DAMAGED = "damaged"


class Outcome(StrEnum):
    """What became of a request; the values are those of `status` in the answer."""

    REPAIRED = "repaired"
    IN_PART = "in-part"
    NOTHING_TO_DO = "nothing-to-do"
    IMPOSSIBLE = "impossible"


OUTCOMES: Final = {
    Outcome.REPAIRED: "the store has all of the offsets again, or a good copy of the object",
    Outcome.IN_PART: "the broker had only a part of the offsets, and the store has that part again",
    Outcome.NOTHING_TO_DO: "the store has what the broker has, with the same bytes, or `log.start` is above it",
    Outcome.IMPOSSIBLE: "the broker does not have the offsets either, or its file is damaged too",
}


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """One request.

    Attributes:
        id: a part of its name; ids ascend with the time.
        partition: topic and partition.
        directory: the partition's directory, which differs between incarnations.
        damage: what is to be repaired.
        start: first offset.
        end: the offset after the last.
        key: of the damaged `.log`, relative to the store's location; None for offsets that no object has.
        etag: of that object when it was found; None without one.
        size: of that object in bytes; None without one.
        time: milliseconds since the epoch, the operator's clock.
        by: who requested it.
    """

    id: str
    partition: TopicPartition
    directory: str
    damage: Damage
    start: int
    end: int
    key: str | None
    etag: str | None
    size: int | None
    time: int
    by: str

    def encode(self) -> bytes:
        """Return the content of the object: one line."""
        fields = {
            "version": VERSION,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "directory": self.directory,
            "kind": self.damage.value,
            "from": self.start,
            "to": self.end,
            "object": self.key,
            "etag": self.etag,
            "size": self.size,
            "time": self.time,
            "by": self.by,
        }
        return _line(fields)

    def segment_in(self, keys: PartitionKeys) -> SegmentName | None:
        """Return the name of the damaged `.log`; None if the request names no object, or none of this partition."""
        if self.key is None or not self.key.startswith(keys.prefix):
            return None
        parsed = SegmentName.parse(self.key.removeprefix(keys.prefix))
        return parsed[0] if parsed is not None and parsed[1] == LOG_SUFFIX else None

    def is_same_as(self, other: "RepairRequest") -> bool:
        """Return whether an answer to one of the two is an answer to the other."""
        return _subject(self) == _subject(other)


@dataclass(frozen=True, slots=True)
class RepairAnswer:
    """The answer to a request.

    Attributes:
        outcome: what became of it.
        reason: one line for the operator.
        objects: keys of the `.log` objects that have the offsets now, the ones that were put first.
        broker: id of the agent's broker.
        time: milliseconds since the epoch, the agent's clock.
    """

    outcome: Outcome
    reason: str
    objects: tuple[str, ...]
    broker: int
    time: int

    def encode(self) -> bytes:
        """Return the content of the object: one line."""
        fields = {
            "version": VERSION,
            "status": self.outcome.value,
            "reason": self.reason,
            "objects": self.objects,
            "broker": self.broker,
            "time": self.time,
        }
        return _line(fields)


def request_key(keys: ClusterKeys, id_: str) -> str:
    """Return the key of a request."""
    return f"{keys.repairs}{id_}.json"


def answer_key(keys: ClusterKeys, id_: str) -> str:
    """Return the key of the answer to a request."""
    return f"{keys.repairs}{id_}.done.json"


def unanswered(store: ObjectStore, keys: ClusterKeys) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield the id and the object of each request without an answer, by id; one listing.

    An answer is listed just before its request (`.d` is below `.j`), so no number of objects needs memory.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    done = ""
    for info in store.list(keys.repairs):
        match = _NAME.fullmatch(info.key.removeprefix(keys.repairs))
        if match is not None and match["done"]:
            done = match["id"]
        elif match is not None and match["id"] != done:
            yield match["id"], info


def decode_request(data: bytes, key: str, id_: str) -> RepairRequest:
    """Parse a request; unknown fields are ignored.

    Raises:
        CorruptData: the content is not a request.
        NewerFormat: a later release wrote it.
    """
    expected = "a request to repair"
    fields = parse_fields(data, key, expected, REQUEST_BYTES)
    with decoding(key, expected, data):
        topic = text(fields["topic"])
        if not is_topic_name(topic):
            raise ValueError(f"{shown(topic)} is no topic's name")
        partition = TopicPartition(topic, whole_number(fields["partition"], 0, MAX_INT32))
        start = whole_number(fields["from"])
        etag = fields["etag"]
        return RepairRequest(
            id_,
            partition,
            _directory(text(fields["directory"]), partition),
            Damage(text(fields["kind"])),
            start,
            whole_number(fields["to"], start + 1),
            None if fields["object"] is None else text(fields["object"], _KEY_CHARACTERS),
            None if etag is None else text(etag),
            optional_number(fields["size"]),
            whole_number(fields["time"]),
            text(fields["by"]),
        )


def decode_answer(data: bytes, key: str) -> RepairAnswer:
    """Parse an answer; unknown fields are ignored.

    Raises:
        CorruptData: the content is not an answer.
        NewerFormat: a later release wrote it.
    """
    expected = "the answer to a request to repair"
    fields = parse_fields(data, key, expected, ANSWER_BYTES)
    with decoding(key, expected, data):
        return RepairAnswer(
            Outcome(text(fields["status"])),
            text(fields["reason"], REQUEST_BYTES),
            tuple(text(key, _KEY_CHARACTERS) for key in rows(fields["objects"])),
            whole_number(fields["broker"], -1, MAX_INT32),
            whole_number(fields["time"]),
        )


def _directory(name: str, partition: TopicPartition) -> str:
    """Return the directory of the partition in one of its incarnations."""
    later = name.startswith(f"{partition.topic}~") and name.endswith(f"-{partition.partition}") and "/" not in name
    if name != str(partition) and not later:
        raise ValueError(f"{shown(name)} is no directory of {partition}")
    return name


def _subject(request: RepairRequest) -> tuple[Any, ...]:
    return request.directory, request.damage, request.start, request.end, request.key, request.etag


def _line(fields: dict[str, Any]) -> bytes:
    return (json.dumps(fields, separators=(",", ":")) + "\n").encode()
