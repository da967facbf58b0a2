"""What a run needs of a table, whatever its format is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from ts_common.errors import StaleStateError
from ts_tables.claims.state import TableState
from ts_tables.files.parquet_writer import Layout
from ts_tables.planning.plan import TakenBack
from ts_tables.tasks import Describer, NewFiles


class HeadMoved(StaleStateError):
    """Another run has committed since the plan began; nothing of this plan is in the table."""


@dataclass(frozen=True, slots=True)
class Added:
    """What a commit adds to a table.

    Attributes:
        files: as `ts_tables.tasks.Describer.describe` returns them.
        replaced: paths of files whose rows `files` has as far as they stay.
        late: the number of passed holes that it claims.
        valid_through: the least, over the partitions that moved, of the greatest timestamp of their rows, ms; None
            without rows. A mark, no proof of completeness: a later record can have an earlier timestamp.
    """

    files: Sequence[Mapping[str, Any]]
    replaced: Sequence[str]
    late: int
    valid_through: int | None


class OpenedTable(Protocol):
    """A table as a plan found it."""

    @property
    def state(self) -> TableState:
        """Its state."""
        ...

    @property
    def layout(self) -> Layout:
        """The layout of its files."""
        ...

    @property
    def describer(self) -> Describer:
        """What describes its files."""
        ...

    def files(self, plan: str, number: int) -> NewFiles:
        """Return what opens the files of one part of a plan."""
        ...

    def begin(self, plan: str) -> None:
        """Note a plan before its first file."""
        ...

    @property
    def snapshot(self) -> str:
        """What names the version of the table that was opened."""
        ...

    def all_files(self) -> Sequence[tuple[str, Callable[[], BinaryIO]]]:
        """Return the path of each file of the table, and what opens it for reading."""
        ...

    def files_with(self, taken_back: TakenBack) -> Sequence[tuple[str, Callable[[], BinaryIO]]]:
        """Return the path of each file that can have rows of an entry, and what opens it for reading."""
        ...


class Target(Protocol):
    """A table that runs add to; `ts_tables.iceberg.target` says what each call raises."""

    def open(self) -> Any:
        """Return the table as it is now, after a check of what happened to it: an `OpenedTable`."""
        ...

    def commit(self, opened: Any, plan: str, state: TableState, added: Added) -> int:
        """Commit the files of a plan with the state after it.

        Return the number of attempts that others' commits refused before one landed.
        """
        ...

    def clean(self, unsent: str | None = None) -> int:
        """Remove files that no commit has, and return their number."""
        ...
