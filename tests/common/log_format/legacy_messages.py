"""Messages of magic 0 and 1."""

import gzip
from collections.abc import Iterable

from tests.common.log_format.build import message
from tests.reader.decode.frames import lz4_frame, xerial

GZIP, SNAPPY, LZ4 = 1, 2, 3


Inner = tuple[int, int, bytes | None, bytes | None]  # offset as stored, timestamp, key, value


def packed(codec: int, data: bytes) -> bytes:
    """Return compressed bytes; LZ4 has the wrong header checksum that Kafka wrote in magic 0 (KAFKA-3160)."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)  # the same bytes in every process, because they are in names of tests
    return {SNAPPY: xerial, LZ4: lz4_frame}[codec](data)


def wrapper(
    magic: int,
    codec: int,
    inner: Iterable[Inner] | bytes,
    offset: int,
    *,
    attributes: int = 0,
    timestamp: int = 5555,
    key: bytes | None = None,
) -> bytes:
    """Return a compressed message over a message set, or over any bytes."""
    if not isinstance(inner, bytes):
        inner = b"".join(message(magic, at, value, k, timestamp=time) for at, time, k, value in inner)
    return message(magic, offset, packed(codec, inner), key, attributes=attributes | codec, timestamp=timestamp)
