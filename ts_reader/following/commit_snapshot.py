"""A snapshot of the commits of a stream's topics: the end of each partition at one moment.

A stream makes many snapshots, so one is cheap: the names of directories, and the commit of each partition. Segments are
listed when there is something to read. `log.start` is read only before a stream moves (`Observer.losses_beside`): a
malformed one makes a good commit useless. Some commits have no end or no last stable offset: a Java uploader's, or one
after an election. Then the partition's view is opened, once for each commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from ts_common.archive.catalog import PartitionCatalog, StoredSegment, check_log_start, read_commit
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy
from ts_common.archive.directories import NO_DIRECTORIES, TopicDirectories
from ts_common.archive.former_places import MOST_PLACES, read_with_former
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.read_log import ReadLog
from ts_common.archive.restored import Restored
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.sealed_ranges import listed_of
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.query.bounds import Loss, loss_of
from ts_reader.query.query import Query
from ts_reader.query.subscription import list_known, missing_partitions, unknown_topic, wanted_names
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import read_listed_incarnations, read_topics
from ts_reader.reading.transactions import stable_end

# A partition without a commit is listed to find out whether it has segments; not at each look.
_LISTED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The end of one partition.

    Attributes:
        next_offset: the end of what is shipped.
        shown: the end of what the query may read; `read_committed` may put it below `next_offset`.
        log: by the commit.
    """

    keys: PartitionKeys
    next_offset: int
    shown: int
    log: ReadLog


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic, in its newest incarnation.

    Attributes:
        topic_id: None if no id was ever seen.
        is_first: whether this incarnation is the topic's first, or the only one.
        ends: by partition, of those that have a commit.
        numbers: of partitions of any incarnation, as far as the query reads them.
        losses: by partition, what readers lose because its commit is missing or damaged.
    """

    topic_id: str | None
    is_first: bool
    ends: Mapping[TopicPartition, PartitionEnd]
    incarnations: Incarnations
    numbers: tuple[int, ...] = ()
    losses: Mapping[TopicPartition, Loss] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitSnapshot:
    """The topics of a stream at one moment.

    Attributes:
        topics: of the subscription, as far as the store holds them, by name.
    """

    topics: Mapping[str, TopicSnapshot]

    @property
    def ends(self) -> dict[TopicPartition, PartitionEnd]:
        """The ends of all topics."""
        return {partition: end for topic in self.topics.values() for partition, end in topic.ends.items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that have one."""
        return {name: topic.topic_id for name, topic in self.topics.items() if topic.topic_id is not None}

    def without(self, losses: Mapping[TopicPartition, Loss]) -> "CommitSnapshot":
        """Return the snapshot with partitions that have no end, but a loss."""

        def one(topic: TopicSnapshot) -> TopicSnapshot:
            lost = {partition: loss for partition, loss in losses.items() if partition in topic.ends}
            ends = {partition: end for partition, end in topic.ends.items() if partition not in lost}
            return replace(topic, ends=ends, losses={**topic.losses, **lost})

        return CommitSnapshot({name: one(topic) for name, topic in self.topics.items()}) if losses else self


class Observer:
    """Makes snapshots of one query's topics, and caches what need not be read twice; not thread-safe.

    Args:
        query: settled.
    """

    def __init__(self, store: ObjectStore, query: Query) -> None:
        self._store = store
        self._query = query
        self._keys = query.keys
        self._copies: dict[str, dict[StoredSegment, SegmentCopy]] = {}  # by a partition's prefix
        self._sealed: dict[str, tuple[SealedObject, ...]] = {}  # the same
        self._damaged: list[str] = []
        self._ends: dict[str, tuple[str | None, PartitionEnd]] = {}  # the same, with the commit's ETag
        self._losses: dict[str, tuple[float, Loss | None]] = {}  # the same, with the monotonic time of the listing
        self._beginning: dict[str, str] = {}  # the same, with a sentence

    def look(self, *, is_first: bool) -> CommitSnapshot:
        """Return a snapshot of the topics.

        Args:
            is_first: whether the query starts: topics and partitions that it names must exist.

        Raises:
            QueryError: the store does not hold the cluster, or what a starting query names.
            CorruptData: a list of incarnations cannot be parsed.
            StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        known = list_known(self._store, self._query)
        asked = wanted_names(self._query, known)

        def one(name: str) -> TopicSnapshot | None:
            return self._topic(name, known.get(name, NO_DIRECTORIES), asked[name])

        topics: dict[str, TopicSnapshot] = {}
        for name, topic in zip(asked, in_threads(one, asked), strict=True):
            if topic is None and is_first and self._query.subscription.pattern is None:
                raise unknown_topic(name, self._query, known)
            if topic is not None:
                topics[name] = topic
        if is_first:
            _check_assigned(self._query, topics)
        return CommitSnapshot(topics)

    def keys_of(self, partitions: Sequence[TopicPartition], topic_id: str | None) -> list[PartitionKeys] | None:
        """Return the keys of partitions of one topic in the incarnation with an id.

        Args:
            partitions: at least one.
            topic_id: None for the first incarnation, or the only one.

        Returns:
            None if the store does not hold the incarnation.
        """
        directory = None
        if topic_id is not None:
            found = read_incarnations(self._store, self._keys, partitions[0].topic)[0].find(topic_id)
            if found is None:
                return None
            directory = found.directory
        return [self._keys.partition(partition, directory) for partition in partitions]

    def continues(self, name: str, topic: TopicSnapshot, topic_id: str | None) -> bool:
        """Return whether a topic was restored from the incarnation with an id, or from one that was.

        Args:
            topic_id: None for the first incarnation, or the only one.

        Raises:
            CorruptData, NewerFormat: of `restored.json`, or of a list of incarnations.
            StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        keys, directory = self._keys, topic.incarnations.newest_directory
        for _ in range(MOST_PLACES):
            record = Restored.read(self._store, keys.restored)
            former = None if record is None else record.topics.get(directory)
            if former is None:
                return False
            keys, directory = ClusterKeys(former.cluster, former.entropy_bits), former.directory
            found = None if topic_id is None else read_incarnations(self._store, keys, name)[0].find(topic_id)
            if directory == (name if topic_id is None else found and found.directory):
                return True
        return False

    def end_of(self, keys: PartitionKeys) -> PartitionEnd | None:
        """Return the end of a partition, of any incarnation; None without a commit, or if it is damaged.

        The commit alone decides, so a call costs one request; see `losses_beside`.

        Raises:
            NewerFormat, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        try:
            commit, etag = read_commit(self._store, keys)
        except CorruptData:  # `loss_at` reads it again
            return None
        if commit is None:
            return None
        known_etag, known = self._ends.get(keys.prefix, (None, None))
        if known is None or etag is None or etag != known_etag:
            known = self._describe(keys, commit)
            if known is not None:
                self._ends[keys.prefix] = (etag, known)
        return known

    def losses_beside(self, ends: Iterable[PartitionEnd]) -> dict[TopicPartition, Loss]:
        """Return what readers lose of partitions whose commit is good, and whose `log.start` is malformed.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied: from the store.
        """
        losses = in_threads(self._loss_beside, [end.keys for end in ends])
        return {loss.partition: loss for loss in losses if loss is not None}

    def loss_at(self, keys: PartitionKeys) -> Loss | None:
        """Return what readers lose of a partition without an end; None if it has no segments or is at its beginning.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied: from the store.
        """
        listed, loss = self._losses.get(keys.prefix, (float("-inf"), None))
        if monotonic() - listed >= _LISTED_SECONDS:
            view = self.view(keys)
            loss = loss_of(view)
            self._losses[keys.prefix] = monotonic(), loss
            self._beginning.pop(keys.prefix, None)
            if view.state is CommitState.BEGINNING and view.warning is not None:
                self._beginning[keys.prefix] = view.warning
        return loss

    def beginning(self, keys: PartitionKeys) -> str | None:
        """Return a sentence about a partition that `loss_at` found at its beginning: readers return no record of it."""
        return self._beginning.get(keys.prefix)

    def view(self, keys: PartitionKeys) -> PartitionView:
        """Return what readers see of a partition now.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: as `open_view`.
        """
        seals, known = self._query.tolerance.fails, self._sealed.get(keys.prefix, ())
        return self.open(read_with_former(self._store, keys, seals=seals, known=known))

    def open(self, catalog: PartitionCatalog) -> PartitionView:
        """Return the view of a catalog."""
        prefix = catalog.keys.prefix
        damaged = None if self._query.tolerance.fails else self._damaged
        view = open_view(self._store, catalog, self._copies.get(prefix, NOTHING_KNOWN), damaged)
        self._copies[prefix] = {copy.segment: copy for copy in (*listed_of(view.copies), *listed_of(view.retired))}
        self._sealed[prefix] = view.sealed
        return view

    def take_damaged(self) -> list[str]:
        """Return a sentence for each segment that a tolerant query left out since the last call."""
        taken, self._damaged = sorted(set(self._damaged)), []
        return taken

    def _topic(self, name: str, listed: TopicDirectories, wanted: Iterable[int] | None) -> TopicSnapshot | None:
        incarnations, etag = read_listed_incarnations(self._store, self._keys, name, listed)
        directory = incarnations.newest_directory
        asked = sorted(listed.partitions if wanted is None else listed.partitions & set(wanted))
        keys = [self._keys.partition(TopicPartition(name, number), directory) for number in asked]
        ends = {end.keys.partition: end for end in in_threads(self.end_of, keys) if end is not None}
        without = [each for each in keys if each.partition not in ends]
        losses = {loss.partition: loss for loss in in_threads(self.loss_at, without) if loss is not None}
        if not ends and etag is None and not read_topics(self._store, self._keys, {name: listed}):
            return None
        return TopicSnapshot(incarnations.newest_id, directory == name, ends, incarnations, tuple(asked), losses)

    def _loss_beside(self, keys: PartitionKeys) -> Loss | None:
        try:
            check_log_start(self._store, keys)
        except CorruptData:
            if self._losses.get(keys.prefix, (0.0, None))[1] is None:  # it was empty before
                self._losses.pop(keys.prefix, None)
            return self.loss_at(keys)
        return None

    def _describe(self, keys: PartitionKeys, commit: Commit | ForeignCommit) -> PartitionEnd | None:
        """Return the end by a commit; None if its view shows that readers lose the partition."""
        committed_only = self._query.read_committed
        if isinstance(commit, Commit):
            end, stable = commit.next_offset, commit.last_stable_offset
            if not committed_only or stable is not None:
                shown = min(end, stable) if committed_only and stable is not None else end
                return PartitionEnd(keys, end, shown, ReadLog(commit.epochs, commit.lineage))
        view = self.view(keys)
        if view.state.is_loss:
            return None
        shown = stable_end(self._store, view) if committed_only else view.end
        log = ReadLog(commit.epochs, commit.lineage) if isinstance(commit, Commit) else ReadLog()
        return PartitionEnd(keys, view.end, shown, log)


def _check_assigned(query: Query, topics: Mapping[str, TopicSnapshot]) -> None:
    """Check that assigned partitions exist, unless their topic has none."""
    for name, numbers in (query.subscription.assigned or {}).items():
        held = {partition.partition for partition in (*topics[name].ends, *topics[name].losses)}
        missing = set(numbers) - held
        if held and missing:
            raise missing_partitions(name, missing, held, query)
