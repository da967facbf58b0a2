"""Compilation of kernels: the code computes what the Python code does, and refers to nothing of numba."""

from typing import Any

import numpy as np
import pytest

from tests.common.log_format.build import batch, record
from ts_reader.decode import code_cache
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.code_cache import code_of
from ts_reader.decode.columns import BufferPool, Projection, new_state
from ts_reader.decode.compilation import NotSelfContained, c_function, object_code
from ts_reader.decode.compiled import Kernel, kernel
from ts_reader.decode.kernel_arrays import TABLE_WIDTH, CursorField
from ts_reader.decode.kernel_source import Bytes, Int64s, UInt64s, copy_bytes
from ts_reader.decode.records import decode_records

RECORDS = [
    record(0, b"key", b"value", headers=[(b"name", b"data"), (b"", None)]),
    record(1, None, b""),
    record(3, b"\xff" * 200, None),
]
SEGMENT = batch(5, RECORDS[:2]) + batch(7, RECORDS)


@kernel
def _allocating(numbers: Int64s, count: int) -> int:
    return int(np.ones(count, np.int64).sum() + numbers[0])


@kernel
def _copying(target: Bytes, source: Bytes) -> None:
    copy_bytes(target, 2, source, 1, 3)


def columns_of(data: bytes, *, in_python: bool) -> list[Any]:
    """Return all arrays after the kernels have listed and decoded a segment."""
    index: Any = index_batches.function if in_python else index_batches
    decode: Any = decode_records.function if in_python else decode_records
    source, table, state = np.frombuffer(data, np.uint8), np.zeros((8, TABLE_WIDTH), np.int64), new_state()
    state[CursorField.END_OFFSET] = state[CursorField.MAX_ROWS] = state[CursorField.MAX_BYTES] = 1000
    state[CursorField.WANT_KEY] = state[CursorField.WANT_VALUE] = state[CursorField.WANT_HEADERS] = 1
    arrays = BufferPool(Projection(), 64, 1000).take().arrays()
    for array in arrays[3:]:
        array[:] = 0
    nothing = np.zeros((0, 3), np.int64)
    found = index(source, 0, len(data), 0, 1 << 62, -1, nothing, table)
    status = decode(source, source[:0], table, nothing, int(found[0]), state, *arrays)
    rows = int(state[CursorField.ROWS])
    return [tuple(map(int, found)), int(status), table, state, *(array[:rows] for array in arrays[:3]), *arrays[3:]]


@pytest.mark.parametrize("damaged", [None, *range(0, len(SEGMENT), 7)])
def test_machine_code_returns_the_same_as_the_python_code(damaged: int | None) -> None:
    """Every array is the same afterwards, of whole batches and of damaged ones."""
    data = bytearray(SEGMENT)
    if damaged is not None:
        data[damaged] ^= 0x81
    with np.errstate(over="ignore"):
        expected = columns_of(bytes(data), in_python=True)
    for ours, theirs in zip(columns_of(bytes(data), in_python=False), expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_bytes_are_copied_by_position() -> None:
    """One memcpy in machine code, a slice in Python."""
    for run in (_copying, _copying.function):
        target = np.zeros(6, np.uint8)
        run(target, np.arange(10, 16, dtype=np.uint8))
        assert target.tolist() == [0, 0, 11, 12, 13, 0]


def test_code_that_refers_to_numba_has_no_object_file() -> None:
    """A process that loads it would lack what it refers to, and LLVM ends such a process."""
    with pytest.raises(NotSelfContained, match="NRT"):
        object_code(c_function(_allocating), "f", code_cache._machine().target)


def test_code_that_refers_to_numba_runs_with_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    """A later numba may add such a reference: then each process compiles."""
    _allocating._code = code_of(_allocating)
    assert _allocating(np.array([5]), 7) == 12
    logged = "".join(capfd.readouterr())
    assert "compiled_code_not_cached" in logged
    assert "_allocating" in logged


@kernel
def _half(number: int) -> int:
    return number / 2  # type: ignore[return-value]


@kernel
def _unsigned(numbers: UInt64s) -> int:
    return numbers[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrong", [_half, _unsigned])
def test_a_result_of_another_type_is_refused(wrong: Kernel[..., Any]) -> None:
    """The frame would cut it."""
    with pytest.raises(TypeError, match="signed integers or bools are expected"):
        c_function(wrong)
