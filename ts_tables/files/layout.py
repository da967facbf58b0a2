"""How the rows of a table are laid out in files, what describes a complete file, and how columns differ."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ts_common.wording import some
from ts_tables.files.partitioning import Key, Term

TARGET_BYTES: Final = 256 << 20


class FileFormat(StrEnum):
    """The format of a table's files."""

    PARQUET = "parquet"
    JSON_LINES = "json"
    ORC = "orc"
    TEXT = "text"
    SEQUENCE = "sequence"
    SEQUENCE_MESSAGEPACK = "sequence-messagepack"


# A file of these formats has records of one Kafka partition, without the columns of a table.
RECORD_FORMATS: Final = frozenset({FileFormat.TEXT, FileFormat.SEQUENCE, FileFormat.SEQUENCE_MESSAGEPACK})
KEYLESS_FORMATS: Final = frozenset({FileFormat.TEXT, FileFormat.SEQUENCE})

Runs = tuple[tuple[int, int], ...]  # of consecutive offsets: the first one and their number


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are laid out in files. It can be pickled.

    Attributes:
        schema: of the files; a field has its id in the metadata `PARQUET:field_id`, if the table format needs one.
        terms: of the partition key.
        sort: columns to sort each row group by, ascending.
        target_bytes: a file is closed at this size.
        compression: codec of Parquet, or of a whole file of lines.
        optional: names of columns that former files lack; their rows have NULL there.
        delimiter: after each value, of text.
    """

    schema: pa.Schema
    terms: tuple[Term, ...] = ()
    sort: tuple[str, ...] = ()
    target_bytes: int = TARGET_BYTES
    compression: str = "zstd"
    format: FileFormat = FileFormat.PARQUET
    optional: frozenset[str] = frozenset()
    delimiter: bytes = b"\n"

    def extended(self, schema: pa.Schema) -> "Layout":
        """Return the layout with further columns, which former files lack.

        Args:
            schema: all columns.
        """
        optional = {*schema.names} - {*self.schema.names}
        return replace(self, schema=schema, optional=self.optional | optional)


@dataclass(frozen=True, slots=True)
class Closed:
    """What describes a file that was open.

    Attributes:
        size: bytes.
        footer: of Parquet; None of other formats.
        runs: the offsets of its records in their order, of text, which has no offsets; else empty.
    """

    size: int
    footer: pq.FileMetaData | None = None
    runs: Runs = ()


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file.

    Attributes:
        path: as `OpenFile` named it.
        key: partition key of its rows.
        size: bytes.
        footer: as of `Closed`.
        is_sorted: whether all its rows are sorted, not only each row group.
        first: the least offset of its rows.
        runs: as of `Closed`.
    """

    path: str
    key: Key
    size: int
    rows: int
    footer: pq.FileMetaData | None
    is_sorted: bool
    first: int = 0
    runs: Runs = ()


def discard(stream: BinaryIO) -> None:
    """Drop a stream whose `close` would complete its file: it has `discard`. Other streams are left as they are."""
    dropped = getattr(stream, "discard", None)
    if dropped is not None:
        dropped()


WAYS_OUT: Final = (
    "undo the change, make a generation of the table (docs/parsed-tables.md, Generations), or create a table of "
    "another name"
)


def differing(table: Mapping[str, str], file: Mapping[str, str]) -> str:
    """Return which columns differ; empty if they are the same.

    Args:
        table: the types of its columns as text, by name.
        file: those of the columns that the file of tables makes.
    """
    new = [f"{name} {kind}" for name, kind in file.items() if name not in table]
    gone = [f"{name} {kind}" for name, kind in table.items() if name not in file]
    others = [
        f"{name} is {table[name]} in the table and {kind} in the file"
        for name, kind in file.items()
        if table.get(name, kind) != kind
    ]
    found = [
        *([f"the table has no column {some(new)}"] if new else ()),
        *([f"the file makes no column {some(gone)}"] if gone else ()),
        *([some(others)] if others else ()),
    ]
    return "; ".join(found)
