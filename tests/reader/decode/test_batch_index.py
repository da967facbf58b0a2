"""The table of v2 batches: what is listed, and where the list ends."""

import numpy as np
import pytest

from tests.common.log_format.build import CONTROL, TRANSACTIONAL, batch, record
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.kernel_arrays import PASSED, TABLE_WIDTH, UNWANTED, Column
from ts_reader.decode.kernel_source import Int64s

NONE_ABORTED = np.zeros((0, 3), np.int64)
EVERYTHING = (0, 1 << 62, -1)  # start offset, end offset, last offset


def readonly(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def indexed(
    data: bytes, bounds: tuple[int, int, int] = EVERYTHING, aborted: Int64s = NONE_ABORTED, rows: int = 8
) -> tuple[int, int, bool, np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    table = np.zeros((rows, TABLE_WIDTH), np.int64)
    count, position, reached = index_batches(readonly(data), 0, len(data), *bounds, aborted, table)
    return count, position, reached, table


def test_the_table_has_whole_batches_as_far_as_it_has_room() -> None:
    """It ends before a part of a batch, and where the table is full."""
    one, two = batch(3, [record(0), record(1)], epoch=4), batch(7, [record(0)], last_offset_delta=5)
    count, position, reached, table = indexed(one + two + one[:-1])
    assert (count, position, reached) == (2, len(one + two), False)
    fields = (Column.POSITION, Column.END, Column.BASE_OFFSET, Column.LAST_OFFSET, Column.RECORD_COUNT, Column.CODEC)
    assert table[:2, list(fields)].tolist() == [
        [0, len(one), 3, 4, 2, 0],
        [len(one), len(one + two), 7, 12, 1, 0],
    ]
    assert indexed(one + two, rows=1)[:3] == (1, len(one), False)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 5, -1), (1, True)),  # ends with the batch that reaches the end
        ((0, 7, -1), (1, True)),  # the next batch is behind the end
        ((0, 8, -1), (2, True)),
        ((0, 99, 4), (0, False)),  # offsets do not ascend
    ],
)
def test_the_table_ends_with_the_range(bounds: tuple[int, int, int], expected: tuple[int, bool]) -> None:
    """Offsets ascend from above the last one."""
    data = batch(3, [record(0), record(1)]) + batch(7, [record(0)])
    count, _, reached, _ = indexed(data, bounds)
    assert (count, reached) == expected


def test_batches_without_selected_records_have_no_codec() -> None:
    """Below the start, and those of aborted transactions, up to the marker; records of control batches are hidden."""
    data = (
        batch(0, [record(0)])
        + batch(2, [record(0)], attributes=TRANSACTIONAL, producer_id=7)
        + batch(3, [record(0)], attributes=TRANSACTIONAL, producer_id=8)
        + batch(4, [record(0)], attributes=TRANSACTIONAL | CONTROL, producer_id=7)
        + batch(5, [record(0)], attributes=TRANSACTIONAL, producer_id=7)
    )
    aborted = np.array([[6, 0, 9], [7, 2, 4], [7, 9, 9]], np.int64)
    count, _, _, table = indexed(data, (1, 99, -1), aborted)
    assert table[:count, Column.CODEC].tolist() == [UNWANTED, PASSED, 0, PASSED, 0]
    assert table[:count, Column.HIDDEN].tolist() == [0, 0, 0, 1, 0]
