"""Helpers for topics: create, change, fill, query and delete them. `LocalCluster` has all of them.

Each change is awaited on every running broker, so that the next request may be sent to any of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
)

from dev.local.kafka.broker import Broker
from dev.local.waiting import wait_for

_REQUEST_SECONDS = 30.0
_LEAST_SEGMENT_BYTES = 1 << 20
_Answer = TypeVar("_Answer")

# Errors of a broker whose metadata, or the client's, is older than the last election.
_LEADER_MOVED = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,  # the broker has no leader yet
    }
)


@dataclass(frozen=True)
class Record:
    """A record to produce. Without `partition` the producer chooses it; without `timestamp` (ms) it is now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp: int | None = None


class NotDeliveredError(RuntimeError):
    """A record was not acknowledged. The message has the topic and the first error."""


class Topics:
    """Topic helpers for running brokers."""

    def __init__(self, brokers: Mapping[int, Broker], topic_config: Mapping[str, str] | None = None) -> None:
        self.brokers = dict(brokers)
        self._topic_config = dict(topic_config or {})

    @property
    def bootstrap(self) -> str:
        """All brokers, in the form of `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        """Return a new admin client of the running brokers, so that it uses no paused broker and no former controller.

        Keep it until its requests are answered; they are dropped with the client.
        """
        bootstrap = ",".join(broker.bootstrap for broker in self._answering())
        # Without a log level librdkafka writes each refused connection to stderr.
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        seconds: float = 30.0,
    ) -> None:
        """Create a topic, and wait until every running broker has a leader for each partition.

        Args:
            replication: number of replicas of each.
            config: the topic's own settings; `segment.bytes` may be small on Kafka 4 too.
            assignment: broker ids of each partition, the preferred leader first; instead of `replication`.
            seconds: until then; ten thousand partitions need more.

        Raises:
            KafkaException: the brokers rejected the request.
        """
        settings = self._as_kafka_takes_them({**self._topic_config, **(config or {})})
        if assignment is None:
            topic = NewTopic(name, partitions, replication_factor=replication, config=settings)
        else:
            partitions = len(assignment)
            replicas = [list(brokers) for brokers in assignment]
            topic = NewTopic(name, partitions, replica_assignment=replicas, config=settings)
        self._ask_controller(lambda admin: admin.create_topics([topic])[name], f"to create {name}")

        def led(broker: Broker) -> bool:
            known = self._partitions(broker, name)
            # A broker lists a partition before its leader has made the directory.
            return len(known) == partitions and all(
                state.leader in self.brokers and self.brokers[state.leader].holds(name, partition)
                for partition, state in known.items()
            )

        wait_for(
            lambda: all(led(broker) for broker in self._answering()),
            f"a leader for each of {partitions} partitions of {name} on every broker",
            seconds,
            state=lambda: {broker.id: self._partitions(broker, name) for broker in self._answering()},
        )

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's settings, with names as in `create_topic`; the others stay."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self._as_kafka_takes_them(config).items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._ask_controller(
            lambda admin: admin.incremental_alter_configs([resource])[resource], f"to change {topic}'s settings"
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no running broker has it."""
        self._ask_controller(lambda admin: admin.delete_topics([name])[name], f"to delete {name}")
        wait_for(
            lambda: not any(self._partitions(broker, name) for broker in self._answering()),
            f"every broker to forget {name}",
        )

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records below an offset, for each partition."""
        bounds = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]

        def deleted(admin: AdminClient) -> None:
            for future in admin.delete_records(bounds).values():
                future.result(_REQUEST_SECONDS)

        self._ask_leader(deleted, f"the leaders of {topic} to delete records")

    def producer(self, config: Mapping[str, object] | None = None) -> Producer:
        """Return a producer with acks=all, a short linger and batches of 16 KiB; `config` overrides these."""
        # librdkafka would fill batches up to 1 MB, and a broker rejects batches above a topic's segment.bytes.
        ours = {"acks": "all", "linger.ms": 2, "batch.size": 16_384, "log_level": 0}
        return Producer({"bootstrap.servers": self.bootstrap, **ours, **(config or {})})

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> list[tuple[int, int]]:
        """Produce records and wait for every acknowledgement.

        Args:
            records: the records, in this order.
            partition: for records without one; None: the producer chooses.
            config: librdkafka's, for instance {"compression.type": "zstd"}.

        Returns:
            (partition, offset) of each record, in the order of `records`.

        Raises:
            NotDeliveredError: a record was rejected, or not acknowledged within the delivery timeout (60 s).
        """
        producer = self.producer({"message.timeout.ms": 60_000, **(config or {})})
        placed: list[tuple[int, int]] = []
        errors: list[KafkaError] = []

        def delivered(position: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                placed[position] = (message.partition() or 0, message.offset() or 0)

        for position, record in enumerate(records):
            placed.append((-1, -1))
            target = record.partition if record.partition is not None else partition
            while True:
                try:
                    producer.produce(
                        topic,
                        record.value,
                        record.key,
                        partition=-1 if target is None else target,
                        on_delivery=partial(delivered, position),
                        timestamp=record.timestamp or 0,
                        headers=list(record.headers),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if position % 1000 == 0:
                producer.poll(0)
        left = producer.flush(90)
        if errors or left:
            first = errors[0].str() if errors else "no answer"
            raise NotDeliveredError(f"{topic}: {len(errors)} records refused, {left} unanswered; the first: {first}")
        return placed

    def earliest(self, topic: str, partition: int) -> int:
        """Return the partition's log start offset."""
        return self._offset(topic, partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]

    def latest(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """Return the partition's high watermark; with `committed` its last stable offset."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offset(topic, partition, OffsetSpec.latest(), level)  # type: ignore[no-untyped-call]

    def leader(self, topic: str, partition: int, *, by: int | None = None) -> int | None:
        """Return the id of the partition's leader; None without a leader, or if the running brokers differ.

        Args:
            by: the only broker whose metadata counts: one that is cut off still names itself; None: all must agree.
        """
        known = {state.leader for state in self._states(topic, partition, by)}
        return known.pop() if len(known) == 1 and min(known) >= 0 else None

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """Return the ids of the partition's in-sync replicas; empty if the running brokers differ."""
        known = {frozenset(state.isrs) for state in self._states(topic, partition)}
        return set(known.pop()) if len(known) == 1 else set()

    def _as_kafka_takes_them(self, config: Mapping[str, str]) -> dict[str, str]:
        # Kafka 4 accepts segments below 1 MiB only under another name, "for testing only" (`LogConfig`).
        small = int(config.get("segment.bytes", _LEAST_SEGMENT_BYTES)) < _LEAST_SEGMENT_BYTES
        if not small or all(broker.line != "4" for broker in self.brokers.values()):
            return dict(config)
        others = {name: value for name, value in config.items() if name != "segment.bytes"}
        return {**others, "internal.segment.bytes": config["segment.bytes"]}

    def _states(self, topic: str, partition: int, by: int | None = None) -> list[PartitionMetadata]:
        brokers = [broker for broker in self._answering() if by in {None, broker.id}]
        found = (self._partitions(broker, topic).get(partition) for broker in brokers)
        return [state for state in found if state is not None]

    def _answering(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.answers]

    def _partitions(self, broker: Broker, topic: str) -> dict[int, PartitionMetadata]:
        try:
            topics = broker.metadata(5.0).topics
        except KafkaException:
            return {}  # it is starting or ending: the caller retries until its deadline
        found = topics.get(topic)
        return {} if found is None or found.error is not None else dict(found.partitions)

    def _ask_controller(self, request: "Callable[[AdminClient], Future[None]]", what: str) -> None:
        """Send a request until it reaches the controller, which may change meanwhile or still be deleting."""

        def asked() -> bool:
            admin = self.admin()
            try:
                request(admin).result(_REQUEST_SECONDS)
            except KafkaException as error:
                reason = error.args[0]
                # A deleted topic is removed from the brokers' metadata before the controller's.
                is_going = reason.code() == KafkaError.TOPIC_ALREADY_EXISTS and "marked for deletion" in reason.str()
                if reason.code() != KafkaError.NOT_CONTROLLER and not is_going:
                    raise
                return False
            return True

        wait_for(asked, f"the controller {what}", _REQUEST_SECONDS)

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, level: IsolationLevel) -> int:
        asked = {TopicPartition(topic, partition): spec}

        def offset(admin: AdminClient) -> int:
            futures = admin.list_offsets(asked, isolation_level=level, request_timeout=_REQUEST_SECONDS)
            (future,) = futures.values()
            return int(future.result(_REQUEST_SECONDS).offset)

        return self._ask_leader(offset, f"the leader of {topic}-{partition} to return an offset")

    def _ask_leader(self, request: "Callable[[AdminClient], _Answer]", what: str) -> "_Answer":
        """Send a request until it reaches the leader, which the broker with the metadata may not have yet."""
        answers: list[_Answer] = []

        def answered() -> bool:
            admin = self.admin()
            try:
                answers.append(request(admin))
            except KafkaException as error:
                if error.args[0].code() not in _LEADER_MOVED:
                    raise
                return False
            return True

        wait_for(answered, what, _REQUEST_SECONDS)
        return answers[0]
