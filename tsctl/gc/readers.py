"""Readers of the archive, each with what it has read: tables, streams of Spark, consumer groups.

An incarnation of a topic is named by its directory. Readers name it in their own ways: a table by the directory, a
stream and the running cluster by the topic id, and a group of the endpoint by the topic's name or `topic~id`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ts_common.archive.group_offsets import Offsets
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

        Args:
            keys: of the partition, in one incarnation of its topic.
            now: milliseconds since the epoch.
            longest_wait: milliseconds.

        Raises:
            as `Needed.first_needed`.
        """


class IncarnationLists:
    """The incarnations of topics; each list is read once.

    Args:
        store: of the topics.
        keys: of the cluster.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys) -> None:
        self._store = store
        self._keys = keys
        self._lists: dict[str, Incarnations] = {}

    def of(self, topic: str) -> Incarnations:
        """Return the incarnations of a topic.

        Raises:
            CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_incarnations`.
        """
        if topic not in self._lists:
            self._lists[topic], _ = read_incarnations(self._store, self._keys, topic)
        return self._lists[topic]

    def number(self, topic: str, directory: str) -> int:
        """Return the number of an incarnation, from 0 for the oldest.

        Raises:
            CorruptData: the topic's list does not have it.
            Others: as `of`.
        """
        directories = self._directories(topic)
        if directory not in directories:
            raise CorruptData(f"{self._keys.incarnations(topic)} does not contain {directory}, which the store has")
        return directories.index(directory)

    def newest(self, topic: str) -> int:
        """Return the number of the newest incarnation.

        Raises:
            as `of`.
        """
        return len(self._directories(topic)) - 1

    def number_of_id(self, topic: str, topic_id: str) -> int | None:
        """Return the number of the incarnation with a topic id; None if the topic's list does not have it.

        Raises:
            as `of`.
        """
        entry = self.of(topic).find(topic_id)
        return None if entry is None else self.number(topic, entry.directory)

    def _directories(self, topic: str) -> Sequence[str]:
        return tuple(dict.fromkeys(entry.directory for entry in self.of(topic).entries)) or (topic,)


class TableReader:
    """A generation of a table.

    Args:
        name: for messages.
        claims: of the table.
        incarnations: of topics.
    """

    def __init__(self, name: str, claims: TableClaims, incarnations: IncarnationLists) -> None:
        self._name = name
        self._claims = claims
        self._incarnations = incarnations

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`."""
        offset = self._claims.needed_from.get(keys.directory)
        if offset is None:
            topic = keys.partition.topic
            mine = self._incarnations.number(topic, keys.incarnation)
            later = {entry.directory for entry in self._incarnations.of(topic).entries} - {keys.incarnation}
            read = {name.rpartition("-")[0] for name in self._claims.needed_from}
            if any(self._incarnations.number(topic, directory) > mine for directory in later & read):
                return None
        return _needed(offset, self._name, keys, now - self._claims.time > longest_wait)


class CheckpointReader:
    """A stream of Spark.

    Args:
        name: for messages.
        checkpoint: of the stream.
        incarnations: of topics.
    """

    def __init__(self, name: str, checkpoint: Checkpoint, incarnations: IncarnationLists) -> None:
        self._name = name
        self._checkpoint = checkpoint
        self._incarnations = incarnations

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`. If several sources have the topic, the one that needs most counts."""
        overdue = now - self._checkpoint.time > longest_wait
        topic = keys.partition.topic
        mine = self._incarnations.number(topic, keys.incarnation)
        sources = [each for each in self._checkpoint.offsets if each.of_topic(topic)]
        needs: list[int] = []
        for source in sources:
            reached = self._reached(source, topic)
            if reached is None or reached < mine:
                needs.append(_FIRST)
            elif reached == mine:
                needs.append(source.positions.get(keys.partition, _FIRST))
        if sources and not needs:
            return None
        return _needed(min(needs, default=None), self._name, keys, overdue)

    def _reached(self, source: StreamOffset, topic: str) -> int | None:
        """Return the number of the incarnation that a source reads; None if the archive does not have it."""
        topic_id = source.topic_ids.get(topic)
        if topic_id is None:  # the archive had no topic id yet, so there was one incarnation
            return 0
        return self._incarnations.number_of_id(topic, topic_id)


class GroupReader:
    """A consumer group of the endpoint.

    Args:
        name: for messages.
        offsets: the committed offsets.
        incarnations: of topics.
    """

    def __init__(self, name: str, offsets: Offsets, incarnations: IncarnationLists) -> None:
        self._name = name
        self._offsets = offsets
        self._incarnations = incarnations

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`."""
        topic, number = keys.partition.topic, keys.partition.partition
        entries = [each for each in self._incarnations.of(topic).entries if each.directory == keys.incarnation]
        is_newest = self._incarnations.number(topic, keys.incarnation) == self._incarnations.newest(topic)
        names = [TopicPartition(f"{topic}~{entry.topic_id}", number) for entry in entries]
        began = min((entry.first_seen for entry in entries), default=0) + _CHANGE_MS
        if not is_newest:
            if not any(name in self._offsets for name in names) and any(each.topic == topic for each in self._offsets):
                return None  # it reads the newest
        elif not self._incarnations.newest(topic) or self._time(keys.partition) >= began:
            names.append(keys.partition)
        found = [self._offsets[name] for name in names if name in self._offsets]
        last = max((each.time for each in found or self._offsets.values()), default=0)
        offset = min((max(_FIRST, each.offset) for each in found), default=None)
        return _needed(offset, self._name, keys, now - last > longest_wait)

    def _time(self, partition: TopicPartition) -> int:
        committed = self._offsets.get(partition)
        return 0 if committed is None else committed.time


class KafkaGroupReader:
    """A consumer group of the running cluster.

    The cluster does not return when a group committed. So the group is overdue if the cluster still has a record that
    the group has not read, and that is older than the longest wait.

    Args:
        name: for messages.
        committed: the committed offsets.
        kafka: the cluster.
        incarnations: of topics.
    """

    def __init__(
        self, name: str, committed: Mapping[TopicPartition, int], kafka: "KafkaCluster", incarnations: IncarnationLists
    ) -> None:
        self._name = name
        self._committed = committed
        self._kafka = kafka
        self._incarnations = incarnations
        self._topics = kafka.topics()
        self._old: dict[str, Mapping[TopicPartition, int]] = {}

    def first_needed(self, keys: PartitionKeys, now: int, longest_wait: int) -> NeededFrom | None:
        """As in `Reader`."""
        topic = keys.partition.topic
        mine = self._incarnations.number(topic, keys.incarnation)
        theirs = self._topics.get(topic)
        reached = None if theirs is None else self._number(topic, theirs)
        if theirs is None or reached is None or reached < mine:
            return _needed(None, self._name, keys, overdue=False)
        if reached > mine:
            return None
        offset = self._committed.get(keys.partition)
        if topic not in self._old:
            self._old[topic] = self._ends_of_old(topic, theirs, now - longest_wait)
        return _needed(offset, self._name, keys, (offset or _FIRST) < self._old[topic].get(keys.partition, _FIRST))

    def _number(self, topic: str, theirs: "KafkaTopic") -> int | None:
        """Return the number of the incarnation that the cluster has; None if the archive does not have it."""
        if theirs.topic_id is None or not self._incarnations.of(topic).entries:
            return self._incarnations.newest(topic)
        return self._incarnations.number_of_id(topic, theirs.topic_id)

    def _ends_of_old(self, topic: str, theirs: "KafkaTopic", time: int) -> Mapping[TopicPartition, int]:
        """Return the first offset that is not older than a time, of partitions that have older records."""
        bounds = self._kafka.bounds(TopicPartition(topic, number) for number in theirs.partitions)
        since = self._kafka.first_since(dict.fromkeys(bounds, time))
        ends = {each: bounds[each][1] if offset is None else offset for each, offset in since.items()}
        return {each: end for each, end in ends.items() if end > bounds[each][0]}


def _needed(offset: int | None, reader: str, keys: PartitionKeys, overdue: bool) -> NeededFrom:
    """Return what a reader needs; all if it has read nothing, with that in its name."""
    if offset is None:
        return NeededFrom(_FIRST, f"{reader} (it has read nothing of {keys.directory})", overdue)
    return NeededFrom(offset, reader, overdue)
