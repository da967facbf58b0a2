"""The kernel that lists v2 batches of a segment's bytes in the table of `kernel_arrays`.

`legacy` lists messages of magic 0 and 1 in the same table; `records` decodes the records of both.

Every length is compared with the remaining bytes before it is used.
"""

from ts_common.log_format import framing
from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_arrays import PASSED as _PASSED
from ts_reader.decode.kernel_arrays import UNWANTED as _UNWANTED
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Bytes, Int64Rows, inlined, int32_at, int64_at

# Numba compiles module constants as literals, but not members of an enumeration in every place
_POSITION, _END, _CRC, _CODEC = (int(c) for c in (Column.POSITION, Column.END, Column.CRC, Column.CODEC))
_MAGIC, _RECORDS_BASE = int(Column.MAGIC), int(Column.RECORDS_BASE)
_DATA_START, _DATA_END = int(Column.DATA_START), int(Column.DATA_END)
_BASE_OFFSET, _LAST_OFFSET = int(Column.BASE_OFFSET), int(Column.LAST_OFFSET)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)
_RECORD_COUNT, _HIDDEN = int(Column.RECORD_COUNT), int(Column.HIDDEN)
_LEADER_EPOCH, _ERASED = int(Column.LEADER_EPOCH), int(Column.ERASED)

_field = framing.batch_field_position
_AT_LENGTH, _AT_MAGIC, _AT_CRC, _AT_ATTRIBUTES = _field("length"), _field("magic"), _field("crc"), _field("attributes")
_AT_DELTA, _AT_COUNT = _field("last_offset_delta"), _field("record_count")
_AT_BASE_TIMESTAMP, _AT_MAX_TIMESTAMP = _field("base_timestamp"), _field("max_timestamp")
_AT_PRODUCER_ID, _AT_LEADER_EPOCH = _field("producer_id"), _field("leader_epoch")
_HEADER_SIZE, _LENGTH_END = framing.HEADER_SIZE, framing.LENGTH_END
_CODEC_MASK, _TIMESTAMP_TYPE_MASK = framing.CODEC_MASK, framing.TIMESTAMP_TYPE_MASK
_CONTROL_MASK, _TRANSACTIONAL_MASK = framing.CONTROL_MASK, framing.TRANSACTIONAL_MASK


@inlined
def _is_aborted(aborted: Int64Rows, producer_id: int, offset: int, last_offset: int) -> bool:
    """Return whether an aborted transaction of the producer contains an offset of a batch.

    A producer's transactions do not overlap, so only the first that ends at or above the offset can contain it.
    """
    low, high = 0, len(aborted)
    while low < high:
        middle = (low + high) // 2
        row = aborted[middle]
        if row[0] < producer_id or (row[0] == producer_id and row[2] < offset):
            low = middle + 1
        else:
            high = middle
    return low < len(aborted) and aborted[low, 0] == producer_id and aborted[low, 1] <= last_offset


@kernel
def index_batches(
    data: Bytes,
    position: int,
    end: int,
    start_offset: int,
    end_offset: int,
    last_offset: int,
    aborted: Int64Rows,
    table: Int64Rows,
) -> tuple[int, int, bool]:
    """List whole, valid v2 batches of `data[position:end]` that follow `last_offset`, until `table` is full.

    A batch follows as `framing.follows` defines. Batches of transactions in `aborted` are passed. Its rows are
    (producer id, first offset, offset of the marker), in order. A batch below `start_offset` is wanted if it counts
    more records than its header has offsets: its records can be above its last offset.

    Returns:
        (number of batches, position after them, whether `end_offset` is reached). If the position is not `end`, the
        table is not full and `end_offset` is not reached, then something else follows: a part of a batch, zeros, an
        older magic, or damage. `framing.parse_header` distinguishes them.
    """
    count = 0
    reached = False
    while count < len(table) and position + _HEADER_SIZE <= end:
        size = _LENGTH_END + int32_at(data, position + _AT_LENGTH)
        if data[position + _AT_MAGIC] != 2 or size < _HEADER_SIZE or position + size > end:
            break
        base_offset = int64_at(data, position)
        delta = int32_at(data, position + _AT_DELTA)
        records = int32_at(data, position + _AT_COUNT)
        if records < 0 or (
            base_offset <= last_offset and (not records or base_offset + delta != last_offset + records)
        ):
            break
        if base_offset >= end_offset and base_offset + delta >= end_offset:
            reached = True
            break
        first_offset = max(base_offset, last_offset + 1)
        last_offset = max(base_offset + delta, last_offset)
        attributes = data[position + _AT_ATTRIBUTES + 1]
        codec = attributes & _CODEC_MASK
        if last_offset < start_offset and records <= delta + 1:
            codec = _UNWANTED
        elif (
            len(aborted)
            and attributes & _TRANSACTIONAL_MASK
            and _is_aborted(aborted, int64_at(data, position + _AT_PRODUCER_ID), base_offset, last_offset)
        ):
            codec = _PASSED
        if not records and not codec:
            codec = _UNWANTED
        row = table[count]
        row[_POSITION] = position
        row[_END] = position + size
        row[_CRC] = int32_at(data, position + _AT_CRC) & 0xFFFFFFFF
        row[_CODEC] = codec
        row[_HIDDEN] = 1 if attributes & _CONTROL_MASK else 0
        row[_MAGIC] = 2
        row[_DATA_START] = position + _HEADER_SIZE
        row[_DATA_END] = position + size
        row[_BASE_OFFSET] = first_offset
        row[_LAST_OFFSET] = last_offset
        row[_RECORDS_BASE] = base_offset
        row[_BASE_TIMESTAMP] = int64_at(data, position + _AT_BASE_TIMESTAMP)
        row[_MAX_TIMESTAMP] = int64_at(data, position + _AT_MAX_TIMESTAMP)
        row[_HAS_ONE_TIMESTAMP] = row[_TIMESTAMP_TYPE] = 1 if attributes & _TIMESTAMP_TYPE_MASK else 0
        row[_RECORD_COUNT] = records
        row[_LEADER_EPOCH] = int32_at(data, position + _AT_LEADER_EPOCH)
        row[_ERASED] = 0
        count += 1
        position += size
        if last_offset >= end_offset - 1:
            reached = True
            break
    return count, position, reached
