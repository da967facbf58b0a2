"""What the ZooKeeper source emits when nodes change."""

import pytest
from kazoo.client import KazooClient

from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.waiting import wait_for
from tests.uploader.leadership.zookeeper.kafka_nodes import BROKER, STATE, TOPIC, TP, all_of, create, state, topic
from tests.uploader.leadership.zookeeper.sources import Listen, listener_of
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft import deleted_topics
from ts_uploader.messages.observations import Led, NotLed


def test_a_change_of_leader_is_reported_by_its_watch(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """Each change is reported without a poll, and a leadership that returns is a new one."""
    create(nodes, "t", "id", epoch=5)
    listener = listen(zookeeper.connect)
    listener.watch(TP)
    first = listener.wait_leadership(TP, 5, "id")
    nodes.set(STATE, state(2, 6))
    wait_for(lambda: listener.last(TP) == NotLed(TP), "broker 2 to lead")
    nodes.set(STATE, state(BROKER, 7))
    assert listener.wait_leadership(TP, 7, "id").seen_at > first.seen_at


def test_u09_a_re_created_topic_is_followed(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """However often a topic is re-created, each epoch is reported with the id of its own incarnation only."""
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
    """Nodes that a broker writes are read, and the second topic of a name has another id."""
    assert cluster.zookeeper is not None
    cluster.create_topic("created-again", assignment=[[BROKER]])
    partition = TopicPartition("created-again", 0)
    listener = listen(cluster.zookeeper.connect)
    listener.watch(partition)
    wait_for(lambda: listener.leadership(partition), "the first leadership")
    first = listener.leadership(partition)
    cluster.delete_topic("created-again")
    wait_for(lambda: listener.last(partition) == NotLed(partition), "its end")
    cluster.create_topic("created-again", assignment=[[BROKER]])
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


def test_u45_another_topic_id_counts_once_it_is_read_twice(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is behind has an older id; the id that the node has is not deleted until it is marked."""
    create(nodes, "t", "id", epoch=5)
    listener = listen(zookeeper.connect)
    listener.watch(TP)
    listener.wait_leadership(TP, 5, "id")
    is_deleted = listener.source.is_deleted
    assert is_deleted("t", "id") is None
    wait_for(lambda: is_deleted("t", "id") is False, "the answer of the live id")
    monkeypatch.setattr(deleted_topics, "_APART_SECONDS", 0.0)
    wait_for(lambda: is_deleted("t", "other"), "the second answer of the other id")
    assert is_deleted("t", "id") is False
    nodes.create("/admin/delete_topics/t", makepath=True)
    wait_for(lambda: is_deleted("t", "id"), "the mark for deletion")
    assert is_deleted("absent", "id") is None
    wait_for(lambda: is_deleted("absent", "id"), "the absence")


def test_a_node_that_appears_later_is_reported(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """A partition without a state is not led until its state appears, even if the topic was absent too."""
    listener = listen(zookeeper.connect)
    listener.watch(TP)
    wait_for(lambda: listener.last(TP) == NotLed(TP), "nobody to lead", state=lambda: listener.said)
    create(nodes, "t", None, epoch=3)
    listener.wait_leadership(TP, 3, None)


def test_a_topic_id_that_appears_later_is_a_new_leadership(
    zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen
) -> None:
    """An upgraded cluster writes the id into the topic's node: its partitions are reported again."""
    create(nodes, "t", None, partitions=3)
    listener = listen(zookeeper.connect)
    listener.watch(*all_of("t", 3))
    listener.wait_leadership(TopicPartition("t", 2), 0, None)
    nodes.set(TOPIC, topic("id"))
    for partition in all_of("t", 3):
        listener.wait_leadership(partition, 0, "id")


@pytest.mark.parametrize("connect", ["localhost:abc", "localhost:99999", "", "a..b:2181", "[::1:2181"])
def test_a_bad_address_is_a_configuration_error(connect: str) -> None:
    """An address that kazoo rejects is an error at the start, with the key and the value."""
    with pytest.raises(ConfigurationError) as refused:
        listener_of(connect)
    assert refused.value.source == "zookeeper.connect"
    assert repr(connect) in str(refused.value)
