"""The output of the demo: sections, tables and bars on a terminal; elsewhere the same as plain lines."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

_PLAIN_WIDTH = 120
_PLAIN_EVERY = 5.0  # seconds between two plain lines of a bar


class Bars:
    """Progress of several things at once."""

    def __init__(self, console: Console, progress: Progress | None) -> None:
        self._console = console
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._plain: dict[str, str] = {}
        self._printed = time.monotonic()

    def show(self, name: str, done: int, total: int, note: str = "") -> None:
        """Set the progress of `name`."""
        if self._progress is None:
            self._plain[name] = f"{name} {done:,}/{total:,}{note and f' ({note})'}"
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, counts="", note="")
        counts = f"{done:>11,} of {total:,}"
        self._progress.update(self._tasks[name], completed=done, total=max(total, 1), counts=counts, note=note)

    def flush(self, *, last: bool = False) -> None:
        """Print the latest progress as one plain line, unless that was done a moment ago."""
        if self._plain and (last or time.monotonic() - self._printed >= _PLAIN_EVERY):
            self._console.print(f"   {'; '.join(self._plain.values())}", soft_wrap=True)
            self._printed = time.monotonic()


class Screen:
    """The output of one demo, on stdout."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, width=_PLAIN_WIDTH)
        self._started: list[tuple[str, float]] = []

    def section(self, title: str, short: str) -> None:
        """Begin a numbered section; `short` is its name in `times`."""
        self._started.append((short, time.monotonic()))
        self._console.print()
        self._console.print(Text(f"{len(self._started)}. {title}", "bold"), soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """Print one line."""
        self._console.print(Text(f"   {text}", style), soft_wrap=True)

    def end(self, text: str) -> None:
        """Print the last line."""
        self._console.print(f"\n{text}", soft_wrap=True)

    def code(self, lines: Sequence[str]) -> None:
        """Print lines for the user to copy."""
        for line in lines:
            self._console.print(Text(f"      {line}", "cyan"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; numbers are right-aligned, with separators, and headings wrap if the table is too wide."""
        table = Table(box=SIMPLE_HEAD, pad_edge=True)
        for index, column in enumerate(columns):
            numbers = all(isinstance(row[index], int) for row in rows)
            table.add_column(column, justify="right" if numbers else "left")
        for row in rows:
            table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
        self._console.print(table)

    @contextmanager
    def bars(self) -> Iterator[Bars]:
        """Show progress bars during the block."""
        if not self._console.is_terminal:
            bars = Bars(self._console, None)
            yield bars
            bars.flush(last=True)
            return
        columns = [
            TextColumn("   {task.description:<20}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counts]}"),
            TextColumn("[dim]{task.fields[note]}"),
        ]
        with Progress(*columns, console=self._console, refresh_per_second=5) as progress:
            yield Bars(self._console, progress)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner during the block, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"   {text}"):
            yield

    def times(self) -> str:
        """Return the time of each section, and of all."""
        ends = [started for _, started in self._started[1:]] + [time.monotonic()]
        spans = [f"{short} {end - started:.0f}" for (short, started), end in zip(self._started, ends, strict=True)]
        return f"{ends[-1] - self._started[0][1]:.0f} s in all: {', '.join(spans)}"
