"""Brings cache objects up to date after a repair: they list the objects that exist, with their ETags.

A full cache object is never written again by the agent's own thread, so readers would send HEAD for a repaired segment
for ever. An object that was damaged in place has another ETag than its entry, and so has one that was put again in a
store whose ETags are not hashes.
"""

from collections.abc import Collection, Iterator, Mapping

import structlog

from ts_common.archive.metadata_cache import (
    CACHE_OBJECT_BYTES,
    CacheEntry,
    CacheObject,
    cache_objects_for,
    encode_cache_object,
    parse_cache_object_name,
)
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, OutcomeUnknown, PreconditionFailed
from ts_common.store.contract import IfMatch, ObjectInfo, ObjectStore

log = structlog.get_logger()


def cache_entry(store: ObjectStore, name: SegmentName, listed: ObjectInfo) -> CacheEntry:
    """Return the entry of an object, without metadata that readers cannot use: they read the object instead.

    Raises:
        NewerFormat: its metadata is a later release's.
        ObjectNotFound, StoreUnavailable, AccessDenied: the store's.
    """
    return entry_of(name, listed, store.head(listed.key).metadata)


def entry_of(name: SegmentName, stored: ObjectInfo, metadata: Mapping[str, str]) -> CacheEntry:
    """Return the entry of an object with this metadata.

    Raises:
        NewerFormat: as `cache_entry`.
    """
    try:
        decoded = decode_metadata(metadata, stored.key)
    except CorruptData:
        decoded = None
    useful = decoded is not None and decoded.epochs is not None
    return CacheEntry(name, stored.size, stored.etag, decoded if useful else None)


def rewrite_cache_objects(store: ObjectStore, keys: PartitionKeys, bases: Collection[int]) -> list[str]:
    """Write the cache objects that segments belong to again, where they differ from the objects that exist.

    Each keeps its bounds: the newest one does not grow. One that another agent writes at the same time, or a later
    release wrote, stays as it is.

    Args:
        bases: base offsets of the segments that were put, or are damaged.

    Returns:
        The keys of the objects that were written.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    names = (info.key.removeprefix(keys.cache_objects) for info in store.list(keys.cache_objects))
    firsts = sorted(first for name in names if (first := parse_cache_object_name(name)) is not None)
    written = []
    for first in cache_objects_for(firsts, bases):
        key = keys.cache_object(first)
        above = next((other for other in firsts if other > first), None)
        try:
            data, info = get_small(store, key, CACHE_OBJECT_BYTES)
            entries = CacheObject(data, keys, key).entries()
            content = encode_cache_object(keys, _entries(store, keys, first, above, entries, bases))
            if content != data and len(content) <= CACHE_OBJECT_BYTES:
                store.put(key, content, condition=IfMatch(info.etag))
                written.append(key)
        except (ObjectNotFound, CorruptData, NewerFormat, PreconditionFailed, OutcomeUnknown) as error:
            log.info("cache_object_not_rewritten", key=key, reason=str(error))
    return written


def _entries(
    store: ObjectStore,
    keys: PartitionKeys,
    first: int,
    above: int | None,
    entries: list[CacheEntry],
    bases: Collection[int],
) -> Iterator[CacheEntry]:
    """Yield the entries of the objects that exist, from `first` to the last entry; none at or above `above`.

    The metadata of segments with one of these bases is read: an object that was put again can have the same ETag.
    """
    if not entries:
        return
    known = {(entry.name, entry.size, entry.etag): entry for entry in entries if entry.name.base not in bases}
    last = max(keys.segment(entry.name) for entry in entries)
    for info in store.list(keys.prefix, start_after=keys.segment(SegmentName(first), "")):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is None or info.key > last or (above is not None and parsed[0].base >= above):
            return
        if parsed[1] == LOG_SUFFIX:
            name = parsed[0]
            yield known.get((name, info.size, info.etag)) or cache_entry(store, name, info)
