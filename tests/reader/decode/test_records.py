"""The kernel of records at damage. Whole segments are in test_segment_decoder.py."""

import numpy as np
import pytest

from tests.common.log_format.build import batch, record, varint
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.columns import BufferPool, Projection, new_state
from ts_reader.decode.kernel_arrays import TABLE_WIDTH, State, Status
from ts_reader.decode.records import decode_records


def readonly(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (varint(99) + bytes(20), Status.BAD_LENGTH),
        (b"\xff" * 20, Status.BAD_LENGTH),  # a varint without an end
        (varint(4) + b"\0" + varint(0) + varint(0) + varint(50), Status.BAD_FIELD),
        (record(0) + b"\0", Status.BYTES_LEFT),
        (record(0)[:-1] + varint(30), Status.BAD_HEADERS),
    ],
)
def test_damage_is_a_status_and_the_cursor_is_at_the_record(body: bytes, status: Status) -> None:
    """Rows before it stay in the columns."""
    good = record(0)
    data = batch(0, [good]) + batch(1, body=body, count=1)
    table = np.zeros((8, TABLE_WIDTH), np.int64)
    count, *_ = index_batches(readonly(data), 0, len(data), 0, 1 << 62, -1, np.zeros((0, 3), np.int64), table)
    state = new_state()
    state[State.END_OFFSET] = state[State.MAX_ROWS] = state[State.MAX_BYTES] = 100
    state[State.WANT_HEADERS] = 1
    buffers = BufferPool(Projection(), 8, 100).take()
    found = decode_records(readonly(data), readonly(b""), table, count, state, *buffers.arrays())
    assert (Status(found), state[State.BATCH], state[State.ROWS]) == (status, 1, 1)
