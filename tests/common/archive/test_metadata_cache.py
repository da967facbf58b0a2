"""The content of a cache object, and content that is rejected."""

import json
from dataclasses import replace

import pytest
from awscrt.checksums import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.metadata_cache import (
    CacheEntry,
    CacheObject,
    cache_objects_for,
    encode_cache_object,
    parse_cache_object_name,
)
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import MAX_EPOCHS, SegmentMetadata, TxnIndexState
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
KEY = KEYS.cache_object(0)
CRCS = st.integers(0, (1 << 32) - 1)
OFFSETS = st.integers(0, (1 << 62))
NAMES = st.builds(SegmentName, OFFSETS) | st.builds(SegmentName, OFFSETS, st.integers(-1, (1 << 31) - 1), CRCS)
METADATA = st.builds(
    SegmentMetadata,
    end=OFFSETS,
    epochs=st.lists(st.tuples(st.integers(-1, (1 << 31) - 1), OFFSETS), max_size=16).map(tuple),
    records=st.none() | OFFSETS,
    time_max=st.none() | st.integers(-1, 1 << 50),
    time_min=st.none() | st.integers(-1, 1 << 50),
    crc32c=CRCS,
    txnindex=st.none() | st.tuples(CRCS, st.sampled_from(TxnIndexState)),
    corruptions=st.integers(0, 1000),
    timeindex=st.none() | CRCS,
    shipped=st.none() | OFFSETS,
    replaces=st.none() | st.just("00000000000000000007.e3.000000ab.r2"),
    control=st.none() | OFFSETS,
)
ENTRIES = st.lists(
    st.builds(CacheEntry, NAMES, OFFSETS, st.from_regex(r'"[0-9a-f]{32}"', fullmatch=True), st.none() | METADATA),
    max_size=20,
    unique_by=lambda entry: entry.name,
)
ONE = CacheEntry(SegmentName(0), 151, '"e"', SegmentMetadata(10, ((3, 0),), 10, 1009, 1000, 7))


@given(ENTRIES)
def test_a_cache_object_returns_what_was_written(entries: list[CacheEntry]) -> None:
    """Every field of every entry is read back, by the listed object and in order."""
    cache_object = CacheObject(encode_cache_object(KEYS, entries), KEYS, KEY)
    assert cache_object.entries() == entries
    for entry in entries:
        assert cache_object.find(entry.name, entry.size, entry.etag) == entry.metadata


@given(ENTRIES, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_few_entries_are_found_without_the_others(entries: list[CacheEntry], separators: tuple[str, str]) -> None:
    """This also holds if another program wrote the object with other spaces, and for objects that have no entry."""
    fields = json.loads(encode_cache_object(KEYS, entries).partition(b"\n")[2])
    body = json.dumps(fields, separators=separators).encode()
    cache_object = CacheObject(b"%08x\n%b\n" % (crc32c(body), body), KEYS, KEY, few=True)
    for entry in entries:
        assert cache_object.find(entry.name, entry.size, entry.etag) == entry.metadata
        assert cache_object.find(replace(entry.name, epoch=77, crc32c=1), entry.size, entry.etag) is None


def test_a_few_entries_of_a_later_version_are_not_read() -> None:
    """Its number can be the last field."""
    body = encode_cache_object(KEYS, [ONE]).partition(b"\n")[2][:-2] + b',"version":2}'
    with pytest.raises(NewerFormat, match=KEY):
        CacheObject(b"%08x\n%b\n" % (crc32c(body), body), KEYS, KEY, few=True)


def test_a_damaged_entry_is_not_found_and_the_next_one_is() -> None:
    """Its checksum is that of the damaged text, as if a program had written it so."""
    other = replace(ONE, name=SegmentName(10))
    for damage in (b"[3,0]", b'["3",0]', b"[[3", b'"\\ud800"', b"[" * 900 + b"]" * 900):
        body = encode_cache_object(KEYS, [ONE, other]).partition(b"\n")[2][:-1].replace(b"[[3,0]]", damage, 1)
        cache_object = CacheObject(b"%08x\n%b\n" % (crc32c(body), body), KEYS, KEY, few=True)
        assert cache_object.find(ONE.name, ONE.size, ONE.etag) is None, damage
        assert cache_object.find(other.name, ONE.size, ONE.etag) == ONE.metadata, damage


def test_an_entry_with_more_epochs_than_a_writer_writes_is_not_accepted() -> None:
    """A cache object has room for tens of thousands, and a reader compares each with the commit's epochs."""
    assert ONE.metadata is not None
    for count, is_believed in ((MAX_EPOCHS, True), (MAX_EPOCHS + 1, False)):
        metadata = replace(ONE.metadata, epochs=tuple((at, at) for at in range(count)))
        cache_object = CacheObject(encode_cache_object(KEYS, [replace(ONE, metadata=metadata)]), KEYS, KEY)
        assert cache_object.find(ONE.name, ONE.size, ONE.etag) == (metadata if is_believed else None)


@given(st.lists(st.just(ONE), min_size=1, max_size=3), st.data())
def test_one_flipped_bit_anywhere_is_noticed(entries: list[CacheEntry], data: st.DataObject) -> None:
    """The checksum covers the whole cache object."""
    text = bytearray(encode_cache_object(KEYS, entries))
    position = data.draw(st.integers(0, len(text) - 2))  # the final line feed is not part of it
    text[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        cache_object = CacheObject(bytes(text), KEYS, KEY)
    except CorruptData as error:
        assert KEY in str(error)  # noqa: PT017  (capital hex digits are the same number)
    else:
        assert cache_object.entries() == CacheObject(encode_cache_object(KEYS, entries), KEYS, KEY).entries()


@pytest.mark.parametrize("text", [b"", b"\n", b"00000000\n{}\n", b"3f9a0b1c\n", b"\xff\xfe", b"00000000", b"{}"])
def test_what_is_no_cache_object_is_refused(text: bytes) -> None:
    """The message names the object."""
    for few in (False, True):
        with pytest.raises(CorruptData, match=KEY):
            CacheObject(text, KEYS, KEY, few=few)


def test_a_cache_object_of_another_partition_or_incarnation_is_refused() -> None:
    """An operator or a tool copied it to another partition."""
    text = encode_cache_object(KEYS, [ONE])
    for foreign in (TopicPartition("t", 1), TopicPartition("t2", 0)):
        for few in (False, True):
            with pytest.raises(CorruptData, match="it belongs to t-0"):
                CacheObject(text, ClusterKeys("c").partition(foreign), KEY, few=few)
    with pytest.raises(CorruptData, match="it belongs to t-0"):
        CacheObject(text, ClusterKeys("c").partition(TopicPartition("t", 0), "t~id"), KEY)


def test_an_entry_is_returned_only_if_it_matches_the_listed_object() -> None:
    """Name, size and ETag must equal those in the listing."""
    cache_object = CacheObject(encode_cache_object(KEYS, [ONE]), KEYS, KEY)
    assert cache_object.find(ONE.name, ONE.size, ONE.etag) == ONE.metadata
    assert cache_object.find(SegmentName(1), ONE.size, ONE.etag) is None
    assert cache_object.find(replace(ONE.name, epoch=3, crc32c=7), ONE.size, ONE.etag) is None
    assert cache_object.find(ONE.name, ONE.size + 1, ONE.etag) is None
    assert cache_object.find(ONE.name, ONE.size, '"f"') is None
    assert cache_object.find(ONE.name, ONE.size, None) is None


def test_each_segment_belongs_to_one_cache_object() -> None:
    """It has the highest first base at or below the segment's; cache objects without such segments are not read."""
    assert cache_objects_for([100, 200, 300], {50}) == []
    assert cache_objects_for([100, 200, 300], {100, 150, 199}) == [100]
    assert cache_objects_for([100, 200, 300], {250, 200}) == [200]
    assert cache_objects_for([100, 200, 300], {0, 199, 900}) == [100, 300]
    assert cache_objects_for([], {1}) == []


def test_names_of_cache_objects() -> None:
    """The name has twenty digits, as that of a segment."""
    assert KEYS.cache_object(100) == "c/t-0/segment-metadata/00000000000000000100.json"
    assert parse_cache_object_name("00000000000000000100.json") == 100
    for other in (
        "100.json",
        "00000000000000000100.log",
        "00000000000000000100.json.bak",
        "x/00000000000000000100.json",
        "09223372036854775808.json",
    ):
        assert parse_cache_object_name(other) is None


def test_marks_are_listed_behind_segments_and_before_their_metadata() -> None:
    """This holds in the byte order of keys, also without the last character, which some drivers remove."""
    assert KEYS.segment(SegmentName(10**20 - 1)) < KEYS.marks[:-1] < KEYS.marks
    for key in (KEYS.gap(0, 1), KEYS.log_start, KEYS.commit):
        assert KEYS.cache_object(0) > key > KEYS.marks
