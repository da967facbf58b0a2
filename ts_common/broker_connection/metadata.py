"""Requests brokers and topics (Metadata).

Version 10 has topic ids (KIP-516); `?` is a value that may be null, as in Kafka's `MetadataRequest.json`::

    topics? [id, name] (null: all), create topics, cluster's rights, topics' rights; flexible
    -> throttle, brokers [id, host, port, rack?], cluster?, controller, topics [error, name, id, internal,
       partitions [error, number, leader, epoch, replicas, in sync, offline], rights], rights
"""

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ts_common.broker_connection.connection import NO_TAGS, Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, compact_string
from ts_common.broker_connection.failures import TOPIC_DENIED
from ts_common.errors import CorruptData

_VERSION: Final = 10
_ALL: Final = b"\0"  # a null list
_FLAGS: Final = b"\0" + b"\1" + b"\0"  # no topic is created; this identity's rights on the cluster, not on topics
_NO_ID: Final = bytes(16)
_MOST_KNOWN: Final = 10_000  # topics
_PARTITION: Final = struct.Struct(">hiii")  # error, number, leader, leader epoch


class Right(IntEnum):
    """A right on the cluster: the number of its bit."""

    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


@dataclass(frozen=True, slots=True)
class Node:
    """A live broker, and the listener of this connection."""

    id: int
    host: str
    port: int
    rack: str | None


class Topic(NamedTuple):
    """A topic, as one broker describes it.

    Attributes:
        error: Kafka's code; 0 without an error.
        id: as Kafka writes it; None for a topic without one.
        leaders: by partition; -1 for a partition without one.
        replicas: of each partition, ascending by partition.
    """

    error: int
    id: str | None
    leaders: Mapping[int, int]
    replicas: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The answer to Metadata.

    Attributes:
        topics: by name.
        rights: this identity's on the cluster, as bits.
    """

    nodes: tuple[Node, ...]
    topics: Mapping[str, Topic]
    rights: int

    def allows(self, right: Right) -> bool:
        """Return whether this identity has a right on the cluster."""
        return bool(self.rights >> right & 1)


def describe_metadata(connection: BrokerConnection) -> Metadata:
    """Return brokers and topics; topics with an error, as those that this identity may not describe, are missing.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        UnsupportedRequest: the broker is older than Kafka 2.8.
    """
    nodes, answer = _requested(connection, _ALL)
    topics = {name: topic for name, topic in _topics(answer).items() if not topic.error}
    return Metadata(nodes, topics, answer.int32())


class Topics:
    """Descriptions of topics by one broker. An answer that is equal to the last one is not parsed again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Topic]] = {}

    def describe(self, connection: BrokerConnection, name: str) -> Topic:
        """Return a topic, or its error. A broker checks the right to describe it before it looks for it.

        Raises:
            NoAnswer, CorruptData, UnsupportedRequest: as `describe_metadata`.
        """
        _, answer = _requested(connection, b"\2" + _NO_ID + compact_string(name) + NO_TAGS)
        known, data = self._known.pop(name, None), answer.unread
        if known is not None and known[0] == data:
            found = known[1]
        else:
            topics = _topics(answer)
            if name not in topics:
                raise CorruptData(f"{connection.name}: the answer to Metadata lacks {name!r}, which was requested")
            found = topics[name]
        if not found.error:
            self._known[name] = data, found
            if len(self._known) > _MOST_KNOWN:  # topics that were deleted since
                del self._known[next(iter(self._known))]
        return found


def may_describe_topic(connection: BrokerConnection, name: str) -> bool:
    """Return whether this identity may describe a topic, which need not exist; raises as `Topics.describe`."""
    return Topics().describe(connection, name).error != TOPIC_DENIED


def _requested(connection: BrokerConnection, topics: bytes) -> tuple[tuple[Node, ...], Reader]:
    """Return the brokers, and the rest of the answer.

    With KRaft the controller before the topics is any broker that is alive, another one in each answer.
    """
    answer = connection.request(Api.METADATA, _VERSION, topics + _FLAGS + NO_TAGS, flexible=True)
    answer.int32()

    def node() -> Node:
        found = Node(answer.int32(), answer.compact_string() or "", answer.int32(), answer.compact_string())
        answer.tagged_fields()
        return found

    nodes = tuple(answer.compact_array(node))
    answer.compact_string(), answer.int32()
    return nodes, answer


def _topics(answer: Reader) -> dict[str, Topic]:
    """Return all topics of the rest of an answer, with their error codes."""

    def partition() -> tuple[int, int, tuple[int, ...]]:
        _, number, leader, _ = answer.values(_PARTITION)
        replicas, _, _ = answer.compact_int32s(), answer.compact_int32s(), answer.compact_int32s()
        answer.tagged_fields()
        return number, leader, replicas

    def topic() -> tuple[str, Topic]:
        error, name, topic_id = answer.int16(), answer.compact_string() or "", answer.uuid()
        answer.boolean()
        partitions = sorted(answer.compact_array(partition))
        answer.int32()
        answer.tagged_fields()
        leaders = {number: leader for number, leader, _ in partitions}
        return name, Topic(error, _text_of(topic_id), leaders, tuple([replicas for _, _, replicas in partitions]))

    return dict(answer.compact_array(topic))


def _text_of(topic_id: bytes) -> str | None:
    """Return a topic id as Kafka writes it; None for a topic without one."""
    return None if topic_id == _NO_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
