"""The table of newest offsets: the hash is SipHash, and what it keeps is what a dict keeps."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ts_reader.reading.newest_offsets import NewestOffsets, siphash128

# `vectors_sip128` of the reference implementation; the others by OpenSSL's SIPHASH, which has the same first ones.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
    64: "1eaf077dc0d4cd3f8cad4d383658a74b",
}


@pytest.mark.parametrize("length", VECTORS)
def test_the_hash_is_siphash(length: int) -> None:
    """Key and message are 0, 1, 2, ...; a string before it makes no difference."""
    data = np.frombuffer(b"before" + bytes(range(length)), np.uint8)
    hashes = np.empty((2, 2), np.uint64)
    seed = np.frombuffer(bytes(range(16)), np.uint64)
    siphash128(data, np.array([0, 6, 6 + length], np.int32), seed, hashes)
    assert hashes[1].tobytes().hex() == VECTORS[length]


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=300), st.integers(1, 50))
def test_it_keeps_what_a_dict_keeps(records: list[tuple[bytes, bool]], size: int) -> None:
    """In any order, and in slices of larger arrays."""
    newest: dict[bytes, tuple[int, bool]] = {}
    table = NewestOffsets()
    order = [*range(0, len(records), 2), *range(1, len(records), 2)]
    keys = pa.array([b"-", *(records[n][0] for n in order)], pa.binary())
    for begin in range(0, len(order), size):
        numbers = order[begin : begin + size]
        tombstones = np.array([records[n][1] for n in numbers], bool)
        table.add(keys.slice(begin + 1, len(numbers)), np.array(numbers, np.int64) * 7, tombstones)
    for number, (key, is_tombstone) in enumerate(records):
        newest[key] = (number * 7, is_tombstone)
    assert table.keys == len(newest)
    assert table.pop_offsets().tolist() == sorted(at for at, is_tombstone in newest.values() if not is_tombstone)


def test_a_key_uses_as_much_memory_as_the_page_documents() -> None:
    """24 bytes in tables that are filled to between 53 and 80 %."""
    table, count = NewestOffsets(), 200_000
    for begin in range(0, count, 10_000):
        keys = pa.array([b"%d" % n for n in range(begin, begin + 10_000)], pa.binary())
        table.add(keys, np.arange(begin, begin + 10_000), np.zeros(10_000, bool))
        table.add(keys, np.arange(begin, begin + 10_000), np.zeros(10_000, bool))
    assert table.keys == count
    assert table.size_in_bytes < 48 * count
