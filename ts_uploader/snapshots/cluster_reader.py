"""Read a cluster's metadata and its groups' offsets from its brokers, for one snapshot.

====================================  ============================================================================
topics, ids, replicas                 DESCRIBE on the topics; others are missing, and `allTopics` is false
configurations of topics              DESCRIBE_CONFIGS on the topics, else null
configurations of brokers, quotas     DESCRIBE_CONFIGS on the cluster, else null
ACLs, SCRAM users                     DESCRIBE on the cluster, else null
groups                                DESCRIBE on the cluster, or on each group; others are missing
offsets of a group                    DESCRIBE on the group and on its topics; others are missing
====================================  ============================================================================

A broker answers for its own configurations and its own groups only, so each is visited once. All requests are small:
they name at most `_TOPICS_AT_ONCE` topics, or one group. Between two snapshots an agent has no connection.

Why not librdkafka: it has no request for quotas. A denied request for SCRAM users ends
the process (2.16), and a denied request for ACLs has an empty answer. 300 topics every five minutes leave 15 MB in a
day, and an agent of ZooKeeper mode would have 17 MB more.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from ts_common.archive.snapshots import DEFAULTS, LARGEST, Broker, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.broker_connection.configs import Setting, configs_of, describe_configs
from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.metadata import Metadata, Right, describe_metadata, may_describe_topic
from ts_common.broker_connection.security import Security
from ts_common.errors import OperatorError
from ts_common.kafka_configs import ConfigSource, ResourceType
from ts_common.model import TopicPartition
from ts_uploader.snapshots.access_requests import describe_acls, describe_client_quotas, describe_scram_users
from ts_uploader.snapshots.group_requests import fetch_offsets, list_groups, may_fetch_offsets

_ANSWER_SECONDS: Final = 10.0
_READING_SECONDS: Final = 180.0  # thousands of groups on a busy cluster; the next round begins after five minutes
_TOPICS_AT_ONCE: Final = 100  # each answer has all forty settings of a topic
_PROBE: Final = "ts-uploader-check"  # a topic and a group that need not exist
_PROTOCOL: Final = "inter.broker.protocol.version"
# The first level of `metadata.version` of each release (`kafka-storage.sh version-mapping`).
_LEVELS: Final = (1, 2, 3, 4, 8, 9, 12, 15, 20, 21, 22, 26, 28)
_RELEASES: Final = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2")


class TopicsDenied(OperatorError):
    """The brokers show no topic, because they deny it."""


class ClusterReader:
    """Reads a cluster from its brokers, until `close`.

    Args:
        security: returns how to connect to the local broker; all others have the same settings.
        broker_id: of the agent, which the snapshot names.
        seconds: for the whole of one reading.
    """

    def __init__(self, security: Callable[[], Security], broker_id: int, seconds: float = _READING_SECONDS) -> None:
        self._security = security
        self._broker_id = broker_id
        self._seconds = seconds
        self._closed = False
        self._connection: BrokerConnection | None = None

    def close(self) -> None:
        """End a reading soon, and prevent further ones; any thread may call it."""
        self._closed = True
        if (connection := self._connection) is not None:
            connection.close()

    def read(self, time: int) -> tuple[ClusterSnapshot, GroupsSnapshot]:
        """Return the metadata of the cluster, and the committed offsets of its groups.

        Args:
            time: of the snapshots, milliseconds since the epoch.

        Raises:
            NoAnswer: a broker did not answer, so that a part would be missing; or the reader is closed.
            TopicsDenied: this identity may describe no topic. The snapshot would show a cluster without topics.
            LoginRejected, UnsupportedRequest: an operator must act; brokers must be of Kafka 2.8 or later.
            ConfigurationError: as `security`.
            CorruptData: a malformed answer, or an error that is no denial.
        """
        until = monotonic() + self._seconds
        security = self._security()
        with self._connected(security, until) as connection:
            metadata = describe_metadata(connection)
            sees_all = may_describe_topic(connection, _PROBE)
            if not metadata.topics and not sees_all:
                raise TopicsDenied(
                    f"{connection.name}: this identity may describe no topic, so no snapshot is written; allow it "
                    "DESCRIBE on the topics"
                )
            topics = _topics(connection, metadata)
            defaults = describe_configs(connection, ResourceType.BROKER, [""]).get("")
            quotas, acls = describe_client_quotas(connection), describe_acls(connection)
            users = describe_scram_users(connection)
            level = connection.features.get("metadata.version")
        brokers = {DEFAULTS: Broker(None, None, None, configs_of(defaults, ConfigSource.DYNAMIC_DEFAULT_BROKER))}
        groups: dict[str, Mapping[TopicPartition, GroupOffset]] = {}
        release = None if level is None else _release(level)
        for node in metadata.nodes:
            with self._connected(replace(security, address=(node.host, node.port)), until) as connection:
                settings = describe_configs(connection, ResourceType.BROKER, [str(node.id)]).get(str(node.id))
                groups |= {
                    group: offsets for group in list_groups(connection) if (offsets := fetch_offsets(connection, group))
                }
            configs = configs_of(settings, ConfigSource.DYNAMIC_BROKER)
            brokers[str(node.id)] = Broker(node.host, node.port, node.rack, configs)
            release = release or _release_of(settings or ())
        cluster = ClusterSnapshot(
            time, self._broker_id, release, topics, brokers, quotas, acls, users, all_topics=sees_all
        )
        return cluster, GroupsSnapshot(time, groups)

    def _connected(self, security: Security, until: float) -> BrokerConnection:
        return BrokerConnection(security, _ANSWER_SECONDS, LARGEST, until, self._opening)

    def _opening(self, connection: BrokerConnection) -> None:
        self._connection = connection
        if self._closed:
            connection.close()


def lacking(security: Security) -> list[tuple[str, str]]:
    """Return the rights that this identity lacks, each with what a snapshot then lacks.

    Raises:
        NoAnswer, LoginRejected, UnsupportedRequest, CorruptData: as `ClusterReader.read`.
    """
    found = []
    with BrokerConnection(security, _ANSWER_SECONDS, LARGEST) as connection:
        metadata = describe_metadata(connection)
        if not may_describe_topic(connection, _PROBE):
            found.append(
                ("DESCRIBE on all topics", "topics that it may not describe; without any topic no snapshot is written")
            )
        if not metadata.allows(Right.DESCRIBE):
            found.append(("DESCRIBE on the cluster", "ACLs and SCRAM users"))
        if not metadata.allows(Right.DESCRIBE_CONFIGS):
            found.append(("DESCRIBE_CONFIGS on the cluster", "quotas and the brokers' configurations"))
        if any(topic.configs is None for topic in _topics(connection, metadata).values()):
            found.append(("DESCRIBE_CONFIGS on the topics", "topics' configurations"))
        if not may_fetch_offsets(connection, _PROBE):
            found.append(("DESCRIBE on the groups", "groups' offsets"))
    return found


def _topics(connection: BrokerConnection, metadata: Metadata) -> dict[str, Topic]:
    found = {}
    for names in _pieces(sorted(metadata.topics), _TOPICS_AT_ONCE):
        # A topic that was deleted since has no configurations, and is missing.
        for name, settings in describe_configs(connection, ResourceType.TOPIC, names).items():
            known = metadata.topics[name]
            found[name] = Topic(known.id, known.replicas, configs_of(settings, ConfigSource.DYNAMIC_TOPIC))
    return found


def _release_of(settings: Sequence[Setting]) -> str | None:
    """Return the release of a cluster with ZooKeeper, such as `3.9` for `3.9-IV0`."""
    return next((each.value.partition("-")[0] for each in settings if each.name == _PROTOCOL and each.value), None)


def _release(level: int) -> str:
    """Return the release of a level of `metadata.version`; of a later release the level itself."""
    if not _LEVELS[0] <= level <= _LEVELS[-1] + 1:
        return f"metadata.version {level}"
    return _RELEASES[bisect_right(_LEVELS, level) - 1]


def _pieces(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(names), size):
        yield list(names[at : at + size])
