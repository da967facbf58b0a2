"""From names to partitions: a cluster's topics in a store, one incarnation of each, with its objects.

Readers read one incarnation of a topic with all its partitions; the newest is the default. A topic without data has a
list of incarnations; a topic without either never existed. If the store has no object under the entropy width, the
width is probably wrong, so the message names the widths that the store has for the cluster.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.clusters import known_clusters
from ts_common.archive.commit import Commit
from ts_common.archive.directories import TopicDirectories, entropy_widths, list_topics, topics_of
from ts_common.archive.former_places import read_with_former
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.layout import contradiction, read_layout
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.reading.incarnation_option import NEWEST, directory_of
from ts_reader.reading.parallel import in_threads

# Returns commits that partitions of an incarnation had earlier, by directory, as of `read_catalog`.
Expected = Callable[[ClusterKeys, str], Mapping[str, Commit]]


def nothing_expected(_cluster: ClusterKeys, _incarnation: str) -> Mapping[str, Commit]:
    """Return no commit."""
    return {}


@dataclass(frozen=True, slots=True)
class Topic:
    """One incarnation of a topic.

    Attributes:
        partitions: a snapshot of each; empty for a topic without data.
        directory: of the incarnation of these partitions, as `Incarnation.directory`.
    """

    name: str
    partitions: tuple[PartitionCatalog, ...]
    incarnations: Incarnations
    directory: str


def topic_names(store: ObjectStore, keys: ClusterKeys) -> list[str]:
    """Return the name of every topic of a cluster in a store, sorted.

    For a topic that has no incarnations object, and no later incarnation, the objects of its partitions are listed
    until one is found. A topic `t-1` without data is not found if there is a topic `t`: that needs a request for each
    partition of the cluster.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    listed = list_topics(store, keys)
    uncertain = [name for name, directories in listed.items() if not directories.is_certain]
    found = in_threads(lambda name: topics_of(store, keys, name, listed[name].partitions), uncertain)
    return sorted({*listed}.difference(uncertain).union(*found))


def read_topics(
    store: ObjectStore,
    keys: ClusterKeys,
    listed: Mapping[str, TopicDirectories],
    incarnation: str = NEWEST,
    *,
    seals: bool = False,
    lowest: Callable[[TopicPartition], int | None] = lambda _: None,
    expected: Expected = nothing_expected,
) -> dict[str, Topic]:
    """Return topics by name with all partitions that the store has; a topic that never existed is left out.

    Args:
        listed: the topics, as `list_topics` returns them.
        incarnation: of each topic, as `parse_incarnation` returns it.
        seals: as of `read_catalog`.
        lowest: returns that of `read_with_former`.
        expected: is called once for each topic, before its partitions are listed.

    Raises:
        QueryError: a topic has no such incarnation.
        CorruptData: a list of incarnations cannot be parsed.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    lists = in_threads(lambda name: read_listed_incarnations(store, keys, name, listed[name]), listed)
    known = {
        name: found
        for name, found in zip(listed, lists, strict=True)
        if found[1] is not None or listed[name].partitions
    }
    chosen = {name: directory_of(incarnations, incarnation) for name, (incarnations, _) in known.items()}
    partitions = [
        keys.partition(TopicPartition(name, number), chosen[name])
        for name in known
        for number in sorted(listed[name].partitions)
    ]
    commits = ChainMap(*in_threads(lambda name: dict(expected(keys, chosen[name])), known))
    held: dict[str, list[PartitionCatalog]] = {name: [] for name in known}

    def read(keys: PartitionKeys) -> PartitionCatalog:
        known_commit = commits.get(keys.directory)
        return read_with_former(store, keys, seals=seals, lowest=lowest(keys.partition), expected=known_commit)

    for catalog in in_threads(read, partitions, step="list"):
        if _holds_anything(catalog):
            held[catalog.keys.partition.topic].append(catalog)
    return {
        name: Topic(name, tuple(held[name]), incarnations, chosen[name])
        for name, (incarnations, etag) in known.items()
        if held[name] or etag is not None
    }


def read_listed_incarnations(
    store: ObjectStore, keys: ClusterKeys, topic: str, listed: TopicDirectories
) -> tuple[Incarnations, str | None]:
    """Return what `read_incarnations` returns, compared with the names of the directories.

    Raises:
        CorruptData: the list cannot be parsed, or lacks an incarnation that has objects.
        StoreUnavailable, AccessDenied: from the store.
    """
    incarnations, etag = read_incarnations(store, keys, topic)
    listed.check_all_listed(incarnations, keys.incarnations(topic))
    return incarnations, etag


def nothing_under(stores: Sequence[ObjectStore], keys: ClusterKeys, option: str) -> str:
    """Return the message for a user whose cluster no store holds under this entropy width.

    Args:
        stores: of the query, at least one.
        keys: of the cluster, with the width.
        option: how the width is written, for instance `prefixEntropyBits=`.

    Raises:
        CorruptData, NewerFormat: from reading the layout.
        StoreUnavailable, AccessDenied, BucketMissing: from a store.
    """
    others = [other_width(store, keys, option) for store in stores]
    if (other := next((each for each in others if each is not None), None)) is not None:
        return other
    missing = f"has no objects of cluster {keys.cluster}"
    nothing = "; ".join(f"{store.location} {missing}; {known_clusters(store)}" for store in stores)
    return f"{nothing}; check the location and the cluster"


def other_width(store: ObjectStore, keys: ClusterKeys, option: str) -> str | None:
    """Return the message for a user whose cluster has another entropy width only; None if it has objects of no other.

    Args:
        keys: as of `nothing_under`.
        option: as of `nothing_under`.

    Raises:
        as `nothing_under`.
    """
    layout = read_layout(store, keys)
    if layout is not None and (message := contradiction(layout, keys, option, store.location)) is not None:
        return message
    cluster, name = keys.cluster, option.rstrip("= ")
    widths = entropy_widths(store, cluster)
    if not widths or max(keys.entropy_bits, 0) in widths:
        return None
    ways = " or ".join(f"{option}{width}" if width else f"no {name}" for width in sorted(widths))
    given = f"{option}{keys.entropy_bits}" if keys.entropy_bits else f"no {name}"
    return f"{store.location} has no objects of cluster {cluster} with {given}; found with {ways}: set that option"


def _holds_anything(catalog: PartitionCatalog) -> bool:
    """Return whether a directory has objects of a partition, and not only another object or an older incarnation."""
    is_there = catalog.commit is not None or catalog.damage is not None
    return bool(is_there or catalog.segments or catalog.gaps or catalog.log_start is not None)
