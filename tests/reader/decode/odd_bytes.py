"""Intact bytes of odd producers, brokers and compressors, and bytes that Kafka's consumer rejects.

The files of `tests/data/odd_bytes` are those of public bug reports: KAFKA-4298 (with a segment of a real 0.10.0.1),
snappy-java #103, sarama #1032 (a real 1.0.0). The others are built here.
"""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import cramjam
import zstandard

from tests.common.log_format.build import CONTROL, batch, message, record, sized, varint
from tests.common.log_format.legacy_messages import GZIP, SNAPPY
from tests.reader.decode.frames import lz4_frame, xerial

LZ4, ZSTD = 3, 4
FILES = {path.stem: path.read_bytes() for path in sorted(Path("tests/data/odd_bytes").glob("*.log"))}
RECORDS = b"".join(record(n, b"key-%d" % n, b"value-%d" % n * 9, [(b"h", b"x"), (b"n", None)]) for n in range(3))
_HALF = len(RECORDS) // 2
_FIXED = b"\0" + varint(0) + varint(0)  # attributes, timestamp delta, offset delta
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def packed(codec: int, body: bytes) -> bytes:
    """Three records in a batch with these compressed bytes."""
    return batch(0, body=body, count=3, attributes=codec)


def with_deltas(base: int, deltas: Sequence[int], last: int, codec: int = 0) -> bytes:
    """A batch whose records have these offset deltas."""
    body = b"".join(record(delta, b"k", b"%d+%d" % (base, number)) for number, delta in enumerate(deltas))
    body = gzip.compress(body, mtime=0) if codec else body
    return batch(base, body=body, count=len(deltas), last_offset_delta=last, attributes=codec)


def plain(body: bytes, count: int = 1) -> bytes:
    return batch(0, body=varint(len(body)) + body, count=count)


def wrapped(magic: int, codec: int, inner: bytes, offset: int, attributes: int = 0) -> bytes:
    compress = {GZIP: gzip.compress, SNAPPY: xerial, LZ4: lz4_frame}[codec]
    return message(magic, offset, compress(inner), b"ignored", attributes=codec | attributes, timestamp=99)


def inner(*magics_and_offsets: tuple[int, int]) -> bytes:
    return b"".join(message(magic, offset, b"v%d" % offset, b"k") for magic, offset in magics_and_offsets)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def long_varint(value: int) -> bytes:
    """Five bytes, more than it needs."""
    zigzag = value << 1
    return bytes(zigzag >> 7 * n & 0x7F | (0x80 if n < 4 else 0) for n in range(5))


_GZ, _A, _B = gzip.compress(RECORDS, mtime=0), RECORDS[:_HALF], RECORDS[_HALF:]
STREAMS = {
    "gzip-members": packed(GZIP, gzip.compress(_A) + gzip.compress(_B)),
    "gzip-zeros": packed(GZIP, _GZ + bytes(40)),
    "gzip-cut-second-header": packed(GZIP, _GZ + _GZ[:9]),
    "gzip-cut-second-member": packed(GZIP, _GZ + _GZ[:30]),
    "gzip-short-second-member": packed(GZIP, _GZ + _GZ[:17]),
    "gzip-wrong-trailer": packed(GZIP, _GZ[:-1] + b"\7"),
    "gzip-name-and-header-sum": packed(GZIP, b"\x1f\x8b\x08\x0a" + bytes(6) + b"name\0" + b"??" + _GZ[10:]),
    "snappy-raw": packed(SNAPPY, bytes(cramjam.snappy.compress_raw(RECORDS))),
    "snappy-three-bytes-left": packed(SNAPPY, xerial(RECORDS) + b"abc"),
    "snappy-four-bytes-left": packed(SNAPPY, xerial(RECORDS) + b"\0\0\0\1"),
    "snappy-version-0-behind": packed(SNAPPY, xerial(_A) + b"\x82SNAPPY\0" + bytes(8) + xerial(_B)[16:]),
    "snappy-other-magic-behind": packed(SNAPPY, xerial(_A) + b"\x82SNAPPx\0" + bytes(8) + xerial(_B)[16:]),
    "snappy-empty-block": packed(SNAPPY, xerial(_A) + struct.pack(">I", 1) + b"\0" + xerial(_B)[16:]),
    "lz4-second-frame": packed(LZ4, lz4_frame(RECORDS) + lz4_frame(RECORDS)),
    "lz4-halves": packed(LZ4, lz4_frame(_A) + lz4_frame(_B)),
    "lz4-linked": packed(LZ4, bytes(cramjam.lz4.compress(RECORDS))),
    "lz4-no-end-mark": packed(LZ4, lz4_frame(RECORDS)[:-4]),
    "lz4-empty-block-ends": packed(LZ4, lz4_frame(RECORDS)[:-4] + b"\1\0\0\0\0garbage"),
    "lz4-wrong-header-sum": packed(LZ4, lz4_frame(RECORDS, header_checksum=0)),
    "lz4-block-sums": packed(LZ4, lz4_frame(RECORDS, flags=0x7C)),
    "lz4-wrong-block-sum": packed(LZ4, lz4_frame(RECORDS, flags=0x70)[:-8] + b"none" + bytes(4)),
    "lz4-cut-content-sum": packed(LZ4, lz4_frame(RECORDS, flags=0x64)[:-2]),
    "zstd-frames": packed(ZSTD, _SKIPPABLE + zstd(_A) + _SKIPPABLE + zstd(_B) + _SKIPPABLE),
    "zstd-zeros": packed(ZSTD, zstd(RECORDS) + bytes(9)),
    "zstd-begun-frame": packed(ZSTD, zstd(RECORDS) + zstd(RECORDS)[:7]),
    "zstd-cut-frame": packed(ZSTD, zstd(RECORDS)[:-1]),
    "empty-and-compressed": batch(0, body=b"", count=0, attributes=GZIP) + batch(1),
}
FIELDS = {
    "value-minus-7": plain(_FIXED + sized(b"k") + varint(-7) + varint(0)),
    "header-name-minus-1": plain(_FIXED + sized(b"k") + sized(b"v") + varint(1) + varint(-1) + sized(b"x")),
    "header-names": batch(
        0, [record(0, headers=[(b"\xff\xfe", b"1"), (b"\xed\xa0\x80", b"2"), (b"", None), (b"", b"")])]
    ),
    "headers-beyond": plain(_FIXED + sized(b"k") + sized(b"v") + varint(9) + sized(b"h") + sized(b"x")),
    "long-varints": plain(b"\0" + long_varint(0) + long_varint(0) + long_varint(1) + b"k" + long_varint(1) + b"v\0"),
    "varint-of-six-bytes": plain(_FIXED + b"\x82\x80\x80\x80\x80\x00k" + sized(b"v") + varint(0)),
    "varint-beyond-32-bits": plain(_FIXED + b"\x82\x80\x80\x80\x70k" + sized(b"v") + varint(0)),
    "record-attributes": plain(b"\x7f" + varint(-5) + varint(0) + sized(None) + sized(b"") + varint(0)),
    "batch-attributes": batch(0, attributes=0x7FC0),
    "codec-5": batch(0, attributes=5),
    "count-too-high": batch(0, [record(0)], count=2),
    "count-too-low": batch(0, [record(0), record(1)], count=1),
    "count-0": batch(0, [record(0)], count=0) + batch(1),
    "count-negative": batch(0, [record(0)], count=-1),
    "times-wrap": batch(0, [record(0, timestamp_delta=9)], base_timestamp=(1 << 63) - 1),
    "control-without-key": batch(0, [record(0, b"key", b"v")], attributes=CONTROL) + batch(1),
    "control-damaged": batch(0, body=b"none", count=1, attributes=CONTROL) + batch(1),
}
OFFSETS = {
    "deltas-all-0": with_deltas(0, [0, 0, 0], 2) + with_deltas(3, [0], 0),
    "last-delta-0": with_deltas(6, range(7), 0) + with_deltas(13, range(7), 0) + with_deltas(14, [0], 0),
    "last-delta-0-zipped": with_deltas(6, range(7), 0, GZIP) + with_deltas(13, range(7), 0, GZIP),
    "hidden-by-the-one-before": with_deltas(1, [0, 1], 0) + with_deltas(2, [0], 0) + with_deltas(4, [0, 1], 0),
    "last-delta-9": with_deltas(-7, [0, 1, 2], 9) + with_deltas(3, [0], 0) + with_deltas(-3, [0, 1, 2], 9),
    "last-delta-minus-1": with_deltas(4, [0, 1], -1) + with_deltas(6, [0], 0),
    "first-two-above": with_deltas(0, [0, 5], 1) + with_deltas(2, [0, 1], 1) + with_deltas(4, range(4), 3),
    "below-its-base": with_deltas(0, [0, 1], 1) + with_deltas(2, [-1, 0, 1], 2) + with_deltas(5, range(3), 2),
    "descending": with_deltas(0, [2, 1, 0], 2) + with_deltas(3, [0, -1, -2], 2),
    "two-batches-in-one": with_deltas(0, [0, 1, 2, 0, 1, 2], 5) + with_deltas(6, [0, 1], 1),
    "one-record-above": with_deltas(0, [3], 0) + with_deltas(1, range(4), 3),
}
MESSAGES = {
    "1-over-0-and-1": wrapped(1, GZIP, inner((0, 0), (1, 1), (0, 5)), 7),
    "0-over-1-and-0": wrapped(0, LZ4, inner((1, 3), (0, 4)), 4, 8),
    "1-over-2": wrapped(1, GZIP, inner((1, 0)) + batch(0), 7),
    "appended-1-over-0-and-1": wrapped(1, SNAPPY, inner((0, 0), (1, 1)), 7, 8),
    "wrapper-at-0": wrapped(1, GZIP, inner((1, 0), (1, 1), (1, 2)), 0),
    "inside-descending": wrapped(1, GZIP, inner((1, 5), (1, 3), (1, 4)), 9),
    "inside-all-0": wrapped(0, SNAPPY, inner((0, 0), (0, 0)), 1) + message(0, 2, b"behind"),
    "inside-above": wrapped(1, GZIP, inner((1, 0), (1, 10)), 9),
    "absolute-above": wrapped(0, GZIP, inner((0, 8), (0, 12)), 9) + message(0, 10, b"hidden") + message(0, 13, b"v"),
    "absolute-below": wrapped(0, GZIP, inner((0, 3), (0, 4)), 10)
    + wrapped(0, GZIP, inner(*((0, n) for n in range(5, 16))), 15),
    "nested": wrapped(1, GZIP, inner((1, 0)) + wrapped(1, GZIP, inner((1, 1)), 1), 3),
    "part-of-a-message": wrapped(1, GZIP, inner((1, 0), (1, 1)) + inner((1, 2))[:20], 5),
    "nothing-inside": wrapped(1, GZIP, b"", 5),
    "lz4-sum-of-magic-0": message(0, 1, lz4_frame(inner((0, 0)), header_checksum=0), attributes=LZ4),
    "lz4-sum-of-magic-1": message(1, 1, lz4_frame(inner((1, 0)), header_checksum=0), attributes=LZ4),
}
ALL = {**FILES, **STREAMS, **FIELDS, **OFFSETS, **MESSAGES}
