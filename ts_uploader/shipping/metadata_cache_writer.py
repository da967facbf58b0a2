"""Writes cache objects, so that readers need no request for each segment (see `ts_common.archive.metadata_cache`).

Not a part of the protocol: shipping never waits for it or fails by it, and a missing cache object only costs readers
time. Its own thread writes them, one attempt each, once a partition's commits have passed enough segments; the next
attempt replaces a failed one. Three facts are kept for a partition: how many segments its commits have passed since the
last attempt, the entries of those that this process put, and the newest cache object.

If this process put all segments since the newest entry, up to the next offset, their entries are complete: it lists
nothing, and reads no metadata. That needs a store whose listings show the ETags that its responses to puts have, which
the first listing shows. A segment of another agent among them has no entry then, and readers read its metadata.

A cache object replaces only the one that was read, or is created where none exists. Two agents that write at once (a
former leader can) do no harm: each entry is correct by itself, and the store rejects the second write.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import structlog

from ts_common.archive.cache_rewriting import cache_entry
from ts_common.archive.high_watermarks import all_agents_read
from ts_common.archive.metadata_cache import (
    CACHE_OBJECT_BYTES,
    CACHE_OBJECT_SEGMENTS,
    CacheEntry,
    CacheObject,
    encode_cache_object,
    parse_cache_object_name,
)
from ts_common.archive.object_keys import LOG_SUFFIX, SEAL_NAME, PartitionKeys, SegmentName
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, TieredStorageError
from ts_common.format_version import VERSION
from ts_common.store.contract import IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_uploader.process.work_queue import WorkQueue
from ts_uploader.shipping.sealing import seal

log = structlog.get_logger()

# Readers query the segments that no cache object has: half a segment of each partition on average. An attempt costs a
# GET and a PUT; shipping two segments costs at least ten requests, eight of them PUTs.
SEGMENTS_PER_CACHE_OBJECT_WRITE = 2
_MOST_OWN = 16  # entries of a partition that wait for an attempt
_READY_SECONDS = 3600.0


class CacheWriter:
    """Writes cache objects after the commits.

    Args:
        store_of: returns the store of a topic.
        is_throttled: returns whether a store throttled a request lately; then no cache object is written.
        every: number of segments that commits pass between two writes of a partition's cache object.
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
        self._lock = threading.Lock()  # guards the following fields
        # By the partition's prefix: segments since the last attempt, and the last committed next offset.
        self._passed: dict[str, tuple[int, int]] = {}
        self._own: dict[str, tuple[CacheEntry, ...]] = {}  # of segments that were put since the last attempt
        self._waiting: set[str] = set()  # prefixes in the queue
        self._ready: dict[str, tuple[float, bool]] = {}  # by location, when and whether all agents enter tokens
        # Used only by `run`.
        self._newest: dict[str, int] = {}  # the newest cache object's first base by prefix
        self._as_put: set[str] = set()  # locations whose listings have the ETags of puts

    @property
    def waiting(self) -> int:
        """The number of partitions whose cache object is due."""
        with self._lock:
            return len(self._waiting)

    def committed(self, keys: PartitionKeys, next_offset: int, segments: int, own: Sequence[CacheEntry] = ()) -> None:
        """Count segments that a commit has passed; never blocks and sends no request.

        Args:
            next_offset: the committed one; the store has everything below it.
            segments: number of segments that the commit has passed.
            own: the entries of those that this process put.
        """
        with self._lock:
            passed, latest = self._passed.get(keys.prefix, (0, next_offset))
            passed += segments
            self._passed[keys.prefix] = passed, max(latest, next_offset)
            entries = (*self._own.get(keys.prefix, ()), *own)
            self._own[keys.prefix] = entries if len(entries) <= _MOST_OWN else ()
            if passed < self._every or keys.prefix in self._waiting:
                return
            self._waiting.add(keys.prefix)
        self._due.put(keys.prefix, keys)

    def run(self) -> None:
        """Write due cache objects until `close`."""
        while (keys := self._due.get()) is not None:
            with self._lock:
                self._waiting.discard(keys.prefix)
                if self._is_throttled():
                    continue  # the count stays, so that the next commit is the next attempt
                # The latest commit: it may be further than when the write became due.
                _, next_offset = self._passed.pop(keys.prefix)
                own = self._own.pop(keys.prefix, ())
            try:
                store, newest = self._store_of(keys.partition.topic), self._newest.pop(keys.prefix, None)
                first, added = write_cache_object(store, keys, next_offset, newest, own, self._as_put)
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
            if None not in {first, newest} and first != newest:  # one is full
                self._seal(store, keys)
            if added > self._every:  # more may be missing, from before cache objects existed or after failures
                self.committed(keys, next_offset, self._every)

    def _seal(self, store: ObjectStore, keys: PartitionKeys) -> None:
        """Seal what can be sealed of a partition, if all agents enter tokens."""
        try:
            now = time.monotonic()
            at, is_ready = self._ready.get(store.location, (-_READY_SECONDS, False))
            if now - at >= _READY_SECONDS:
                is_ready = all_agents_read(store, keys.cluster, SEAL_NAME, VERSION)
                self._ready[store.location] = now, is_ready
            if is_ready:
                seal(store, keys)
        except (TieredStorageError, OSError) as error:
            log.info("not_sealed", message="readers list the partition", key=keys.seal_json, reason=str(error))

    def close(self) -> None:
        """Drop due cache objects, and make `run` return after its current write."""
        self._due.close()


def write_cache_object(
    store: ObjectStore,
    keys: PartitionKeys,
    next_offset: int,
    newest: int | None = None,
    own: Sequence[CacheEntry] = (),
    as_put: set[str] | None = None,
) -> tuple[int | None, int]:
    """Complete a partition's newest cache object, or begin the next one; at most one cache object at a time.

    Segments at or above the next offset are left out: one below them may still be on its way. So are segments after one
    of a later release's format.

    Args:
        next_offset: the committed one.
        newest: first base of the last newest cache object; it still is the newest if it is not full. None if unknown.
        own: entries of segments that this process put; their ETags are those of the puts.
        as_put: locations whose listings have these ETags; a listing that shows it adds its location.

    Returns:
        The first base of the newest cache object (None if the partition has none), and the number of added segments.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes the same object.
        NewerFormat: a later release wrote the newest cache object, or may have (it is too large); it is kept.
        StoreUnavailable, AccessDenied, BucketMissing, ObjectNotFound: the store's.
    """
    found = None if newest is None else _read(store, keys, newest)
    if found is None or len(found.entries) >= CACHE_OBJECT_SEGMENTS:
        found = _find_newest(store, keys)
    after, begun = "", found
    if found is not None:  # a damaged one is written again
        after = keys.segment(found.entries[-1].name) if found.entries else keys.segment(SegmentName(found.first), "")
        if len(found.entries) >= CACHE_OBJECT_SEGMENTS:
            begun = None
    known = begun.entries if begun else []
    room, as_put = CACHE_OBJECT_SEGMENTS - len(known), set() if as_put is None else as_put
    added = _continued(keys, found, own, next_offset) if store.location in as_put else []
    added = added[:room] or _listed(store, keys, (after, next_offset, room), own, as_put)
    if not added:
        return (found.first if found else None), 0
    first = begun.first if begun else added[0].name.base
    store.put(
        keys.cache_object(first),
        encode_cache_object(keys, [*known, *added]),
        condition=IfMatch(begun.etag) if begun else IfAbsent(),
    )
    return first, len(added)


def _continued(
    keys: PartitionKeys, found: "_Found | None", own: Sequence[CacheEntry], next_offset: int
) -> list[CacheEntry]:
    """Return the own entries that continue a cache object up to the next offset without a hole; empty with one."""
    last = found.entries[-1] if found is not None and found.entries else None
    if last is None or last.metadata is None:
        return []
    end, entries = last.metadata.end, []
    after = keys.segment(last.name)
    for entry in sorted(own, key=lambda each: keys.segment(each.name)):
        if entry.metadata is None or keys.segment(entry.name) <= after or entry.name.base > end:
            return []
        end = max(end, entry.metadata.end)
        entries.append(entry)
    return entries if end >= next_offset else []


def _listed(
    store: ObjectStore,
    keys: PartitionKeys,
    between: tuple[str, int, int],
    own: Sequence[CacheEntry],
    as_put: set[str],
) -> list[CacheEntry]:
    """Return the entries of listed segments; only the metadata of those that this process did not put is read.

    Args:
        between: the key after which the list begins, the next offset, and the most entries.
    """
    after, next_offset, most = between
    puts = {entry.name: entry for entry in own}
    entries: list[CacheEntry] = []
    for name, info in islice(_logs(store, keys, after, next_offset), most):
        put = puts.get(name)
        if put is not None and (put.size, put.etag) == (info.size, info.etag):
            as_put.add(store.location)
            entries.append(put)
            continue
        try:
            entries.append(cache_entry(store, name, info))
        except NewerFormat as later:
            # An agent of that release continues here; the metadata read so far must not be read again.
            log.info(
                "cache_object_cut",
                message="a later release wrote the next segment",
                key=keys.cache_objects,
                reason=str(later),
            )
            break
    return entries


@dataclass(frozen=True, slots=True)
class _Found:
    """A cache object in the store; without entries if it is damaged."""

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
            f"{found[first].key} has {found[first].size} bytes, and this release reads up to {CACHE_OBJECT_BYTES}: a "
            "later release may have written it, so it is kept; if no later release was in use, remove it"
        )
    return _read(store, keys, first)


def _read(store: ObjectStore, keys: PartitionKeys, first: int) -> _Found | None:
    """Return a cache object; None if it was removed."""
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
    """Yield the `.log` objects after a key and below an offset."""
    for info in store.list(keys.prefix, start_after=after):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is None or parsed[0].base >= next_offset:
            return
        if parsed[1] == LOG_SUFFIX:
            yield parsed[0], info
