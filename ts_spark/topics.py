"""From a subscription to partitions: which of a cluster's topics are asked for, and where their objects lie.

Readers take the newest incarnation of a topic, all its partitions of the same one. A topic without any data is known by
the list of its incarnations; one that has neither never was, and a query for it is refused. Where nothing at all lies
under the entropy width, the mistake is most likely the width, so the widths that hold the cluster are looked up.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ts_common.catalog import PartitionCatalog, entropy_widths, list_topics, read_catalog, read_incarnations
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_common.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_spark.options import QueryOptions
from ts_spark.parallel import in_threads


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic that is asked for, in its newest incarnation.

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
    store.check()
    keys = ClusterKeys(options.cluster, options.entropy_bits)
    known = list_topics(store, keys)
    if not known:
        raise QueryError(_nothing_under(store, options))
    subscription = options.subscription
    if subscription.assigned is not None:
        asked: Mapping[str, Iterable[int] | None] = subscription.assigned
    elif subscription.pattern is not None:
        asked = {name: None for name in sorted(known) if subscription.pattern.fullmatch(name)}
        if not asked:
            raise QueryError(
                f"subscribePattern={subscription.pattern.pattern}: it matches the whole name of no topic of "
                f"{_where(options)}, which holds {_some(known)}"
            )
    else:
        asked = dict.fromkeys(subscription.topics)

    names = list(asked)
    incarnations = dict(zip(names, in_threads(lambda name: read_incarnations(store, keys, name), names), strict=True))
    partitions = [
        keys.partition(TopicPartition(name, number), incarnations[name][0].newest_directory)
        for name in names
        for number in sorted(known.get(name, ()))
    ]
    held: dict[str, list[PartitionCatalog]] = {name: [] for name in names}
    for catalog in in_threads(lambda partition: read_catalog(store, partition), partitions, telling="list"):
        if _holds_anything(catalog):
            held[catalog.keys.partition.topic].append(catalog)
    found = []
    for name in names:
        if held[name] or incarnations[name][1] is not None:
            found.append(_only(Topic(name, tuple(held[name])), asked[name]))
        elif subscription.pattern is None:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it holds {_some(known)}"
            raise QueryError(f"topic {name}: {_where(options)} does not know it; {hint}")
    return tuple(found)


def _only(topic: Topic, numbers: Iterable[int] | None) -> Topic:
    """The assigned ones of a topic's partitions; of a topic without data there are none to compare with."""
    if numbers is None or not topic.partitions:
        return topic
    by_number = {catalog.keys.partition.partition: catalog for catalog in topic.partitions}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise QueryError(
            f"assign: the store holds no partition {_list(missing)} of topic {topic.name}, only {_list(by_number)}"
        )
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


def _where(options: QueryOptions) -> str:
    return f"cluster {options.cluster} in {options.location}"


def _some(names: Iterable[str], limit: int = 10) -> str:
    names = sorted(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
