"""Streams that the project writes, read by its own decoder and by other libraries."""

import gzip
import random

import lz4.frame
import pytest
import zstandard

from ts_reader.decode.codecs import Codec
from ts_reader.decode.compression import ReusedCodecs, compress

SOME = random.Random(5)
BODIES = [b"", b"x", b"text " * 50_000, SOME.randbytes(200_000), SOME.randbytes(64 << 10), b"a" * (64 << 10)]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("data", BODIES, ids=len)
def test_a_stream_is_read_as_it_was_written(codec: Codec, data: bytes) -> None:
    """Data of several blocks, and data that does not become smaller."""
    assert ReusedCodecs().unpack(codec, memoryview(compress(codec, data))) == data


@pytest.mark.parametrize("data", BODIES, ids=len)
def test_other_libraries_read_the_streams(data: bytes) -> None:
    """A block of LZ4 that does not become smaller is stored: a larger one than its frame allows is damage."""
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, data)) == data
