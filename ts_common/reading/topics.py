"""From names to partitions: a cluster's topics in a store, in one incarnation each, and where their objects lie.

Readers take one incarnation of a topic, the newest unless another is asked for, all its partitions of the same one. A
topic without any data is known by the list of its incarnations; one that has neither never was. Where nothing at all
lies under the entropy width, the mistake is most likely the width, so the widths that hold the cluster are looked up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, read_catalog
from ts_common.archive.directories import TopicDirectories, entropy_widths
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.layout import contradiction, read_layout
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.reading.incarnation_option import NEWEST, directory_of
from ts_common.reading.parallel import in_threads
from ts_common.store.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic that is asked for, in one incarnation.

    Attributes:
        name: the topic's.
        partitions: what the store holds of each one that is asked for; empty for a topic without data.
        incarnations: all that the topic has had.
        directory: of the incarnation whose partitions these are, as `Incarnation.directory`.
    """

    name: str
    partitions: tuple[PartitionCatalog, ...]
    incarnations: Incarnations
    directory: str


def read_topics(
    store: ObjectStore, keys: ClusterKeys, listed: Mapping[str, TopicDirectories], incarnation: str = NEWEST
) -> dict[str, Topic]:
    """Topics with all their partitions, as far as the store knows them.

    Args:
        store: where they lie.
        keys: of the cluster.
        listed: the topics, as `list_topics` says.
        incarnation: which one; as the option of that name.

    Raises:
        QueryError: a topic that has no such incarnation.
        CorruptData, StoreUnavailable, AccessDenied, BucketMissing: as `find_topics`.
    """
    lists = in_threads(lambda name: read_lives(store, keys, name, listed[name]), listed)
    known = {
        name: found
        for name, found in zip(listed, lists, strict=True)
        if found[1] is not None or listed[name].partitions
    }
    chosen = {name: directory_of(incarnations, incarnation) for name, (incarnations, _) in known.items()}
    lying = [
        keys.partition(TopicPartition(name, number), chosen[name])
        for name in known
        for number in sorted(listed[name].partitions)
    ]
    held: dict[str, list[PartitionCatalog]] = {name: [] for name in known}
    for catalog in in_threads(lambda partition: read_catalog(store, partition), lying, telling="list"):
        if _holds_anything(catalog):
            held[catalog.keys.partition.topic].append(catalog)
    return {
        name: Topic(name, tuple(held[name]), incarnations, chosen[name])
        for name, (incarnations, etag) in known.items()
        if held[name] or etag is not None
    }


def read_lives(
    store: ObjectStore, keys: ClusterKeys, topic: str, listed: TopicDirectories
) -> tuple[Incarnations, str | None]:
    """As `read_incarnations`, checked against the names of the directories.

    Raises:
        CorruptData: the list is none, or lacks an incarnation that the store holds.
        StoreUnavailable, AccessDenied: the store's.
    """
    incarnations, etag = read_incarnations(store, keys, topic)
    listed.check_all_listed(incarnations, keys.incarnations(topic))
    return incarnations, etag


def nothing_under(store: ObjectStore, keys: ClusterKeys, option: str) -> str:
    """What somebody is told whose cluster the store does not hold under this entropy width.

    Args:
        store: that was asked.
        keys: of the cluster, with the width.
        option: how the width is written, for instance `prefixEntropyBits=`.

    Raises:
        CorruptData, NewerFormat: of the layout.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    layout = read_layout(store, keys)
    if layout is not None and (told := contradiction(layout, keys, option, store.location)) is not None:
        return told
    cluster, name = keys.cluster, option.rstrip("= ")
    widths = entropy_widths(store, cluster)
    if not widths:
        return f"{store.location} holds nothing of a cluster {cluster}; check the location and the cluster"
    ways = " or ".join(f"{option}{width}" if width else f"no {name}" for width in sorted(widths))
    given = f"{option}{keys.entropy_bits}" if keys.entropy_bits else f"no {name}"
    return f"{store.location} holds nothing of cluster {cluster} with {given}; it does with {ways}: set that"


def some(names: Iterable[str], limit: int = 10) -> str:
    """Names for a message, the first few of many."""
    names = sorted(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _holds_anything(catalog: PartitionCatalog) -> bool:
    """Whether it is more than a name: an older incarnation's partition, or a directory of something else."""
    return bool(catalog.commit or catalog.segments or catalog.gaps or catalog.log_start is not None)
