"""Kernels: functions of arrays and integers that run as machine code, without the GIL.

Numba compiles a kernel when it is first called on a machine (`compilation`), and the code is kept (`code_cache`). The
code refers to nothing of numba or Python, so later processes load it with llvmlite, in milliseconds. Numba has a cache
too, but a process needs 0.4 s to import numba and to read it.

A kernel is plain Python: without compilation it is slow and correct, and tests compare both.
"""

import dis
import hashlib
import os
import threading
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, update_wrapper
from types import CodeType
from typing import Annotated, Any, Final, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType:
    """The type of a kernel's array argument, C-contiguous. There is one object for each type: see `array_type`.

    Attributes:
        typestr: numpy's code of its dtype, with the byte order.
        dimensions: their number.
    """

    typestr: str
    dimensions: int


@cache
def array_type(typestr: str, dimensions: int) -> ArrayType:
    """Return the type of arrays; arguments as its attributes."""
    return ArrayType(typestr, dimensions)


Bytes = Annotated[npt.NDArray[np.uint8], array_type(np.dtype(np.uint8).str, 1)]
Int32s = Annotated[npt.NDArray[np.int32], array_type(np.dtype(np.int32).str, 1)]
Int64s = Annotated[npt.NDArray[np.int64], array_type(np.dtype(np.int64).str, 1)]
UInt64s = Annotated[npt.NDArray[np.uint64], array_type(np.dtype(np.uint64).str, 1)]
Int64Rows = Annotated[npt.NDArray[np.int64], array_type(np.dtype(np.int64).str, 2)]
UInt64Rows = Annotated[npt.NDArray[np.uint64], array_type(np.dtype(np.uint64).str, 2)]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=npt.NDArray[Any])

_INTEGERS: Final = (int, np.integer, np.bool_)
_INLINED: Final = "__is_inlined__"
_MODULES: Final = (np, hashlib)  # that functions of kernels may read
# Held across a fork, so that no other thread is inside LLVM then: its lock would stay held in the child for ever.
_loading: Final = threading.RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def inlined(function: F) -> F:
    """Mark a function that kernels call; from Python it runs uncompiled."""
    setattr(function, _INLINED, True)
    return function


class _Given:
    """Arrays as the code of kernels gets them.

    Attributes:
        types: of the arrays.
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


class Kernel(Generic[P, R]):
    """A function that runs as machine code; the first call compiles it or loads its code.

    The code gets the address of a frame of int64: room for each result, then the arguments. An array is its address and
    its shape.

    Attributes:
        function: the same in Python.
        arguments: the types of its arguments: of an array, int or bool.
        results: int or bool for each of its results.
        is_tuple: whether it returns a tuple.

    Args:
        function: its annotations are the array types of this module, int and bool; it returns None, an int, a bool, or
            a tuple of these. It reads integers, arrays, numpy and other kernels only, allocates nothing, and raises
            nothing. The caller passes writable arrays where it writes.

    Raises:
        TypeError: the annotations have another type.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self.function = function
        hints = get_type_hints(function, include_extras=True)
        result = hints.pop("return")
        self.arguments = tuple(_argument_type(hint) for hint in hints.values())
        self.is_tuple = get_origin(result) is tuple
        self.results: tuple[type, ...] = get_args(result) if self.is_tuple else (result,) * (result is not type(None))
        if not {*self.results} <= {int, bool}:
            raise TypeError(f"{self.name} returns {result}: None, int, bool or a tuple of these is expected")
        self._types = [int if each is bool else each for each in self.arguments]
        self._room = [0] * len(self.results)
        self._bools = [at for at, each in enumerate(self.results) if each is bool]
        self._code: Callable[[int], None] | None = None

    @property
    def name(self) -> str:
        """The name of the function with its module."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

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


def globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the globals that a kernel's function reads, without numpy; of a kernel or an inlined function in Python.

    Raises:
        TypeError: it reads something that the digest of its code does not cover.
    """
    code, found = function.__code__, {}
    if function.__closure__ or function.__defaults__ or any(isinstance(each, CodeType) for each in code.co_consts):
        raise TypeError(f"{function.__qualname__}: a kernel has no closure, no default argument and no function inside")
    for name in sorted({each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}):
        value: Any = function.__globals__.get(name)
        if value is None or any(value is module for module in _MODULES):  # None: a function of Python
            continue
        if isinstance(value, Kernel):
            found[name] = value.function
        elif type(value) is int or isinstance(value, np.ndarray) or getattr(value, _INLINED, False) is True:
            found[name] = value
        else:
            raise TypeError(f"{function.__qualname__}: {name} is {value!r}; an int, an array or a kernel is expected")
    return found


def _argument_type(hint: Any) -> ArrayType | type:
    if hint is int or hint is bool:
        return cast("type", hint)
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, ArrayType):
            return each
    raise TypeError(f"{hint}: an array type of this module, int or bool is expected")


@inlined
def copy_bytes(target: Bytes, target_position: int, source: Bytes, position: int, count: int) -> None:
    """Copy bytes: one memcpy, without checks."""
    target[target_position : target_position + count] = source[position : position + count]


@inlined
def int32_at(data: Bytes, position: int) -> Any:
    """Return a big-endian int32."""
    value = np.uint32(0)
    for index in range(4):
        value = np.uint32((value << np.uint32(8)) | np.uint32(data[position + index]))
    return np.int64(np.int32(value))


@inlined
def int64_at(data: Bytes, position: int) -> Any:
    """Return a big-endian int64."""
    value = np.uint64(0)
    for index in range(8):
        value = (value << np.uint64(8)) | np.uint64(data[position + index])
    return np.int64(value)
