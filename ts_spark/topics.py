"""From a subscription to partitions: which of a cluster's topics are asked for, and where their objects lie.

Readers take one incarnation of a topic, the newest unless another is asked for, all its partitions of the same one. A
topic without any data is known by the list of its incarnations; one that has neither never was, and a query for it is
refused. Where nothing at all lies under the entropy width, the mistake is most likely the width, so the widths that
hold the cluster are looked up.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ts_common.catalog import PartitionCatalog, read_catalog, read_incarnations
from ts_common.directories import NO_DIRECTORIES, TopicDirectories, entropy_widths, list_topics
from ts_common.errors import QueryError
from ts_common.incarnations import Incarnations
from ts_common.model import TopicPartition
from ts_common.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_spark.incarnation import NEWEST, directory_of
from ts_spark.parallel import in_threads
from ts_spark.query import QueryOptions


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic that is asked for, in one incarnation.

    Attributes:
        name: the topic's.
        partitions: what the store holds of each one that is asked for; empty for a topic without data.
    """

    name: str
    partitions: tuple[PartitionCatalog, ...]


def find_topics(store: ObjectStore, options: QueryOptions) -> tuple[Topic, ...]:
    """The topics that a query asks for, with a snapshot of each of their partitions.

    Raises:
        QueryError: the store does not hold the cluster under this width, or not the topic or partition.
        CorruptData: a commit, `log.start` or list of incarnations that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    keys = ClusterKeys(options.cluster, options.entropy_bits)
    known = list_known(store, options)
    asked = asked_names(options, known)
    if not asked and options.subscription.pattern is not None:
        raise QueryError(
            f"subscribePattern={options.subscription.pattern.pattern}: it matches the whole name of no topic of "
            f"{where(options)}, which holds {_some(known)}"
        )

    topics = read_topics(store, keys, {name: known.get(name, NO_DIRECTORIES) for name in asked}, options.incarnation)
    found = []
    for name in asked:
        if name in topics:
            found.append(_only(topics[name], asked[name]))
        elif options.subscription.pattern is None:
            raise unknown_topic(name, options, known)
    return tuple(found)


def list_known(store: ObjectStore, options: QueryOptions) -> dict[str, TopicDirectories]:
    """Every topic of the cluster; never empty.

    Raises:
        QueryError: the store does not hold the cluster under this width.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    store.check()
    known = list_topics(store, ClusterKeys(options.cluster, options.entropy_bits))
    if not known:
        raise QueryError(_nothing_under(store, options))
    return known


def asked_names(options: QueryOptions, known: Iterable[str]) -> Mapping[str, Iterable[int] | None]:
    """The topics that a query asks for, with the partitions where it names some."""
    subscription = options.subscription
    if subscription.assigned is not None:
        return subscription.assigned
    if subscription.pattern is not None:
        return {name: None for name in sorted(known) if subscription.pattern.fullmatch(name)}
    return dict.fromkeys(subscription.topics)


def unknown_topic(name: str, options: QueryOptions, known: Iterable[str]) -> QueryError:
    """What a query is told that asks for a topic which never was."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it holds {_some(known)}"
    return QueryError(f"topic {name}: {where(options)} does not know it; {hint}")


def missing_partitions(topic: str, missing: Iterable[int], held: Iterable[int]) -> QueryError:
    """What a query is told that assigns partitions which the topic does not have."""
    return QueryError(f"assign: the store holds no partition {_list(missing)} of topic {topic}, only {_list(held)}")


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
    lying = [
        keys.partition(TopicPartition(name, number), directory_of(incarnations, incarnation))
        for name, (incarnations, _) in known.items()
        for number in sorted(listed[name].partitions)
    ]
    held: dict[str, list[PartitionCatalog]] = {name: [] for name in known}
    for catalog in in_threads(lambda partition: read_catalog(store, partition), lying, telling="list"):
        if _holds_anything(catalog):
            held[catalog.keys.partition.topic].append(catalog)
    return {name: Topic(name, tuple(held[name])) for name, (_, etag) in known.items() if held[name] or etag is not None}


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


def _only(topic: Topic, numbers: Iterable[int] | None) -> Topic:
    """The assigned ones of a topic's partitions; of a topic without data there are none to compare with."""
    if numbers is None or not topic.partitions:
        return topic
    by_number = {catalog.keys.partition.partition: catalog for catalog in topic.partitions}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise missing_partitions(topic.name, missing, by_number)
    return Topic(topic.name, tuple(by_number[number] for number in numbers))


def _holds_anything(catalog: PartitionCatalog) -> bool:
    """Whether it is more than a name: an older incarnation's partition, or a directory of something else."""
    return bool(catalog.commit or catalog.segments or catalog.gaps or catalog.log_start is not None)


def _nothing_under(store: ObjectStore, options: QueryOptions) -> str:
    widths = entropy_widths(store, options.cluster)
    if not widths:
        return f"{options.location} holds nothing of a cluster {options.cluster}; check the location and the cluster"
    ways = " or ".join(f"prefixEntropyBits={width}" if width else "no prefixEntropyBits" for width in sorted(widths))
    given = f"prefixEntropyBits={options.entropy_bits}" if options.entropy_bits else "no prefixEntropyBits"
    return f"{options.location} holds nothing of cluster {options.cluster} with {given}; it does with {ways}: set that"


def where(options: QueryOptions) -> str:
    """What a query reads, for messages."""
    return f"cluster {options.cluster} in {options.location}"


def _some(names: Iterable[str], limit: int = 10) -> str:
    names = sorted(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
