"""A table of plain files as the target of runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import structlog

from ts_common.errors import CorruptData, ObjectNotFound, OperatorError, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_common.store.shared_stores import shared_store
from ts_common.wording import counted
from ts_tables.claims.state import TableState
from ts_tables.files.file_names import MOST_BYTES, FileNames
from ts_tables.files.layout import RECORD_FORMATS, FileFormat, Layout
from ts_tables.files.partitioning import Key
from ts_tables.hidden_rows import HiddenRows
from ts_tables.plain.entries import OWN, Contents, LedgerEntry, PlainFile, file_of
from ts_tables.plain.holding import Holding
from ts_tables.plain.ledger import Ledger, staged_plans
from ts_tables.plain.opened import OpenedFiles
from ts_tables.plain.staging import Place
from ts_tables.targets import Added, Landed, SchemaOf, TableContents, Target, layout_at

_FILE_SCHEME: Final = "file://"
_OF_ONE_COMPRESSION: Final = (FileFormat.JSON_LINES, FileFormat.TEXT)  # no file names its own
SUCCESS: Final = "_SUCCESS"  # in the directory of a partition that is marked, as Hadoop's programs name it
_SHOWN_NAMES: Final = 5  # of a message
_SHOWN_BYTES: Final = 100

log = structlog.get_logger("ts_tables")


class PlainTarget(Target):
    """One table of plain files.

    Args:
        name: of the table, for messages.
        layout: columns, partition key, sort order, format and file sizes. A table that exists must have the same.
        max_age: seconds that a file is held at most; 0: no file is held.
        schema_of: as of `ts_tables.targets.layout_at`.

    Raises:
        ConfigurationError, OperatorError: the store cannot be opened.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        layout: Layout,
        names: FileNames,
        max_age: int = 0,
        schema_of: SchemaOf | None = None,
    ) -> None:
        self._name = name
        self._place = place
        self._layout = layout
        self._names = names
        is_apart = layout.format in RECORD_FORMATS or names.template is not None
        self._holding = Holding(layout.target_bytes, max_age, is_apart)
        self._schema_of = schema_of
        self._copied: set[str] = set()  # bytes in staging of files that a commit here has shown

    def create(self, state: TableState) -> bool:
        """Create the table, and return whether it did not exist.

        Args:
            state: of a table without claims.

        Raises:
            OperatorError: its location has objects of others, or a table of another layout.
            AccessDenied, StoreUnavailable, OutcomeUnknown, BucketMissing: from the store.
        """
        if self._place.location.startswith(_FILE_SCHEME):
            Path(self._place.location.removeprefix(_FILE_SCHEME)).mkdir(parents=True, exist_ok=True)
        contents = Contents(generation=token_hex(4), number=0, layout=self._described, state=state)
        created = self._ledger.create(contents)
        self._check_layout(self._ledger.read().contents)
        return created

    def open(self) -> OpenedFiles:
        """Return the table as it is now, after each entry that landed is complete.

        Raises:
            OperatorError: there is no table, or it has another layout.
            DataLoss, CorruptData, NewerFormat: the ledger cannot be completed, or read.
            AccessDenied, StoreUnavailable, OutcomeUnknown, BucketMissing: from the store.
        """
        contents = self._current()
        self._check_layout(contents)
        return self._opened(contents)

    def open_any(self) -> OpenedFiles:
        """Return the table, with the paths of files that the store does not have; raise as `open`."""
        opened = self.open()
        there = {each.key for each in self._store.list()}
        missing = {each.path for each in (*opened.contents.files, *opened.contents.held)} - there
        return replace(opened, missing=frozenset(missing))

    def problem(self, opened: OpenedFiles) -> str | None:
        """Return which files are missing, have another size, or are of others, or None; raise as `open`."""
        listed = self._store.list()
        sizes = {each.key: each.size for each in listed if not each.key.startswith(OWN) and not _is_mark(each.key)}
        contents = self._ledger.read().contents  # after the listing: a run can have committed since
        pending = self._ledger.pending(contents)
        now = (*opened.contents.files, *contents.files, *(() if pending is None else pending.shown))
        expected = {each.path: each.size for each in now}
        found = (
            (opened.missing & {each.path for each in contents.files}, "missing"),
            ({path for path, size in expected.items() if sizes.get(path, size) != size}, "of another size"),
            (sizes.keys() - expected.keys(), "of another program, which readers see"),
        )
        sentences = [f"{what}: {_shown(paths)}" for paths, what in found if paths]
        return "; ".join(sentences) or None

    def adopt(self, opened: OpenedFiles) -> None:
        """Refuse it.

        Raises:
            OperatorError: always.
        """
        raise OperatorError(
            f"table {self._name} has plain files, and nothing to adopt: its claims are as of entry {opened.snapshot}"
        )

    def contents(self) -> TableContents:
        """Return what the table has, with held files; raise as `open`."""
        contents = self._ledger.read().contents
        files = (*contents.files, *contents.held)
        rows, size = sum(each.rows for each in files), sum(each.size for each in files)
        return TableContents(self._place.location, rows, len(files), size)

    def drop(self, *, purge: bool) -> None:
        """Remove the ledger, and with `purge` the files of the table; also if an entry cannot be completed.

        Raises:
            OperatorError, CorruptData, AccessDenied, StoreUnavailable: as `open`.
        """
        contents = self._ledger.read().contents
        if contents.held and not purge:
            raise OperatorError(
                f"table {self._name} holds {counted(sum(each.rows for each in contents.held), 'row')} in files "
                "that are not shown: `tsctl tables compact` shows them; or drop the table with --purge"
            )
        try:
            pending = self._ledger.pending(contents)
        except CorruptData:  # then none of its files has a name
            pending = None
        contents = self._ledger.drop()
        # First what a paused run could copy.
        self._ledger.remove_generation(contents.generation)
        if purge:
            shown = () if pending is None else pending.shown
            self._store.delete([each.path for each in (*contents.files, *shown)])
            self._store.delete([each.key for each in self._store.list() if _is_mark(each.key)])

    def commit(self, opened: OpenedFiles, plan: str, state: TableState, added: Added) -> Landed:
        """Commit the files of a plan with the state after it.

        Args:
            opened: as the plan found the table.
            state: after it.
            added: what the commit adds.

        Raises:
            HeadMoved: another run has committed.
            DataLoss, CorruptData, AccessDenied, StoreUnavailable, OutcomeUnknown: as `open`.
        """
        contents = opened.contents
        shown = {each.path for each in contents.files}
        entry = LedgerEntry(
            number=contents.number + 1,
            plan=plan,
            state=state,
            shown=self._named(contents, map(file_of, added.files)),
            held=tuple(file_of(each) for each in added.held),
            removed=tuple(path for path in added.replaced if path in shown),
            valid_through=added.valid_through,
            late=added.late,
        )
        LedgerEntry.decode(entry.encode(), f"table {self._name}: the next entry")  # else no run could complete it
        if entry.removed:
            # A run that was paused amid an earlier entry must find no bytes of a file that this one removes.
            self._clean(None)
        after = self._ledger.commit(contents, entry)
        self._copied |= {each.staged for each in entry.shown} | {each.path for each in contents.held}
        return Landed(self._opened(after))

    def note_erased(
        self, opened: OpenedFiles, plan: str, before: Mapping[str, int], hidden: Sequence[HiddenRows], added: Added
    ) -> None:
        """Do nothing: the list of files has those that were removed."""

    def obeyed_by_files(self, _opened: OpenedFiles, /, rows: Mapping[str, int]) -> Mapping[str, int]:
        """Return what the rows obey, or nothing while the store has a removed file, or one in staging.

        Raises:
            CorruptData, AccessDenied, StoreUnavailable: from the store.
        """
        self.clean()
        contents = self._ledger.read().contents
        needed = {each.path for each in contents.held}
        for prefix, began, _ in staged_plans(self._store, contents.generation):
            if began < contents.number and any(each.key not in needed for each in self._store.list(prefix)):
                return {}
        return {} if any(map(self._has, (path for path, _ in contents.removed))) else rows

    def _has(self, key: str) -> bool:
        try:
            self._store.head(key)
        except ObjectNotFound:
            return False
        return True

    def mark(self, keys: Sequence[Key]) -> None:
        """Put `_SUCCESS` into the directories of partition keys.

        Raises:
            AccessDenied, StoreUnavailable: from the store.
        """
        marked = {*keys}
        files = self._ledger.read().contents.files
        for directory in sorted({each.path.rpartition("/")[0] for each in files if each.key in marked}):
            self._store.put(f"{directory}/{SUCCESS}", b"")

    def clean(self, unsent: str | None = None) -> int:
        """Remove staged files that no entry needs, and return how many no commit has used; errors are logged.

        Args:
            unsent: a plan whose entry was never sent.
        """
        try:
            return self._clean(unsent)
        except TieredStorageError as error:  # the commit has landed, and a later run repeats this
            log.warning("table_cleanup_failed", table=self._name, error=str(error))
            return 0

    def _clean(self, unsent: str | None) -> int:
        # Plans are listed before the contents are read, because a run may begin in between.
        generation = self._ledger.read().contents.generation
        plans = list(staged_plans(self._store, generation))
        contents = self._ledger.read().contents
        held = {each.path for each in contents.held}
        removed = 0
        for prefix, began, plan in plans:
            if began >= contents.number and plan != unsent:
                continue
            keys = [each.key for each in self._store.list(prefix) if each.key not in held]
            self._store.delete(keys)
            removed += len({*keys} - self._copied)
        return removed

    def _opened(self, contents: Contents) -> OpenedFiles:
        layout = layout_at(self._layout, contents.state, self._schema_of)
        return OpenedFiles(contents, layout, self._place, self._holding)

    def _current(self) -> Contents:
        """Return the contents after each entry that landed is complete, and remove what was staged for those."""
        read = self._ledger.read()
        contents = self._ledger.current(read)
        if contents.number != read.contents.number:
            self.clean()
        return contents

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self._store)

    @property
    def _store(self) -> ObjectStore:
        return shared_store(self._place.location, self._place.connection)

    def _named(self, contents: Contents, files: Iterable[PlainFile]) -> tuple[PlainFile, ...]:
        """Return staged files with the names that they get.

        Args:
            contents: of the table before.
            files: of the next entry.
        """
        used = {each.path for each in contents.files} | {path for path, _ in contents.removed}
        named: list[PlainFile] = []
        for file in files:
            part, _, random = file.path.rpartition("/")[2].partition("-")
            commit = f"{contents.number + 1:08d}-{part}-{random}"
            source = file.source[0]
            path = self._names.path(file.key, source.topic, source.partition, file.first, commit, used)
            if len(path.encode()) > MOST_BYTES:
                raise OperatorError(
                    f"table {self._name}: a file would have a path of {len(path.encode()):,} bytes, at most "
                    f"{MOST_BYTES} are possible, because of its partition key: {path[:_SHOWN_BYTES]}..."
                )
            used.add(path)
            named.append(replace(file, path=path, staged=file.path, since=0))
        return tuple(named)

    @property
    def _described(self) -> dict[str, Any]:
        """What stays the same in all files of a table."""
        layout = self._layout
        found: dict[str, Any] = {
            "format": layout.format.value,
            "partition_by": [str(term) for term in layout.terms],
            "sort_by": [*layout.sort],
        }
        if layout.format in _OF_ONE_COMPRESSION:
            found["compression"] = layout.compression
        if layout.format is FileFormat.TEXT:
            found["delimiter"] = layout.delimiter.decode()
        if self._names.template is not None:
            found["file_names"] = self._names.template
        return found

    def _check_layout(self, contents: Contents) -> None:
        """Check that a table has the layout of the tables' file.

        Raises:
            OperatorError: it has another.
            CorruptData: a file has a partition key of another form.
        """
        expected = self._described
        for name, value in expected.items():
            if (there := contents.layout.get(name)) != value:
                raise OperatorError(
                    f"table {self._name} has {name} {there}, and the file specifies {value}: change it back, or create "
                    "another table"
                )
        for each in (*contents.files, *contents.held):
            if len(each.key) != len(self._layout.terms) or not all(
                term.accepts(value) for term, value in zip(self._layout.terms, each.key, strict=True)
            ):
                raise CorruptData(f"table {self._name}: {each.path} has the partition key {list(each.key)}")


def _is_mark(key: str) -> bool:
    return key.rpartition("/")[2] == SUCCESS


def _shown(paths: "frozenset[str] | set[str]") -> str:
    some = ", ".join(sorted(paths)[:_SHOWN_NAMES])
    return f"{counted(len(paths), 'file')} ({some}{', ...' if len(paths) > _SHOWN_NAMES else ''})"
