"""A ZooKeeper with the nodes of a test, and leadership sources that end with the test."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from dev.local.kafka.zookeeper import ZooKeeper
from tests.uploader.leadership.listening import Listener
from tests.uploader.leadership.zookeeper.sources import NEVER, Listen, listener_of
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership


@pytest.fixture(scope="package")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    directory = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeper(directory / "data", directory) as server:
        yield server


@pytest.fixture
def nodes(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client to write nodes with; the next test finds none of them."""
    with zookeeper.client() as client:
        client.delete("/brokers", recursive=True)
        client.delete("/config", recursive=True)
        client.ensure_path("/brokers/topics")
        yield client


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Start sources that end with the test."""
    started: list[Listener] = []

    def start(
        connect: str, kind: type[ZookeeperLeadership] = ZookeeperLeadership, poll_seconds: float = NEVER
    ) -> Listener:
        started.append(listener_of(connect, kind, poll_seconds))
        started[-1].thread.start()
        return started[-1]

    yield start
    for listener in started:
        listener.close()
