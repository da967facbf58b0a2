"""How kernels are compiled: numba, without the GIL, kept on disk where there is a place for it.

A kernel's stored code is found again by its own file's time stamp. So a kernel calls only what stands in its file and
here; after a change here, touch the kernels' files.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile at the first call, and keep the code beside the source or in the user's cache directory."""
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # an executor whose directories are all read-only: compile in each process
        return cast("F", numba.njit(nogil=True)(function))


def _copy_bytes(_typing: Any, target: Any, _target_position: Any, source: Any, _position: Any, _count: Any) -> Any:
    """`copy_bytes(target, target_position, source, position, count)` is one memcpy; nothing is checked."""

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
    """A big-endian int32."""
    value = np.uint32(0)
    for index in range(4):
        value = np.uint32((value << np.uint32(8)) | np.uint32(data[position + index]))
    return np.int64(np.int32(value))


@kernel
def int64_at(data: Bytes, position: int) -> Any:
    """A big-endian int64."""
    value = np.uint64(0)
    for index in range(8):
        value = (value << np.uint64(8)) | np.uint64(data[position + index])
    return np.int64(value)
