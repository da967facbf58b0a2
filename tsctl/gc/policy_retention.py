"""The retention of one store by the policy, the running cluster, holds, and readers."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ts_common.archive.holds import read_holds
from ts_common.archive.object_keys import INCARNATIONS_NAME, ClusterKeys, PartitionKeys
from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectStore
from ts_common.store.options import NO_OPTIONS, StorageOptions
from tsctl.gc.absence import ArchivedTopic, note_absent
from tsctl.gc.due import Rule
from tsctl.gc.needed import Needed, open_needed
from tsctl.gc.policy import Policy, TopicKeeping, TopicRule
from tsctl.gc.retention import UNREADABLE, LeftOut, NeededFrom, Skipped, TopicIncarnation, Why
from tsctl.gc.topic_incarnations import read_topic_incarnations

if TYPE_CHECKING:
    from ts_common.archive.holds import Hold
    from tsctl.verify.kafka_cluster import KafkaCluster

# A hold that is set during a run stops the partitions whose deletion begins so long after it.
_HOLDS_SECONDS: Final = 5.0


class PolicyRetention:
    """A `Retention` for one store; several threads may use it.

    Args:
        policy: of the cluster.
        stores: all stores of the archive, the one of this retention first. Each has the same holds.
        keys: of the cluster.
        now: milliseconds since the epoch, by the clock of the store.
        kafka: the running cluster; None if the command line does not name it.
        absent: since when topics have been absent from the running cluster, ms since the epoch.
        options: of the connection to S3, for checkpoints there.
    """

    def __init__(
        self,
        policy: Policy,
        stores: Sequence[ObjectStore],
        keys: ClusterKeys,
        now: int,
        kafka: "KafkaCluster | None" = None,
        absent: Mapping[str, int] | None = None,
        options: StorageOptions = NO_OPTIONS,
    ) -> None:
        self._policy = policy
        self._stores = tuple(stores)
        self._keys = keys
        self._now = now
        self._kafka = kafka
        self._absent = absent or {}
        self._options = options
        self._lock = threading.Lock()  # guards the next five
        self._running: frozenset[str] | None = None
        self._kept: dict[str, TopicKeeping | None] = {}
        self._needed: dict[int, Needed] = {}  # by the identity of a rule
        self._holds: tuple[Hold, ...] = ()
        self._holds_read_at: float | None = None

    def rule(self, topic: str) -> Rule | None:
        """Return the rule of a topic; None if nothing of it is ever due.

        Raises:
            LeftOut: the cluster's settings of the topic are malformed.
            ConfigurationError: the rule needs the running cluster, and the command line does not name it.
            ClusterAway, AccessDenied: the cluster did not answer.
        """
        found = self._policy.rule_for(topic)
        if found is None or found.keep:
            return None
        return found.resolve(self._keeping(topic) if found.as_in_kafka else None)

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        """Return the first offset that a reader of the rule still needs; None if no reader needs any.

        Raises:
            LeftOut: the topic's list of incarnations is damaged.
            ConfigurationError: a reader does not exist.
            CorruptData, NewerFormat: what a reader wrote is damaged, or of a later release.
            ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        rule = self._policy.rule_for(keys.partition.topic)
        if rule is None or not rule.until_read_by:
            return None
        readers = self._readers(rule)
        try:
            return readers.first_needed(keys, self._now)
        except UNREADABLE as error:
            raise LeftOut(str(error)) from error

    def check_holds(self, topic: str) -> None:
        """Raise `LeftOut` if a hold in any store of the archive stops deletions of a topic, or is unreadable."""
        try:
            holds = self._current_holds()
        except UNREADABLE as error:
            raise LeftOut(str(error)) from error
        for hold in holds:
            if hold.stops(topic, self._now):
                raise LeftOut(f"hold {hold.name}: {hold.reason}", Why.HELD)

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        """Return whether an incarnation has been over for the time of `deleted_topics`."""
        deleted, rule = self._policy.deleted_topics, self._policy.rule_for(incarnation.topic)
        if deleted is None or (rule is not None and rule.keep):
            return False
        since = incarnation.over_since
        if since is None:
            since = self._absent.get(incarnation.topic)
        return since is not None and self._now - since >= deleted.after

    def _keeping(self, topic: str) -> TopicKeeping | None:
        if self._kafka is None:
            raise ConfigurationError("policy", [f"topic {topic}: as_in_kafka needs --bootstrap-server"])
        with self._lock:
            if topic not in self._kept:
                self._running = self._running or frozenset(self._kafka.topics())
                self._kept[topic] = None
                if topic in self._running:
                    try:
                        self._kept[topic] = TopicKeeping.of(self._kafka.settings([topic])[topic])
                    except ValueError as error:
                        raise LeftOut(f"the cluster's settings of the topic: {error}") from error
            return self._kept[topic]

    def _readers(self, rule: TopicRule) -> Needed:
        with self._lock:
            if id(rule) not in self._needed:
                first, *others = self._stores
                number = next(at for at, each in enumerate(self._policy.rules) if each is rule)
                self._needed[id(rule)] = open_needed(
                    rule,
                    first,
                    self._keys,
                    self._kafka,
                    options=self._options,
                    group_stores=others,
                    place=f"rules.{number}.until_read_by",
                )
            return self._needed[id(rule)]

    def _current_holds(self) -> "tuple[Hold, ...]":
        with self._lock:
            if self._holds_read_at is None or time.monotonic() - self._holds_read_at > _HOLDS_SECONDS:
                self._holds = tuple(hold for store in self._stores for hold in read_holds(store, self._keys))
                self._holds_read_at = time.monotonic()
            return self._holds


def read_absent(
    store: ObjectStore,
    keys: ClusterKeys,
    kafka: "KafkaCluster",
    has: Callable[[str], bool],
    now: int,
    *,
    writes: bool,
) -> dict[str, int]:
    """Return since when topics of a store have been absent from the running cluster, and note it in the store.

    Args:
        store: of the topics.
        keys: of the cluster.
        kafka: the running cluster.
        has: whether the store has a topic.
        now: milliseconds since the epoch, by the clock of the store.
        writes: whether to note it.

    Raises:
        QueryError, PreconditionFailed: as `note_absent`.
        CorruptData: a list of incarnations is damaged.
        ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    running = {name: topic.topic_id for name, topic in kafka.topics().items()}
    doubts: list[Skipped] = []
    archived: dict[str, frozenset[str]] = {}
    for each in read_topic_incarnations(store, keys, has, doubts.append):
        # The list of incarnations stays after everything else was deleted, and such a topic is absent for ever.
        if each.over_since is None and (each.topic in running or _has_objects(store, each)):
            archived[each.topic] = each.topic_ids
    kafka.check_unknown(archived.keys() - running.keys())  # a cluster also hides topics that an identity may not see
    topics = [ArchivedTopic(name, topic_ids) for name, topic_ids in archived.items()]
    return note_absent(store, keys, topics, running, now, writes=writes)


def _has_objects(store: ObjectStore, incarnation: TopicIncarnation) -> bool:
    """Return whether it has any object; the list of a topic `t-1` is in the directory of partition 1 of `t`."""
    objects = (info for keys in incarnation.partitions for info in islice(store.list(keys.prefix), 2))
    return any(not info.key.endswith(f"/{INCARNATIONS_NAME}") for info in objects)
