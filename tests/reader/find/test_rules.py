"""What an index proves of one segment, and which segments it can have."""

from dataclasses import replace
from itertools import pairwise
from math import gcd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.made_archive import MadeArchive, batches
from tests.made_views import only_copy
from ts_common.archive.copies import SegmentCopy
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.rules import PARTS, WHOLE, Certificate, Entry, entry_of, identity_of, is_indexable

PROVEN = Certificate(1, 1, 1)


@given(st.integers(0, 1 << 40), st.integers(1, 5000), st.data())
def test_each_offset_is_in_the_window_of_its_part(base: int, length: int, data: st.DataObject) -> None:
    """Windows of parts are disjoint, and together the segment."""
    entry = Entry(0, base, base + length, PARTS, PROVEN)
    offset = data.draw(st.integers(base, base + length - 1))
    low, high = entry.window((offset - base) * PARTS // length)
    assert low <= offset < high
    windows = [entry.window(part) for part in range(PARTS)]
    assert (windows[0][0], windows[-1][1]) == entry.window(WHOLE) == (base, base + length)
    assert all(before[1] == after[0] for before, after in pairwise(windows))


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=30), st.integers(0, 20))
def test_a_certificate_allows_each_key_of_its_segment(keys: list[bytes], partition: int) -> None:
    """Whatever wrote them: the evidence is made of the keys themselves."""
    found = [hashed(key) for key in keys]
    numbers = ([each.murmur2 for each in found], [each.crc32 for each in found], [each.fnv1a for each in found])
    certificate = Certificate(*(gcd(*(number - partition for number in each)) for each in numbers))
    assert all(certificate.allows(partition, key) for key in found)


def test_a_certificate_of_twelve_partitions_leaves_out_eleven() -> None:
    """Also if the number that was found is a multiple of it."""
    key = hashed(b"user-1")
    allowed = [number for number in range(12) if Certificate(24, 1, 1).allows(number, key)]
    assert allowed in ([key.murmur2 % 24], [])
    assert [number for number in range(12) if Certificate(12, 1, 1).allows(number, key)] == [key.murmur2 % 12]
    assert [number for number in range(12) if Certificate(1, 12, 1).allows(number, key)] == [key.crc32 % 12]
    assert [number for number in range(12) if Certificate(1, 1, 12).allows(number, key)] == [key.fnv1a % 12]
    assert not Certificate(0, 1, 1).allows(3, key)  # each key of the segment has the hash 3


@pytest.fixture
def copy(tmp_path: Path) -> SegmentCopy:
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    return only_copy(archive)


def test_an_entry_is_of_an_object_as_it_is(copy: SegmentCopy) -> None:
    """With another ETag, size, name or coverage it is another object, which is read."""
    identity = identity_of(copy)
    assert identity is not None
    entries = {identity: Entry(0, 0, 10, PARTS, PROVEN)}
    assert entry_of(copy, entries) == entries[identity]
    for changed in (
        replace(copy, segment=replace(copy.segment, etag="other")),
        replace(copy, segment=replace(copy.segment, etag=None)),
        replace(copy, segment=replace(copy.segment, size=copy.segment.size + 1)),
        replace(copy, segment=replace(copy.segment, name=replace(copy.segment.name, epoch=1, crc32c=1))),
        replace(copy, metadata=replace(copy.metadata, end=11)),
    ):
        assert entry_of(changed, entries) is None


def test_segments_that_their_agent_did_not_scan_are_not_indexed(copy: SegmentCopy) -> None:
    """Nor those with damage; no index that has them counts."""
    assert is_indexable(copy)
    identity = identity_of(copy)
    assert identity is not None
    for changes in ({"records": None}, {"corruptions": 1}, {"rebuilt": True}):
        other = replace(copy, metadata=replace(copy.metadata, **changes))
        assert not is_indexable(other)
        assert entry_of(other, {identity: Entry(0, 0, 10, PARTS, PROVEN)}) is None
