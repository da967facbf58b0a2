"""The stored offsets of groups: one object of each group, in `groups/<group, percent-encoded>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/groups/reports%2Fdaily.json
    {"version":1,"group":"reports/daily","time":1700000000000,"partitions":{"orders-0":[4711,3,1699999998000,""]}}

For each partition the object has the committed offset, the leader epoch of the record before it or -1, the time of the
commit in milliseconds since the epoch, and the client's metadata. The process that owns the group writes the object on
its ETag. If another process wrote it, both are merged (`ts_endpoint.groups.offsets`) and written again.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, encoded_group
from ts_common.archive.small_objects import checked, get_small
from ts_common.errors import ObjectNotFound, OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.format_version import VERSION
from ts_common.json_objects import MAX_INT32, MIN_INT64, decoding, parse_fields, rows, text, whole_number
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_endpoint.groups.offsets import Committed, Offsets, Unwritten

# Some file systems allow 255 bytes in a name, and drivers append a suffix while they write.
LONGEST_NAME: Final = 200
LONGEST_METADATA: Final = 1 << 20
_LARGEST: Final = 32 << 20  # four times what a process keeps of one group: two processes' commits can be merged
_ATTEMPTS: Final = 5
_PROBE: Final = "~probe"  # the object of no group: these end in .json
# As in Kafka, or followed by `~` and the topic id of an incarnation.
_PARTITION: Final = re.compile(r"(?P<topic>[A-Za-z0-9._~-]{1,300})-(?P<partition>0|[1-9][0-9]{0,9})")
_EXPECTED: Final = "the offsets of a group"


def can_be_stored(group: str) -> bool:
    """Return whether every store can have an object of this group: its name is not too long."""
    return len(group) <= LONGEST_NAME and len(encoded_group(group)) <= LONGEST_NAME


def is_partition(topic: str, partition: int) -> bool:
    """Return whether an offset of this partition can be stored."""
    return 0 <= partition <= MAX_INT32 and _PARTITION.fullmatch(f"{topic}-0") is not None


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """What the store has of a group.

    Attributes:
        offsets: the committed offsets; empty without an object.
        etag: of the object; None without one.
    """

    offsets: Offsets
    etag: str | None


def encode_offsets(group: str, offsets: Offsets, time: int) -> bytes:
    """Return the content of a group's object: one line.

    Args:
        group: its id.
        offsets: the committed offsets.
        time: milliseconds since the epoch: it is written.
    """
    fields = {
        "version": VERSION,
        "group": group,
        "time": time,
        "partitions": {
            str(partition): [committed.offset, committed.epoch, committed.time, committed.metadata]
            for partition, committed in sorted(offsets.items())
        },
    }
    return (json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def decode_offsets(data: bytes, group: str, key: str) -> dict[TopicPartition, Committed]:
    """Parse the content of a group's object; unknown fields are ignored.

    Args:
        data: the content.
        group: id of the expected group.
        key: key of the object, for messages.

    Raises:
        CorruptData: the content is damaged, or belongs to another group.
        NewerFormat: a later release wrote it.
    """
    way_out = "; delete the object, and the group has no committed offsets"
    fields = parse_fields(data, key, _EXPECTED, _LARGEST, way_out=way_out)
    with decoding(key, _EXPECTED, data, way_out):
        if fields["group"] != group:
            raise ValueError(f"group {fields['group']!r}; {group!r} is expected")
        return dict(_committed(name, value) for name, value in fields["partitions"].items())


class OffsetsStore:
    """Reads and writes the offsets of a cluster's groups. Each call blocks, and may run on any thread.

    Args:
        store: the store of the cluster's own objects.
        keys: of the cluster.
        clock: returns milliseconds since the epoch.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys, clock: Callable[[], int]) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock

    def check(self) -> None:
        """Write an object among those of groups and delete it, so that a missing right shows before the first commit.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: the store failed, or rejects this identity.
        """
        key = self._keys.groups + _PROBE
        with suppress(OutcomeUnknown):
            self._store.put(key, b"")
        self._store.delete([key])

    def read(self, group: str) -> StoredOffsets:
        """Return what the store has of a group.

        Raises:
            CorruptData, NewerFormat: as `decode_offsets`.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        return self._read(group)[0]

    def write(self, what: Unwritten) -> StoredOffsets:
        """Write the offsets of a group, merged with what other processes wrote; return what the store then has.

        The object is deleted if no offset is left.

        Raises:
            CorruptData, NewerFormat: the stored object cannot be read. It stays as it is.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = self._key(what.group)
        offsets, etag = dict(what.offsets), what.etag
        must_read = not what.is_read or not offsets
        for _ in range(_ATTEMPTS):
            if must_read:
                stored, _ = self._read(what.group)
                offsets, etag = what.merged(stored.offsets), stored.etag
            if not offsets:
                if etag is not None:
                    self._store.delete([key])
                return StoredOffsets({}, None)
            data = checked(encode_offsets(what.group, offsets, self._clock()), key, _LARGEST)
            try:
                info = self._store.put(key, data, condition=IfAbsent() if etag is None else IfMatch(etag))
            except (PreconditionFailed, OutcomeUnknown):
                # Another process wrote, or this write had no response. Only a read shows which.
                stored, found = self._read(what.group)
                if found == data:
                    return stored
                must_read = True
            else:
                return StoredOffsets(offsets, info.etag)
        raise StoreUnavailable(f"{key}: other processes changed it {_ATTEMPTS} times during a write; try again")

    def groups(self) -> Iterator[tuple[str, float]]:
        """Yield each group with an object, and the seconds since the epoch of its last write; ignore other names.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        for info in self._store.list(self._keys.groups):
            group = self._keys.group_of(info.key)
            if group is not None:
                yield group, info.modified

    def _key(self, group: str) -> str:
        return self._keys.offsets_of(group)

    def _read(self, group: str) -> tuple[StoredOffsets, bytes]:
        key = self._key(group)
        try:
            data, info = get_small(self._store, key, _LARGEST)
        except ObjectNotFound:
            return StoredOffsets({}, None), b""
        return StoredOffsets(decode_offsets(data, group, key), info.etag), data


def _committed(name: str, value: object) -> tuple[TopicPartition, Committed]:
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_INT32:
        raise ValueError(f"{name!r} is not a partition")
    offset, epoch, time, metadata = rows(value)
    return TopicPartition(match["topic"], int(match["partition"])), Committed(
        whole_number(offset, MIN_INT64),
        whole_number(epoch, -1, MAX_INT32),
        whole_number(time),
        text(metadata, LONGEST_METADATA),
    )
