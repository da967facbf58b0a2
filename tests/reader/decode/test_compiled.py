"""Kernels as Python calls them: types of arguments and results, locks, and the numbers that they read."""

import os
import signal
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from ts_reader.decode.compiled import Kernel, all_given, given, kernel
from ts_reader.decode.kernel_source import Bytes, Int64Rows, Int64s, int32_at, int64_at


@kernel
def _numbers(data: Bytes, position: int) -> tuple[int, int]:
    return int32_at(data, position), int64_at(data, position)


@kernel
def _shape(rows: Int64Rows, numbers: Int64s, is_large: bool) -> tuple[int, int, bool]:
    numbers[0] = rows[-1, -1]
    return len(rows), len(rows[0]), not is_large


@kernel
def _is_true(number: bool) -> tuple[bool]:
    return (number is True,)


@kernel
def _fill(numbers: Int64s, number: int) -> None:
    for at in range(len(numbers)):
        numbers[at] = number


@pytest.mark.parametrize("number", [0, 1, -1, 0x01020304, -(1 << 31), (1 << 31) - 1])
def test_numbers_of_kafka_are_signed_and_big_endian(number: int) -> None:
    """At any position, between other bytes; a number of 64 bits also beyond those of 32."""
    for value, size, which in ((number, 4, 0), (number, 8, 1), (number << 32, 8, 1)):
        data = b"\x7f\xff\x7f" + value.to_bytes(size, "big", signed=True) + b"\xff" * 5
        assert _numbers(np.frombuffer(data, np.uint8), 3)[which] == value


def test_arrays_integers_and_results_pass_unchanged() -> None:
    """An array of two dimensions has its shape, a kernel writes to arrays, and results are of Python's types."""
    numbers = np.zeros(1, np.int64)
    assert _shape(np.arange(6).reshape(2, 3), numbers, False) == (2, 3, True)
    assert _shape(np.arange(6).reshape(2, 3), numbers, True)[2] is False
    assert numbers.tolist() == [5]
    assert (_is_true(True), _is_true(False)) == ((True,), (False,))
    for number in (-(1 << 63), (1 << 63) - 1, int(np.int64(-7)), True):
        assert _fill(numbers, number) is None
        assert numbers.tolist() == [int(number)]


@pytest.mark.parametrize(
    "array",
    [np.zeros(4, np.int32), np.zeros(4, np.uint64), np.zeros(8, np.int64)[::2], np.zeros(4, ">i8"), [1, 2], None],
)
def test_an_array_of_another_type_is_refused(array: Any) -> None:
    """Machine code would read and write beyond it."""
    with pytest.raises(TypeError, match="is expected"):
        _fill(array, 1)
    with pytest.raises(TypeError, match="is expected"):
        fill: Any = _fill
        fill(*all_given([array]), 1)


def test_an_array_of_other_dimensions_is_refused() -> None:
    """The code would use its shape as other arguments."""
    with pytest.raises(TypeError, match=r"_fill: .*ArrayType"):
        _fill(np.zeros((2, 2), np.int64), 1)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_an_integer_beyond_64_bits_is_refused(number: int) -> None:
    """It would wrap around."""
    with pytest.raises(OverflowError):
        _fill(np.zeros(1, np.int64), number)


def test_a_process_that_is_forked_while_a_kernel_is_loaded_loads_kernels() -> None:
    """The child has no thread that would release the locks of LLVM."""

    def plus(number: int) -> int:
        return number + 1

    for _ in range(5):
        first, second = Kernel(plus), Kernel(plus)
        begun = threading.Event()

        def load(kernel: Kernel[[int], int] = first, begun: threading.Event = begun) -> None:
            begun.set()
            for _ in range(20):
                kernel._code = None
                kernel(1)

        thread = threading.Thread(target=load)
        thread.start()
        begun.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
            child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            os._exit(0 if second(1) == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()


def _of_any(data: Any) -> int:
    return len(data)


def _of_nothing(data: Bytes) -> str:
    return str(data)


@pytest.mark.parametrize("function", [_of_any, _of_nothing])
def test_a_function_of_other_types_is_no_kernel(function: Any) -> None:
    """The machine code would misread what Python passes."""
    with pytest.raises(TypeError, match="is expected"):
        kernel(function)


def test_arrays_given_once_serve_many_calls() -> None:
    """Alone, or several as consecutive arguments; one of another type is refused like the array itself."""
    shape: Any = _shape
    rows, numbers = np.arange(6).reshape(2, 3), np.zeros(1, np.int64)
    both = all_given([rows, numbers])
    for value in (5, 9):
        rows[-1, -1] = value
        assert _shape(given(rows), given(numbers), False) == (2, 3, True)
        assert numbers.tolist() == [value]
        assert shape(*both, False) == (2, 3, True)
    for wrong in ([given(numbers), given(rows)], all_given([numbers, rows]), all_given([rows, numbers, numbers])):
        with pytest.raises(TypeError, match=r"_shape: .* is expected"):
            shape(*wrong, False)
    with pytest.raises(TypeError, match="is expected"):
        shape(*both)
    with pytest.raises(TypeError, match="without names"):
        shape(*both, False, more=1)
    with pytest.raises(TypeError, match="is expected"):
        shape(*both, False, False)
