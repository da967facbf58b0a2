"""The retention of one store by the policy, the running cluster, holds, and readers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ts_common.archive.holds import read_holds
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectStore
from ts_common.store.options import NO_OPTIONS, StorageOptions
from tsctl.gc.due import Rule
from tsctl.gc.needed import Readers
from tsctl.gc.policy import Policy, TopicKeeping
from tsctl.gc.retention import UNREADABLE, LeftOut, NeededFrom, TopicIncarnation, Why

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

# Holds, and what readers have read, are read again after so long: they can change while a run deletes.
_RECENT_SECONDS: Final = 5.0

_T = TypeVar("_T")


@dataclass(slots=True)
class PolicyRetention:
    """A `Retention` for one store; several threads may use it.

    Attributes:
        stores: all stores of the archive, the one of this retention first. Each has the same holds.
        now: milliseconds since the epoch, by the clock of the store.
        kafka: the running cluster; None if the command line does not name it.
        absent: since when topics have been absent from the running cluster, ms since the epoch.
        options: of the connection to S3, for checkpoints there.
        clock: returns seconds; by it, holds and readers are read again.
    """

    policy: Policy
    stores: Sequence[ObjectStore]
    keys: ClusterKeys
    now: int
    kafka: "KafkaCluster | None" = None
    absent: Mapping[str, int] | None = None
    options: StorageOptions = NO_OPTIONS
    clock: Callable[[], float] = time.monotonic
    _lock: Any = field(default_factory=RLock, init=False)  # guards the next one
    _known: dict[str, tuple[float, Any]] = field(default_factory=dict, init=False)  # what was read, with its time

    def rule(self, topic: str) -> Rule | None:
        """Return the rule of a topic; None if nothing of it is ever due.

        Raises:
            LeftOut: the running cluster has another topic of this name, or malformed settings of it; or it compacts the
                topic, and the rule has no `compacted`.
            ConfigurationError: the rule needs the running cluster, and the command line does not name it.
            ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        found, kept = self.policy.rule_for(topic), None
        if found is None or found.keep:
            return None
        if self.kafka is not None and (found.as_in_kafka or not found.compacted):
            kept = self._keeping(topic, self.kafka, is_followed=found.as_in_kafka)
        elif found.as_in_kafka:
            raise ConfigurationError("policy", [f"topic {topic}: as_in_kafka needs --bootstrap-server"])
        rule = found.resolve(kept)
        if kept is not None and kept.compacts and not rule.compacted and (rule.age, rule.size) != (None, None):
            raise LeftOut(
                "the running cluster compacts the topic, so a record that is due can be the only one of its key; add "
                "compacted: true to the rule if it may be deleted"
            )
        return rule

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        """Return the first offset that a reader of the rule, or a table, still needs; None if no reader needs any.

        Raises:
            LeftOut: the topic's list of incarnations is damaged, or the claims of a table cannot be read.
            ConfigurationError: a reader does not exist.
            CorruptData, NewerFormat: what a reader wrote is damaged, or of a later release.
            ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        rule = self.policy.rule_for(keys.partition.topic)
        if rule is None or rule.keep:
            return None
        place = f"rules.{self.policy.rules.index(rule)}.until_read_by"
        readers = self._recent(place, lambda: self._recent("readers", self._readers).needed(rule, place))
        try:
            return readers.first_needed(keys, self.now)
        except UNREADABLE as error:
            raise LeftOut(str(error)) from error

    def check_holds(self, topic: str) -> None:
        """Raise `LeftOut` if a hold in any store of the archive stops deletions of a topic, or is unreadable."""
        try:
            holds = self._recent("holds", lambda: [read_holds(store, self.keys) for store in self.stores])
        except UNREADABLE as error:
            raise LeftOut(str(error)) from error
        for hold in chain(*holds):
            if hold.stops(topic, self.now):
                raise LeftOut(f"hold {hold.name}: {hold.reason}", Why.HELD)

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        """Return whether an incarnation has been over, or an old place unchanged, for the time of the policy."""
        ended = self.policy.old_places if incarnation.is_old_place else self.policy.deleted_topics
        rule, since = self.policy.rule_for(incarnation.topic), incarnation.over_since
        if ended is None or (rule is not None and rule.keep):
            return False
        if since is None:
            since = (self.absent or {}).get(incarnation.topic)
        return since is not None and self.now - since >= ended.after

    def _keeping(self, topic: str, kafka: "KafkaCluster", *, is_followed: bool) -> TopicKeeping | None:
        """Return what the running cluster keeps of a topic; None if it does not have the topic.

        If the rule follows these settings, its topic has to be the one of the archive, by their topic ids.
        """
        theirs = self._recent("topics", kafka.topics, inf).get(topic)
        if theirs is None:
            return None
        try:
            ids = self._recent(f"ids of {topic}", lambda: self._ids(topic), inf) if is_followed else set()
            if ids and theirs.topic_id is not None and theirs.topic_id not in ids:
                raise LeftOut(
                    f"the running cluster has topic id {theirs.topic_id}, and the archive {', '.join(sorted(ids))}: "
                    "it is another cluster, or the topic was created again; check --bootstrap-server, or wait until an "
                    "agent ships the new topic"
                )
            return self._recent(f"settings of {topic}", lambda: TopicKeeping.of(kafka.settings([topic])[topic]), inf)
        except UNREADABLE as error:
            raise LeftOut(str(error)) from error
        except ValueError as error:
            raise LeftOut(f"the cluster's settings of the topic: {error}") from error

    def _ids(self, topic: str) -> set[str]:
        """Return the topic ids of the newest incarnation."""
        found, _ = read_incarnations(self.stores[0], self.keys, topic)
        return {entry.topic_id for entry in found.entries if entry.directory == found.newest_directory}

    def _readers(self) -> Readers:
        first, *others = self.stores
        return Readers(first, self.keys, self.kafka, self.options, others)

    def _recent(self, name: str, read: Callable[[], _T], seconds: float = _RECENT_SECONDS) -> _T:
        """Return what was read under a name, again if that was longer ago."""
        with self._lock:
            if name not in self._known or self.clock() - self._known[name][0] > seconds:
                found = read()
                self._known[name] = (self.clock(), found)
            return self._known[name][1]  # type: ignore[no-any-return]
