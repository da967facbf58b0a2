"""The high watermarks of the partitions that a broker leads, in `ends/<broker>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/ends/1.json
    {"version":1,"broker":1,"time":1700000000000,"partitions":{"orders-0":[4711,1699999998000]},
     "release":"0.4.0","formats":{"log.start":3}}

For each partition the object has the valid high watermark (protocol rule 1), and the mtime of the checkpoint where the
agent read it, in milliseconds since the epoch by the broker's clock. Each agent overwrites its own object every few
minutes. An object can be old: its agent ended, or its broker leads no partition any more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.stored_object import Presence, StoredObject, between
from ts_common.json_objects import MAX_INT32
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

_NAME: Final = re.compile(r"([0-9]{1,10})\.json", re.ASCII)
# Ten thousand partitions with names of ordinary length are half a megabyte. Each agent reads the objects of all
# brokers, and parsed, a forged one can need 24 times its bytes.
_LARGEST: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class End:
    """The end of a partition's committed records.

    Attributes:
        high_watermark: records below this offset are on all in-sync replicas.
        time: milliseconds since the epoch: the broker wrote its checkpoint.
    """

    high_watermark: int
    time: int


@dataclass(frozen=True, slots=True)
class Ends(StoredObject, expected="the ends of a broker", most=_LARGEST):
    """The ends of the partitions that one broker leads, as its agent reports them.

    Attributes:
        time: milliseconds since the epoch, the agent's clock: the object was written.
        partitions: the partitions with a valid high watermark.
        formats: the latest version that it reads of each kind of object (`ts_common.format_version`).
    """

    broker: Annotated[int, between(0, MAX_INT32)]
    time: int
    partitions: Mapping[TopicPartition, End]
    release: Annotated[str | None, Presence.IF_SET] = None
    formats: Annotated[Mapping[str, int] | None, Presence.IF_SET] = None


def read_ends(store: ObjectStore, keys: ClusterKeys, broker: int) -> Ends | None:
    """Read the ends that a broker's agent wrote last; None if there is no such object.

    Raises:
        CorruptData: the object is damaged, or belongs to another broker.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Ends.read(store, keys.ends_of(broker), broker=broker)


def brokers_with_ends(store: ObjectStore, keys: ClusterKeys) -> list[int]:
    """Return the ids of the brokers with such an object, ascending; other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names = (info.key.removeprefix(keys.ends) for info in store.list(keys.ends))
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)) is not None)


def all_agents_read(store: ObjectStore, keys: ClusterKeys, kind: str, version: int) -> bool:
    """Return whether each agent with such an object reads a version of a kind of object; an earlier release has none.

    Raises:
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_ends`.
    """
    found = (read_ends(store, keys, broker) for broker in brokers_with_ends(store, keys))
    return all(each is None or (each.formats or {}).get(kind, 0) >= version for each in found)
