"""A batch without some of its records, as Kafka's log cleaner leaves one (`MemoryRecords.filterTo`).

The batch keeps base offset, last offset delta, leader epoch, producer, base sequence and codec, so a broker that loads
it continues the producer's sequence, and a client's position advances as before. The bytes of the other records are
copied, not encoded again. The greatest timestamp is that of the other records, unless the broker assigned all of them.

A batch that keeps no record is its header alone, without a codec, and with the greatest timestamp that it had
(`DefaultRecordBatch.writeEmptyHeader`). Such a header has no base timestamp.

Messages of magic 0 and 1 are not rewritten: their offsets are inside of the compressed bytes.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from typing import Final, Protocol, cast

from ts_common.errors import CorruptData
from ts_common.log_format.framing import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    batch_crc,
    crc_start,
    encode_batch,
    parse_header,
)
from ts_common.log_format.varints import read_varint

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64


class RecordCodecs(Protocol):
    """Compression by Kafka's codec ids; never called for id 0."""

    def unpack(self, codec: int, data: memoryview) -> bytes:
        """Return decompressed records.

        Raises:
            CorruptData: the bytes are not of the codec, or the codec is unknown.
            BatchTooLarge: the records exceed a limit.
        """
        ...

    def pack(self, codec: int, data: bytes) -> bytes:
        """Return compressed records."""
        ...


class OffsetDeltas:
    """Ranges of offsets, as deltas from a batch's base offset: a header can have a range of 2**31, and one record.

    Args:
        ranges: `[start, end)` of each, ascending.
        base: offset of the batch.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]], base: int) -> None:
        found = [(start - base, end - base) for start, end in ranges]
        self._starts, self._ends = [start for start, _ in found], [end for _, end in found]

    def __contains__(self, delta: object) -> bool:
        """Return whether a delta is of one of the ranges."""
        at = bisect_right(self._starts, cast("int", delta)) - 1
        return at >= 0 and cast("int", delta) < self._ends[at]


def without_records(batch: Buffer, dropped: Container[int], codecs: RecordCodecs) -> bytes:
    """Return a batch of magic 2 without the records at some offsets; a control batch as it is.

    Args:
        batch: the bytes of one whole batch.
        dropped: offset deltas, from the base offset. All records with one of them are left out.

    Raises:
        CorruptData: its CRC is wrong, or its records do not fit it.
        BatchTooLarge: from `codecs`.
        ValueError: its magic is 0 or 1.
    """
    header = parse_header(batch, 0, len(batch))
    if not isinstance(header, BatchHeader) or header.size_in_bytes != len(batch):
        raise CorruptData(f"{len(batch)} bytes are not one batch")
    if header.magic < 2:
        raise ValueError(f"a message of magic {header.magic} cannot be rewritten")
    named = f"batch of base offset {header.base_offset}"
    if (crc := batch_crc(header.magic, memoryview(batch)[crc_start(header.magic) :])) != header.crc:
        raise CorruptData(f"{named}: CRC {crc:08x}; its header has {header.crc:08x}")
    count = header.record_count or 0
    if header.is_control or not count:
        return bytes(batch)
    body = memoryview(batch)[HEADER_SIZE:]
    records = codecs.unpack(header.codec, body) if header.codec else bytes(body)
    kept, greatest = list[bytes](), NO_TIMESTAMP
    for record, delta, timestamp_delta in _records(records, count, named):
        if delta not in dropped:
            kept.append(record)
            greatest = max(greatest, _wrapped(header.base_timestamp + timestamp_delta, _INT64_BITS))
    if len(kept) == count:
        return bytes(batch)
    if not kept:
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
        return _encoded(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")
    data = b"".join(kept)
    return _encoded(
        header,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else greatest,
        len(kept),
        codecs.pack(header.codec, data) if header.codec else data,
    )


def _encoded(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, records: bytes
) -> bytes:
    fields = (
        attributes,
        header.last_offset - header.base_offset,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    return encode_batch(header.base_offset, header.leader_epoch, fields, records)


def _records(data: bytes, count: int, named: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield the bytes, the offset delta and the timestamp delta of each record; bytes after the last are left out."""
    at = 0
    try:
        for _ in range(count):
            length, body = read_varint(data, at)
            end = body + _wrapped(length, _INT32_BITS)
            timestamp_delta, position = read_varint(data, body + 1)
            delta, position = read_varint(data, position)
            if not body <= position <= end <= len(data):
                raise CorruptData(f"{named}: a record's length does not fit it")
            yield data[at:end], _wrapped(delta, _INT32_BITS), timestamp_delta
            at = end
    except IndexError as error:
        raise CorruptData(f"{named}: it ends within a record") from error


def _wrapped(value: int, bits: int) -> int:
    """Return a number as Java computes it: higher bits do not count."""
    half = 1 << bits - 1
    return (value + half) % (half << 1) - half
