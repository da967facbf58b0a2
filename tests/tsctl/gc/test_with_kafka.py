"""What a policy reads from a running cluster: the retention of topics, and the committed offsets of groups."""

import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import AdminClient

from dev.local.kafka.cluster import LocalCluster, Record
from tests.made_archive import CLUSTER, MadeArchive
from ts_common.archive.incarnations import Incarnations
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from tsctl.gc.due import Rule
from tsctl.gc.needed import Readers
from tsctl.gc.policy import TopicKeeping, parse_policy
from tsctl.gc.retention import NeededFrom
from tsctl.verify.kafka_cluster import KafkaCluster

DAY = 86_400_000
NOW = int(time.time() * 1000)


@pytest.fixture(scope="module")
def cluster(one_broker: LocalCluster) -> LocalCluster:
    """Return a broker with topic `t`: partition 0 has 100 records of twenty days ago, and 100 of now."""
    config = {"retention.ms": str(90 * DAY), "retention.bytes": "1000000", "segment.bytes": "100000"}
    one_broker.create_topic("t", partitions=2, config=config)
    one_broker.create_topic("compacted", config={"cleanup.policy": "compact", "retention.ms": "5"})
    for age in (20 * DAY, 0):
        records = [Record(b"v", key=b"k", timestamp=NOW - age) for _ in range(100)]
        one_broker.produce("t", records, partition=0)
    return one_broker


@pytest.fixture
def kafka(cluster: LocalCluster) -> KafkaCluster:
    return KafkaCluster(cluster.bootstrap, {})


def commit(cluster: LocalCluster, group: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TheirPartition("t", 0, offset)])
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        assert [each.error for each in future.result().topic_partitions] == [None]


def test_retention_is_that_of_the_running_cluster(kafka: KafkaCluster) -> None:
    """By its topics' settings; a topic that is only compacted has none."""
    rules = [{"topics": ".*", "as_in_kafka": True}]
    (rule,) = parse_policy({"cluster": CLUSTER, "rules": rules}, "policy").rules
    found = {name: TopicKeeping.of(settings) for name, settings in kafka.settings(["t", "compacted"]).items()}
    assert {name: rule.resolve(keeping) for name, keeping in found.items()} == {
        "t": Rule(90 * DAY, 1_000_000, 7 * DAY),
        "compacted": Rule(None, None, 7 * DAY),
    }


def test_a_group_of_the_cluster_needs_what_it_has_not_committed(
    cluster: LocalCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """It is overdue while it has not read the old records; the topic id names the incarnation."""
    archive = MadeArchive(tmp_path / "archive")
    topic_id = kafka.topics()["t"].topic_id
    assert topic_id is not None
    readers = [{"kafka_group": "billing"}]
    rules = [{"topics": "t", "max_age": "1d", "until_read_by": readers, "longest_wait": "10d"}]
    (rule,) = parse_policy({"cluster": CLUSTER, "rules": rules}, "policy").rules

    def needed(partition: int = 0, directory: str | None = None) -> NeededFrom | None:
        keys = archive.keys.partition(TopicPartition("t", partition), directory)
        return Readers(archive.store, archive.keys, kafka).needed(rule).first_needed(keys, NOW)

    with pytest.raises(ConfigurationError, match="kafka_group: billing: the running cluster has no committed offsets"):
        needed()
    commit(cluster, "billing", 30)
    assert needed() == NeededFrom(30, "kafka_group billing", overdue=True)
    commit(cluster, "billing", 100)
    assert needed() == NeededFrom(100, "kafka_group billing", overdue=False)
    unread = "kafka_group billing (it has read nothing of {})"
    assert needed(partition=1) == NeededFrom(0, unread.format("t-1"), overdue=False)
    cases: list[tuple[tuple[str, ...], dict[str, tuple[int, str] | None]]] = [
        (("OLD", topic_id), {f"t~{topic_id}": (100, "kafka_group billing"), "t": None}),
        ((topic_id, "NEW"), {"t": (100, "kafka_group billing"), "t~NEW": (0, unread.format("t~NEW-0"))}),
        (("OLD",), {"t": (0, unread.format("t-0"))}),
    ]
    for topic_ids, expected in cases:
        lives = Incarnations("t")
        for each in topic_ids:
            lives = lives.opened(each, NOW, archive.keys)
        archive.store.put(archive.keys.incarnations("t"), lives.encode())
        found = {directory: needed(directory=directory) for directory in expected}
        assert {name: need and (need.offset, need.reader) for name, need in found.items()} == expected
