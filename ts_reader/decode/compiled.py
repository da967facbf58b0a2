"""Kernels: functions of arrays and integers that run as machine code, without the GIL.

Numba compiles a kernel when it is first called on a machine (`compilation`), and the code is kept (`code_cache`). The
code refers to nothing of numba or Python, so later processes load it with llvmlite, in milliseconds. Numba has a cache
too, but a process needs 0.4 s to import numba and to read it.

A kernel is plain Python: without compilation it is slow and correct, and tests compare both.
"""

import os
import threading
from array import array
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ts_reader.decode.kernel_source import ArrayType, KernelSource, P, R, array_type

A = TypeVar("A", bound=npt.NDArray[Any])

_INTEGERS: Final = (int, np.integer, np.bool_)
# Held across a fork, so that no other thread is inside LLVM then: its lock would stay held in the child for ever.
_loading: Final = threading.RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


class _Given:
    """Arrays as the code of kernels gets them.

    Attributes:
        values: of each its address and its shape.
        arrays: keep the memory.

    Raises:
        TypeError: an argument is no array, or not C-contiguous.
    """

    __slots__ = ("arrays", "types", "values")

    def __init__(self, *arrays: npt.NDArray[Any]) -> None:
        types: list[ArrayType] = []
        values: list[int] = []
        for each in arrays:
            if not isinstance(each, np.ndarray):
                raise TypeError(f"an array is expected, not {type(each).__name__}")
            found = each.__array_interface__
            if found["strides"] is not None:
                raise TypeError(f"a C-contiguous array is expected, not one with strides {found['strides']}")
            types.append(array_type(found["typestr"], len(found["shape"])))
            values += (found["data"][0], *found["shape"])
        self.types, self.values, self.arrays = tuple(types), tuple(values), arrays


def given(argument: A) -> A:
    """Return an array as an argument of many calls: to find its address costs as much as a call.

    Only kernels accept it.
    """
    return cast("A", _Given(argument))


def all_given(arrays: Iterable[npt.NDArray[Any]]) -> tuple[Any, ...]:
    """Return arrays as consecutive arguments of many calls, as `given`."""
    return (_Given(*arrays),)


class Kernel(KernelSource[P, R]):
    """A function that runs as machine code; the first call compiles it or loads its code."""

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        super().__init__(function)
        self._types = [int if each is bool else each for each in self.arguments]
        self._room = [0] * len(self.results)
        self._bools = [at for at, each in enumerate(self.results) if each is bool]
        self._code: Callable[[int], None] | None = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Run the kernel; arguments have no names.

        Raises:
            TypeError: an argument has another type; the machine code checks none.
            OverflowError: an integer has more than 64 bits.
        """
        code = self._code or self._load()
        types: list[Any] = []
        values = self._room.copy()
        for each in cast("tuple[Any, ...]", arguments):
            kind = type(each)
            if kind is int or (kind is not _Given and isinstance(each, _INTEGERS)):
                types.append(int)
                values.append(each)
            else:
                argument = each if kind is _Given else _Given(each)
                types += argument.types
                values += argument.values
        if types != self._types or named:
            raise TypeError(f"{self.name}: {self._types} is expected, without names, not {types}")
        frame = array("q", values)
        code(frame.buffer_info()[0])
        if not self.is_tuple:
            return cast("R", self.results[0](frame[0]) if self.results else None)
        found = frame[: len(self.results)].tolist()
        for at in self._bools:
            found[at] = bool(found[at])
        return cast("R", tuple(found))

    def _load(self) -> Callable[[int], None]:
        from ts_reader.decode.code_cache import code_of  # noqa: PLC0415  (llvmlite; a process may decode nothing)

        with _loading:
            if self._code is None:
                self._code = code_of(self)
            return self._code


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Return a kernel of a function; see `Kernel`."""
    return Kernel(function)
