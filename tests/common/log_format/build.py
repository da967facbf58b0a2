"""An encoder of batches, field by field, for bytes that no client library writes: markers, damage, old magics."""

import struct
from collections.abc import Sequence
from pathlib import Path

from awscrt.checksums import crc32, crc32c

DATA = Path(__file__).parent / "data"
SEGMENTS = sorted(DATA.glob("0*.log"))

TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
LOG_APPEND_TIME = 0x08


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    zigzag &= (1 << 64) - 1
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp_delta: int = 0,
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(data) for name, data in headers)
    return varint(len(body)) + body


def batch(
    base_offset: int = 0,
    records: Sequence[bytes] | None = None,
    *,
    body: bytes | None = None,
    count: int | None = None,
    last_offset_delta: int | None = None,
    epoch: int = 0,
    attributes: int = 0,
    base_timestamp: int = 1000,
    max_timestamp: int = 2000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    if records is None:
        records = [record(0)]
    if body is None:
        body = b"".join(records)
    if count is None:
        count = len(records)
    if last_offset_delta is None:
        last_offset_delta = max(count - 1, 0)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        count,
    )
    tail += body
    return struct.pack(">qiibI", base_offset, len(tail) + 9, epoch, 2, crc32c(tail)) + tail


def marker(
    offset: int, producer_id: int, kind: int, epoch: int = 0, *, time: int = 1500, producer_epoch: int = -1
) -> bytes:
    """Return a transaction marker: kind 0 aborts, 1 commits; its leader wrote it at `time` (ms)."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7)
    return batch(
        offset,
        [record(0, key, value)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        epoch=epoch,
        base_timestamp=time,
        max_timestamp=time,
    )


def message(
    magic: int, offset: int, value: bytes | None, key: bytes | None = None, *, attributes: int = 0, timestamp: int = 77
) -> bytes:
    """Return a message of magic 0 or 1; with a codec in `attributes`, `value` is the compressed message set."""
    tail = struct.pack(">bb", magic, attributes)
    if magic:
        tail += struct.pack(">q", timestamp)
    for data in (key, value):
        tail += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", offset, len(tail) + 4, crc32(tail)) + tail
