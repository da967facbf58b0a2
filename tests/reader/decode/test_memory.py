"""Memory of decoded columns, used again when no caller holds an array of it."""

import gc
import mmap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_reader.decode.memory import ALIGNMENT, HEAP, Block, RecycledMemory, rounded

MIB = 1 << 20


class Counting(RecycledMemory):
    """Memory that counts its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped = 0
        self.dropped: list[int] = []

    def _map(self, size: int) -> Block:
        self.mapped += 1
        return super()._map(size)

    def _drop(self, block: Block) -> None:
        self.dropped.append(block.number)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("memory", [HEAP, RecycledMemory()], ids=["heap", "recycled"])
@given(shapes=st.lists(st.tuples(st.sampled_from([np.uint8, np.int32, np.int64]), st.integers(0, 300)), max_size=8))
def test_arrays_of_a_room_are_writable_and_disjoint(memory: Any, shapes: list[tuple[type[np.generic], int]]) -> None:
    """Each has its dtype and length, and 0 as its first element, although the memory was used before."""
    size = sum(rounded(np.dtype(dtype).itemsize * count) for dtype, count in shapes)
    for fill in (1, 2):
        carve = memory.room(size)
        arrays = [carve(dtype, count) for dtype, count in shapes]
        assert [(array.dtype, len(array)) for array in arrays] == [(np.dtype(dtype), n) for dtype, n in shapes]
        assert not any(array[:1].any() for array in arrays)
        for number, array in enumerate(arrays):
            array[:] = fill + number
        assert all((array == fill + number).all() for number, array in enumerate(arrays))


def test_an_array_of_the_heap_is_committed_at_its_first_write() -> None:
    """Also if glibc keeps freed memory: the arrays of a decoder are 64 MiB, and small segments fill little of them."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    carve = HEAP.room(0)
    for _ in range(2):  # the first one that is freed makes glibc keep the next ones
        carve(np.uint8, 24 * MIB)
    before = resident()
    array = carve(np.uint8, 16 * MIB)
    assert resident() - before < 4 * MIB
    assert len(array) == 16 * MIB


def test_arrays_of_recycled_memory_are_aligned() -> None:
    """Arrow recommends 64 bytes for buffers."""
    carve = RecycledMemory().room(MIB)
    assert [address(carve(np.uint8, count)) % ALIGNMENT for count in (1, 63, 64, 65, 1)] == [0] * 5


def test_a_room_has_no_more_than_its_size() -> None:
    """Arrays beyond it would be another's memory."""
    carve = RecycledMemory().room(4096)
    carve(np.uint8, 4000)
    with pytest.raises(ValueError):
        carve(np.uint8, 4096)


def test_memory_is_reused_when_its_last_array_is_released() -> None:
    """An array, a slice of it, a view and an Arrow buffer on it each hold the whole block."""
    memory = Counting()
    carve = memory.room(MIB)
    first, second = carve(np.int64, 100), carve(np.int64, 100)
    place = address(first)
    del carve
    holders: list[Any] = [second, first[5:9], first.view(np.uint8)[:8], pa.py_buffer(first[1:2])]
    del first, second
    while holders:
        other = memory.room(MIB)(np.int64, 1)
        assert address(other) != place
        del other
        holders.pop(0)
    carve = memory.room(MIB)
    again = [address(carve(np.int64, 1)), address(memory.room(MIB)(np.int64, 1))]
    assert place in again
    assert memory.mapped == 2


def test_a_held_array_keeps_its_content_while_others_are_allocated() -> None:
    """Blocks that are released meanwhile are used for the others."""
    memory = Counting()
    held = []
    for number in range(50):
        array = memory.room(4096)(np.int32, 1000)
        array[:] = number
        if number % 5 == 0:
            held.append(array)
        del array
    assert [set(array.tolist()) for array in held] == [{number} for number in range(0, 50, 5)]
    assert memory.mapped == 11


def test_only_some_idle_blocks_are_kept_and_trim_returns_them() -> None:
    """Of each size; the others are returned to the kernel at once."""
    memory = Counting()
    for size in (4096, 8192):
        held = [memory.room(size)(np.uint8, 1) for _ in range(15)]
        del held
    assert memory.mapped == 30
    assert len(memory.dropped) == 6
    memory.trim()
    assert sorted(memory.dropped) == list(range(30))
    memory.room(4096)(np.uint8, 1)
    assert memory.mapped == 31


def test_threads_do_not_share_a_block() -> None:
    """Each block belongs to one room at a time, whichever thread drops the last array."""
    memory = RecycledMemory()
    wrong: list[int] = []

    def work(mine: int) -> None:
        for _ in range(300):
            arrays = [memory.room(4096)(np.int32, 1000) for _ in range(3)]
            for array in arrays:
                array[:] = mine
            wrong.extend(mine for array in arrays if (array != mine).any())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_array_in_a_cycle_is_released_by_the_collector() -> None:
    """The collector can run in a thread that holds the lock of the memory."""
    memory = Counting()
    for _ in range(100):
        cycle: list[Any] = [memory.room(4096)(np.uint8, 1)]
        cycle.append(cycle)
        del cycle
    gc.collect()
    before = memory.mapped
    memory.room(4096)(np.uint8, 1)
    assert memory.mapped == before
