"""The coverage of stored segments: what each listed `.log` covers, and which epochs, records and timestamps it has.

`describe` reads it in the segment metadata cache (`ts_common.archive.metadata_cache`) first. For segments that the
cache lacks it reads the metadata of the `.log`, and of a Java uploader's segment the bytes.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

import structlog

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.fetch import ResumableReader, translate_not_found
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, CacheObject, cache_objects_for
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.segment_inspection import describe_segment
from ts_common.archive.segment_metadata import SegmentMetadata, known_crc32c
from ts_common.archive.small_objects import get_small
from ts_common.archive.tail_chain import Aborted
from ts_common.call_waits import CallWaits
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.log_format.framing import NO_EPOCH
from ts_common.store.contract import ByteRange, ObjectStore

log = structlog.get_logger()

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_HEAD_THREADS: Final = 8  # a HEAD waits for the network, not for the processor
# Up to this many requests are sent one after the other: a caller with many partitions reads several in parallel.
_FEW: Final = 4
_FEW_ENTRIES: Final = 16  # of a cache object; more cost more than all
_WAITS: Final = CallWaits()  # over a directory threads would compete for the processor


@dataclass(frozen=True, slots=True)
class Packed:
    """Where the batches of an entry of a live tail are.

    Attributes:
        position: of the first batch in it.
        aborted: as of the entry.
    """

    key: str
    position: int
    aborted: tuple[Aborted, ...] | None


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A stored segment with its coverage; several copies can contain the same offsets.

    Attributes:
        segment: the `.log` as a listing shows it.
        metadata: coverage, epochs, counts and checksums of the `.log`.
        packed: of an entry of a live tail, which has no `.log`: its bytes are a part of another object. `segment` then
            has its first offset and its length.
    """

    keys: PartitionKeys
    segment: StoredSegment
    metadata: SegmentMetadata
    packed: Packed | None = None

    @property
    def base(self) -> int:
        """First offset of the coverage."""
        return self.segment.name.base

    @property
    def end(self) -> int:
        """End of the coverage, exclusive."""
        return self.metadata.end

    @property
    def dense(self) -> bool:
        """Whether each offset of the coverage has a record, so that no other copy has one that this copy lacks."""
        return self.metadata.records == self.end - self.base and not self.metadata.corruptions

    @property
    def contradicted(self) -> bool:
        """Whether records can have other offsets than their headers: a producer's mistake, or old compressed messages.

        The agent counts no records of such a segment.
        """
        return self.metadata.records is None and known_crc32c(self.metadata) is not None

    @property
    def may_overrun(self) -> bool:
        """Whether a record can be at or above the end, by what the agent saw; messages of magic 0 and 1 alone are not.

        Their compressed sets do not show it, and have no epoch.
        """
        epochs = self.metadata.epochs
        return self.contradicted and (epochs is None or any(epoch != NO_EPOCH for epoch, _ in epochs))

    @property
    def key(self) -> str:
        """Key of the `.log` object; of an entry, another text that identifies it."""
        return (
            self.keys.segment(self.segment.name) if self.packed is None else f"{self.packed.key}@{self.packed.position}"
        )

    def read(self, store: ObjectStore, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the copy; raise as `ObjectStore.get`."""
        if self.packed is None:
            return store.get(self.key, ByteRange(start, end))[0]
        first = self.packed.position
        return store.get(self.packed.key, ByteRange(first + start, first + end))[0]

    def reader(self, store: ObjectStore, start: int = 0, end: int | None = None) -> ResumableReader:
        """Return a reader of the bytes of the copy; `end` as of `ResumableReader`."""
        if self.packed is None:
            return ResumableReader(store, self.key, start, end)
        first = self.packed.position
        return ResumableReader(
            store, self.packed.key, first + start, first + (self.segment.size if end is None else end)
        )


NOTHING_KNOWN: Final[Mapping[StoredSegment, SegmentCopy]] = MappingProxyType({})


def describe(
    store: ObjectStore,
    keys: PartitionKeys,
    segments: Sequence[StoredSegment],
    cache_objects: Sequence[int] = (),
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
    removed: list[StoredSegment] | None = None,
) -> tuple[SegmentCopy, ...]:
    """Return the coverage of each segment, in the order of `segments`.

    Args:
        cache_objects: first bases of the snapshot's cache objects. Only those that these segments belong to are read.
        known: copies from earlier calls. A `.log` never changes, so no request is sent for them; its storage class can.
            Those of other directories are not used.
        damaged: receives a message for each segment without usable metadata and batches, which is then left out;
            None to raise.
        removed: receives each segment whose object no longer exists, which is then left out; None to raise.

    Raises:
        CorruptData: a segment does not begin with a batch, or its metadata is damaged.
        ObjectNotFound: retention removed a segment since the snapshot.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    known = {segment: copy for segment, copy in known.items() if copy.keys == keys} if known else known
    cached = _read_cache_objects(store, keys, [segment for segment in segments if segment not in known], cache_objects)
    copies: list[SegmentCopy | None] = []
    for segment in segments:
        copy = known.get(segment) if known else None
        if copy is not None and copy.segment.is_frozen is not segment.is_frozen:
            copy = SegmentCopy(keys, segment, copy.metadata)
        if copy is None and (metadata := cached(segment)) is not None:
            copy = SegmentCopy(keys, segment, metadata)
        copies.append(copy)

    def inspect(segment: StoredSegment) -> SegmentCopy | None:
        try:
            with translate_not_found(store, keys.segment(segment.name)):
                metadata = describe_segment(
                    store, keys, segment.name, segment.size, has_index=".index" in segment.suffixes
                )
        except ObjectNotFound:
            if removed is None:
                raise
            removed.append(segment)
            return None
        except CorruptData as error:
            if damaged is None:
                raise
            damaged.append(f"{keys.partition}: {error}; the segment is left out")
            return None
        return SegmentCopy(keys, segment, metadata)

    inspected = iter(_each(inspect, [segment for segment, copy in zip(segments, copies, strict=True) if copy is None]))
    return tuple(copy for copy in (copy or next(inspected) for copy in copies) if copy is not None)


def _read_cache_objects(
    store: ObjectStore, keys: PartitionKeys, segments: Sequence[StoredSegment], cache_objects: Sequence[int]
) -> Callable[[StoredSegment], SegmentMetadata | None]:
    """Read the cache objects of these segments, and return a function that finds a segment's metadata in them."""
    wanted = cache_objects_for(cache_objects, {segment.name.base for segment in segments}) if cache_objects else []
    counts = Counter(bisect_right(wanted, segment.name.base) - 1 for segment in segments)
    few = [counts[at] <= _FEW_ENTRIES for at in range(len(wanted))]
    read = _each(lambda each: _read_cache_object(store, keys, *each), list(zip(wanted, few, strict=True)))

    def find(segment: StoredSegment) -> SegmentMetadata | None:
        at = bisect_right(wanted, segment.name.base) - 1
        cache_object = read[at] if at >= 0 else None
        return None if cache_object is None else cache_object.find(segment.name, segment.size, segment.etag)

    return find


def _read_cache_object(store: ObjectStore, keys: PartitionKeys, first: int, few: bool) -> CacheObject | None:
    """Return a cache object; None if it is missing, damaged, frozen or of a later release; `few` as of it."""
    key = keys.cache_object(first)
    try:
        return CacheObject(get_small(store, key, CACHE_OBJECT_BYTES)[0], keys, key, few=few)
    except (ObjectNotFound, CorruptData, NewerFormat, ObjectFrozen) as error:
        log.warning("metadata_cache_unusable", key=key, reason=str(error))
        return None


def _each(function: Callable[[_In], _Out], inputs: Sequence[_In]) -> list[_Out]:
    found: list[_Out] = []
    while left := inputs[len(found) :]:
        if len(left) > _FEW and _WAITS.prevail.is_set():
            with ThreadPoolExecutor(min(_HEAD_THREADS, len(left)), "copies") as pool:
                return [*found, *pool.map(function, left)]
        found.append(_WAITS.measure(partial(function, left[0])))
    return found
