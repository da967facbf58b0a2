"""The progress of a statement's reads on a terminal: a bar for each topic, in bytes, until the statement ends."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ts_common.printable import printable
from ts_reader import Estimate


class ReadProgress:
    """Bars on standard error.

    Args:
        shown: whether there are any; a terminal shows them, and nothing else writes to it meanwhile.
    """

    def __init__(self, shown: bool) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # the rows are on standard output, wherever it leads
            redirect_stderr=False,
            disable=not shown,
        )
        self._tasks: dict[str, tuple[TaskID, int]] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Remove the bars, before something else is written to the terminal."""
        self._bars.stop()
        for task, _ in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()

    def reads(self, topic: str, estimate: Estimate) -> None:
        """Begin a bar for a topic; a further read of it makes its bar longer."""
        if topic not in self._tasks:
            self._tasks[topic] = self._bars.add_task(printable(topic), total=0), 0
        task, total = self._tasks[topic]
        self._tasks[topic] = task, total + estimate.bytes
        self._bars.update(task, total=total + estimate.bytes)

    def read(self, topic: str, share: float, estimate: Estimate) -> None:
        """Note that a share of a read was read."""
        if topic in self._tasks:
            self._bars.advance(self._tasks[topic][0], share * estimate.bytes)
