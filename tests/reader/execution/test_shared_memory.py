"""Arrow batches on the memory of another process: equal, without a copy, and used again only after their release."""

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import cases
from ts_reader.decode.arrow_schema import arrow_schema
from ts_reader.execution.shared_memory import _RELEASER, MappedBlocks, ReleasePipe, SharedBatch, SharedMemory

MIB = 1 << 20
HEADERS = arrow_schema(["headers"]).field("headers").type


class Settled(threading.Event):
    """Replaces a release, and is set when those before it were sent."""

    def send(self) -> None:
        """Notify the test."""
        self.set()


def settle() -> None:
    """Wait until the leases that have ended are released."""
    settled = Settled()
    _RELEASER.start()
    _RELEASER.ended.put(settled)  # type: ignore[arg-type]
    assert settled.wait(60)


class Pair:
    """Both sides of shared memory, in one process."""

    def __init__(self) -> None:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self.memory = SharedMemory()
        self.mapped = MappedBlocks(ReleasePipe(self._writable))
        self.changes: list[tuple[int, int]] = []

    def describe(self, batch: pa.RecordBatch) -> SharedBatch:
        """Return what the worker sends of a batch, after its new blocks."""
        shared = self.memory.describe(batch)
        for added, descriptors, dropped in self.memory.take_changes():
            self.changes.append((len(added), len(dropped)))
            self.mapped.change(added, descriptors, dropped)
        return shared

    def send(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch on the reader's side."""
        return self.mapped.batch(self.describe(batch), batch.schema)

    def released(self) -> list[int]:
        """Return the leases that arrived, and release them."""
        settle()
        leases: list[int] = []
        while data := self._read():
            leases += [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        for lease in leases:
            self.memory.release(lease)
        return leases

    def close(self) -> None:
        """Close the worker's end of the pipe."""
        os.close(self._readable)

    def _read(self) -> bytes:
        try:
            return os.read(self._readable, 4096)
        except BlockingIOError:
            return b""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return both sides."""
    made = Pair()
    yield made
    made.close()


def carved(memory: SharedMemory, value: int, count: int = 1000) -> pa.RecordBatch:
    """Return a batch on the memory of a worker, as the decoder makes it."""
    array = memory.room(8 * count)(np.int64, count)
    array[:] = value
    return pa.record_batch({"offset": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array)])})


ENTRIES = [[{"key": "a", "value": b"1"}, {"key": "", "value": None}], None, [], [{"key": "é", "value": b""}]]
BATCHES: dict[str, Callable[[], pa.RecordBatch]] = {
    "numbers": lambda: pa.record_batch({"a": pa.array([1, 2, 3]), "b": pa.array([1, None, 3], pa.int32())}),
    "bytes": lambda: pa.record_batch({"key": pa.array([b"a", None, b"", b"long" * 50_000], pa.binary())}),
    "nulls": lambda: pa.record_batch({"value": pa.nulls(20, pa.binary()), "topic": pa.nulls(20, pa.string())}),
    "empty fields": lambda: pa.record_batch({"value": pa.array([b"", b""])}),
    "headers": lambda: pa.record_batch({"headers": pa.array(ENTRIES, HEADERS), "n": pa.array([1, 2, 3, 4])}),
    "null headers": lambda: pa.record_batch({"headers": pa.nulls(4, HEADERS)}),
    "times": lambda: pa.record_batch({"timestamp": pa.array([1, -1000], pa.timestamp("us", tz="UTC"))}),
    "a slice from the beginning": lambda: pa.record_batch({"a": pa.array([1, None, 3]), "b": [b"x", b"yy", b""]})[:2],
    "a slice": lambda: pa.record_batch({"a": pa.array([1, None, 3]), "b": [b"x", b"yy", b"zzz"]})[1:],
    "a slice of headers": lambda: pa.record_batch({"headers": pa.array(ENTRIES, HEADERS)})[:1],
    "headers in the middle": lambda: pa.record_batch({"headers": pa.array(ENTRIES, HEADERS)})[2:4],
    "no rows": lambda: pa.record_batch({"a": pa.array([], pa.int64()), "headers": pa.array([], HEADERS)}),
    "no columns": lambda: pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([]))),
    "large": lambda: pa.record_batch({"value": [bytes(5 * MIB), b"y" * MIB]}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_arrives_as_it_is(pair: Pair, name: str) -> None:
    """With its types, its nulls and its length; slices are sent as a stream or by their length."""
    batch = BATCHES[name]()
    for _ in range(3):
        found = pair.send(batch)
        found.validate(full=True)
        assert found.num_rows == batch.num_rows
        assert found.schema == batch.schema
        assert found == batch
        assert found.to_pylist() == batch.to_pylist()
        del found
        assert len(pair.released()) == 1


@st.composite
def drawn(draw: st.DrawFn) -> pa.RecordBatch:
    """Draw a batch of several columns, and a slice of it."""
    rows = draw(st.integers(0, 20))
    binary = st.none() | st.binary(max_size=20)
    entry = st.fixed_dictionaries({"key": st.text(max_size=5), "value": binary})
    columns = {
        "key": pa.array(draw(st.lists(binary, min_size=rows, max_size=rows)), pa.binary()),
        "offset": pa.array(range(rows), pa.int64()),
        "topic": pa.array(draw(st.lists(st.none() | st.text(max_size=5), min_size=rows, max_size=rows)), pa.string()),
        "headers": pa.array(
            draw(st.lists(st.none() | st.lists(entry, max_size=3), min_size=rows, max_size=rows)), HEADERS
        ),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(columns)), unique=True, min_size=1))
    start, length = draw(st.integers(0, rows)), draw(st.integers(0, rows))
    return pa.record_batch({name: columns[name] for name in chosen}).slice(start, length)


@settings(max_examples=40)
@given(st.lists(drawn(), min_size=1, max_size=4))
def test_batches_of_any_form_arrive_as_they_are(batches: list[pa.RecordBatch]) -> None:
    """Several of them at the same time, also after the worker's side has released them."""
    pair = Pair()
    found = [pair.send(batch) for batch in batches]
    for one, batch in zip(found, batches, strict=True):
        one.validate(full=True)
        assert one.to_pylist() == batch.to_pylist()
    early = pair.released()  # a batch without a byte uses no memory
    assert all(not batches[lease].nbytes for lease in early)
    found.clear()
    del one
    assert sorted(early + pair.released()) == list(range(len(batches)))
    pair.close()


def test_the_decoders_memory_is_not_copied(pair: Pair) -> None:
    """What is written there later is seen on the other side; columns on the heap are copied."""
    array = pair.memory.room(8000)(np.int64, 1000)
    heap = np.zeros(1000, np.int64)
    columns = [pa.Array.from_buffers(pa.int64(), 1000, [None, pa.py_buffer(each)]) for each in (array, heap)]
    found = pair.send(pa.record_batch(columns, ["room", "heap"]))
    array[7] = heap[7] = 5
    assert found["room"][7].as_py() == 5
    assert found["heap"][7].as_py() == 0


def test_the_readers_side_cannot_write(pair: Pair) -> None:
    """A consumer must not change memory that the worker uses."""
    found = pair.send(carved(pair.memory, 3))
    assert not found["offset"].to_numpy().flags.writeable
    assert not any(buffer.is_mutable for buffer in found["offset"].buffers() if buffer)


PARTS: dict[str, Callable[[Any], Any]] = {
    "batch": lambda batch: batch,
    "slice": lambda batch: batch.slice(5, 1),
    "column": lambda batch: batch.column(0),
    "slice of it": lambda batch: batch.column(0).slice(2, 1),
    "buffer": lambda batch: batch.column(0).buffers()[1],
    "numpy": lambda batch: batch.column(0).to_numpy()[3:4],
    "memoryview": lambda batch: memoryview(batch.column(0).buffers()[1]),
    "table": lambda batch: pa.Table.from_batches([batch, batch]).slice(1500, 1),
}


@pytest.mark.parametrize("part", cases(PARTS, quick=["slice of it", "memoryview"]))
def test_memory_is_reused_when_the_last_part_of_a_batch_is_released(pair: Pair, part: str) -> None:
    """Whatever the consumer keeps of it keeps its content."""
    found = pair.send(carved(pair.memory, 7))
    kept = PARTS[part](found)
    del found
    gc.collect()
    assert pair.released() == []
    others = [pair.send(carved(pair.memory, 8)) for _ in range(3)]
    assert {each["offset"][0].as_py() for each in others} == {8}
    text = str(kept.to_pylist()) if hasattr(kept, "to_pylist") else str(list(bytes(kept)))
    assert "7" in text
    assert "8" not in text
    del kept
    gc.collect()
    assert pair.released() == [0]


def test_batches_that_are_held_do_not_change_while_others_are_released(pair: Pair) -> None:
    """Blocks of released batches are used again, those of held ones are not."""
    held = {}
    blocks = 0
    for number in range(200):
        found = pair.send(carved(pair.memory, number))
        if number % 10 == 0:
            held[number] = found
        del found
        pair.released()
        if number == 100:
            blocks = sum(added for added, _ in pair.changes)
    assert all(set(found["offset"].to_pylist()) == {number} for number, found in held.items())
    assert sum(added for added, _ in pair.changes) - blocks <= 10
    assert sum(added for added, _ in pair.changes) <= len(held) + 3


def test_blocks_that_the_worker_drops_are_dropped_by_the_reader(pair: Pair) -> None:
    """More idle blocks than are worth keeping are returned to the kernel on both sides."""
    held = [pair.send(carved(pair.memory, number)) for number in range(40)]
    before = open_mappings()
    del held
    gc.collect()
    assert len(pair.released()) == 40
    gc.collect()
    pair.send(carved(pair.memory, 1))
    assert sum(dropped for _, dropped in pair.changes) == 28
    assert open_mappings() <= before - 2 * 28 + 2


def open_mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:ts-reader")


def test_many_new_blocks_are_sent_in_several_messages(pair: Pair) -> None:
    """A message has few descriptors, and they are all closed, or a large result would need too many."""
    settle()  # the last release of an earlier test closes its pipe
    before = len(os.listdir("/proc/self/fd"))
    batches = [carved(pair.memory, number) for number in range(70)]
    found = pair.send(batches[69])
    assert [added for added, _ in pair.changes] == [32, 32, 6]
    assert found["offset"][0].as_py() == 69
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_batch_that_was_not_read_is_released(pair: Pair) -> None:
    """The reader had stopped before it arrived."""
    shared = pair.describe(carved(pair.memory, 1))
    pair.mapped.release(shared)
    assert pair.released() == [0]


def test_releases_that_a_full_pipe_did_not_accept_are_sent_later(pair: Pair) -> None:
    """A worker that is busy for a while loses none, or its memory would grow."""
    found = [pair.send(carved(pair.memory, 1, 1)) for _ in range(10)]
    for lease in range(1000, 10_000):
        pair.mapped.release(SharedBatch(lease, 0, (), None, 0))
    found.clear()
    gc.collect()
    first = pair.released()
    assert len(first) < 9000
    kept = pair.send(carved(pair.memory, 1, 1))
    assert sorted(first + pair.released()) == [*range(10), *range(1000, 10_000)]
    assert kept["offset"][0].as_py() == 1


def test_a_release_for_a_worker_that_has_ended_is_dropped(pair: Pair) -> None:
    """It has no memory any more; what is held stays."""
    found = [pair.send(carved(pair.memory, number)) for number in range(3)]
    os.dup2(os.open(os.devnull, os.O_RDONLY), pair._readable)
    del found[0]
    gc.collect()
    assert [each["offset"][0].as_py() for each in found] == [1, 2]


def test_a_forked_process_releases_nothing_of_its_parent(pair: Pair) -> None:
    """It has copies of the batches, which end with it."""
    found = pair.send(carved(pair.memory, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process may hold locks
        child = os.fork()
    if not child:
        del found
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pair.released() == []
    assert found["offset"][0].as_py() == 5
    del found
    assert pair.released() == [0]


def test_the_pipe_is_closed_with_the_last_batch() -> None:
    """The worker then learns that no process releases anything more."""
    readable, writable = os.pipe()
    memory, mapped = SharedMemory(), MappedBlocks(ReleasePipe(writable))
    shared = memory.describe(carved(memory, 5))
    for added, descriptors, dropped in memory.take_changes():
        mapped.change(added, descriptors, dropped)
    found = mapped.batch(shared, arrow_schema(["offset"]))
    del mapped
    gc.collect()
    os.set_blocking(readable, False)
    with pytest.raises(BlockingIOError):
        os.read(readable, 8)
    assert found["offset"][0].as_py() == 5
    del found
    gc.collect()
    settle()
    assert os.read(readable, 16) == bytes(8)
    assert os.read(readable, 16) == b""
    os.close(readable)
