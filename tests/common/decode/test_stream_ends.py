"""Streams that are cut off, byte by byte; `test_as_kafka_reads` compares whole batches with Kafka's consumer."""

import zlib

import zstandard

from ts_common.decode.stream_ends import gzip_body, zstd_frames_end


def test_a_gzip_header_with_all_fields_is_whole_or_none() -> None:
    """Extra field, name, comment and checksum; a header that is cut off does not count."""
    head = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\0xyname\0comment\0"
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    assert gzip_body(memoryview(b"before" + head + b"body"), 6) == 6 + len(head)
    assert [gzip_body(memoryview(head[:size]), 0) for size in range(len(head))] == [None] * len(head)
    assert gzip_body(memoryview(head[:-1] + b"?"), 0) is None


def test_a_zstd_frame_ends_before_the_beginning_of_another_one() -> None:
    """Only a beginning without content, and only if the rest cannot be another thing."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"some text " * 9)
    skippable = b"\x5a\x2a\x4d\x18\x04\0\0\0skip"
    whole = skippable + frame + frame
    assert zstd_frames_end(memoryview(whole)) == len(whole)
    for size in range(1, 10):
        assert zstd_frames_end(memoryview(whole + frame[:size])) == len(whole)
        assert zstd_frames_end(memoryview(whole + skippable[:size])) == len(whole)
    assert zstd_frames_end(memoryview(whole + b"\0")) is None
    assert zstd_frames_end(memoryview(whole + frame[:4] + b"\x08")) is None  # a reserved bit
    assert zstd_frames_end(memoryview(whole + frame[:-1])) is None
    assert zstd_frames_end(memoryview(frame[:-1])) is None
