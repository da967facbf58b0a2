"""The incarnations of the topics that a store has, with their partitions; and since when a topic is absent.

A run with a running cluster writes the topics that this cluster does not have to `gc/absent.json`::

    {"version":1,"time":1700000000000,"absent":{"orders":1690000000000}}

A topic that exists again loses its entry. So a topic with an entry was absent in each run since then.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Final

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import INCARNATIONS_NAME, LOG_START_NAME, ClusterKeys, PartitionKeys
from ts_common.archive.restored import Restored
from ts_common.archive.stored_object import StoredObject
from ts_common.errors import PreconditionFailed, QueryError
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_common.wording import counted
from ts_reader.reading.topics import read_listed_incarnations
from tsctl.gc.retention import UNREADABLE, Skipped, TopicIncarnation

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_MOST: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Absent(StoredObject, expected="a list of absent topics", most=32 << 20):
    time: int
    absent: Mapping[str, int]


def read_topic_incarnations(
    store: ObjectStore, keys: ClusterKeys, has: Callable[[str], bool], skip: Callable[[Skipped], None]
) -> Iterator[TopicIncarnation]:
    """Yield the incarnations of each topic, oldest first, in the order of the topics' names; and old places.

    Agents write the list of incarnations. So an incarnation is not over for longer than the list has not changed. The
    former place of a restored topic is not over.

    Args:
        has: whether readers read a topic from this store.
        skip: is called with each topic whose list of incarnations is in doubt; it is left out.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    former = _former_places(store, keys, skip)
    for topic, listed in sorted(list_topics(store, keys).items()):
        if not has(topic):
            yield from _old_places(store, keys, topic, listed)
            continue
        try:
            incarnations, etag = read_listed_incarnations(store, keys, topic, listed)
        except UNREADABLE as error:
            skip(Skipped(topic, str(error)))
            continue
        several = len({entry.directory for entry in incarnations.entries}) > 1 and etag is not None
        written = int(store.head(keys.incarnations(topic)).modified * 1000) if several else 0
        for incarnation in _of(incarnations, written):
            is_former = former is None or incarnation.directory in former
            yield replace(
                incarnation,
                over_since=None if is_former else incarnation.over_since,
                partitions=tuple(_partitions(keys, topic, listed, incarnation.directory)),
            )


def _former_places(store: ObjectStore, keys: ClusterKeys, skip: Callable[[Skipped], None]) -> set[str] | None:
    """Return the directories whose records readers return below a restored log; None if all may be such."""
    try:
        record = Restored.read(store, keys.restored)
    except UNREADABLE as error:
        skip(Skipped(keys.restored, str(error)))
        return None
    return {each.directory for each in record.topics.values() if each.cluster == keys.cluster} if record else set()


def _of(incarnations: Incarnations, written: int) -> Iterator[TopicIncarnation]:
    ids: dict[str, set[str]] = {}
    first_seen: dict[str, int] = {}
    for entry in incarnations.entries:
        ids.setdefault(entry.directory, set()).add(entry.topic_id)
        first_seen.setdefault(entry.directory, entry.first_seen)
    directories = list(ids) or [incarnations.topic]
    for directory, following in zip_longest(directories, directories[1:]):
        over_since = None if following is None else max(first_seen[following], written)
        yield TopicIncarnation(incarnations.topic, directory, frozenset(ids.get(directory, ())), over_since, ())


def _old_places(
    store: ObjectStore, keys: ClusterKeys, topic: str, listed: TopicDirectories
) -> Iterator[TopicIncarnation]:
    """Yield what a topic left that the archive has in another store now; its age is that of its newest object."""
    for directory in (topic, *sorted(listed.later)):
        partitions = tuple(_partitions(keys, topic, listed, directory))
        objects = (info for each in partitions for info in store.list(each.prefix) if not _is_list(info))
        # A run writes `log.start`, so its time counts only if nothing else is left.
        newest = max(
            objects, key=lambda info: (not info.key.endswith(f"/{LOG_START_NAME}"), info.modified), default=None
        )
        if newest is not None:
            since = int(newest.modified * 1000)
            yield TopicIncarnation(topic, directory, frozenset(), since, partitions, is_old_place=True)


def _partitions(keys: ClusterKeys, topic: str, listed: TopicDirectories, directory: str) -> Iterator[PartitionKeys]:
    return (keys.partition(TopicPartition(topic, number), directory) for number in sorted(listed.partitions))


def note_absent(
    store: ObjectStore,
    keys: ClusterKeys,
    kafka: "KafkaCluster",
    has: Callable[[str], bool],
    now: int,
    *,
    writes: bool = True,
) -> dict[str, int]:
    """Return since when topics of a store have been absent from the running cluster, ms since the epoch, and write it.

    Args:
        has: whether readers read a topic from this store.
        now: milliseconds since the epoch, by the clock of the store.

    Raises:
        QueryError: the cluster has so few of the topics that it is probably another one.
        CorruptData: the object is damaged.
        PreconditionFailed: another run wrote it meanwhile.
        ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    running = {name: topic.topic_id for name, topic in kafka.topics().items()}
    archived: dict[str, frozenset[str]] = {}
    for each in read_topic_incarnations(store, keys, has, lambda _: None):
        # The list of incarnations stays after everything else was deleted, and such a topic is absent for ever.
        if each.over_since is None and (each.topic in running or has_objects(store, each)):
            archived[each.topic] = each.topic_ids
    kafka.check_unknown(archived.keys() - running.keys())  # a cluster also hides topics that an identity may not see
    return write_absent(store, keys, archived, running, now, writes=writes)


def write_absent(
    store: ObjectStore,
    keys: ClusterKeys,
    archived: Mapping[str, frozenset[str]],
    running: Mapping[str, str | None],
    now: int,
    *,
    writes: bool = True,
) -> dict[str, int]:
    """Return since when topics have been absent, as `note_absent`.

    Args:
        archived: the topic ids of the newest incarnation of each topic; empty if it has none.
        running: the topic ids of the running cluster by name; None for a topic without an id.
    """
    absent = [name for name, ids in archived.items() if not _exists(running, name, ids)]
    if len(absent) > _MOST * len(archived):
        raise QueryError(
            f"the running cluster lacks {len(absent)} of {counted(len(archived), 'topic')} of the archive; it is "
            "probably another cluster: check --bootstrap-server, or remove deleted_topics from the policy"
        )
    key = f"{keys.gc}absent.json"
    former = _Absent.read_with_etag(store, key)
    since = {} if former is None else former[0].absent
    found = {name: min(since.get(name, now), now) for name in sorted(absent)}
    if writes:
        try:
            condition = IfAbsent() if former is None else IfMatch(former[1])
            store.put(key, _Absent(now, found).encode(), condition=condition)
        except PreconditionFailed as error:
            raise PreconditionFailed(f"{key}: another run of gc wrote it meanwhile; run it again") from error
    return found


def _exists(running: Mapping[str, str | None], topic: str, ids: frozenset[str]) -> bool:
    return topic in running and (running[topic] is None or not ids or running[topic] in ids)


def has_objects(store: ObjectStore, incarnation: TopicIncarnation) -> bool:
    """Return whether it has any object; the list of a topic `t-1` is in the directory of partition 1 of `t`."""
    objects = (info for keys in incarnation.partitions for info in islice(store.list(keys.prefix), 2))
    return any(not _is_list(info) for info in objects)


def _is_list(info: ObjectInfo) -> bool:
    return info.key.endswith(f"/{INCARNATIONS_NAME}")
