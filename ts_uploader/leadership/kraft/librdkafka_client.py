"""Requests to the local broker, through librdkafka. The agent's only module that imports confluent-kafka.

A librdkafka client has every broker of the cluster after its first answer, and chooses the one that receives a request:

- Settings are requested from this broker by its id.
- `leaders` is sent to the broker that was last used, to the second (`rd_kafka_broker_weight_usable`): request settings
  first. Each answer names its broker, and an answer of another broker is rejected.
- `latest` is sent to the leader of each partition. That is this broker, or the answer has another leader epoch.
- `topic_ids` is sent to the "controller"; a KRaft broker names any broker that is alive. A topic's id never changes, so
  another broker's answer is as good, if it agrees with this broker's disk.

A request must never create its topic (`allow.auto.create.topics`): this client names topics that are being deleted.
"""

import concurrent.futures
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)

from ts_common.config.cluster_config import KAFKA_CLIENT as PREFIX
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.broker import AnsweredByAnother, BrokerAway, Denied, Latest, NotAvailable

log = structlog.get_logger()

_LEAST_SECONDS = 0.1
_TO_KAFKAS = str.maketrans("+/", "-_", "=")  # librdkafka writes ids as plain base64, Kafka as URL-safe base64
_OURS: Mapping[str, Any] = {
    "client.id": "ts-uploader",
    "allow.auto.create.topics": False,
    "log_level": 0,  # librdkafka writes each refused connection to stderr; the error callback receives them as well
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": -1,
    "receive.message.max.bytes": 16 << 20,  # far above any answer to these requests; librdkafka's default is 100 MB
}
_DYNAMIC = {
    ResourceType.TOPIC: {ConfigSource.DYNAMIC_TOPIC_CONFIG.value},
    ResourceType.BROKER: {
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
    },
}
_DENIALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class LibrdkafkaClient:
    """A `Broker` by librdkafka.

    Args:
        answer_seconds: timeout of one request.

    Raises:
        ConfigurationError: librdkafka rejects the settings, or cannot read the files that they name.
    """

    def __init__(self, broker_id: int, settings: Mapping[str, str], answer_seconds: float) -> None:
        self._id = broker_id
        self._settings = dict(settings)
        self._answer_seconds = answer_seconds
        self._last_error = ""
        self._admin = self._new_admin()

    @property
    def bootstrap(self) -> str:
        """The address of the first connection, `host:port`."""
        return self._settings.get("bootstrap.servers", "")

    def leaders(self, topic: str) -> dict[int, int] | None:
        """Return the leader of each partition of a topic, as `Broker.leaders`."""
        try:
            answer = self._admin.list_topics(topic, timeout=self._answer_seconds)
        except KafkaException as error:
            raise self._away(error) from error
        finally:
            self._admin.poll(0)  # calls the error callback
        if answer.orig_broker_id != self._id:
            raise AnsweredByAnother(f"broker {answer.orig_broker_id} answered")
        found = answer.topics.get(topic)
        if found is None:
            return None
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if found.error.code() in _DENIALS:
                raise Denied(found.error.str())
            raise NotAvailable(found.error.str())
        return {number: partition.leader for number, partition in found.partitions.items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of these topics, as `Broker.topic_ids`."""
        wanted = TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(wanted, request_timeout=self._answer_seconds)
        found, _ = self._collect(answers)
        return {topic: str(description.topic_id).translate(_TO_KAFKAS) for topic, description in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Latest:
        """Return what the leaders of partitions answer, as `Broker.latest`; no answer at all is no error."""
        wanted = {TheirPartition(each.topic, each.partition): OffsetSpec.latest() for each in partitions}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._answer_seconds
        )
        found, failed = self._collect(answers)
        epochs: dict[TopicPartition, int | None] = {}
        offsets = {}
        for theirs, answer in found.items():
            if answer.leader_epoch is not None:
                name = TopicPartition(theirs.topic, theirs.partition)
                epochs[name], offsets[name] = answer.leader_epoch, answer.offset
        for theirs, code in failed.items():
            if code == KafkaError.OFFSET_NOT_AVAILABLE:
                epochs[TopicPartition(theirs.topic, theirs.partition)] = None
        denied = frozenset(theirs.topic for theirs, code in failed.items() if code in _DENIALS)
        return Latest(epochs, offsets, denied, self._last_error if _is_away(found, failed) else "")

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Return the overrides of each topic, as `Broker.topic_settings`."""
        found = self._overrides([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
        return {resource.name: overrides for resource, overrides in found.items()}

    def broker_settings(self) -> dict[str, str] | None:
        """Return the dynamic settings of this broker, as `Broker.broker_settings`."""
        (overrides,) = self._overrides([ConfigResource(ResourceType.BROKER, str(self._id))]).values() or (None,)
        return overrides

    def restart(self) -> None:
        """Replace the client by one that has the bootstrap address only.

        The other brokers do not list a broker that was away, and librdkafka no longer connects to it.

        Raises:
            BrokerAway: a file that the settings name cannot be read at this moment; the former client stays.
        """
        try:
            admin = self._new_admin()
        except ConfigurationError as error:
            raise BrokerAway("; ".join(error.problems)) from error
        self.close(0.0)
        self._admin = admin

    def close(self, seconds: float) -> None:
        """Close the client on another thread, and wait for that at most this long.

        During a handshake with a broker that does not answer, librdkafka closes slowly.
        """
        held = [self._admin]
        del self._admin
        thread = threading.Thread(target=held.clear, name="kafka-close", daemon=True)
        thread.start()
        thread.join(seconds)

    def _new_admin(self) -> AdminClient:
        try:
            settings: dict[str, Any] = {**_OURS, **self._settings, "error_cb": self._take_error}
            return AdminClient(settings)
        except KafkaException as error:
            rejected = f"librdkafka rejects {PREFIX}* or the settings of the broker's file: {error.args[0].str()}"
            raise ConfigurationError("the connection to the broker", [rejected]) from error

    def _overrides(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, str] | None]:
        answers = self._admin.describe_configs(resources, request_timeout=self._answer_seconds, broker=self._id)
        found, failed = self._collect(answers)
        if _is_away(found, failed):
            raise BrokerAway(self._last_error)
        known: dict[ConfigResource, dict[str, str] | None] = {
            resource: None for resource, code in failed.items() if code in _DENIALS
        }
        for resource, entries in found.items():
            dynamic = _DYNAMIC[resource.restype]
            known[resource] = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source in dynamic and entry.value is not None and not entry.is_sensitive
            }
        return known

    def _collect(
        self, answers: Mapping[Any, "concurrent.futures.Future[Any]"]
    ) -> tuple[dict[Any, Any], dict[Any, int]]:
        """Return the answers, and the error codes of the requests that failed."""
        found, failed = {}, {}
        # librdkafka ends each request at its timeout; this waits a little longer, once for all of them.
        concurrent.futures.wait(answers.values(), self._answer_seconds + _LEAST_SECONDS)
        self._admin.poll(0)  # calls the error callback
        for request, answer in answers.items():
            try:
                found[request] = answer.result(0)
            except KafkaException as error:
                failed[request] = error.args[0].code()
                self._last_error = self._last_error or error.args[0].str()
            except concurrent.futures.TimeoutError:
                failed[request] = KafkaError._TIMED_OUT
        if found:
            self._last_error = ""
        return found, failed

    def _take_error(self, error: KafkaError) -> None:
        # "All brokers down" follows the reason, and contains less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:
            self._last_error = error.str()

    def _away(self, error: KafkaException) -> BrokerAway:
        return BrokerAway(self._last_error or error.args[0].str())


def _is_away(found: Mapping[Any, Any], failed: Mapping[Any, int]) -> bool:
    """Return whether no broker answered: error codes of librdkafka are below 0, those of brokers above."""
    return not found and all(code < 0 for code in failed.values())
