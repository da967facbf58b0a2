"""Writes rows to files, one or more for each partition key, within a memory budget.

Rows wait until they are worth a row group. If all that wait is too much, the key with the most waiting rows is written.
Few files are open at once: the least recently used one is closed, and rows of its key that follow begin another.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from ts_tables.files.formats import FORMATS, OutputFile
from ts_tables.files.layout import Layout, WrittenFile
from ts_tables.files.partitioning import Key, groups
from ts_tables.files.raw_columns import OFFSET

ROW_GROUP_BYTES: Final = 64 << 20  # of Arrow memory
WAITING_BYTES: Final = 160 << 20  # of all keys of one task
OPEN_FILES: Final = 64

OpenFile = Callable[[Key], tuple[str, BinaryIO]]


class FileWriter:
    """Writes the rows of one task.

    Args:
        open_file: returns the path of a new file, and a stream to write it.
    """

    def __init__(self, layout: Layout, open_file: OpenFile) -> None:
        self._layout = layout
        self._open_file = open_file
        self._open: OrderedDict[Key, _OpenFile] = OrderedDict()
        self._waiting: dict[Key, _Waiting] = {}
        self._bytes = 0
        self._done: list[WrittenFile] = []

    def add(self, rows: pa.RecordBatch, key: Key | None = None) -> None:
        """Add rows with the columns of the layout.

        Args:
            key: their partition key; None to compute it.

        Raises:
            OSError: the stream failed.
            OperatorError: the format has no such value.
        """
        terms = self._layout.terms
        given = () if key is None else key
        for each, some in groups(rows, terms) if terms and key is None else [(given, rows)]:
            waiting = self._waiting.setdefault(each, _Waiting())
            self._bytes += waiting.add(some)
            if waiting.bytes >= ROW_GROUP_BYTES:
                self._write(each)
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
            each.output.abort()
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
        if file.output.size >= self._layout.target_bytes:
            self._close(key)

    def _close(self, key: Key) -> None:
        file = self._open.pop(key)
        closed = file.output.close()
        is_sorted = bool(self._layout.sort) and file.writes == 1
        self._done.append(
            WrittenFile(file.path, key, closed.size, file.rows, closed.footer, is_sorted, file.first, closed.runs)
        )


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
        self.rows = 0
        self.writes = 0
        self.first = 0
        self.output: OutputFile = FORMATS[layout.format].open(layout, stream)

    def write(self, table: pa.Table) -> None:
        self.output.write(table)
        first: int = pc.min(table[OFFSET]).as_py()
        self.first = min(first, self.first) if self.rows else first
        self.rows += table.num_rows
        self.writes += 1
