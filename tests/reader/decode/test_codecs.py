import struct
import zlib

import cramjam
import pytest

from tests.reader.decode.frames import lz4_frame, xerial
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode.codecs import Codec, Scratch

TEXT = b"".join(b"line %d of some text\n" % n for n in range(20_000))


PACKED = [
    (Codec.GZIP, bytes(cramjam.gzip.compress(TEXT))),
    (Codec.SNAPPY, xerial(TEXT)),
    (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    (Codec.LZ4, lz4_frame(TEXT)),
    (Codec.LZ4, lz4_frame(TEXT, flags=0x7C)),
    (Codec.LZ4, lz4_frame(TEXT, stored=True)),
    (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT))),
]


@pytest.mark.parametrize(("codec", "packed"), PACKED)
def test_a_batch_is_decompressed_behind_the_one_before(codec: Codec, packed: bytes) -> None:
    """Several batches share one buffer. If it is full, `add` returns False, and adds the same batch after `clear`."""
    scratch, count = Scratch(), 0
    while scratch.add(codec, memoryview(packed)):
        count += 1
        assert scratch.end == count * len(TEXT)
    assert count >= 2
    assert bytes(scratch.array[: scratch.end]) == TEXT * count
    scratch.clear()
    assert scratch.add(codec, memoryview(packed))
    assert bytes(scratch.array[: scratch.end]) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_an_empty_buffer_grows_as_far_as_a_batch_needs_and_no_further(codec: Codec) -> None:
    """6 MB of one byte pass a cap of 8 MB, and not one of 4 MB."""
    data = bytes(6_000_000)
    packed = {
        Codec.GZIP: lambda: bytes(cramjam.gzip.compress(data)),
        Codec.SNAPPY: lambda: xerial(data),
        Codec.LZ4: lambda: lz4_frame(data),
        Codec.ZSTD: lambda: bytes(cramjam.zstd.compress(data)),
    }[codec]()
    scratch = Scratch(BatchLimit(8 << 20))
    assert scratch.add(codec, memoryview(packed))
    assert scratch.end == len(data)
    with pytest.raises(BatchTooLarge, match="more than 4194304 bytes"):
        Scratch(BatchLimit(4 << 20)).add(codec, memoryview(packed))


def test_members_of_gzip_are_decompressed_once_each() -> None:
    """Of 40,000 members no other one's bytes are copied, and a buffer that grows keeps what it has."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"n\0" + packer.compress(b"x") + packer.flush()
    named += struct.pack("<II", zlib.crc32(b"x"), 1)
    large = bytes(cramjam.gzip.compress(TEXT * 8))
    scratch = Scratch()
    assert scratch.add(Codec.GZIP, memoryview(named * 40_000 + large + b"behind the last"))
    assert bytes(scratch.array[: scratch.end]) == b"x" * 40_000 + TEXT * 8
    with pytest.raises(CorruptData, match="inside a member"):
        Scratch().add(Codec.GZIP, memoryview(named + large[:-100]))


@pytest.mark.parametrize(("codec", "packed"), PACKED)
def test_r04_a_truncated_batch_is_corrupt(codec: Codec, packed: bytes) -> None:
    """Cut short anywhere, it never passes as a shorter one."""
    for length in (0, 3, 7, 16, 20, 100, len(packed) // 2, len(packed) - 9):
        scratch = Scratch()
        if packed[:7] == b"\x82SNAPPY" and length == 16:
            assert scratch.add(codec, memoryview(packed[:length]))  # a whole stream of no blocks
            assert scratch.end == 0
            continue
        with pytest.raises(CorruptData):
            scratch.add(codec, memoryview(packed[:length]))


def test_r04_false_sizes_allocate_no_memory() -> None:
    """A snappy preamble of 4 GB, and blocks larger than what remains."""
    scratch = Scratch(BatchLimit(1 << 20))
    with pytest.raises(CorruptData):
        scratch.add(Codec.SNAPPY, memoryview(b"\xff\xff\xff\xff\x0f" + bytes(50)))
    with pytest.raises(CorruptData, match="block of 2,147,483,647 bytes"):
        scratch.add(Codec.SNAPPY, memoryview(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xff1234"))
    with pytest.raises(CorruptData, match="block of 2147483647 bytes, at most 65536"):
        scratch.add(Codec.LZ4, memoryview(lz4_frame(b"")[:-4] + b"\xff\xff\xff\x7f1234"))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    """Kafka has no more than five."""
    with pytest.raises(CorruptData, match=f"codec {codec}"):
        Scratch().add(codec, memoryview(b"data"))
