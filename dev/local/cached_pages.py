"""Reads and changes a file's pages in the page cache (`mincore(2)`), for tests and benchmarks that own the file.

cached_pages(path)         a byte for each page: 1 if it is cached
cache(path, start, end)    read these bytes, without read-ahead
uncache(path)              drop clean pages
"""

import ctypes
import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROT_READ = 1
_MAP_SHARED = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def cached_pages(path: Path) -> bytes:
    """Return a byte for each page of a file, 1 if it is cached. Mapping a file reads no page.

    Raises:
        OSError: the file cannot be opened or mapped.
        PermissionError: the file has another owner; the kernel would report all its pages as cached.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if not status.st_size:
            return b""
        if os.geteuid() not in {0, status.st_uid}:
            raise PermissionError(f"{path} belongs to another user")
        address = _libc.mmap(None, status.st_size, _PROT_READ, _MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        try:
            found = (ctypes.c_ubyte * -(-status.st_size // PAGE_BYTES))()
            if _libc.mincore(address, status.st_size, found):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
            return bytes(page & 1 for page in found)  # the other bits have no meaning
        finally:
            _libc.munmap(address, status.st_size)
    finally:
        os.close(descriptor)


def cache(path: Path, start: int, end: int) -> None:
    """Read the bytes `[start, end)` of a file, without read-ahead."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        while start < end and (piece := os.pread(descriptor, min(end - start, 1 << 20), start)):
            start += len(piece)
    finally:
        os.close(descriptor)


def uncache(path: Path) -> None:
    """Write a file to its disk and drop its pages."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
