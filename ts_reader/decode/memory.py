"""Memory for the arrays of decoded columns, used again when no caller holds an array of it.

The first write to fresh memory costs more than decoding into it. A `BufferPool` uses its buffers again for one segment
reader. `RecycledMemory` does so for all readers of a process, whose batches a consumer can hold for a while.
"""

import ctypes
import mmap
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

ALIGNMENT: Final = 64  # bytes, as Arrow recommends for buffers
_IDLE_BLOCKS: Final = 12  # of one size; more are returned to the kernel

# Returns an array of one dtype and length. Its first element is 0, the others are undefined.
Carve = Callable[[type[np.generic], int], Any]


class Memory(Protocol):
    """Provides the arrays of a set of buffers."""

    def room(self, size: int) -> Carve:
        """Return a function that carves arrays out of memory that nothing else uses.

        Args:
            size: bytes of all arrays together, each rounded up to `ALIGNMENT`. Memory is committed at its first write,
                so a large size costs only address space.
        """
        ...


class _Heap:
    """The heap of this process."""

    def room(self, size: int) -> Carve:  # noqa: ARG002  (each array has its own memory)
        """Return a function that allocates each array."""

        def carve(dtype: type[np.generic], count: int) -> Any:
            array = np.empty(count, dtype)  # `np.zeros` can write to all of it: glibc keeps freed memory
            array[:1] = 0
            return array

        return carve


HEAP: Final[Memory] = _Heap()


class Block(mmap.mmap):
    """A block of memory.

    Attributes:
        address: of its first byte.
    """

    number: int
    address: int


class RecycledMemory:
    """Blocks of memory that are used again; thread-safe, also after a fork."""

    def __init__(self) -> None:
        self.renew_lock()
        self._next_number = 0
        self._idle: dict[int, list[Block]] = defaultdict(list)

    def renew_lock(self) -> None:
        """Replace the lock in a forked process, where a thread of its parent may have held it."""
        self._lock = threading.RLock()  # a finalizer may run inside of a call that holds it

    def room(self, size: int) -> Carve:
        """Return a function that carves arrays out of a block; it is used again after the last array is freed."""
        _, use = self._block(size)
        position = 0

        def carve(dtype: type[np.generic], count: int) -> Any:
            nonlocal position
            start, position = position, position + rounded(np.dtype(dtype).itemsize * count)
            # An array of its own: a slice of it refers to it, which shows the pool that it is in use.
            array = np.frombuffer(use, dtype, count, start) if count else np.empty(0, dtype)
            array[:1] = 0
            return array

        return carve

    def trim(self) -> None:
        """Return idle blocks to the kernel."""
        with self._lock:
            idle, self._idle = self._idle, defaultdict(list)
        for blocks in idle.values():
            for block in blocks:
                self._drop(block)

    def _block(self, size: int) -> tuple[Block, Any]:
        """Return a block of at least this size, and an object that stands for its use."""
        size = max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        with self._lock:
            idle = self._idle[size]
            block = idle.pop() if idle else self._new_block(size)
        use = (ctypes.c_char * size).from_buffer(block)
        if not hasattr(block, "address"):
            block.address = ctypes.addressof(use)
            self._added(block)
        weakref.finalize(use, self._recycle, block).atexit = False
        return block, use

    def _new_block(self, size: int) -> Block:
        block = self._map(size)
        block.number, self._next_number = self._next_number, self._next_number + 1
        return block

    def _map(self, size: int) -> Block:
        return Block(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def _recycle(self, block: Block) -> None:
        with self._lock:
            idle = self._idle[len(block)]
            if len(idle) < _IDLE_BLOCKS:
                idle.append(block)
                return
        self._drop(block)

    def _added(self, block: Block) -> None:
        """Note a block that has its address."""

    def _drop(self, block: Block) -> None:
        """Forget a block, which ends with its last reference."""


def rounded(size: int) -> int:
    """Return a number of bytes, rounded up to `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
