"""The private parts of pyiceberg that changes are staged with."""

import ast
from pathlib import Path
from typing import Any

import pyiceberg
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from tests.made_archive import MadeArchive, batches
from tests.tables.made_tables import MadeTable
from ts_tables.iceberg.transaction import HEAD, SnapshotChange, stage

ROOM = Path(__file__).parents[3] / "ts_tables"


def test_the_private_parts_are_as_this_version_has_them(tmp_path: Path) -> None:
    """A later version of pyiceberg needs this test first: it may rename them, or commit by itself."""
    assert pyiceberg.__version__ == "0.12.0"
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 3)))
    archive.commit("t", 3, last_stable_offset=3)
    table = MadeTable(archive, tmp_path / "lake")
    table.create()
    loaded = table.table
    transaction = Transaction(loaded)
    with transaction.update_snapshot().fast_append():
        pass
    assert [type(each).__name__ for each in transaction._updates] == ["AddSnapshotUpdate", "SetSnapshotRefUpdate"]
    assert [type(each) for each in transaction._requirements] == [AssertRefSnapshotId]
    assert table.table.metadata == loaded.metadata  # nothing was committed


def test_a_change_asserts_what_it_was_planned_from(tmp_path: Path) -> None:
    """The table's uuid, `main`, our tag, schema and spec; and it moves the tag."""
    archive = MadeArchive(tmp_path / "archive")
    table = MadeTable(archive, tmp_path / "lake")
    table.create()
    loaded = table.table
    head = table.head.snapshot_id
    staged = stage(loaded, SnapshotChange((), (), {"a": "b"}, "0123456789abcdef"), head)
    kinds = {type(each).__name__ for each in staged.requirements}
    assert kinds >= {"AssertTableUUID", "AssertRefSnapshotId", "AssertCurrentSchemaId", "AssertDefaultSpecId"}
    refs: dict[str, Any] = {
        each.ref: each.snapshot_id for each in staged.requirements if isinstance(each, AssertRefSnapshotId)
    }
    assert refs == {"main": head, HEAD: head}
    assert [each.uuid for each in staged.requirements if isinstance(each, AssertTableUUID)] == [
        loaded.metadata.table_uuid
    ]
    moves = {each.ref_name: each.snapshot_id for each in staged.updates if isinstance(each, SetSnapshotRefUpdate)}
    assert moves == {"main": staged.snapshot_id, HEAD: staged.snapshot_id}


def test_no_other_module_uses_private_parts_or_commits_by_itself() -> None:
    """`commit_transaction`, and methods that call it, can add files twice."""
    committing = {"commit_transaction", "append", "overwrite", "delete", "upsert", "add_files"}
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            name = ast.unparse(node)
            assert not name.startswith("transaction._") or path.name == "transaction.py", path
            assert node.attr != "commit_transaction", path
            assert not name.startswith("table.") or node.attr not in committing, path
