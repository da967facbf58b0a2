"""A second reader of segments, one byte after the other, written from Kafka's format: KIP-98 and the protocol guide.

It is strict, slow, and shares no code with the project's decoder. `independent` reads LZ4's frames. It judges batches
of magic 2, and no messages of magic 0 and 1.
"""

import struct
from dataclasses import dataclass, field

from awscrt.checksums import crc32c

from tests.fuzz.independent import Bad, TooLarge, as_blocks, decompressed

Header = tuple[bytes, bytes | None]
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[Header, ...]]

_HEAD = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12
_MAGIC_AT = 16
_CRC_FROM = 21
_CODEC, _LOG_APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_LZ4 = 3
_MOST_HEADERS = 100_000
_MOST_OFFSET = (1 << 63) - 1


@dataclass(slots=True)
class Judgement:
    """The content of a segment.

    Attributes:
        rows: offset, timestamp, its type, key, value and headers of the records before any damage.
        is_whole: whether nothing is damaged; None if the reader cannot decide.
    """

    rows: list[Row] = field(default_factory=list)
    is_whole: bool | None = None


class _Fields:
    """Reads the varints and bytes of one record."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def number(self) -> int:
        """A zigzag varint of at most 64 bits."""
        value = shift = 0
        while self.at < self.end and shift < 64:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise Bad("a varint without an end")

    def sized(self, *, null: bool) -> bytes | None:
        """Bytes behind their length; -1 means none where that may be."""
        size = self.number()
        if size < (-1 if null else 0) or size > self.end - self.at:
            raise Bad("a length beyond the record")
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at]


def judge(segment: bytes, most: int) -> Judgement:
    """Read a segment.

    Args:
        segment: its bytes.
        most: bytes that a batch may decompress to.
    """
    found = Judgement()
    at, last = 0, -1
    while at < len(segment):
        rest = len(segment) - at
        if rest <= _MAGIC_AT or segment[at + _MAGIC_AT] != 2 or rest < _HEAD.size:
            return found
        head = _HEAD.unpack_from(segment, at)
        base, length, crc, attributes, last_delta, count = head[0], head[1], head[4], head[5], head[6], head[12]
        size = _LENGTH_END + length
        if size > rest >= _HEAD.size and size >= _HEAD.size:
            return found  # torn
        if size < _HEAD.size or base < 0 or last_delta < 0 or count < 0 or base <= last:
            found.is_whole = False
            return found
        if base + last_delta >= _MOST_OFFSET:
            return found  # no reader reads further
        batch = segment[at : at + size]
        if crc32c(batch[_CRC_FROM:]) != crc:
            found.is_whole = False
            return found
        last = base + last_delta
        if count and not attributes & _CONTROL:
            try:
                body = _body(batch[_HEAD.size :], attributes & _CODEC, most)
                found.rows += _records(body, count, base, last, head[7], head[8], attributes)
            except TooLarge:
                return found
            except Bad:
                found.is_whole = False
                return found
        at += size
    found.is_whole = True
    return found


def _body(stored: bytes, codec: int, most: int) -> bytes:
    if not codec:
        return stored
    if codec == _LZ4:
        try:
            return as_blocks(stored, most)
        except Bad:
            pass  # linked blocks, several frames
    return decompressed(codec, stored, most)


def _records(
    body: bytes, count: int, base: int, last: int, first_time: int, batch_time: int, attributes: int
) -> list[Row]:
    rows: list[Row] = []
    at, before = 0, base - 1
    appended = bool(attributes & _LOG_APPEND_TIME)
    for _ in range(count):
        fields = _Fields(body, at, len(body))
        size = fields.number()
        if not 0 <= size <= len(body) - fields.at:
            raise Bad("a record's length")
        fields.end = fields.at + size
        if not size:
            raise Bad("a record of nothing")
        fields.at += 1  # attributes, all undefined
        time = _int64(first_time + fields.number())
        offset = _int64(base + fields.number())
        if not before < offset <= last:
            raise Bad("a record's offset")
        key, value = fields.sized(null=True), fields.sized(null=True)
        headers = _headers(fields)
        if fields.at != fields.end:
            raise Bad("bytes left in a record")
        rows.append((offset, batch_time if appended else time, int(appended), key, value, headers))
        before, at = offset, fields.end
    if at != len(body):
        raise Bad("bytes left behind the records")
    return rows


def _headers(fields: _Fields) -> tuple[Header, ...]:
    count = fields.number()
    if not 0 <= count <= fields.end - fields.at:
        raise Bad("more headers than bytes")
    if count > _MOST_HEADERS:
        raise TooLarge  # for this reader, which uses a hundred bytes for each
    return tuple((fields.sized(null=False) or b"", fields.sized(null=True)) for _ in range(count))


def _int64(value: int) -> int:
    """As Java adds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
