"""Reads a running Kafka cluster; only this module and `tsctl consume` import confluent-kafka.

The client's settings are those of librdkafka, from a properties file. It never writes to the cluster: it joins no
group, commits no offset and creates no topic.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import javaproperties
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from ts_common.errors import AccessDenied, ConfigurationError, TransientError
from ts_common.model import TopicPartition
from tsctl.verify.copy_comparison import record_digest

REQUEST_SECONDS: Final = 30.0
_AS_RETENTION: Final = "-2"  # of local.retention.ms: the same as retention.ms
_UNITS: Final = (("ms", 1), ("minutes", 60_000), ("hours", 3_600_000))  # the first that a broker has counts
_MOST_DRAWS: Final = 50  # of a controller, until it is another broker
_AT_ONCE: Final = 500  # partitions or topics in one request
_SILENT_SECONDS: Final = 60.0  # without a record, until the cluster counts as unavailable
_TO_KAFKAS = str.maketrans("+/", "-_", "=")  # librdkafka writes ids in plain base64, Kafka in URL-safe base64
_TIMESTAMP_TYPES: Final = {0: -1, 1: 0, 2: 1}  # librdkafka's values (none, CreateTime, LogAppendTime) to Kafka's
_OURS: Final[Mapping[str, Any]] = {"client.id": "tsctl", "allow.auto.create.topics": False, "log_level": 0}
_JAVA_ONLY: Final = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.keystore.location, a PKCS#12 file",
}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
# No request fails with these errors: librdkafka reports them to a callback, and retries.
_NOT_LET_IN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}

_T = TypeVar("_T")


class ClusterAway(TransientError):
    """The cluster did not answer."""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One topic of the cluster.

    Attributes:
        topic_id: 22 characters of base64; None if the cluster has no ids.
    """

    topic_id: str | None
    partitions: tuple[int, ...]


class KafkaRecord(NamedTuple):
    """A record as a consumer receives it.

    Attributes:
        timestamp: ms; -1 without one.
        timestamp_type: 0 CreateTime, 1 LogAppendTime, -1 no timestamp.
        headers: None without any.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long the cluster keeps a topic.

    Attributes:
        retention_ms: None: without a limit by time.
        compacts: whether the cleaner may remove records in the middle of the log.
    """

    retention_ms: int | None
    compacts: bool


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return dict(javaproperties.loads(path.read_text(encoding="iso-8859-1")))
    except (OSError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error


def read_client_properties(path: Path) -> dict[str, str]:
    """Read settings of librdkafka from a properties file.

    Raises:
        ConfigurationError: the file cannot be read, or has settings that only Java clients have.
    """
    found = read_properties(path)
    problems = [f"{key} is for Java clients; librdkafka uses {_JAVA_ONLY[key]}" for key in found if key in _JAVA_ONLY]
    if problems:
        raise ConfigurationError(str(path), problems)
    return found


class KafkaCluster:
    """A client of a cluster; a context manager.

    Args:
        bootstrap: `host:port`, separated by commas.
        properties: further settings of librdkafka.
        avoided: id of a broker that clients do not reach; see `metadata_of`.

    Raises:
        ConfigurationError: a setting is not one of librdkafka's.
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str], avoided: int | None = None) -> None:
        self._avoided = avoided
        self._settings = {**_OURS, **properties, "bootstrap.servers": bootstrap, "error_cb": self._note}
        self._bootstrap = bootstrap
        self._not_let_in: str | None = None
        try:
            self._client = AdminClient(self._settings)
        except KafkaException as error:
            raise ConfigurationError("settings of the Kafka client", [error.args[0].str()]) from error

    @property
    def admin(self) -> AdminClient:
        """The client of librdkafka for requests; it names a broker as controller that clients reach.

        Raises:
            ClusterAway, AccessDenied: the request for metadata failed.
        """
        if self._avoided is not None:
            self.metadata()
        return self._client

    def metadata(self) -> ClusterMetadata:
        """Return brokers, topics and partitions.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        found: ClusterMetadata = self._answer(lambda: metadata_of(self._client, self._avoided))
        return found

    def topics(self) -> dict[str, KafkaTopic]:
        """Return every topic that this identity may see.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        metadata = self.metadata()
        names = sorted(name for name, topic in metadata.topics.items() if topic.error is None)
        ids: dict[str, str | None] = {}
        for some in _pieces(names):
            asked = self.admin.describe_topics(TopicCollection(some), request_timeout=REQUEST_SECONDS)
            for name, future in asked.items():
                ids[name] = _topic_id(self._result(future).topic_id)
        return {name: KafkaTopic(ids[name], tuple(sorted(metadata.topics[name].partitions))) for name in names}

    def check_unknown(self, topics: Iterable[str]) -> None:
        """Check that topics which `topics` does not return do not exist, instead of being hidden.

        Raises:
            AccessDenied: this identity may not see one of them.
            ClusterAway: the cluster did not answer.
        """
        for some in _pieces(sorted(topics)):
            asked = self.admin.describe_topics(TopicCollection(some), request_timeout=REQUEST_SECONDS)
            for name, future in asked.items():
                self._result(future, f"topic {name}: ", absent={KafkaError.UNKNOWN_TOPIC_OR_PART})

    def keeping(self, topics: Iterable[str]) -> dict[str, Keeping]:
        """Return how long the cluster keeps each topic.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        return {topic: keeping_of(settings) for topic, settings in self.settings(topics).items()}

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic, with those of the broker and defaults.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        found: dict[str, dict[str, str]] = {}
        for some in _pieces(sorted(topics)):
            found |= self._settings_of([ConfigResource(ResourceType.TOPIC, name) for name in some])
        return found

    def retention_defaults(self, brokers: Iterable[int]) -> dict[int, dict[str, str]]:
        """Return what each broker applies to a topic without `cleanup.policy`, `retention.ms` and `retention.bytes`.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        found = {}
        for broker in brokers:  # librdkafka sends a request for one broker only
            (settings,) = self._settings_of([ConfigResource(ResourceType.BROKER, str(broker))]).values()
            ages = ((settings.get(f"log.retention.{unit}"), length) for unit, length in _UNITS)
            age = next(int(value) * length for value, length in ages if value is not None)
            found[broker] = {
                "cleanup.policy": settings["log.cleanup.policy"],
                "retention.ms": str(max(age, -1)),  # also -1 hours have no limit
                "retention.bytes": settings["log.retention.bytes"],
            }
        return found

    def _settings_of(self, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
        asked = self.admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)
        return {
            resource.name: {name: entry.value for name, entry in self._result(future).items()}
            for resource, future in asked.items()
        }

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group; empty if the cluster has no such group.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        asked = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_SECONDS
        )
        found: dict[TopicPartition, int] = {}
        for theirs in self._result(asked[group]).topic_partitions:
            if theirs.error is not None:
                raise self._translated(theirs.error, f"group {group}: ")
            if theirs.offset >= 0:
                found[TopicPartition(theirs.topic, theirs.partition)] = theirs.offset
        return found

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return (log start offset, high watermark) of each partition that has a leader.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        asked = list(partitions)
        first = self._offsets(asked, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        last = self._offsets(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {
            partition: (first[partition], last[partition])
            for partition in asked
            if {partition} <= first.keys() & last.keys()
        }

    def first_since(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose record is not older than a time in ms; None if all are older.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        found = self._offsets(times, {partition: OffsetSpec.for_timestamp(time) for partition, time in times.items()})
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def digests(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, digest) of each record in `[start, end)`, also of aborted ones, as `copy_comparison.digests`.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        for offset, timestamp, timestamp_type, key, value, headers in self.records(partition, start, end):
            yield offset, record_digest(timestamp, timestamp_type, key, value, headers or [])

    def records(
        self, partition: TopicPartition, start: int, end: int, isolation_level: str = "read_uncommitted"
    ) -> Iterator[KafkaRecord]:
        """Yield the records that a consumer receives in `[start, end)`.

        Raises:
            ClusterAway, AccessDenied: the request failed.
        """
        settings = {
            **self._settings,
            "group.id": f"tsctl-{uuid.uuid4()}",  # librdkafka requires one; no consumer joins it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TheirPartition(partition.topic, partition.partition, start)])
            while True:
                message = consumer.poll(_SILENT_SECONDS)
                if message is None:
                    raise ClusterAway(f"{self._bootstrap}: no record of {partition} for {_SILENT_SECONDS:.0f} s")
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._translated(error)
                if error is not None or offset is None or offset >= end:
                    return
                kind, timestamp = message.timestamp()
                headers: Any = message.headers()
                key: Any = message.key()
                value: Any = message.value()
                yield KafkaRecord(offset, timestamp if kind else -1, _TIMESTAMP_TYPES[kind], key, value, headers)
        finally:
            consumer.close()

    def _offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for some in _pieces(list(partitions)):
            asked = {
                TheirPartition(one.topic, one.partition): spec[one] if isinstance(spec, dict) else spec for one in some
            }
            for theirs, future in self.admin.list_offsets(asked, request_timeout=REQUEST_SECONDS).items():
                result = self._result(future, absent={KafkaError._NOENT, KafkaError.LEADER_NOT_AVAILABLE})
                if result is not None:
                    found[TopicPartition(theirs.topic, theirs.partition)] = result.offset
        return found

    def _answer(self, request: Callable[[], Any], about: str = "", absent: Collection[int] = ()) -> Any:
        """Return the answer to a request; None for an error in `absent`."""
        try:
            return request()
        except KafkaException as error:
            if error.args[0].code() in absent:
                return None
            raise self._translated(error.args[0], about) from error
        except TimeoutError as error:
            raise self._silent() from error

    def _result(self, future: "Future[Any]", about: str = "", absent: Collection[int] = ()) -> Any:
        return self._answer(lambda: future.result(REQUEST_SECONDS), about, absent)

    def _note(self, error: KafkaError) -> None:
        if error.code() in _NOT_LET_IN:
            self._not_let_in = error.str()

    def _silent(self) -> Exception:
        return self._refused() or ClusterAway(f"{self._bootstrap}: no answer in {REQUEST_SECONDS:.0f} s")

    def _refused(self) -> Exception | None:
        self._client.poll(0)  # runs the callback for errors
        if self._not_let_in is None:
            return None
        return AccessDenied(
            f"{self._bootstrap}: authentication failed: {self._not_let_in}; check --command-config, "
            "and that the address belongs to a listener for these settings"
        )

    def _translated(self, error: KafkaError, about: str = "") -> Exception:
        if error.code() in _DENIED:
            return AccessDenied(
                f"{self._bootstrap}: access denied: {about}{error.str()}; this identity needs Describe and "
                "DescribeConfigs on the topics, Read with --depth full, and Describe on groups that a policy names"
            )
        return self._refused() or ClusterAway(f"{self._bootstrap}: {about}{error.str()}")


def metadata_of(admin: AdminClient, avoided: int | None) -> ClusterMetadata:
    """Return the cluster's metadata.

    librdkafka sends most requests of an administrator to the broker that the newest metadata name as controller. With
    KRaft they name any broker, at random.

    Args:
        avoided: id of a broker that clients do not reach: metadata are read until they name another one.

    Raises:
        KafkaException: the request failed.
    """
    for _ in range(_MOST_DRAWS):
        found = admin.list_topics(timeout=REQUEST_SECONDS)
        if found.controller_id != avoided:
            break
    return found


def keeping_of(settings: Mapping[str, str]) -> Keeping:
    """Return how long a cluster keeps a topic on its brokers' own disks, because an agent ships only from there.

    Args:
        settings: of the topic, with those of the broker and defaults.
    """
    retention = settings["retention.ms"]
    # With Kafka's tiered storage (KIP-405, KIP-950), older segments are in the remote tier only.
    if settings.get("remote.storage.enable") == "true" and settings.get("remote.log.copy.disable") != "true":
        local = settings.get("local.retention.ms", _AS_RETENTION)
        retention = retention if local == _AS_RETENTION else local
    policy, limit = settings["cleanup.policy"], int(retention)
    return Keeping(limit if limit >= 0 and "delete" in policy else None, "compact" in policy)


def _topic_id(theirs: Any) -> str | None:
    text = str(theirs).translate(_TO_KAFKAS) if theirs is not None else ""
    return text if text.strip("A") else None  # all bits zero: the cluster has no ids


def _pieces(items: list[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
