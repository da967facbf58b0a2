"""The committed offsets of a consumer group of the endpoint, in `groups/<group, percent-encoded>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/groups/reports%2Fdaily.json
    {"version":1,"group":"reports/daily","time":1700000000000,"partitions":{"orders-0":[4711,3,1699999998000,""]}}

For each partition the object has the committed offset, the leader epoch of the record before it or -1, the time of the
commit in milliseconds since the epoch, and the client's metadata. The partition's topic is the newest incarnation, or
`topic~id` is a former one. The endpoint writes the object (`ts_endpoint.groups.offsets_store`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.archive.stored_object import Epoch, FieldKind, Presence, StoredObject, between, limited
from ts_common.errors import ObjectNotFound
from ts_common.json_objects import MAX_INT32, MIN_INT64
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

LONGEST_METADATA: Final = 1 << 20
LARGEST: Final = 32 << 20  # four times what a process keeps of one group: two processes' commits can be merged
# As in Kafka, or followed by `~` and the topic id of an incarnation.
_PARTITION: Final = re.compile(r"(?P<topic>[A-Za-z0-9._~-]{1,300})-(?P<partition>0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of one partition.

    Attributes:
        offset: the next offset that the group reads.
        epoch: leader epoch of the last record before it; -1 if the client has not sent it.
        time: milliseconds since the epoch: when it was committed.
    """

    offset: Annotated[int, between(MIN_INT64)]
    epoch: Epoch
    time: int
    metadata: Annotated[str, limited(LONGEST_METADATA)]


Offsets = Mapping[TopicPartition, Committed]


def _partition(name: str) -> TopicPartition:
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_INT32:
        raise ValueError(f"{name!r} is not a partition")
    return TopicPartition(match["topic"], int(match["partition"]))


@dataclass(frozen=True, slots=True)
class StoredGroup(
    StoredObject,
    expected="the offsets of a group",
    most=LARGEST,
    way_out="; delete the object, and the group has no committed offsets",
):
    """The content of a group's object.

    Attributes:
        time: milliseconds since the epoch: it was written.
        partitions: the committed offsets.
    """

    group: Annotated[str, limited(LARGEST)]
    time: Annotated[int, Presence.MAY_LACK]
    partitions: Mapping[Annotated[TopicPartition, FieldKind(_partition, str)], Committed]

    def encode(self) -> bytes:
        """Return the content of the object: one line, in UTF-8 without escapes."""
        return (json.dumps(self.fields(), separators=(",", ":"), ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """What the store has of a group.

    Attributes:
        offsets: the committed offsets; empty without an object.
        etag: of the object; None without one.
        data: the content of the object; empty without one.
    """

    offsets: Offsets
    etag: str | None
    data: bytes = field(default=b"", compare=False)


def is_partition(topic: str, partition: int) -> bool:
    """Return whether an offset of this partition can be stored."""
    return 0 <= partition <= MAX_INT32 and _PARTITION.fullmatch(f"{topic}-0") is not None


def read_offsets(store: ObjectStore, keys: ClusterKeys, group: str) -> StoredOffsets:
    """Return what the store has of a group.

    Args:
        store: of the cluster's own objects.

    Raises:
        CorruptData: the object is damaged, or belongs to another group.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = keys.offsets_of(group)
    try:
        data, info = get_small(store, key, LARGEST)
    except ObjectNotFound:
        return StoredOffsets({}, None)
    return StoredOffsets(StoredGroup.decode(data, key, group=group).partitions, info.etag, data)
