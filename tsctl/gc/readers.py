"""Readers of the archive, each with what it has read: tables, streams of Spark, consumer groups.

An incarnation of a topic is named by its directory. Readers name it in their own ways: a table by the directory, a
stream and the running cluster by the topic id, and a group of the endpoint by the topic's name or `topic~id`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from ts_common.archive.group_offsets import Committed, Offsets
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.table_claims import TableClaims
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.following.checkpoint import Checkpoint
from ts_reader.following.offset import StreamOffset
from tsctl.gc.retention import NeededFrom

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster, KafkaTopic

_FIRST: Final = 0  # the offset that a reader needs of what it has not read
# A group's commit so soon after the first look at a new incarnation can be of the former one: the endpoint refreshes
# its list of topics later than agents, and clocks differ.
_CHANGE_MS: Final = 3_600_000


class Reader(Protocol):
    """A reader that exists."""

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """Return what the reader needs of a partition; None if nothing.

        Arguments and errors are those of `Needed.first_needed`; `longest_wait` is in milliseconds.
        """


@dataclass(frozen=True)
class IncarnationLists:
    """The incarnations of topics of a store; each list is read once. Each method raises as `read_incarnations`."""

    store: ObjectStore
    keys: ClusterKeys
    _lists: dict[str, Incarnations] = field(default_factory=dict, init=False)

    def of(self, topic: str) -> Incarnations:
        """Return the incarnations of a topic."""
        if topic not in self._lists:
            self._lists[topic], _ = read_incarnations(self.store, self.keys, topic)
        return self._lists[topic]

    def number(self, topic: str, directory: str) -> int:
        """Return the number of an incarnation, from 0 for the oldest; `CorruptData` if the topic's list lacks it."""
        directories = self._directories(topic)
        if directory not in directories:
            raise CorruptData(f"{self.keys.incarnations(topic)} does not contain {directory}, which the store has")
        return directories.index(directory)

    def newest(self, topic: str) -> int:
        """Return the number of the newest incarnation."""
        return len(self._directories(topic)) - 1

    def number_of_id(self, topic: str, topic_id: str) -> int | None:
        """Return the number of the incarnation with a topic id; None if the topic's list does not have it."""
        entry = self.of(topic).find(topic_id)
        return None if entry is None else self.number(topic, entry.directory)

    def _directories(self, topic: str) -> Sequence[str]:
        return tuple(dict.fromkeys(entry.directory for entry in self.of(topic).entries)) or (topic,)


@dataclass(frozen=True)
class TableReader:
    """A generation of a table.

    Attributes:
        claims: of the table; the error's text if they cannot be read.
        is_named: whether the rule names the table. Another table needs nothing of topics that it has never read.
    """

    name: str
    claims: TableClaims | str
    incarnations: IncarnationLists
    is_named: bool

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`; claims that cannot be read are `CorruptData`."""
        if isinstance(self.claims, str):
            raise CorruptData(self.claims)
        offset = self.claims.needed_from.get(keys.directory)
        if offset is None:
            topic = keys.partition.topic
            read = self._read.get(topic, set[str]())
            if not read and not self.is_named:
                return None
            mine = self.incarnations.number(topic, keys.incarnation)
            others = {entry.directory for entry in self.incarnations.of(topic).entries} & read
            if any(self.incarnations.number(topic, directory) > mine for directory in others):
                return None
        return _needed(offset, self.name, keys, now - self.claims.time > longest_wait)

    @cached_property
    def _read(self) -> Mapping[str, set[str]]:
        """The directories of the incarnations that it has read, by topic: `t~<id>-0` is of topic `t`."""
        found: dict[str, set[str]] = defaultdict(set)
        for name in self.claims.needed_from if isinstance(self.claims, TableClaims) else ():
            directory = name.rpartition("-")[0]
            found[directory.partition("~")[0]].add(directory)
        return found


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """A stream of Spark, by its checkpoint; its name is for messages."""

    name: str
    checkpoint: Checkpoint
    incarnations: IncarnationLists

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`. If several sources have the topic, the one that needs most counts."""
        topic = keys.partition.topic
        mine = self.incarnations.number(topic, keys.incarnation)
        sources = [each for each in self.checkpoint.offsets if each.of_topic(topic)]
        needs: list[int] = []
        for source in sources:
            reached = self._reached(source, topic)
            if reached is None or reached < mine:
                needs.append(_FIRST)
            elif reached == mine:
                needs.append(source.positions.get(keys.partition, _FIRST))
        if sources and not needs:
            return None
        return _needed(min(needs, default=None), self.name, keys, now - self.checkpoint.time > longest_wait)

    def _reached(self, source: StreamOffset, topic: str) -> int | None:
        """Return the number of the incarnation that a source reads; None if the archive does not have it."""
        topic_id = source.topic_ids.get(topic)
        if topic_id is None:  # the archive had no topic id yet, so there was one incarnation
            return 0
        return self.incarnations.number_of_id(topic, topic_id)


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A consumer group of the endpoint, by its committed offsets; its name is for messages."""

    name: str
    offsets: Offsets
    incarnations: IncarnationLists

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`."""
        topic, newest = keys.partition.topic, self.incarnations.newest(keys.partition.topic)
        is_newest = self.incarnations.number(topic, keys.incarnation) == newest
        found = [*self._committed(keys, is_newest=is_newest, is_only=not newest)]
        if not (found or is_newest) and any(each.topic == topic for each in self.offsets):
            return None  # it reads the newest
        last = max((each.time for each in found or self.offsets.values()), default=0)
        offset = min((max(_FIRST, each.offset) for each in found), default=None)
        return _needed(offset, self.name, keys, now - last > longest_wait)

    def _committed(self, keys: PartitionKeys, *, is_newest: bool, is_only: bool) -> Iterator[Committed]:
        """Yield what the group committed of a partition in its incarnation, under each name that it has."""
        topic, number = keys.partition.topic, keys.partition.partition
        entries = [each for each in self.incarnations.of(topic).entries if each.directory == keys.incarnation]
        for entry in entries:
            if (named := self.offsets.get(TopicPartition(f"{topic}~{entry.topic_id}", number))) is not None:
                yield named
        began = min((entry.first_seen for entry in entries), default=0) + _CHANGE_MS
        plain = self.offsets.get(keys.partition)
        if is_newest and plain is not None and (is_only or plain.time >= began):
            yield plain


@dataclass(frozen=True, slots=True)
class KafkaGroupReader:
    """A consumer group of the running cluster, by its committed offsets; its name is for messages.

    The cluster does not return when a group committed. So the group is overdue if the cluster still has a record that
    the group has not read, and that is older than the longest wait.
    """

    name: str
    committed: Mapping[TopicPartition, int]
    kafka: "KafkaCluster"
    topics: Mapping[str, "KafkaTopic"]
    incarnations: IncarnationLists
    _old: dict[str, Mapping[TopicPartition, int]] = field(default_factory=dict, init=False)

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`."""
        topic = keys.partition.topic
        mine = self.incarnations.number(topic, keys.incarnation)
        theirs = self.topics.get(topic)
        reached = None if theirs is None else self._number(topic, theirs)
        if theirs is None or reached is None or reached < mine:
            return _needed(None, self.name, keys, overdue=False)
        if reached > mine:
            return None
        offset = self.committed.get(keys.partition)
        if topic not in self._old:
            self._old[topic] = self._ends_of_old(topic, theirs, now - longest_wait)
        return _needed(offset, self.name, keys, (offset or _FIRST) < self._old[topic].get(keys.partition, _FIRST))

    def _number(self, topic: str, theirs: "KafkaTopic") -> int | None:
        """Return the number of the incarnation that the cluster has; None if the archive does not have it."""
        if theirs.topic_id is None or not self.incarnations.of(topic).entries:
            return self.incarnations.newest(topic)
        return self.incarnations.number_of_id(topic, theirs.topic_id)

    def _ends_of_old(self, topic: str, theirs: "KafkaTopic", time: int) -> Mapping[TopicPartition, int]:
        """Return the first offset that is not older than a time, of partitions that have older records."""
        bounds = self.kafka.bounds(TopicPartition(topic, number) for number in theirs.partitions)
        since = self.kafka.first_since(dict.fromkeys(bounds, time))
        ends = {each: bounds[each][1] if offset is None else offset for each, offset in since.items()}
        return {each: end for each, end in ends.items() if end > bounds[each][0]}


def _needed(offset: int | None, reader: str, keys: PartitionKeys, overdue: bool) -> NeededFrom:
    """Return what a reader needs; all if it has read nothing, with that in its name."""
    if offset is None:
        return NeededFrom(_FIRST, f"{reader} (it has read nothing of {keys.directory})", overdue)
    return NeededFrom(offset, reader, overdue)
