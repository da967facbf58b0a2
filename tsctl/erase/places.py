"""The directories with records of a topic in one store: all incarnations, and where restored records were before."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from ts_common.archive.directories import list_topics
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.restored import Restored
from ts_common.errors import CorruptData
from ts_common.json_objects import MAX_INT64
from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.store.contract import ObjectStore

_MOST: Final = 16  # former places of a partition, as readers accept


@dataclass(frozen=True, slots=True)
class Place:
    """A partition's directory.

    Attributes:
        name: of it in a request: the directory, with its path if it is of another cluster.
        is_newest: whether it is of the newest incarnation, which agents write.
    """

    keys: PartitionKeys
    name: str
    is_newest: bool


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a topic in one store.

    Attributes:
        topic_ids: of the newest incarnation; empty if it never had one.
        elsewhere: former places in other stores, by the URL of the store.
    """

    store: ObjectStore
    places: tuple[Place, ...]
    topic_ids: frozenset[str] = frozenset()
    elsewhere: Mapping[str, tuple[PartitionKeys, ...]] = field(default_factory=dict)


def places_of(store: ObjectStore, cluster: ClusterKeys, topic: str, unshipped: Collection[int] = frozenset()) -> Places:
    """Return the places of a topic; none if the store has no object of it.

    Args:
        unshipped: partitions whose newest place counts without an object too: brokers have records of it.

    Raises:
        CorruptData: the list of incarnations or `restored.json` is malformed, or former places form a circle.
        NewerFormat: a later release wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    listed = list_topics(store, cluster).get(topic)
    if listed is None:
        return Places(store, ())
    incarnations, _ = read_incarnations(store, cluster, topic)
    newest = incarnations.newest_directory
    found, elsewhere = list[Place](), dict[str, tuple[PartitionKeys, ...]]()
    restored = dict[str, Restored | None]()
    numbers = sorted(listed.partitions.union(unshipped))
    for directory, number in product(dict.fromkeys((topic, *sorted(listed.later), newest)), numbers):
        keys = cluster.partition(TopicPartition(topic, number), directory)
        if _has_objects(store, keys) or (directory == newest and number in unshipped):
            found.append(Place(keys, keys.directory, directory == newest))
            former = former_of(store, keys, restored, elsewhere)
            stored = (each for each, _ in former if _has_objects(store, each))
            found += [Place(each, each.name_in(cluster), is_newest=False) for each in stored]
    ids = frozenset(each.topic_id for each in incarnations.entries if each.directory == newest)
    once = {place.keys.prefix: place for place in reversed(found)}  # a former place can be an older incarnation
    return Places(store, tuple(reversed(once.values())), ids, elsewhere)


def keys_of_place(cluster: ClusterKeys, topic: str, name: str) -> PartitionKeys:
    """Return the keys of a place by its name in a request: a directory, or the path of one of another cluster.

    Raises:
        CorruptData: the name is not one of a partition's directory.
    """
    *path, directory = name.split("/")
    if TopicPartition.is_directory_name(directory):
        incarnation, _, number = directory.rpartition("-")
        its = ClusterKeys(path[-1], len("".join(path[:-1]))) if path else cluster
        keys = its.partition(TopicPartition(topic, int(number)), incarnation)
        if name == (keys.prefix.rstrip("/") if path else keys.directory):
            return keys
    raise CorruptData(f"the request names {printable(name)}, which is no directory of a partition")


def _has_objects(store: ObjectStore, keys: PartitionKeys) -> bool:
    """Return whether a directory has objects of the partition, and not only the incarnations of a topic `t-1`."""
    other = keys.cluster.incarnations(str(keys.partition))
    return any(info.key != other for info in store.list(keys.prefix))


def former_of(
    store: ObjectStore,
    keys: PartitionKeys,
    known: dict[str, Restored | None],
    elsewhere: dict[str, tuple[PartitionKeys, ...]],
) -> Iterator[tuple[PartitionKeys, int]]:
    """Yield the former places of a partition in the same store, each with the end of what readers show of it.

    Retention can have removed one wholly.

    Args:
        known: receives each record of restored topics, by its key.
        elsewhere: receives a former place in another store, by the URL of the store.

    Raises:
        As `places_of`.
    """
    seen, end = {keys.prefix}, MAX_INT64
    while True:
        key = keys.cluster.restored
        if key not in known:
            known[key] = Restored.read(store, key)
        record = known[key]
        found = None if record is None else record.find(keys)
        if found is None:
            return
        keys, url, end = found[0].keys_of(keys.partition), found[0].url, min(end, found[1].end)
        if url is not None and url.rstrip("/") != store.location.rstrip("/"):
            elsewhere[url] = (*elsewhere.get(url, ()), keys)
            return
        if keys.prefix in seen or len(seen) > _MOST:
            raise CorruptData(f"{key}: former places of {keys.partition} form a circle, or are more than {_MOST}")
        seen.add(keys.prefix)
        yield keys, end
