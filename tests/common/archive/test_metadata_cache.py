"""The text of a chapter: what it says, and what is not believed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.metadata_cache import Chapter, ChapterEntry, chapters_for, encode_chapter, parse_chapter_name
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import MAX_EPOCHS, SegmentMetadata, TxnIndexState
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
KEY = KEYS.chapter(0)
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
)
ENTRIES = st.lists(
    st.builds(ChapterEntry, NAMES, OFFSETS, st.from_regex(r'"[0-9a-f]{32}"', fullmatch=True), st.none() | METADATA),
    max_size=20,
    unique_by=lambda entry: entry.name,
)
ONE = ChapterEntry(SegmentName(0), 151, '"e"', SegmentMetadata(10, ((3, 0),), 10, 1009, 1000, 7))


@given(ENTRIES)
def test_a_chapter_says_what_was_written(entries: list[ChapterEntry]) -> None:
    """Every field of every entry comes back, by the object that a listing shows, and in order."""
    chapter = Chapter(encode_chapter(KEYS, entries), KEYS, KEY)
    assert chapter.entries() == entries
    for entry in entries:
        assert chapter.find(entry.name, entry.size, entry.etag) == entry.metadata


def test_an_entry_with_more_epochs_than_a_writer_says_is_not_believed() -> None:
    """A chapter has room for tens of thousands, and a reader compares each of them with the commit's."""
    assert ONE.metadata is not None
    for count, is_believed in ((MAX_EPOCHS, True), (MAX_EPOCHS + 1, False)):
        metadata = replace(ONE.metadata, epochs=tuple((at, at) for at in range(count)))
        chapter = Chapter(encode_chapter(KEYS, [replace(ONE, metadata=metadata)]), KEYS, KEY)
        assert chapter.find(ONE.name, ONE.size, ONE.etag) == (metadata if is_believed else None)


@given(st.lists(st.just(ONE), min_size=1, max_size=3), st.data())
def test_one_flipped_bit_anywhere_is_noticed(entries: list[ChapterEntry], data: st.DataObject) -> None:
    """A chapter is believed as a whole or not at all."""
    text = bytearray(encode_chapter(KEYS, entries))
    position = data.draw(st.integers(0, len(text) - 2))  # the last line end is no part of it
    text[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        chapter = Chapter(bytes(text), KEYS, KEY)
    except CorruptData as error:
        assert KEY in str(error)  # noqa: PT017  (capital hex digits are the same number)
    else:
        assert chapter.entries() == Chapter(encode_chapter(KEYS, entries), KEYS, KEY).entries()


@pytest.mark.parametrize("text", [b"", b"\n", b"00000000\n{}\n", b"3f9a0b1c\n", b"\xff\xfe", b"00000000", b"{}"])
def test_what_is_no_chapter_is_refused(text: bytes) -> None:
    """The message names the object."""
    with pytest.raises(CorruptData, match=KEY):
        Chapter(text, KEYS, KEY)


def test_a_chapter_of_another_partition_or_incarnation_is_refused() -> None:
    """Copied by hand, or by a tool that renames."""
    text = encode_chapter(KEYS, [ONE])
    for foreign in (TopicPartition("t", 1), TopicPartition("t2", 0)):
        with pytest.raises(CorruptData, match="it is of t-0"):
            Chapter(text, ClusterKeys("c").partition(foreign), KEY)
    with pytest.raises(CorruptData, match="it is of t-0"):
        Chapter(text, ClusterKeys("c").partition(TopicPartition("t", 0), "t~id"), KEY)


def test_an_entry_speaks_of_the_listed_object_or_not_at_all() -> None:
    """Name, size and ETag must be those of the listing."""
    chapter = Chapter(encode_chapter(KEYS, [ONE]), KEYS, KEY)
    assert chapter.find(ONE.name, ONE.size, ONE.etag) == ONE.metadata
    assert chapter.find(SegmentName(1), ONE.size, ONE.etag) is None
    assert chapter.find(replace(ONE.name, epoch=3, crc32c=7), ONE.size, ONE.etag) is None
    assert chapter.find(ONE.name, ONE.size + 1, ONE.etag) is None
    assert chapter.find(ONE.name, ONE.size, '"f"') is None
    assert chapter.find(ONE.name, ONE.size, None) is None


def test_each_segment_belongs_to_one_chapter() -> None:
    """The one with the highest first base at or below its own; those of no segment asked for are not read."""
    assert chapters_for([100, 200, 300], {50}) == []
    assert chapters_for([100, 200, 300], {100, 150, 199}) == [100]
    assert chapters_for([100, 200, 300], {250, 200}) == [200]
    assert chapters_for([100, 200, 300], {0, 199, 900}) == [100, 300]
    assert chapters_for([], {1}) == []


def test_names_of_chapters() -> None:
    """Twenty digits, as segments have."""
    assert KEYS.chapter(100) == "c/t-0/segment-metadata/00000000000000000100.json"
    assert parse_chapter_name("00000000000000000100.json") == 100
    for other in (
        "100.json",
        "00000000000000000100.log",
        "00000000000000000100.json.bak",
        "x/00000000000000000100.json",
        "09223372036854775808.json",
    ):
        assert parse_chapter_name(other) is None


def test_marks_are_listed_behind_segments_and_before_their_metadata() -> None:
    """In the byte order of keys, with the one character less that a driver may ask for."""
    assert KEYS.segment(SegmentName(10**20 - 1)) < KEYS.marks[:-1] < KEYS.marks
    for key in (KEYS.gap(0, 1), KEYS.log_start, KEYS.commit):
        assert KEYS.chapter(0) > key > KEYS.marks
