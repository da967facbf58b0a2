"""Requests to erase: who erased what and when, in `erasures/<id>.json` below the cluster's prefix.

::

    {"version":1,"topic":"orders","time":1,"by":"arn:...","reference":"case 17","due":2,"unread":0,
     "partitions":[["orders-0",1000,1000,4,181]]}

A request has no key of a record, and no hash of one. It is put where none exists, once its offsets are hidden. So a
request without an object was not completed: the same command repeats it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ts_common.archive.commit import MAX_ERASED
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.stored_object import Presence, StoredObject, TopicName, between, limited
from ts_common.store.contract import ObjectStore

ERASURE_BYTES: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(?<!\.done)", re.ASCII)
_SUFFIX: Final = ".json"
_Text = Annotated[str, limited(1000)]


class ErasureState(StrEnum):
    """The state of a request."""

    OPEN = "open"  # offsets below E were not searched yet, or a copy could not be read
    HIDDEN = "hidden"  # no reader shows the records; their bytes are stored


@dataclass(frozen=True, slots=True)
class ErasedPartition:
    """What a request has of one partition.

    Attributes:
        directory: of the partition in its incarnation.
        end: E: later records are not the request's.
        searched: the next offset when it was searched. Below E, what was committed since was not.
        number: of a list that has the offsets; 0 without any.
        offsets: how many were found.
    """

    directory: _Text
    end: int
    searched: int
    number: Annotated[int, between(0, MAX_ERASED)]
    offsets: int


@dataclass(frozen=True, slots=True)
class Erasure(StoredObject, expected="a request to erase", most=ERASURE_BYTES):
    """A request to erase.

    Attributes:
        name: its id.
        time: when its offsets were hidden, milliseconds since the epoch.
        by: who did it, as `ObjectStore.identity`; None if the store did not identify them.
        reference: of the person's demand: one text, which does not name the person.
        due: when the bytes must be removed at the latest, milliseconds since the epoch.
        unread: the number of copies that could not be read to their end.
    """

    name: Annotated[str, Presence.GIVEN]
    topic: TopicName
    time: int
    by: _Text | None
    reference: _Text
    due: int
    unread: int
    partitions: tuple[ErasedPartition, ...]

    @property
    def offsets(self) -> int:
        """The number of records that it hides."""
        return sum(each.offsets for each in self.partitions)

    @property
    def state(self) -> ErasureState:
        """Its state; no release removes the bytes yet."""
        is_searched = not self.unread and all(each.searched >= each.end for each in self.partitions)
        return ErasureState.HIDDEN if is_searched else ErasureState.OPEN

    def is_late(self, now: int) -> bool:
        """Return whether its bytes should be removed by now; `now` is in milliseconds since the epoch."""
        return now >= self.due


def erasure_key(keys: ClusterKeys, name: str) -> str:
    """Return the key of a request.

    Raises:
        ValueError: the id is not one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no id of a request: up to 100 letters, digits, '.', '_' and '-' are expected")
    return f"{keys.erasures}{name}{_SUFFIX}"


def read_erasure(store: ObjectStore, keys: ClusterKeys, name: str) -> Erasure | None:
    """Return a request; None if the store has none of this id.

    Raises:
        ValueError: the id is not one.
        CorruptData: the object is damaged.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Erasure.read(store, erasure_key(keys, name), name=name)


def read_erasures(store: ObjectStore, keys: ClusterKeys) -> tuple[Erasure, ...]:
    """Return all requests of a cluster in one store by id; other names are ignored.

    Raises:
        As `read_erasure`.
    """
    names = (info.key.removeprefix(keys.erasures) for info in store.list(keys.erasures))
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    found = [read_erasure(store, keys, stem) for stem in stems if _NAME.fullmatch(stem)]
    return tuple(each for each in found if each is not None)
