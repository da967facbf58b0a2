"""Sums of digests by blocks of offsets, of rows in the archive or in a table's file; tasks of an engine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.digest import BLOCK_OFFSETS, COLUMNS, RAW_DIGEST, DigestSum, sum_of
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import TOPIC, parsed_schema, topic_column
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, RECORD_SCHEMA, TOPIC_ID
from ts_tables.files.reading import TableFile
from ts_tables.planning.work import Work
from ts_tables.tasks import Digests, raw_records

_POSITION: Final = (TOPIC_ID, PARTITION, OFFSET, ORDINAL)
_NEVER_NULL: Final = ("topic", TOPIC, PARTITION, OFFSET, ORDINAL, RAW_DIGEST)
_TEXTS: Final = ("topic", TOPIC, TOPIC_ID)
PARSED: Final = parsed_schema(pa.schema([])).empty_table().select([TOPIC, *_POSITION, RAW_DIGEST]).schema


class Block(NamedTuple):
    """A range of offsets of a partition: `BLOCK_OFFSETS` of them from `number * BLOCK_OFFSETS` on."""

    topic: str
    topic_id: str | None
    partition: int
    number: int

    @property
    def order(self) -> tuple[str, str, int, int]:
        """Sorts blocks; a topic id can be NULL."""
        return self.topic, self.topic_id or "", self.partition, self.number


Sums = dict[Block, DigestSum]
Skipped = Mapping[tuple[TopicPartition, str | None], tuple[tuple[int, int], ...]]
NOTHING: Final[Skipped] = {}


class Row(NamedTuple):
    """A row: its offset, and its digest as the two halves that sums add."""

    offset: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class ArchiveSums:
    """Computes the sums of rows in the archive. It can be pickled.

    Attributes:
        forgotten: records that are left out.
        layout: of the table's files, which can lack some of a record.
    """

    work: Work
    forgotten: Digests
    layout: Layout

    def __call__(self) -> Sums:
        """Return the sums by block; raise as `ts_tables.planning.work.Work.rows`."""
        return summed(raw_records(self.work, self.forgotten, self.layout))


@dataclass(frozen=True, slots=True)
class FileSums:
    """Computes the sums of rows in a file. It can be pickled.

    Attributes:
        skipped: by partition and topic id, ranges of offsets that are not compared.
        columns: that are read: `PARSED`, or as `raw_columns` returns them.
    """

    file: TableFile
    skipped: Skipped
    columns: pa.Schema

    def __call__(self) -> Sums:
        """Return the sums by block.

        Raises:
            CorruptData: the file is no Parquet, lacks a column, or has a row without a position.
            StoreUnavailable: it cannot be read.
        """
        return summed(_file_rows(self.file, self.columns), self.skipped)


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """Returns the rows of a block in the archive. It can be pickled.

    Attributes:
        forgotten: records that are left out.
        layout: of the table's files, which can lack some of a record.
    """

    work: Work
    forgotten: Digests
    block: Block
    layout: Layout

    def __call__(self) -> "Counter[Row]":
        """Return how often each row is there; raise as `ArchiveSums`."""
        return counted(raw_records(self.work, self.forgotten, self.layout), self.block)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Returns the rows of a block in a file. It can be pickled.

    Attributes:
        skipped: by partition and topic id, ranges of offsets that are not compared.
        columns: that are read: `PARSED`, or as `raw_columns` returns them.
    """

    file: TableFile
    block: Block
    skipped: Skipped
    columns: pa.Schema

    def __call__(self) -> "Counter[Row]":
        """Return how often each row is there; raise as `FileSums`."""
        return counted(_file_rows(self.file, self.columns), self.block, self.skipped)


def added(sums: Iterable[Sums]) -> Sums:
    """Return sums together."""
    total: Sums = {}
    for some in sums:
        for block, each in some.items():
            total[block] = total.get(block, DigestSum()) + each
    return total


def raw_columns(layout: Layout) -> pa.Schema:
    """Return the columns of a raw table, or of refused records, that digests need."""
    names = (*COLUMNS, *_POSITION, *({MILLISECONDS} & {*layout.schema.names}))
    return pa.schema([RECORD_SCHEMA.field(name) for name in names])


def _file_rows(file: TableFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, one for each record: the first one of a parsed table; raise as `FileSums`."""
    for rows in file.rows(columns, tuple(columns.names)):
        _check_positions(rows, file.path)
        yield rows.filter(pc.equal(rows[ORDINAL], 0)) if RAW_DIGEST in columns.names else rows


def _check_positions(rows: pa.RecordBatch, path: str) -> None:
    """Check that each row has a position.

    Raises:
        CorruptData: one has none, or a topic that is no UTF-8.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in _NEVER_NULL and column.null_count:
            raise CorruptData(f"{path}: rows without {name}: {column.null_count:,}; expected: none")
        if name in _TEXTS:
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise CorruptData(f"{path}: {name}: {error}") from error


def summed(batches: Iterable[pa.RecordBatch], skipped: Skipped = NOTHING) -> Sums:
    """Return the sums of rows by block."""
    return added({block: _sum(rows)} for batch in batches for block, rows in _compared(batch, skipped))


def _compared(rows: pa.RecordBatch, skipped: Skipped) -> Iterator[tuple[Block, pa.RecordBatch]]:
    """Yield the rows of each block that are compared."""
    for block, some in _by_block(rows):
        left = some
        for start, end in skipped.get((TopicPartition(block.topic, block.partition), block.topic_id), ()):
            offsets = left[OFFSET]
            left = left.filter(pc.or_(pc.less(offsets, start), pc.greater_equal(offsets, end)))
        if left.num_rows:
            yield block, left


def _sum(rows: pa.RecordBatch) -> DigestSum:
    """Return the sums of rows; one that has another position than its record is changed."""
    found = sum_of(rows)
    if RAW_DIGEST in rows.schema.names:
        return found
    is_moved = pc.or_(
        pc.or_(pc.not_equal(rows["offset"], rows[OFFSET]), pc.not_equal(rows["partition"], rows[PARTITION])),
        pc.not_equal(rows[ORDINAL], 0),
    )
    return DigestSum(found.rows, found.first + (pc.sum(is_moved).as_py() or 0), found.second)


def counted(batches: Iterable[pa.RecordBatch], wanted: Block, skipped: Skipped = NOTHING) -> "Counter[Row]":
    """Return how often each row of a block is there."""
    found: Counter[Row] = Counter()
    for batch in batches:
        for block, rows in _compared(batch, skipped):
            if block == wanted:
                for at, offset in enumerate(rows[OFFSET].to_pylist()):
                    one = _sum(rows.slice(at, 1))
                    found[Row(offset, one.first, one.second)] += 1
    return found


def _by_block(rows: pa.RecordBatch) -> Iterator[tuple[Block, pa.RecordBatch]]:
    """Yield the rows of each block."""
    if not rows.num_rows:
        return
    topics, ids = rows[topic_column(rows.schema)].dictionary_encode(), rows[TOPIC_ID].dictionary_encode("encode")
    parts = [
        topics.indices.to_numpy(),
        ids.indices.to_numpy(),
        rows[PARTITION].to_numpy(),
        rows[OFFSET].to_numpy() // BLOCK_OFFSETS,
    ]
    keys = np.stack([part.astype(np.int64) for part in parts])
    if (keys == keys[:, :1]).all():
        yield _block(keys[:, 0], topics, ids), rows
        return
    found, inverse = np.unique(keys, axis=1, return_inverse=True)
    for at in range(found.shape[1]):
        yield _block(found[:, at], topics, ids), rows.take(pa.array(np.flatnonzero(inverse.reshape(-1) == at)))


def _block(key: "np.typing.NDArray[np.int64]", topics: pa.Array, ids: pa.Array) -> Block:
    topic, topic_id, partition, number = (int(each) for each in key)
    return Block(topics.dictionary[topic].as_py(), ids.dictionary[topic_id].as_py(), partition, number)
