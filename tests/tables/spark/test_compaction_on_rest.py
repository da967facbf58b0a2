"""Compaction on SeaweedFS's REST catalog, with the files on its S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive, batches, steps
from tests.tables.iceberg.test_rest_catalog import offsets
from tests.tables.made_tables import NAME, MadeTable, put
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.compaction import compact
from ts_tables.engines.spark.procedures import SparkProcedures
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.verify.run import verify

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory = tmp_path_factory.mktemp("catalog")
    with S3Server(directory, directory, with_catalog=True) as server:
        yield server


def test_a_table_on_s3_is_compacted(spark: SparkSession, server: S3Server, tmp_path: Path) -> None:
    """Its partition key and its sort order stay; later runs add to it, and replace rows in the files of Spark."""
    table = MadeTable(
        MadeArchive(tmp_path / "archive"),
        tmp_path,
        further=server.iceberg(server.create_table_bucket("lake")),
        partition_by=("day(timestamp)", "bucket(2, key)"),
        sort_by=("offset",),
        policy=Policy(on_taken_back=OnTakenBack.DELETE),
    )
    table.create()
    for start in range(0, 400, 50):
        put(table.archive, start, start + 50)
        table.run()
    target = table.target()
    assert isinstance(target, IcebergTarget)
    done = compact(target, SparkProcedures(spark, "lake", target.catalog_properties, {}, NAME), expire_after=0)
    assert (done.rewritten.files, done.rewritten.written, done.files) == (16, 2, 2)
    assert [each.snapshot_id for each in table.table.snapshots()] == [table.head.snapshot_id]
    assert offsets(table) == list(range(400))
    table.archive.put_segment("t", 380, batches(*steps(380, 420), epoch=1), variant=True)
    table.archive.commit("t", 420, epochs=((0, 0), (1, 380)), highest_base=380, last_stable_offset=420)
    assert table.run().records == 40
    assert offsets(table) == list(range(420))
    opened = target.open()
    found = verify(opened, table.planner().claimed(opened.state), lambda tasks: [task() for task in tasks])
    assert (found.rows, found.differences, found.notes) == (420, (), ())
