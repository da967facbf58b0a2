"""The stored offsets of groups: one object of each group (`ts_common.archive.group_offsets`).

The process that owns the group writes the object on its ETag. If another process wrote it, both are merged
(`ts_endpoint.groups.offsets`) and written again.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ts_common.archive.group_offsets import LARGEST, StoredGroup, StoredOffsets, read_offsets
from ts_common.archive.object_keys import ClusterKeys, encoded_group
from ts_common.archive.small_objects import checked
from ts_common.errors import OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_endpoint.groups.offsets import Unwritten

# Some file systems allow 255 bytes in a name, and drivers append a suffix while they write.
LONGEST_NAME: Final = 200
_ATTEMPTS: Final = 5
_PROBE: Final = "~probe"  # the object of no group: these end in .json


def can_be_stored(group: str) -> bool:
    """Return whether every store can have an object of this group: its name is not too long."""
    return len(group) <= LONGEST_NAME and len(encoded_group(group)) <= LONGEST_NAME


class OffsetsStore:
    """Reads and writes the offsets of a cluster's groups. Each call blocks, and may run on any thread.

    Args:
        store: the store of the cluster's own objects.
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
            CorruptData, NewerFormat: as `read_offsets`.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        return read_offsets(self._store, self._keys, group)

    def write(self, what: Unwritten) -> StoredOffsets:
        """Write the offsets of a group, merged with what other processes wrote; return what the store then has.

        The object is deleted if no offset is left.

        Raises:
            CorruptData, NewerFormat: the stored object cannot be read. It stays as it is.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = self._keys.offsets_of(what.group)
        offsets, etag = dict(what.offsets), what.etag
        must_read = not what.is_read or not offsets
        for _ in range(_ATTEMPTS):
            if must_read:
                stored = self.read(what.group)
                offsets, etag = what.merged(stored.offsets), stored.etag
            if not offsets:
                if etag is not None:
                    self._store.delete([key])
                return StoredOffsets({}, None)
            data = checked(StoredGroup(what.group, self._clock(), offsets).encode(), key, LARGEST)
            try:
                info = self._store.put(key, data, condition=IfAbsent() if etag is None else IfMatch(etag))
            except (PreconditionFailed, OutcomeUnknown):
                # Another process wrote, or this write had no response. Only a read shows which.
                stored = self.read(what.group)
                if stored.data == data:
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
