"""Commits to a real REST catalog, that of SeaweedFS: the server enforces what a change asserts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException

from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive
from tests.tables.iceberg.test_commit import Faulty, run
from tests.tables.made_tables import NAME, MadeTable, put
from ts_common.errors import OperatorError
from ts_tables.iceberg.storage import TableFiles
from ts_tables.iceberg.transaction import SnapshotChange, stage
from ts_tables.targets import FilesLeft, HeadMoved


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory = tmp_path_factory.mktemp("catalog")
    with S3Server(directory, directory, with_catalog=True) as server:
        yield server


@pytest.fixture
def table(server: S3Server, tmp_path: Path) -> MadeTable:
    """A table with the first 50 records; the archive has 50 more."""
    archive = MadeArchive(tmp_path / "archive")
    bucket = server.create_table_bucket(f"lake-{tmp_path.name.replace('_', '-')[-40:].strip('-')}")
    made = MadeTable(archive, tmp_path, further=server.iceberg(bucket))
    put(archive, 0, 50)
    made.create()
    made.run()
    put(archive, 50, 100)
    return made


def offsets(table: MadeTable) -> list[int]:
    found = []
    loaded = table.table
    for task in loaded.scan().plan_files():
        with loaded.io.new_input(task.file.file_path).open() as stream:
            found += pq.read_table(stream, columns=["_offset"])["_offset"].to_pylist()
    return sorted(found)


def test_each_run_adds_what_is_new(table: MadeTable) -> None:
    """As on an SQL catalog."""
    assert table.run().records == 50
    assert table.run().commits == 0
    assert offsets(table) == list(range(100))


def test_the_second_of_two_runs_is_refused(table: MadeTable) -> None:
    """Both planned from the same head."""
    other, target = table.iceberg(), table.iceberg()

    def commit(call: int, real: Callable[[], Any]) -> Any:
        if call == 1:
            run(table, other)
        return real()

    Faulty(target, commit)
    with pytest.raises(HeadMoved):
        run(table, target)
    assert offsets(table) == list(range(100))


def test_the_server_enforces_the_assertion_of_the_tag_alone(table: MadeTable) -> None:
    """With the right `main`, and a head that has moved."""
    before = table.head.snapshot_id
    table.run()
    loaded = table.table
    staged = stage(loaded, SnapshotChange((), (), {}, "0123456789abcdef"), before)
    with pytest.raises(CommitFailedException, match="ts-head"):
        table.catalog.commit_table(loaded, staged.requirements, staged.updates)


def test_a_rollback_is_found(table: MadeTable) -> None:
    """The next run would not add the lost rows."""
    first = table.table.snapshots()[0].snapshot_id
    table.catalog.load_table(NAME).manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(OperatorError, match="main was rolled back"):
        table.run()


def test_a_purge_and_a_cleanup_need_no_more_than_the_files_below_the_location(
    server: S3Server, table: MadeTable, capfd: pytest.CaptureFixture[str]
) -> None:
    """A bucket of tables refuses requests of the location itself, and objects for directories."""
    table.run()
    assert "table_cleanup_failed" not in capfd.readouterr().err
    bucket, _, prefix = table.table.location().removeprefix("s3://").partition("/")
    client = server.client()
    assert client.list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] > 5
    table.iceberg().drop(purge=True)
    assert client.list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] == 0
    assert table.catalog.list_tables("backup") == []


def test_files_that_a_purge_cannot_remove_are_named(table: MadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has no such table any more, so that no second drop removes them."""

    def refuse(_: TableFiles) -> None:
        raise OSError("AWS Error ACCESS_DENIED during DeleteObjects operation")

    monkeypatch.setattr(TableFiles, "remove_all", refuse)
    location = table.table.location()
    with pytest.raises(FilesLeft, match=rf"The table was removed; delete the rest of {location}$"):
        table.iceberg().drop(purge=True)
    assert table.catalog.list_tables("backup") == []
