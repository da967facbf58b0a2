"""Memory that ends at an inaccessible page: a read or write of one byte too many ends the process."""

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_PAGE = mmap.PAGESIZE
_READ_AND_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value


def guarded(size: int) -> Any:
    """Return a buffer of `size` zero bytes, with such a page before its first page and right after its last byte."""
    pages = max(1, -(-size // _PAGE)) * _PAGE
    whole = pages + 2 * _PAGE
    base = _LIBC.mmap(None, whole, _READ_AND_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if base in {None, _FAILED}:
        raise MemoryError(f"{whole} bytes of guarded memory")
    for outside in (base, base + _PAGE + pages):
        _LIBC.mprotect(base if outside == base else outside, _PAGE, 0)
    buffer = (ctypes.c_ubyte * size).from_address(base + _PAGE + pages - size)
    weakref.finalize(buffer, _LIBC.munmap, base, whole)
    return buffer


class GuardedNumpy:
    """numpy, for a module whose new arrays end at such a page."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def zeros(count: int, dtype: Any = float) -> Any:
        """As numpy's."""
        kind = np.dtype(dtype)
        size = count * kind.itemsize
        return np.frombuffer(guarded(size), kind) if size else np.zeros(0, kind)

    @staticmethod
    def empty(count: int, dtype: Any = float) -> Any:
        """As numpy's."""
        return GuardedNumpy.zeros(count, dtype)

    @staticmethod
    def full(count: int, value: Any, dtype: Any) -> Any:
        """As numpy's."""
        array = GuardedNumpy.zeros(count, dtype)
        array.fill(value)
        return array
