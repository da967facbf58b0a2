"""How a plan is run: in this process, on threads or on worker processes, by its size, its place and the memory."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.reader.execution.splits import place_of, split_of
from ts_reader.decode.arrow_schema import arrow_schema
from ts_reader.execution import run as run_module
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.run import run
from ts_reader.query.query import CorruptionMode, Tolerance
from ts_reader.query.splits import Split, bytes_of

MIB = 1 << 20
PARTITIONS = 12


class Engines:
    """Replace the engines, and note which one reads a split."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.scheduled: list[tuple[int, int]] = []  # workers and memory of each run

    def here(self, _store: object, split: Split, names: Sequence[str], *_: Any) -> Iterator[pa.RecordBatch]:
        """Read a split in this process."""
        self.used.append("here")
        yield rows_of(split, names)

    def there(self, split: Split, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Read a split in a worker."""
        self.used.append("worker")
        yield rows_of(split, columns.names)

    def scheduler(self, splits: Sequence[Split], read: Any, *, workers: int, memory: int, done: Any) -> Any:
        """Read splits one by one, on no thread."""
        self.scheduled.append((workers, memory))
        for split in splits:
            yield from read(split)
            done(1)


def rows_of(split: Split, names: Sequence[str]) -> pa.RecordBatch:
    """Return three rows."""
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    values = {
        "offset": pa.array([split.ranges[0].start] * 3, pa.int64()),
        "key": pa.array([b"k"] * 3),
        "raw": pa.nulls(3, pa.binary()),
        "topic": pa.array(["t"] * 3),
        "partition": pa.array([place_of(split)[0]] * 3, pa.int32()),
    }
    return pa.record_batch([values[name] for name in names], names=list(names))


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Replace the engines, on a machine with four processors."""
    made = Engines()
    monkeypatch.setattr("ts_reader.execution.process_pool.read_in_worker", made.there)
    monkeypatch.setattr(run_module, "run_splits", made.scheduler)
    monkeypatch.setattr(run_module, "shared_store", lambda *_: None)
    monkeypatch.setattr("ts_reader.query.read_split.read_split", made.here)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    return made


SPLITS = [split_of(partition, 0, 100) for partition in range(PARTITIONS)]
BYTES = sum(bytes_of(part) for split in SPLITS for part in split.ranges)


def read(splits: Sequence[Split] = SPLITS, names: Sequence[str] = ("key", "partition"), **arguments: Any) -> pa.Table:
    done: list[int] = []
    given = {"memory_limit": 512 * MIB, "workers": None, **arguments}
    batches = list(run(splits, Columns(names, corrupt_column="raw"), done=done.append, **given))
    assert sum(done) == len(splits)
    return pa.Table.from_batches(batches) if batches else None


def remote(split: Split) -> Split:
    return Split("s3://bucket/base", split.ranges)


def test_a_small_plan_of_a_directory_is_read_in_this_process(engines: Engines) -> None:
    """No thread and no process is started."""
    assert read().num_rows == 3 * PARTITIONS
    assert (set(engines.used), engines.scheduled) == ({"here"}, [])
    assert read([]) is None


@pytest.mark.parametrize(("memory", "threads"), [(2048, 8), (512, 4), (300, 2)])
def test_a_small_plan_of_another_store_is_read_on_threads(engines: Engines, memory: int, threads: int) -> None:
    """Each waits for the network; each needs memory, and the rest is for batches that wait."""
    assert read([remote(split) for split in SPLITS], memory_limit=memory * MIB).num_rows == 3 * PARTITIONS
    assert set(engines.used) == {"here"}
    ((workers, waiting),) = engines.scheduled
    assert workers == threads
    assert 0 <= waiting <= (memory - 100 * threads) * MIB


def test_a_plan_of_one_split_needs_no_thread(engines: Engines) -> None:
    """And so does one whose memory is for one thread."""
    read([remote(SPLITS[0])])
    read([remote(split) for split in SPLITS], memory_limit=128 * MIB)
    assert engines.scheduled == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 4),
        ({"workers": 2}, 2),
        ({"workers": 30}, 4),
        ({"memory_limit": 300 * MIB}, 2),
        ({"memory_limit": 1 << 40}, 4),
    ],
)
def test_a_large_plan_is_read_by_processes(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], expected: int
) -> None:
    """As many as there are processors, or as the arguments allow; their memory and the batches fit into the limit."""
    monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", BYTES)
    read(**arguments)
    assert set(engines.used) == {"worker"}
    ((workers, waiting),) = engines.scheduled
    assert workers == expected
    assert 0 <= waiting <= arguments.get("memory_limit", 512 * MIB) - 100 * MIB * workers


@pytest.mark.parametrize(
    "arguments",
    [{"workers": 1}, {"memory_limit": 128 * MIB}, {"splits": SPLITS[:1]}],
    ids=["workers", "memory", "split"],
)
def test_one_worker_is_not_worth_a_process(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    """The plan is read here."""
    monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", 0)
    read(**arguments)
    assert set(engines.used) == {"here"}


def test_a_plan_just_below_the_size_is_read_here(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is a large one in an interpreter that cannot start another."""
    monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", BYTES + 1)
    read()
    monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(sys, "executable", "")
    read()
    assert set(engines.used) == {"here"}


@pytest.mark.parametrize(
    "names", [("partition", "key", "topic"), ("topic", "partition"), ("offset",), (), ("raw", "topic", "offset")]
)
def test_a_worker_sends_no_constant_columns(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Topic and partition are added here, in the order of the columns."""
    tolerance = Tolerance(CorruptionMode.PERMISSIVE, "raw")
    splits = [Split(split.location, split.ranges, tolerance=tolerance) for split in SPLITS]
    expected = read(splits, names)
    monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", 0)
    found = read(splits, names)
    assert engines.used == ["here"] * PARTITIONS + ["worker"] * PARTITIONS
    assert found.num_rows == expected.num_rows == 3 * PARTITIONS
    assert found == expected
    if "topic" in names:
        assert found.schema.field("topic").type == arrow_schema(["topic"]).field("topic").type


def test_closing_a_run_closes_its_reads(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each engine."""
    closed: list[str] = []

    def endless(split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield rows_of(split, names)
        finally:
            closed.append("closed")

    monkeypatch.setattr("ts_reader.query.read_split.read_split", lambda _, split, names, *__: endless(split, names))
    monkeypatch.setattr(
        "ts_reader.execution.process_pool.read_in_worker", lambda split, columns: endless(split, columns.names)
    )
    for splits, least in ((SPLITS, 1 << 60), ([remote(split) for split in SPLITS], 1 << 60), (SPLITS, 0)):
        monkeypatch.setattr(run_module, "PROCESSES_FROM_BYTES", least)
        batches = run(splits, Columns(["key"]), memory_limit=512 * MIB, workers=None, done=lambda _: None)
        next(batches)
        batches.close()
    assert len(closed) == 3
