"""Reading a split: the rows of its ranges as Arrow batches, by its view and its tolerance of corrupt batches.

For the totals of its rows, all bytes of its ranges are fetched, because a request for each header costs more than the
bytes between two of them, and each CRC is checked. Records are decompressed only of batches whose header does not
suffice. Ranges of several copies, tolerant queries, cuts and the newest records of keys are decoded as for their rows.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.plan import ReadRange
from ts_common.errors import ObjectFrozen
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow_schema import MILLISECONDS, arrow_schema
from ts_reader.decode.batch_summary import BatchSummary
from ts_reader.decode.columns import Projection
from ts_reader.decode.memory import HEAP, Memory
from ts_reader.query.frozen import commands_of
from ts_reader.query.query import View
from ts_reader.query.splits import Split
from ts_reader.query.totals import Detail, Totals
from ts_reader.reading.damage_map import Corruption
from ts_reader.reading.newest_records import Read, read_newest
from ts_reader.reading.rows import read_intact_rows, read_ranges
from ts_reader.reading.segment_reader import SegmentReader

# Bytes of a corrupt place in its row: enough to identify it; the object holds all of it.
RAW_BYTES: Final = 64 << 10
_COLUMNS = ("offset", MILLISECONDS)
_KEY: Final = "key"
_NO_FIELDS = Projection(key=False, value=False, headers=False)

_Other = TypeVar("_Other")

# Reads the named columns.
_ReadColumns = Callable[[Sequence[str]], Iterator[pa.RecordBatch | _Other]]


def read_split(
    store: ObjectStore, split: Split, names: Sequence[str], memory: Memory = HEAP
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a split with the named columns, in the order of offsets.

    Args:
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
                erased=split.erased,
                way_out=split.way_out,
                limit=split.limit,
                memory=memory,
                scan=split.scan,
                ends_at_damage=split.ends_at_damage,
            )

        return _shown(split, names, read_rows)
    return _read_tolerantly(store, split, names)


def _reader(store: ObjectStore, split: Split) -> Read:
    """Return a function that reads ranges of a split without rows for corrupt batches."""

    def read(ranges: Sequence[ReadRange], names: Sequence[str], again: bool) -> Iterator[pa.RecordBatch]:
        def read_rows(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
            if split.tolerance.fails:
                yield from read_ranges(
                    store,
                    ranges,
                    wanted,
                    split.aborted,
                    erased=split.erased,
                    way_out=split.way_out,
                    limit=split.limit,
                    scan=split.scan,
                    ends_at_damage=split.ends_at_damage,
                )
                return
            found = read_intact_rows(
                store,
                ranges,
                wanted,
                split.aborted,
                erased=split.erased,
                silent=again,
                limit=split.limit,
                scan=split.scan,
            )
            yield from (rows for rows in found if isinstance(rows, pa.RecordBatch))

        return _shown(split, names, read_rows)

    return read


def _read_tolerantly(store: ObjectStore, split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    column = split.tolerance.column
    plain = [name for name in names if name != column]
    place = next((place for place, name in enumerate(names) if name == column), None)

    def read_rows(wanted: Sequence[str]) -> Iterator[pa.RecordBatch | Corruption]:
        return read_intact_rows(
            store, split.ranges, wanted, split.aborted, erased=split.erased, limit=split.limit, scan=split.scan
        )

    for found in _shown(split, plain, read_rows):
        if isinstance(found, pa.RecordBatch):
            yield found if place is None else _with(found, place, names, pa.nulls(found.num_rows, pa.binary()))
        elif place is not None:
            raw = pa.array([_raw(store, found, split.erased)], pa.binary())
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


def _raw(store: ObjectStore, found: Corruption, erased: ErasedOffsets) -> bytes:
    """Return the bytes of a corrupt place; empty if the object ends before it, or can have an erased record there.

    A damaged header does not give the offsets of its records, so each erased offset of the copy counts.
    """
    if erased.meets(min(found.start, found.copy.base), max(found.end, found.copy.end)):
        return b""
    end = min(found.end_position, found.position + RAW_BYTES)
    return found.copy.read(store, found.position, end) if end > found.position else b""


def _shown(split: Split, names: Sequence[str], read: _ReadColumns[_Other]) -> Iterator[pa.RecordBatch | _Other]:
    """Yield the rows that a split shows: up to its moment, and with its keys; raise as `read`."""
    return rows_until(split.until, names, lambda wanted: rows_with(split.key_equals, wanted, read))


def rows_with(
    keys: Collection[bytes] | None, names: Sequence[str], read: _ReadColumns[_Other]
) -> Iterator[pa.RecordBatch | _Other]:
    """Yield the rows with one of some keys, and nothing else: what is no record batch has no key.

    Args:
        keys: None for all rows, and what is no record batch.

    Raises:
        what `read` raises.
    """
    if keys is None:
        yield from read(names)
        return
    wanted, has_key = pa.array(sorted(keys), pa.binary()), _KEY in names
    for rows in read(names if has_key else [*names, _KEY]):
        if isinstance(rows, pa.RecordBatch):
            kept = rows.filter(pc.is_in(rows.column(_KEY), value_set=wanted))
            if kept.num_rows:
                yield kept if has_key else kept.select(list(names))


def rows_until(
    milliseconds: int | None, names: Sequence[str], read: _ReadColumns[_Other]
) -> Iterator[pa.RecordBatch | _Other]:
    """Yield the rows with a timestamp at or before a moment, and what is no record batch as it is.

    A record without a timestamp (-1) is such a row. Batches without any other row are passed on without a copy.

    Args:
        milliseconds: since 1970; None for all rows.

    Raises:
        what `read` raises.
    """
    if milliseconds is None:
        yield from read(names)
        return
    has_time = MILLISECONDS in names
    for rows in read(names if has_time else [*names, MILLISECONDS]):
        if not isinstance(rows, pa.RecordBatch):
            yield rows
            continue
        shown = rows.column(MILLISECONDS).to_numpy() <= milliseconds
        kept = rows if np.all(shown) else rows.filter(pa.array(shown))
        if kept.num_rows:
            yield kept if has_time else kept.select(list(names))


def summarize_split(store: ObjectStore, split: Split, detail: Detail, corrupt_column: str | None = None) -> Totals:
    """Return the totals of a split's rows.

    Args:
        store: of the split's location.
        detail: what is wanted; other attributes of the totals are undefined.
        corrupt_column: the column with a row for each corrupt place; None if such places have no row.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: as
            `read_split`.
    """
    totals = Totals()
    can_end = split.ends_at_damage and any(part.is_tail for part in split.ranges)
    is_chosen = split.view is View.LATEST or split.until is not None or split.key_equals is not None
    if is_chosen or not split.tolerance.fails or can_end:
        names = _COLUMNS if corrupt_column is None else (*_COLUMNS, corrupt_column)
        for rows in read_split(store, split, names):
            totals.add(_of_rows(rows))
        return totals
    summary = BatchSummary(detail >= Detail.HEADERS, detail >= Detail.ALL)
    reader = _summarizer(store, split, summary)
    for part in split.ranges:
        if len(part.copies) == 1:
            for columns in reader.read(part.copies[0], part.start, part.end, before=part.before):
                summary.add(columns.offsets, columns.timestamps)
        else:
            for rows in read_ranges(
                store,
                [part],
                _COLUMNS,
                split.aborted,
                erased=split.erased,
                way_out=split.way_out,
                limit=split.limit,
                scan=split.scan,
            ):
                totals.add(_of_rows(rows))
    if summary.rows:
        totals.add(Totals(summary.rows, summary.first, summary.last, summary.least, summary.greatest))
    if detail >= Detail.HEADERS and (base := summary.sparse) is not None and base > totals.last:
        totals.last = _last_of(store, split, base)
    return totals


def _summarizer(store: ObjectStore, split: Split, summary: BatchSummary | None = None) -> SegmentReader:
    return SegmentReader(
        store,
        _NO_FIELDS,
        split.aborted,
        erased=split.erased,
        way_out=split.way_out,
        limit=split.limit,
        summary=summary,
        scan=split.scan,
    )


def _last_of(store: ObjectStore, split: Split, base: int) -> int:
    """Return the offset of the last record of a split; the batch with this base offset has it."""
    part: ReadRange = next(part for part in split.ranges if part.start <= base < part.end)
    (copy,) = part.copies
    return max(int(columns.offsets[-1]) for columns in _summarizer(store, split).read(copy, base, part.end))


def _of_rows(rows: pa.RecordBatch) -> Totals:
    if not rows.num_rows:
        return Totals()
    offsets = rows.column("offset").to_numpy()
    totals = Totals(rows.num_rows, int(offsets.min()), int(offsets.max()))
    timestamps = rows.column(MILLISECONDS).drop_null().to_numpy()
    if len(timestamps):
        totals.least, totals.greatest = int(timestamps.min()), int(timestamps.max())
    return totals
