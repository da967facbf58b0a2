"""The coverage of listed segments: from earlier calls, the segment metadata cache, or the objects."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.asked_store import AskedStore
from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.catalog import PartitionCatalog, StoredSegment, read_catalog
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.metadata_cache import CacheEntry, encode_cache_object
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.model import TopicPartition

KEYS = ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))


def ten_segments(archive: MadeArchive) -> PartitionCatalog:
    for base in range(0, 100, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 100)
    return read_catalog(archive.store, KEYS)


def test_copies_are_returned_in_the_order_of_the_segments(archive: MadeArchive) -> None:
    """Also if they are read on several threads; each has base, end and key of its segment."""
    catalog = ten_segments(archive)
    copies = describe(archive.store, KEYS, catalog.segments)
    assert [(copy.base, copy.end, copy.dense) for copy in copies] == [(n, n + 10, True) for n in range(0, 100, 10)]
    assert copies[1].key == KEYS.segment(SegmentName(10))


def test_a_known_copy_has_the_storage_class_of_the_newer_listing(archive: MadeArchive) -> None:
    """A lifecycle rule moves a segment, and a thaw makes it readable: its bytes and its ETag stay."""
    segments = ten_segments(archive).segments
    known = {copy.segment: copy for copy in describe(archive.store, KEYS, segments)}
    store = AskedStore(archive.store)
    cold = [replace(segment, storage_class="GLACIER", is_frozen=True) for segment in segments]
    assert [copy.segment.is_frozen for copy in describe(store, KEYS, cold, known=known)] == [True] * 10
    assert len(store.headed) == 0


def test_known_copies_cause_no_request(archive: MadeArchive) -> None:
    """A `.log` never changes, so metadata from an earlier call is used again."""
    catalog = ten_segments(archive)
    copies = describe(archive.store, KEYS, catalog.segments)
    store = AskedStore(archive.store)
    assert describe(store, KEYS, catalog.segments, known={copy.segment: copy for copy in copies[:7]}) == copies
    assert len(store.headed) == 3
    with capture_logs() as log:
        describe(store, KEYS, catalog.segments, cache_objects=[0], known={copy.segment: copy for copy in copies})
    assert log == []  # the cache object is missing, so that reading it would be a warning


def test_the_metadata_cache_saves_the_requests_of_its_entries(archive: MadeArchive) -> None:
    """An entry whose ETag is not the listed one is ignored, and so is a damaged cache object."""
    catalog = ten_segments(archive)
    copies = describe(archive.store, KEYS, catalog.segments)
    entries = [CacheEntry(c.segment.name, c.segment.size, c.segment.etag or "", c.metadata) for c in copies]
    entries[4] = CacheEntry(entries[4].name, entries[4].size, '"other"', entries[4].metadata)
    archive.store.put(KEYS.cache_object(0), encode_cache_object(KEYS, entries))
    store = AskedStore(archive.store)
    assert describe(store, KEYS, catalog.segments, cache_objects=[0]) == copies
    assert len(store.headed) == 1
    archive.store.put(KEYS.cache_object(0), b"damaged")
    assert describe(store, KEYS, catalog.segments, cache_objects=[0]) == copies
    assert len(store.headed) == 1 + len(copies)


def test_a_removed_segment_is_reported_or_raised(archive: MadeArchive) -> None:
    """Retention can remove an object after the listing; only a caller that accepts this continues."""
    catalog = ten_segments(archive)
    archive.store.delete([KEYS.segment(SegmentName(20))])
    with pytest.raises(ObjectNotFound, match="removed after the query was planned"):
        describe(archive.store, KEYS, catalog.segments)
    removed: list[StoredSegment] = []
    copies = describe(archive.store, KEYS, catalog.segments, removed=removed)
    assert [segment.name.base for segment in removed] == [20]
    assert 20 not in [copy.base for copy in copies]


def test_a_damaged_segment_is_reported_or_raised(archive: MadeArchive) -> None:
    """A segment without metadata and without a batch has no known coverage."""
    archive.store.put(KEYS.segment(SegmentName(0)), b"x" * 500)
    segments = read_catalog(archive.store, KEYS).segments
    with pytest.raises(CorruptData, match="no batch in its 500 bytes"):
        describe(archive.store, KEYS, segments)
    damaged: list[str] = []
    assert describe(archive.store, KEYS, segments, damaged=damaged) == ()
    assert [message.endswith("; the segment is left out") for message in damaged] == [True]


@pytest.mark.parametrize(("records", "corruptions", "dense"), [(10, 0, True), (9, 0, False), (10, 1, False)])
def test_a_dense_copy_has_a_record_at_each_offset(records: int, corruptions: int, dense: bool) -> None:
    """A compacted or damaged copy can lack records that another copy has."""
    metadata = SegmentMetadata(10, ((0, 0),), records, 1, 1, 0, corruptions=corruptions)
    assert SegmentCopy(KEYS, StoredSegment(SegmentName(0), 1, frozenset()), metadata).dense is dense
