"""Streams that are cut off, byte by byte; `test_as_kafka_reads` compares whole batches with Kafka's consumer."""

import zlib
from random import Random

import cramjam
import pytest
import zstandard

from ts_common.decode.stream_ends import gzip_body, zstd_until_cut


def test_a_gzip_header_with_all_fields_is_whole_or_none() -> None:
    """Extra field, name, comment and checksum; a header that is cut off does not count."""
    head = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\0xyname\0comment\0"
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    assert gzip_body(memoryview(b"before" + head + b"body"), 6) == 6 + len(head)
    assert [gzip_body(memoryview(head[:size]), 0) for size in range(len(head))] == [None] * len(head)
    assert gzip_body(memoryview(head[:-1] + b"?"), 0) is None


def test_a_zstd_frame_ends_before_the_beginning_of_another_one() -> None:
    """A beginning without content counts only if the rest cannot be another thing."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"some text " * 9)
    skippable = b"\x5a\x2a\x4d\x18\x04\0\0\0skip"
    whole = skippable + frame + frame
    assert zstd_until_cut(memoryview(whole)) == whole
    for size in range(1, 10):
        assert zstd_until_cut(memoryview(whole + frame[:size])) == whole
        assert zstd_until_cut(memoryview(whole + skippable[:size])) == whole
    assert zstd_until_cut(memoryview(whole + b"\0")) is None
    assert zstd_until_cut(memoryview(whole + frame[:4] + b"\x08")) is None  # a reserved bit
    assert zstd_until_cut(memoryview(frame[:-1])) is None


@pytest.mark.parametrize("has_size", [True, False])
def test_a_zstd_frame_that_is_cut_off_has_the_content_of_its_blocks(has_size: bool) -> None:
    """Of blocks that are whole, of the bytes of a stored block, and all of it if only the checksum is cut off."""
    content = b"".join(b"line %d\n" % at for at in range(30_000)) + Random(7).randbytes(50_000)
    writer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=has_size)
    before, frame = writer.compress(b"before"), writer.compress(content)
    sizes = set()
    for cut in (*range(len(frame) - 6, len(frame)), *range(20, len(frame), len(frame) // 20)):
        stream = zstd_until_cut(memoryview(before + frame[:cut]))
        assert stream is not None
        found = bytes(cramjam.zstd.decompress(stream))
        assert (b"before" + content).startswith(found)
        sizes.add(len(found))
    assert sizes == {6, 6 + (1 << 17), 6 + (2 << 17), 6 + len(content)}
    stored = writer.compress(Random(7).randbytes(1000))
    stream = zstd_until_cut(memoryview(before + stored[:-504]))
    assert stream is not None
    assert bytes(cramjam.zstd.decompress(stream)) == b"before" + Random(7).randbytes(1000)[:500]
