"""Requests to the local broker about what it leads, through librdkafka.

A librdkafka client has every broker of the cluster after its first answer, and chooses the one that receives a request:

- Settings are requested from this broker by its id.
- `leaders` is sent to the broker that was last used, to the second (`rd_kafka_broker_weight_usable`): request settings
  first. Each answer names its broker, and an answer of another broker is rejected.
- `epochs` is sent to the leader of each partition. That is this broker, or the answer is an error.
- `topic_ids` is sent to the "controller"; a KRaft broker names any broker that is alive. A topic's id never changes, so
  another broker's answer is as good, if it agrees with this broker's disk.

A request must never create its topic (`allow.auto.create.topics`): this client names topics that are being deleted.
"""

from collections.abc import Iterable, Mapping, Sequence

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)

from ts_common.errors import TransientError
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.admin_requests import DENIALS, AdminRequests, BrokerAway, kafkas_id

log = structlog.get_logger()

_DYNAMIC = {
    ResourceType.TOPIC: {ConfigSource.DYNAMIC_TOPIC_CONFIG.value},
    ResourceType.BROKER: {
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
    },
}


class AnsweredByAnother(TransientError):
    """Another broker of the cluster answered. A second later, after another request, this broker will answer."""


class Denied(Exception):
    """The broker denies this identity the request for a topic."""


class NotAvailable(Exception):
    """The broker has no answer about the topic at this moment."""


class BrokerClient:
    """A client of one broker. Used by one thread.

    Args:
        answer_seconds: timeout of one request.

    Raises:
        ConfigurationError: librdkafka rejects the settings, or cannot read the files that they name.
    """

    def __init__(self, broker_id: int, settings: Mapping[str, str], answer_seconds: float) -> None:
        self._id = broker_id
        self._settings = dict(settings)
        self._requests = AdminRequests(settings, answer_seconds)

    @property
    def bootstrap(self) -> str:
        """The address of the first connection, `host:port`."""
        return self._settings.get("bootstrap.servers", "")

    def leaders(self, topic: str) -> dict[int, int] | None:
        """Return the leader of each partition of a topic, -1 for a partition without one; None without such a topic.

        Raises:
            BrokerAway: no answer.
            AnsweredByAnother: see the module's docstring.
            Denied: no permission to DESCRIBE the topic.
            NotAvailable: another error of the topic.
        """
        requests = self._requests
        try:
            answer = requests.admin.list_topics(topic, timeout=requests.answer_seconds)
        except KafkaException as error:
            raise requests.away(error) from error
        finally:
            requests.call_back()
        if answer.orig_broker_id != self._id:
            raise AnsweredByAnother(f"broker {answer.orig_broker_id} answered")
        found = answer.topics.get(topic)
        if found is None:
            return None
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if found.error.code() in DENIALS:
                raise Denied(found.error.str())
            raise NotAvailable(found.error.str())
        return {number: partition.leader for number, partition in found.partitions.items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of these topics, as Kafka writes them, without those that are unknown at this moment."""
        wanted = TopicCollection(sorted(topics))
        requests = self._requests
        found, _ = requests.collect(requests.admin.describe_topics(wanted, request_timeout=requests.answer_seconds))
        return {topic: kafkas_id(description.topic_id) for topic, description in found.items()}

    def epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the leader epoch of each of these partitions that this broker leads.

        The answer to a ListOffsets request for the latest offset has the epoch of the leading replica
        (`Partition.fetchOffsetForTimestamp`). Until the high watermark reaches the start of that epoch, the broker
        returns OFFSET_NOT_AVAILABLE, and this method the epoch None. The broker checks that under the same lock as the
        answer, and after it checked that the replica leads. So the replica leads, and has written its epoch to its
        checkpoint. Below min.insync.replicas the high watermark does not move, so this state can last.
        """
        wanted = {TheirPartition(each.topic, each.partition): OffsetSpec.latest() for each in partitions}  # type: ignore[no-untyped-call]
        requests = self._requests
        answers = requests.admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=requests.answer_seconds
        )
        found, failed = requests.collect(answers)
        epochs = {theirs: answer.leader_epoch for theirs, answer in found.items() if answer.leader_epoch is not None}
        unavailable = [theirs for theirs, code in failed.items() if code == KafkaError.OFFSET_NOT_AVAILABLE]
        return {
            TopicPartition(theirs.topic, theirs.partition): epoch
            for theirs, epoch in {**dict.fromkeys(unavailable), **epochs}.items()
        }

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Return the overrides of each topic, None if the broker denies them, without those that are unknown.

        Raises:
            BrokerAway: no answer.
        """
        found = self._overrides([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
        return {resource.name: overrides for resource, overrides in found.items()}

    def broker_settings(self) -> dict[str, str] | None:
        """Return this broker's dynamic settings, with those for all brokers; None if the broker denies them.

        Raises:
            BrokerAway: no answer.
        """
        (overrides,) = self._overrides([ConfigResource(ResourceType.BROKER, str(self._id))]).values() or (None,)
        return overrides

    def restart(self) -> None:
        """Replace the client by one that has the bootstrap address only.

        The other brokers do not list a broker that was away, and librdkafka no longer connects to it.

        Raises:
            BrokerAway: a file that the settings name cannot be read at this moment; the former client stays.
        """
        self._requests.restart()

    def close(self, seconds: float) -> None:
        """Close the client as `AdminRequests.close`."""
        self._requests.close(seconds)

    def _overrides(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, str] | None]:
        requests = self._requests
        answers = requests.admin.describe_configs(resources, request_timeout=requests.answer_seconds, broker=self._id)
        found, failed = requests.collect(answers)
        # Error codes of librdkafka are below 0, those of brokers above.
        if not found and all(code < 0 for code in failed.values()):
            raise BrokerAway(requests.last_error)
        known: dict[ConfigResource, dict[str, str] | None] = {
            resource: None for resource, code in failed.items() if code in DENIALS
        }
        for resource, entries in found.items():
            dynamic = _DYNAMIC[resource.restype]
            known[resource] = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source in dynamic and entry.value is not None and not entry.is_sensitive
            }
        return known
