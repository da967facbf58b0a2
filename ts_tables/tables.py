"""`Tables`: the entry of the Python API. It creates and runs the tables of a file, and reports how far they are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

from ts_common.errors import BatchTooLarge, CorruptData, DataLoss, ObjectFrozen, OperatorError, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.wording import counted
from ts_tables.claims.state import TableState, with_kept, with_least_obeyed
from ts_tables.compaction import EXPIRE_AFTER, Compaction, compact, together
from ts_tables.definition.file_definition import TablesFile
from ts_tables.definition.tables_file import parse_tables, read_tables_file
from ts_tables.engines.processes import run_in_processes
from ts_tables.erasing import Obeyed, obey
from ts_tables.forget import ForgetSummary, Offsets, forget
from ts_tables.generations import CATALOG
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.marks import announce
from ts_tables.opening import Opening, Parts
from ts_tables.planning.plan import NothingNew, TablePlan, TakenBack
from ts_tables.record_search import RecordSearch
from ts_tables.replay import ReplaySummary, replay
from ts_tables.retention_claims import claims_name, left_in_files, publish, requested, withdraw
from ts_tables.run import Pace, RunSummary, check_parser, run_once
from ts_tables.status import Generation, TableStatus, lacking, partitions_of
from ts_tables.targets import FilesLeft, OpenedTable, TableContents, TableMissing, Target
from ts_tables.tasks import Engine
from ts_tables.verify.deep import with_values
from ts_tables.verify.run import Verification, verify


class Tables:
    """The tables of a file, or of values of the same form.

    Args:
        content: path of the file, or its content as values.
        workers: the number of worker processes of a run; None for the number of processors.
        engine: runs the tasks instead of worker processes.
        source: where the values are from, for messages.

    Raises:
        ConfigurationError: with every problem of the file.
    """

    def __init__(
        self,
        content: str | PathLike[str] | Any,
        *,
        workers: int | None = None,
        engine: Engine | None = None,
        source: str = "tables",
    ) -> None:
        is_path = isinstance(content, str | PathLike)
        self._source = str(content) if is_path else source
        self._file: TablesFile = read_tables_file(Path(content)) if is_path else parse_tables(content, source)
        self._opening = Opening(self._file, self._source)
        self._engine: Engine = engine or (lambda tasks: run_in_processes(tasks, workers=workers))

    @property
    def names(self) -> list[str]:
        """The names of the tables, in the order of the file."""
        return [*self._file.tables]

    def create(self, name: str) -> bool:
        """Create a table, and return whether it did not exist.

        Raises:
            ConfigurationError: the file has no such table.
            QueryError: the archive does not have a topic that the table names.
            OperatorError: a table of this name exists that this program did not make.
            AccessDenied, CorruptData, StoreUnavailable, OutcomeUnknown: from the catalog or the archive.
        """
        parts = self._opening.parts_at_rest(name)
        state = parts.first_state(self._opening.archive.cluster)
        parts.planner.plan(state, is_first=True)  # topics that are named must exist
        if parts.parsing is not None:  # first: a run can begin as soon as the table exists
            parts.parsing.refused.create(state)
        return parts.target.create(state)

    def run(self, name: str, summary: RunSummary | None = None) -> RunSummary:
        """Add to a table what the archive has for it; raise as `ts_tables.run.run_once`.

        Args:
            summary: a new one, filled while the run works: after an error it has what was done before.
        """
        summary, began = summary or RunSummary(), monotonic()
        try:
            parts = self._opening.parts_at_rest(name)
            compared = self._obey_requests(parts, summary)
            rate = parts.definition.rate
            pace = None if rate is None else Pace(rate)
            run_once(parts.target, parts.planner, self._engine, summary, parts.parsing, pace, parts.marking)
            opened: OpenedTable = parts.target.open()  # another run can have committed since the plan
            if parts.marking is not None:
                summary.marked, opened = announce(parts.target, opened, parts.marking, name)
                summary.marked_through = parts.marking.end(opened.state)
            self._publish(parts, opened, compared)
        finally:
            summary.seconds = monotonic() - began
        return summary

    def obey(self, name: str) -> Obeyed:
        """Delete the rows of erased records from a table and from that of its refused records; return what was done.

        A run does the same after a request to erase; this compares the table with each list in any case.

        Raises:
            as `ts_tables.erasing.obey`; ConfigurationError: the file has no such table.
        """
        parts = self._opening.parts_at_rest(name)
        stores = parts.planner.stores(parts.target.open().state)
        compared = {store.location: int(store.current_time()) * 1000 for store, _, _ in stores}
        done = obey(parts.target, parts.planner, self._engine, parts.parsing)
        self._publish(parts, parts.target.open(), {} if done.notes else compared)
        return done

    def _obey_requests(self, parts: Parts, summary: RunSummary) -> Mapping[str, int]:
        """Make a table obey all lists if there is a request that it does not obey; return `compared` of `publish`."""
        state = parts.target.open().state
        compared = requested(parts.planner.stores(state), claims_name(parts.base, state.generation))
        if not compared:
            return {}
        try:
            done = obey(parts.target, parts.planner, self._engine, parts.parsing)
        except (BatchTooLarge, CorruptData, ObjectFrozen) as error:  # of old segments, which no run reads otherwise
            done = Obeyed(
                notes=(f"it can have rows of erased records, and a part of the archive is unreadable: {error}",)
            )
        summary.erased, summary.erasing = done.records, done.notes
        return {} if done.notes else compared  # after notes the next run looks again

    @staticmethod
    def _publish(parts: Parts, opened: OpenedTable, compared: Mapping[str, int]) -> None:
        """Write what a table needs and what it obeys into the archive."""
        sides: list[tuple[Target, OpenedTable]] = [(parts.target, opened)]
        state = opened.state
        if parts.parsing is not None:
            refused: OpenedTable = parts.parsing.refused.open()
            sides.append((parts.parsing.refused, refused))
            state = with_least_obeyed(state, refused.state)

        def by_files(rows: Mapping[str, int]) -> Mapping[str, int]:
            found = [target.obeyed_by_files(there, rows) for target, there in sides]
            return {name: min(each.get(name, 0) for each in found) for name in rows}

        claims = claims_name(parts.base, state.generation)
        publish(parts.planner.stores(state), claims, opened.snapshot, by_files, compared)

    def forget(self, name: str, keys: Collection[str | bytes] = (), offsets: Sequence[Offsets] = ()) -> ForgetSummary:
        """Delete the rows of records from a table and from that of its refused records; return the number of records.

        The state of the table notes them: `verify` subtracts them, and they do not return after an election. The
        archive has them still, and so have snapshots of an Iceberg table until they expire.

        Args:
            keys: of the records; as text, a value of the table's column of keys.
            offsets: of the records: topic, partition, first offset and the offset after the last.

        Raises:
            as `ts_tables.forget.forget`; ConfigurationError: the file has no such table.
        """
        parts = self._opening.parts_at_rest(name)
        ranges = [
            TakenBack(TopicPartition(topic, partition), "", None, start, end)
            for topic, partition, start, end in offsets
        ]
        texts = frozenset(each for each in keys if isinstance(each, str))
        wanted = RecordSearch(texts, frozenset(each for each in keys if isinstance(each, bytes)), tuple(ranges))
        return forget(parts.target, parts.planner, self._engine, wanted, parts.parsing)

    def generations(self, name: str) -> list[Generation]:
        """Return the generations of a table, by number.

        Raises:
            ConfigurationError: the file has no such table.
            CorruptData, OperatorError, AccessDenied, StoreUnavailable: from the catalog or the archive.
        """
        opening, all_of = self._opening, self._opening.generations
        all_of.check_switched(name)
        in_use, definition = all_of.in_use(name), self._file.tables[name]
        found = []
        for number in sorted({definition.generation, *definition.generations}):
            parts = opening.parts(f"{name}@{number}")
            try:
                contents = parts.target.contents()
                status = self.status(f"{name}@{number}")
            except TableMissing:
                found.append(Generation(number, number == in_use, None, None))
                continue
            found.append(Generation(number, number == in_use, contents, status))
        return found

    def switch(self, name: str, number: int, *, compares: bool = True) -> int:
        """Give a generation the name of an Iceberg table, and return the number of the former one.

        The former one has the name `<name>_g<number>` then. A switch that ended in between is completed.

        Args:
            compares: whether its rows are compared with the archive first.

        Raises:
            ConfigurationError: the file has no such table or generation.
            OperatorError: the table has plain files, or the generation is behind, or differs from the archive.
            others: as `verify`.
        """
        opening, all_of = self._opening, self._opening.generations
        former = all_of.in_use(name)
        wanted = f"{name}@{number}"
        if all_of.definition(wanted).format != "iceberg":
            raise OperatorError(f"table {name} has plain files: its readers name the location, so they switch")
        if all_of.is_at(name, number):
            return number
        if all_of.is_at(name, former):
            behind = lacking(opening.parts(name).target.open().state, opening.parts(wanted).target.open().state)
            if behind:
                raise OperatorError(f"{wanted} lacks offsets that {name} has: {behind}; run it, then switch")
            if compares and (found := self.verify(wanted)).differences:
                raise OperatorError(
                    f"{wanted} differs from the archive in {counted(len(found.differences), 'place')}, the first: "
                    f"{found.differences[0]}"
                )
        all_of.switch(name, number)
        return former

    def replay(self, name: str) -> ReplaySummary:
        """Parse the refused records of a table again, and move those that are accepted to the table.

        The parser of the file is that of the table from now on.

        Raises:
            as `ts_tables.replay.replay`; OperatorError: the table has no parser.
        """
        parts = self._opening.parts_at_rest(name)
        if parts.parsing is None:
            raise OperatorError(f"table {name} has no parser, so no record of it is refused")
        return replay(parts.target, self._engine, parts.parsing)

    def plan(self, name: str) -> TablePlan:
        """Return what the next commit of a table adds, without adding it; raise as `run`."""
        parts = self._opening.parts_at_rest(name)
        return parts.planner.plan(_planned(parts, parts.target.open().state))

    def status(self, name: str) -> TableStatus:
        """Return how far a table is; raise as `run`."""
        parts = self._opening.parts_at_rest(name)
        state = parts.target.open().state
        partitions = tuple(partitions_of(state))
        erasing, notes = self._erasing(parts, state)
        try:
            plan = parts.planner.plan(_planned(parts, state))
        except DataLoss as error:
            return TableStatus(name, partitions, {}, (str(error), *erasing), notes)
        return TableStatus(name, partitions, plan.behind, (*plan.waits, *erasing), (*plan.notes, *notes))

    @staticmethod
    def _erasing(parts: Parts, state: TableState) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return sentences about rows of erased records, and about files of former snapshots that have such."""
        stores = [*parts.planner.stores(state)]
        claims = claims_name(parts.base, state.generation)
        findings: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        if requested(stores, claims):
            findings = ("it can have rows of erased records: its next run deletes them, or `tables forget --erased`",)
        if any(left_in_files(store, keys, claims) for store, keys, _ in stores):
            notes = ("its former snapshots can have rows of erased records: let them expire by `tables compact`",)
        return findings, notes

    def beginning(self, name: str) -> tuple[str, ...]:
        """Return a sentence for each partition whose first commit may be under way; empty if a run would fail.

        Raises:
            as `verify`.
        """
        parts = self._opening.parts_at_rest(name)
        try:
            return parts.planner.plan(_planned(parts, parts.target.open_any().state)).notes
        except DataLoss:
            return ()

    def verify(self, name: str, *, deep: bool = False) -> Verification:
        """Compare the rows of a table with the records that it claims, and return the differences.

        A table whose runs fail is compared with the last of our commits that it has.

        Args:
            deep: whether the records are parsed again, and all values compared. A raw table is always compared so.

        Raises:
            as `run`, but never `HeadMoved`; OperatorError: with `deep`, the file has another parser than the table.
        """
        target = self._opening.parts_at_rest(name).target
        found, opened = self._compared(name, deep=deep)
        problem = target.problem(opened)
        return found if problem is None else replace(found, notes=(*found.notes, problem))

    def adopt(self, name: str) -> Verification:
        """Continue a table after something happened to it; return how its rows compare with the claims of its state.

        If `main` was rolled back, the tag was removed or moved, or snapshots expired, runs of the table fail. If its
        rows are those that our last commit in it claims, that is the state from now on. Otherwise nothing is changed.

        Raises:
            as `verify`; HeadMoved: another program wrote the table meanwhile.
        """
        target = self._opening.parts_at_rest(name).target
        found, opened = self._compared(name)
        if not found.differences:
            target.adopt(opened)
        return found

    def _compared(self, name: str, *, deep: bool = False) -> tuple[Verification, Any]:
        """Return how a table differs from the archive, and the table that was compared."""
        parts = self._opening.parts(name)
        opened = parts.target.open_any()
        refused = None if parts.parsing is None else parts.parsing.refused.open_any()
        claimed = parts.planner.claimed(with_kept(opened.state, None if refused is None else refused.state))
        parsing = parts.parsing
        if parsing is None or refused is None:
            return verify(opened, claimed, self._engine), opened
        if deep:
            check_parser(opened.state, parsing)
        is_parsed = deep or parsing.newest_only
        current = parsing.at(opened.state) if is_parsed else parsing
        newest = current.parser if parsing.newest_only else None
        found = verify(opened, claimed, self._engine, refused, newest)
        if deep:
            columns = current.columns.names
            found = with_values(
                found, opened, refused, claimed, self._engine, current.parser, columns, newest_only=parsing.newest_only
            )
        return found, opened

    def compact(
        self, name: str, *, expire_after: float = EXPIRE_AFTER, retain_last: int = 1, spark: Any = None
    ) -> Compaction:
        """Rewrite the small files of a table by Spark, then expire snapshots; return what was done.

        The same is done with the table of its refused records.

        Args:
            expire_after: age in seconds of the snapshots that expire.
            retain_last: so many snapshots stay, however old they are.
            spark: a Spark session with the jars of Iceberg; None for that of this process. If it has none, one is
                started with the settings of the file, and stays until it is stopped.

        Raises:
            as `ts_tables.compaction.compact`; ConfigurationError: the file has no such table; OperatorError: it is of
                plain files; ModuleNotFoundError: pyspark is missing.
        """
        from ts_tables.engines.spark.procedures import SparkProcedures  # noqa: PLC0415  (pyspark)
        from ts_tables.engines.spark.session import open_session  # noqa: PLC0415  (pyspark)

        parts, settings = self._opening.parts(name), self._file.spark
        target = parts.target
        if not isinstance(target, IcebergTarget):
            raise OperatorError(f"table {name} has plain files: Spark does not compact them")
        target.open()  # a table that is missing, or that fails, is found before Spark starts
        session = open_session(settings) if spark is None else spark
        done = []
        for each in (target, *(() if parts.parsing is None else (parts.parsing.refused,))):
            assert isinstance(each, IcebergTarget)  # noqa: S101  (refused records have the format of their table)
            procedures = SparkProcedures(session, CATALOG, each.catalog_properties, settings, each.name)
            done.append(compact(each, procedures, expire_after, retain_last))
        self._publish(parts, target.open(), {})
        return together(done)

    def is_plain(self, name: str) -> bool:
        """Return whether a table has plain files.

        Raises:
            ConfigurationError: the file has no such table.
        """
        return self._opening.generations.definition(name).format != "iceberg"

    def show_held(self, name: str) -> RunSummary:
        """Merge and show the plain files of a table that are held, whatever their age; return what was done.

        Raises:
            as `run`; OperatorError: it is an Iceberg table.
        """
        if not self.is_plain(name):
            raise OperatorError(f"table {name} is an Iceberg table: no file of it is held")
        summary, began = RunSummary(), monotonic()
        parts = self._opening.parts(name, max_age=0)
        run_once(parts.target, NothingNew(), self._engine, summary, parts.parsing)
        summary.seconds = monotonic() - began
        return summary

    def contents(self, name: str) -> TableContents:
        """Return what a table has; raise as `drop`."""
        return self._opening.parts(name).target.contents()

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Remove a table from the catalog, that of its refused records, and what it needs of the archive.

        Args:
            purge: whether its files are deleted too.

        Raises:
            ConfigurationError: the file has no such table.
            OperatorError, AccessDenied, StoreUnavailable: from the catalog or the stores.
        """
        parts, cluster = self._opening.parts_at_rest(name), self._opening.archive.cluster
        claims = claims_name(parts.base, _generation(parts))
        left: FilesLeft | None = None
        if parts.parsing is not None:  # first: a drop that was killed can be repeated as long as the table exists
            try:
                parts.parsing.refused.drop(purge=purge)
            except TableMissing:
                pass
            except FilesLeft as error:
                left = error
        try:
            parts.target.drop(purge=purge)
        except FilesLeft as error:
            left = error
        try:
            withdraw(parts.planner.stores(TableState(cluster, read_committed=True)), claims)
        except TieredStorageError as error:  # the table is removed, so no second drop removes them
            raise OperatorError(
                f"table {name} was removed, but not its claims in the archive, which keep segments from retention; "
                f"remove claims/{claims}.json: {error}"
            ) from error
        if left is not None:
            raise left


def _generation(parts: Parts) -> int:
    """Return the number of a table's generation: of its state, or of the definition if that cannot be read."""
    try:
        state: TableState = parts.target.open_any().state
    except TieredStorageError:  # what is wrong with a table does not keep it from being dropped
        return parts.definition.generation
    return state.generation


def _planned(parts: Parts, state: TableState) -> TableState:
    """Return the state that the next commit of a table is planned from."""
    return state if parts.parsing is None else with_kept(state, parts.parsing.refused.open().state)
