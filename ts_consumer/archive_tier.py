"""The archive as a tier: what it has of a partition, and what is read of it. All methods wait for the store."""

import threading
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

import structlog

from ts_common.archive.catalog import read_commit
from ts_common.archive.clusters import find_clusters
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.directories import entropy_widths
from ts_common.archive.former_places import read_with_former
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.layout import read_layout
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import continued, open_view
from ts_common.errors import ConfigurationError, CorruptData, DataLoss, ObjectNotFound
from ts_common.log_format.limits import BatchLimit
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectStore
from ts_common.store.options import Endpoint
from ts_common.store.shared_stores import shared_store
from ts_consumer.configuration import BATCH_KEY, CLUSTER_KEY, CONSUMER, Configuration
from ts_consumer.errors import ClusterMissing
from ts_consumer.modes import Extent
from ts_reader.query.bounds import Loss, first_offset_of, loss_of
from ts_reader.query.plan_partition import plan_partition
from ts_reader.query.plan_query import splits_of
from ts_reader.query.query import Offsets, OnHole, Query, Subscription, settled
from ts_reader.query.splits import Split
from ts_reader.query.subscription import list_known
from ts_reader.reading.topics import topic_names
from ts_reader.reading.transactions import stable_end

# A listing also shows what retention removed, and a new incarnation; a commit shows new segments alone.
_LISTING_SECONDS: Final = 60.0
_LOGS_SECONDS: Final = 1.0  # between two looks at the logs of live tails
_ATTEMPTS: Final = 3
_Found = tuple[Commit | ForeignCommit | None, str | None]  # a commit and its ETag
log = structlog.get_logger()


@dataclass(frozen=True)
class ArchivedPartition:
    """What the archive has of a partition at one moment.

    Attributes:
        extent: its offsets; with `read_committed` they end at the last stable offset.
        topic_id: of the incarnation; None if the archive has none.
        version: ETag of the commit.
        tailed: what a live tail continues; None without one.
    """

    store: ObjectStore
    query: Query
    view: PartitionView
    extent: Extent
    topic_id: str | None
    version: str | None
    tailed: "_Tailed | None" = None


@dataclass(frozen=True)
class _Tailed:
    """Closed segments that a live tail continues.

    Attributes:
        commit: names the tail.
        read_at: monotonic time after the commit was read: packs are read later (reading rule 11).
    """

    view: PartitionView
    commit: Commit
    read_at: float


@dataclass(frozen=True)
class HistoryPlan:
    """What is read of the archive for consecutive offsets.

    Attributes:
        splits: in the order of offsets.
        end: the next offset after it was read.
        losses: offsets of the range that are passed over.
        topic_id: of the incarnation; None if the archive has none.
    """

    splits: tuple[Split, ...]
    start: int
    end: int
    losses: tuple[Loss, ...]
    view: PartitionView
    store: ObjectStore
    topic_id: str | None


class ArchiveTier:
    """The archive of a consumer; thread-safe."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()
        self._settled: dict[str, Query] = {}  # by location
        self._known: dict[TopicPartition, tuple[float, ArchivedPartition]] = {}  # with the monotonic time of the look
        # For a partition that returns nothing: the listing's monotonic time, the commit's ETag, and what readers lose.
        self._nothing: dict[TopicPartition, tuple[float, str | None, Loss | None]] = {}
        self._clusters: dict[str, tuple[float, str | None]] = {}  # by location, with the monotonic time of the look
        self._logs: dict[str, tuple[float, TailLogs]] = {}  # by location, with the monotonic time before they are read
        self._missed: set[str] = set()  # topics that were looked for and are not in the archive

    def look(self, partition: TopicPartition) -> ArchivedPartition | None:
        """Return what the archive has of a partition now; None without a commit, or where a loss is passed over.

        Raises:
            DataLoss: its commit is missing although it has segments, or it or `log.start` is damaged, and lost offsets
                are errors.
            ConfigurationError: the topic has no location, or no topic can have that name.
            ClusterMissing: the store has other clusters alone.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        if not is_topic_name(partition.topic):
            raise ConfigurationError("assignment", [f"{partition.topic!r} is no name of a topic"])
        known = self._known.get(partition)
        now = monotonic()
        if known is not None and now - known[0] < _LISTING_SECONDS:
            former = known[1]
            found = _commit(former.store, former.view.keys)
            if found[1] is not None and found[1] == former.version:
                if former.tailed is None:
                    return former  # a partition that waits for the archive costs this one request
                archived = self._continued(former)
                self._known[partition] = known[0], archived
                return archived
        query = self._query(partition)
        store = shared_store(query.location, query.connection)
        incarnations, _ = read_incarnations(store, query.keys, partition.topic)
        keys = query.keys.partition(partition, incarnations.newest_directory)
        found = _commit(store, keys)
        read_at = monotonic()
        view = self._view(partition, query, store, keys, found)
        if view is None:
            return None
        commit = found[0]
        tailed = _Tailed(view, commit, read_at) if isinstance(commit, Commit) and commit.live is not None else None
        archived = ArchivedPartition(store, query, view, Extent(0, 0), incarnations.newest_id, found[1], tailed)
        archived = self._continued(archived)
        self._known[partition] = now, archived
        return archived

    def _continued(self, archived: ArchivedPartition) -> ArchivedPartition:
        """Return what the archive has of a partition with its live tail as it is now."""
        store, query, tailed = archived.store, archived.query, archived.tailed
        view = archived.view if tailed is None else self._with_tail(store, query, tailed)
        end = stable_end(store, view) if query.read_committed else view.end
        return replace(archived, view=view, extent=Extent(view.start, max(view.start, end)))

    def _with_tail(self, store: ObjectStore, query: Query, tailed: _Tailed) -> PartitionView:
        """Return the view with the tail; the logs are read once a second for all partitions."""
        for attempt in range(_ATTEMPTS):
            with self._lock:
                at, logs = self._logs.get(query.location, (float("-inf"), None))
                now = monotonic()
                if logs is None or attempt or at < tailed.read_at or now - at >= _LOGS_SECONDS:
                    logs = TailLogs(store, query.keys, logs)
                    self._logs[query.location] = now, logs
            try:
                chain = logs.chain(tailed.view.keys, tailed.commit)
                if chain.damage is not None:
                    log.warning("tail_damaged", partition=str(tailed.view.partition), reason=chain.damage)
                return continued(tailed.view, chain)
            except ObjectNotFound:  # a merge deleted a pack meanwhile
                if attempt + 1 == _ATTEMPTS:
                    raise
            except CorruptData as error:
                log.warning("tail_damaged", partition=str(tailed.view.partition), reason=str(error))
                break
        return tailed.view

    def topics(self, topic: str | None) -> dict[str, frozenset[int]]:
        """Return the topics of the archive with the numbers of their partitions, by the names of directories.

        Args:
            topic: the only one; None for all.

        Raises:
            QueryError: a location has no objects of the cluster.
            ConfigurationError: the topic has no location, or no topic can have that name.
            StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        if topic is not None and not is_topic_name(topic):
            raise ConfigurationError("list_topics", [f"{topic!r} is no name of a topic"])
        located = self._configuration.endpoint
        found: dict[str, frozenset[int]] = {}
        for endpoint in self._configuration.endpoints() if topic is None else (located(topic),):
            query = self._settled_query(endpoint)
            store = shared_store(query.location, query.connection)
            listed = list_known(store, query)
            for name in topic_names(store, query.keys):
                if topic in {None, name} and located(name).location == endpoint.location:
                    found[name] = listed[name].partitions if name in listed else frozenset()
        return found

    def plan(self, archived: ArchivedPartition, offset: int, kafka_start: int | None = None) -> HistoryPlan:
        """Return what is read from an offset on: to the end of the archive, or to the first lost offset.

        Args:
            offset: in its extent.
            kafka_start: the plan ends with the archive's segment that has this offset, or where one begins with it;
                None for no such end. Kafka cannot have an offset below it later, so no look before that end finds one.

        Raises:
            DataLoss: the offset itself is lost, and lost offsets are errors.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        end = archived.extent.end
        if kafka_start is not None and offset < kafka_start < end:
            ranges = archived.view.plan(kafka_start - 1, end)
            end = next((each.end for each in ranges if each.end >= kafka_start), end)
        plan = self._planned(archived, offset, end)
        if plan.losses and self._configuration.on_hole is OnHole.FAIL:
            first = plan.losses[0]
            if first.start <= offset:
                raise DataLoss(f"{first}. {CONSUMER.despite_loss}")
            plan = self._planned(archived, offset, first.start)
        return plan

    def offset_for_time(self, archived: ArchivedPartition, milliseconds: int) -> int | None:
        """Return the offset of the first record at or after a timestamp; None if the archive has no such record.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        return first_offset_of(archived.store, archived.view, milliseconds, archived.query, after_hole=False)

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition: it is no longer assigned, or an object of it has disappeared."""
        self._known.pop(partition, None)
        self._nothing.pop(partition, None)

    def _view(
        self, partition: TopicPartition, query: Query, store: ObjectStore, keys: PartitionKeys, found: _Found
    ) -> PartitionView | None:
        """Return the view of a commit; None if readers get nothing of the partition, which is not listed at each look.

        Raises:
            DataLoss: its records are lost to readers, and lost offsets are errors.
            ClusterMissing: as `_check_cluster`.
        """
        listed, version, loss = self._nothing.get(partition, (float("-inf"), None, None))
        if version != found[1] or monotonic() - listed >= _LISTING_SECONDS:
            known = self._known.get(partition)
            former = () if known is None else (*known[1].view.copies, *known[1].view.retired)
            catalog = read_with_former(store, keys, None if found[0] is None else found)
            view = open_view(store, catalog, {copy.segment: copy for copy in former})
            if view.state is CommitState.COMMITTED:
                self._nothing.pop(partition, None)
                return view
            loss = loss_of(view)
            self._nothing[partition] = monotonic(), found[1], loss
            if loss is not None:
                log.warning("partition_lost", partition=str(partition), reason=str(loss))
        if loss is None:
            self._check_cluster(query, store)
            self._warn_of_nothing(partition, query.location)
        elif self._configuration.on_hole is OnHole.FAIL:
            raise DataLoss(f"{loss}. {CONSUMER.despite_loss}")
        return None

    def _check_cluster(self, query: Query, store: ObjectStore) -> None:
        """Check that a store with clusters has this one, not at each look: an agent begins it at its start.

        Raises:
            ClusterMissing: it has others alone. Without an error the consumer would begin at Kafka's log start.
        """
        looked, problem = self._clusters.get(query.location, (float("-inf"), None))
        if monotonic() - looked >= _LISTING_SECONDS:
            has_own = read_layout(store, query.keys) is not None or entropy_widths(store, query.cluster)
            problem = None
            if not has_own and (found := find_clusters(store)).ids:
                problem = (
                    f"{CLUSTER_KEY}={query.cluster}: {store.location} has no such cluster; {found}. "
                    "Correct the id, or start an agent of the cluster"
                )
            self._clusters[query.location] = monotonic(), problem
        if problem is not None:
            raise ClusterMissing(problem)

    def _warn_of_nothing(self, partition: TopicPartition, location: str) -> None:
        """Log, once for a topic, that the archive lacks it: a mistyped cluster looks as if nothing were shipped."""
        if partition.topic not in self._missed:
            self._missed.add(partition.topic)
            log.warning(
                "topic_not_archived",
                topic=partition.topic,
                partition=partition.partition,
                location=location,
                cluster=self._configuration.cluster,
                reason=f"it has no commit: nothing is shipped yet, or {CLUSTER_KEY} or the location is another's",
            )

    def _planned(self, archived: ArchivedPartition, start: int, end: int) -> HistoryPlan:
        partition = archived.view.partition
        bound = partial(_at, partition)
        query = replace(archived.query, start=bound(start), end=bound(end))
        plan = plan_partition(archived.store, archived.view, query)
        splits = splits_of(archived.store, [plan.read], query)
        losses = tuple(sorted(plan.losses, key=lambda loss: loss.start))
        return HistoryPlan(splits, start, end, losses, archived.view, archived.store, archived.topic_id)

    def _query(self, partition: TopicPartition) -> Query:
        query = self._settled_query(self._configuration.endpoint(partition.topic))
        return replace(query, subscription=Subscription(assigned={partition.topic: (partition.partition,)}))

    def _settled_query(self, endpoint: Endpoint) -> Query:
        """Return the query of a location, with its entropy bits."""
        configuration = self._configuration
        with self._lock:
            query = self._settled.get(endpoint.location)
        if query is None:
            query = Query(
                endpoint.location,
                configuration.cluster,
                configuration.entropy_bits,
                Subscription(),
                fail_on_data_loss=False,
                read_committed=configuration.read_committed,
                connection=endpoint.options.connection,
                wording=CONSUMER,
                limit=BatchLimit(configuration.batch_bytes, BATCH_KEY),
            )
            query = settled(shared_store(query.location, query.connection), query)
            with self._lock:
                self._settled[endpoint.location] = query
        return query


def _commit(store: ObjectStore, keys: PartitionKeys) -> _Found:
    """Return the commit and its ETag; None twice without one, or if it is damaged."""
    try:
        return read_commit(store, keys)
    except CorruptData:  # the listing that follows reads it again
        return None, None


def _at(partition: TopicPartition, offset: int) -> Offsets:
    return Offsets({partition.topic: {partition.partition: offset}})
