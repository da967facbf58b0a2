"""The cluster that gets the files, over Kafka's own protocol: topics, offsets, groups, configurations."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.list_offsets import EARLIEST, LATEST
from ts_common.broker_connection.security import security_of
from ts_common.errors import OperatorError, QueryError, TransientError
from ts_common.json_objects import MAX_INT64
from ts_common.model import TopicPartition
from ts_common.wording import counted
from tsctl.restore.documents import Created, RestorePlan
from tsctl.restore.raw_requests import offsets_of
from tsctl.verify.kafka_cluster import REQUEST_SECONDS, ClusterAway, KafkaCluster, KafkaTopic

# Until the last step nothing of a restored topic is deleted or compacted.
UNLIMITED: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LARGEST_REQUEST: Final = 104_857_600  # Kafka's default of socket.request.max.bytes
# A topic that records are produced to refuses none of them, and keeps their timestamps.
PERMISSIVE: Final = {
    **UNLIMITED,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(MAX_INT64),
    "message.timestamp.after.max.ms": str(MAX_INT64),
    "max.message.bytes": str(LARGEST_REQUEST),
}
_LEADER_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.2
# librdkafka calls none of them retriable: a broker that was restarted loads the groups that it coordinates.
_COORDINATOR_MOVES: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_T = TypeVar("_T")


class NewCluster:
    """A client of the new cluster.

    Args:
        bootstrap: `host:port`, separated by commas.
        properties: further settings of librdkafka.
        seed: id of a broker that clients do not reach.

    Raises:
        ConfigurationError: a setting is not one of librdkafka's.
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str], seed: int | None = None) -> None:
        self.reading = KafkaCluster(bootstrap, properties, seed)
        self._bootstrap = bootstrap
        self._properties = properties

    def cluster_id(self) -> str:
        """Return Kafka's cluster id.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        return str(self.reading.metadata().cluster_id)

    def brokers(self) -> dict[int, str]:
        """Return `host:port` of each registered broker, as clients see it; the controller is first.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        found = self.reading.metadata()
        first = sorted(found.brokers.items(), key=lambda each: (each[0] != found.controller_id, each[0]))
        return {number: f"{each.host}:{each.port}" for number, each in first}

    def connect(self, address: str) -> BrokerConnection:
        """Return a raw connection to one broker.

        Raises:
            ConfigurationError: a setting is not supported.
            NoAnswer, LoginRejected, CorruptData: as `BrokerConnection`.
        """
        return BrokerConnection(security_of({**self._properties, "bootstrap.servers": address}), REQUEST_SECONDS)

    def members(self, group: str) -> list[str]:
        """Return the client ids of a group's members.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        found = retried(lambda: self._described(group))
        return [] if found is None else [each.client_id for each in found.members]

    def _described(self, group: str) -> Any:
        asked = self.reading.admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
        return self._wait(asked[group], f"group {group}", {KafkaError.GROUP_ID_NOT_FOUND})

    def create(self, topic: str, replicas: Sequence[Sequence[int]], configurations: Mapping[str, str]) -> None:
        """Create a topic; it may exist already.

        Args:
            replicas: broker ids of each partition, the preferred leader first.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        wanted = NewTopic(
            topic,
            len(replicas),
            replica_assignment=[list(each) for each in replicas],
            config=dict(configurations),
        )
        asked = self.reading.admin.create_topics([wanted])
        self._wait(asked[topic], f"topic {topic}", {KafkaError.TOPIC_ALREADY_EXISTS})

    def replicas(self) -> dict[TopicPartition, tuple[list[int], list[int], int]]:
        """Return replicas, in-sync replicas and leader of each partition; the leader is -1 without one.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        metadata = self.reading.metadata()
        return {
            TopicPartition(name, number): (list(each.replicas), list(each.isrs), each.leader)
            for name, topic in metadata.topics.items()
            for number, each in topic.partitions.items()
        }

    def set_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] | None = None
    ) -> None:
        """Set the committed offsets of a group that has no members, without leader epochs.

        A consumer that committed an epoch of the old cluster would never get records of the new one.

        Args:
            metadata: the text of each commit; empty where it lacks one.

        Raises:
            ClusterAway, OperatorError: the request failed, also for one of the partitions.
        """
        texts = metadata or {}
        theirs = [
            TheirPartition(each.topic, each.partition, offset, metadata=texts.get(each, ""))
            for each, offset in sorted(offsets.items())
        ]
        retried(lambda: self._set_offsets(group, theirs))  # a new cluster creates `__consumer_offsets` now

    def _set_offsets(self, group: str, theirs: list[TheirPartition]) -> None:
        asked = self.reading.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, theirs)])
        answer = self._wait(asked[group], f"group {group}")
        for each in answer.topic_partitions:
            if each.error is not None:
                raise _translated(each.error, f"group {group}, {each.topic}-{each.partition}")

    def configure(self, topic: str, configurations: Mapping[str, str], removed: Sequence[str]) -> None:
        """Set configurations of a topic, and remove others.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        entries = [
            *(_entry(name, value, AlterConfigOpType.SET) for name, value in configurations.items()),
            *(_entry(name, "", AlterConfigOpType.DELETE) for name in removed),
        ]
        self._alter(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))

    def configure_broker(self, broker: int, name: str, value: str | None) -> None:
        """Set a dynamic configuration of one broker; None removes it.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = _entry(name, value or "", operation)
        self._alter(ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry]))

    def setting_of_broker(self, broker: int, name: str) -> str | None:
        """Return a configuration of one broker; None without one.

        Raises:
            ClusterAway, OperatorError: the request failed.
        """
        asked = ConfigResource(ResourceType.BROKER, str(broker))
        entries = self._wait(self.reading.admin.describe_configs([asked])[asked], f"broker {broker}")
        found: str | None = entries[name].value if name in entries else None
        return found

    def _alter(self, resource: ConfigResource) -> None:
        about = f"{resource.restype.name.lower()} {resource.name}"
        self._wait(self.reading.admin.incremental_alter_configs([resource])[resource], about)

    def _wait(self, future: "Future[Any]", about: str, fine: frozenset[int] | set[int] = frozenset()) -> Any:
        return self._result(lambda: future.result(REQUEST_SECONDS), about, fine)

    def _result(self, request: Callable[[], Any], about: str, fine: frozenset[int] | set[int] = frozenset()) -> Any:
        try:
            return request()
        except KafkaException as error:
            if error.args[0].code() in fine:
                return None
            raise _translated(error.args[0], about) from error
        except TimeoutError as error:
            raise ClusterAway(f"{self._bootstrap}: no answer in {REQUEST_SECONDS:.0f} s: {about}") from error


def retried(request: Callable[[], _T], *others: type[Exception], between: Callable[[], None] = lambda: None) -> _T:
    """Return the answer to a request; errors that end by themselves are retried for two minutes.

    Args:
        others: further errors that are.
        between: is called after each error; it raises what ends the wait.

    Raises:
        TransientError, others: the last of them.
    """
    caught: tuple[type[Exception], ...] = (TransientError, *others)
    deadline = time.monotonic() + _LEADER_SECONDS
    while True:
        try:
            return request()
        except caught:
            between()
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _entry(name: str, value: str, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def _translated(error: KafkaError, about: str) -> Exception:
    message = f"{about}: {error.str()}"
    if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
        return OperatorError(f"{message}: the group has members; stop its consumers, then repeat the command")
    is_away = error.retriable() or error.code() in _COORDINATOR_MOVES
    return ClusterAway(message) if is_away else OperatorError(message)


def create_topics(cluster: NewCluster, plan: RestorePlan, configurations: Mapping[str, str] = UNLIMITED) -> Created:
    """Create the topics of a plan, and return their ids; topics that exist as planned are accepted.

    Args:
        configurations: of each, until `configure_topics`. A topic that exists gets them: a client can have created it.

    Raises:
        QueryError: a topic has other replicas than the plan, or records.
        ClusterAway, OperatorError: a request failed.
    """
    for name, topic in plan.topics.items():
        replicas = [part.replicas for _, part in sorted(topic.partitions.items())]
        cluster.create(name, replicas, configurations)
    ids, found = retried(lambda: _led(cluster, plan))
    for name, topic in plan.topics.items():
        if len(ids[name].partitions) != len(topic.partitions):
            raise QueryError(
                f"topic {name}: the new cluster has {counted(len(ids[name].partitions), 'partition')}, the plan "
                f"{len(topic.partitions)}; delete the topic there, then repeat the command"
            )
    for partition, part in plan.partitions.items():
        exists, _, _ = found.get(partition, ([], [], -1))
        if sorted(exists) != sorted(part.replicas):
            raise QueryError(
                f"{partition}: the new cluster has replicas {exists}, the plan {list(part.replicas)}; delete the "
                "topic there, then repeat the command"
            )
    bounds = retried(lambda: bounds_of(cluster, plan))  # a seed that answers has made the directories
    # While others are served, a log can get markers of transactions that had no record there; `place` reads it.
    if not plan.is_served and (used := [str(name) for name, (_, last) in bounds.items() if last > 0]):
        raise QueryError(f"{', '.join(used[:10])}: the new cluster has records there; a restore needs empty topics")
    for name in plan.topics:
        cluster.configure(name, configurations, [])
    return Created(plan.plan, cluster.cluster_id(), {name: ids[name].topic_id for name in plan.topics})


def _led(
    cluster: NewCluster, plan: RestorePlan
) -> tuple[dict[str, KafkaTopic], dict[TopicPartition, tuple[list[int], list[int], int]]]:
    """Return `topics` and `replicas`, if each partition has a leader and all its replicas in sync.

    Raises:
        ClusterAway: a partition has not; a broker can lack a topic that another one has.
    """
    ids, found = cluster.reading.topics(), cluster.replicas()
    for name, part in plan.partitions.items():
        if name.topic not in ids or name not in found or not _is_led(found[name], len(part.replicas)):
            raise ClusterAway(f"{name}: no leader, or a replica is out of sync; repeat the command once it is")
    return ids, found


def _is_led(state: tuple[list[int], list[int], int], replicas: int) -> bool:
    _, in_sync, leader = state
    return leader >= 0 and len(in_sync) >= replicas


def bounds_of(cluster: NewCluster, plan: RestorePlan) -> dict[TopicPartition, tuple[int, int]]:
    """Return (log start offset, end) of each partition; of a seed by its own address, because clients do not reach it.

    Raises:
        ClusterAway, NoAnswer, RequestDelayed, OperatorError, CorruptData: a request failed.
    """
    if plan.seed is None:
        return cluster.reading.bounds(plan.partitions)
    with cluster.connect(plan.seed.address) as connection:
        first = offsets_of(connection, plan.partitions, EARLIEST)
        last = offsets_of(connection, plan.partitions, LATEST)
    return {name: (first[name], last[name]) for name in plan.partitions}


def check_offsets(cluster: NewCluster, plan: RestorePlan, created: Created, *, is_limited: bool = False) -> None:
    """Check topic ids, leaders, in-sync replicas, first offsets and ends.

    Args:
        is_limited: whether topics can have their configurations already: then Kafka deletes the first offsets.

    Raises:
        QueryError: a partition is not as planned.
        ClusterAway, OperatorError: a request failed.
    """
    ids, found = cluster.reading.topics(), cluster.replicas()
    wrong = other_topics(ids, created)
    bounds = retried(lambda: bounds_of(cluster, plan))  # a leader of a moment ago can be another broker now
    for name, part in plan.partitions.items():
        replicas, in_sync, leader = found.get(name, ([], [], -1))
        if leader < 0 or len(in_sync) != len(part.replicas) or sorted(replicas) != sorted(part.replicas):
            wrong.append(f"{name}: leader {leader}, in-sync replicas {in_sync}; {list(part.replicas)} are expected")
            continue
        first, last = bounds.get(name, (-1, -1))
        has_start = first == part.start or (is_limited and first > part.start)
        if not has_start or last < part.log_end:
            wrong.append(f"{name}: offsets {first} to {last}; {part.start} to {part.log_end} are expected")
    if wrong:
        raise QueryError("; ".join(wrong[:10]) + ". Start all brokers, wait for them, and repeat the command")


def other_topics(found: Mapping[str, KafkaTopic], created: Created) -> list[str]:
    """Return a message for each created topic that the cluster lacks, or has under another id."""
    return [
        f"topic {name}: another id, or it is deleted"
        for name, topic_id in created.topics.items()
        if name not in found or found[name].topic_id != topic_id
    ]


def configure_topics(cluster: NewCluster, plan: RestorePlan) -> None:
    """Set the configurations of the plan; what `create_topics` set beyond them is removed.

    Raises:
        ClusterAway, OperatorError: a request failed.
    """
    for name, topic in plan.topics.items():
        removed = [each for each in PERMISSIVE if each not in topic.configurations]
        cluster.configure(name, topic.configurations, removed)
