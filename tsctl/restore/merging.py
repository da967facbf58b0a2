"""One batch from compacted copies of it that lack different records.

The log cleaner of each replica removes other records of a batch, at other times. Readers return the union, so the
restored batch has it too: without compression, and with the header of the copy with most records.
"""

from collections.abc import Iterator, Sequence

from ts_common.errors import CorruptData
from ts_common.log_format.framing import CODEC_MASK, HEADER_SIZE, BatchHeader, encode_batch, parse_header
from ts_common.log_format.varints import read_varint, varint
from ts_reader.decode.codecs import Scratch

Copy = tuple[BatchHeader, bytearray]


def merged(copies: Sequence[Copy]) -> Copy:
    """Return the batch of several copies of the same base offset with all of their records.

    It is one of them if that has all records. Messages of magic 0 and 1, and markers, are not merged.

    Raises:
        CorruptData: a batch cannot be decompressed or parsed.
    """
    best = max(copies, key=lambda copy: copy[0].record_count or 0)
    header = best[0]
    if header.magic < 2 or header.is_control or all(each.crc == header.crc for each, _ in copies):
        return best
    records: dict[int, tuple[int, bytes]] = {}
    for copy in (best, *copies):
        for offset_delta, timestamp, rest in _records(*copy):
            records.setdefault(offset_delta, (timestamp, rest))
    if len(records) == header.record_count:
        return best
    body = b"".join(_record(delta, *records[delta], header.base_timestamp) for delta in sorted(records))
    greatest = max(each.max_timestamp for each, _ in copies)
    fields = (
        header.attributes & ~CODEC_MASK,
        header.last_offset - header.base_offset,
        header.base_timestamp,
        greatest,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        len(records),
    )
    data = bytearray(encode_batch(header.base_offset, header.leader_epoch, fields, body))
    made = parse_header(data, 0, len(data))
    assert isinstance(made, BatchHeader)  # noqa: S101  (this function encoded it)
    return made, data


def _records(header: BatchHeader, data: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset delta, timestamp, the bytes from the key on) of each record."""
    body = bytes(memoryview(data)[HEADER_SIZE:])
    if header.codec:
        scratch = Scratch()
        scratch.add(header.codec, memoryview(body))
        body = bytes(scratch.array[: scratch.end])
    position = 0
    try:
        for _ in range(header.record_count or 0):
            length, begin = read_varint(body, position)
            position = begin + length
            timestamp_delta, at = read_varint(body, begin + 1)  # after one byte of attributes
            offset_delta, at = read_varint(body, at)
            if not at <= position <= len(body):
                raise IndexError
            yield offset_delta, header.base_timestamp + timestamp_delta, body[at:position]
    except IndexError as error:
        raise CorruptData(f"batch of base offset {header.base_offset}: a record is truncated") from error


def _record(offset_delta: int, timestamp: int, rest: bytes, base_timestamp: int) -> bytes:
    content = b"".join((b"\0", varint(timestamp - base_timestamp), varint(offset_delta), rest))
    return varint(len(content)) + content
