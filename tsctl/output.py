"""What `tsctl` writes: tables or JSON on standard output, warnings and progress on standard error.

Tables are drawn on a terminal; elsewhere they are plain text, columns side by side and no line broken. JSON is one
document, or one line for each thing where there can be many. Its names are in lower case with underscores, its times
ISO 8601 in UTC with milliseconds, its sizes bytes. A field may be added, none changes its meaning; `version` would
say otherwise.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ts_common.printable import printable, printable_json, printable_lines
from tsctl.json_lines import json_line

VERSION: Final = 1
NOTHING: Final = "-"  # in a cell: not known, or there is none
_DRAWN: Final = 2_000  # rows; the library takes a millisecond and 9 KB for each
_EPOCH: Final = datetime.fromtimestamp(0, UTC)

Cell = str | int | bool | None


class ReaderGone(Exception):
    """Whoever read standard output has closed it, as `head` does: nothing more is wanted. No `OSError`, of which typer
    makes a status of 1.
    """


class Advance(Protocol):
    """Called when some of a long work is done."""

    def __call__(self, count: int = 1) -> None:
        """So much more is done."""


class Output:
    """One command's voice.

    Args:
        as_json: whether standard output is JSON.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._warnings: list[str] = []

    def warn(self, warning: str) -> None:
        """Say on standard error, and in a JSON document as `warnings`, what an operator should know."""
        self._warnings.append(warning)
        print(f"tsctl: {printable(warning)}", file=sys.stderr)  # noqa: T201  (the command's own voice)

    def document(self, fields: Mapping[str, object]) -> None:
        """The one JSON document of a command."""
        whole = {"version": VERSION, **fields, "warnings": self._warnings}
        _write(printable_json(json.dumps(whole, indent=1)) + "\n")

    def line(self, fields: Mapping[str, object]) -> None:
        """One of many JSON documents, each on a line."""
        for piece in json_line(fields):
            _write(piece)

    def text(self, line: str) -> None:
        """A line that is no table; nothing where standard output is JSON."""
        if not self.as_json:
            _write(printable_lines(line) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table; numbers stand on the right."""
        right = [
            any(isinstance(row[place], int) and not isinstance(row[place], bool) for row in rows)
            for place in range(len(columns))
        ]
        cells = [[_shown(cell) for cell in row] for row in rows]
        if not sys.stdout.isatty() or len(cells) > _DRAWN:
            _plain([list(columns), *cells], right)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, numeric in zip(columns, right, strict=True):
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console = Console(file=sys.stdout, highlight=False)
        with console.capture() as drawn:
            console.print(table)
        _write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))

    @contextmanager
    def progress(
        self, what: str, total: int, *, among_lines: bool = False, in_bytes: bool = False
    ) -> Iterator[Advance]:
        """A bar for long work, on a terminal only; what it yields is called from any thread when some is done.

        Args:
            what: is done.
            total: how much of it.
            among_lines: output comes meanwhile, so there is no bar where that goes to a terminal too.
            in_bytes: what is counted.
        """
        shown = sys.stderr.isatty() and not (among_lines and sys.stdout.isatty())
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if in_bytes else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        with bar:
            task = bar.add_task(what, total=total)

            def advance(count: int = 1) -> None:
                bar.advance(task, count)

            yield advance


def iso(milliseconds: int | None) -> str | None:
    """A time as JSON and tables show it; None for none, and the number itself for one that no calendar has."""
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Bytes for people."""
    return decimal(count)


def flush() -> None:
    """Hand on what is still in the buffer.

    Raises:
        ReaderGone: nobody reads it.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        # What is in the buffer must not be tried once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGone from error


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        flush()
        raise ReaderGone from None


def _plain(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """Columns side by side, no line broken."""
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
