"""Cache objects after a repair: the entries are those of the objects that exist."""

import io
from dataclasses import replace

from tests.made_archive import batches
from ts_common.archive.cache_rewriting import cache_entry, rewrite_cache_objects
from ts_common.archive.catalog import read_catalog
from ts_common.archive.metadata_cache import CacheObject, encode_cache_object
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))


def put(store: ObjectStore, name: SegmentName, *, replaces: str | None = None, damaged: bool = False) -> None:
    data = batches((name.base, name.base + 10))
    metadata = replace(metadata_of(scan_segment(io.BytesIO(data), len(data)), name.base, "made"), replaces=replaces)
    store.put(KEYS.segment(name), data[:-1] + b"?" if damaged else data, metadata=metadata.encode())


def cache(store: ObjectStore, *bases: int) -> None:
    logs = {info.key: info for info in store.list(KEYS.prefix)}
    names = [SegmentName(base) for base in bases]
    entries = [cache_entry(store, name, logs[KEYS.segment(name)]) for name in names]
    store.put(KEYS.cache_object(bases[0]), encode_cache_object(KEYS, entries))


def found(store: ObjectStore, first: int) -> dict[SegmentName, bool]:
    """The names in a cache object, and whether readers use the entry of the object that exists."""
    content = CacheObject(store.get(KEYS.cache_object(first))[0], KEYS, "k")
    catalog = read_catalog(store, KEYS)
    etags = {segment.name: segment.etag for segment in catalog.segments}
    return {
        entry.name: content.find(entry.name, entry.size, etags.get(entry.name)) is not None
        for entry in content.entries()
    }


def test_a_cache_object_lists_the_damaged_object_and_its_repair(store: ObjectStore) -> None:
    """Readers send no HEAD for either; cache objects of other segments are not written."""
    for base in (0, 10, 20, 30):
        put(store, SegmentName(base))
    cache(store, 0, 10)
    cache(store, 20, 30)
    put(store, SegmentName(0), damaged=True)
    assert found(store, 0) == {SegmentName(0): False, SegmentName(10): True}
    repair = SegmentName(0, 3, 0xAB, 1)
    put(store, repair, replaces=SegmentName(0).stem)
    assert rewrite_cache_objects(store, KEYS, [0]) == [KEYS.cache_object(0)]
    assert found(store, 0) == {repair: True, SegmentName(0): True, SegmentName(10): True}
    assert rewrite_cache_objects(store, KEYS, [0, 10, 20]) == []


def test_a_deleted_object_leaves_its_cache_object_and_the_newest_does_not_grow(store: ObjectStore) -> None:
    """What lies above the last entry is the work of the agent's own thread."""
    for base in (0, 10, 20, 30):
        put(store, SegmentName(base))
    cache(store, 0, 10, 20)
    store.delete([KEYS.segment(SegmentName(10))])
    assert rewrite_cache_objects(store, KEYS, [10]) == [KEYS.cache_object(0)]
    assert list(found(store, 0)) == [SegmentName(0), SegmentName(20)]


def test_an_object_that_was_put_again_has_the_entry_of_its_new_metadata(store: ObjectStore) -> None:
    """On S3 its ETag is that of the deleted one, but the time of shipping differs."""
    put(store, SegmentName(0))
    (info,) = store.list(KEYS.prefix)
    entry = cache_entry(store, SegmentName(0), info)
    assert entry.metadata is not None
    former = replace(entry, metadata=replace(entry.metadata, shipped=1))
    store.put(KEYS.cache_object(0), encode_cache_object(KEYS, [former]))
    assert rewrite_cache_objects(store, KEYS, [0]) == [KEYS.cache_object(0)]
    assert CacheObject(store.get(KEYS.cache_object(0))[0], KEYS, "k").entries() == [entry]


def test_a_damaged_cache_object_is_left_alone(store: ObjectStore) -> None:
    """Readers ignore it, and a repair never fails by it."""
    put(store, SegmentName(0))
    store.put(KEYS.cache_object(0), b"?")
    assert rewrite_cache_objects(store, KEYS, [0]) == []
    assert store.get(KEYS.cache_object(0))[0] == b"?"
