"""The rows of a table's file, whatever its format is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow as pa

from ts_common.errors import CorruptData, StoreUnavailable
from ts_tables.files.json_lines import json_rows
from ts_tables.files.layout import FileFormat
from ts_tables.files.orc_files import orc_rows
from ts_tables.files.parquet_files import parquet_rows, parquet_schema
from ts_tables.files.parsed_columns import OWN_TYPES
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import RAW_SCHEMA
from ts_tables.files.record_files import FileRecords
from ts_tables.files.sequence_files import sequence_rows
from ts_tables.files.text_files import text_rows
from ts_tables.parsers.table_types import is_wider

_ID: Final = b"PARQUET:field_id"
_ROWS: Final = 1 << 15
_OF_RECORDS: Final = {**dict(zip(RAW_SCHEMA.names, RAW_SCHEMA.types, strict=True)), **OWN_TYPES}


@dataclass(frozen=True)
class TableFile:
    """A file of a table. It can be pickled.

    Attributes:
        open: opens it for reading.
        compression: its codec, of JSON lines and text.
        is_local: whether `open` copies it to this host, so that an error of reading is not one of the store.
        key: the partition key of its rows, which need not have the columns of it; None if they have.
        records: what it has records of; None if its rows have that.
    """

    path: str
    open: Callable[[], BinaryIO]
    format: FileFormat = FileFormat.PARQUET
    compression: str = "none"
    is_local: bool = False
    key: Key | None = None
    records: FileRecords | None = None

    def rows(
        self, expected: pa.Schema, columns: tuple[str, ...] | None = None, optional: frozenset[str] = frozenset()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Args:
            expected: columns that it must have; with the ids of Parquet's fields, if the table format has such.
            columns: the names of those that are read; None for all.
            optional: columns that it may lack: its rows have NULL there.

        Raises:
            CorruptData: it has another format, lacks a column, or has another type of it.
            StoreUnavailable: it cannot be read.
        """
        try:
            with self.open() as stream:
                rows = self._rows(stream, expected, columns, optional)
                yield from rows if columns is None else (each.select(columns) for each in rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
            raise CorruptData(f"{self.path}: {error}") from error
        except OSError as error:
            if self.is_local:
                raise CorruptData(f"{self.path}: {error}") from error
            raise StoreUnavailable(f"{self.path}: {error}") from error

    def _rows(
        self, stream: BinaryIO, expected: pa.Schema, columns: tuple[str, ...] | None, optional: frozenset[str]
    ) -> Iterator[pa.RecordBatch]:
        if self.format is FileFormat.PARQUET:
            found = parquet_schema(stream)
            lacking = [field for field in expected if field.name in optional and field.name not in found.names]
            _check_columns(found, pa.schema([field for field in expected if field not in lacking]), self.path)
            for rows in parquet_rows(stream, _ROWS, None if columns is None else list(columns)):
                yield _with_nulls(_typed(rows, expected), lacking)
        elif self.format is FileFormat.JSON_LINES:
            yield from json_rows(stream, self.compression, expected, self.path)
        elif self.format is FileFormat.ORC:
            yield from orc_rows(stream, self.path, expected, optional)
        else:
            assert self.records is not None  # noqa: S101
            if self.format is FileFormat.TEXT:
                found_rows = text_rows(stream, self.path, self.compression, self.records)
            else:
                found_rows = sequence_rows(stream, self.path, self.format, self.records)
            yield from (each.select(expected.names) for each in found_rows)


def _typed(rows: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
    """Return rows with the types of a table.

    A file can be older than a wider type of one of its columns. One that others wrote again can have the columns of a
    record in Arrow's other types of texts and lists.

    Raises:
        ArrowInvalid, ArrowNotImplementedError: a column of a record has values of another kind.
    """
    for at, field in enumerate(rows.schema):
        wanted = expected.field(field.name).type if field.name in expected.names else field.type
        is_of_record = field.type != wanted and wanted == _OF_RECORDS.get(field.name)
        if is_of_record or is_wider(field.type, wanted):
            rows = rows.set_column(at, field.with_type(wanted), rows.column(at).cast(wanted))
    return rows


def _with_nulls(rows: pa.RecordBatch, lacking: Sequence[pa.Field]) -> pa.RecordBatch:
    """Return rows with columns of NULL."""
    for field in lacking:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _check_columns(found: pa.Schema, expected: pa.Schema, path: str) -> None:
    """Check that a file has the columns of a table under their own names.

    Raises:
        CorruptData: a column is missing, or has the name of another one.
    """
    for field in expected:
        at, number = found.get_field_index(field.name), _id_of(field)
        if at < 0 or (number is not None and _id_of(found.field(at)) != number):
            raise CorruptData(f"{path} has no column {field.name}, or another one of that name")


def _id_of(field: pa.Field) -> bytes | None:
    return None if field.metadata is None else field.metadata.get(_ID)
