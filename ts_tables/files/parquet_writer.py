"""Writes rows to Parquet files, one or more for each partition key, within a memory budget.

Rows wait until they are worth a row group. If all that wait is too much, the key with the most waiting rows is written.
Few files are open at once: the least recently used one is closed, and rows of its key that follow begin another.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ts_tables.files.partitioning import Key, Term, groups

ROW_GROUP_BYTES: Final = 64 << 20  # of Arrow memory
WAITING_BYTES: Final = 160 << 20  # of all keys of one task
OPEN_FILES: Final = 64
TARGET_BYTES: Final = 256 << 20
# Numbers that rise along a log, and columns of few values; dictionaries of the others are dropped by the writer, late.
_RISING: Final = ("offset", "_offset", "timestamp")
_HEADER_NAMES: Final = ("headers.list.element.key",)
_FEW_VALUES: Final = ("topic", "partition", "timestampType", "_topic_id", "_partition_id", "_ordinal")


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are laid out in files. It can be pickled.

    Attributes:
        schema: of the files; a field has its id in the metadata `PARQUET:field_id`, if the table format needs one.
        terms: of the partition key.
        sort: columns to sort each row group by, ascending.
        target_bytes: a file is closed at this size.
        compression: codec of Parquet.
    """

    schema: pa.Schema
    terms: tuple[Term, ...] = ()
    sort: tuple[str, ...] = ()
    target_bytes: int = TARGET_BYTES
    compression: str = "zstd"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file.

    Attributes:
        path: as `open_file` named it.
        key: partition key of its rows.
        size: bytes.
        metadata: its footer.
        is_sorted: whether all its rows are sorted, not only each row group.
    """

    path: str
    key: Key
    size: int
    metadata: pq.FileMetaData
    is_sorted: bool


OpenFile = Callable[[Key], tuple[str, BinaryIO]]


class FileWriter:
    """Writes the rows of one task.

    Args:
        layout: of the files.
        open_file: returns the path of a new file, and a stream to write it.
    """

    def __init__(self, layout: Layout, open_file: OpenFile) -> None:
        self._layout = layout
        self._open_file = open_file
        self._open: OrderedDict[Key, _OpenFile] = OrderedDict()
        self._waiting: dict[Key, _Waiting] = {}
        self._bytes = 0
        self._done: list[WrittenFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of the layout.

        Raises:
            OSError: the stream failed.
        """
        terms = self._layout.terms
        for key, some in groups(rows, terms) if terms else [((), rows)]:
            waiting = self._waiting.setdefault(key, _Waiting())
            self._bytes += waiting.add(some)
            if waiting.bytes >= ROW_GROUP_BYTES:
                self._write(key)
        while self._bytes >= WAITING_BYTES:
            self._write(max(self._waiting, key=lambda key: self._waiting[key].bytes))

    def close(self) -> list[WrittenFile]:
        """Write what waits, close all files, and return every file.

        Raises:
            OSError: a stream failed.
        """
        for key in list(self._waiting):
            self._write(key)
        for key in list(self._open):
            self._close(key)
        return self._done

    def abort(self) -> None:
        """Close the streams after an error; their files are not complete."""
        for each in self._open.values():
            each.abort()
        self._open.clear()
        self._waiting.clear()

    def _write(self, key: Key) -> None:
        waiting = self._waiting.pop(key)
        self._bytes -= waiting.bytes
        schema = self._layout.schema
        table = pa.Table.from_batches(waiting.batches).select(schema.names).cast(schema)
        if self._layout.sort:
            table = table.sort_by([(name, "ascending") for name in self._layout.sort])
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open)))
            file = self._open[key] = _OpenFile(self._layout, *self._open_file(key))
        self._open.move_to_end(key)
        file.write(table)
        if file.size >= self._layout.target_bytes:
            self._close(key)

    def _close(self, key: Key) -> None:
        file = self._open.pop(key)
        size, metadata, row_groups = file.close()
        self._done.append(WrittenFile(file.path, key, size, metadata, bool(self._layout.sort) and row_groups == 1))


@dataclass(slots=True)
class _Waiting:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> int:
        size: int = rows.nbytes
        self.batches.append(rows)
        self.bytes += size
        return size


class _OpenFile:
    def __init__(self, layout: Layout, path: str, stream: BinaryIO) -> None:
        self.path = path
        self._stream = stream
        self._writer = pq.ParquetWriter(stream, layout.schema, **_properties(layout))
        self._row_groups = 0

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self._stream.tell()

    def write(self, table: pa.Table) -> None:
        """Write one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._row_groups += 1

    def close(self) -> tuple[int, pq.FileMetaData, int]:
        """Return the file's size, its footer and the number of its row groups."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return size, self._writer.writer.metadata, self._row_groups

    def abort(self) -> None:
        """Give up the file."""
        self._writer.is_open = False


def _properties(layout: Layout) -> dict[str, Any]:
    names = layout.schema.names
    return {
        "compression": layout.compression,
        "store_schema": False,  # of Arrow: other engines have their own types
        "use_dictionary": [*(name for name in _FEW_VALUES if name in names), *_HEADER_NAMES],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _RISING if name in names},
    }
