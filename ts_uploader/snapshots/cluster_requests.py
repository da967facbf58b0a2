"""Requests for a cluster's brokers and topics, for configurations and for groups' offsets.

The messages are those of the files in Kafka's source, as `MetadataRequest.json`; `?` is a value that may be null::

    Metadata 10        topics? (null: all), create topics, cluster's rights, topics' rights; flexible
                       -> throttle, brokers [id, host, port, rack?], cluster?, controller, topics [error, name, id,
                          internal, partitions [error, number, leader, epoch, replicas, in sync, offline],
                          rights], rights
    DescribeConfigs 1  resources [type, name, keys? (null: all)], synonyms
                       -> throttle, results [error, message?, type, name, settings [name, value?, read-only, source,
                          sensitive, synonyms [name, value?, source]]]
    ListGroups 2       -> throttle, error, groups [group, type]
    OffsetFetch 5      group, topics? (null: all)
                       -> throttle, topics [name, partitions [number, offset, epoch, metadata?, error]], error
"""

import base64
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ts_common.archive.snapshots import Configs, GroupOffset
from ts_common.broker_connection.connection import NO_TAGS, Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, compact_string, string
from ts_common.errors import CorruptData
from ts_common.kafka_configs import ConfigSource, ResourceType
from ts_common.model import TopicPartition

_ALL: Final = b"\xff\xff\xff\xff"  # a null list
_NO_BOOLEAN: Final = b"\0"
_UNKNOWN_TOPIC, _GROUP_ID_NOT_FOUND = 3, 69
_TOPIC_DENIED, _GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31
_NO_ID: Final = bytes(16)
# Settings that Kafka marks as sensitive; a broker of another make, or a plugin, may forget the mark.
_SECRET: Final = re.compile(r"password|secret|jaas\.config|keystore\.key")


class Right(IntEnum):
    """A right on the cluster: the number of its bit."""

    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


class RequestFailed(CorruptData):
    """The broker answered with an error code that is no denial."""


@dataclass(frozen=True, slots=True)
class Node:
    """A live broker, and the listener of this connection."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Metadata:
    """The answer to Metadata.

    Attributes:
        topics: topic id, or None, and replicas of each partition, by name.
        rights: this identity's on the cluster, as bits.
    """

    nodes: tuple[Node, ...]
    topics: Mapping[str, tuple[str | None, tuple[tuple[int, ...], ...]]]
    rights: int

    def allows(self, right: Right) -> bool:
        """Return whether this identity has a right on the cluster."""
        return bool(self.rights >> right & 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, without a secret value."""

    name: str
    value: str | None
    source: int


def describe_metadata(connection: BrokerConnection) -> Metadata:
    """Return brokers and topics; topics that this identity may not describe are missing.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        UnsupportedRequest: the broker is older than Kafka 2.8.
    """
    nodes, topics, rights = _metadata(connection, b"\0")
    found = {name: (topic_id, replicas) for error, name, topic_id, replicas in topics if not error}
    return Metadata(tuple(nodes), found, rights)


def may_describe_topic(connection: BrokerConnection, topic: str) -> bool:
    """Return whether this identity may describe a topic, which need not exist.

    The answer about all topics lacks those that are denied. If a topic is named, a broker checks the right before it
    looks for the topic.

    Raises:
        NoAnswer, CorruptData, UnsupportedRequest: as `describe_metadata`.
    """
    _, topics, _ = _metadata(connection, b"\2" + _NO_ID + compact_string(topic) + NO_TAGS)
    return all(error != _TOPIC_DENIED for error, *_ in topics)


def _metadata(
    connection: BrokerConnection, topics: bytes
) -> tuple[list[Node], list[tuple[int, str, str | None, tuple[tuple[int, ...], ...]]], int]:
    """Return brokers, topics with their error codes, and rights on the cluster."""
    body = topics + b"\0" + b"\1" + b"\0" + NO_TAGS
    answer = connection.request(Api.METADATA, 10, body, flexible=True)
    answer.int32()

    def node() -> Node:
        found = Node(answer.int32(), answer.compact_string() or "", answer.int32(), answer.compact_string())
        answer.tagged_fields()
        return found

    def partition() -> tuple[int, tuple[int, ...]]:
        answer.int16()
        number = answer.int32()
        answer.int32(), answer.int32()
        replicas, _, _ = (answer.compact_array(answer.int32) for _ in range(3))
        answer.tagged_fields()
        return number, tuple(replicas)

    def topic() -> tuple[int, str, str | None, tuple[tuple[int, ...], ...]]:
        error, name, topic_id = answer.int16(), answer.compact_string() or "", answer.uuid()
        answer.boolean()
        partitions = sorted(answer.compact_array(partition))
        answer.int32()
        answer.tagged_fields()
        return error, name, _text_of(topic_id), tuple(replicas for _, replicas in partitions)

    nodes = answer.compact_array(node)
    answer.compact_string(), answer.int32()
    return nodes, answer.compact_array(topic), answer.int32()


def describe_configs(
    connection: BrokerConnection, kind: ResourceType, names: Sequence[str]
) -> dict[str, list[Setting] | None]:
    """Return all settings by resource; None where they are denied. Topics that do not exist any more are missing.

    Args:
        names: of topics; or the connection's own broker; or "" for the settings of all brokers.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: another error.
    """
    resources = [struct.pack(">b", kind) + string(name) + _ALL for name in names]
    body = struct.pack(">i", len(resources)) + b"".join(resources) + _NO_BOOLEAN
    answer = connection.request(Api.DESCRIBE_CONFIGS, 1, body)
    answer.int32()

    def setting() -> Setting:
        name, value = answer.string() or "", answer.string()
        answer.boolean()
        source, is_sensitive = answer.int8(), answer.boolean()
        answer.array(lambda: (answer.string(), answer.string(), answer.int8()))
        return Setting(name, None if is_sensitive or _SECRET.search(name) else value, source)

    def result() -> tuple[str, int, list[Setting]]:
        error, message = answer.int16(), answer.string()
        answer.int8()
        name, settings = answer.string() or "", answer.array(setting)
        if name not in names:
            raise CorruptData(f"{connection.name}: DescribeConfigs has {name!r}, which was not requested")
        if error not in {0, _UNKNOWN_TOPIC, _TOPIC_DENIED, CLUSTER_DENIED}:
            raise request_failed(connection, "DescribeConfigs", error, message)
        return name, error, settings

    results = answer.array(result)
    if missing := {*names} - {name for name, _, _ in results}:
        raise CorruptData(f"{connection.name}: DescribeConfigs lacks {min(missing)!r}, which was requested")
    return {name: None if error else settings for name, error, settings in results if error != _UNKNOWN_TOPIC}


def configs_of(settings: Iterable[Setting] | None, source: ConfigSource) -> Configs | None:
    """Return the settings that were set at one place, without secrets; None if they are denied."""
    if settings is None:
        return None
    return {each.name: each.value for each in settings if each.source == source and each.value is not None}


def list_groups(connection: BrokerConnection) -> list[str]:
    """Return the groups that this broker coordinates, and this identity may describe, by name.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: the broker has no list at this moment.
    """
    answer = connection.request(Api.LIST_GROUPS, 2, b"")
    answer.int32()
    if error := answer.int16():
        raise request_failed(connection, "ListGroups", error)
    return sorted(name or "" for name, _ in answer.array(lambda: (answer.string(), answer.string())))


def fetch_offsets(connection: BrokerConnection, group: str) -> dict[TopicPartition, GroupOffset] | None:
    """Return the committed offsets of a group that this broker coordinates; None if they are denied.

    A group that was removed since has no offsets.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: another broker coordinates the group now, or another error.
    """
    code, offsets = _offset_fetch(connection, group)
    if code == _GROUP_DENIED:
        return None
    if code not in {0, _GROUP_ID_NOT_FOUND}:
        raise request_failed(connection, f"OffsetFetch of group {group}", code)
    return offsets


def may_fetch_offsets(connection: BrokerConnection, group: str) -> bool:
    """Return whether this identity may read the offsets of a group, which need not exist, nor be of this broker.

    A broker checks rights before it looks for the group.
    """
    return _offset_fetch(connection, group)[0] != _GROUP_DENIED


def _offset_fetch(connection: BrokerConnection, group: str) -> tuple[int, dict[TopicPartition, GroupOffset]]:
    answer = connection.request(Api.OFFSET_FETCH, 5, string(group) + _ALL)
    answer.int32()
    found: dict[TopicPartition, GroupOffset] = {}
    failed: list[tuple[TopicPartition, int]] = []
    for topic, partitions in answer.array(lambda: (answer.string() or "", answer.array(lambda: _committed(answer)))):
        for number, committed, error in partitions:
            if error not in {0, _UNKNOWN_TOPIC, _TOPIC_DENIED}:
                failed.append((TopicPartition(topic, number), error))
            if not error and committed.offset >= 0:
                found[TopicPartition(topic, number)] = committed
    code = answer.int16()
    if failed and not code:
        raise request_failed(connection, f"OffsetFetch of group {group}, {failed[0][0]},", failed[0][1])
    return code, found


def _committed(answer: Reader) -> tuple[int, GroupOffset, int]:
    number, offset, epoch, metadata = answer.int32(), answer.int64(), answer.int32(), answer.string()
    return number, GroupOffset(offset, epoch, metadata or ""), answer.int16()


def _text_of(topic_id: bytes) -> str | None:
    """Return a topic id as Kafka writes it; None for a topic without one."""
    return None if topic_id == _NO_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def request_failed(connection: BrokerConnection, request: str, code: int, message: str | None = None) -> RequestFailed:
    """Return the error of a request that the broker answered with an error code."""
    reason = "" if message is None else f": {message}"
    return RequestFailed(f"{connection.name}: {request} failed with error code {code}{reason}")
