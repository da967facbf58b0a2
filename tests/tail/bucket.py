"""What agents and readers share: the objects of each partition, and the logs of packs."""

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.tail.kafka import Batch, Kafka, pairs_of
from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys, SegmentName, pack_number
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.tail_chain import TailEntry
from ts_common.model import TopicPartition

CLUSTER = ClusterKeys("model")


class Pack(NamedTuple):
    """An object of a log: all entries that the log still has, and the batches of its own, by position."""

    rows: tuple[TailEntry, ...]
    bodies: Mapping[int, tuple[Batch, ...]]


class Segment(NamedTuple):
    """A stored `.log`."""

    copy: SegmentCopy
    batches: tuple[Batch, ...]


@dataclass
class Archive:
    """One partition: its brokers and its objects.

    Attributes:
        etag: of the commit; each write makes another.
        start_etag: of `log.start`.
    """

    number: int
    kafka: Kafka
    commit: Commit | None = None
    etag: int = 0
    log_start: LogStart | None = None
    start_etag: int = 0
    segments: dict[SegmentName, Segment] = field(default_factory=dict)

    @property
    def keys(self) -> PartitionKeys:
        """The keys of the partition."""
        return CLUSTER.partition(TopicPartition("t", self.number))

    def own(self, entries: Iterable[tuple[str, TailEntry]]) -> Iterator[tuple[str, TailEntry]]:
        """Yield the entries of this partition."""
        return ((log, entry) for log, entry in entries if entry.directory == self.keys.directory)

    def put_commit(self, commit: Commit, etag: int) -> int | None:
        """Write a commit on an ETag; return the new ETag, or None if it has another one."""
        if self.etag != etag:
            return None
        self.commit = commit
        self.etag += 1
        return self.etag

    def put_start(self, start: LogStart, etag: int) -> bool:
        """Write `log.start` on an ETag; return whether it had that."""
        if self.start_etag != etag:
            return False
        self.log_start = start
        self.start_etag += 1
        return True

    def segment(self, base: int, end: int, epoch: int, held: Sequence[Batch], history: EpochHistory) -> Segment:
        """Return a `.log` object; where it lacks batches, its epochs are those of the broker's list."""
        name = SegmentName(base, epoch, zlib.crc32(repr(held).encode()))
        pairs = pairs_of(held)
        records = sum(batch.end - batch.first for batch in held)
        if records < end - base:
            pairs = history.from_offset(base).below(end).pairs
        metadata = SegmentMetadata(end, pairs, records, None, None, 0)
        return Segment(SegmentCopy(self.keys, StoredSegment(name, 1, frozenset()), metadata), tuple(held))

    def put_segment(self, segment: Segment) -> bool:
        """Put a `.log`; it is done if it exists."""
        self.segments[segment.copy.segment.name] = segment
        return True


@dataclass
class Bucket:
    """The store.

    Attributes:
        logs: by name of the log, its objects by name.
    """

    archives: list[Archive]
    logs: dict[str, dict[str, Pack]] = field(default_factory=dict)

    def newest(self, log: str) -> int:
        """Return the number of the newest pack, by a listing; 0 without one."""
        return next((number for name in sorted(self.logs.get(log, {})) if (number := pack_number(name)) is not None), 0)

    def get(self, log: str, name: str) -> Pack | None:
        """Return an object; None if it does not exist."""
        return self.logs.get(log, {}).get(name)

    def put(self, log: str, name: str, pack: Pack, *, if_absent: bool = True) -> bool:
        """Put an object where none exists; return whether it did so."""
        objects = self.logs.setdefault(log, {})
        if if_absent and name in objects:
            return False
        objects[name] = pack
        return True

    def delete(self, log: str, names: Collection[str]) -> int:
        """Delete objects; return how many existed."""
        objects = self.logs.get(log, {})
        return sum(objects.pop(name, None) is not None for name in names)
