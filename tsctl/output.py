"""Output of `tsctl`: tables or JSON on standard output, warnings and progress on standard error.

On a terminal, tables are drawn. Elsewhere they are plain text in columns, and no line is wrapped. JSON is one document,
or one line for each item of a long result. Its field names are lower case with underscores, its times ISO 8601 in UTC
with milliseconds, its sizes bytes. A later release may add fields. If the meaning of a field changes, `version` does.

A file or a pipe has each line as soon as it is written: a command can run for days. Only `row`, for results of millions
of lines, leaves lines in the buffer.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from rich.filesize import decimal

from ts_common.errors import ConfigurationError
from ts_common.printable import printable, printable_json, printable_lines
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.timestamps import time_text
from tsctl.json_lines import json_line

VERSION: Final = 1
NOTHING: Final = "-"  # in a cell: unknown or missing
_DRAWN: Final = 2_000  # rows; the library needs 1 ms and 9 KB for each

_PIECES: Final = 10_000  # of a JSON document that are changed and written at once

Cell = str | int | bool | None
_T = TypeVar("_T")


class ReaderGone(Exception):
    """The reader of standard output has closed it, as `head` does, so the command ends.

    It is not an `OSError`: typer would turn that into exit code 1.
    """


class Streamed(list[Any], Generic[_T]):
    """A list in a JSON document, whose elements are made while it is written: all at once can need gigabytes.

    Args:
        make: makes an element.
        of: what each is made of.
    """

    def __init__(self, make: Callable[[_T], object], of: Sequence[_T]) -> None:
        super().__init__(of)
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        """Make one element after the other."""
        return map(self._make, super().__iter__())


class Advance(Protocol):
    """A callback for progress."""

    def __call__(self, count: int = 1) -> None:
        """Add `count` to what is done."""


class Output:
    """The output of one command.

    Args:
        as_json: whether standard output is JSON.
        whole: changes each text before it is written, as `ArchiveName.whole`.
    """

    def __init__(self, as_json: bool, whole: Callable[[str], str] = str) -> None:
        self.as_json = as_json
        self._whole = whole
        self._warnings: list[str] = []

    def warn(self, warning: str) -> None:
        """Write a warning to standard error, and to `warnings` of the JSON document."""
        self._warnings.append(warning)
        print(f"tsctl: {printable(self._whole(warning))}", file=sys.stderr)  # noqa: T201  (the command's own voice)

    def note(self, line: str, *, beside_bar: bool = False) -> None:
        """Write a line about progress to standard error, if no progress bar is there.

        Args:
            beside_bar: whether to write it in any case.
        """
        if beside_bar or not sys.stderr.isatty():
            print(f"tsctl: {printable(line)}", file=sys.stderr)  # noqa: T201  (the command's own voice)

    def document(self, fields: Mapping[str, object]) -> None:
        """Write the command's JSON document, in pieces; a value can be `Streamed`."""
        document = {"version": VERSION, **fields, "warnings": self._warnings}
        pieces = json.JSONEncoder(indent=1).iterencode(document)  # no string is divided
        while some := "".join(islice(pieces, _PIECES)):
            _write(printable_json(self._whole(some)))
        _write("\n")
        flush()

    def line(self, fields: Mapping[str, object]) -> None:
        """Write one JSON document on a line of its own."""
        self.row(fields)
        flush()

    def row(self, fields: Mapping[str, object]) -> None:
        """Write one JSON document of very many; who waits after it calls `flush`."""
        for piece in json_line(fields):
            _write(piece)

    def text(self, line: str) -> None:
        """Write a line of text, unless standard output is JSON."""
        if not self.as_json:
            _write(printable_lines(self._whole(line)) + "\n")
            flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table; numbers are right-aligned."""
        right = [
            any(isinstance(row[place], int) and not isinstance(row[place], bool) for row in rows)
            for place in range(len(columns))
        ]
        cells = [[self._whole(_shown(cell)) for cell in row] for row in rows]
        if not sys.stdout.isatty() or len(cells) > _DRAWN:
            _plain([list(columns), *cells], right)
            flush()
            return
        from rich.console import Console  # noqa: PLC0415  (only a terminal needs it)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, numeric in zip(columns, right, strict=True):
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console = Console(file=sys.stdout, highlight=False)
        with console.capture() as drawn:
            console.print(table)
        _write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))
        flush()

    @contextmanager
    def progress(
        self, what: str, total: int, *, among_lines: bool = False, in_bytes: bool = False
    ) -> Iterator[Advance]:
        """Show a progress bar on a terminal; yield its callback, which any thread may call.

        Args:
            total: the amount of work.
            among_lines: whether the command writes lines meanwhile. If these are on a terminal too, no bar is shown.
            in_bytes: whether the unit is bytes.
        """
        if not sys.stderr.isatty() or (among_lines and sys.stdout.isatty()):
            yield _unseen
            return
        from rich import progress  # noqa: PLC0415  (as above)
        from rich.console import Console  # noqa: PLC0415

        bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # rich would write the lines of a file to the terminal
        )
        with bar:
            task = bar.add_task(what, total=total)

            def advance(count: int = 1) -> None:
                bar.advance(task, count)

            yield advance


def _unseen(count: int = 1) -> None:
    """Progress without a terminal."""


def iso(milliseconds: int | None) -> str | None:
    """Return a time in ISO 8601, as `ts_reader.query.timestamps.time_text`; None for None."""
    return None if milliseconds is None else time_text(milliseconds)


def size(count: int) -> str:
    """Return a number of bytes with a unit, for people."""
    return decimal(count)


def check_page(file: Path, option: str) -> None:
    """Refuse a file without a directory, before any work is done for it.

    Raises:
        ConfigurationError: the directory does not exist.
    """
    if not (directory := file.absolute().parent).is_dir():
        raise ConfigurationError(SOURCE, [f"{option}={file}: there is no directory {directory}"])


def write_page(file: Path, option: str, text: str) -> None:
    """Write a file whole, or not at all.

    Args:
        file: that is written or replaced.
        option: that named it, for the message.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    half = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise ConfigurationError(SOURCE, [f"{option}={file}: it cannot be written: {error}"]) from error


def umask() -> int:
    """Return the rights that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def flush() -> None:
    """Write the buffer out.

    Raises:
        ReaderGone: the reader has closed the pipe.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        # The interpreter must not write the buffer again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGone from error


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        flush()
        raise ReaderGone from None


def _plain(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """Write columns as plain text, without wrapping a line."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(line, widths, right, strict=True)
        )
        _write(" ".join(padded).rstrip() + "\n")


def _shown(cell: Cell) -> str:
    if cell is None or cell == "":
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return printable(str(cell))
