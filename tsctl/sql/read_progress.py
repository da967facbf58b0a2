"""The progress of a statement's reads on a terminal: a bar for each topic, in bytes, until the statement ends."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from ts_common.printable import printable
from ts_reader import Estimate

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ReadProgress:
    """Bars on standard error.

    Args:
        shown: whether there are any; a terminal shows them, and nothing else writes to it meanwhile.
    """

    def __init__(self, shown: bool) -> None:
        self._bars = _bars() if shown else None
        self._tasks: dict[str, tuple[TaskID, int]] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Remove the bars, before something else is written to the terminal."""
        if self._bars is None:
            return
        self._bars.stop()
        for task, _ in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()

    def reads(self, topic: str, estimate: Estimate) -> None:
        """Begin a bar for a topic; a further read of it makes its bar longer."""
        if self._bars is None:
            return
        if topic not in self._tasks:
            self._tasks[topic] = self._bars.add_task(printable(topic), total=0), 0
        task, total = self._tasks[topic]
        self._tasks[topic] = task, total + estimate.bytes
        self._bars.update(task, total=total + estimate.bytes)

    def read(self, topic: str, share: float, estimate: Estimate) -> None:
        """Note that a share of a read was read."""
        if self._bars is not None and topic in self._tasks:
            self._bars.advance(self._tasks[topic][0], share * estimate.bytes)


def _bars() -> "Progress":
    from rich import progress  # noqa: PLC0415  (only a terminal needs it)
    from rich.console import Console  # noqa: PLC0415

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # the rows are on standard output, wherever it leads
        redirect_stderr=False,
    )
