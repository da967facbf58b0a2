"""The view `latest`: the newest record of each key below the range's end, unless that is a tombstone.

Compaction up to that end would leave the same records. The reader reads a partition twice: first keys and offsets, to
find the newest offset of each key, then the rows at these offsets, in order. It does not read segments without such a
row a second time.

A key belongs to one partition, as in Kafka: the same key in another partition is another key. A record without a key is
left out, as Kafka's cleaner removes it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from ts_common.archive.plan import ReadRange
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS
from ts_reader.reading.newest_offsets import NewestOffsets

_OFFSET: Final = "offset"
_HEADERS: Final = "headers"
_FIRST_PASS: Final = ("key", "value", _OFFSET)

# Reads ranges with the named columns; the flag is set for the second read, so that no warning is logged twice.
Read = Callable[[Sequence[ReadRange], Sequence[str], bool], Iterator[pa.RecordBatch]]


def read_newest(ranges: Sequence[ReadRange], names: Sequence[str], read: Read) -> Iterator[pa.RecordBatch]:
    """Yield the newest row of each key in a partition's ranges, in the order of offsets.

    Raises:
        what `read` raises.
    """
    log = structlog.get_logger("ts_reader")
    partition = str(ranges[0].copies[0].keys.partition)
    newest, rows, without_key, first_without_key = NewestOffsets(), 0, 0, None
    # A record whose headers cannot be decoded is left out; then an older one is the newest.
    first_pass = (*_FIRST_PASS, _HEADERS) if _HEADERS in names else _FIRST_PASS
    for batch in read(ranges, first_pass, False):
        keys, values, offsets = batch.column("key"), batch.column("value"), batch.column(_OFFSET)
        rows += batch.num_rows
        if keys.null_count:
            without_key += keys.null_count
            has_key = keys.is_valid()
            if first_without_key is None:
                first_without_key = offsets.filter(keys.is_null())[0].as_py()
            keys, values, offsets = keys.filter(has_key), values.filter(has_key), offsets.filter(has_key)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        newest.add(keys, offsets.to_numpy(), tombstones)
    if without_key:
        log.warning(
            "records_without_key",
            message="they have no newest record and are not returned",
            partition=partition,
            records=without_key,
            first_offset=first_without_key,
        )
    keys_found, size = newest.keys, newest.size_in_bytes
    kept = newest.pop_offsets()
    log.info(
        "newest_records_read",
        partition=partition,
        records=rows,
        keys=keys_found,
        kept=len(kept),
        deleted=keys_found - len(kept),
        table_bytes=size,
    )
    wanted = list(names) if _OFFSET in names else [*names, _OFFSET]
    again = [*_narrowed(ranges, kept)]
    yield from _gathered(_only(batch, kept).select(list(names)) for batch in read(again, wanted, True))


def _narrowed(ranges: Iterable[ReadRange], kept: npt.NDArray[np.int64]) -> Iterator[ReadRange]:
    """Yield the ranges with kept offsets, cut to the first and the last of them."""
    for part in ranges:
        first, behind = np.searchsorted(kept, (part.start, part.end)).tolist()
        if first < behind:
            yield replace(part, start=int(kept[first]), end=int(kept[behind - 1]) + 1)


def _only(batch: pa.RecordBatch, kept: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows with kept offsets; no row is above the last kept offset."""
    offsets = batch.column(_OFFSET).to_numpy()
    return batch.filter(pa.array(kept[np.searchsorted(kept, offsets)] == offsets))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, because a batch costs Spark as much as thousands of rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (rows + batch.num_rows > MAX_ROWS or size + batch.nbytes > MAX_BYTES):
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.concat_batches(held)
