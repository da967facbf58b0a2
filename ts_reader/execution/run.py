"""How a plan is run: in this process, on threads, or on worker processes."""

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Final

import pyarrow as pa

from ts_common.model import TopicPartition
from ts_common.store.shared_stores import shared_store
from ts_reader.decode.memory import RecycledMemory
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.scheduler import Progress, run_splits
from ts_reader.query.splits import Split, bytes_of

# Starting a worker costs half a second of a processor: as much as decoding so many bytes.
PROCESSES_FROM_BYTES: Final = 192 << 20
# A worker's bytes; its imports are not counted: two chunks of 2 MiB, the decoder's buffers, decompressed bytes.
_WORKER_BYTES: Final = 112 << 20
_THREADS: Final = 8  # each waits for the network
_DIRECTORY: Final = "file://"
MEMORY: Final = RecycledMemory()
os.register_at_fork(after_in_child=MEMORY.renew_lock)


def run(
    splits: Sequence[Split],
    columns: Columns,
    *,
    memory_limit: int,
    workers: int | None,
    done: Progress,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a plan: of each partition in the order of offsets.

    Args:
        memory_limit: bytes, see `ts_reader.Archive.scan`.
        workers: the number of worker processes; None for the number of processors.
        done: called with the number of splits that were read to their end.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: as
            `ts_reader.query.read_split.read_split` and `ts_reader.execution.decoded_columns.Columns.decode`.
    """
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    total = sum(bytes_of(part) for split in splits for part in split.ranges)
    processes = min(workers, len(splits), (memory_limit - _WORKER_BYTES // 2) // _WORKER_BYTES)
    is_large = processes > 1 and total >= PROCESSES_FROM_BYTES and bool(sys.executable)
    is_remote = any(not split.location.startswith(_DIRECTORY) for split in splits)
    threads = min(_THREADS, len(splits), memory_limit // _WORKER_BYTES) if is_remote else 1
    if is_large:
        from ts_reader.execution.process_pool import read_in_worker  # noqa: PLC0415  (what starts workers)

        there = columns.sent if columns.travels else columns.raw.sent
        here = columns if columns.travels else columns.raw

        def read_there(split: Split) -> Iterator[pa.RecordBatch]:
            partition = _partition(split)
            for batch in read_in_worker(split, there):
                rows = here.with_constants(batch, partition)
                yield rows if here is columns else columns.decode(rows, partition)

        waiting = memory_limit - processes * _WORKER_BYTES
        yield from run_splits(splits, read_there, workers=processes, memory=waiting, done=done)
        return

    from ts_reader.query.read_split import read_split  # noqa: PLC0415  (what decodes)

    def read_here(split: Split) -> Iterator[pa.RecordBatch]:
        store = shared_store(split.location, split.connection)
        for rows in read_split(store, split, columns.read, MEMORY):
            yield columns.decode(rows, _partition(split))

    if threads > 1:
        waiting = memory_limit - threads * _WORKER_BYTES
        yield from run_splits(splits, read_here, workers=threads, memory=waiting, done=done)
        return
    for split in splits:
        yield from read_here(split)
        done(1)


def _partition(split: Split) -> TopicPartition:
    return split.ranges[0].copies[0].keys.partition
