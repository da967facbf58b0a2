"""An Iceberg table as the target of runs: where its state is read, its files written, and its commits made."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.errors import CorruptData, OperatorError, TieredStorageError
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Layout
from ts_tables.files.partitioning import Key
from ts_tables.files.reading import TableFile
from ts_tables.hidden_rows import HiddenRows
from ts_tables.iceberg.catalogs import check_layout, create_table, iceberg_schema, open_catalog
from ts_tables.iceberg.cleanup import remove_leftovers
from ts_tables.iceberg.commit import Committed, commit, load
from ts_tables.iceberg.data_files import FileDescriber
from ts_tables.iceberg.erased_files import Bounds, left_of_erased, note_erased, plan_of
from ts_tables.iceberg.head import Check, HeadFinding, check, last_known, read_head, summary_of
from ts_tables.iceberg.storage import ExistingFile, PlanFiles, TableFiles, files_between, files_of
from ts_tables.iceberg.transaction import HEAD, SnapshotChange, changed_columns, with_columns
from ts_tables.iceberg.translated_errors import calling
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Covered
from ts_tables.targets import Added, Arranged, FilesLeft, Landed, SchemaOf, TableContents, Target, layout_at
from ts_tables.tasks import NewFiles

_LATE: Final = "ts.late"
_VALID_THROUGH: Final = "ts.valid-through"

log = structlog.get_logger("ts_tables")


class OnForeign(StrEnum):
    """What a run does if others wrote rows of the table since our last commit."""

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TableName:
    """Where a table is.

    Attributes:
        catalog: name of the catalog.
        properties: of the catalog, as pyiceberg's configuration has them.
        name: namespace and name of the table.
        location: of a new table; None for the catalog's choice.
    """

    catalog: str
    properties: Mapping[str, str]
    name: tuple[str, ...]
    location: str | None = None

    def __str__(self) -> str:
        return ".".join(self.name)


@dataclass
class Opened:
    """A table as a plan found it.

    Attributes:
        head: the snapshot of our tag; None in an adoption of a table without it.
        table: as it was loaded.
        replaceable: data files that were returned, by path.
    """

    state: TableState
    head: int | None
    layout: Layout
    describer: FileDescriber
    table: Table = field(repr=False)
    replaceable: dict[str, DataFile] = field(default_factory=dict, repr=False)

    def files(self, plan: str, number: int, covered: Sequence[Covered]) -> NewFiles:
        """Return what opens the files of one part of a plan; their statistics contain the offsets that they have."""
        del covered
        return PlanFiles(dict(self.table.io.properties), self.table.location(), plan, number, self.describer)

    @property
    def snapshot(self) -> str:
        """The id of the snapshot of `main`."""
        return str(self.table.metadata.current_snapshot_id)

    @property
    def is_due(self) -> bool:
        """False: no file waits."""
        return False

    def all_files(self) -> list[TableFile]:
        """Return each data file of `main`."""
        with calling(f"table {'.'.join(self.table.name())}"):
            found = files_of(self.table)
            self.replaceable |= {each.file_path: each for each in found}
            return self._readable(found)

    def files_with(self, taken_back: TakenBack) -> list[TableFile]:
        """Return each file that can have rows of an entry."""
        with calling(f"table {'.'.join(self.table.name())}"):
            found = files_between(
                self.table,
                taken_back.partition.topic,
                taken_back.partition.partition,
                (taken_back.start, taken_back.end),
            )
            self.replaceable |= {each.file_path: each for each in found}
            return self._readable(found)

    def files_meeting(self, partition: TopicPartition, topic_id: str | None, offsets: ErasedOffsets) -> list[TableFile]:
        """Return each file that can have rows of a partition at some offsets; none has the topic's id."""
        del topic_id
        with calling(f"table {'.'.join(self.table.name())}"):
            span = offsets.starts[0], offsets.ends[-1]
            found = files_between(self.table, partition.topic, partition.partition, span)
            bounds = Bounds.of(self.table.schema())
            found = [each for each in found if bounds.meet(each, partition.partition, offsets)]
            self.replaceable |= {each.file_path: each for each in found}
            return self._readable(found)

    def partition_keys(self) -> Collection[Key]:
        """Return the partition keys of the files of `main`."""
        return self.buckets().keys()

    def held(self) -> Sequence[Mapping[str, Any]]:
        """Return nothing: no file is held."""
        return ()

    def buckets(self) -> Mapping[Key, Sequence[TableFile]]:
        """Return the files of each bucket of `main`, by their partition."""
        with calling(f"table {'.'.join(self.table.name())}"):
            files = files_of(self.table)
        self.replaceable |= {each.file_path: each for each in files}
        found: dict[Key, list[TableFile]] = {}
        for file, readable in zip(files, self._readable(files), strict=True):
            found.setdefault((*(file.partition[at] for at in range(len(file.partition))),), []).append(readable)
        return found

    def size_of(self, file: TableFile) -> int:
        """Return the bytes of a file that `buckets` returned."""
        return int(self.replaceable[file.path].file_size_in_bytes)

    def staged(self, path: str) -> TableFile:
        """Return a file of a plan that no commit gets."""
        return TableFile(path, ExistingFile(dict(self.table.io.properties), path))

    def covered(self, file: TableFile) -> Sequence[Covered]:
        """Return nothing: the statistics of files contain the offsets."""
        del file
        return ()

    def arrange(self, files: Sequence[Mapping[str, Any]], replaced: Sequence[str]) -> Arranged:
        """Return the files as they are: Spark merges small ones later."""
        del replaced
        return Arranged(files)

    def _readable(self, files: Sequence[DataFile]) -> list[TableFile]:
        properties = dict(self.table.io.properties)
        return [TableFile(each.file_path, ExistingFile(properties, each.file_path)) for each in files]

    def extended(self, schema: pa.Schema) -> "Opened":
        """Return the table with further columns at the end; its next commit adds them."""
        with calling(f"table {'.'.join(self.table.name())}"):
            found = with_columns(self.table, self.describer.schema, iceberg_schema(schema).fields)
        describer = replace(self.describer, schema=found)
        layout = self.layout.extended(describer.arrow_schema)
        return replace(self, layout=layout, describer=describer)

    def begin(self, plan: str) -> None:
        """Note a plan before its first file."""
        with calling(f"table {'.'.join(self.table.name())}"):
            TableFiles.of(self.table).begin(plan, self.head)


class IcebergTarget(Target):
    """One Iceberg table.

    Args:
        layout: columns, partition key, sort order and file sizes. A table that exists must have the same partition key
            and sort order.
        required: columns that are never NULL.
        on_foreign: what a run does if others wrote rows.
        schema_of: as of `ts_tables.targets.layout_at`.

    Raises:
        OperatorError, AccessDenied, StoreUnavailable: from the catalog.
    """

    def __init__(
        self,
        table: TableName,
        layout: Layout,
        required: Sequence[str],
        on_foreign: OnForeign = OnForeign.FAIL,
        schema_of: SchemaOf | None = None,
    ) -> None:
        self._name = table
        self._layout = layout
        self._schema_of = schema_of
        self._required = required
        self._on_foreign = on_foreign
        self._catalog: Catalog = open_catalog(table.catalog, table.properties)

    @property
    def name(self) -> tuple[str, ...]:
        """Namespace and name of the table in the catalog."""
        return self._name.name

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The properties of the catalog, with those of pyiceberg's own file and of the catalog's server."""
        return {key: str(value) for key, value in self._catalog.properties.items()}

    def create(self, state: TableState) -> bool:
        """Create the table with its first commit, which has a state and no rows; return whether it was created.

        A run that ended between the two is continued.

        Args:
            state: of a table without claims.

        Raises:
            OperatorError: a table of this name exists that this program did not make.
            AccessDenied, StoreUnavailable, OutcomeUnknown: from the catalog.
        """
        layout = layout_at(self._layout, state, self._schema_of)
        table = create_table(self._catalog, self._name.name, layout, self._required, self._name.location)
        with calling(f"table {self._name}"):
            if (head := read_head(table)) is not None:
                check_layout(table, layout_at(self._layout, head.state, self._schema_of))
                return False
            if table.metadata.snapshots:
                raise OperatorError(f"table {self._name} exists, and this program did not make it; choose another name")
            check_layout(table, layout)
            summary = summary_of(state, table.io, table.location(), _FIRST_PLAN)
        commit(self._catalog, self._name.name, SnapshotChange((), (), summary, _FIRST_PLAN), None, lambda _: None)
        return True

    def open(self) -> Opened:
        """Return the table as it is now, after a check of what happened to it.

        Raises:
            OperatorError: others wrote it, it was rolled back, or it has no commit of this program.
            CorruptData: its state cannot be read.
            AccessDenied, StoreUnavailable: from the catalog.
        """
        table = load(self._catalog, self._name.name)
        with calling(f"table {self._name}"):
            head = read_head(table)
            self._accept(check(table, head))
            assert head is not None  # noqa: S101  (else the check found NO_HEAD)
            return self._opened(table, head.state, head.snapshot_id)

    def open_any(self) -> Opened:
        """Return the table with the claims of our last commit that it has, whatever happened to it since.

        Raises:
            OperatorError: it has no commit of this program.
            CorruptData, AccessDenied, StoreUnavailable: as `open`.
        """
        table = load(self._catalog, self._name.name)
        with calling(f"table {self._name}"):
            found = last_known(table)
            if found is None:
                raise OperatorError(f"table {self._name} has no commit of this program; create a table of another name")
            ref = table.metadata.refs.get(HEAD)
            return self._opened(table, found.state, None if ref is None else ref.snapshot_id)

    def problem(self, opened: Opened) -> str | None:
        """Return why runs of a table that `open_any` returned fail; None if they do not."""
        try:
            self._accept(check(opened.table, read_head(opened.table)))
        except (CorruptData, OperatorError) as error:
            return str(error)
        return None

    def adopt(self, opened: Opened) -> None:
        """Commit the claims of a table that `open_any` returned, so that runs continue from there.

        Raises:
            HeadMoved, OperatorError, StoreUnavailable, OutcomeUnknown: as `commit`.
        """

        def send(plan: str) -> Landed:
            with calling(f"table {self._name}"):
                summary = summary_of(opened.state, opened.table.io, opened.table.location(), plan)
            main = opened.table.metadata.current_snapshot_id
            change = SnapshotChange((), (), summary, plan, main)
            done = commit(self._catalog, self._name.name, change, opened.head, lambda _: None, keeps_main=True)
            return self._landed(done, opened.state)

        with self.change(opened) as change:
            change.land(send)

    def contents(self) -> TableContents:
        """Return what the table has, whatever happened to it.

        Raises:
            OperatorError, AccessDenied, StoreUnavailable: from the catalog or the store.
        """
        table = load(self._catalog, self._name.name)
        with calling(f"table {self._name}"):
            files = [task.file for task in table.scan().plan_files()]
        rows, size = sum(each.record_count for each in files), sum(each.file_size_in_bytes for each in files)
        return TableContents(table.location(), rows, len(files), size)

    def drop(self, *, purge: bool) -> None:
        """Remove the table from the catalog, and with `purge` its files.

        Args:
            purge: whether everything below its location is deleted.

        Raises:
            FilesLeft: the table was removed, and not all of its files.
            OperatorError, AccessDenied, StoreUnavailable: from the catalog.
        """
        table = load(self._catalog, self._name.name)
        with calling(f"table {self._name}"):
            files = TableFiles.of(table) if purge else None
            self._catalog.drop_table(self._name.name)
        if files is None:
            return
        try:
            with calling(f"table {self._name}"):
                files.remove_all()
        except TieredStorageError as error:
            raise FilesLeft(f"{error}. The table was removed; delete the rest of {table.location()}") from error

    def commit(self, opened: Opened, plan: str, state: TableState, added: Added) -> Landed:
        """Commit the files of a plan with the state after it.

        Args:
            opened: as the plan found the table.
            state: after it.
            added: what the commit adds.

        Raises:
            HeadMoved: another run has committed.
            OperatorError, CorruptData, AccessDenied, StoreUnavailable, OutcomeUnknown: as `ts_tables.iceberg.commit`.
        """
        files = [opened.describer.data_file(each) for each in added.files]
        with calling(f"table {self._name}"):
            summary = summary_of(state, opened.table.io, opened.table.location(), plan)
        if added.valid_through is not None:
            summary[_VALID_THROUGH] = str(added.valid_through)
        if added.late:
            summary[_LATE] = str(added.late)
        removed = [opened.replaceable[path] for path in added.replaced]
        columns = changed_columns(opened.table, opened.describer.schema.fields)
        change = SnapshotChange(files, removed, summary, plan, opened.table.metadata.current_snapshot_id, columns)
        return self._landed(commit(self._catalog, self._name.name, change, opened.head, self._accept), state)

    def note_erased(
        self, opened: Opened, plan: str, before: Mapping[str, int], hidden: Sequence[HiddenRows], added: Added
    ) -> None:
        """Note the files of former snapshots that can have rows of erased records; as `Target.note_erased`.

        Raises:
            AccessDenied, StoreUnavailable: from the store.
        """
        with calling(f"table {self._name}"):
            note_erased(opened.table, plan, before, hidden, added.replaced)

    def obeyed_by_files(self, opened: Opened, /, rows: Mapping[str, int]) -> Mapping[str, int]:
        """Return the numbers of lists that all files obey, also of former snapshots.

        The deleting snapshot has statistics of the files that it deletes, so another one follows it.

        Raises:
            HeadMoved, OperatorError, CorruptData, AccessDenied, StoreUnavailable, OutcomeUnknown: as `adopt`.
        """
        with calling(f"table {self._name}"):
            pending = left_of_erased(opened.table)
            head = None if opened.head is None else opened.table.metadata.snapshot_by_id(opened.head)
        if head is not None and plan_of(head) in pending:
            self.adopt(opened)
        numbers = dict(rows)
        for former in pending.values():
            numbers |= {name: min(numbers[name], number) for name, number in former.items() if name in numbers}
        return numbers

    def mark(self, keys: Sequence[Key]) -> None:
        """Do nothing: the state has the mark, and readers of Iceberg see no directory."""

    def clean(self, unsent: str | None = None) -> int:
        """Remove files that no commit has, and return their number; errors are logged, because a later run repeats it.

        Args:
            unsent: a plan whose change was never sent.
        """
        try:
            with calling(f"table {self._name}"):
                return remove_leftovers(self._catalog, self._name.name, of=unsent)
        except Exception as error:  # noqa: BLE001  (the commit has landed)
            log.warning("table_cleanup_failed", table=str(self._name), error=str(error))
            return 0

    def _landed(self, done: Committed, state: TableState) -> Landed:
        return Landed(self._opened(done.table, state, done.snapshot_id), done.refused)

    def _opened(self, table: Table, state: TableState, head: int | None) -> Opened:
        given = layout_at(self._layout, state, self._schema_of)
        check_layout(table, given)
        describer = FileDescriber(
            table.schema(), table.spec().spec_id, table.sort_order().order_id, dict(table.properties)
        )
        layout = replace(given, schema=describer.arrow_schema)
        return Opened(state, head, layout, describer, table)

    def _accept(self, found: Check) -> None:
        """Check that a commit may follow what happened to the table.

        Raises:
            OperatorError: it may not.
        """
        if found.finding in {HeadFinding.SAME, HeadFinding.MAINTAINED}:
            return
        if found.finding is HeadFinding.FOREIGN and self._on_foreign is OnForeign.KEEP:
            return
        raise OperatorError(f"table {self._name}: {found.detail}{_WAYS_OUT.get(found.finding, '')}")


_FIRST_PLAN: Final = "0" * 16
_WAYS_OUT: Final[Mapping[HeadFinding, str]] = {
    HeadFinding.FOREIGN: "; `foreign: keep` keeps their rows too",
    HeadFinding.ROLLED_BACK: "; set main back, or `tsctl tables adopt` begins from the rows that it has",
    HeadFinding.MOVED: "; set the tag to that snapshot, or `tsctl tables adopt`",
    HeadFinding.UNKNOWN: "; `tsctl tables verify` compares the rows, then `tsctl tables adopt` continues",
}
