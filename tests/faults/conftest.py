"""The cluster of faults, archives of its topics, and proxies before its servers."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from tests.faults.crashes.lives import SEED, SOME, History, Past, record
from tests.faults.crashes.runs import Step
from tests.uploader.beside import Archive, archives

ArchiveOf = Callable[..., Archive]
TIMES = 10


@pytest.fixture(scope="package")
def cluster(two_brokers: LocalCluster) -> LocalCluster:
    """Return the cluster that other folders have too."""
    return two_brokers


@pytest.fixture(params=[1, *(pytest.param(time, marks=pytest.mark.full) for time in range(2, TIMES + 1))])
def repetition(request: pytest.FixtureRequest) -> int:
    """The repetition of a fault with a race: one in `make test`, ten in a row in `make test-full`.

    Each repetition has its own topic, whose name ends with this number.
    """
    time: int = request.param
    return time


@pytest.fixture
def archive_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    """Make archives of topics; their agents end with the test."""
    with archives(cluster, tmp_path) as archive:
        yield archive


@pytest.fixture
def mended(cluster: LocalCluster) -> Iterator[None]:
    """After the test, heal every link and run every server with its former settings."""
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
    """Run a proxy without rules before the S3 server; request it before `archive_of`, to let it outlive the agents."""
    assert cluster.s3 is not None
    with S3FaultProxy(cluster.s3) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def past(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Record what the histories of crashes start from."""
    return record(cluster, tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def history_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., History]]:
    """Make histories; each ends with the test at the latest."""
    made: list[History] = []

    def history(**properties: Mapping[str, str]) -> History:
        made.append(History(cluster, tmp_path, **properties))
        return made[-1]

    with ExitStack() as opened:
        yield history
        for each in made:
            opened.enter_context(each)


@pytest.fixture(params=["some", pytest.param("all", marks=(pytest.mark.full, pytest.mark.timeout(2 * 3600)))])
def pairs(request: pytest.FixtureRequest, past: Past) -> list[tuple[Step, Step]]:
    """Return all pairs of steps, or a few of them by a fixed seed."""
    every = list(itertools.combinations_with_replacement(past.steps, 2))
    return every if request.param == "all" else Random(SEED).sample(every, SOME)


@pytest.fixture
def pairs_to_pause(pairs: list[tuple[Step, Step]]) -> list[tuple[Step, Step]]:
    """Return a third of many pairs: a pause differs from a kill at one step, so not every pair is needed."""
    return pairs if len(pairs) <= SOME else Random(SEED).sample(pairs, len(pairs) // 3)
