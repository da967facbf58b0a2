"""From ranges of a plan to Arrow batches.

If several copies cover the same offsets and none of them is complete (compaction removed other records in each), they
are merged by offset: each offset once. A record that one copy has and another lacks is in the union.

With a `DamageMap` damage does not end the read: intact copies are read instead, and offsets that no copy holds intact
are a `Corruption` between the rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.plan import ReadRange
from ts_common.archive.tail_logs import leads_to
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.logs import is_first
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import projection_of, to_arrow
from ts_reader.decode.memory import HEAP, Memory
from ts_reader.decode.segment_decoder import MAX_ROWS
from ts_reader.reading.damage_map import Corruption, DamageMap
from ts_reader.reading.segment_reader import SegmentReader, UndecodableBatch

_OFFSET = "offset"

log = structlog.get_logger("ts_reader")


def read_ranges(
    store: ObjectStore,
    ranges: Iterable[ReadRange],
    names: Sequence[str],
    aborted: Sequence[AbortedTransaction] = (),
    *,
    erased: ErasedOffsets,
    max_rows: int = MAX_ROWS,
    way_out: str = "",
    limit: BatchLimit = DEFAULT_LIMIT,
    memory: Memory = HEAP,
    scan: str = "",
    ends_at_damage: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges of one partition in the order of offsets; damage ends the read.

    Args:
        ranges: in order.
        names: of columns, as in `ts_reader.decode.arrow`.
        aborted: transactions whose records are left out.
        erased: offsets whose records are left out.
        max_rows: of one batch; fewer than a scan wants, if the caller may stop early.
        way_out: as of `SegmentReader`.
        memory: of the columns that are decoded; other columns are on the heap.
        scan: as of `SegmentReader`.
        ends_at_damage: whether an entry of a live tail that is damaged or lost ends the rows before it, with a warning.

    Raises:
        CorruptData, BatchTooLarge: naming the object and the place.
        ObjectNotFound: retention or a merge deleted an object since the ranges were planned.
        StoreUnavailable, AccessDenied: from the store.
    """
    reader = SegmentReader(
        store,
        projection_of(names),
        aborted,
        erased=erased,
        max_rows=max_rows,
        way_out=way_out,
        limit=limit,
        memory=memory,
        scan=scan,
    )
    for part in ranges:
        if not part.is_tail or not ends_at_damage:
            yield from _rows(reader, part, names)
            continue
        try:
            rows = list(_rows(reader, part, names))  # its CRC is compared at its end
        except (CorruptData, ObjectNotFound) as error:
            if isinstance(error, ObjectNotFound) and not leads_to(store, part.copies[0]):
                raise  # a merge replaced it
            if is_first(("tail_damaged", scan, part.copies[0].key)):
                log.warning("tail_damaged", message=f"the view ends at offset {part.start}: {error}", scan=scan)
            return
        yield from rows


def read_intact_rows(
    store: ObjectStore,
    ranges: Iterable[ReadRange],
    names: Sequence[str],
    aborted: Sequence[AbortedTransaction] = (),
    *,
    erased: ErasedOffsets,
    silent: bool = False,
    max_rows: int = MAX_ROWS,
    limit: BatchLimit = DEFAULT_LIMIT,
    damage_map: DamageMap | None = None,
    scan: str = "",
) -> Iterator[pa.RecordBatch | Corruption]:
    """Yield the intact rows of ranges of one partition, and what is missing, in the order of offsets.

    Args:
        ranges: in order, each with its spare copies (`ts_common.archive.plan.with_spares`).
        names: of columns, as in `ts_reader.decode.arrow`.
        aborted: transactions whose records are left out.
        erased: offsets whose records are left out.
        silent: whether another read of the same ranges has logged the damage already.
        max_rows: as in `read_ranges`.
        damage_map: of earlier reads of the same store, so that no object is checked again; None for a new one.
        scan: as of `SegmentReader`.

    Raises:
        ObjectNotFound: retention deleted an object since the ranges were planned.
        CorruptData: an object was replaced while it was read.
        BatchTooLarge: an intact batch needs more memory than the limit; it is never skipped.
        StoreUnavailable, AccessDenied: from the store.
    """
    damage = DamageMap(store, silent=silent) if damage_map is None else damage_map
    reader = SegmentReader(
        store,
        projection_of(names),
        aborted,
        erased=erased,
        max_rows=max_rows,
        limit=limit,
        damage_map=damage,
        scan=scan,
    )
    with_offset = _with_offset(names)
    for part in ranges:
        position = part.start
        while position < part.end:
            try:
                for step in damage.steps(replace(part, start=position)):
                    if isinstance(step, Corruption):
                        yield step
                    else:
                        for rows in _rows(reader, step, with_offset):
                            position = int(rows.column(_OFFSET)[-1].as_py()) + 1
                            yield rows.select(list(names))
                    position = step.end
            except UndecodableBatch:
                continue  # `damage` has it now; the loop continues after the last row


def _rows(reader: SegmentReader, part: ReadRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range: of its only copy, or the union of its copies."""
    if len(part.copies) == 1:
        return _rows_of_copy(reader, part, part.copies[0], names)
    read = _with_offset(names)
    return union([_rows_of_copy(reader, part, copy, read) for copy in part.copies], names)


def _with_offset(names: Sequence[str]) -> list[str]:
    return list(names) if _OFFSET in names else [*names, _OFFSET]


def union(copies: Sequence[Iterator[pa.RecordBatch]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows of several copies of the same offsets, each offset once, in order.

    Args:
        copies: the rows of each, with the column `offset`.
    """
    sources = [_Source(batches) for batches in copies]
    while sources := [source for source in sources if source.fill()]:
        bound = min(source.last_offset for source in sources)
        pieces = [source.take_to(bound) for source in sources]
        rows = pa.concat_batches(pieces)
        _, first = np.unique(rows.column(_OFFSET).to_numpy(), return_index=True)
        rows = rows.take(pa.array(first)).select(list(names))
        for begin in range(0, rows.num_rows, MAX_ROWS):
            yield rows.slice(begin, MAX_ROWS)


def _rows_of_copy(
    reader: SegmentReader, part: ReadRange, copy: SegmentCopy, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    partition = copy.keys.partition
    for columns in reader.read(copy, part.start, part.end, before=part.before):
        yield to_arrow(columns, partition.topic, partition.partition, names)


class _Source:
    """One copy's rows; the first ones are removed step by step."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = pa.RecordBatch.from_pylist([])

    def fill(self) -> bool:
        """Return whether there is a row; read the next batch if needed."""
        while not self._rows.num_rows:
            rows = next(self._batches, None)
            if rows is None:
                return False
            self._rows = rows
        return True

    @property
    def last_offset(self) -> int:
        """Return the last offset of the rows held."""
        return int(self._rows.column(_OFFSET)[-1].as_py())

    def take_to(self, bound: int) -> pa.RecordBatch:
        """Remove and return the rows up to an offset."""
        rows = self._rows
        offsets: npt.NDArray[np.int64] = rows.column(_OFFSET).to_numpy()
        count = int(np.searchsorted(offsets, bound, side="right"))
        self._rows = rows.slice(count)
        return rows.slice(0, count)
