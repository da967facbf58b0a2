"""Committed offsets of one group, and how the commits of two processes are merged.

The rule: of each partition the commit with the later time stays. The time of a commit is that of the clock, but later
than the time of the commit that it replaces. So a commit never loses to one that its process has read, even if the
process has a slow clock. Two processes commit without having read each other's commits only while the owner of a group
changes. Then their clocks decide.

Other rules are worse. An order by writes would let the last flush of a former owner win over the commits of the new
one. The greater offset must not win, because an operator can reset a group to an earlier offset.

A group, or an offset of it, that was deleted keeps the time of the deletion. Commits of other processes up to then are
deleted, and later ones stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ts_common.archive.group_offsets import Committed, Offsets
from ts_common.json_objects import MAX_INT64
from ts_common.model import TopicPartition

_OWN_BYTES: Final = 350  # of one committed offset in memory, without its texts


def size_of(partition: TopicPartition, committed: Committed) -> int:
    """Return about how many bytes a committed offset needs, in memory or stored; the larger of both."""
    return _OWN_BYTES + len(partition.topic) + 6 * len(committed.metadata)  # a control character of JSON


@dataclass(slots=True)
class Unwritten:
    """What a process has to write of a group.

    Attributes:
        offsets: all committed offsets of the group, as far as this process has them.
        changed: partitions with commits that are not stored yet.
        deleted_at: milliseconds since the epoch: the group was deleted; 0 if it was not.
        etag: of the object that the other offsets were read from; None without an object.
        is_read: whether the object was read, and no later write failed.
        removed: partitions whose offsets were deleted, with the milliseconds since the epoch.
    """

    group: str
    offsets: Offsets
    changed: frozenset[TopicPartition]
    deleted_at: int
    etag: str | None
    is_read: bool
    removed: Mapping[TopicPartition, int] = field(default_factory=dict)

    def merged(self, stored: Offsets) -> dict[TopicPartition, Committed]:
        """Return the offsets after a merge with those that another process stored."""
        result = {
            partition: theirs
            for partition, theirs in stored.items()
            if theirs.time > max(self.deleted_at, self.removed.get(partition, 0))
        }
        for partition in self.changed:
            ours, theirs = self.offsets[partition], result.get(partition)
            if theirs is None or ours.time >= theirs.time:
                result[partition] = ours
        return result


@dataclass(slots=True, eq=False)
class GroupOffsets:
    """The offsets of one group in memory.

    Attributes:
        offsets: the committed offsets.
        changed: partitions with commits that are not stored yet.
        deleted_at: as of `Unwritten`; 0 once the deletion is stored.
        removed: as of `Unwritten`; without the deletions that are stored.
        etag: as of `Unwritten`.
        is_read: as of `Unwritten`.
        is_loaded: whether `offsets` has what the store had when this process became the owner.
        is_released: whether another process owns the group now.
        bytes: about how many bytes of memory the offsets need.
        used: time of the event loop: last use.
        seen: time of the event loop: `offsets` had what the store has.
    """

    group: str
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    changed: set[TopicPartition] = field(default_factory=set)
    deleted_at: int = 0
    removed: dict[TopicPartition, int] = field(default_factory=dict)
    etag: str | None = None
    is_read: bool = False
    is_loaded: bool = False
    is_released: bool = False
    bytes: int = 0
    used: float = 0.0
    seen: float = 0.0

    @property
    def is_written(self) -> bool:
        """Whether the store has everything."""
        return not self.changed and not self.deleted_at and not self.removed

    @property
    def last_commit(self) -> int:
        """Milliseconds since the epoch: time of the last commit; 0 without one."""
        return max((committed.time for committed in self.offsets.values()), default=0)

    def commit(self, partition: TopicPartition, offset: int, epoch: int, metadata: str, now: int) -> int:
        """Commit an offset; return by how many bytes the memory grows."""
        former = self.offsets.get(partition)
        after = max(self.deleted_at, self.removed.get(partition, 0), former.time if former is not None else 0)
        committed = Committed(offset, epoch, min(max(now, after + 1), MAX_INT64), metadata)
        grown = size_of(partition, committed) - (size_of(partition, former) if former is not None else 0)
        self.offsets[partition] = committed
        self.changed.add(partition)
        self.bytes += grown
        return grown

    def delete(self, now: int) -> None:
        """Delete all offsets."""
        self.deleted_at = max(now, self.last_commit, self.deleted_at, *self.removed.values())
        self.offsets.clear()
        self.changed.clear()
        self.removed.clear()
        self.bytes = 0

    def remove(self, partitions: Iterable[TopicPartition], now: int) -> int:
        """Delete the offsets of partitions that have one; return by how many bytes the memory shrinks."""
        before = self.bytes
        for partition in partitions:
            former = self.offsets.pop(partition, None)
            if former is not None:
                self.removed[partition] = max(now, former.time)
                self.changed.discard(partition)
                self.bytes -= size_of(partition, former)
        return before - self.bytes

    def release(self) -> None:
        """Record that another process owns the group: before the next use the object must be read again."""
        self.is_released, self.is_loaded, self.is_read = True, False, False

    def unwritten(self) -> Unwritten:
        """Return what is to be written, as it is now."""
        changed = frozenset(self.changed)
        offsets, removed = dict(self.offsets), dict(self.removed)
        return Unwritten(self.group, offsets, changed, self.deleted_at, self.etag, self.is_read, removed)

    def written(self, what: Unwritten, stored: Offsets, etag: str | None) -> None:
        """Record that the store has offsets; commits that were made during the write stay changed."""
        self.changed = {
            partition for partition in self.changed if self.offsets[partition] is not what.offsets.get(partition)
        }
        if self.deleted_at == what.deleted_at:
            self.deleted_at = 0
        self.removed = {each: time for each, time in self.removed.items() if what.removed.get(each) != time}
        self.read(stored, etag)

    def read(self, stored: Offsets, etag: str | None) -> None:
        """Record what the store has; changed partitions are merged with it."""
        ours = self.unwritten()
        self.offsets = ours.merged(stored)
        self.changed = {partition for partition in ours.changed if self.offsets[partition] is ours.offsets[partition]}
        self.bytes = sum(size_of(partition, committed) for partition, committed in self.offsets.items())
        self.etag = etag
        self.is_read = self.is_loaded = not self.is_released
