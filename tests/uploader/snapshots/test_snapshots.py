"""Snapshots of real clusters: what they contain, what a change is, who writes, and which rights they need."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.kafka.tools import CONFIGS, output_of
from tests.uploader.leadership.kraft.secured_brokers import LISTENERS, PASSWORD
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import (
    FIVE_MINUTES,
    HOUR,
    MINUTE,
    Acl,
    Broker,
    ClusterSnapshot,
    GroupOffset,
    GroupsSnapshot,
    Quota,
    Topic,
    User,
)
from ts_common.broker_connection.connection import NoAnswer
from ts_common.broker_connection.security import security_of
from ts_common.config.cluster_config import parse_config
from ts_common.errors import AccessDenied, ObjectNotFound
from ts_common.model import TopicPartition
from ts_common.store.contract import Condition, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_uploader.environment import Environment, ServerPropertiesEnvironment
from ts_uploader.findings import Severity
from ts_uploader.leadership.broker_settings import read_key_store
from ts_uploader.leadership.kraft.listener import client_settings
from ts_uploader.metrics.counters import WRITE_SNAPSHOT, Metrics
from ts_uploader.snapshots.cluster_reader import ClusterReader, TopicsDenied
from ts_uploader.snapshots.snapshot_check import snapshot_findings
from ts_uploader.snapshots.snapshot_writer import SnapshotWriter, open_snapshots
from tsctl.snapshots import changes

KEYS = ClusterKeys("prod", 5)
AT = 1_795_964_400_000  # 2026-11-29T15:00:00Z
GROUP, TOPIC = "snapshot-readers", "snapshot-orders"
URL = {"storage.service.endpoint.url": "file:///tmp"}


@pytest.fixture
def metrics() -> Metrics:
    """Counters of an agent."""
    return Metrics()


def environment_of(cluster: LocalCluster) -> Environment:
    return ServerPropertiesEnvironment(cluster.brokers[1].server_properties, "prod").load()


def fill(cluster: LocalCluster, replicas: list[list[int]]) -> None:
    """Give the cluster one of each: settings of a topic and of brokers, a quota, a group."""
    cluster.create_topic(TOPIC, assignment=replicas, config={"retention.ms": "86400000"})
    admin = cluster.admin()
    offsets = [TheirPartition(TOPIC, 0, 0, metadata="note")]
    changes = [ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)]
    dynamic = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
    for done in admin.incremental_alter_configs([dynamic]).values():
        done.result(30)
    to = ["--bootstrap-server", cluster.bootstrap, "--alter"]
    output_of(CONFIGS, [*to, "--entity-type", "users", "--entity-name", "etl", "--entity-type", "clients",
                        "--entity-default", "--add-config", "producer_byte_rate=1048576"])  # fmt: skip
    output_of(
        CONFIGS,
        [
            *to,
            "--entity-type",
            "brokers",
            "--entity-default",
            "--add-config",
            "log.cleaner.delete.retention.ms=864000000",
        ],
    )

    def committed() -> bool:  # the coordinator may load first
        found = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, offsets)])[GROUP].result(30)
        return all(each.error is None for each in found.topic_partitions)

    wait_for(committed, "the group's offset")


@contextmanager
def store_at(directory: Path) -> Iterator[ObjectStore]:
    directory.mkdir(exist_ok=True)
    with open_store(directory.as_uri()) as store:
        yield store


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_snapshot_has_what_the_cluster_has(
    request: pytest.FixtureRequest, tmp_path: Path, metrics: Metrics, mode: str
) -> None:
    """Kafka 4 with an authorizer, and Kafka 3.9 with ZooKeeper: from the broker's own file to the store."""
    cluster: LocalCluster = request.getfixturevalue({"kraft": "secured_kraft", "zookeeper": "two_brokers"}[mode])
    replicas = [[1]] if mode == "kraft" else [[1, 2], [2, 1]]
    fill(cluster, replicas)
    acl = Acl("TOPIC", TOPIC, "LITERAL", "User:etl", "*", "READ", "ALLOW")
    if mode == "kraft":
        binding = AclBinding(
            ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:etl", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        admin = cluster.admin()
        for done in admin.create_acls([binding]).values():
            done.result(30)
    config, _ = parse_config(URL, "a test")
    with store_at(tmp_path / "store") as store:
        writer = open_snapshots(environment_of(cluster), config, KEYS, lambda: [store], metrics, lambda *_: None)
        assert writer is not None
        writer.write()
        (hour,) = ClusterSnapshot.times(store, KEYS)
        (five_minutes,) = GroupsSnapshot.times(store, KEYS)
        assert (hour % HOUR, five_minutes % FIVE_MINUTES) == (0, 0)
        found, groups = ClusterSnapshot.load(store, KEYS, hour), GroupsSnapshot.load(store, KEYS, five_minutes)
        assert b"hush" not in b"".join(store.get(each.key)[0] for each in store.list())
    assert found is not None
    assert groups is not None
    topic_id = found.topics[TOPIC].id
    directory = cluster.brokers[1].partition_directory(TOPIC, 0)
    assert f"topic_id: {topic_id}" in (directory / "partition.metadata").read_text()
    assert found.topics[TOPIC] == Topic(topic_id, tuple(map(tuple, replicas)), {"retention.ms": "86400000"})
    assert found.topics["__consumer_offsets"].replication_factor == len(replicas)
    own = found.brokers["1"]
    assert (own.host, own.configs) == ("127.0.0.1", {"log.cleaner.threads": "2"})
    assert found.brokers["default"].host is None
    assert (found.brokers["default"].configs or {})["log.cleaner.delete.retention.ms"] == "864000000"
    assert found.quotas == (Quota({"user": "etl", "client-id": None}, {"producer_byte_rate": 1048576.0}),)
    if mode == "kraft":
        assert found.kafka == "4.1"
        assert acl in (found.acls or ())
        assert found.users == (User("agent", {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}),)
    else:
        assert (found.kafka, found.acls, found.users) == ("3.9", (), ())
    assert groups.groups[GROUP] == {TopicPartition(TOPIC, 0): GroupOffset(0, -1, "note\0")}  # as librdkafka writes it


def test_an_identity_without_rights_has_unknown_fields_and_check_names_the_rights(secured_kraft: LocalCluster) -> None:
    """A guest that may describe one topic; null is not an empty list, and `ts-uploader check` names each right."""
    secured_kraft.create_topic("for-guests", assignment=[[1]])
    listener = {"inter.broker.listener.name": "SECRET", **LISTENERS["SECRET"]}
    guest = {"sasl.username": "guest2", "sasl.password": PASSWORD}
    settings = client_settings({**secured_kraft.brokers[1].properties, **listener}, guest, "")
    reader = ClusterReader(lambda: security_of(settings, read_key_store=read_key_store), 1)
    # The brokers' answer about all topics lacks those that are denied: it is the one of a cluster without topics.
    with pytest.raises(TopicsDenied, match="may describe no topic, so no snapshot is written; allow it DESCRIBE"):
        reader.read(AT)
    binding = AclBinding(
        ResourceType.TOPIC, "for-guests", ResourcePatternType.LITERAL, "User:guest2", "*", AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = secured_kraft.admin()
    for done in admin.create_acls([binding]).values():
        done.result(30)
    found: list[tuple[ClusterSnapshot, GroupsSnapshot]] = []

    def is_read() -> bool:  # the broker learns of the ACL later
        with suppress(TopicsDenied):
            found.append(reader.read(AT))
        return bool(found)

    wait_for(is_read, "the right on one topic")
    cluster, groups = found[0]
    assert (cluster.quotas, cluster.acls, cluster.users) == (None, None, None)
    assert {each.configs for each in cluster.brokers.values()} == {None}
    assert ([*cluster.topics], cluster.all_topics, groups.groups) == (["for-guests"], False, {})
    environment = replace(
        environment_of(secured_kraft), broker_properties={**secured_kraft.brokers[1].properties, **listener}
    )
    given = {f"ts.segment.uploader.kafka.client.{key}": value for key, value in guest.items()}
    findings = snapshot_findings(environment, parse_config({**URL, **given}, "a test")[0])
    assert {each.severity for each in findings} == {Severity.WARNING}
    assert [each.way_out.removeprefix("allow this identity ") for each in findings] == [
        "DESCRIBE on all topics",
        "DESCRIBE on the cluster",
        "DESCRIBE_CONFIGS on the cluster",
        "DESCRIBE_CONFIGS on the topics",
        "DESCRIBE on the groups",
    ]
    (fine,) = snapshot_findings(environment, parse_config(URL, "a test")[0])
    assert fine.severity is Severity.OK


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_reading_ends_when_it_is_closed(is_connected: bool) -> None:
    """A broker that accepts and never answers, or one whose host drops the connection's packets; the agent stops."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        address = silent.getsockname()
        held = [] if is_connected else [socket.create_connection(address)]  # no further one is accepted
        reader = ClusterReader(lambda: security_of({"bootstrap.servers": f"127.0.0.1:{address[1]}"}), 1)
        ended: list[str] = []

        def read() -> None:
            try:
                reader.read(AT)
            except NoAnswer as error:
                ended.append(str(error))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            wait_for(lambda: _connects(address[1]), "the reading to begin")
            reader.close()
            thread.join(30)
        finally:
            for each in held:
                each.close()
    (reason,) = ended
    assert "timed out" not in reason
    assert "within" not in reason
    with pytest.raises(NoAnswer, match="it is closed"):
        reader.read(AT)


def _connects(port: int) -> bool:
    """Return whether this process has, or makes, the second connection to a port."""
    states = {psutil.CONN_SYN_SENT, psutil.CONN_ESTABLISHED}
    mine = psutil.Process().net_connections("tcp4")
    return any(each.status in states and each.raddr[1:] == (port,) for each in mine)


def test_a_reading_has_an_end(secured_kraft: LocalCluster) -> None:
    """However many groups the brokers have, and however slowly each answer arrives."""
    settings = client_settings(secured_kraft.brokers[1].properties, {}, "")
    with pytest.raises(NoAnswer):
        ClusterReader(lambda: security_of(settings, read_key_store=read_key_store), 1, seconds=0).read(AT)


def test_check_and_agent_name_what_is_missing_for_a_connection(
    secured_kraft: LocalCluster, store: ObjectStore, metrics: Metrics
) -> None:
    """Without a listener in the broker's file snapshots are off, and the agent runs; an operator can choose that."""
    environment = replace(environment_of(secured_kraft), broker_properties={})
    config, _ = parse_config(URL, "a test")
    (found,) = snapshot_findings(environment, config)
    assert (found.severity, "listeners has no inter-broker listener" in found.found) == (Severity.WARNING, True)
    writer = open_snapshots(environment, config, KEYS, lambda: [store], metrics, lambda *_: None)
    assert writer is not None
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            writer.write()
    assert [each["event"] for each in logs] == ["snapshots_off"]
    assert (writer.failing, list(store.list())) == (None, [])
    off, _ = parse_config({**URL, "ts.segment.uploader.metadata.snapshots": "false"}, "a test")
    assert open_snapshots(environment_of(secured_kraft), off, KEYS, list, metrics, lambda *_: None) is None
    (found,) = snapshot_findings(environment, off)
    assert found.severity is Severity.HINT


class MadeCluster:
    """A cluster whose content a test sets, and which counts how often it is read."""

    def __init__(self) -> None:
        self.topics: Mapping[str, Topic] = {}
        self.error: Exception | None = None
        self.reads = 0

    def read(self, time: int) -> tuple[ClusterSnapshot, GroupsSnapshot]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return ClusterSnapshot(time, 1, "4.1", self.topics, {}, (), (), ()), GroupsSnapshot(time, {})

    def close(self) -> None:
        """End nothing."""


def writer_of(
    cluster: MadeCluster, store: ObjectStore, metrics: Metrics, now: list[int], noted: list[str] | None = None
) -> SnapshotWriter:
    note = (lambda *_: None) if noted is None else lambda _, __, reason: noted.append(reason)
    return SnapshotWriter(KEYS, cluster, lambda: [store], metrics, note, lambda: now[0] / 1000)


def test_one_agent_reads_in_five_minutes_and_a_change_has_a_snapshot_of_its_minute(
    store: ObjectStore, metrics: Metrics
) -> None:
    """Two agents, six rounds of each: two changes, which different agents meet, and the next hour."""
    now, cluster = [AT + 7 * MINUTE + 1], MadeCluster()
    one, two = writer_of(cluster, store, metrics, now), writer_of(cluster, store, metrics, now)
    for changed in (False, True, False, True, False):
        if changed:
            cluster.topics = {**cluster.topics, f"t{len(cluster.topics)}": Topic("a", ((1,),), {})}
        for each in (one, two):
            each.write()
        one, two = two, one
        now[0] += FIVE_MINUTES
    now[0] = AT + HOUR + MINUTE
    one.write()
    assert cluster.reads == 6
    assert ClusterSnapshot.times(store, KEYS) == [AT, AT + 12 * MINUTE, AT + 22 * MINUTE, AT + HOUR]
    assert GroupsSnapshot.times(store, KEYS) == [AT + minutes * MINUTE for minutes in (5, 10, 15, 20, 25, 60)]


def test_what_an_agent_may_not_read_is_no_change() -> None:
    """Two agents with different rights do not write a snapshot in each round; nor does a broker that restarts."""
    topics = {"t": Topic("a", ((1,),), {"retention.ms": "1"})}
    one = ClusterSnapshot(AT, 1, "4.1", topics, {"1": Broker("h", 1, None, {})}, (), (), ())
    assert one.is_like(replace(one, time=AT + 1, broker=2, brokers={"2": Broker("i", 1, None, {})}))
    assert one.is_like(replace(one, topics={"t": Topic("a", ((1,),), None)}, quotas=None, acls=None, users=None))
    others: list[dict[str, Any]] = [
        {"topics": {}},
        {"topics": {"t": Topic("b", ((1,),), {"retention.ms": "1"})}},
        {"topics": {"t": Topic("a", ((1,), (1,)), {"retention.ms": "1"})}},
        {"topics": {"t": Topic("a", ((1,),), {})}},
        {"brokers": {"1": Broker("h", 1, None, {"log.cleaner.threads": "2"})}},
        {"quotas": (Quota({}, {}),)},
        {"users": (User("a", {}),)},
        {"kafka": "4.2"},
    ]
    for other in others:
        assert not one.is_like(replace(one, **other))


@pytest.mark.parametrize("error", [NoAnswer("no route to host"), ValueError("no route to host")])
def test_a_broker_that_fails_ends_nothing_and_the_next_round_writes(
    store: ObjectStore, metrics: Metrics, error: Exception
) -> None:
    """A failure is counted, noted and logged; after three in a row the agent's condition has the reason."""
    now, cluster, noted = [AT], MadeCluster(), list[str]()
    writer = writer_of(cluster, store, metrics, now, noted)
    cluster.error = error
    told = []
    for _ in range(3):
        with structlog.testing.capture_logs() as logs:
            writer.write()
        assert [each["event"] for each in logs] == ["snapshot_not_written"]
        told.append(writer.failing)
        now[0] += FIVE_MINUTES
    reason = "no route to host" if isinstance(error, NoAnswer) else "ValueError: no route to host"
    assert told == [None, None, reason]
    assert noted == [reason] * 3
    assert metrics.errors.labels(WRITE_SNAPSHOT, "other")._value.get() == 3
    assert (list(store.list()), metrics.snapshot_time._value.get()) == ([], 0)
    cluster.error = None
    writer.write()
    assert (writer.failing, metrics.snapshot_time._value.get()) == (None, now[0] / 1000)
    assert ClusterSnapshot.times(store, KEYS) == [AT]


def test_a_round_that_failed_before_the_groups_is_repeated_by_the_next_agent(
    store: ObjectStore, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups' object is written last, so without it no agent counts the five minutes as done."""
    now, cluster = [AT], MadeCluster()
    put = store.put

    def denied(key: str, body: bytes, *, condition: Condition) -> ObjectInfo:
        if "/groups/" in key:
            raise AccessDenied("no")
        return put(key, body, condition=condition)

    monkeypatch.setattr(store, "put", denied)
    writer_of(cluster, store, metrics, now).write()
    monkeypatch.undo()
    assert (ClusterSnapshot.times(store, KEYS), GroupsSnapshot.times(store, KEYS)) == ([AT], [])
    writer_of(cluster, store, metrics, now).write()
    assert (cluster.reads, GroupsSnapshot.times(store, KEYS)) == (2, [AT])


def test_a_store_that_fails_or_is_slow_delays_no_other(
    tmp_path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are read once. The slow store is left alone until its round has ended."""
    noted: list[str] = []
    go_on, now, cluster = threading.Event(), [AT], MadeCluster()

    def slow(key: str) -> ObjectInfo:
        go_on.wait()
        raise ObjectNotFound(key)

    def denied(key: str) -> ObjectInfo:
        raise AccessDenied(f"{key}: no")

    with store_at(tmp_path / "a") as one, store_at(tmp_path / "b") as two, store_at(tmp_path / "c") as three:
        writer = SnapshotWriter(
            KEYS, cluster, lambda: [one, two, three], metrics, lambda _, __, reason: noted.append(reason),
            lambda: now[0] / 1000, seconds=2,
        )  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(one, "head", slow)
            patched.setattr(two, "head", denied)
            writer.write()
            now[0] += FIVE_MINUTES
            writer.write()
        assert GroupsSnapshot.times(three, KEYS) == [AT, AT + FIVE_MINUTES]
        assert cluster.reads == 2
        assert sorted(noted) == sorted(
            [
                f"{one.location}: not written in 2 s",
                f"{one.location}: the round before has not ended",
                *(f"{GroupsSnapshot.key(KEYS, at)}: no" for at in (AT, AT + FIVE_MINUTES)),
            ]
        )
        go_on.set()
        wait_for(lambda: GroupsSnapshot.times(one, KEYS) == [AT], "the slow store's round")
        now[0] += FIVE_MINUTES
        wait_for(lambda: not writer._busy, "its end")
        writer.write()
        times = [GroupsSnapshot.times(each, KEYS) for each in (one, two, three)]
    assert [each[-1] for each in times] == [AT + 2 * FIVE_MINUTES] * 3
    assert (writer.failing, metrics.snapshot_time._value.get()) == (None, now[0] / 1000)


def test_close_ends_a_round_whose_store_does_not_answer(
    store: ObjectStore, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stops; it is no failure."""
    asked, go_on = threading.Event(), threading.Event()

    def slow(key: str) -> ObjectInfo:
        asked.set()
        go_on.wait()
        raise ObjectNotFound(key)

    monkeypatch.setattr(store, "head", slow)
    noted: list[str] = []
    writer = writer_of(MadeCluster(), store, metrics, [AT], noted)
    thread = threading.Thread(target=writer.write, daemon=True)
    thread.start()
    assert asked.wait(60)
    writer.close()
    thread.join(60)
    go_on.set()
    assert (thread.is_alive(), noted) == (False, [])


def test_a_snapshot_without_every_topic_is_no_change() -> None:
    """An agent with fewer rights neither removes topics nor adds them again."""
    whole = ClusterSnapshot(AT, 1, "4.1", {name: Topic("a", ((1,),), {}) for name in "tu"}, {}, (), (), ())
    part = replace(whole, topics={"t": whole.topics["t"]}, all_topics=False)
    assert whole.is_like(part)
    assert part.is_like(whole)
    assert not part.is_like(replace(whole, topics={}))
    assert list(changes(whole, part)) == list(changes(part, whole)) == []
    assert list(changes(part, replace(part, all_topics=True))) == []
    assert {each.kind for each in changes(whole, replace(part, all_topics=True))} == {"topic"}


@pytest.mark.parametrize(("damaged", "written"), [(AT - HOUR, AT), (AT, AT + 7 * MINUTE), (AT + 2 * MINUTE, AT)])
def test_a_damaged_snapshot_does_not_prevent_the_next(
    store: ObjectStore, metrics: Metrics, damaged: int, written: int
) -> None:
    """If it has the name of this hour, the round writes the object of its minute."""
    now, cluster = [AT + 7 * MINUTE], MadeCluster()
    store.put(ClusterSnapshot.key(KEYS, damaged), b"damaged")
    writer_of(cluster, store, metrics, now).write()
    found = ClusterSnapshot.load(store, KEYS, written)
    assert found is not None
    assert found.time == now[0]
