"""Requests to brokers: the offsets that they have, those that the group has committed, and topic ids.

They are sent by a client of their own. The binding lets one thread at a time into a client, so a request by the live
part would wait for the application's `poll`, and the `poll` for the request.

Committed offsets are read by a consumer that never joins the group: `AdminClient.list_consumer_group_offsets` ends the
process if the coordinator is not ready (`rd_kafka_handle_OffsetFetch` uses the group that an admin client lacks).
"""

import base64
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

import structlog
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public, without `as`

from ts_consumer.live import Key
from ts_consumer.modes import Extent

_PREFIXES: Final = ("metadata.", "broker.", "security.", "sasl.", "ssl.", "socket.", "reconnect.", "retry.", "oauth")
_NAMES: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "enable.ssl.certificate.verification",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "debug",
        "log_level",
    }
)
_ID_SECONDS: Final = 5.0  # that a topic id is kept
_ANSWER_SECONDS: Final = 10.0
_ATTEMPTS, _CONNECT_SECONDS = 3, 2.0
_SPEC: Final[Any] = OffsetSpec
_EARLIEST, _LATEST = _SPEC.earliest(), _SPEC.latest()

T = TypeVar("T")

log = structlog.get_logger()


class Brokers:
    """Sends requests to brokers; thread-safe.

    Args:
        settings: librdkafka's configuration of the consumer.
        read_committed: whether a log ends at its last stable offset.
    """

    def __init__(self, settings: Mapping[str, Any], *, read_committed: bool) -> None:
        own = {key: value for key, value in settings.items() if key.startswith(_PREFIXES) or key in _NAMES}
        self._client: Any = AdminClient(own)
        level = "read_committed" if read_committed else "read_uncommitted"
        self._member = Consumer({**own, "group.id": settings.get("group.id", ""), "isolation.level": level})
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[float, str | None]] = {}
        self._has_warned = False
        self._is_connected = False

    def extent(self, key: Key) -> Extent:
        """Return the offsets that brokers have of a partition now.

        Raises:
            KafkaException: they did not answer in time, or do not have the partition.
        """
        self._connect(key[0])
        return self._twice(key[0], lambda: self._extent(key))

    def _extent(self, key: Key) -> Extent:
        place = TopicPartition(*key)
        options = {"isolation_level": self._isolation, "request_timeout": _ANSWER_SECONDS}
        first = self._client.list_offsets({place: _EARLIEST}, **options)
        last = self._client.list_offsets({place: _LATEST}, **options)
        return Extent(_only(first).offset, _only(last).offset)

    def committed(self, key: Key) -> tuple[int, int | None] | None:
        """Return the offset that the group has committed and its leader epoch; None without one.

        Raises:
            KafkaException: the coordinator did not answer in time, or refused.
        """
        self._connect(key[0])
        (found,) = self._member.committed([TopicPartition(*key)], _ANSWER_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return (found.offset, found.leader_epoch) if found.offset >= 0 else None

    def topic_id(self, topic: str) -> str | None:
        """Return the topic id that brokers have now; None if they have no ids (Kafka before 2.8).

        Raises:
            KafkaException: no broker answered, or the topic does not exist.
        """
        with self._lock:
            known = self._ids.get(topic)
        if known is not None and monotonic() - known[0] < _ID_SECONDS:
            return known[1]
        found = self._twice(topic, lambda: self._topic_id(topic))
        with self._lock:
            self._ids[topic] = monotonic(), found
            warns, self._has_warned = found is None and not self._has_warned, self._has_warned or found is None
        if warns:
            log.warning("topic_ids_unknown", reason="brokers before Kafka 2.8 have none; a new topic is not noticed")
        return found

    def _topic_id(self, topic: str) -> str | None:
        asked = self._client.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)
        return id_of(_only(asked).topic_id)

    def _connect(self, topic: str) -> None:
        """Connect to brokers, once.

        Without a request a client connects after a second. A request that it had sent to an address of
        `bootstrap.servers` before it has the brokers' own addresses is lost, and repeated after two seconds.
        """
        with self._lock:
            connects, self._is_connected = not self._is_connected, True
        for client in (self._client, self._member) if connects else ():
            for _ in range(_ATTEMPTS):
                with suppress(KafkaException):  # the request that follows reports what stays
                    client.list_topics(topic, timeout=_CONNECT_SECONDS)
                    break

    def _twice(self, topic: str, request: Callable[[], T]) -> T:
        """Send a request, and again with new metadata if it fails.

        An admin client keeps its metadata for ever: also that a partition has no leader, and a controller that is away.
        """
        try:
            return request()
        except KafkaException:
            self._client.list_topics(topic, timeout=_ANSWER_SECONDS)
        return request()

    def forget_id(self, topic: str) -> None:
        """Request a topic's id again: the topic may have been created again before it was assigned."""
        with self._lock:
            self._ids.pop(topic, None)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the credentials."""
        self._client.set_sasl_credentials(username, password)
        self._member.set_sasl_credentials(username, password)

    def close(self) -> None:
        """End the connections; a request in progress ends first."""
        self._member.close()
        self._client = None  # an admin client has no close(): its threads end with its last reference


def id_of(topic_id: Uuid) -> str | None:
    """Return a topic id as Kafka's tools and the archive write it; None for zero, which brokers without ids return.

    librdkafka's text has `+` and `/` where Kafka's `Uuid.toString` has `-` and `_`.
    """
    known: Any = topic_id  # the binding has no types for its methods
    bits = known.get_most_significant_bits(), known.get_least_significant_bits()
    if bits == (0, 0):
        return None
    return base64.urlsafe_b64encode(struct.pack(">qq", *bits)).rstrip(b"=").decode()


def _only(asked: Mapping[Any, "Future[Any]"]) -> Any:
    """Return the one answer."""
    (answer,) = asked.values()
    return answer.result(2 * _ANSWER_SECONDS)
