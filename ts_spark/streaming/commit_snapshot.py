"""What the store shows of a stream's topics at one moment: how far each partition's commit has come.

A stream looks again and again, so a look is cheap: the names of directories, and per partition its commit. The segments
are listed when there is something to read. Only where a commit does not say its end or its last stable offset (a Java
uploader's, or one after an election) is the partition's view opened, once for each commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ts_common.archive.catalog import (
    NOTHING_KNOWN,
    PartitionCatalog,
    SegmentCopy,
    StoredSegment,
    read_catalog,
    read_commit,
    read_incarnations,
)
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.directories import NO_DIRECTORIES, TopicDirectories
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.view import PartitionView, open_view
from ts_common.model import TopicPartition
from ts_common.query.query import Query
from ts_common.query.subscription import list_known, missing_partitions, unknown_topic, wanted_names
from ts_common.reading.parallel import in_threads
from ts_common.reading.topics import read_lives, read_topics
from ts_common.reading.transactions import stable_end
from ts_common.store.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """How far one partition has come.

    Attributes:
        keys: where it lies.
        next_offset: end of what is shipped.
        shown: end of what the query may see: below `next_offset` where it is `read_committed`.
        epochs: which epoch wrote which offset; empty where the commit does not say it.
    """

    keys: PartitionKeys
    next_offset: int
    shown: int
    epochs: EpochHistory


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic, in its newest incarnation.

    Attributes:
        topic_id: None where no id was ever seen.
        is_first: whether this incarnation is the topic's first, or the only one.
        ends: by partition, of those that have a commit.
    """

    topic_id: str | None
    is_first: bool
    ends: Mapping[TopicPartition, PartitionEnd]


@dataclass(frozen=True, slots=True)
class CommitSnapshot:
    """What was seen.

    Attributes:
        topics: by name, those of the subscription that the store knows.
    """

    topics: Mapping[str, TopicSnapshot]

    @property
    def ends(self) -> dict[TopicPartition, PartitionEnd]:
        """Of all topics."""
        return {partition: end for topic in self.topics.values() for partition, end in topic.ends.items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        """Of the topics that have one."""
        return {name: topic.topic_id for name, topic in self.topics.items() if topic.topic_id is not None}


class Observer:
    """Looks at one query's topics, and remembers what need not be asked for twice; not for several threads.

    Args:
        store: where they lie.
        options: of the query, settled.
    """

    def __init__(self, store: ObjectStore, options: Query) -> None:
        self._store = store
        self._options = options
        self._keys = options.keys
        self._copies: dict[str, dict[StoredSegment, SegmentCopy]] = {}  # by a partition's prefix
        self._damaged: list[str] = []
        self._ends: dict[str, tuple[str | None, PartitionEnd]] = {}  # likewise, with the commit's etag

    def look(self, *, is_first: bool) -> CommitSnapshot:
        """See how far the topics have come.

        Args:
            is_first: whether the query begins: topics and partitions that it names must be there.

        Raises:
            QueryError: the store does not hold the cluster, or what a query names that begins.
            CorruptData: a commit or a list of incarnations that is none.
            StoreUnavailable, AccessDenied, BucketMissing: the store's.
        """
        known = list_known(self._store, self._options)
        asked = wanted_names(self._options, known)

        def one(name: str) -> TopicSnapshot | None:
            return self._topic(name, known.get(name, NO_DIRECTORIES), asked[name])

        topics: dict[str, TopicSnapshot] = {}
        for name, topic in zip(asked, in_threads(one, asked), strict=True):
            if topic is None and is_first and self._options.subscription.pattern is None:
                raise unknown_topic(name, self._options, known)
            if topic is not None:
                topics[name] = topic
        if is_first:
            _check_assigned(self._options, topics)
        return CommitSnapshot(topics)

    def keys_of(self, partitions: Sequence[TopicPartition], topic_id: str | None) -> list[PartitionKeys] | None:
        """Where partitions of one topic lie in the incarnation with an id.

        Args:
            partitions: at least one.
            topic_id: None for the first incarnation, or the only one.

        Returns:
            Their keys; None where the store does not know the incarnation.
        """
        directory = None
        if topic_id is not None:
            found = read_incarnations(self._store, self._keys, partitions[0].topic)[0].find(topic_id)
            if found is None:
                return None
            directory = found.directory
        return [self._keys.partition(partition, directory) for partition in partitions]

    def view(self, keys: PartitionKeys) -> PartitionView:
        """What readers see of a partition now.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: as `open_view`.
        """
        return self.open(read_catalog(self._store, keys))

    def open(self, catalog: PartitionCatalog) -> PartitionView:
        """As `view`, of a snapshot."""
        prefix = catalog.keys.prefix
        damaged = None if self._options.tolerance.fails else self._damaged
        view = open_view(self._store, catalog, self._copies.get(prefix, NOTHING_KNOWN), damaged)
        self._copies[prefix] = {copy.segment: copy for copy in (*view.copies, *view.retired)}
        return view

    def take_damaged(self) -> list[str]:
        """A sentence for each segment that was left out since the last call, in the modes that go on."""
        taken, self._damaged = sorted(set(self._damaged)), []
        return taken

    def _topic(self, name: str, listed: TopicDirectories, wanted: Iterable[int] | None) -> TopicSnapshot | None:
        incarnations, etag = read_lives(self._store, self._keys, name, listed)
        directory = incarnations.newest_directory
        asked = sorted(listed.partitions if wanted is None else listed.partitions & set(wanted))
        keys = [self._keys.partition(TopicPartition(name, number), directory) for number in asked]
        ends = {end.keys.partition: end for end in in_threads(self._end, keys) if end is not None}
        if not ends and etag is None and not read_topics(self._store, self._keys, {name: listed}):
            return None
        return TopicSnapshot(incarnations.newest_id, directory == name, ends)

    def _end(self, keys: PartitionKeys) -> PartitionEnd | None:
        commit, etag = read_commit(self._store, keys)
        if commit is None:
            return None
        known_etag, known = self._ends.get(keys.prefix, (None, None))
        if known is None or etag is None or etag != known_etag:
            known = self._describe(keys, commit)
            self._ends[keys.prefix] = (etag, known)
        return known

    def _describe(self, keys: PartitionKeys, commit: Commit | ForeignCommit) -> PartitionEnd:
        committed_only = self._options.read_committed
        if isinstance(commit, Commit):
            end, stable = commit.next_offset, commit.last_stable_offset
            if not committed_only or stable is not None:
                shown = min(end, stable) if committed_only and stable is not None else end
                return PartitionEnd(keys, end, shown, commit.epochs)
        view = self.view(keys)
        shown = stable_end(self._store, view) if committed_only else view.end
        return PartitionEnd(keys, view.end, shown, commit.epochs if isinstance(commit, Commit) else EpochHistory())


def _check_assigned(options: Query, topics: Mapping[str, TopicSnapshot]) -> None:
    """Assigned partitions are there, as far as their topic has any."""
    for name, numbers in (options.subscription.assigned or {}).items():
        held = {partition.partition for partition in topics[name].ends}
        missing = set(numbers) - held
        if held and missing:
            raise missing_partitions(name, missing, held, options)
