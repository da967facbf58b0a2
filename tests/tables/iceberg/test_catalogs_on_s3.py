"""A catalog whose warehouse is on a real S3 server: its connection, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive
from tests.tables.made_tables import MadeTable, put
from ts_common.errors import AccessDenied

BUCKET = "lake"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="warehouse") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


@pytest.fixture
def table(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeTable:
    """A table whose catalog has a warehouse, and nothing else of S3: the environment has it."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    archive = MadeArchive(tmp_path / "archive")
    put(archive, 0, 50)
    return MadeTable(archive, tmp_path, warehouse=f"s3://{BUCKET}/{tmp_path.name}")


def test_the_environment_sets_where_the_warehouse_is(table: MadeTable, server: S3Server) -> None:
    """As the archive's store is; without a region pyiceberg would request one at AWS."""
    table.create()
    assert table.run().records == 50
    assert table.offsets() == list(range(50))
    found = table.catalog.properties
    assert (found["s3.endpoint"], found["s3.region"]) == (server.endpoint, "us-east-1")


def test_properties_of_the_catalog_override_the_environment(
    table: MadeTable, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the environment is of another store."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    table.further = {"s3.endpoint": server.endpoint, "s3.region": "us-east-2"}
    table.create()
    assert table.run().records == 50
    assert table.catalog.properties["s3.region"] == "us-east-2"


def test_wrong_keys_are_the_operators_mistake(table: MadeTable) -> None:
    """A scheduler would run it again and again after another exit code."""
    table.further = {"s3.access-key-id": "local-admin", "s3.secret-access-key": "wrong"}
    with pytest.raises(AccessDenied, match=r"s3\.access-key-id below `catalog`"):
        table.create()


def test_a_table_that_exists_gets_no_further_metadata(table: MadeTable, server: S3Server) -> None:
    """A scheduler may create it before each run."""
    assert table.create()
    client = server.client()
    prefix = table.table.location().removeprefix(f"s3://{BUCKET}/")
    there = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["KeyCount"]
    assert not table.create()
    assert client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["KeyCount"] == there
