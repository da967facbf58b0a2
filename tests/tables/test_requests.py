"""The requests of a run that finds nothing new."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tables.made_tables import MadeTable
from ts_local.kafka.cluster import LocalCluster
from ts_local.proxy.s3 import S3FaultProxy

BUCKET = "requests"
PARTITIONS = 40


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3FaultProxy]:
    with (
        LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="requests") as cluster,
        S3FaultProxy(cluster.s3) as proxy,  # type: ignore[arg-type]
    ):
        for name, value in proxy.environment().items():
            monkeypatch.setenv(name, value)
        yield proxy


def test_a_run_without_news_makes_one_request_for_each_partition(proxy: S3FaultProxy, tmp_path: Path) -> None:
    """It reads each commit, and few objects of the whole cluster; no segment is listed."""
    archive = MadeArchive(f"s3://{BUCKET}/base")
    for partition in range(PARTITIONS):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 10, partition=partition, last_stable_offset=10)
    table = MadeTable(archive, tmp_path / "lake")
    table.create()
    assert table.run().records == 10 * PARTITIONS
    before = len(proxy.requests())
    assert table.run().commits == 0
    made = Counter(
        request.target.partition("?")[0].rpartition("/")[2] or "listing" for request in proxy.requests()[before:]
    )
    assert made["offset.wm"] == PARTITIONS
    assert sum(made.values()) <= PARTITIONS + 10, made
