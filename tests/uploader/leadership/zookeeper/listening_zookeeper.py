"""Leadership sources and checks over a secured ZooKeeper."""

import json
from collections.abc import Callable, Iterator, Mapping

import pytest

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.kafka.zookeeper_security import PASSWORD
from dev.local.waiting import wait_for
from tests.uploader.leadership.listening import Listener
from ts_common.config.cluster_config import parse_config
from ts_common.config.zookeeper_options import PREFIX
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Severity
from ts_uploader.leadership.contract import LeadershipSource
from ts_uploader.leadership.factory import open_source
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.security import security_of
from ts_uploader.leadership.zookeeper.state import state_path, topic_path

BROKER = 1


TP = TopicPartition("t", 0)


NEVER = 3600.0


class Quick(ZookeeperLeadership):
    session_seconds = 4.0
    refused_seconds = 0.2


def create_topic(zookeeper: ZooKeeper) -> None:
    """Create a broker and a topic that it leads, as Kafka writes them."""
    with zookeeper.client() as client:
        client.create(topic_path(state_path(TP)), json.dumps({"topic_id": "id"}).encode(), makepath=True)
        state = {"leader": BROKER, "leader_epoch": 7, "version": 1, "isr": []}
        client.create(state_path(TP), json.dumps(state).encode(), makepath=True)
        client.create(f"/brokers/ids/{BROKER}", b"{}", makepath=True)


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Start sources that end with the test."""
    started: list[Listener] = []

    def start(connect: str, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Listener:
        environment = Environment("c", BROKER, (), connect, kraft=False)
        security = security_of(properties, overrides or {})
        started.append(Listener(lambda emit: Quick(environment, emit, NEVER, security)))
        started[-1].watch(TP)
        started[-1].thread.start()
        return started[-1]

    yield start
    for listener in started:
        listener.close()


def opened(connect: str, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> LeadershipSource:
    """Open the source as the agent and `check` do."""
    environment = Environment("c", BROKER, (), connect, kraft=False, broker_properties=properties)
    config, _ = parse_config({PREFIX + name: value for name, value in (overrides or {}).items()}, "c.properties")
    return open_source(environment, config, lambda _: None)


def errors_of(connect: str, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> list[str]:
    """Return the findings of `check` that the operator must act on."""
    findings = opened(connect, properties, overrides).examine(frozenset())
    assert PASSWORD not in repr(findings)
    return [finding.found for finding in findings if finding.severity is Severity.ERROR]


def wait_trouble(listener: Listener, text: str) -> None:
    wait_for(lambda: text in (listener.source.trouble or ""), text, state=lambda: listener.source.trouble)
    assert not listener.source.connected
