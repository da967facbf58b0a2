"""Reading a split: the rows of its ranges as Arrow batches, by its view and its tolerance of corrupt batches."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from ts_common.archive.plan import ReadRange
from ts_common.errors import ObjectFrozen
from ts_common.store.contract import ByteRange, ObjectStore
from ts_reader.decode.arrow_schema import arrow_schema
from ts_reader.decode.memory import HEAP, Memory
from ts_reader.query.frozen import commands_of
from ts_reader.query.policies import View
from ts_reader.query.rows_until import rows_until
from ts_reader.query.split import Split
from ts_reader.reading.damage_map import Corruption
from ts_reader.reading.newest_records import Read, read_newest
from ts_reader.reading.rows import read_intact_rows, read_ranges

# Of a corrupt place, in its row: enough to identify it; the object holds all of it.
RAW_BYTES: Final = 64 << 10


def read_split(
    store: ObjectStore, split: Split, names: Sequence[str], memory: Memory = HEAP
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a split with the named columns, in the order of offsets.

    Args:
        store: of the split.
        split: what to read.
        names: of the columns.
        memory: of columns that need no further work after they are decoded; other columns are on the heap.

    Raises:
        CorruptData: naming the object and the place; not from a tolerant query.
        BatchTooLarge: naming the object, the place and the option.
        ObjectNotFound: retention deleted an object since the query was planned.
        ObjectFrozen: an object must be thawed first; naming it, and the command.
        StoreUnavailable, AccessDenied: from the store.
    """
    return _explained(store, split, _rows_of(store, split, names, memory))


def _explained(store: ObjectStore, split: Split, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows; add the command that thaws what the split reads to the error of a frozen object."""
    try:
        yield from rows
    except ObjectFrozen as error:
        command = commands_of(store, split.ranges)[0]
        raise ObjectFrozen(f"{error}; what this task reads is thawed by `{command}`") from error


def _rows_of(store: ObjectStore, split: Split, names: Sequence[str], memory: Memory) -> Iterator[pa.RecordBatch]:
    if split.view is View.LATEST:
        return read_newest(split.ranges, names, _reader(store, split))
    if split.tolerance.fails:

        def read_rows(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
            return read_ranges(
                store,
                split.ranges,
                wanted,
                split.aborted,
                way_out=split.way_out,
                limit=split.limit,
                memory=memory,
                scan=split.scan,
            )

        return rows_until(split.until, names, read_rows)
    return _read_tolerantly(store, split, names)


def _reader(store: ObjectStore, split: Split) -> Read:
    """Return a function that reads ranges of a split without rows for corrupt batches."""

    def read(ranges: Sequence[ReadRange], names: Sequence[str], again: bool) -> Iterator[pa.RecordBatch]:
        def read_rows(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
            if split.tolerance.fails:
                yield from read_ranges(
                    store, ranges, wanted, split.aborted, way_out=split.way_out, limit=split.limit, scan=split.scan
                )
                return
            found = read_intact_rows(
                store, ranges, wanted, split.aborted, silent=again, limit=split.limit, scan=split.scan
            )
            yield from (rows for rows in found if isinstance(rows, pa.RecordBatch))

        return rows_until(split.until, names, read_rows)

    return read


def _read_tolerantly(store: ObjectStore, split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    column = split.tolerance.column
    plain = [name for name in names if name != column]
    place = next((place for place, name in enumerate(names) if name == column), None)

    def read_rows(wanted: Sequence[str]) -> Iterator[pa.RecordBatch | Corruption]:
        return read_intact_rows(store, split.ranges, wanted, split.aborted, limit=split.limit, scan=split.scan)

    for found in rows_until(split.until, plain, read_rows):
        if isinstance(found, pa.RecordBatch):
            yield found if place is None else _with(found, place, names, pa.nulls(found.num_rows, pa.binary()))
        elif place is not None:
            raw = pa.array([_raw(store, found)], pa.binary())
            yield _with(_blank(found, plain), place, names, raw)


def _blank(found: Corruption, names: Sequence[str]) -> pa.RecordBatch:
    """Return a row with the place of a corruption: topic, partition and first offset."""
    partition = found.copy.keys.partition
    known = {"topic": partition.topic, "partition": partition.partition, "offset": found.start}
    schema = arrow_schema(names)
    return pa.RecordBatch.from_arrays(
        [pa.array([known.get(field.name)], field.type) for field in schema], schema=schema
    )


def _with(rows: pa.RecordBatch, place: int, names: Sequence[str], column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns[:place], column, *rows.columns[place:]], names=list(names))


def _raw(store: ObjectStore, found: Corruption) -> bytes:
    """Return the bytes of a corrupt place; empty if the object ends before it."""
    end = min(found.end_position, found.position + RAW_BYTES)
    return store.get(found.copy.key, ByteRange(found.position, end))[0] if end > found.position else b""
