"""Arrow batches between processes without a copy of keys, values and headers.

A worker decodes into blocks of anonymous shared memory (memfd). It describes a batch as places in these blocks, and the
reader's process builds Arrow arrays on the same memory. Columns on the worker's heap are small (timestamps), or the
result of a merge of several copies; they are copied into a block.

A worker keeps a batch until the reader's process has dropped all arrays of it. Then the decoder uses the buffers again.
"""

import ctypes
import mmap
import os
import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

import pyarrow as pa

from ts_reader.decode.arrow_schema import batch_of
from ts_reader.decode.memory import Block, RecycledMemory

_LEAST_BLOCK: Final = 1 << 16
_HIGHEST: Final = 1 << 64
_DESCRIPTORS: Final = 32  # of one message
_MAP_FIXED: Final = 0x10  # of Linux; Python has no name for it
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong)

Place = tuple[int, int, int]  # block, offset, size


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """A record batch as places in shared memory.

    Attributes:
        lease: its number; the worker keeps the memory until this lease is released.
        columns: of each column the null count and its buffers, in the order of `pyarrow.Array.buffers`.
        stream: of a batch without that form, its bytes in Arrow's IPC format; else None.
        size: bytes of the buffers.
    """

    lease: int
    rows: int
    columns: tuple[tuple[int, int, tuple[Place | None, ...]], ...]
    stream: Place | None
    size: int


class SharedMemory(RecycledMemory):
    """The worker's side: blocks, and the batches that the reader's process still holds. One thread uses it."""

    def __init__(self) -> None:
        super().__init__()
        self._addresses: list[tuple[int, int, int]] = []  # address, end, number; sorted
        self._unsent: list[tuple[int, int, int]] = []  # number, size, descriptor
        self._dropped: list[int] = []
        self._next_lease = 0
        self._held: dict[int, tuple[pa.RecordBatch, list[Any]]] = {}  # with the uses of blocks with copies

    def describe(self, batch: pa.RecordBatch) -> SharedBatch:
        """Return the places of a batch, and hold it until its lease is released."""
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        copies: list[Any] = []
        columns = []
        stream = None
        if batch.num_columns and all(column.offset == 0 and _is_plain(column) for column in batch.columns):
            for column in batch.columns:
                nested = len(column.values) if pa.types.is_list(column.type) else 0
                places = tuple(None if each is None else self._place(each, copies) for each in column.buffers())
                columns.append((column.null_count, nested, places))
        elif batch.num_columns:
            stream = self._copied(batch.serialize(), copies)
        self._held[lease] = (batch, copies)
        return SharedBatch(lease, batch.num_rows, tuple(columns), stream, batch.nbytes)

    def release(self, lease: int) -> None:
        """Drop a batch that the reader's process no longer holds."""
        self._held.pop(lease, None)

    def take_changes(self) -> Iterator[tuple[list[tuple[int, int]], list[int], list[int]]]:
        """Yield new blocks (number, size), their descriptors, and dropped blocks that were not yielded yet."""
        unsent, self._unsent = self._unsent, []
        dropped, self._dropped = self._dropped, []
        while unsent or dropped:
            now, unsent = unsent[:_DESCRIPTORS], unsent[_DESCRIPTORS:]
            yield [(number, size) for number, size, _ in now], [descriptor for *_, descriptor in now], dropped
            dropped = []

    def _map(self, size: int) -> Block:
        block = Block(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        descriptor = os.memfd_create("ts-reader", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        _map_over(block, descriptor, mmap.PROT_READ | mmap.PROT_WRITE)
        self._unsent.append((self._next_number, size, descriptor))
        return block

    def _added(self, block: Block) -> None:
        insort(self._addresses, (block.address, block.address + len(block), block.number))

    def _drop(self, block: Block) -> None:
        self._addresses.remove((block.address, block.address + len(block), block.number))
        self._dropped.append(block.number)

    def _place(self, buffer: pa.Buffer, copies: list[Any]) -> Place:
        if not buffer.size:
            return (-1, 0, 0)
        at = bisect_right(self._addresses, (buffer.address, _HIGHEST, 0)) - 1
        if at >= 0:
            address, end, number = self._addresses[at]
            if buffer.address + buffer.size <= end:
                return (number, buffer.address - address, buffer.size)
        return self._copied(buffer, copies)

    def _copied(self, buffer: pa.Buffer, copies: list[Any]) -> Place:
        block, use = self._block(max(_LEAST_BLOCK, 1 << (buffer.size - 1).bit_length()))
        block[: buffer.size] = memoryview(buffer).cast("B")
        copies.append(use)
        return (block.number, 0, buffer.size)


def _map_over(block: mmap.mmap, descriptor: int, protection: int) -> None:
    """Map shared memory at the address of a private block, which unmaps it at its end.

    An `mmap` of a descriptor keeps a duplicate of it. A consumer that holds a large result would need more descriptors
    than a process may have.

    Raises:
        OSError: the kernel rejected the mapping.
    """
    address = pa.py_buffer(block).address
    found = _LIBC.mmap(address, len(block), protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if found != address:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {len(block)} bytes of shared memory: {os.strerror(number)}")


def _is_plain(column: pa.Array) -> bool:
    """Return whether the buffers of a column, and the length of its list's values, describe it."""
    if not pa.types.is_list(column.type):
        return not pa.types.is_nested(column.type)
    values = column.values
    return values.offset == 0 and all(child.offset == 0 for child in values.flatten())


class _Lease:
    """What the buffers of a worker's batch keep; the release of the last one releases the lease."""

    __slots__ = ("__weakref__", "_blocks")

    def __init__(self, blocks: Sequence[mmap.mmap]) -> None:
        self._blocks = blocks


class _Release(weakref.ref[_Lease]):
    """Notices the end of a lease, on any thread and at any place of a program.

    Code in Python there would lose an interrupt of the program: a destructor cannot raise it. So the callback is
    the queue's, in C, and a thread writes to the pipe. A forked process has copies of leases, and no such thread.
    """

    __slots__ = ("_number", "_releases")

    def __new__(cls, lease: _Lease, number: int, releases: "ReleasePipe") -> "_Release":  # noqa: ARG004
        return super().__new__(cls, lease, _RELEASER.ended.put)

    def __init__(self, lease: _Lease, number: int, releases: "ReleasePipe") -> None:
        super().__init__(lease)  # type: ignore[call-arg]  # of `weakref.ref`, which typeshed does not have
        self._number = number
        self._releases = releases
        _RELEASER.held.add(self)

    def send(self) -> None:
        """Notify the worker."""
        _RELEASER.held.discard(self)
        self._releases.write(self._number)


class _Releaser:
    """The thread that sends releases; it starts with the first lease.

    Attributes:
        ended: releases to send; its `put` needs no lock.
        held: those of leases that have not ended, each with its pipe.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget the thread and the leases of a parent process."""
        self.ended: SimpleQueue[_Release] = SimpleQueue()
        self.held: set[_Release] = set()
        self._lock = threading.Lock()
        self._runs = False

    def start(self) -> None:
        """Start the thread unless it runs."""
        with self._lock:
            if not self._runs:
                threading.Thread(target=_send_all, args=(self.ended,), name="releases", daemon=True).start()
                self._runs = True


def _send_all(ended: "SimpleQueue[_Release]") -> None:
    while True:
        ended.get().send()


_RELEASER: Final = _Releaser()
os.register_at_fork(after_in_child=_RELEASER.renew)


class ReleasePipe:
    """The end of a pipe for released leases; closed after the last lease is freed.

    The pipe of a busy worker can become full. The other leases are written later, in `flush`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[int] = deque()  # of leases; its methods need no lock

    def write(self, lease: int) -> None:
        """Release a lease, unless the worker has ended."""
        self._waiting.append(lease)
        self.flush()

    def flush(self) -> None:
        """Write leases as long as the pipe accepts them."""
        while self._waiting:
            try:
                lease = self._waiting.popleft()
            except IndexError:  # another thread writes the last one
                return
            try:
                os.write(self._descriptor, lease.to_bytes(8, "little"))
            except BlockingIOError:
                self._waiting.append(lease)
                return
            except OSError:  # the worker has ended
                self._waiting.clear()

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


class MappedBlocks:
    """The reader's side of one worker's blocks.

    Args:
        releases: the worker reads released leases from it.
    """

    def __init__(self, releases: ReleasePipe) -> None:
        self._releases = releases
        self._blocks: dict[int, tuple[mmap.mmap, int]] = {}

    def change(self, added: Sequence[tuple[int, int]], descriptors: Sequence[int], dropped: Sequence[int]) -> None:
        """Map new blocks, close their descriptors, and forget dropped ones."""
        for (number, size), descriptor in zip(added, descriptors, strict=True):
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
            _map_over(block, descriptor, mmap.PROT_READ)
            os.close(descriptor)
            self._blocks[number] = (block, pa.py_buffer(block).address)
        for number in dropped:
            self._blocks.pop(number, None)

    def release(self, shared: SharedBatch) -> None:
        """Release an unread batch."""
        self._releases.write(shared.lease)

    def batch(self, shared: SharedBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch on the worker's memory.

        Args:
            shared: the worker's description.
        """
        self._releases.flush()
        numbers = {place[0] for _, _, places in shared.columns for place in places if place}
        numbers |= {shared.stream[0]} if shared.stream else set()
        lease = _Lease([self._blocks[number][0] for number in numbers - {-1}])
        _RELEASER.start()
        _Release(lease, shared.lease, self._releases)
        if shared.stream is not None:
            return pa.ipc.read_record_batch(self._buffer(shared.stream, lease), schema)
        arrays = [
            self._array(field.type, shared.rows, column, lease)
            for field, column in zip(schema, shared.columns, strict=True)
        ]
        return batch_of(arrays, schema, shared.rows)

    def _array(
        self, kind: pa.DataType, rows: int, column: tuple[int, int, tuple[Place | None, ...]], lease: _Lease
    ) -> pa.Array:
        null_count, nested, places = column
        buffers = [None if place is None else self._buffer(place, lease) for place in places]
        if not pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, rows, buffers, null_count)
        validity, offsets, of_struct, *rest = buffers
        entry = kind.value_type
        fields = [
            pa.Array.from_buffers(entry.field(place).type, nested, rest[3 * place : 3 * place + 3])
            for place in range(entry.num_fields)
        ]
        values = pa.Array.from_buffers(entry, nested, [of_struct], children=fields)
        return pa.Array.from_buffers(kind, rows, [validity, offsets], null_count, children=[values])

    def _buffer(self, place: Place, lease: _Lease) -> pa.Buffer:
        number, offset, size = place
        if number < 0:
            return pa.py_buffer(b"")
        return pa.foreign_buffer(self._blocks[number][1] + offset, size, base=lease)
