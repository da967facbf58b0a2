"""One cluster for the folder: two brokers that roll their segments at different sizes, ZooKeeper, an S3 server.

A test that stops, kills or pauses a server starts it again before it ends, whatever became of the test.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, Archive, archives
from ts_local.cluster import LocalCluster
from ts_local.proxy.s3 import S3FaultProxy

ArchiveOf = Callable[..., Archive]
TIMES = 10


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """See `SMALL_FETCHES` and `ROLLS`."""
    with LocalCluster(
        brokers=2,
        s3=True,
        buckets=[BUCKET],
        properties={
            **SMALL_FETCHES,
            "replica.high.watermark.checkpoint.interval.ms": "500",
            "zookeeper.session.timeout.ms": "2000",
            "log.cleaner.backoff.ms": "500",
            "log.retention.check.interval.ms": "1000",
            # Where DeleteRecords moved the log start to, every minute in production.
            "log.flush.start.offset.checkpoint.interval.ms": "1000",
            # Tests stop brokers that hold the only copy of these.
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
        },
        broker_properties=ROLLS,
        name="faults",
    ) as cluster:
        yield cluster


@pytest.fixture(params=[1, *(pytest.param(time, marks=pytest.mark.full) for time in range(2, TIMES + 1))])
def repetition(request: pytest.FixtureRequest) -> int:
    """Which time it is for a fault with a race in it: once in `make test`, ten times in a row in `make test-full`.

    Each time has a topic of its own; end its name with this.
    """
    time: int = request.param
    return time


@pytest.fixture
def archive_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    """Makes archives of topics; their agents end with the test."""
    with archives(cluster, tmp_path) as archive:
        yield archive


@pytest.fixture
def mended(cluster: LocalCluster) -> Iterator[None]:
    """After the test every link flows, and every server runs with the settings that it had before."""
    settings = {broker.id: dict(broker.properties) for broker in cluster.brokers.values()}
    yield
    for link in cluster.links.values():
        link.heal()
    for server in cluster.servers:
        if server.alive and server.paused:
            server.resume()
    if cluster.zookeeper is not None:
        cluster.zookeeper.start()
    for broker in cluster.brokers.values():
        if broker.properties != settings[broker.id]:
            broker.properties = settings[broker.id]
            broker.stop()
        if not broker.alive:
            broker.launch()
    for broker in cluster.brokers.values():
        broker.wait_ready()


@pytest.fixture
def proxy(cluster: LocalCluster) -> Iterator[S3FaultProxy]:
    """Before the S3 server, without a rule; ask for it before `archive_of`, so that it outlives the agents."""
    assert cluster.s3 is not None
    with S3FaultProxy(cluster.s3) as proxy:
        yield proxy
