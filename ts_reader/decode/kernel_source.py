"""What kernels are made of: the types of their arguments, the functions that they may call, and what they may read.

`compiled` runs a kernel, `code_cache` keeps its machine code, and `compilation` makes that.
"""

import ctypes
import dis
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import CodeType
from typing import Annotated, Any, Final, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

_INLINED: Final = "__is_inlined__"
_MODULES: Final = (np, hashlib)  # that functions of kernels may read

# OpenSSL's functions: Init, Update and Final of FIPS 180-4.
_NAMES: Final = ("SHA256_Init", "SHA256_Update", "SHA256_Final")
DIGEST_BYTES: Final = 32

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType:
    """The type of a kernel's array argument, C-contiguous. There is one object for each type: see `array_type`.

    Attributes:
        typestr: numpy's code of its dtype, with the byte order.
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


class KernelSource(Generic[P, R]):
    """A function that can run as machine code.

    The code gets the address of a frame of int64: room for each result, then the arguments. An array is its address and
    its shape.

    Attributes:
        function: the same in Python.
        arguments: the types of its arguments: of an array, int or bool.
        results: int or bool for each of its results.

    Args:
        function: its annotations are the array types of this module, int and bool; it returns None, an int, a bool, or
            a tuple of these. It reads integers, arrays, numpy and other kernels only, allocates nothing, and raises
            nothing. The caller passes writable arrays where it writes.

    Raises:
        TypeError: the annotations have another type.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        hints = get_type_hints(function, include_extras=True)
        result = hints.pop("return")
        self.arguments = tuple(_argument_type(hint) for hint in hints.values())
        self.is_tuple = get_origin(result) is tuple
        self.results: tuple[type, ...] = get_args(result) if self.is_tuple else (result,) * (result is not type(None))
        if not {*self.results} <= {int, bool}:
            raise TypeError(f"{self.name} returns {result}: None, int, bool or a tuple of these is expected")

    @property
    def name(self) -> str:
        """The name of the function with its module."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


def inlined(function: F) -> F:
    """Mark a function that kernels call; from Python it runs uncompiled."""
    setattr(function, _INLINED, True)
    return function


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
        if isinstance(value, KernelSource):
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


@cache
def sha256_functions() -> Int64s | None:
    """Return the addresses of the functions in the library that `hashlib` has loaded; None if it does not export them.

    They use the processor's instructions. `hashlib` needs a third of a microsecond more for each message.
    """
    spec = find_spec("_hashlib")
    try:
        library = ctypes.CDLL(None if spec is None or not spec.has_location else spec.origin)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES]
    except (OSError, AttributeError):
        return None
    return np.array(found, np.int64)


@inlined
def sha256(_functions: Int64s, source: Bytes, start: Any, count: Any, target: Bytes, at: Any) -> None:
    """Hash bytes.

    Args:
        _functions: as `sha256_functions` returns them; Python does not use them.
        source: has the bytes.
        target: gets the digest, `DIGEST_BYTES`.
        at: its position there.
    """
    digest = hashlib.sha256(source[start : start + count].tobytes()).digest()
    target[at : at + len(digest)] = np.frombuffer(digest, np.uint8)
