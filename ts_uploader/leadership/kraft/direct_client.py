"""Requests to the local broker over a raw connection.

For librdkafka a partition costs 40 microseconds in each answer, which is most of what a source of ten thousand
partitions needs. A count in an answer that no real broker sends ends its process; here it is an error.

The connection leads to one address, so each answer is of the broker there. A broker that is not the local one refuses
the request for the settings of this broker, which is the first of each connection. If the identity lacks the right to
it, another broker confirms no leadership all the same: only the leader of a partition has a leader epoch.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import structlog

from ts_common.broker_connection.configs import configs_of, describe_configs
from ts_common.broker_connection.connection import BrokerConnection, NoAnswer
from ts_common.broker_connection.failures import (
    CLUSTER_DENIED,
    OFFSET_NOT_AVAILABLE,
    TOPIC_DENIED,
    UNKNOWN_TOPIC,
    RequestFailed,
)
from ts_common.broker_connection.list_offsets import LATEST, NO_EPOCH, list_offsets
from ts_common.broker_connection.metadata import Topic, Topics
from ts_common.broker_connection.security import Security
from ts_common.errors import ConfigurationError, CorruptData, OperatorError
from ts_common.kafka_configs import ConfigSource, ResourceType
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.broker import BrokerAway, Denied, Latest, NotAvailable
from ts_uploader.retention.topic_retention import BROKER_KEYS, TOPIC_KEYS

log = structlog.get_logger()

_T = TypeVar("_T")
_DENIALS: Final = frozenset({TOPIC_DENIED, CLUSTER_DENIED})
_OF_BROKER: Final = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


class DirectClient:
    """A `Broker` by a raw connection, which is made for the first request, and again after an error.

    Args:
        security: returns how to connect: certificates can be new.
        seconds: for a connection, and for each answer.

    Raises:
        ConfigurationError: as `security`; from the constructor.
    """

    def __init__(self, broker_id: int, security: Callable[[], Security], seconds: float) -> None:
        self._id = broker_id
        self._security = security
        self._seconds = seconds
        self._address = "{}:{}".format(*security().address)
        self._connection: BrokerConnection | None = None
        self._topics = Topics()

    @property
    def bootstrap(self) -> str:
        """The address, `host:port`."""
        return self._address

    def leaders(self, topic: str) -> Mapping[int, int] | None:
        """Return the leader of each partition of a topic, as `Broker.leaders`."""
        found = self._topic(topic)
        return None if found is None else found.leaders

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of these topics by this broker, as `Broker.topic_ids`; raises BrokerAway."""
        ids = {}
        for name in topics:
            try:
                found = self._topic(name)
            except (Denied, NotAvailable):
                continue
            if found is not None and found.id is not None:
                ids[name] = found.id
        return ids

    def latest(self, partitions: Iterable[TopicPartition]) -> Latest:
        """Return what this broker answers for partitions, as `Broker.latest`; raises BrokerAway."""
        wanted = dict.fromkeys(partitions, NO_EPOCH)
        epochs: dict[TopicPartition, int | None] = {}
        offsets: dict[TopicPartition, int] = {}
        denied: set[str] = set()
        for name, answer in self._ask(lambda connection: list_offsets(connection, wanted, LATEST)).items():
            if not answer.error and answer.epoch != NO_EPOCH:
                epochs[name], offsets[name] = answer.epoch, answer.offset
            elif answer.error == OFFSET_NOT_AVAILABLE:
                epochs[name] = None
            elif answer.error in _DENIALS:
                denied.add(name.topic)
        return Latest(epochs, offsets, frozenset(denied))

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Return the overrides of each topic that bear on retention, as `Broker.topic_settings`."""
        try:
            found = self._ask(lambda connection: describe_configs(connection, ResourceType.TOPIC, topics, TOPIC_KEYS))
        except RequestFailed as error:
            if len(topics) > 1:  # the others have an answer
                alone = [self.topic_settings([topic]) for topic in topics]
                return {topic: overrides for each in alone for topic, overrides in each.items()}
            log.debug("topic_settings_unknown", topic=topics[0], error=str(error))
            return {}
        return {topic: configs_of(settings, ConfigSource.DYNAMIC_TOPIC) for topic, settings in found.items()}

    def broker_settings(self) -> dict[str, str] | None:
        """Return the dynamic settings of this broker that bear on retention, as `Broker.broker_settings`."""
        try:
            return self._ask(self._settings)
        except RequestFailed as error:
            raise BrokerAway(str(error)) from error

    def restart(self) -> None:
        """Connect again for the next request."""
        self.close(0.0)

    def close(self, seconds: float) -> None:
        """Close the connection."""
        del seconds
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _topic(self, name: str) -> Topic | None:
        found = self._ask(lambda connection: self._topics.describe(connection, name))
        if found.error in _DENIALS:
            raise Denied(f"broker at {self._address}: authorization failed (error code {found.error})")
        if found.error not in {0, UNKNOWN_TOPIC}:
            raise NotAvailable(f"broker at {self._address}: error code {found.error}")
        return None if found.error else found

    def _settings(self, connection: BrokerConnection) -> dict[str, str] | None:
        own = str(self._id)
        return configs_of(describe_configs(connection, ResourceType.BROKER, [own], BROKER_KEYS).get(own), *_OF_BROKER)

    def _ask(self, request: Callable[[BrokerConnection], _T]) -> _T:
        """Return an answer; connect for it, and again if the broker has ended the connection.

        Raises:
            BrokerAway: no answer.
            RequestFailed: as the request.
        """
        began, known = time.monotonic(), self._connection
        try:
            if known is not None:
                try:
                    return request(known)
                except NoAnswer:  # it was idle, or its login is old
                    if time.monotonic() > began + self._seconds / 2:
                        raise
            return request(self._connected())
        except RequestFailed:
            raise
        except ConfigurationError as error:
            self.close(0.0)
            raise BrokerAway("; ".join(error.problems)) from error
        except (NoAnswer, CorruptData, OperatorError) as error:
            self.close(0.0)
            raise BrokerAway(str(error)) from error

    def _connected(self) -> BrokerConnection:
        """Return a new connection to this broker.

        Raises:
            NoAnswer, CorruptData, OperatorError: as `BrokerConnection`, or another broker answered.
        """
        self.close(0.0)
        connection = self._connection = BrokerConnection(self._security(), self._seconds)
        try:
            self._settings(connection)
        except RequestFailed as error:
            raise NoAnswer(f"another broker than {self._id}: {error}") from error
        return connection
