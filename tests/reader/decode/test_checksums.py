"""Checksums in kernels."""

import zlib

import numpy as np
import pytest

from ts_reader.decode.checksums import crc32_of, xxh32


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_checksums_are_those_of_the_specification(data: bytes, expected: int) -> None:
    """For fewer and for more than 16 bytes, at any position, compiled or not."""
    array = np.frombuffer(b"before" + data + b"behind", np.uint8)
    assert xxh32(array, 6, 6 + len(data)) == xxh32.function(array, 6, 6 + len(data)) == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
def test_checksums_are_those_of_zlib(size: int) -> None:
    """For whole and for cut words, at any position."""
    data = bytes(range(3, 3 + size))
    assert crc32_of(np.frombuffer(b"before" + data + b"behind", np.uint8), 6, 6 + size) == zlib.crc32(data)
