"""Makes the whole plan: topics and replicas of the archive and its newest snapshot, and the committed offsets."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.restored import Ended
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, ClusterSnapshot, GroupOffset, GroupsSnapshot, Snapshot
from ts_common.archive.snapshots import Topic as SnapshotTopic
from ts_common.archive.tail_logs import TailLogs
from ts_common.errors import CorruptData, QueryError
from ts_common.json_objects import MAX_INT64
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import HeldTopic
from tsctl.restore.commands_for import commands_of
from tsctl.restore.documents import GroupsPlan, RestorePlan, Seed, TopicPlan
from tsctl.restore.exactly_once import group_notes
from tsctl.restore.groups import Commits, Lifetimes, newest_commits, plan_groups
from tsctl.restore.markers import end_transactions
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.planning import Planned, new_plan_id, plan_partition, replicas_of
from tsctl.restore.transactions import Coordinated, naming
from tsctl.snapshots import snapshot_at

_Snapshot = TypeVar("_Snapshot", bound=Snapshot)
_MOST_NAMED: Final = 10
_EMPTY: Final = PartitionPlan(
    start=0,
    end=0,
    stored_end=0,
    stable=0,
    replicas=(),
    steps=(),
    lost=(),
    ended=(),
    epochs=EpochHistory(),
    lineage=None,
    notes=("the archive has no segment of it",),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator chose.

    Attributes:
        at: ms since the epoch: the cut; None for all that the archive has.
        ends: offsets of single partitions, which count instead.
        brokers: ids of the new cluster.
        factor: replication factor; None for the snapshot's.
        configurations: by topic; they count instead of the snapshot's.
        seed: gets all replicas until they are moved to `brokers`; None without one.
        restarted: serving brokers that get them instead; none with a seed, and if all brokers are new.
        aborts_open: as `aborts` of `end_transactions`.
        incarnation: of the topics, as in `OpenArchive.topics`.
        tail: whether live tails are restored too.
    """

    at: int | None
    ends: Mapping[TopicPartition, int]
    brokers: tuple[int, ...]
    factor: int | None
    configurations: Mapping[str, Mapping[str, str]]
    seed: Seed | None = None
    aborts_open: bool = True
    incarnation: str = NEWEST
    restarted: tuple[int, ...] = ()
    tail: bool = True

    @property
    def first(self) -> tuple[int, ...]:
        """The brokers that get the files, while the cluster serves other topics; none if all brokers are new."""
        return self.restarted if self.seed is None else (self.seed.broker,)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The newest intact snapshots at a cut; None without one.

    Attributes:
        notes: what is wrong with newer ones.
    """

    cluster: ClusterSnapshot | None
    groups: GroupsSnapshot | None
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, stores: Sequence[ObjectStore], keys: ClusterKeys, at: int | None) -> "Snapshots":
        """Return the newest of all stores.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `Snapshot.newest`.
        """
        until, notes = int(time.time() * 1000) if at is None else at, list[str]()
        cluster = snapshot_at(stores, keys, ClusterSnapshot, until, notes)
        groups = snapshot_at(stores, keys, GroupsSnapshot, until, notes)
        if cluster is not None and not cluster.all_topics:
            notes.append("the snapshot of metadata can lack topics: its agent was not allowed to DESCRIBE all of them")
        return cls(cluster, groups, tuple(notes))

    @classmethod
    def of_deleted(
        cls, stores: Iterable[ObjectStore], keys: ClusterKeys, at: int | None, topics: Mapping[str, Collection[str]]
    ) -> "Snapshots":
        """Return what snapshots have of topics that the cluster may have deleted since.

        Each topic is as in the newest snapshot that has one of its topic ids. Kafka deletes the offsets of groups with
        a topic, one group after the other. So each is the newest of the hour before the topic was seen last. From the
        snapshot on that has another topic of the name, an offset is of that one.

        Args:
            topics: topic ids by name; empty if unknown, so that any counts.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `Snapshot.load`.
        """
        until, notes = int(time.time() * 1000) if at is None else at, list[str]()
        found, last, gone = dict[str, SnapshotTopic](), until, until
        groups: dict[str, dict[TopicPartition, GroupOffset]] = {}
        times: list[int] = []
        others: dict[str, int] = {}  # the time of the oldest snapshot with another topic of the name
        for store in stores:
            for snapshot in _newest_first(ClusterSnapshot, store, keys, 0, until, notes):
                new = {
                    name: each
                    for name, each in snapshot.topics.items()
                    if name in topics and name not in found and _is_one_of(each.id, topics[name])
                }
                found |= new
                others |= dict.fromkeys(snapshot.topics.keys() & topics.keys() - found.keys(), snapshot.time)
                if new:
                    last = snapshot.time
                elif not found:
                    gone = snapshot.time
                if len(found) == len(topics):
                    break
            for one in _newest_first(GroupsSnapshot, store, keys, last - HOUR, gone + FIVE_MINUTES, notes):
                for group, offsets in one.groups.items():
                    for partition, offset in offsets.items():
                        if partition.topic in topics and one.time < others.get(partition.topic, MAX_INT64):
                            times.append(one.time)
                            groups.setdefault(group, {}).setdefault(partition, offset)
        cluster = ClusterSnapshot(last, 0, None, found, {}, (), (), ()) if found else None
        return cls(cluster, GroupsSnapshot(max(times), groups) if times else None, tuple(notes))


def _is_one_of(topic_id: str | None, known: Collection[str]) -> bool:
    return topic_id in known or topic_id is None or not known


def _newest_first(
    kind: type[_Snapshot], store: ObjectStore, keys: ClusterKeys, since: int, until: int, notes: list[str]
) -> Iterator[_Snapshot]:
    for at in reversed(kind.times(store, keys, max(since, 0))):
        try:
            found = kind.load(store, keys, at) if at <= until else None
        except CorruptData as error:
            notes.append(f"damaged snapshot: {error}; an older one is used")
            continue
        if found is not None:
            yield found


def make_plan(
    topics: Sequence[HeldTopic],
    wanted: Wanted,
    snapshots: Snapshots,
    committed: Commits,
    cluster: str,
    locations: Sequence[str],
    coordinated: Sequence[Coordinated],
    lifetimes: Lifetimes,
) -> RestorePlan:
    """Return the plan.

    Args:
        topics: of the archive, without Kafka's internal ones.
        lifetimes: of topics that followed others of their names, or were followed by them.
        committed: offsets of the archived `__consumer_offsets`, with their producers.
        coordinated: as in `end_transactions`.

    Raises:
        QueryError: the choice does not fit the archive, or a transaction that has not ended names a topic.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    if unended := [*naming(coordinated, {entry.topic.name for entry in topics})]:
        raise QueryError(". ".join(unended[:_MOST_NAMED]))
    catalogs = [(entry, catalog) for entry in topics for catalog in entry.topic.partitions]
    unknown = wanted.ends.keys() - {catalog.keys.partition for _, catalog in catalogs}
    if unknown:
        raise QueryError(f"--end: {', '.join(map(str, sorted(unknown)))}: not in the plan's topics")
    # Every commit was read before.
    tails = {entry.store.location: TailLogs(entry.store, each.keys.cluster) for entry, each in catalogs if wanted.tail}

    def plan_one(found: tuple[HeldTopic, PartitionCatalog]) -> Planned:
        entry, catalog = found
        end = wanted.ends.get(catalog.keys.partition)
        return plan_partition(entry.store, catalog, wanted.at, end, tails.get(entry.store.location))

    planned = in_threads(plan_one, catalogs)
    ended = end_transactions(planned, coordinated, aborts=wanted.aborts_open)
    by_partition = {part.keys.partition: part for part in planned}
    known = {} if snapshots.cluster is None else snapshots.cluster.topics
    plans = {}
    for entry in topics:
        name = entry.topic.name
        plans[name] = _topic_plan(entry, by_partition, ended, known.get(name), wanted)
    plan = RestorePlan(
        plan=new_plan_id(),
        time=int(time.time() * 1000),
        cluster=cluster,
        locations=tuple(locations),
        at=wanted.at,
        topics=plans,
        groups=GroupsPlan("none", None, {}),
        commands=() if snapshots.cluster is None or wanted.first else tuple(commands_of(snapshots.cluster)),
        seed=wanted.seed,
        notes=snapshots.notes,
    )
    groups = plan_groups(committed, snapshots.groups, plan.partitions, lifetimes)
    commits = newest_commits(committed, snapshots.groups, lifetimes)
    notes = group_notes({name: each for name, each in commits.items() if name[0] in groups.offsets}, planned, ended)
    return replace(plan, groups=replace(groups, notes=notes))


def _topic_plan(
    entry: HeldTopic,
    planned: Mapping[TopicPartition, Planned],
    ended: Mapping[TopicPartition, Sequence[Ended]],
    former: SnapshotTopic | None,
    wanted: Wanted,
) -> TopicPlan:
    name = entry.topic.name
    held = {part.partition: part for part in planned if part.topic == name}
    before = {} if former is None else dict(enumerate(former.partitions))
    factor = wanted.factor or (former.replication_factor if former is not None else 0)
    if not factor:
        raise QueryError(f"topic {name}: no snapshot of metadata has its replication factor; set --replication-factor")
    count = max([*held, *before, -1]) + 1
    homes = replicas_of(name, count, wanted.brokers, factor, before)
    partitions = {}
    for number in range(count):
        part = held.get(number)
        replicas, later = places_of(homes[number], wanted.first, number)
        if part is None:  # without a segment in the archive
            partitions[number] = replace(_EMPTY, replicas=replicas, homes=later)
        else:
            partitions[number] = planned[part].finished(replicas, ended[part], later)
    configurations = wanted.configurations.get(name, None if former is None else former.configs)
    notes = (
        [] if former is not None else [f"no snapshot has the number of partitions: {count} have segments, or are below"]
    )
    if configurations is None:
        notes.append("no snapshot has the topic's configurations: Kafka's defaults count; give --configurations")
    partitions[0] = replace(partitions[0], notes=(*notes, *partitions[0].notes))
    return TopicPlan(entry.topic.directory, partitions, dict(configurations or {}))


def places_of(homes: tuple[int, ...], first: Sequence[int], number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return `replicas` and `homes` of a partition; its files are placed on one of the brokers `first`, if any."""
    if not first:
        return homes, ()
    near = next((broker for broker in homes if broker in first), first[number % len(first)])
    return (near,), homes
