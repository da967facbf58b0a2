"""Commits of a table of plain files land once, and its files appear once, whichever run completes an entry."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, half_read, is_whole, put, verified
from ts_common.errors import CorruptData, DataLoss, ObjectNotFound, OperatorError, OutcomeUnknown, StoreUnavailable
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.retry import OWN_OBJECT_POLICY
from ts_common.store.shared_stores import shared_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.claims.state import TableState
from ts_tables.files.layout import FileFormat
from ts_tables.plain import ledger
from ts_tables.plain.entries import Contents, LedgerEntry, PlainFile
from ts_tables.plain.staging import StagedFiles, _StagedFile
from ts_tables.plain.target import PlainTarget
from ts_tables.planning.work import Covered
from ts_tables.run import RunSummary, run_once
from ts_tables.targets import HeadMoved

Fault = Callable[[str, str, Callable[[], Any]], Any]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, 0, 50)
    return made


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    return half_read(MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET))


class Faulty(WrappedStore):
    """A store whose writes do something before or after they land: it gets the operation, the key and the write."""

    def __init__(self, inner: ObjectStore, fault: Fault) -> None:
        super().__init__(inner, threads=1)
        self._fault = fault

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        found: ObjectInfo = self._fault("put", key, lambda: self._inner.put(key, *arguments, **named))
        return found

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        found: ObjectInfo = self._fault("copy", target, lambda: self._inner.copy_if_absent(source, target))
        return found

    def delete(self, keys: Iterable[str]) -> None:
        found = list(keys)
        self._fault("delete", " ".join(found), lambda: self._inner.delete(found))


class FaultyTarget(PlainTarget):
    """A table whose store is faulty."""

    fault: Fault

    @property
    def _store(self) -> ObjectStore:
        return Faulty(super()._store, self.fault)


def faulty(table: MadeTable, fault: Fault) -> PlainTarget:
    target = table.plain()
    target.__class__ = FaultyTarget
    target.fault = fault  # type: ignore[attr-defined]
    return target


def run(table: MadeTable, target: PlainTarget) -> RunSummary:
    return run_once(target, table.planner(), lambda tasks: [task() for task in tasks])


@pytest.mark.parametrize("part", ["/ledger/", "_ts/files.json", ".parquet"])
def test_a_write_whose_answer_is_lost_is_found(table: MadeTable, part: str) -> None:
    """An entry, the list of files, and the copy of a file."""
    lost: list[str] = []

    def fault(_: str, key: str, write: Callable[[], Any]) -> Any:
        found = write()
        if part in key and not lost:
            lost.append(key)
            raise OutcomeUnknown("no answer")
        return found

    assert run(table, faulty(table, fault)).records == 50
    assert len(lost) == 1
    is_whole(table)


def test_a_staged_file_whose_put_has_no_answer_gets_another_name(table: MadeTable, tmp_path: Path) -> None:
    """The first put can land after staging was cleaned, when a paused run must find no bytes."""
    store = shared_store(table.place.location)
    lost: list[str] = []

    def fault(_: str, key: str, write: Callable[[], Any]) -> Any:
        if lost:
            return write()
        lost.append(key)
        raise OutcomeUnknown("no answer")

    files = StagedFiles(table.place, "_ts/g/staging/0-p/", 0, ())
    stream = _StagedFile(files, "_ts/g/staging/0-p/00000-1")
    stream.write(b"data")
    path = OWN_OBJECT_POLICY(stream._put, Faulty(store, fault), io.BytesIO(b"data"), 4)
    assert lost == ["_ts/g/staging/0-p/00000-1"]
    assert path != lost[0]
    assert store.get(path)[0] == b"data"
    stream.discard()


def test_of_two_runs_at_once_one_is_refused(table: MadeTable) -> None:
    """The other one commits between the plan and the entry of the first, whose files are removed."""

    def fault(_: str, key: str, write: Callable[[], Any]) -> Any:
        if "/ledger/" in key:
            table.run()
        return write()

    with pytest.raises(HeadMoved, match="another run has committed"):
        run(table, faulty(table, fault))
    is_whole(table)


def test_an_entry_without_any_answer_can_still_land(table: MadeTable) -> None:
    """The run fails and leaves its files, and the next one completes the entry that landed late."""
    late: list[Callable[[], Any]] = []

    def fault(_: str, key: str, write: Callable[[], Any]) -> Any:
        if "/ledger/" not in key:
            return write()
        late.append(write)
        raise OutcomeUnknown("no answer")

    with pytest.raises(OutcomeUnknown, match="has no answer; run it again"):
        run(table, faulty(table, fault))
    late[0]()
    is_whole(table)


def test_an_entry_is_completed_by_copies_and_never_decoded_again(table: MadeTable, archive: MadeArchive) -> None:
    """The run died after its entry, and retention has removed the segments meanwhile."""

    def fault(operation: str, _: str, write: Callable[[], Any]) -> Any:
        if operation == "copy":
            raise StoreUnavailable("down")
        return write()

    with pytest.raises(StoreUnavailable):
        run(table, faulty(table, fault))
    assert table.paths() == sorted(each for each in table.paths() if each.startswith("00000001-"))
    archive.store.delete([each.key for each in archive.store.list() if "00000050" in each.key])
    assert table.target().open().state.topics["t"][0].partitions[0].end == 100
    assert table.offsets() == list(range(100))


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_a_run_that_was_paused_amid_an_entry_brings_no_removed_file_back(
    archive: MadeArchive, tmp_path: Path, is_cleaned: bool
) -> None:
    """It wakes after another run has completed the entry, and an election has removed its file.

    Also if the run that completed it did not remove what was staged.
    """
    table = MadeTable(
        archive, tmp_path / "lake", format=FileFormat.PARQUET, policy=Policy(on_taken_back=OnTakenBack.DELETE)
    )
    table.create()
    table.run()
    put(archive, 50, 100)
    seen: list[set[str]] = []

    def uncleaned(operation: str, key: str, write: Callable[[], Any]) -> Any:
        if operation == "delete" and "/staging/" in key:
            raise StoreUnavailable("down")
        return write()

    def fault(operation: str, key: str, write: Callable[[], Any]) -> Any:
        if operation == "copy" and not seen:
            run(table, table.plain() if is_cleaned else faulty(table, uncleaned))
            seen.append({*table.paths()})
            _elect(archive)

            def copying(operation: str, key: str, other: Callable[[], Any]) -> Any:
                if operation == "delete" and key in seen[0]:
                    other()
                    with pytest.raises(ObjectNotFound):
                        write()
                    return None
                return other()

            run(table, faulty(table, copying))
            seen.append({*table.paths()})
        return write()

    run(table, faulty(table, fault))
    before, after = seen
    gone = before - after
    assert gone
    assert not gone & {*table.paths()}
    assert table.offsets() == list(range(80))
    is_whole(table, 80)


def _elect(archive: MadeArchive) -> None:
    """Elect a leader without the offsets from 70 on; it wrote ten more."""
    archive.put_segment("t", 50, batches(*steps(50, 70)), variant=True)
    archive.put_segment("t", 70, batches(*steps(70, 80), epoch=1), variant=True)
    archive.commit("t", 80, epochs=[(0, 0), (1, 70)], highest_base=70, last_stable_offset=80)


def test_a_file_that_was_never_shown_and_has_no_bytes_fails_the_table(table: MadeTable) -> None:
    """The operator removed staging after the entry landed."""

    def fault(operation: str, _: str, write: Callable[[], Any]) -> Any:
        if operation == "copy":
            raise StoreUnavailable("down")
        return write()

    with pytest.raises(StoreUnavailable):
        run(table, faulty(table, fault))
    store = shared_store(table.place.location)
    store.delete([each.key for each in store.list("_ts/") if "/staging/" in each.key])
    with pytest.raises(DataLoss, match="entry 2 cannot be completed; drop the table, and create it again"):
        table.run()
    table.target().drop(purge=True)
    assert [each.key for each in store.list()] == ["_ts/files.json"]
    table.create()
    is_whole(table)


def test_a_name_that_another_program_used_fails_the_entry(table: MadeTable) -> None:
    """It has another size, so it is no copy of the staged bytes."""

    def fault(operation: str, key: str, write: Callable[[], Any]) -> Any:
        if operation == "copy":
            shared_store(table.place.location).put(key, b"other")
        return write()

    with pytest.raises(CorruptData, match="another program wrote it"):
        run(table, faulty(table, fault))


def test_an_older_list_of_files_is_brought_forward_by_the_ledger(table: MadeTable, archive: MadeArchive) -> None:
    """The operator restored `files.json` of two entries before."""
    store = shared_store(table.place.location)
    old, _ = store.get("_ts/files.json")
    table.run()
    put(archive, 100, 150)
    table.run()
    store.put("_ts/files.json", old)
    is_whole(table, 150)


def test_a_table_that_is_created_again_ignores_what_a_former_run_sends_late(table: MadeTable) -> None:
    """The former run's entry lands in a ledger that no run reads."""

    def fault(_: str, key: str, write: Callable[[], Any]) -> Any:
        if "/ledger/" in key:
            table.target().drop(purge=True)
            table.create()
        return write()

    with pytest.raises(HeadMoved, match="created again"):
        run(table, faulty(table, fault))
    assert table.plain().open().contents.number == 0
    table.run()
    assert table.offsets() == list(range(100))
    assert not verified(table).differences


def test_a_place_with_objects_of_others_is_refused(archive: MadeArchive, tmp_path: Path) -> None:
    """Create names one of them."""
    table = MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET)
    (tmp_path / "lake/files").mkdir(parents=True)
    (tmp_path / "lake/files/a.parquet").write_bytes(b"x")
    with pytest.raises(OperatorError, match=r"such as a\.parquet: remove them, or choose an empty location"):
        table.create()


def test_a_store_that_ignores_the_condition_of_a_copy_is_refused(archive: MadeArchive, tmp_path: Path) -> None:
    """A copy onto an object must fail; else an entry that two runs complete could change a file."""
    table = MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET)

    def fault(operation: str, key: str, write: Callable[[], Any]) -> Any:
        return shared_store(table.place.location).head(key) if operation == "copy" else write()

    with pytest.raises(OperatorError, match="copies over an object"):
        faulty(table, fault).create(TableState(CLUSTER, read_committed=True))
    assert list(shared_store(table.place.location).list()) == []


def test_a_table_that_exists_is_not_created(table: MadeTable) -> None:
    """And one of another format is refused."""
    assert not table.create()
    table.format = FileFormat.JSON_LINES
    with pytest.raises(OperatorError, match="has format parquet, and the file specifies json"):
        table.create()
    with pytest.raises(OperatorError, match="has format parquet"):
        table.run()


def test_a_table_without_a_ledger_names_the_command_that_makes_it(archive: MadeArchive, tmp_path: Path) -> None:
    """In one line."""
    table = MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET)
    (tmp_path / "lake/files").mkdir(parents=True)
    with pytest.raises(OperatorError, match="`tsctl tables create` makes it"):
        table.run()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1}', b'{"version":1,"generation":"../x"}', b"\xff"])
def test_a_list_of_files_that_cannot_be_read_is_named(table: MadeTable, data: bytes) -> None:
    """Nothing is planned on it."""
    shared_store(table.place.location).put("_ts/files.json", data)
    with pytest.raises(CorruptData, match=r"_ts/files.json"):
        table.run()


@pytest.mark.parametrize("path", ["_ts/files.json", "../archive/x", "/etc/passwd", "a//b", ""])
def test_a_ledger_reaches_only_files_of_its_table(table: MadeTable, path: str) -> None:
    """An entry that removes or shows something else is refused, and deletes nothing."""
    store = shared_store(table.place.location)
    contents = table.plain().open().contents
    entry = LedgerEntry(number=2, plan="0" * 16, state=contents.state, shown=(), held=(), removed=(path,))
    store.put(f"_ts/{contents.generation}/ledger/00000002.json", entry.encode())
    before = {each.key for each in store.list()}
    with pytest.raises(CorruptData, match=r"00000002\.json"):
        table.run()
    assert {each.key for each in store.list()} == before
    covered = (Covered(TopicPartition("t", 0), None, 0, 1),)
    copied = PlainFile("a.parquet", 1, 0, 1, (), covered, staged=path or "x")
    store.put(f"_ts/{contents.generation}/ledger/00000002.json", replace(entry, removed=(), shown=(copied,)).encode())
    with pytest.raises(CorruptData, match=r"is not in staging|is no path"):
        table.run()


def test_a_file_without_offsets_is_named(table: MadeTable) -> None:
    """Of text and SequenceFile they have the Kafka partition too."""
    store = shared_store(table.place.location)
    contents = table.plain().open().contents
    table.run()
    hostile = replace(contents, files=(PlainFile("a.parquet", 1, 0, 1, (), ()),))
    store.put("_ts/files.json", hostile.encode())
    with pytest.raises(CorruptData, match="a file covers no offsets"):
        table.run()


def test_verify_names_files_that_are_missing_changed_or_of_others(table: MadeTable, archive: MadeArchive) -> None:
    """And the rows that are missing."""
    table.run()
    put(archive, 100, 150)
    table.run()
    store = shared_store(table.place.location)
    first, second, third = table.paths()
    store.delete([first])
    data, _ = store.get(second)
    store.put("foreign.parquet", data)
    opened = table.target().open_any()
    problem = table.target().problem(opened)
    assert problem is not None
    assert f"missing: 1 file ({first})" in problem
    assert "of another program, which readers see: 1 file (foreign.parquet)" in problem
    assert [(each.start, each.end) for each in verified(table).differences] == [(0, 50)]
    store.put(third, data[:-1])
    changed = table.target().problem(table.target().open_any())
    assert changed is not None
    assert f"of another size: 1 file ({third})" in changed


@pytest.mark.parametrize("purge", [False, True])
def test_drop_leaves_files_unless_purge_is_set(table: MadeTable, purge: bool) -> None:
    """The ledger and staging are removed."""
    table.run()
    paths = table.paths()
    table.target().drop(purge=purge)
    store = shared_store(table.place.location)
    assert {each.key for each in store.list()} == {"_ts/files.json", *([] if purge else paths)}
    with pytest.raises(OperatorError, match="has no table of this program"):
        table.run()


def test_a_second_drop_leaves_a_table_that_was_created_meanwhile(table: MadeTable) -> None:
    """What is left of the first table is replaced on its ETag, and never deleted."""
    created: list[None] = []

    def fault(operation: str, key: str, write: Callable[[], Any]) -> Any:
        if key == "_ts/files.json" and operation == "put" and not created:
            created.append(None)
            table.target().drop(purge=True)
            table.create()
        return write()

    with pytest.raises(HeadMoved, match="another run has changed the table"):
        faulty(table, fault).drop(purge=True)
    is_whole(table)


def test_a_slow_drop_leaves_the_ledger_of_a_table_that_was_created_meanwhile(table: MadeTable) -> None:
    """It removes what is of its own generation only."""
    made: list[Contents] = []

    def fault(operation: str, key: str, write: Callable[[], Any]) -> Any:
        found = write()
        if operation == "put" and key == "_ts/files.json" and not made:
            shared_store(table.place.location).delete(table.paths())
            table.create()
            table.run()
            made.append(table.plain().open().contents)
        return found

    faulty(table, fault).drop(purge=True)
    store = shared_store(table.place.location)
    assert [each.key for each in store.list(f"_ts/{made[0].generation}/ledger/")]
    is_whole(table)


def test_a_drop_does_not_delete_rows_that_are_held(table: MadeTable) -> None:
    """They are shown first, or purged."""
    table.max_age = 3600
    table.run()
    with pytest.raises(OperatorError, match="holds 50 rows in files that are not shown: `tsctl tables compact`"):
        table.target().drop(purge=False)
    assert table.offsets() == list(range(100))
    table.target().drop(purge=True)
    assert table.paths() == []


def test_a_copy_that_the_store_completes_late_is_deleted_again(archive: MadeArchive, tmp_path: Path) -> None:
    """An election removed the file; the copy had read its source before."""
    table = MadeTable(
        archive, tmp_path / "lake", format=FileFormat.PARQUET, policy=Policy(on_taken_back=OnTakenBack.DELETE)
    )
    table.create()
    table.run()
    put(archive, 50, 100)
    table.run()
    store = shared_store(table.place.location)
    gone = {path: store.get(path)[0] for path in table.paths()}
    _elect(archive)
    table.run()
    ((late, data),) = [(path, data) for path, data in gone.items() if path not in table.paths()]
    store.put(late, data)
    archive.put_segment("t", 80, batches(*steps(80, 90), epoch=1), variant=True)
    archive.commit("t", 90, epochs=[(0, 0), (1, 70)], highest_base=80, last_stable_offset=90)
    table.run()
    assert late not in table.paths()
    assert table.offsets() == list(range(90))


def test_a_list_of_files_that_no_run_could_read_is_not_written(
    table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails before its commit."""
    monkeypatch.setattr(ledger, "MOST_BYTES", 100)
    with pytest.raises(OperatorError, match="target_size makes fewer files"):
        table.run()
    monkeypatch.undo()
    is_whole(table)


@pytest.mark.parametrize("key", [[], ["x"], [1 << 62], [1.5], [True, 1]])
def test_a_partition_key_of_another_form_is_refused(archive: MadeArchive, tmp_path: Path, key: list[Any]) -> None:
    """By the name of the file that has it."""
    table = MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET, partition_by=("day(timestamp)",))
    table.create()
    table.run()
    store = shared_store(table.place.location)
    contents = json.loads(store.get("_ts/files.json")[0])
    contents["files"][0]["key"] = key
    store.put("_ts/files.json", json.dumps(contents).encode())
    with pytest.raises(CorruptData, match=r"files\.json|has the partition key"):
        table.run()


def test_verify_during_a_commit_names_no_file_of_it(table: MadeTable) -> None:
    """Files that the listing finds and the contents before it lack are of that commit."""
    opened = table.plain().open_any()
    table.run()
    assert table.plain().problem(opened) is None


def test_flipped_bits_of_a_file_are_damage(table: MadeTable) -> None:
    """And no failure of the store, which another try could mend."""
    store = shared_store(table.place.location)
    (path,) = table.paths()
    data, _ = store.get(path)
    random = Random(7)
    kinds: Counter[str] = Counter()
    for _ in range(100):
        at = random.randrange(len(data))
        store.put(path, data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :])
        try:
            kinds["different" if verified(table).differences else "equal"] += 1
        except CorruptData as error:
            assert path in str(error)  # noqa: PT017
            kinds["damaged"] += 1
    assert kinds["damaged"] > 20, kinds


def test_state_of_another_cluster_is_refused(table: MadeTable, tmp_path: Path) -> None:
    """A plan on it would claim offsets of other records."""
    other = MadeTable(table.archive, tmp_path / "other", format=FileFormat.PARQUET)
    other.target().create(TableState(CLUSTER + "2", read_committed=True))
    with pytest.raises(OperatorError, match="create another table"):
        other.run()
