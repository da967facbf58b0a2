"""`view=latest`: of each key the newest record below the range's end, unless that is a tombstone.

That is what compaction would leave of a partition, had it come that far and no further. One task reads a partition
twice: first keys and offsets, to find the newest offset of each key, then the rows at these offsets, in order. Segments
without such a row are not read a second time.

Keys are those of one partition: the same key in another one is another key to Kafka, too. Records without a key have no
newest one: Kafka's cleaner removes them, and they are not shown here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from ts_common.archive.plan import ReadRange
from ts_common.decode.segment_decoder import MAX_BYTES, MAX_ROWS
from ts_spark.executor.newest_offsets import NewestOffsets
from ts_spark.split import Split

_OFFSET: Final = "offset"
_HEADERS: Final = "headers"
_FIRST_PASS: Final = ("key", "value", _OFFSET)

# Reads ranges with the named columns; the flag says that they were read before, so that no warning comes twice.
Read = Callable[[Sequence[ReadRange], Sequence[str], bool], Iterator[pa.RecordBatch]]


def read_latest(split: Split, names: Sequence[str], read: Read) -> Iterator[pa.RecordBatch]:
    """The newest row of each key in a partition's ranges, in the order of offsets.

    Args:
        split: all of a partition.
        names: of the columns.
        read: how ranges are read.

    Raises:
        what `read` raises.
    """
    log = structlog.get_logger("ts_spark")
    partition = str(split.ranges[0].copies[0].keys.partition)
    newest, rows, without_key, first_without_key = NewestOffsets(), 0, 0, None
    # Headers that cannot be decoded make a record that is not shown; an older one is the newest then.
    looked_at = (*_FIRST_PASS, _HEADERS) if _HEADERS in names else _FIRST_PASS
    for batch in read(split.ranges, looked_at, False):
        keys, values, offsets = batch.column("key"), batch.column("value"), batch.column(_OFFSET)
        rows += batch.num_rows
        if keys.null_count:
            without_key += keys.null_count
            has_key = keys.is_valid()
            if first_without_key is None:
                first_without_key = offsets.filter(keys.is_null())[0].as_py()
            keys, values, offsets = keys.filter(has_key), values.filter(has_key), offsets.filter(has_key)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        newest.take(keys, offsets.to_numpy(), tombstones)
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
    again = [*_narrowed(split.ranges, kept)]
    yield from _gathered(_only(batch, kept).select(list(names)) for batch in read(again, wanted, True))


def _narrowed(ranges: Iterable[ReadRange], kept: npt.NDArray[np.int64]) -> Iterator[ReadRange]:
    """The ranges that hold offsets which are kept, from the first to the last of them."""
    for part in ranges:
        first, behind = np.searchsorted(kept, (part.start, part.end)).tolist()
        if first < behind:
            yield replace(part, start=int(kept[first]), end=int(kept[behind - 1]) + 1)


def _only(batch: pa.RecordBatch, kept: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The rows whose offsets are kept; none is above the last of these."""
    offsets = batch.column(_OFFSET).to_numpy()
    return batch.filter(pa.array(kept[np.searchsorted(kept, offsets)] == offsets))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not small: each costs Spark as much as thousands of rows."""
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
