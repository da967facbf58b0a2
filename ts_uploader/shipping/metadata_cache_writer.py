"""Writing cache objects, so that readers need not ask for each segment (see `ts_common.archive.metadata_cache`).

No part of the protocol: whatever happens here, shipping neither waits nor fails, and a cache object that was not
written costs readers time. So a thread of its own writes them, one attempt each, once a partition's commits have passed
enough segments; the next attempt makes up for one that failed. Of a partition little is remembered: how many segments
its commits have passed since the last attempt, and which cache object was the newest, to spare a listing. What cache
objects there are and what they lack, the store says.

A cache object is written over the one that was read, or where there is none. Two agents that write at once (a former
leader may) disturb nobody: each entry is true by itself, and the second is refused.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from ts_common.archive.metadata_cache import (
    CACHE_OBJECT_BYTES,
    CACHE_OBJECT_SEGMENTS,
    CacheEntry,
    CacheObject,
    encode_cache_object,
    parse_cache_object_name,
)
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, TieredStorageError
from ts_common.store.contract import IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_uploader.work_queue import WorkQueue

log = structlog.get_logger()

# Readers ask for what no cache object holds yet: half a segment of each partition on average. An attempt takes a GET, a
# listing, a PUT and a HEAD for each segment; shipping two segments takes at least ten requests, eight of them PUTs.
SEGMENTS_PER_CACHE_OBJECT_WRITE = 2


class CacheWriter:
    """Writes cache objects behind the commits.

    Args:
        store_of: the store that holds a topic's objects.
        is_throttled: whether a store refuses requests for being asked too fast; cache objects wait then.
        every: a partition's cache object is written when its commits have passed so many segments.
    """

    def __init__(
        self,
        store_of: Callable[[str], ObjectStore],
        is_throttled: Callable[[], bool] = lambda: False,
        every: int = SEGMENTS_PER_CACHE_OBJECT_WRITE,
    ) -> None:
        self._store_of = store_of
        self._is_throttled = is_throttled
        self._every = every
        self._due: WorkQueue[PartitionKeys] = WorkQueue()
        self._lock = threading.Lock()  # guards what follows
        # By the partition's prefix: segments since the last attempt, and the next offset as last committed.
        self._passed: dict[str, tuple[int, int]] = {}
        self._waiting: set[str] = set()  # what is in the queue
        self._newest: dict[str, int] = {}  # the newest cache object's first base by prefix; touched by `run` alone

    @property
    def waiting(self) -> int:
        """How many partitions wait for their cache object."""
        with self._lock:
            return len(self._waiting)

    def committed(self, keys: PartitionKeys, next_offset: int, segments: int) -> None:
        """A commit has passed so many more segments of a partition. Never blocks, and asks nothing.

        Args:
            keys: of the partition.
            next_offset: as committed; everything below it stands in the store.
            segments: how many the commit has passed.
        """
        with self._lock:
            passed, latest = self._passed.get(keys.prefix, (0, next_offset))
            passed += segments
            self._passed[keys.prefix] = passed, max(latest, next_offset)
            if passed < self._every or keys.prefix in self._waiting:
                return
            self._waiting.add(keys.prefix)
        self._due.put(keys.prefix, keys)

    def run(self) -> None:
        """Write what is due, until `close`."""
        while (keys := self._due.get()) is not None:
            with self._lock:
                self._waiting.discard(keys.prefix)
                if self._is_throttled():
                    continue  # the count stays, so that the next commit is the next attempt
                # As far as is committed by now: it may be further than when this became due.
                _, next_offset = self._passed.pop(keys.prefix)
            try:
                first, added = write_cache_object(
                    self._store_of(keys.partition.topic), keys, next_offset, self._newest.pop(keys.prefix, None)
                )
            except (TieredStorageError, OSError) as error:
                log.info(
                    "cache_object_not_written",
                    message="readers read the metadata of each segment",
                    key=keys.cache_objects,
                    reason=str(error),
                )
                continue
            except Exception:
                log.exception(
                    "internal_error", message="a cache object was not written; please report it", key=keys.cache_objects
                )
                continue
            if first is not None:
                self._newest[keys.prefix] = first
            if added > self._every:  # more may stand there, from before there were cache objects or after failures
                self.committed(keys, next_offset, self._every)

    def close(self) -> None:
        """Drop what is due, and let `run` return after what it is writing."""
        self._due.close()


def write_cache_object(
    store: ObjectStore, keys: PartitionKeys, next_offset: int, newest: int | None = None
) -> tuple[int | None, int]:
    """Bring a partition's newest cache object up to date, or begin the next one; at most one cache object at a time.

    What stands at or above the next offset is left for later: one before it may still be under way. So is what stands
    behind a segment of a later release's format.

    Args:
        store: where they lie.
        keys: of the partition.
        next_offset: as committed.
        newest: first base of what was the newest cache object; it still is if it is not full. None where nobody knows.

    Returns:
        The first base of what is the newest cache object now (None where there is none), and how many segments were
        added.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent does the same.
        NewerFormat: the newest cache object is a later release's, or may be (it is too large), and stays as it is.
        StoreUnavailable, AccessDenied, BucketMissing, ObjectNotFound: the store's.
    """
    found = None if newest is None else _read(store, keys, newest)
    if found is None or len(found.entries) >= CACHE_OBJECT_SEGMENTS:
        found = _find_newest(store, keys)
    after, begun = "", found
    if found is not None:  # a damaged one is made again
        after = keys.segment(found.entries[-1].name) if found.entries else keys.segment(SegmentName(found.first), "")
        if len(found.entries) >= CACHE_OBJECT_SEGMENTS:
            begun = None
    known = begun.entries if begun else []
    added = []
    for name, info in islice(_logs(store, keys, after, next_offset), CACHE_OBJECT_SEGMENTS - len(known)):
        try:
            added.append(_entry(store, name, info))
        except NewerFormat as later:
            # An agent of that release goes on from here; what was asked so far is not to be asked again.
            log.info(
                "cache_object_cut",
                message="a later release wrote the next segment",
                key=keys.cache_objects,
                reason=str(later),
            )
            break
    if not added:
        return (found.first if found else None), 0
    first = begun.first if begun else added[0].name.base
    store.put(
        keys.cache_object(first),
        encode_cache_object(keys, [*known, *added]),
        condition=IfMatch(begun.etag) if begun else IfAbsent(),
    )
    return first, len(added)


@dataclass(frozen=True, slots=True)
class _Found:
    """A cache object in the store; without entries where it is damaged."""

    first: int
    entries: list[CacheEntry]
    etag: str


def _find_newest(store: ObjectStore, keys: PartitionKeys) -> _Found | None:
    found = {
        parse_cache_object_name(info.key.removeprefix(keys.cache_objects)): info
        for info in store.list(keys.cache_objects)
    }
    first = max((first for first in found if first is not None), default=None)
    if first is None:
        return None
    if found[first].size > CACHE_OBJECT_BYTES:
        raise NewerFormat(
            f"{found[first].key} has {found[first].size} bytes, and this release reads up to {CACHE_OBJECT_BYTES}: it "
            "may be a later release's and stays as it is; remove it where there is none"
        )
    return _read(store, keys, first)


def _read(store: ObjectStore, keys: PartitionKeys, first: int) -> _Found | None:
    """A cache object; None where somebody took it away."""
    key = keys.cache_object(first)
    try:
        data, info = get_small(store, key, CACHE_OBJECT_BYTES)
    except ObjectNotFound:
        return None
    try:
        return _Found(first, CacheObject(data, keys, key).entries(), info.etag)
    except CorruptData:
        return _Found(first, [], info.etag)


def _logs(
    store: ObjectStore, keys: PartitionKeys, after: str, next_offset: int
) -> Iterator[tuple[SegmentName, ObjectInfo]]:
    """The `.log` objects behind a key and below an offset."""
    for info in store.list(keys.prefix, start_after=after):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is None or parsed[0].base >= next_offset:
            return
        if parsed[1] == LOG_SUFFIX:
            yield parsed[0], info


def _entry(store: ObjectStore, name: SegmentName, listed: ObjectInfo) -> CacheEntry:
    """What a cache object says of an object; nothing where that is of no use to readers, who then look themselves.

    Raises:
        NewerFormat: its metadata is a later release's.
    """
    try:
        metadata = decode_metadata(store.head(listed.key).metadata, listed.key)
    except CorruptData:
        metadata = None
    useful = metadata is not None and metadata.epochs is not None
    return CacheEntry(name, listed.size, listed.etag, metadata if useful else None)
