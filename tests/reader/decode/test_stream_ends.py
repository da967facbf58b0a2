"""Streams that are cut off, byte by byte; `test_as_kafka_reads` compares whole batches with Kafka's consumer."""

import zlib
from random import Random

import zstandard

from ts_reader.decode.stream_ends import ends_after_zstd_frame, gzip_body


def test_a_gzip_header_with_all_fields_is_whole_or_none() -> None:
    """Extra field, name, comment and checksum; a header that is cut off does not count."""
    head = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\0xyname\0comment\0"
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    assert gzip_body(memoryview(b"before" + head + b"body"), 6) == 6 + len(head)
    assert [gzip_body(memoryview(head[:size]), 0) for size in range(len(head))] == [None] * len(head)
    assert gzip_body(memoryview(head[:-1] + b"?"), 0) is None
    named = b"\x1f\x8b\x08\x08" + bytes(6)
    sizes = (0, 511, 512, 513, 5000)
    assert [gzip_body(memoryview(named + b"n" * size + b"\0"), 0) for size in sizes] == [11 + size for size in sizes]
    assert [gzip_body(memoryview(named + b"n" * size), 0) for size in sizes] == [None] * len(sizes)


def test_a_zstd_frame_that_is_cut_off_is_no_error_if_another_one_ends_in_the_same_read() -> None:
    """With zstd-jni, which reads 131,075 bytes at once; a skippable frame counts, a checksum belongs to its frame."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"some text " * 9)
    skippable = b"\x5a\x2a\x4d\x18\x04\0\0\0skip"
    for whole in (frame, skippable, skippable + frame + frame):
        assert all(ends_after_zstd_frame(memoryview(whole + frame[:size])) for size in range(len(frame)))
    for begun in (frame, skippable):
        assert not any(ends_after_zstd_frame(memoryview(begun[:size])) for size in range(len(begun)))
    stored = zstandard.ZstdCompressor().compress(Random(7).randbytes(200_000))
    assert ends_after_zstd_frame(memoryview((frame + stored)[:131_075]))
    assert not ends_after_zstd_frame(memoryview((frame + stored)[:131_076]))
