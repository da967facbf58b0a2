"""The requests of a run that finds nothing new."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from tests.made_archive import MadeArchive, batches
from tests.tables.made_tables import MadeTable
from ts_tables.files.layout import FileFormat

BUCKET = "requests"
PARTITIONS = 20


@pytest.fixture(scope="module")
def proxy() -> Iterator[S3FaultProxy]:
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="requests") as cluster,
        S3FaultProxy(cluster.s3) as proxy,  # type: ignore[arg-type]
    ):
        for name, value in proxy.environment().items():
            patch.setenv(name, value)
        yield proxy


@pytest.mark.parametrize("form", [None, FileFormat.PARQUET])
def test_a_run_without_news_makes_one_request_for_each_partition(
    proxy: S3FaultProxy, tmp_path: Path, form: FileFormat | None
) -> None:
    """It reads each commit, and few objects of the whole cluster; no segment is listed. Plain files cost two more."""
    archive = MadeArchive(f"s3://{BUCKET}/{tmp_path.name}/base")
    for partition in range(PARTITIONS):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 10, partition=partition, last_stable_offset=10)
    table = MadeTable(archive, tmp_path / "lake", format=form, location=f"s3://{BUCKET}/{tmp_path.name}/files")
    table.create()
    assert table.run().records == 10 * PARTITIONS
    before = len(proxy.requests())
    assert table.run().commits == 0
    made = Counter(
        request.target.partition("?")[0].rpartition("/")[2] or "listing" for request in proxy.requests()[before:]
    )
    assert made["offset.wm"] == PARTITIONS
    assert sum(made.values()) <= PARTITIONS + 10, made
    if form is not None:
        own = [one for one in proxy.requests()[before:] if "/files/" in one.target]
        assert [one.method for one in own] == ["GET", "GET"]  # the list of files, and the next entry
