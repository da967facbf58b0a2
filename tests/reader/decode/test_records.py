"""The kernel of records at damage. Whole segments are in test_segment_decoder.py."""

import numpy as np
import pytest

from tests.common.log_format.build import batch, record, varint
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.columns import BufferPool, Projection, new_state
from ts_reader.decode.kernel_arrays import TABLE_WIDTH, CursorField, DecodeStatus
from ts_reader.decode.records import decode_records


def readonly(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (varint(99) + bytes(20), DecodeStatus.BAD_LENGTH),
        (b"\xff" * 20, DecodeStatus.BAD_LENGTH),  # a varint without an end
        (varint(4) + b"\0" + varint(0) + varint(0) + varint(50), DecodeStatus.BAD_FIELD),
        (record(0) + b"\0", DecodeStatus.BYTES_LEFT),
        (record(0)[:-1] + varint(30), DecodeStatus.BAD_HEADERS),
    ],
)
def test_damage_is_a_status_and_the_cursor_is_at_the_record(body: bytes, status: DecodeStatus) -> None:
    """Rows before it stay in the columns."""
    good = record(0)
    data = batch(0, [good]) + batch(1, body=body, count=1)
    table = np.zeros((8, TABLE_WIDTH), np.int64)
    count, *_ = index_batches(readonly(data), 0, len(data), 0, 1 << 62, -1, np.zeros((0, 3), np.int64), table)
    state = new_state()
    state[CursorField.END_OFFSET] = state[CursorField.MAX_ROWS] = state[CursorField.MAX_BYTES] = 100
    state[CursorField.WANT_HEADERS] = 1
    buffers = BufferPool(Projection(), 8, 100).take()
    erased = np.zeros((0, 3), np.int64)
    found = decode_records(readonly(data), readonly(b""), table, erased, count, state, *buffers.arrays())
    assert (DecodeStatus(found), state[CursorField.BATCH], state[CursorField.ROWS]) == (status, 1, 1)
