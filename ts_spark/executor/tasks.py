"""What an executor does with one split; the rows are those of `ts_spark.executor.process_cache`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ts_common.archive.plan import ReadRange
from ts_common.decode.arrow import arrow_schema
from ts_common.store.contract import ByteRange, ObjectStore
from ts_spark.executor.corruption_tolerant import Corruption, TolerantReader
from ts_spark.executor.latest import Read, read_latest
from ts_spark.executor.process_cache import read_split
from ts_spark.options.modes import Tolerance, View
from ts_spark.split import Split

# Of a corrupt place, in its row: enough to see what it is; all of it is in the object.
RAW_BYTES: Final = 64 << 10


def read_task(store: ObjectStore, split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in the order of offsets, with the named columns.

    Raises:
        CorruptData: naming the object and the place; not in the modes that go on.
        BatchTooLarge: naming the same, and the option.
        ObjectNotFound: retention took an object since the query was planned.
        StoreUnavailable, AccessDenied: the store's.
    """
    if split.view is View.LATEST:
        return read_latest(split, names, _ranges_of(store, split))
    if split.tolerance.fails:
        return read_split(store, split, names)
    return _read_tolerantly(store, split, names, split.tolerance)


def _ranges_of(store: ObjectStore, split: Split) -> Read:
    """How ranges of a split are read for something that needs rows only."""

    def read(ranges: Sequence[ReadRange], names: Sequence[str], again: bool) -> Iterator[pa.RecordBatch]:
        if split.tolerance.fails:
            yield from read_split(store, replace(split, ranges=tuple(ranges)), names)
            return
        reader = TolerantReader(store, names, split.aborted, silent=again, limit=split.limit)
        yield from (found for part in ranges for found in reader.read(part) if isinstance(found, pa.RecordBatch))

    return read


def _read_tolerantly(
    store: ObjectStore, split: Split, names: Sequence[str], tolerance: Tolerance
) -> Iterator[pa.RecordBatch]:
    plain = [name for name in names if name != tolerance.column]
    place = next((place for place, name in enumerate(names) if name == tolerance.column), None)
    reader = TolerantReader(store, plain, split.aborted, limit=split.limit)
    for part in split.ranges:
        for found in reader.read(part):
            if isinstance(found, pa.RecordBatch):
                yield found if place is None else _with(found, place, names, pa.nulls(found.num_rows, pa.binary()))
            elif place is not None:
                raw = pa.array([_raw(store, found)], pa.binary())
                yield _with(_blank(found, plain), place, names, raw)


def _blank(found: Corruption, names: Sequence[str]) -> pa.RecordBatch:
    """A row that says where a corrupt place is, and nothing else."""
    partition = found.copy.keys.partition
    known = {"topic": partition.topic, "partition": partition.partition, "offset": found.start}
    schema = arrow_schema(names)
    return pa.RecordBatch.from_arrays(
        [pa.array([known.get(field.name)], field.type) for field in schema], schema=schema
    )


def _with(rows: pa.RecordBatch, place: int, names: Sequence[str], column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns[:place], column, *rows.columns[place:]], names=list(names))


def _raw(store: ObjectStore, found: Corruption) -> bytes:
    """What stands at a corrupt place; nothing where the object has ended."""
    end = min(found.end_position, found.position + RAW_BYTES)
    return store.get(found.copy.key, ByteRange(found.position, end))[0] if end > found.position else b""
