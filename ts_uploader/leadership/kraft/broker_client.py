"""What the broker beside us says when it is asked, by way of librdkafka; the only place that knows confluent-kafka.

A client of librdkafka knows every broker of the cluster after its first answer, and asks one of them as it likes:

- Settings are asked of this broker by its id.
- `leaders` goes to the broker that was asked last, to the second (`rd_kafka_broker_weight_usable`): ask for settings
  first. Each answer says whose it is, and one of another broker is not believed.
- `epochs` goes to the leader of each partition, which is this broker, or the answer is an error.
- `topic_ids` goes to the "controller", for which a KRaft broker names any that is alive. A topic's id never changes, so
  another broker's word is as good, once it agrees with what stands on this broker's disk.

To ask for a topic must never create it (`allow.auto.create.topics`): this one asks for topics that are being deleted.
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
from ts_common.errors import ConfigurationError, TransientError
from ts_common.model import TopicPartition

log = structlog.get_logger()

_LEAST_SECONDS = 0.1
_TO_KAFKAS = str.maketrans("+/", "-_", "=")  # librdkafka writes ids as plain base64, Kafka as that for URLs
_OURS: Mapping[str, Any] = {
    "client.id": "ts-uploader",
    "allow.auto.create.topics": False,
    "log_level": 0,  # librdkafka writes each refused connection to stderr; the callback for errors tells of them
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": -1,
    "receive.message.max.bytes": 16 << 20,  # no answer to what is asked here comes near; librdkafka's own is 100 MB
}
_DYNAMIC = {
    ResourceType.TOPIC: {ConfigSource.DYNAMIC_TOPIC_CONFIG.value},
    ResourceType.BROKER: {
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
    },
}
_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class BrokerAway(TransientError):
    """The broker beside us gave no answer, or another broker gave one."""


class AnsweredByAnother(TransientError):
    """Another broker of the cluster answered; asked a second later, after another question, this one will."""


class Refused(Exception):
    """The broker does not tell this of the topic to this identity."""


class NotKnown(Exception):
    """The broker cannot tell this of the topic at this moment."""


class BrokerClient:
    """Asks one broker; used by one thread.

    Args:
        broker_id: its id.
        settings: librdkafka's.
        answer_seconds: how long one answer is awaited.

    Raises:
        ConfigurationError: librdkafka refuses the settings, or cannot read the files that they name.
    """

    def __init__(self, broker_id: int, settings: Mapping[str, str], answer_seconds: float) -> None:
        self._id = broker_id
        self._settings = dict(settings)
        self._answer_seconds = answer_seconds
        self._last_error = ""
        self._admin = self._new_admin()

    @property
    def bootstrap(self) -> str:
        """The address that is asked first, `host:port`."""
        return self._settings.get("bootstrap.servers", "")

    def leaders(self, topic: str) -> dict[int, int] | None:
        """The leader's id of each partition of a topic, -1 where nobody leads; None where there is no such topic.

        Raises:
            BrokerAway: no answer.
            AnsweredByAnother: see the module's page.
            Refused: no permission to DESCRIBE the topic.
            NotKnown: another error of the topic's.
        """
        try:
            answer = self._admin.list_topics(topic, timeout=self._answer_seconds)
        except KafkaException as error:
            raise self._away(error) from error
        finally:
            self._admin.poll(0)  # serves the callback for errors
        if answer.orig_broker_id != self._id:
            raise AnsweredByAnother(f"broker {answer.orig_broker_id} answered")
        found = answer.topics.get(topic)
        if found is None:
            return None
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if found.error.code() in _REFUSALS:
                raise Refused(found.error.str())
            raise NotKnown(found.error.str())
        return {number: partition.leader for number, partition in found.partitions.items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of these topics, as Kafka writes them; absent where they are not known at this moment."""
        wanted = TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(wanted, request_timeout=self._answer_seconds)
        found, _ = self._collect(answers)
        return {topic: str(description.topic_id).translate(_TO_KAFKAS) for topic, description in found.items()}

    def epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The leader epoch in which this broker leads each of these; absent where it does not, or does not say so.

        Kafka answers a question for the latest offset with the epoch of the replica that leads
        (`Partition.fetchOffsetForTimestamp`), but not before its high watermark reached where that epoch began: until
        then the error is OFFSET_NOT_AVAILABLE, and the epoch here is None. The same lock is held for that as for the
        answer, and it is looked for after whether the replica leads: it leads, and has written its epoch to its
        checkpoint. Under min.insync.replicas the high watermark stands still, so that may last.
        """
        wanted = {TheirPartition(each.topic, each.partition): OffsetSpec.latest() for each in partitions}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._answer_seconds
        )
        found, failed = self._collect(answers)
        epochs = {theirs: told.leader_epoch for theirs, told in found.items() if told.leader_epoch is not None}
        untold = [theirs for theirs, code in failed.items() if code == KafkaError.OFFSET_NOT_AVAILABLE]
        return {
            TopicPartition(theirs.topic, theirs.partition): epoch
            for theirs, epoch in {**dict.fromkeys(untold), **epochs}.items()
        }

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """The own settings of topics, None where they may not be read; absent where nothing is known of them.

        Raises:
            BrokerAway: no answer.
        """
        found = self._overrides([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
        return {resource.name: overrides for resource, overrides in found.items()}

    def broker_settings(self) -> dict[str, str] | None:
        """This broker's dynamic settings, those for all brokers included, None where they may not be read.

        Raises:
            BrokerAway: no answer.
        """
        (overrides,) = self._overrides([ConfigResource(ResourceType.BROKER, str(self._id))]).values() or (None,)
        return overrides

    def start_anew(self) -> None:
        """Forget all brokers but the bootstrap address.

        A broker that was away is none that the others tell of, and librdkafka does not look for it any more.

        Raises:
            BrokerAway: a file that the settings name cannot be read at this moment; the client is the one before.
        """
        try:
            admin = self._new_admin()
        except ConfigurationError as error:
            raise BrokerAway("; ".join(error.problems)) from error
        self.close(0.0)
        self._admin = admin

    def close(self, seconds: float) -> None:
        """Let it go, and wait so long for that: amid a handshake with a silent broker librdkafka takes its time."""
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
            refused = f"librdkafka refuses {PREFIX}*, or what the broker's file says: {error.args[0].str()}"
            raise ConfigurationError("the connection to the broker", [refused]) from error

    def _overrides(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, str] | None]:
        answers = self._admin.describe_configs(resources, request_timeout=self._answer_seconds, broker=self._id)
        found, failed = self._collect(answers)
        # Errors of librdkafka itself are below 0, those that a broker answers are above.
        if not found and all(code < 0 for code in failed.values()):
            raise BrokerAway(self._last_error)
        known: dict[ConfigResource, dict[str, str] | None] = {
            asked: None for asked, code in failed.items() if code in _REFUSALS
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
        """What came, and the code of the error where something else came."""
        found, failed = {}, {}
        # librdkafka ends each request at its time-out; this waits a little longer, and for all of them together.
        concurrent.futures.wait(answers.values(), self._answer_seconds + _LEAST_SECONDS)
        self._admin.poll(0)  # serves the callback for errors
        for asked, answer in answers.items():
            try:
                found[asked] = answer.result(0)
            except KafkaException as error:
                failed[asked] = error.args[0].code()
                self._last_error = self._last_error or error.args[0].str()
            except concurrent.futures.TimeoutError:
                failed[asked] = KafkaError._TIMED_OUT
        if found:
            self._last_error = ""
        return found, failed

    def _take_error(self, error: KafkaError) -> None:
        # That all are down is said beside the reason, and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:
            self._last_error = error.str()

    def _away(self, error: KafkaException) -> BrokerAway:
        return BrokerAway(self._last_error or error.args[0].str())
