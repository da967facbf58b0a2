"""Metadata snapshots: what a cluster has in addition to records, in `meta/cluster/` and `meta/groups/`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/meta/cluster/20261129T1500Z.json.gz
    {"version":1,"time":1795964400000,"broker":1,"kafka":"4.1-IV1",
     "topics":{"orders":{"id":"5fWnyHqTQDqQDqQDqQDqQA","partitions":[[1,2],[2,1]],"configs":{"retention.ms":"-1"}}},
     "brokers":{"1":{"host":"b1.example.com","port":9092,"rack":"a","configs":{}},
                "default":{"host":null,"port":null,"rack":null,"configs":{"log.cleaner.threads":"2"}}},
     "quotas":[{"entity":{"user":"etl","client-id":null},"limits":{"producer_byte_rate":1048576.0}}],
     "acls":[{"resourceType":"TOPIC","name":"orders","pattern":"LITERAL","principal":"User:etl","host":"*",
              "operation":"READ","permission":"ALLOW"}],
     "users":[{"name":"etl","mechanisms":{"SCRAM-SHA-256":4096}}]}

    <base prefix>/ts-uploader~cluster~<cluster>/meta/groups/20261129T1505Z.json.gz
    {"version":1,"time":1795964700000,"groups":{"reports":{"orders-0":[4711,3,""]}}}

The names are UTC. A snapshot of the cluster has its hour, or, after a change, its minute. One of the groups has its
five minutes. Each agent tries to put it where no object has the name, so one of them wins. No snapshot has a secret.

The object is JSON, compressed by gzip. A field is null where the broker denied it to the agent, or was too old to have
it. Null means unknown; an empty list means that the cluster has no such entry. If the agent may not describe every
topic, `"allTopics":false` is there: `topics` can lack some.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final, Self

from ts_common.archive.group_offsets import LONGEST_METADATA
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.packed import pack, unpack
from ts_common.archive.small_objects import checked, get_small
from ts_common.archive.stored_object import BrokerId, Epoch, Presence, StoredObject, TopicName, between, limited
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, ObjectStore

MINUTE: Final = 60_000  # milliseconds
FIVE_MINUTES: Final = 5 * MINUTE
HOUR: Final = 60 * MINUTE
LARGEST: Final = 64 << 20  # bytes of JSON: 500,000 partitions with names of ordinary length, or a million offsets
DEFAULTS: Final = "default"  # instead of a broker's id: the dynamic configurations for all brokers
_SUFFIX: Final = ".json.gz"
_NAME: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})Z\.json\.gz", re.ASCII)
_RECENT: Final = 3 * HOUR  # a healthy cluster has a snapshot in it

_Time = Annotated[int, between(0, 253_402_300_799_999)]  # the year 9999
_Name = Annotated[str, limited(32767)]  # the longest text of Kafka's protocol
_Value = Annotated[str, limited(1 << 20)]
Configs = Mapping[_Name, _Value]


class Snapshot(StoredObject):
    """The base of both kinds: keys, listing, reading and writing.

    Attributes:
        time: milliseconds since the epoch, the agent's clock: its requests began. The object's name is of this time.
        kind: the directory below `meta/`.
        steps: milliseconds; the name has the time, rounded down to a multiple of one of them.
    """

    __slots__ = ()
    time: int
    kind: ClassVar[str]
    steps: ClassVar[tuple[int, ...]]

    @classmethod
    def prefix(cls, keys: ClusterKeys) -> str:
        """Return the common prefix of the cluster's snapshots of this kind."""
        return f"{keys.meta}{cls.kind}/"

    @classmethod
    def key(cls, keys: ClusterKeys, at: int) -> str:
        """Return the key of the snapshot with the name of a time, in milliseconds since the epoch."""
        return f"{cls.prefix(keys)}{datetime.fromtimestamp(at // 1000, UTC):%Y%m%dT%H%MZ}{_SUFFIX}"

    @classmethod
    def time_of(cls, keys: ClusterKeys, key: str) -> int | None:
        """Return the time in a key's name, in milliseconds since the epoch; None for a key that is no snapshot's."""
        match = _NAME.fullmatch(key.removeprefix(cls.prefix(keys)))
        try:
            at = match and datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[misc,arg-type]
        except ValueError:
            return None
        return int(at.timestamp()) * 1000 if at else None

    @classmethod
    def times(cls, store: ObjectStore, keys: ClusterKeys, since: int = 0) -> list[int]:
        """Return the names' times of all snapshots from `since` on, ascending, in milliseconds since the epoch.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        after = cls.key(keys, since).removesuffix(_SUFFIX) if since > 0 else ""
        found = (cls.time_of(keys, info.key) for info in store.list(cls.prefix(keys), start_after=after))
        return [at for at in found if at is not None]

    @classmethod
    def load(cls, store: ObjectStore, keys: ClusterKeys, at: int) -> Self | None:
        """Return the snapshot with the name of a time; None if the store has no such object.

        Raises:
            CorruptData: the object is damaged, or was written at another time than its name has.
            NewerFormat: a later release wrote it.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = cls.key(keys, at)
        try:
            packed, _ = get_small(store, key, cls._form.most)
        except ObjectNotFound:
            return None
        found = cls.decode(unpack(packed, key, cls._form.most), key)
        if all(cls.key(keys, found.time // step * step) != key for step in cls.steps):
            written = cls.key(keys, found.time).rpartition("/")[2]
            raise CorruptData(
                f"{key}: its content is of {written.removesuffix(_SUFFIX)}; another object was copied here"
            )
        return found

    @classmethod
    def newest(
        cls, store: ObjectStore, keys: ClusterKeys, at: int, damaged: dict[int, str] | None = None
    ) -> Self | None:
        """Return the newest snapshot whose name is at or before a time; None if the store has no such object.

        Args:
            at: milliseconds since the epoch. A snapshot of this minute counts.
            damaged: gets what is wrong with each damaged one, by the time of its name; they are left out. None: the
                first one is an error.

        Raises:
            CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `load`.
        """
        for since in (at - _RECENT, 0):
            for time in reversed(cls.times(store, keys, since)):
                if time > at or (damaged is not None and time in damaged):
                    continue
                try:
                    found = cls.load(store, keys, time)
                except CorruptData as error:
                    if damaged is None:
                        raise
                    damaged[time] = str(error)
                    continue
                if found is not None:  # else retention removed it since the listing
                    return found
        return None

    def put(self, store: ObjectStore, keys: ClusterKeys, at: int) -> None:
        """Write the snapshot, if no object has the name of the time `at`, which is `time` rounded down by a step.

        Raises:
            PreconditionFailed: another agent wrote it.
            CorruptData: readers would reject it: it is too large, or has a value that Kafka never has.
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = self.key(keys, at)
        data = checked(self.encode(), key, self._form.most)
        self.decode(data, key)  # a broker can send any value
        store.put(key, pack(data), condition=IfAbsent())


@dataclass(frozen=True, slots=True)
class Topic(StoredObject):
    """A topic.

    Attributes:
        id: Kafka's topic id; None on brokers before 2.8.
        partitions: the broker ids of each partition's replicas, the preferred leader first. Partition 0 is first.
        configs: its own configurations, without defaults; None if denied.
    """

    id: str | None
    partitions: tuple[tuple[BrokerId, ...], ...]
    configs: Configs | None

    @property
    def replication_factor(self) -> int:
        """The number of replicas of partition 0; 0 for a topic whose metadata the broker did not return."""
        return len(self.partitions[0]) if self.partitions else 0

    def is_like(self, other: "Topic") -> bool:
        """Return whether both show the same topic; unknown configurations are no difference."""
        same = (self.id, self.partitions) == (other.id, other.partitions)
        return same and _may_equal(self.configs, other.configs)


@dataclass(frozen=True, slots=True)
class Broker(StoredObject):
    """A broker, or the defaults of all brokers.

    Attributes:
        host: of the listener that the agent used; None for the defaults, and for a broker that was not registered.
        port: of that listener.
        rack: `broker.rack`.
        configs: dynamic configurations of this broker, without those for all; no passwords. None if denied.
    """

    host: _Name | None
    port: int | None
    rack: _Name | None
    configs: Configs | None


@dataclass(frozen=True, slots=True)
class Quota(StoredObject):
    """Limits of one entity, as `kafka-configs --entity-type` names them.

    Attributes:
        entity: name by type: `user`, `client-id` or `ip`; without a name, the type's default.
        limits: by name, such as `producer_byte_rate`.
    """

    entity: Mapping[_Name, _Name | None]
    limits: Mapping[_Name, float]


@dataclass(frozen=True, slots=True)
class Acl(StoredObject):
    """One ACL; words are those of `kafka-acls`, in capitals with underscores.

    Attributes:
        resource_type: such as `TOPIC`, `GROUP`, `CLUSTER`, `TRANSACTIONAL_ID`.
        pattern: `LITERAL` or `PREFIXED`.
        principal: such as `User:etl`.
        host: an address, or `*`.
        operation: such as `READ`, `DESCRIBE_CONFIGS`, `ALL`.
        permission: `ALLOW` or `DENY`.
    """

    resource_type: str
    name: _Name
    pattern: str
    principal: _Name
    host: _Name
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class User(StoredObject):
    """A SCRAM user, without secrets.

    Attributes:
        mechanisms: number of iterations by mechanism, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    """

    name: _Name
    mechanisms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot(Snapshot, expected="a snapshot of a cluster's metadata", most=LARGEST):
    """The metadata of a cluster at one time; an unknown field has None.

    Attributes:
        broker: whose agent wrote it.
        kafka: the version of Kafka's metadata, `metadata.version` or `inter.broker.protocol.version`.
        topics: by name, internal ones too.
        brokers: by id, or `default` for the configurations of all brokers.
        acls: empty if the brokers have no authorizer.
        users: of SCRAM.
        all_topics: whether the agent could describe every topic; if not, `topics` can lack some.
    """

    kind: ClassVar[str] = "cluster"
    steps: ClassVar[tuple[int, ...]] = (HOUR, MINUTE)
    time: _Time
    broker: BrokerId
    kafka: str | None
    topics: Mapping[TopicName, Topic]
    brokers: Mapping[Annotated[str, limited(10, rf"{DEFAULTS}|0|[1-9][0-9]*")], Broker]
    quotas: tuple[Quota, ...] | None
    acls: tuple[Acl, ...] | None
    users: tuple[User, ...] | None
    all_topics: Annotated[bool, Presence.IF_SET] = True

    def is_like(self, other: "ClusterSnapshot") -> bool:
        """Return whether both show the same cluster. A field that is unknown in one of them is no difference.

        A broker that only one of them has is no difference either, so a restart of a broker is no change.
        """
        parts = ("kafka", "quotas", "acls", "users")
        common = self.brokers.keys() & other.brokers.keys()
        topics = self.topics.keys() & other.topics.keys()
        return (
            all(_may_equal(getattr(self, part), getattr(other, part)) for part in parts)
            and (topics == self.topics.keys() or not other.all_topics)
            and (topics == other.topics.keys() or not self.all_topics)
            and all(self.topics[name].is_like(other.topics[name]) for name in topics)
            and all(_may_equal(self.brokers[name].configs, other.brokers[name].configs) for name in common)
        )


def _may_equal(one: object, other: object) -> bool:
    """Return whether two values are equal, or one is unknown."""
    return one is None or other is None or one == other


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of one partition.

    Attributes:
        offset: the next offset that the group reads.
        epoch: leader epoch of the last record before it; -1 if the client has not sent it.
    """

    offset: int
    epoch: Epoch
    metadata: Annotated[str, limited(LONGEST_METADATA)]


@dataclass(frozen=True, slots=True)
class GroupsSnapshot(Snapshot, expected="a snapshot of groups' offsets", most=LARGEST):
    """The committed offsets of a cluster's consumer groups at one time.

    Attributes:
        groups: offsets by group and partition. A group whose offsets were denied is missing.
    """

    kind: ClassVar[str] = "groups"
    steps: ClassVar[tuple[int, ...]] = (FIVE_MINUTES,)
    time: _Time
    groups: Mapping[_Name, Mapping[TopicPartition, GroupOffset]]
