"""Read a cluster's metadata and its groups' offsets from its brokers, for one snapshot.

Two clients with one configuration: librdkafka's admin client, and a raw connection for what it lacks (quotas, users,
settings for all brokers, and the metadata version of a KRaft cluster). A reader exists for one snapshot: between two,
an agent has no connection, and no thread of librdkafka.

====================================  ============================================================================
topics, ids, replicas                 DESCRIBE on the topics; others are missing
configurations of topics              DESCRIBE_CONFIGS on the topics, else null
configurations of brokers, quotas     DESCRIBE_CONFIGS on the cluster, else null
ACLs, SCRAM users                     DESCRIBE on the cluster, else null
groups                                DESCRIBE on the cluster, or on each group; others are missing
offsets of a group                    DESCRIBE on the group and on its topics; others are missing
====================================  ============================================================================

A broker answers for its own configurations only, and each coordinator for its groups: a snapshot has a few requests to
each broker. All requests are small: they name at most `_TOPICS_AT_ONCE` topics or `_GROUPS_AT_ONCE` groups.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Node, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    DescribeClusterResult,
    ResourcePatternType,
    ResourceType,
)

from ts_common.archive.snapshots import (
    DEFAULTS,
    Acl,
    Broker,
    ClusterSnapshot,
    GroupOffset,
    GroupsSnapshot,
    Quota,
    Topic,
    User,
)
from ts_common.errors import ConfigurationError, TieredStorageError, TransientError
from ts_common.model import TopicPartition
from ts_uploader.broker_connection.connection import BrokerConnection
from ts_uploader.broker_connection.security import security_of
from ts_uploader.leadership.kraft.admin_requests import DENIALS, AdminRequests, BrokerAway, kafkas_id
from ts_uploader.snapshots.raw_requests import (
    describe_broker_defaults,
    describe_client_quotas,
    describe_scram_users,
)

_ANSWER_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0
_TOPICS_AT_ONCE: Final = 100  # each answer has all forty settings of a topic, with their synonyms
_GROUPS_AT_ONCE: Final = 50
_PROBE: Final = "ts-uploader-check"  # a group that need not exist
# The first level of `metadata.version` of each release (`kafka-storage.sh version-mapping`).
_LEVELS: Final = (1, 2, 3, 4, 8, 9, 12, 15, 20, 21, 22, 26, 28)
_RELEASES: Final = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2")


class _Raw(NamedTuple):
    """What the raw connection reads; an unknown part has None."""

    quotas: tuple[Quota, ...] | None
    defaults: dict[str, str] | None
    users: tuple[User, ...] | None
    release: str | None


class ClusterReader:
    """The connections of one snapshot. Used by one thread.

    Attributes:
        unread: why quotas, users and the settings for all brokers are unknown; None if they are known, or denied.

    Args:
        broker_id: the local broker's, which the snapshot names.
        settings: librdkafka's, for a client of this broker.

    Raises:
        ConfigurationError: librdkafka rejects the settings.
    """

    def __init__(self, broker_id: int, settings: Mapping[str, str]) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._requests = AdminRequests(settings, _ANSWER_SECONDS)
        self.unread: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close(_CLOSE_SECONDS)

    def cluster(self, time: int) -> ClusterSnapshot:
        """Return the metadata of the cluster; `time` is that of the snapshot.

        Raises:
            BrokerAway: a broker did not answer, or with an error that is not a denial.
        """
        described = self._described()
        topics = self._topics()
        brokers, release = self._brokers(described.nodes)
        raw = self._raw()
        brokers[DEFAULTS] = Broker(None, None, None, raw.defaults)
        return ClusterSnapshot(
            time=time,
            broker=self._broker_id,
            kafka=raw.release or release,
            topics=topics,
            brokers=brokers,
            quotas=raw.quotas,
            # A denied request for ACLs has an empty answer from librdkafka 2.16, without an error.
            acls=self._acls() if _may(described, AclOperation.DESCRIBE) else None,
            users=raw.users,
        )

    def groups(self, time: int) -> GroupsSnapshot:
        """Return the committed offsets of all groups that this identity may describe; `time` is the snapshot's.

        Raises:
            BrokerAway: a coordinator did not answer, so that groups would be missing.
        """
        requests = self._requests
        listing = self._one(requests.admin.list_consumer_groups(request_timeout=requests.answer_seconds))
        if listing.errors:
            raise BrokerAway(f"ListGroups: {listing.errors[0]}")
        names = sorted(each.group_id for each in listing.valid)
        offsets = (each for some in _pieces(names, _GROUPS_AT_ONCE) for each in self._offsets(some).items())
        return GroupsSnapshot(time, {group: found for group, found in offsets if found})

    def lacking(self) -> list[tuple[str, str]]:
        """Return the rights that this identity lacks, each with what a snapshot then lacks; sets `unread` too.

        Raises:
            BrokerAway: the broker did not answer.
        """
        requests, described = self._requests, self._described()
        found = []
        if not _may(described, AclOperation.DESCRIBE):
            found.append(("DESCRIBE on the cluster", "ACLs and SCRAM users"))
        if not _may(described, AclOperation.DESCRIBE_CONFIGS):
            found.append(("DESCRIBE_CONFIGS on the cluster", "quotas and the brokers' configurations"))
        self._raw()
        names = self._names()[:_TOPICS_AT_ONCE]
        if any(configs is None for configs in self._topic_configs(names).values()):
            found.append(("DESCRIBE_CONFIGS on the topics", "topics' configurations"))
        _, failed = requests.collect(self._ask_offsets([_PROBE]))
        if failed.get(_PROBE) in DENIALS:
            found.append(("DESCRIBE on the groups", "groups' offsets"))
        return found

    def _names(self) -> list[str]:
        requests = self._requests
        try:
            listing = requests.admin.list_topics(timeout=requests.answer_seconds)
        except KafkaException as error:
            raise requests.away(error) from error
        finally:
            requests.call_back()
        return sorted(listing.topics)

    def _topics(self) -> dict[str, Topic]:
        requests = self._requests
        found = {}
        for names in _pieces(self._names(), _TOPICS_AT_ONCE):
            wanted = TopicCollection(names)
            described, failed = requests.collect(
                requests.admin.describe_topics(wanted, request_timeout=requests.answer_seconds)
            )
            self._check(failed, DENIALS | {KafkaError.UNKNOWN_TOPIC_OR_PART})  # deleted since, or about to be
            configs = self._topic_configs(sorted(described))
            for name, each in described.items():
                topic_id = kafkas_id(each.topic_id)
                partitions = sorted(each.partitions, key=lambda partition: partition.id)
                replicas = tuple(tuple(node.id for node in partition.replicas) for partition in partitions)
                has_id = bool(topic_id.strip("A"))  # all zeros: before Kafka 2.8
                found[name] = Topic(topic_id if has_id else None, replicas, configs.get(name))
        return found

    def _topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str] | None]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        described = self._configs(resources, DENIALS | {KafkaError.UNKNOWN_TOPIC_OR_PART})
        return {
            resource.name: None if entries is None else _of_source(entries, ConfigSource.DYNAMIC_TOPIC_CONFIG)
            for resource, entries in described.items()
        }

    def _described(self) -> DescribeClusterResult:
        """Return the live brokers, and what this identity may do with the cluster."""
        requests = self._requests
        described: DescribeClusterResult = self._one(
            requests.admin.describe_cluster(include_authorized_operations=True, request_timeout=requests.answer_seconds)
        )
        return described

    def _brokers(self, nodes: Sequence[Node]) -> tuple[dict[str, Broker], str | None]:
        """Return all live brokers, and the release of a cluster with ZooKeeper."""
        resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
        # A broker that ended since is no reason to have no snapshot.
        described = self._configs(resources, DENIALS | {KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
        by_id = {resource.name: entries for resource, entries in described.items()}
        protocols = (entries.get("inter.broker.protocol.version") for entries in by_id.values() if entries)
        releases = (protocol.value.partition("-")[0] for protocol in protocols if protocol and protocol.value)
        found = {}
        for node in nodes:
            own = by_id.get(str(node.id))
            configs = None if own is None else _of_source(own, ConfigSource.DYNAMIC_BROKER_CONFIG)
            found[str(node.id)] = Broker(node.host, node.port, node.rack, configs)
        return found, next(releases, None)

    def _raw(self) -> _Raw:
        """Return what only the raw connection can read. If that fails, it does not prevent a snapshot of the rest.

        Raises:
            BrokerAway: no answer; it may answer later.
        """
        try:
            with BrokerConnection(security_of(self._settings), _ANSWER_SECONDS) as connection:
                level = connection.features.get("metadata.version")
                release = None if level is None else _release(level)
                return _Raw(
                    describe_client_quotas(connection),
                    describe_broker_defaults(connection),
                    describe_scram_users(connection),
                    release,
                )
        except TransientError as error:
            raise BrokerAway(str(error)) from error
        except TieredStorageError as error:
            self.unread = "; ".join(error.problems) if isinstance(error, ConfigurationError) else str(error)
            return _Raw(None, None, None, None)

    def _acls(self) -> tuple[Acl, ...]:
        requests = self._requests
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # it means any
            ResourcePatternType.ANY,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        answer = requests.admin.describe_acls(every, request_timeout=requests.answer_seconds)
        found, failed = requests.collect({"": answer})
        if failed.get("") == KafkaError.SECURITY_DISABLED:  # no authorizer
            return ()
        self._check(failed)
        acls = [
            Acl(
                resource_type=each.restype.name,
                name=each.name,
                pattern=each.resource_pattern_type.name,
                principal=each.principal,
                host=each.host,
                operation=each.operation.name,
                permission=each.permission_type.name,
            )
            for each in found[""]
        ]
        return tuple(sorted(acls, key=lambda each: (each.resource_type, each.name, repr(each))))

    def _ask_offsets(self, groups: Sequence[str]) -> dict[str, Any]:
        requests = self._requests
        return {
            group: future
            for name in groups
            for group, future in requests.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=requests.answer_seconds
            ).items()
        }

    def _offsets(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, GroupOffset]]:
        found, failed = self._requests.collect(self._ask_offsets(groups))
        self._check(failed, DENIALS | {KafkaError.GROUP_ID_NOT_FOUND})
        return {
            group: {
                TopicPartition(each.topic, each.partition): GroupOffset(
                    each.offset, -1 if each.leader_epoch is None else each.leader_epoch, each.metadata or ""
                )
                for each in answer.topic_partitions
                if each.error is None and each.offset >= 0
            }
            for group, answer in found.items()
        }

    def _configs(
        self, resources: list[ConfigResource], accepted: frozenset[int]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | None]:
        """Return all settings of resources; None where the request was denied or failed for an accepted reason."""
        requests = self._requests
        # A request names many topics, or one broker.
        together = (
            [resources]
            if all(each.restype is ResourceType.TOPIC for each in resources)
            else [[each] for each in resources]
        )
        answers: dict[ConfigResource, Any] = {}
        for some in filter(None, together):
            answers |= requests.admin.describe_configs(some, request_timeout=requests.answer_seconds)
        found, failed = requests.collect(answers)
        self._check(failed, accepted)
        return {**dict.fromkeys(failed), **found}

    def _one(self, answer: Any) -> Any:
        """Return the answer of one request."""
        found, failed = self._requests.collect({"": answer})
        self._check(failed)
        return found[""]

    def _check(self, failed: Mapping[Any, int], accepted: frozenset[int] = frozenset()) -> None:
        for request, code in failed.items():
            if code not in accepted:
                name = KafkaError(code).str()
                about = f"{request.name}: " if isinstance(request, ConfigResource) else f"{request}: " * bool(request)
                raise BrokerAway(f"{about}{self._requests.last_error or name}")


def _may(described: DescribeClusterResult, operation: AclOperation) -> bool:
    """Return whether this identity has a right on the cluster. Brokers report that since Kafka 2.3."""
    return operation in list(described.authorized_operations or ())  # its type is wrong there: it can have None


def _of_source(entries: Mapping[str, ConfigEntry], source: ConfigSource) -> dict[str, str]:
    """Return the settings that were set at one place, without secrets."""
    wanted: set[Any] = {source.value}  # its type is wrong there: a setting has the number
    return {
        name: value
        for name, entry in entries.items()
        if entry.source in wanted and (value := entry.value) is not None and not entry.is_sensitive
    }


def _release(level: int) -> str:
    """Return the release of a level of `metadata.version`; of a later release the level itself."""
    if not _LEVELS[0] <= level <= _LEVELS[-1] + 1:
        return f"metadata.version {level}"
    return _RELEASES[bisect_right(_LEVELS, level) - 1]


def _pieces(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(names), size):
        yield list(names[at : at + size])
