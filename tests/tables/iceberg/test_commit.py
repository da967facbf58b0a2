"""Commits of an Iceberg table land once, and what happened to a table since is found."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import LessThan
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from tests.made_archive import MadeArchive
from tests.tables.made_tables import NAME, MadeTable, half_read, is_whole, put
from ts_common.errors import CorruptData, OperatorError, OutcomeUnknown
from ts_tables.iceberg.head import STATE, HeadFinding, check, read_head
from ts_tables.iceberg.target import IcebergTarget, OnForeign
from ts_tables.iceberg.transaction import HEAD
from ts_tables.run import RunSummary, run_once
from ts_tables.targets import HeadMoved

less_than: Any = LessThan  # its types are those of its fields, not of its arguments


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, 0, 50)
    return made


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    return half_read(MadeTable(archive, tmp_path / "lake"))


class Faulty:
    """A catalog whose commits do something before or after they land."""

    def __init__(self, target: IcebergTarget, commit: Callable[[int, Callable[[], Any]], Any]) -> None:
        catalog: Catalog = target._catalog
        self.calls = 0

        def commit_table(*arguments: Any) -> Any:
            self.calls += 1
            real: Any = type(catalog).commit_table
            return commit(self.calls, lambda: real(catalog, *arguments))

        catalog.commit_table = commit_table  # type: ignore[method-assign, assignment]


def run(table: MadeTable, target: IcebergTarget, summary: RunSummary | None = None) -> RunSummary:
    return run_once(target, table.planner(), lambda tasks: [task() for task in tasks], summary)


def faulty(table: MadeTable, commit: Callable[[int, Callable[[], Any]], Any]) -> tuple[IcebergTarget, Faulty]:
    target = table.iceberg()
    return target, Faulty(target, commit)


@pytest.mark.parametrize("error", [ConnectionError("reset"), CommitFailedException("409")], ids=["lost", "conflict"])
def test_t01_a_commit_whose_answer_is_lost_is_found(table: MadeTable, error: Exception) -> None:
    """Also if a proxy repeated the request, and the answer is a conflict."""

    def commit(_: int, real: Callable[[], Any]) -> None:
        real()
        raise error

    target, calls = faulty(table, commit)
    done = run(table, target)
    assert (done.records, done.conflicts) == (50, 0)
    assert calls.calls == 1
    is_whole(table)


def test_a_commit_that_did_not_land_is_repeated(table: MadeTable) -> None:
    """With the same files; manifests of the refused attempt are removed."""

    def commit(call: int, real: Callable[[], Any]) -> Any:
        if call == 1:
            raise ConnectionError("refused")
        return real()

    target, calls = faulty(table, commit)
    done = run(table, target)
    assert (done.records, done.conflicts) == (50, 0)
    assert calls.calls == 2
    is_whole(table)
    assert manifests(table) == referenced(table)


def manifests(table: MadeTable) -> set[str]:
    root = Path(table.table.location().removeprefix("file://"), "metadata")
    return {each.name for each in root.glob("*.avro")}


def referenced(table: MadeTable) -> set[str]:
    found = set()
    for snapshot in table.table.snapshots():
        found.add(snapshot.manifest_list)
        found |= {manifest.manifest_path for manifest in snapshot.manifests(table.table.io)}
    return {path.rpartition("/")[2] for path in found}


def test_an_attempt_that_lands_after_its_error_is_found(table: MadeTable) -> None:
    """The second attempt is refused, because the head has moved; the first one counts."""
    late: list[Callable[[], Any]] = []

    def commit(call: int, real: Callable[[], Any]) -> Any:
        if call == 1:
            late.append(real)
            raise ConnectionError("timeout")
        late[0]()
        return real()

    target, calls = faulty(table, commit)
    assert run(table, target).records == 50
    assert calls.calls == 2
    is_whole(table)


def test_a_catalog_that_refuses_everything_loses_nothing(table: MadeTable) -> None:
    """The outcome is unknown, so that files stay until the head moves; then they are removed."""

    def commit(_: int, _real: Callable[[], Any]) -> None:
        raise ConnectionError("refused")

    target, _ = faulty(table, commit)
    with pytest.raises(OutcomeUnknown, match="run it again"):
        run(table, target)
    assert table.files() - table.committed_files()
    is_whole(table)


def test_the_second_of_two_runs_is_refused(table: MadeTable) -> None:
    """Both planned from the same head; the files of the second are removed, and it is a conflict."""
    other = table.iceberg()

    def commit(call: int, real: Callable[[], Any]) -> Any:
        if call == 1:
            run(table, other)
        return real()

    target, _ = faulty(table, commit)
    summary = RunSummary()
    with pytest.raises(HeadMoved, match="another run has committed"):
        run(table, target, summary)
    assert (summary.commits, summary.conflicts) == (0, 1)
    is_whole(table)


def test_many_runs_at_once_add_each_record_once(archive: MadeArchive, table: MadeTable) -> None:
    """Whichever of them lands: the others are refused, or have nothing to do."""
    outcomes: list[str] = []

    def one() -> None:
        try:
            run(table, table.iceberg())
            outcomes.append("landed")
        except (HeadMoved, OutcomeUnknown) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "landed" in outcomes
    assert len(outcomes) == 4
    is_whole(table)


def test_a_compaction_between_plan_and_commit_ends_no_run(table: MadeTable) -> None:
    """The catalog refuses the first attempt, and the files are committed on the new `main`."""

    def commit(call: int, real: Callable[[], Any]) -> Any:
        if call == 1:
            replace(table)
        return real()

    target, calls = faulty(table, commit)
    done = run(table, target)
    assert (done.records, done.conflicts) == (50, 1)
    assert calls.calls == 2
    operations = [each.summary.operation for each in table.table.snapshots() if each.summary is not None]
    assert operations[-2:] == [Operation.REPLACE, Operation.APPEND]
    is_whole(table)


def replace(table: MadeTable) -> None:
    """Commit a snapshot with the operation of a compaction: it changes no row."""
    loaded = table.catalog.load_table(NAME)
    transaction = Transaction(loaded)
    with transaction.update_snapshot().fast_append():
        pass
    updates: list[Any] = []
    for update in transaction._updates:
        if isinstance(update, AddSnapshotUpdate):
            assert update.snapshot.summary is not None
            summary = Summary(Operation.REPLACE, **update.snapshot.summary.additional_properties)
            snapshot = update.snapshot.model_copy(update={"summary": summary})
            updates.append(update.model_copy(update={"snapshot": snapshot}))
        else:
            updates.append(update)
    table.catalog.commit_table(loaded, transaction._requirements, tuple(updates))


def append(table: MadeTable) -> None:
    """Write a row of another program."""
    loaded = table.table
    row = {"topic": "x", "partition": 0, "offset": 0, "_partition_id": 0, "_offset": 0, "_ordinal": 0}
    kinds = loaded.schema().as_arrow()
    loaded.append(pa.Table.from_pylist([{name: row.get(name) for name in kinds.names}], kinds))


def found(table: MadeTable) -> HeadFinding:
    loaded = table.table
    return check(loaded, read_head(loaded)).finding


def test_rows_of_others_end_a_run(table: MadeTable) -> None:
    """The message names the snapshots; by choice their rows stay with ours."""
    append(table)
    assert found(table) is HeadFinding.FOREIGN
    with pytest.raises(OperatorError, match=r"others wrote rows since our last commit: snapshots \d+ \(append\)"):
        table.run()
    table.on_foreign = OnForeign.KEEP
    assert table.run().records == 50
    assert len(table.rows()) == 101


def test_rows_that_others_deleted_end_a_run(table: MadeTable) -> None:
    """As by a request to forget a person."""
    table.table.delete(less_than("_offset", 10))
    assert found(table) is HeadFinding.FOREIGN
    with pytest.raises(OperatorError, match=r"\((overwrite|delete)\)"):
        table.run()


def test_t02_a_rollback_is_found(table: MadeTable) -> None:
    """Between plan and commit, or with a foreign row on top: the next run would not add the lost rows."""
    first = table.table.snapshots()[0].snapshot_id

    def commit(_: int, real: Callable[[], Any]) -> Any:
        table.table.manage_snapshots().rollback_to_snapshot(first).commit()
        return real()

    for target in (faulty(table, commit)[0], table.iceberg()):
        with pytest.raises(OperatorError, match="main was rolled back"):
            run(table, target)
    assert found(table) is HeadFinding.ROLLED_BACK
    append(table)
    assert found(table) is HeadFinding.ROLLED_BACK


def move_tag(table: MadeTable, snapshot_id: int | None) -> None:
    loaded = table.table
    update = (
        RemoveSnapshotRefUpdate.model_validate({"ref-name": HEAD})
        if snapshot_id is None
        else SetSnapshotRefUpdate.model_validate({"ref-name": HEAD, "type": "tag", "snapshot-id": snapshot_id})
    )
    table.catalog.commit_table(loaded, (), (update,))


def test_a_tag_that_was_moved_or_removed_is_found(table: MadeTable) -> None:
    """The claims that it shows are not those of the rows."""
    last = table.head.snapshot_id
    move_tag(table, table.table.snapshots()[0].snapshot_id)
    assert found(table) is HeadFinding.MOVED
    with pytest.raises(OperatorError, match="was moved back"):
        table.run()
    move_tag(table, None)
    assert found(table) is HeadFinding.NO_HEAD
    with pytest.raises(OperatorError, match="tag ts-head was removed"):
        table.run()
    move_tag(table, last)
    is_whole(table)


def test_a_table_of_another_program_is_not_taken_over(archive: MadeArchive, tmp_path: Path) -> None:
    """Neither created over it nor written to."""
    made = MadeTable(archive, tmp_path / "other")
    made.catalog.create_namespace("backup")
    made.catalog.create_table(NAME, pa.schema([("a", pa.int64())])).append(pa.table({"a": [1]}))
    with pytest.raises(OperatorError, match="this program did not make it"):
        made.create()
    with pytest.raises(OperatorError, match="no run of this program made it"):
        made.run()


def test_a_table_that_was_dropped_and_made_again_has_no_head(table: MadeTable) -> None:
    """So it is created, and filled from the start."""
    table.catalog.drop_table(NAME)
    with pytest.raises(OperatorError, match="does not exist"):
        table.run()
    assert table.create()
    table.run()
    assert table.offsets() == list(range(100))


def expire(table: MadeTable) -> None:
    tomorrow = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    table.table.maintenance.expire_snapshots().older_than(tomorrow).commit()


def test_expiry_keeps_the_head(table: MadeTable) -> None:
    """The tag keeps its snapshot, also behind a compaction; equal numbers of rows prove that nothing else happened."""
    expire(table)
    assert found(table) is HeadFinding.SAME
    replace(table)
    replace(table)
    expire(table)
    assert {each.snapshot_id for each in table.table.snapshots()} == {
        table.head.snapshot_id,
        table.table.metadata.current_snapshot_id,
    }
    assert found(table) is HeadFinding.MAINTAINED
    is_whole(table)


def test_foreign_rows_behind_an_expiry_are_found(table: MadeTable) -> None:
    """The number of rows differs."""
    append(table)
    replace(table)
    expire(table)
    assert found(table) is HeadFinding.UNKNOWN
    with pytest.raises(OperatorError, match="verify"):
        table.run()


def test_a_state_that_was_changed_is_refused(table: MadeTable) -> None:
    """By its tag's snapshot."""
    snapshot = table.table.snapshot_by_id(table.head.snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    table.table.append(pa.Table.from_pylist([], table.table.schema().as_arrow()), {STATE: "{}"})
    current = table.table.current_snapshot()
    assert current is not None
    move_tag(table, current.snapshot_id)
    with pytest.raises(CorruptData, match="the state of a table"):
        table.run()
