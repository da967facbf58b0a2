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

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys, SegmentName
from ts_common.archive.stored_object import BrokerId, PartitionNumber, Presence, StoredObject, TopicName, limited
from ts_common.json_objects import shown
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore

# Unanswered requests of one store that are read: any identity that can write to the bucket can put millions.
MOST_REQUESTS: Final = 5_000
REQUEST_BYTES: Final = 64 << 10
ANSWER_BYTES: Final = 1 << 20
_Key = Annotated[str, limited(4096)]
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
class RepairRequest(StoredObject, expected="a request to repair", most=REQUEST_BYTES):
    """One request.

    Attributes:
        id: a part of its name; ids ascend with the time.
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

    id: Annotated[str, Presence.GIVEN]
    topic: TopicName
    number: Annotated[PartitionNumber, "partition"]
    directory: str
    damage: Annotated[Damage, "kind"]
    start: Annotated[int, "from"]
    end: Annotated[int, "to"]
    key: Annotated[_Key | None, "object"]
    etag: str | None
    size: int | None
    time: int
    by: str

    def check(self) -> None:
        """Check that it names offsets of a partition, and the partition's directory in one of its incarnations."""
        if self.start >= self.end:
            raise ValueError(f"offsets from {self.start} to {self.end}")
        later = self.directory.startswith(f"{self.topic}~") and self.directory.endswith(f"-{self.number}")
        if self.directory != str(self.partition) and (not later or "/" in self.directory):
            raise ValueError(f"{shown(self.directory)} is no directory of {self.partition}")

    @property
    def partition(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.number)

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
class RepairAnswer(StoredObject, expected="the answer to a request to repair", most=ANSWER_BYTES):
    """The answer to a request.

    Attributes:
        reason: one line for the operator.
        objects: keys of the `.log` objects that have the offsets now, the ones that were put first.
        time: milliseconds since the epoch, the agent's clock.
    """

    outcome: Annotated[Outcome, "status"]
    reason: Annotated[str, limited(REQUEST_BYTES)]
    objects: tuple[_Key, ...]
    broker: BrokerId
    time: int


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


def _subject(request: RepairRequest) -> tuple[Any, ...]:
    return request.directory, request.damage, request.start, request.end, request.key, request.etag
