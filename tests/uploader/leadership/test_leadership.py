import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Set

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id
from structlog.testing import capture_logs

from tests.uploader.listening import Listener
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_local.cluster import LocalCluster
from ts_local.jvm import java_command
from ts_local.waiting import wait_for
from ts_local.zookeeper import ZooKeeper
from ts_uploader.environment import Environment
from ts_uploader.events import Leadership, Led, NotLed
from ts_uploader.findings import Severity
from ts_uploader.leadership.zookeeper.check import zookeeper_findings
from ts_uploader.leadership.zookeeper.connection import Connection
from ts_uploader.leadership.zookeeper.security import Security
from ts_uploader.leadership.zookeeper.source import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.state import Node, ZookeeperState, settings_path, state_path, topic_path
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings

BROKER = 1
NEVER = 3600.0  # a poll that does not come within a test
TP = TopicPartition("t", 0)
STATE = state_path(TP)
TOPIC = topic_path(STATE)
SETTINGS = settings_path("t")
EVERYONES, OWN = "/config/brokers/<default>", f"/config/brokers/{BROKER}"


class Quick(ZookeeperLeadership):
    """A starting ZooKeeper accepts connections that it never answers; kazoo waits for it this long."""

    session_seconds = 3.0


class Impatient(ZookeeperLeadership):
    session_seconds = 1.0
    give_up_seconds = 1.0


Listen = Callable[..., Listener]


def listener_of(
    connect: str, kind: type[ZookeeperLeadership] = ZookeeperLeadership, poll_seconds: float = NEVER
) -> Listener:
    environment = Environment("c", BROKER, (), connect, kraft=False)
    return Listener(lambda emit: kind(environment, emit, poll_seconds))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    directory = tmp_path_factory.mktemp("zookeeper")
    server = ZooKeeper(directory / "data", directory)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def nodes(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client to write nodes with; nothing is left of them after the test."""
    with zookeeper.client() as client:
        client.delete("/brokers", recursive=True)
        client.delete("/config", recursive=True)
        client.ensure_path("/brokers/topics")
        yield client


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Starts sources; they end with the test."""
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


def state(leader: int, epoch: int) -> bytes:
    return json.dumps(
        {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": epoch, "isr": []}
    ).encode()


def topic(topic_id: str | None) -> bytes:
    return json.dumps({"version": 3, "partitions": {}} | ({"topic_id": topic_id} if topic_id else {})).encode()


def settings(**config: object) -> bytes:
    return json.dumps(
        {"version": 1, "config": {key.replace("_", "."): value for key, value in config.items()}}
    ).encode()


def create(nodes: KazooClient, name: str, topic_id: str | None, partitions: int = 1, epoch: int = 0) -> None:
    requests = [
        nodes.create_async(f"/brokers/topics/{name}", topic(topic_id)),
        nodes.create_async(f"/brokers/topics/{name}/partitions"),
    ]
    for partition in range(partitions):
        path = state_path(TopicPartition(name, partition))
        requests.append(nodes.create_async(path.removesuffix("/state")))
        requests.append(nodes.create_async(path, state(BROKER, epoch)))
    for request in requests:
        request.get(timeout=30)


def all_of(name: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(name, partition) for partition in range(partitions)]


def led(listener: Listener, since: int = 0) -> Set[TopicPartition]:
    return {said.partition for said in listener.said[since:] if isinstance(said, Led)}


def test_a_change_of_leader_is_said_by_its_watch(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """Each change reaches the listener without a poll, and a leadership that comes back was first seen anew."""
    create(nodes, "t", "id", epoch=5)
    listener = listen(zookeeper.connect)
    listener.watch(TP)
    first = listener.wait_leadership(TP, 5, "id")
    nodes.set(STATE, state(2, 6))
    wait_for(lambda: listener.last(TP) == NotLed(TP), "broker 2 to lead")
    nodes.set(STATE, state(BROKER, 7))
    assert listener.wait_leadership(TP, 7, "id").seen_at > first.seen_at


def test_u09_a_re_created_topic_is_followed(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """However often a topic is deleted and re-created, an epoch is said with the id of its own incarnation only."""
    create(nodes, "t", "id-0", partitions=3, epoch=0)
    listener = listen(zookeeper.connect)
    listener.watch(*all_of("t", 3))
    for incarnation in range(1, 20):
        nodes.delete(TOPIC, recursive=True)
        create(nodes, "t", f"id-{incarnation}", partitions=3, epoch=incarnation)
    for partition in all_of("t", 3):
        listener.wait_leadership(partition, 19, "id-19")
    assert all(
        said.leadership.topic_id == f"id-{said.leadership.epoch}" for said in listener.said if isinstance(said, Led)
    )


def test_u09_a_real_topic_is_followed_through_its_re_creation(cluster: LocalCluster, listen: Listen) -> None:
    """What a broker writes is understood, and the second topic of a name has another id."""
    assert cluster.zookeeper is not None
    cluster.create_topic("reborn", assignment=[[BROKER]])
    partition = TopicPartition("reborn", 0)
    listener = listen(cluster.zookeeper.connect)
    listener.watch(partition)
    wait_for(lambda: listener.leadership(partition), "the first leadership")
    first = listener.leadership(partition)
    cluster.delete_topic("reborn")
    wait_for(lambda: listener.last(partition) == NotLed(partition), "its end")
    cluster.create_topic("reborn", assignment=[[BROKER]])
    wait_for(
        lambda: listener.leadership(partition) not in {None, first},
        "the second leadership",
        state=lambda: listener.said,
    )
    second = listener.leadership(partition)
    assert first is not None
    assert second is not None
    assert None not in {first[1], second[1]}
    assert first[1] != second[1]


def test_a_node_that_appears_later_is_said(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """A partition without a state is led by nobody until its state appears, also where the topic was absent too."""
    listener = listen(zookeeper.connect)
    listener.watch(TP)
    wait_for(lambda: listener.last(TP) == NotLed(TP), "nobody to lead", state=lambda: listener.said)
    create(nodes, "t", None, epoch=3)
    listener.wait_leadership(TP, 3, None)


def test_a_topic_id_that_comes_later_is_a_new_leadership(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """A cluster that is upgraded writes the id into the topic's node: its partitions are said again."""
    create(nodes, "t", None, partitions=3)
    listener = listen(zookeeper.connect)
    listener.watch(*all_of("t", 3))
    listener.wait_leadership(TopicPartition("t", 2), 0, None)
    nodes.set(TOPIC, topic("id"))
    for partition in all_of("t", 3):
        listener.wait_leadership(partition, 0, "id")


def test_u16_a_session_that_expired(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """Nothing is said while ZooKeeper is silent; after it all is said again, and no leadership is a new one."""
    create(nodes, "t", "id", partitions=5, epoch=2)
    nodes.create(SETTINGS, settings(retention_ms="1"), makepath=True)
    listener = listen(zookeeper.connect, Impatient)
    listener.watch(*all_of("t", 5))
    before = [listener.wait_leadership(partition, 2, "id") for partition in all_of("t", 5)]
    zookeeper.pause()
    wait_for(lambda: not listener.source.connected, "the silence to be noticed")
    said, settings_said = len(listener.said), len(listener.settings)
    lost_at = time.monotonic()
    wait_for(lambda: time.monotonic() > lost_at + 2 * Impatient.session_seconds, "the session to expire")
    assert (len(listener.said), len(listener.settings)) == (said, settings_said)
    zookeeper.resume()
    wait_for(lambda: led(listener, said) == set(all_of("t", 5)), "all to be said again")
    again = {TopicSettings("t", (("retention.ms", "1"),)), BrokerSettings(())}
    wait_for(lambda: set(listener.settings[settings_said:]) == again, "the settings to be said again")
    assert [listener.wait_leadership(partition, 2, "id") for partition in all_of("t", 5)] == before
    nodes.set(STATE, state(2, 3))
    wait_for(lambda: listener.last(TP) == NotLed(TP), "the watches to be there again")


def test_u16_zookeeper_restored_from_nothing(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """An ensemble that counts its transactions anew refuses kazoo's client for ever: another one takes over."""
    for epoch in range(3):
        create(nodes, "t", "id", epoch=epoch)
        nodes.delete(TOPIC, recursive=True)
    create(nodes, "t", "id", epoch=5)
    listener = listen(zookeeper.connect, Impatient)
    listener.watch(TP)
    listener.wait_leadership(TP, 5, "id")
    zookeeper.kill()
    shutil.rmtree(zookeeper.directory / "data")
    zookeeper.start()
    with zookeeper.client() as client:
        client.ensure_path("/brokers/topics")
        create(client, "t", "restored", epoch=1)
        listener.wait_leadership(TP, 1, "restored")


def test_u16_stop_does_not_wait_for_zookeeper(listen: Listen) -> None:
    """A source ends soon while nobody listens, and while somebody listens who never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        silent_port, closed_port = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        listeners = [listen(f"127.0.0.1:{port}") for port in (silent_port, closed_port)]
        silent.accept()[0].close()
        stopped_at = time.monotonic()
        for listener in listeners:
            listener.source.stop()
        for listener in listeners:
            listener.thread.join(20)
        assert time.monotonic() < stopped_at + 8
        assert [listener.said for listener in listeners] == [[], []]


def test_a_change_of_a_topics_settings_is_said_by_its_watch(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """Absent, created, changed, empty, deleted: each time all that bears on retention is said, and nothing else."""
    create(nodes, "t", "id", partitions=2)
    listener = listen(zookeeper.connect)
    listener.watch(*all_of("t", 2))
    listener.wait_overrides("t", {})
    nodes.create(SETTINGS, settings(retention_ms="60000", segment_bytes="1000"), makepath=True)
    listener.wait_overrides("t", {"retention.ms": "60000"})
    nodes.set(SETTINGS, settings(cleanup_policy="compact", delete_retention_ms="5"))
    listener.wait_overrides("t", {"cleanup.policy": "compact", "delete.retention.ms": "5"})
    nodes.set(SETTINGS, b"")
    listener.wait_overrides("t", {})
    nodes.set(SETTINGS, settings(retention_bytes="7"))
    listener.wait_overrides("t", {"retention.bytes": "7"})
    nodes.delete(SETTINGS)
    listener.wait_overrides("t", {})


def test_a_change_by_kafka_configs_is_seen(cluster: LocalCluster, listen: Listen) -> None:
    """What a broker writes is understood: a topic's settings at its creation, and those that are altered later."""
    assert cluster.zookeeper is not None
    cluster.create_topic("kept", assignment=[[BROKER]], config={"retention.ms": "3600000", "segment.bytes": "60000"})
    listener = listen(cluster.zookeeper.connect)
    listener.watch(TopicPartition("kept", 0))
    listener.wait_overrides("kept", {"retention.ms": "3600000"})
    cluster.alter_config("kept", {"retention.ms": "7200000", "cleanup.policy": "compact,delete"})
    listener.wait_overrides("kept", {"retention.ms": "7200000", "cleanup.policy": "compact,delete"})
    cluster.delete_topic("kept")
    listener.wait_overrides("kept", {})


def test_a_brokers_dynamic_settings_are_seen(cluster: LocalCluster, listen: Listen) -> None:
    """Those of all brokers, and those of this one, which win; each is said until it is taken back."""
    assert cluster.zookeeper is not None
    everyones, own = ["--entity-default"], ["--entity-name", str(BROKER)]
    listener = listen(cluster.zookeeper.connect)
    listener.wait_overrides(None, {})
    kafka_configs(cluster, *everyones, "--add-config", "log.retention.ms=600000,log.cleaner.delete.retention.ms=7")
    listener.wait_overrides(None, {"log.retention.ms": "600000", "log.cleaner.delete.retention.ms": "7"})
    kafka_configs(cluster, *own, "--add-config", "log.retention.ms=700000")
    listener.wait_overrides(None, {"log.retention.ms": "700000", "log.cleaner.delete.retention.ms": "7"})
    kafka_configs(cluster, *everyones, "--delete-config", "log.retention.ms,log.cleaner.delete.retention.ms")
    listener.wait_overrides(None, {"log.retention.ms": "700000"})
    kafka_configs(cluster, *own, "--delete-config", "log.retention.ms")
    listener.wait_overrides(None, {})


def kafka_configs(cluster: LocalCluster, *arguments: str) -> None:
    """Kafka's own tool, for brokers: the clients for Python refuse the name of "all brokers"."""
    common = ["--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "brokers"]
    command = java_command("3.9", "kafka.admin.ConfigCommand", [*common, *arguments])
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_settings_of_a_topic_that_is_no_longer_wanted_are_not_said(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """They go with the last partition of their topic, and are read anew where one comes back."""
    first, second = all_of("t", 2)
    create(nodes, "t", "id", partitions=2)
    listener = listen(zookeeper.connect)
    listener.watch(first, second)
    listener.wait_overrides("t", {})
    listener.watch(second)
    nodes.create(SETTINGS, settings(retention_ms="1"), makepath=True)
    listener.wait_overrides("t", {"retention.ms": "1"})
    listener.watch()
    nodes.set(SETTINGS, settings(retention_ms="2"))
    nodes.create(EVERYONES, settings(log_retention_ms="3"), makepath=True)
    listener.wait_overrides(None, {"log.retention.ms": "3"})
    assert listener.overrides("t") == {"retention.ms": "1"}
    listener.watch(first)
    listener.wait_overrides("t", {"retention.ms": "2"})


def test_settings_that_may_not_be_read_are_no_alarm(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """With `zookeeper.set.acl` the brokers' are refused: one warning, all else is said, and so are they once mended."""
    create(nodes, "t", "id")
    nodes.create(OWN, settings(log_retention_ms="1", password="secret"), makepath=True)
    nodes.set_acls(OWN, [ACL(0x1F & ~1, Id("world", "anyone"))])
    with capture_logs() as logs:
        listener = listen(zookeeper.connect, poll_seconds=0.1)
        listener.watch(TP)
        listener.wait_leadership(TP, 0, "id")
        polled = len(listener.settings)
        wait_for(lambda: len(listener.settings) > polled + 3, "some polls")
        assert listener.overrides("t") == {}
        assert listener.overrides(None) is None
        nodes.set_acls(OWN, OPEN_ACL_UNSAFE)
        listener.wait_overrides(None, {"log.retention.ms": "1"})
    said = [(entry["log_level"], entry["paths"]) for entry in logs if "paths" in entry]
    assert said == [("warning", [OWN])]


@pytest.mark.parametrize("path", [SETTINGS, OWN])
@pytest.mark.parametrize(
    "bad",
    [
        b"null",
        b'{"config": []}',
        b'{"a": "secret"',
        b"\xff",
        settings(retention_ms=1, log_retention_ms=1),
        settings(retention_ms=None, log_retention_ms=None),
    ],
)
def test_settings_that_are_not_kafkas_are_survived(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen, path: str, bad: bytes
) -> None:
    """An error names the path, leadership goes on, and nothing is said of them until the node is well again."""
    topic = "t" if path == SETTINGS else None
    create(nodes, "t", "id")
    nodes.create(path, bad, makepath=True)
    with capture_logs() as logs:
        listener = listen(zookeeper.connect)
        listener.watch(TP)
        listener.wait_leadership(TP, 0, "id")
        wait_for(lambda: any(entry.get("path") == path for entry in logs), "the error", state=lambda: logs)
    errors = [entry for entry in logs if entry.get("path") == path]
    assert {(entry["log_level"], entry["found"]) for entry in errors} == {("error", bad if topic else None)}
    assert listener.overrides(topic) is None
    nodes.set(path, settings(retention_ms="1", log_retention_ms="1"))
    listener.wait_overrides(topic, {"retention.ms" if topic else "log.retention.ms": "1"})


NO_OBJECTS = [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000]
STATES = [b"{}", b'{"leader": 1}', b'{"leader": "1", "leader_epoch": 1}', b'{"leader": true, "leader_epoch": 1}']
STATES += [b'{"leader": 1, "leader_epoch": 2147483648}', b'{"leader": 1, "leader_epoch": -1}']
TOPICS = [b'{"topic_id": 1}', b'{"topic_id": "a\\u001b[2J"}', b'{"topic_id": "%s"}' % (b"a" * 65)]


@pytest.mark.parametrize(
    ("path", "bad"),
    [(path, bad) for path in (STATE, TOPIC) for bad in NO_OBJECTS]
    + [(STATE, bad) for bad in STATES]
    + [(TOPIC, bad) for bad in TOPICS],
)
def test_a_node_that_is_not_kafkas_is_survived(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen, path: str, bad: bytes
) -> None:
    """An error names the path, nothing is said of the partition until the node is well again, and others go on."""
    well = topic("id") if path == TOPIC else state(BROKER, 1)
    other = TopicPartition("other", 0)
    create(nodes, "t", "id", epoch=1)
    create(nodes, "other", "id")
    nodes.set(path, bad)
    with capture_logs() as logs:
        listener = listen(zookeeper.connect)
        listener.watch(TP, other)
        wait_for(lambda: any(entry.get("path") == path for entry in logs), "the error", state=lambda: logs)
        listener.wait_leadership(other, 0, "id")
    assert {entry["log_level"] for entry in logs if entry.get("path") == path} == {"error"}
    assert listener.last(TP) is None
    nodes.set(path, well)
    listener.wait_leadership(TP, 1, "id")


def test_a_node_that_may_not_be_read_is_said_and_tried_on(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """An ACL without read is an error that names the path, others go on, and once it is mended all are said."""
    create(nodes, "t", "id", partitions=2, epoch=4)
    nodes.set_acls(STATE, [ACL(0x1F & ~1, Id("world", "anyone"))])
    with capture_logs() as logs:
        listener = listen(zookeeper.connect)
        listener.watch(*all_of("t", 2))
        listener.wait_leadership(TopicPartition("t", 1), 4, "id")
        wait_for(lambda: any(entry["log_level"] == "error" and STATE in entry["paths"] for entry in logs), "the error")
    assert listener.last(TP) is None
    nodes.set_acls(STATE, OPEN_ACL_UNSAFE)
    listener.wait_leadership(TP, 4, "id")


def test_u18_threads_do_not_grow(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """2,000 partitions cost no thread of their own, neither at first nor after two restarts of ZooKeeper."""
    create(nodes, "big", "id", partitions=1700)
    create(nodes, "small", "id", partitions=300)
    partitions = [*all_of("big", 1700), *all_of("small", 300)]
    listener = listen(zookeeper.connect, Quick)
    wait_for(lambda: listener.source.connected, "the session")
    threads = threading.active_count()
    listener.watch(*partitions)
    wait_for(lambda: led(listener) == set(partitions), "all to be said")
    assert threading.active_count() <= threads
    for _ in range(2):
        listener.said.clear()
        zookeeper.kill()
        wait_for(lambda: not listener.source.connected, "the loss to be noticed")
        zookeeper.start()
        wait_for(lambda: led(listener) == set(partitions), "all to be said again")
        assert threading.active_count() <= threads


@pytest.mark.parametrize("connect", ["localhost:abc", "localhost:99999", "", "a..b:2181", "[::1:2181"])
def test_a_bad_address_is_a_configuration_error(connect: str) -> None:
    """What kazoo cannot take is refused at once, with the key and the value."""
    with pytest.raises(ConfigurationError) as refused:
        listener_of(connect)
    assert refused.value.source == "zookeeper.connect"
    assert repr(connect) in str(refused.value)


def knowledge(topic_node: Node | None) -> ZookeeperState:
    known = ZookeeperState(BROKER)
    known.follow({TP})
    known.take_topic(TOPIC, topic_node)
    return known


def test_an_answer_older_than_what_is_known_does_not_win() -> None:
    """A server that lags shows a leadership that ended, or another leader's that ended: neither is believed."""
    known = knowledge(Node(topic("id"), 10, 10))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 1) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, Node(state(2, 4), 20, 40), 2) is None
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 3) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, Node(state(2, 6), 20, 60), 4) == NotLed(TP)
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 5) is None
    known.forget_versions()
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 6) == Led(TP, Leadership(5, "id", 6))


def test_a_re_created_node_is_newer_than_the_deleted_one() -> None:
    """After an absence a later transaction counts, and one from before it does not."""
    known = knowledge(Node(topic("id"), 10, 10))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 1) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, None, 2) == NotLed(TP)
    assert known.take_state(STATE, Node(state(BROKER, 4), 20, 40), 3) is None
    assert known.take_state(STATE, Node(state(BROKER, 0), 60, 60), 4) == Led(TP, Leadership(0, "id", 4))


def test_an_absent_topic_is_unknown_and_not_a_topic_without_an_id() -> None:
    """Without the topic's node nothing is said of a state that names us; without a state nobody leads."""
    known = knowledge(None)
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 20), 1) is None
    assert known.take_state(STATE, None, 2) == NotLed(TP)
    assert known.take_topic(TOPIC, Node(topic(None), 30, 30)) == {STATE}
    assert known.take_state(STATE, Node(state(BROKER, 0), 40, 40), 3) == Led(TP, Leadership(0, None, 3))


def test_a_state_of_a_former_incarnation_does_not_meet_the_new_id() -> None:
    """A state that was created before its topic was is left over from the topic of that name before."""
    known = knowledge(Node(topic("new"), 30, 30))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 25), 1) is None
    assert known.take_state(STATE, Node(state(BROKER, 0), 40, 40), 2) == Led(TP, Leadership(0, "new", 2))


def test_settings_older_than_what_is_known_do_not_win() -> None:
    """A server that lags shows what a topic's settings were: that is not believed."""
    known = knowledge(None)
    now = TopicSettings("t", (("retention.ms", "2"),))
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="2"), 20, 50)) == now
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="1"), 20, 40)) is None
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="2"), 20, 50)) == now


def test_a_brokers_settings_are_said_once_both_levels_are_known() -> None:
    """Half of them would for a moment undo what the other half says."""
    known = ZookeeperState(BROKER)
    own = Node(settings(log_retention_ms="1"), 20, 20)
    everyones = Node(settings(log_retention_ms="2", log_cleanup_policy="compact"), 30, 30)
    assert known.settings == {EVERYONES, OWN}
    assert known.take_settings(OWN, own) is None
    expected = BrokerSettings((("log.cleanup.policy", "compact"), ("log.retention.ms", "1")))
    assert known.take_settings(EVERYONES, everyones) == expected
    expected = BrokerSettings((("log.cleanup.policy", "compact"), ("log.retention.ms", "2")))
    assert known.take_settings(OWN, None) == expected
    assert known.take_settings(EVERYONES, everyones) == expected


def test_each_topics_settings_are_followed_once() -> None:
    """New with the first partition of its topic, gone with the last."""
    known = ZookeeperState(BROKER)
    first, second = all_of("t", 2)
    assert known.follow({first}) == {state_path(first), SETTINGS}
    assert known.follow({first, second}) == {state_path(second)}
    assert known.follow({second}) == set()
    assert SETTINGS in known.settings
    assert known.follow(set()) == set()
    assert known.settings == {EVERYONES, OWN}
    assert known.follow({first}) == {state_path(first), SETTINGS}


@pytest.mark.parametrize("bad", [*NO_OBJECTS, b'{"id": 5}', b'{"id": "\\ud800"}'])
def test_a_cluster_id_that_is_not_kafkas_ends_no_check(zookeeper: ZooKeeper, nodes: KazooClient, bad: bytes) -> None:
    """It is a hint, and the check goes on to the broker."""
    nodes.ensure_path("/brokers/ids")
    nodes.ensure_path("/cluster/id")
    nodes.set("/cluster/id", bad)
    environment = Environment("c", BROKER, (), zookeeper.connect, kraft=False)
    security = Security()
    connection = Connection(zookeeper.connect, security)
    found = zookeeper_findings(connection, security, environment, frozenset())
    assert [finding.severity for finding in found] == [Severity.HINT, Severity.ERROR]
