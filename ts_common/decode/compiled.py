"""Compilation of kernels with numba: they run without the GIL, and their code is cached on disk.

Numba finds a kernel's cached code by the time stamp of the kernel's file. So a kernel calls only functions of its own
file and of this one. After a change of this file, touch the kernels' files.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
import structlog
from numba.core import cgutils, types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Return a function that numba compiles at its first call and caches.

    Numba caches in `NUMBA_CACHE_DIR`, in the installation, or in the user's cache directory. If it can write to none of
    them (a read-only installation, a user without a home), this module names a private directory below `TMPDIR`.
    """
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba found no directory
        directory = _private_directory()
        if directory is None:
            return cast("F", numba.njit(nogil=True)(function))
        config: Any = numba.config
        config.CACHE_DIR = str(directory)
        return cast("F", numba.njit(nogil=True, cache=True)(function))


@lru_cache(maxsize=1)
def _private_directory() -> Path | None:
    """Return a directory below `TMPDIR` that only this user can write to; None if it cannot be made.

    Cached code is code: a directory of another user, or one that others can write to, is not used.
    """
    log = structlog.get_logger("ts_common")
    way_out = "set NUMBA_CACHE_DIR to a directory that this user can write to"
    directory = Path(tempfile.gettempdir(), f"ts-uploader-{os.getuid()}")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        log.warning("compiled_code_not_cached", directory=str(directory), reason=str(error), way_out=way_out)
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        reason = "another user can write to it"
        log.warning("compiled_code_not_cached", directory=str(directory), reason=reason, way_out=way_out)
        return None
    return directory


def _copy_bytes(_typing: Any, target: Any, _target_position: Any, source: Any, _position: Any, _count: Any) -> Any:
    """Return the code of `copy_bytes(target, target_position, source, position, count)`: one memcpy, without checks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memcpy: Any = cgutils.raw_memcpy
        pointers = []
        for array_at, index_at in ((0, 1), (2, 3)):
            array = context.make_array(signature.args[array_at])(context, builder, arguments[array_at])
            pointers.append(builder.gep(array.data, [arguments[index_at]]))
        memcpy(builder, pointers[0], pointers[1], arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_copy_bytes)


@kernel
def int32_at(data: Bytes, position: int) -> Any:
    """Return a big-endian int32."""
    value = np.uint32(0)
    for index in range(4):
        value = np.uint32((value << np.uint32(8)) | np.uint32(data[position + index]))
    return np.int64(np.int32(value))


@kernel
def int64_at(data: Bytes, position: int) -> Any:
    """Return a big-endian int64."""
    value = np.uint64(0)
    for index in range(8):
        value = (value << np.uint64(8)) | np.uint64(data[position + index])
    return np.int64(value)
