"""U17: the cluster migrates to KRaft, and ZooKeeper becomes stale. Here with nodes as Kafka writes them."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.waiting import wait_for
from tests.uploader.leadership.listening import Listener
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.migration import MIGRATION, BrokerMigrated
from ts_uploader.leadership.zookeeper.state import state_path
from ts_uploader.messages.observations import Led

BROKER = 1
OFTEN = 0.2  # seconds between two polls
TP, LATER = TopicPartition("t", 0), TopicPartition("t", 1)
REGISTRATION = f"/brokers/ids/{BROKER}"
# The node as the controllers of Kafka 3.9 write it.
STATE_OF_MIGRATION = {"version": 0, "kraft_metadata_offset": 84, "kraft_controller_id": 3000}

Listen = Callable[..., Listener]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    directory = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeper(directory / "data", directory) as server:
        yield server


@pytest.fixture
def nodes(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client, and a topic that the broker leads; the nodes of the test before are deleted."""
    with zookeeper.client() as client:
        for path in ("/brokers", MIGRATION):
            client.delete(path, recursive=True)
        client.create("/brokers/topics/t", json.dumps({"version": 3, "topic_id": "id"}).encode(), makepath=True)
        client.create(state_path(TP), state(5), makepath=True)
        client.ensure_path("/brokers/ids")
        yield client


def state(epoch: int) -> bytes:
    return json.dumps({"leader": BROKER, "leader_epoch": epoch}).encode()


def migrate(nodes: KazooClient) -> None:
    nodes.create(MIGRATION, json.dumps(STATE_OF_MIGRATION).encode())


@pytest.fixture
def listen(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Listen]:
    """Start sources of a broker with the test's log dir; they end with the test."""
    started: list[Listener] = []

    def start(reload: Callable[[], Environment] | None = None) -> Listener:
        environment = Environment("c", BROKER, (tmp_path,), zookeeper.connect, kraft=False, reload=reload)
        listener = Listener(lambda emit: ZookeeperLeadership(environment, emit, OFTEN))
        started.append(listener)
        listener.watch(TP)
        return listener

    yield start
    for listener in started:
        listener.close()


def test_u17_a_broker_that_left_zookeeper_in_a_migration_is_not_reported_as_leader_until_it_returns(
    nodes: KazooClient, listen: Listen
) -> None:
    """While the broker restarts or runs in KRaft mode, nodes can be stale: nothing is reported; the reason is shown."""
    nodes.create(REGISTRATION)
    migrate(nodes)
    listener = listen()
    with capture_logs() as logs:
        listener.thread.start()
        listener.wait_leadership(TP, 5, "id")
        nodes.delete(REGISTRATION)
        wait_for(lambda: not listener.source.connected, "the source to doubt ZooKeeper")
        said = len(listener.said)
        nodes.set(state_path(TP), state(6))  # as the controllers do until the migration is finalised
        listener.watch(TP, LATER)
        wait_for(lambda: [entry for entry in logs if entry["log_level"] == "error"], "an error", state=lambda: logs)
        assert len(listener.said) == said
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == 1
    assert (errors[0]["event"], "process.roles" in errors[0]["message"]) == ("zookeeper_ignored", True)
    assert (MIGRATION in errors[0]["reason"], REGISTRATION in errors[0]["reason"]) == (True, True)
    nodes.create(REGISTRATION)
    listener.wait_leadership(TP, 6, "id")
    assert {entry.leadership.epoch for entry in listener.said[said:] if isinstance(entry, Led)} == {6}
    assert listener.source.connected


def test_u17_an_agent_that_starts_on_a_stale_zookeeper_accepts_nothing_from_it(
    nodes: KazooClient, listen: Listen
) -> None:
    """After the migration, nothing that remains there is reported."""
    migrate(nodes)
    listener = listen()
    with capture_logs() as logs:
        listener.thread.start()
        wait_for(lambda: [entry for entry in logs if entry["log_level"] == "error"], "an error", state=lambda: logs)
    assert not listener.source.connected
    nodes.set(state_path(TP), state(6))
    nodes.create(REGISTRATION)
    listener.wait_leadership(TP, 6, "id")
    assert {entry.leadership.epoch for entry in listener.said if isinstance(entry, Led)} == {6}


@pytest.mark.parametrize(("on_disk", "believed"), [(5, True), (6, False)])
def test_u17_the_disk_shows_that_zookeeper_is_stale_where_nothing_else_does(
    nodes: KazooClient, listen: Listen, tmp_path: Path, on_disk: int, believed: bool
) -> None:
    """`/migration` was deleted: a later epoch on the disk was written by another controller."""
    directory = tmp_path / str(TP)
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n{on_disk} 0\n")
    listener = listen()
    with capture_logs() as logs:
        listener.thread.start()
        if believed:
            listener.wait_leadership(TP, 5, "id")
        else:
            wait_for(lambda: not listener.source.connected and logs, "the source to doubt ZooKeeper")
            wait_for(lambda: [entry for entry in logs if entry["log_level"] == "error"], "an error")
            assert str(TP) in str(logs)
            assert listener.said == []


def test_u17_the_agent_stops_where_the_brokers_own_file_sets_kraft_mode(
    nodes: KazooClient, listen: Listen, tmp_path: Path
) -> None:
    """Its supervisor starts another, which uses the broker; until the file sets KRaft mode, the agent waits."""
    kraft = threading.Event()
    nodes.create(REGISTRATION)
    migrate(nodes)
    listener = listen(lambda: Environment("c", BROKER, (tmp_path,), "", kraft=kraft.is_set()))
    died: list[BaseException] = []

    def run() -> None:
        try:
            listener.source.run()
        except BrokerMigrated as error:
            died.append(error)

    listener.thread = threading.Thread(target=run)
    listener.thread.start()
    listener.wait_leadership(TP, 5, "id")
    nodes.delete(REGISTRATION)
    wait_for(lambda: not listener.source.connected, "the source to doubt ZooKeeper")
    assert died == []
    kraft.set()
    wait_for(lambda: died, "the source to end")
    assert "broker 1 runs in KRaft mode" in str(died[0])
