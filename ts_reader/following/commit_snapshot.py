"""A snapshot of the commits of a stream's topics: the end of each partition at one moment.

A stream makes many snapshots, so one is cheap: the names of directories, the commit of each partition, and the newest
pack of each log that these name. Commits are read before packs (reading rule 11). For some seconds the next snapshots
of a stream with live tails are cheaper: they read the packs alone (`ts_reader.following.ends`).

Segments are listed when there is something to read. `log.start` is read only before a stream moves
(`Observer.losses_beside`): a malformed one makes a good commit useless. Some commits have no end or no last stable
offset: a Java uploader's, or one after an election. Then the partition's view is opened, once for each commit.
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
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.former_places import MOST_PLACES, read_with_former
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.read_log import ReadLog
from ts_common.archive.restored import Restored
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.sealed_ranges import listed_of
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.following.ends import LiveEnds, PartitionEnd, end_by_commit
from ts_reader.query.bounds import Loss, loss_of
from ts_reader.query.query import Query
from ts_reader.query.subscription import list_known, missing_partitions, unknown_topic, wanted_names
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import read_listed_incarnations, read_topics
from ts_reader.reading.transactions import stable_end

# A partition without a commit is listed to find out whether it has segments; not at each look.
_LISTED_SECONDS: Final = 60.0


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
class _Listed:
    """A topic in its newest incarnation, with the partitions that the query reads of it."""

    incarnations: Incarnations
    etag: str | None
    keys: list[PartitionKeys]


@dataclass(frozen=True, slots=True)
class _StoredCommit:
    """A commit as it was read, with its ETag."""

    keys: PartitionKeys
    commit: Commit | ForeignCommit
    etag: str | None


@dataclass(frozen=True, slots=True)
class CommitSnapshot:
    """The topics of a stream at one moment.

    Attributes:
        topics: of the subscription, as far as the store holds them, by name.
        by_packs: whether the commits are those of an earlier snapshot, and only the tails were read again.
    """

    topics: Mapping[str, TopicSnapshot]
    by_packs: bool = False

    @property
    def ends(self) -> dict[TopicPartition, PartitionEnd]:
        """The ends of all topics."""
        return {partition: end for topic in self.topics.values() for partition, end in topic.ends.items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that have one."""
        return {name: topic.topic_id for name, topic in self.topics.items() if topic.topic_id is not None}

    def with_ends(self, ends: Mapping[PartitionKeys, PartitionEnd]) -> "CommitSnapshot":
        """Return the snapshot with other ends of some of its partitions."""

        def one(topic: TopicSnapshot) -> TopicSnapshot:
            return replace(topic, ends={each: ends.get(end.keys, end) for each, end in topic.ends.items()})

        return CommitSnapshot({name: one(topic) for name, topic in self.topics.items()}, by_packs=True)

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
        self._erased: dict[str, tuple[int, ErasedOffsets]] = {}  # the same, with the next offset then
        self._damaged: list[str] = []
        self._ends: dict[str, tuple[str | None, PartitionEnd]] = {}  # the same, with the commit's ETag
        self._losses: dict[str, tuple[float, Loss | None]] = {}  # the same, with the monotonic time of the listing
        self._beginning: dict[str, str] = {}  # the same, with a sentence
        self._live = LiveEnds(store, query)
        self._directories: dict[tuple[str, str | None], str] = {}  # of the last look, by topic and id

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

        def listed(name: str) -> _Listed:
            return self._listed(name, known.get(name, NO_DIRECTORIES), asked[name])

        self._live.begin_look()
        found = dict(zip(asked, in_threads(listed, asked), strict=True))
        ends = self.ends_of([keys for each in found.values() for keys in each.keys])

        def one(name: str) -> TopicSnapshot | None:
            return self._topic(name, found[name], known.get(name, NO_DIRECTORIES), ends)

        topics: dict[str, TopicSnapshot] = {}
        for name, topic in zip(asked, in_threads(one, asked), strict=True):
            if topic is None and is_first and self._query.subscription.pattern is None:
                raise unknown_topic(name, self._query, known)
            if topic is not None:
                topics[name] = topic
        if is_first:
            _check_assigned(self._query, topics)
        self._directories = {(name, each.topic_id): each.incarnations.newest_directory for name, each in topics.items()}
        return CommitSnapshot(topics)

    def look_at_tails(self, look: CommitSnapshot) -> CommitSnapshot | None:
        """Return the last snapshot with the ends by the newest packs; None if the commits must be read again.

        It costs a request for each log and for each new pack, whatever the number of partitions is.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        return look.with_ends({end.keys: end for end in self._live.moved()}) if self._live.can_follow else None

    def keys_of(self, partitions: Sequence[TopicPartition], topic_id: str | None) -> list[PartitionKeys] | None:
        """Return the keys of partitions of one topic in the incarnation with an id.

        Args:
            partitions: at least one.
            topic_id: None for the first incarnation, or the only one.

        Returns:
            None if the store does not hold the incarnation.
        """
        directory = self._directories.get((partitions[0].topic, topic_id)) if self._live.can_follow else None
        if topic_id is not None and directory is None:
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

    def ends_of(self, keys: Sequence[PartitionKeys]) -> dict[PartitionKeys, PartitionEnd]:
        """Return the ends of partitions, of any incarnation; without those that have no commit, or a damaged one.

        The commit alone decides, so a partition costs one request, and a log of packs two; see `losses_beside`.

        Raises:
            NewerFormat, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        commits = [each for each in in_threads(self._read_commit, keys) if each is not None]
        tails = self._live.renewed()
        ends = in_threads(lambda each: self._end_of(each, tails), commits)
        return {end.keys: end for end in ends if end is not None}

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
        """Return what readers see of a partition now; raise as `views`."""
        return self.views([keys])[0]

    def views(self, keys: Sequence[PartitionKeys]) -> list[PartitionView]:
        """Return what readers see of partitions now.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: as `open_view`.
        """
        return self.open(in_threads(self._catalog, keys))

    def open(self, catalogs: Sequence[PartitionCatalog]) -> list[PartitionView]:
        """Return the views of catalogs that were read before."""
        tails = self._live.renewed()
        return in_threads(lambda each: self._open(each, tails), catalogs)

    def tail_view(self, keys: PartitionKeys, start: int) -> PartitionView | None:
        """Return the view of a live tail alone, without a request; None if it does not suffice from an offset on.

        Lists of erased offsets are listed with the segments, so after each commit a whole view is opened first.
        """
        view = self._live.view(keys, start)
        listed_at, erased = self._erased.get(keys.prefix, (-1, NOTHING_ERASED))
        return None if view is None or listed_at < view.start else replace(view, erased=erased)

    def take_damaged(self) -> list[str]:
        """Return a sentence for each segment that a tolerant query left out since the last call."""
        taken, self._damaged = sorted(set(self._damaged)), []
        return taken

    def _catalog(self, keys: PartitionKeys) -> PartitionCatalog:
        seals, known = self._query.tolerance.fails, self._sealed.get(keys.prefix, ())
        return read_with_former(self._store, keys, seals=seals, known=known)

    def _open(self, catalog: PartitionCatalog, tails: TailLogs | None) -> PartitionView:
        prefix = catalog.keys.prefix
        damaged = None if self._query.tolerance.fails else self._damaged
        view = open_view(self._store, catalog, self._copies.get(prefix, NOTHING_KNOWN), damaged, tails)
        self._copies[prefix] = {copy.segment: copy for copy in (*listed_of(view.copies), *listed_of(view.retired))}
        self._sealed[prefix] = view.sealed
        self._erased[prefix] = view.closed_end, view.erased
        return view

    def _listed(self, name: str, listed: TopicDirectories, wanted: Iterable[int] | None) -> _Listed:
        incarnations, etag = read_listed_incarnations(self._store, self._keys, name, listed)
        asked = sorted(listed.partitions if wanted is None else listed.partitions & set(wanted))
        directory = incarnations.newest_directory
        keys = [self._keys.partition(TopicPartition(name, number), directory) for number in asked]
        return _Listed(incarnations, etag, keys)

    def _topic(
        self, name: str, found: _Listed, listed: TopicDirectories, all_ends: Mapping[PartitionKeys, PartitionEnd]
    ) -> TopicSnapshot | None:
        incarnations = found.incarnations
        ends = {each.partition: all_ends[each] for each in found.keys if each in all_ends}
        without = [each for each in found.keys if each.partition not in ends]
        losses = {loss.partition: loss for loss in in_threads(self.loss_at, without) if loss is not None}
        if not ends and found.etag is None and not read_topics(self._store, self._keys, {name: listed}):
            return None
        numbers = tuple(each.partition.partition for each in found.keys)
        is_first = incarnations.newest_directory == name
        return TopicSnapshot(incarnations.newest_id, is_first, ends, incarnations, numbers, losses)

    def _loss_beside(self, keys: PartitionKeys) -> Loss | None:
        try:
            check_log_start(self._store, keys)
        except CorruptData:
            if self._losses.get(keys.prefix, (0.0, None))[1] is None:  # it was empty before
                self._losses.pop(keys.prefix, None)
            return self.loss_at(keys)
        return None

    def _read_commit(self, keys: PartitionKeys) -> _StoredCommit | None:
        try:
            commit, etag = read_commit(self._store, keys)
        except CorruptData:  # `loss_at` reads it again
            return None
        return None if commit is None else _StoredCommit(keys, commit, etag)

    def _end_of(self, stored: _StoredCommit, tails: TailLogs | None) -> PartitionEnd | None:
        """Return the end by a commit; None if readers lose the partition."""
        keys, commit = stored.keys, stored.commit
        if tails is not None and isinstance(commit, Commit) and commit.live is not None:
            read: Commit | ForeignCommit | None = commit

            def again() -> Commit | ForeignCommit | None:
                nonlocal read
                read = read_commit(self._store, keys)[0]
                return read

            end, why = self._live.end_of(keys, commit, tails, again)
            if end is None and read is not None:
                end = self._describe(keys, read, tails if why is None else None)
            return end if end is None or why is None else replace(end, warning=why)
        etag, known = self._ends.get(keys.prefix, (None, None))
        if known is None or etag is None or etag != stored.etag:
            known = self._describe(keys, commit, None)
            if known is not None:
                self._ends[keys.prefix] = (stored.etag, known)
        return known

    def _describe(
        self, keys: PartitionKeys, commit: Commit | ForeignCommit, tails: TailLogs | None
    ) -> PartitionEnd | None:
        """Return the end by a commit, or by the view if it needs one; None if readers lose the partition.

        Args:
            tails: where the end is; None for that of closed segments.
        """
        committed_only = self._query.read_committed
        has_tail = tails is not None and isinstance(commit, Commit) and commit.live is not None
        if isinstance(commit, Commit) and not has_tail:
            end = end_by_commit(keys, commit, read_committed=committed_only)
            if end is not None:
                return end
        view = self._open(self._catalog(keys), tails)
        if view.state.is_loss:
            return None
        shown = stable_end(self._store, view) if committed_only else view.end
        log = view.log if isinstance(commit, Commit) else ReadLog()
        return PartitionEnd(keys, view.end, shown, log)


def _check_assigned(query: Query, topics: Mapping[str, TopicSnapshot]) -> None:
    """Check that assigned partitions exist, unless their topic has none."""
    for name, numbers in (query.subscription.assigned or {}).items():
        held = {partition.partition for partition in (*topics[name].ends, *topics[name].losses)}
        missing = set(numbers) - held
        if held and missing:
            raise missing_partitions(name, missing, held, query)
