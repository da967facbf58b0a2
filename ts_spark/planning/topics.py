"""From a subscription to partitions: which of a cluster's topics are asked for.

A query for a topic that never was is refused.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ts_common.archive.directories import NO_DIRECTORIES, TopicDirectories, list_topics
from ts_common.errors import QueryError
from ts_common.reading.topics import Topic, nothing_under, read_topics, some
from ts_common.store.contract import ObjectStore
from ts_spark.options.query import QueryOptions


def find_topics(store: ObjectStore, options: QueryOptions) -> tuple[Topic, ...]:
    """The topics that a query asks for, with a snapshot of each of their partitions; none where a pattern has no match.

    Raises:
        QueryError: the store does not hold the cluster under this width, or not the topic or partition.
        CorruptData: a commit, `log.start` or list of incarnations that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    keys = options.keys
    known = list_known(store, options)
    asked = asked_names(options, known)
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
    keys = options.keys
    known = list_topics(store, keys)
    if not known:
        raise QueryError(nothing_under(store, keys, "prefixEntropyBits="))
    return known


def asked_names(options: QueryOptions, known: Iterable[str]) -> Mapping[str, Iterable[int] | None]:
    """The topics that a query asks for, with the partitions where it names some.

    A pattern may match any part of a name (`java.util.regex.Matcher.find` in Spark's `SubscribePatternStrategy`).
    """
    subscription = options.subscription
    if subscription.assigned is not None:
        return subscription.assigned
    if subscription.pattern is not None:
        return {name: None for name in sorted(known) if subscription.pattern.search(name)}
    return dict.fromkeys(subscription.topics)


def unknown_topic(name: str, options: QueryOptions, known: Iterable[str]) -> QueryError:
    """What a query is told that asks for a topic which never was."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it holds {some(known)}"
    return QueryError(f"topic {name}: {where(options)} does not know it; {hint}")


def missing_partitions(topic: str, missing: Iterable[int], held: Iterable[int]) -> QueryError:
    """What a query is told that assigns partitions which the topic does not have."""
    return QueryError(f"assign: the store holds no partition {_list(missing)} of topic {topic}, only {_list(held)}")


def _only(topic: Topic, numbers: Iterable[int] | None) -> Topic:
    """The assigned ones of a topic's partitions; of a topic without data there are none to compare with."""
    if numbers is None or not topic.partitions:
        return topic
    by_number = {catalog.keys.partition.partition: catalog for catalog in topic.partitions}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise missing_partitions(topic.name, missing, by_number)
    return replace(topic, partitions=tuple(by_number[number] for number in numbers))


def where(options: QueryOptions) -> str:
    """What a query reads, for messages."""
    return f"cluster {options.cluster} in {options.location}"


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
