"""Splits on several threads: order in each partition, bounded memory, errors in their place, no thread left."""

import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.local.waiting import wait_for
from tests.reader.execution.splits import place_of, split_of
from ts_reader.execution import scheduler
from ts_reader.execution.scheduler import ReadSplits, run_splits
from ts_reader.query.splits import Split

ROWS = 100
BATCH = pa.record_batch({"offset": pa.array(range(ROWS), pa.int64())}).nbytes  # of `batch_at`


def batch_at(partition: int, start: int) -> pa.RecordBatch:
    """Return a batch of `ROWS` rows."""
    return pa.record_batch(
        {"offset": pa.array([partition * 1_000_000 + start + row for row in range(ROWS)], pa.int64())}
    )


def place_in(batch: pa.RecordBatch) -> tuple[int, int]:
    """Return partition and first offset of a batch."""
    partition, start = divmod(int(batch["offset"][0].as_py()), 1_000_000)
    return partition, start


def batches_of(split: Split) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each `ROWS` offsets of a split."""
    (part,) = split.ranges
    for start in range(part.start, part.end, ROWS):
        yield batch_at(place_of(split)[0], start)


def planned(*partitions: Sequence[int]) -> list[Split]:
    """Return the splits of partitions, by the number of batches of each split."""
    splits = []
    for partition, counts in enumerate(partitions):
        start = 0
        for count in counts:
            splits.append(split_of(partition, start, start + count * ROWS))
            start += count * ROWS
    return splits


class CountingCondition(threading.Condition):
    """Counts the threads that wait, and that nothing has notified since."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Count the calling thread, which holds the lock."""
        self.waiting += 1
        return super().wait(timeout)

    def notify_all(self) -> None:
        """Count from 0 again."""
        self.waiting = 0
        super().notify_all()


@pytest.fixture
def conditions(monkeypatch: pytest.MonkeyPatch) -> list[CountingCondition]:
    """Return the conditions of the schedulers that a test starts."""
    made: list[CountingCondition] = []

    def counting() -> CountingCondition:
        made.append(CountingCondition())
        return made[-1]

    monkeypatch.setattr(scheduler, "Condition", counting)
    return made


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader-")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Fail a test after which a thread of a scheduler still runs."""
    yield
    wait_for(lambda: not running(), "no thread of a scheduler runs", state=running)


def expected_of(splits: Sequence[Split]) -> list[tuple[int, int]]:
    return [place_in(batch) for split in splits for batch in batches_of(split)]


PARTITIONS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=60)
@given(
    partitions=PARTITIONS,
    workers=st.integers(1, 5),
    memory=st.integers(0, 6),
    speeds=st.lists(st.integers(0, 30), min_size=1, max_size=20),
    pauses=st.lists(st.integers(0, 30), min_size=1, max_size=20),
)
def test_each_batch_is_yielded_once_in_the_order_of_its_partition(
    partitions: list[list[int]], workers: int, memory: int, speeds: list[int], pauses: list[int]
) -> None:
    """Workers and consumer have random speeds; batches that wait have at most the limit, or one of them is above it."""
    splits = planned(*partitions)
    added, taken, most = 0, 0, 0
    lock = threading.Lock()

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        nonlocal added, most
        for number, batch in enumerate(batches_of(split)):
            for _ in range(speeds[(sum(place_of(split)) + number) % len(speeds)]):
                os.sched_yield()
            yield batch
            with lock:  # the worker continues, so the batch was added
                added += 1
                most = max(most, added - taken)

    found, done = [], list[int]()
    for number, batch in enumerate(run_splits(splits, read, workers=workers, memory=memory * BATCH, done=done.append)):
        with lock:
            taken += 1
        found.append(place_in(batch))
        for _ in range(pauses[number % len(pauses)]):
            os.sched_yield()
    assert sorted(found) == sorted(expected_of(splits))
    for partition in range(len(partitions)):
        offsets = [start for owner, start in found if owner == partition]
        assert offsets == sorted(offsets)
    assert sum(done) == len(splits)
    assert most <= memory + 2  # one is with the consumer, which this test counts late


def test_the_splits_of_a_partition_in_two_directories_are_in_order() -> None:
    """A restored partition has its older records elsewhere; here they are read last."""
    splits = [split_of(0, 0, ROWS, "old"), split_of(0, ROWS, 2 * ROWS)]
    later_is_read = threading.Event()

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        if split is splits[0]:
            assert later_is_read.wait(60)
        yield from batches_of(split)
        if split is splits[1]:
            later_is_read.set()

    found = [place_in(batch) for batch in run_splits(splits, read, workers=2, memory=10 * BATCH, done=lambda _: None)]
    assert found == expected_of(splits)


@pytest.mark.parametrize(("workers", "partitions", "memory"), [(3, 1, 4), (2, 2, 1), (4, 4, 0), (2, 3, 2)])
def test_workers_wait_when_the_memory_is_used_up(
    conditions: list[CountingCondition], workers: int, partitions: int, memory: int
) -> None:
    """A consumer that pauses finds no more than the limit, or one batch above it."""
    splits = planned(*[[3] * 5] * partitions)
    produced = 0
    lock = threading.Lock()

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        nonlocal produced
        for batch in batches_of(split):
            with lock:
                produced += 1
            yield batch

    with closing(run_splits(splits, read, workers=workers, memory=memory * BATCH, done=lambda _: None)) as batches:
        found = [place_in(next(batches))]
        (changed,) = conditions
        wait_for(lambda: changed.waiting == workers, "all workers wait")
        assert 1 + workers <= produced <= 1 + memory + 1 + workers  # each worker has a batch that was not added
        found += map(place_in, batches)
    assert sorted(found) == sorted(expected_of(splits))


def test_many_partitions_use_no_more_memory_than_few(conditions: list[CountingCondition]) -> None:
    """A worker that has read a partition of one batch begins with the next one, and waits there."""
    splits = planned(*[[1]] * 30)
    begun: list[Split] = []

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        begun.append(split)
        yield from batches_of(split)

    with closing(run_splits(splits, read, workers=2, memory=2 * BATCH, done=lambda _: None)) as batches:
        next(batches)
        (changed,) = conditions
        wait_for(lambda: changed.waiting == 2, "all workers wait")
        assert len(begun) <= 1 + 3 + 2  # yielded, waiting, and one with each worker
        assert len(list(batches)) == 29


def test_a_batch_above_the_limit_is_yielded_alone() -> None:
    """Memory for one batch of a head is always there."""
    splits = planned([2, 2], [1])
    found = [place_in(batch) for batch in run_splits(splits, batches_of, workers=3, memory=1, done=lambda _: None)]
    assert sorted(found) == sorted(expected_of(splits))


def test_workers_read_ahead_in_a_partition_when_no_other_is_left() -> None:
    """Later splits of one partition are begun while the first is read, and yielded after it."""
    splits = planned([1, 1, 1])
    begun = [threading.Event() for _ in splits]

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        number = place_of(split)[1] // ROWS
        begun[number].set()
        if number == 0:
            for event in begun:
                assert event.wait(30)
        yield from batches_of(split)

    found = [place_in(batch) for batch in run_splits(splits, read, workers=3, memory=10 * BATCH, done=lambda _: None)]
    assert found == expected_of(splits)


def test_workers_begin_with_different_partitions() -> None:
    """Each of them then is a head."""
    first: list[tuple[int, int]] = []
    all_begun = threading.Barrier(3)

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        first.append(place_of(split))
        if len(first) <= 3:
            all_begun.wait(30)
        yield from batches_of(split)

    splits = planned([1, 1], [1, 1], [1, 1])
    assert len(list(run_splits(splits, read, workers=3, memory=0, done=lambda _: None))) == 6
    assert sorted(first[:3]) == [(0, 0), (1, 0), (2, 0)]


class BrokenError(Exception):
    """What a split raises."""


def failing(at: tuple[int, int], after: int) -> ReadSplits:
    """Return a function that reads splits, and raises in one of them after some batches."""

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches_of(split)):
            if place_of(split) == at and number == after:
                raise BrokenError(str(at))
            yield batch
        if place_of(split) == at:
            raise BrokenError(str(at))

    return read


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_error_follows_the_rows_before_it(workers: int, after: int) -> None:
    """Those of its split and of earlier ones; later splits of the partition are not yielded."""
    splits = planned([3, 3, 3], [1])
    found: list[tuple[int, int]] = []
    with pytest.raises(BrokenError):
        for batch in run_splits(
            splits, failing((0, 3 * ROWS), after), workers=workers, memory=100 * BATCH, done=lambda _: None
        ):
            found.append(place_in(batch))  # noqa: PERF401  (the rows before the error)
    assert [start for partition, start in found if partition == 0] == [ROWS * n for n in range(3 + after)]


def test_an_error_at_once_is_raised() -> None:
    """Also of a reader that yields nothing, on each worker."""

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        raise BrokenError(split)

    with pytest.raises(BrokenError):
        next(run_splits(planned([1], [1]), read, workers=2, memory=0, done=lambda _: None))


def test_no_split_is_no_batch() -> None:
    """Nothing is started."""
    assert list(run_splits([], batches_of, workers=4, memory=0, done=lambda _: None)) == []


@pytest.mark.parametrize("memory", [0, 100])
def test_closing_closes_the_reads(memory: int) -> None:
    """Each read that was begun is closed, also one that waits for memory."""
    begun, closed = list[int](), list[int]()

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        begun.append(1)
        try:
            while True:
                yield from batches_of(split)
        finally:
            closed.append(1)

    with closing(
        run_splits(planned([1], [1], [1]), read, workers=3, memory=memory * BATCH, done=lambda _: None)
    ) as one:
        next(one)
    wait_for(lambda: not running(), "no thread of a scheduler runs", state=running)
    assert len(begun) == len(closed) > 0


def test_a_run_that_is_dropped_is_closed() -> None:
    """The collector closes it."""

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        while True:
            yield from batches_of(split)

    batches = run_splits(planned([1], [1]), read, workers=2, memory=0, done=lambda _: None)
    next(batches)
    del batches
    gc.collect()
    wait_for(lambda: not running(), "no thread of a scheduler runs", state=running)


def test_the_end_of_the_interpreter_stops_what_runs() -> None:
    """Threads that run while an interpreter ends would crash it."""
    batches = run_splits(planned([5], [5]), batches_of, workers=2, memory=0, done=lambda _: None)
    next(batches)
    scheduler._end_all()
    assert running() == []
    batches.close()


def test_the_end_of_the_interpreter_waits_for_no_thread_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for a store do not delay Ctrl-C one after the other."""
    monkeypatch.setattr(scheduler, "_LAST_SECONDS", 0.3)
    answer, begun = threading.Event(), threading.Barrier(11)

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        begun.wait(30)
        answer.wait(30)
        yield from batches_of(split)

    batches = run_splits(planned(*[[1]] * 10), read, workers=10, memory=0, done=lambda _: None)
    consumer = threading.Thread(target=lambda: list(batches))
    consumer.start()
    begun.wait(30)
    before = time.monotonic()
    scheduler._end_all()
    assert 0.3 <= time.monotonic() - before < 2
    answer.set()
    wait_for(lambda: not running(), "no thread of a scheduler runs", state=running)
    consumer.join(30)
    assert not consumer.is_alive()


def test_progress_is_reported_when_a_split_was_yielded() -> None:
    """Not when it was read."""
    done: list[int] = []
    seen: list[int] = []
    for _ in run_splits(planned([1, 1, 1]), batches_of, workers=3, memory=10 * BATCH, done=done.append):
        seen.append(sum(done))  # noqa: PERF401  (a comprehension would hide the order)
    assert seen == [0, 1, 2]
    assert sum(done) == 3
