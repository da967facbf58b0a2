"""What a run needs of a table, whatever its format is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Protocol, Self

import pyarrow as pa

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.errors import OperatorError, StaleStateError
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import with_found
from ts_tables.files.partitioning import Key
from ts_tables.files.reading import TableFile
from ts_tables.hidden_rows import HiddenRows
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Covered
from ts_tables.tasks import NewFiles

SchemaOf = Callable[[TableState], pa.Schema]  # of a table's state, without the columns that the state has


def layout_at(layout: Layout, state: TableState, schema_of: SchemaOf | None) -> Layout:
    """Return the layout of a table's files at a state.

    Args:
        layout: of the definition, without the columns that the state has.
        schema_of: returns the columns instead of those of the layout; None if they are the same at each state.
    """
    schema = layout.schema if schema_of is None else schema_of(state)
    return replace(layout, schema=schema).extended(with_found(schema, state.columns))


class HeadMoved(StaleStateError):
    """Another run has committed since the plan began; nothing of this plan is in the table."""


class TableMissing(OperatorError):
    """There is no such table."""


class FilesLeft(OperatorError):
    """A table was removed, and not all of its files."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """What a commit does with new files.

    Attributes:
        shown: files that the commit shows as they are.
        held: files whose rows it claims, and that wait to be merged; those that waited before among them.
        merges: files that are merged first, each into one that the commit shows.
    """

    shown: Sequence[Mapping[str, Any]]
    held: Sequence[Mapping[str, Any]] = ()
    merges: Sequence[Sequence[TableFile]] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """What a commit adds to a table.

    Attributes:
        files: as `ts_tables.tasks.NewFiles.describe` returns them.
        held: as of `Arranged`.
        replaced: paths of files whose rows `files` has as far as they stay.
        late: the number of passed holes that it claims.
        valid_through: the least, over the partitions that moved, of the greatest timestamp of their rows, ms; None
            without rows. A mark, no proof of completeness: a later record can have an earlier timestamp.
    """

    files: Sequence[Mapping[str, Any]]
    replaced: Sequence[str]
    late: int
    valid_through: int | None
    held: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class TableContents:
    """What a table has."""

    location: str
    rows: int
    files: int
    bytes: int


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

    def files(self, plan: str, number: int, covered: Sequence[Covered]) -> NewFiles:
        """Return what opens and describes the files of one part of a plan.

        Args:
            covered: offsets that contain those of the rows.
        """
        ...

    def begin(self, plan: str) -> None:
        """Note a plan before its first file."""
        ...

    def extended(self, schema: pa.Schema) -> "OpenedTable":
        """Return the table with further columns at the end, of simple types; its next commit adds them.

        Args:
            schema: all columns.
        """
        ...

    @property
    def snapshot(self) -> str:
        """What names the version of the table that was opened."""
        ...

    @property
    def is_due(self) -> bool:
        """Whether files have waited long enough: a commit shows them, also without new rows."""
        ...

    def all_files(self) -> Sequence[TableFile]:
        """Return each file of the table."""
        ...

    def files_with(self, taken_back: TakenBack) -> Sequence[TableFile]:
        """Return each file that can have rows of an entry."""
        ...

    def files_meeting(
        self, partition: TopicPartition, topic_id: str | None, offsets: ErasedOffsets
    ) -> Sequence[TableFile]:
        """Return each file that can have rows of a partition at some offsets, at least one, of any epoch."""
        ...

    def partition_keys(self) -> Collection[Key]:
        """Return the partition keys of the files that readers see."""
        ...

    def held(self) -> Sequence[Mapping[str, Any]]:
        """Return the files that are held, as they were described, with their partition keys as `key`."""
        ...

    def covered(self, file: TableFile) -> Sequence[Covered]:
        """Return offsets that contain those of a file's rows; nothing if the table does not need them."""
        ...

    def arrange(self, files: Sequence[Mapping[str, Any]], replaced: Sequence[str]) -> Arranged:
        """Return what a commit does with new files.

        Args:
            files: as they were described.
            replaced: paths of files that the commit removes.
        """
        ...


class OpenedBuckets(OpenedTable, Protocol):
    """A table as a plan found it, whose files are those of buckets of keys."""

    def buckets(self) -> Mapping[Key, Sequence[TableFile]]:
        """Return the files of each bucket."""
        ...

    def size_of(self, file: TableFile) -> int:
        """Return the bytes of a file that `buckets` returned."""
        ...

    def staged(self, path: str) -> TableFile:
        """Return a file of a plan that no commit gets."""
        ...


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit that landed.

    Attributes:
        opened: the table after it, an `OpenedTable`.
        conflicts: attempts that others' commits refused before.
    """

    opened: Any
    conflicts: int = 0


class TableChange:
    """A change of a table, from its first file to its commit. `Target.change` returns it, and `with` begins it.

    If it ends without a commit that can land, its files are removed. After any other error of the commit, as after
    `OutcomeUnknown`, it can still land: a later run removes its files, or finds them committed.

    Args:
        opened: as the change found it.

    Attributes:
        opened: as the change found it, with the columns that it adds.
        conflicts: attempts to commit that another commit refused.
        removed: files that no commit has, and that were removed after the commit.
    """

    def __init__(self, target: "Target", opened: OpenedTable) -> None:
        self.target = target
        self.opened = opened
        self.conflicts = 0
        self.removed = 0
        self._plan = token_hex(8)
        self._parts = 0
        self._can_land = False

    def __enter__(self) -> Self:
        self.opened.begin(self._plan)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._can_land:
            self.target.clean(unsent=self._plan)

    def files(self, covered: Sequence[Covered], number: int | None = None) -> NewFiles:
        """Return what opens and describes the files of one part of the change.

        Args:
            covered: offsets that contain those of the rows.
            number: of the part; None for the next one.
        """
        number = self._parts if number is None else number
        self._parts = max(self._parts, number + 1)
        return self.opened.files(self._plan, number, covered)

    def extend(self, schema: pa.Schema) -> None:
        """Add columns at the end of the table, of simple types; `schema` has all columns."""
        self.opened = self.opened.extended(schema)

    def note_erased(self, before: Mapping[str, int], hidden: Sequence[HiddenRows], added: "Added") -> None:
        """Note which files can have rows of erased records after the commit; arguments as of `Target.note_erased`."""
        self.target.note_erased(self.opened, self._plan, before, hidden, added)

    def commit(self, state: TableState, added: "Added") -> Any:
        """Commit files with the state after them, remove what no commit has, and return the table as it is then.

        Raises:
            HeadMoved: another run has committed; the files of this change are removed.
            others: as `commit` of the target.
        """
        return self.land(lambda plan: self.target.commit(self.opened, plan, state, added))

    def land(self, commit: Callable[[str], Landed]) -> Any:
        """Commit as `commit` does, by a function that sends the commit of a plan's id."""
        self._can_land = True
        try:
            landed = commit(self._plan)
        except HeadMoved:  # what was sent was refused
            self._can_land = False
            self.conflicts += 1
            raise
        self.conflicts += landed.conflicts
        self.removed = self.target.clean()
        return landed.opened


class Target(Protocol):
    """A table that runs add to; `ts_tables.iceberg.target` describes what each call raises."""

    def change(self, opened: Any) -> TableChange:
        """Return a change of a table that `open` or a commit returned."""
        return TableChange(self, opened)

    def create(self, state: TableState) -> bool:
        """Create the table with a state without claims; return whether it did not exist."""
        ...

    def open(self) -> Any:
        """Return the table as it is now, after a check of what happened to it: an `OpenedTable`."""
        ...

    def open_any(self) -> Any:
        """Return the table with the claims of our last commit that it has, whatever happened to it since."""
        ...

    def problem(self, opened: Any) -> str | None:
        """Return what is wrong with a table that `open_any` returned; None if nothing is."""
        ...

    def adopt(self, opened: Any) -> None:
        """Commit the claims of a table that `open_any` returned, so that runs continue from there."""
        ...

    def contents(self) -> TableContents:
        """Return what the table has, whatever happened to it."""
        ...

    def drop(self, *, purge: bool) -> None:
        """Remove the table, and with `purge` its files."""
        ...

    def commit(self, opened: Any, plan: str, state: TableState, added: Added) -> Landed:
        """Commit the files of a plan with the state after it; `TableChange` calls it."""
        ...

    def note_erased(
        self, opened: Any, plan: str, before: Mapping[str, int], hidden: Sequence[HiddenRows], added: Added
    ) -> None:
        """Note which files can have rows of erased records after a commit, before it is sent.

        Args:
            before: the numbers of lists that all files obeyed so far, by name.
            hidden: the rows that it deletes.
        """
        ...

    def obeyed_by_files(self, opened: Any, /, rows: Mapping[str, int]) -> Mapping[str, int]:
        """Return the numbers of lists that all stored files obey, by name; remove files that nothing needs.

        Args:
            rows: the numbers of those that the table's rows obey.
        """
        ...

    def mark(self, keys: Sequence[Key]) -> None:
        """Put `_SUCCESS` into the directories of partition keys, if it has such."""
        ...

    def clean(self, unsent: str | None = None) -> int:
        """Remove files that no commit has, and return their number."""
        ...
