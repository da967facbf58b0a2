"""Nodes that Kafka did not write, and nodes that ZooKeeper denies."""

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id
from structlog.testing import capture_logs

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.waiting import wait_for
from tests.uploader.leadership.zookeeper.kafka_nodes import (
    BROKER,
    OWN,
    SETTINGS,
    STATE,
    TOPIC,
    TP,
    all_of,
    create,
    settings,
    state,
    topic,
)
from tests.uploader.leadership.zookeeper.sources import Listen
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Severity
from ts_uploader.leadership.zookeeper.connection import Connection
from ts_uploader.leadership.zookeeper.connection_check import zookeeper_findings
from ts_uploader.leadership.zookeeper.security import Security

NO_OBJECTS = [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000]
STATES = [b"{}", b'{"leader": 1}', b'{"leader": "1", "leader_epoch": 1}', b'{"leader": true, "leader_epoch": 1}']
STATES += [b'{"leader": 1, "leader_epoch": 2147483648}', b'{"leader": 1, "leader_epoch": -1}']
TOPICS = [b'{"topic_id": 1}', b'{"topic_id": "a\\u001b[2J"}', b'{"topic_id": "%s"}' % (b"a" * 65)]


def test_settings_that_may_not_be_read_are_no_alarm(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """With `zookeeper.set.acl` the brokers' settings are denied: one warning; once the ACL is mended, they follow."""
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
    """An error names the path, leadership continues, and the settings are emitted once the node is valid again."""
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


@pytest.mark.parametrize(
    ("path", "bad"),
    [(path, bad) for path in (STATE, TOPIC) for bad in NO_OBJECTS]
    + [(STATE, bad) for bad in STATES]
    + [(TOPIC, bad) for bad in TOPICS],
)
def test_a_node_that_is_not_kafkas_is_survived(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen, path: str, bad: bytes
) -> None:
    """An error names the path, the partition is reported once the node is valid again, and others continue."""
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


def test_a_node_that_may_not_be_read_is_reported_and_retried(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """An ACL without read is an error that names the path; others continue, and all are reported once it is mended."""
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


@pytest.mark.parametrize("bad", [*NO_OBJECTS, b'{"id": 5}', b'{"id": "\\ud800"}'])
def test_a_cluster_id_that_is_not_kafkas_ends_no_check(zookeeper: ZooKeeper, nodes: KazooClient, bad: bytes) -> None:
    """It is a hint, and the check continues with the broker."""
    nodes.ensure_path("/brokers/ids")
    nodes.ensure_path("/cluster/id")
    nodes.set("/cluster/id", bad)
    environment = Environment("c", BROKER, (), zookeeper.connect, kraft=False)
    security = Security()
    connection = Connection(zookeeper.connect, security)
    found = zookeeper_findings(connection, security, environment, frozenset())
    assert [finding.severity for finding in found] == [Severity.HINT, Severity.ERROR]
