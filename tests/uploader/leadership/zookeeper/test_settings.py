"""What the ZooKeeper source emits of the settings of topics and brokers."""

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kazoo.client import KazooClient

from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.tools import CONFIGS, output_of
from dev.local.kafka.zookeeper import ZooKeeper
from tests.uploader.leadership.zookeeper.kafka_nodes import BROKER, EVERYONES, SETTINGS, all_of, create, settings
from tests.uploader.leadership.zookeeper.sources import Listen
from ts_common.model import TopicPartition


def test_a_change_of_a_topics_settings_is_reported_by_its_watch(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """Absent, created, changed, empty, deleted: each time exactly the settings that affect retention are emitted."""
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
    """Nodes that a broker writes are read: a topic's settings at its creation, and later changes."""
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
    """Those of all brokers, and those of this one, which have precedence; each is emitted until it is deleted."""
    assert cluster.zookeeper is not None
    listener = listen(cluster.zookeeper.connect)
    listener.wait_overrides(None, {})
    kafka_configs(cluster, "--add-config", "log.retention.ms=600000,log.cleaner.delete.retention.ms=7")
    listener.wait_overrides(None, {"log.retention.ms": "600000", "log.cleaner.delete.retention.ms": "7"})
    configure(cluster, AlterConfigOpType.SET, "700000")
    listener.wait_overrides(None, {"log.retention.ms": "700000", "log.cleaner.delete.retention.ms": "7"})
    kafka_configs(cluster, "--delete-config", "log.retention.ms,log.cleaner.delete.retention.ms")
    listener.wait_overrides(None, {"log.retention.ms": "700000"})
    configure(cluster, AlterConfigOpType.DELETE, None)
    listener.wait_overrides(None, {})


def configure(cluster: LocalCluster, change: AlterConfigOpType, value: str | None) -> None:
    """Change the retention of this broker's topics."""
    entry = ConfigEntry("log.retention.ms", value, incremental_operation=change)
    resource = ConfigResource(ResourceType.BROKER, str(BROKER), incremental_configs=[entry])
    admin = cluster.admin()
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def kafka_configs(cluster: LocalCluster, *arguments: str) -> None:
    """Run Kafka's own tool for all brokers, whose name the Python clients reject."""
    common = ["--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default"]
    output_of(CONFIGS, [*common, *arguments])


def test_settings_of_a_topic_that_is_no_longer_watched_are_not_reported(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """They are dropped with the last partition of their topic, and read again once it has one."""
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
