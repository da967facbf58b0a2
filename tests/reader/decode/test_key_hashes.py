"""Hashes of keys: the same in Python and in machine code, and those of Kafka's clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_reader.decode.columns import BinaryColumn
from ts_reader.decode.hashed_key import hashed
from ts_reader.decode.key_hashes import hashes_of


def column_of(keys: list[bytes | None]) -> BinaryColumn:
    bounds = np.cumsum([0, *(len(key or b"") for key in keys)], dtype=np.int32)
    bits = np.packbits(np.array([key is not None for key in keys], bool), bitorder="little")
    return BinaryColumn(bounds, np.frombuffer(b"".join(key or b"" for key in keys), np.uint8), bits, keys.count(None))


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_the_kernel_computes_what_python_does(keys: list[bytes | None]) -> None:
    """Each key has its hashes, with the offset of its record; null has none."""
    found = hashes_of(column_of(keys), np.arange(100, 100 + len(keys)))
    expected = [(100 + at, hashed(key)) for at, key in enumerate(keys) if key is not None]
    rows = zip(found.offsets, found.place, found.murmur2, found.crc32, found.fnv1a, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [
        (offset, each.place, each.murmur2, each.crc32, each.fnv1a) for offset, each in expected
    ]


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, number: int) -> None:
    """Kafka's own test of `Utils.murmur2` has these numbers."""
    assert hashed(key).murmur2 == number & 0x7FFFFFFF


@pytest.mark.parametrize(("key", "number"), [(b"", 0x811C9DC5), (b"foobar", 0xBF9CF968), (b"a", 0xE40C292C)])
def test_fnv1a_has_no_sign(key: bytes, number: int) -> None:
    """Sarama reads the published number as a signed one, and drops the sign of the partition."""
    assert hashed(key).fnv1a == abs(number - (1 << 32))
