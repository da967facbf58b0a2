r"""Rows as a table, CSV, JSON lines, Parquet or Arrow.

Bytes are shown as text if they are UTF-8, else as hexadecimal digits after `\x`. Parquet and Arrow keep them and
all types.
"""

import csv
import io
import math
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from ts_common.errors import ConfigurationError, QueryError
from ts_common.printable import printable
from tsctl.json_lines import json_line
from tsctl.output import Output, umask

TABLE_ROWS: Final = 1000  # a table is for people
_ROWS: Final = 4096  # converted at once


class ResultFormat(StrEnum):
    """The form of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


FILES: Final = (ResultFormat.PARQUET, ResultFormat.ARROW)  # they need a file
Batches = Generator[pa.RecordBatch, None, None]


def write_table(schema: pa.Schema, batches: Batches, output: Output, read: Callable[[], None]) -> None:
    """Write the first rows as a table, and warn if there are more; call `read` when no more rows are wanted."""
    rows: list[list[Any]] = []
    has_more = False
    for row in _rows(batches):
        if len(rows) == TABLE_ROWS:
            has_more = True
            break
        rows.append([_cell(value) for value in row])
    read()
    if has_more:
        output.warn(f"only the first {TABLE_ROWS} rows are shown; --format csv, json or parquet writes all")
    output.table([printable(name) for name in schema.names], rows)


def write_text(form: ResultFormat, schema: pa.Schema, batches: Batches, to: TextIO) -> None:
    """Write all rows as CSV with a header, or as JSON lines."""
    if form is ResultFormat.CSV:
        # A file has the text as it is; a terminal would obey escapes in it.
        shown: Callable[[str], str] = printable if to.isatty() else str
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow([shown(name) for name in schema.names])
        for row in _rows(batches):
            writer.writerow(["" if value is None else shown(_text(value)) for value in row])
        return
    names = _unique([printable(name) for name in schema.names])
    for row in _rows(batches):
        to.writelines(json_line({name: _json(value) for name, value in zip(names, row, strict=True)}))


def write_file(form: ResultFormat, schema: pa.Schema, batches: Batches, path: Path) -> int:
    """Write all rows as a Parquet or Arrow file, which has its name when it is complete; return their number.

    An Arrow file has the IPC file format, with buffers compressed by zstd.
    """
    count = 0
    names = _unique(schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    with complete_file(path) as temporary, _translated(form), _writer(form, schema, temporary) as writer:
        for batch in batches:
            writer.write_batch(batch.rename_columns(names))
            count += batch.num_rows
    return count


def write_result(form: ResultFormat, schema: pa.Schema, batches: Batches, to: Path | None) -> int | None:
    """Write all rows to a file, or as text to standard output; return the number of rows of a Parquet or Arrow file.

    Args:
        form: no table.
        to: the file; None for standard output, which has no Parquet and no Arrow.
    """
    if to is None:
        write_text(form, schema, batches, sys.stdout)
    elif form in FILES:
        return write_file(form, schema, batches, to)
    else:
        with complete_file(to) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            write_text(form, schema, batches, file)
    return None


def _unique(names: Sequence[str]) -> list[str]:
    """Return names of columns with a number behind those that were there already: `a`, `a_1`."""
    found: list[str] = []
    for name in names:
        number, chosen = 0, name
        while chosen in found:
            number += 1
            chosen = f"{name}_{number}"
        found.append(chosen)
    return found


@contextmanager
def _translated(form: ResultFormat) -> Iterator[None]:
    """Raise what a format cannot hold as an error of the query."""
    try:
        yield
    except pa.ArrowException as error:
        message = f"--format={form}: {printable(str(error))}; choose another format, or cast the column"
        raise QueryError(message) from error


def _writer(form: ResultFormat, schema: pa.Schema, path: Path) -> Any:
    if form is ResultFormat.ARROW:
        return pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415  (only for such a file)

    return ParquetWriter(path, schema, compression="zstd")


@contextmanager
def complete_file(path: Path, option: str = "--output") -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it at the end, and remove it after an error.

    Args:
        option: names it, for messages.

    Raises:
        ConfigurationError: the directory does not exist or is not writable, or the file exists.
    """
    if path.exists():
        raise ConfigurationError("command line", [f"{option}={path}: the file exists; it is not overwritten"])
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ConfigurationError("command line", [f"{option}={path}: {error.strerror}"]) from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~umask())
        os.link(temporary, path)  # unlike a rename, it does not replace a file that appeared meanwhile
    finally:
        temporary.unlink(missing_ok=True)


def _rows(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            columns = [values_of(column) for column in batch.slice(start, _ROWS).columns]
            yield from zip(*columns, strict=True)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int) else _text(value)


def _text(value: Any) -> str:
    match value:
        case bytes():
            return _bytes(value)
        case datetime():
            return _iso(value)
        case dict() | list():
            buffer = io.StringIO()
            for piece in json_line(_json(value)):
                buffer.write(piece)
            return buffer.getvalue().rstrip("\n")
        case _:
            return str(value)


def _iso(value: datetime | date | time) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _json(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _bytes(value)
        case datetime() | date() | time():
            return _iso(value)
        case Decimal() | timedelta():
            return str(value)
        case dict():
            return {str(name): _json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_json(inner) for inner in value]
        case _:
            return str(value)


def _bytes(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"


_BEYOND = (OverflowError, ValueError)  # a date or time that Python's calendar does not have


def values_of(column: pa.Array, *, maps_as_pydicts: str | None = None) -> list[Any]:
    """Return the values of a column; each that contains a time beyond the years 1 to 9999 is text.

    Args:
        column: any.
        maps_as_pydicts: as of `pyarrow.Array.to_pylist`.
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts=maps_as_pydicts)
    except _BEYOND:
        values = [_value(column, place, maps_as_pydicts) for place in range(len(column))]
    return values


def _value(column: pa.Array, place: int, maps_as_pydicts: str | None) -> Any:
    try:
        return column[place].as_py(maps_as_pydicts=maps_as_pydicts)
    except _BEYOND:
        if pa.types.is_timestamp(column.type):
            return f"@{column[place].value} {column.type.unit}"
        return " ".join(column.slice(place, 1).to_string(window=1 << 30, container_window=1 << 30).split())
