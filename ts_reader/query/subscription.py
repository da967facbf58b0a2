"""The topics and partitions of a query. A query for a topic that never existed is rejected."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from ts_common.archive.directories import NO_DIRECTORIES, TopicDirectories, list_topics
from ts_common.errors import QueryError
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from ts_reader.query.query import Query, lowest_read
from ts_reader.reading.topics import Expected, Topic, nothing_expected, nothing_under, read_topics


def find_topics(
    store: ObjectStore, query: Query, *, seals: bool = False, expected: Expected = nothing_expected
) -> tuple[Topic, ...]:
    """Return the query's topics with a snapshot of each of their partitions; empty if a pattern matches no topic.

    Args:
        seals: whether sealed objects can replace a part of the listings.
        expected: as of `read_topics`.

    Raises:
        QueryError: the store does not hold the cluster with these entropy bits, or not the topic or partition.
        CorruptData: a list of incarnations cannot be parsed.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    keys = query.keys
    known = list_known(store, query)
    wanted = wanted_names(query, known)
    listed = {name: known.get(name, NO_DIRECTORIES) for name in wanted}
    lowest = partial(lowest_read, query)
    topics = read_topics(store, keys, listed, query.incarnation, seals=seals, lowest=lowest, expected=expected)
    found = []
    for name in wanted:
        if name in topics:
            found.append(_only(topics[name], wanted[name], query))
        elif query.subscription.pattern is None:
            raise unknown_topic(name, query, known)
    return tuple(found)


def list_known(store: ObjectStore, query: Query) -> dict[str, TopicDirectories]:
    """Return every topic of the cluster; never empty.

    Raises:
        QueryError: the store does not hold the cluster with these entropy bits.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    keys = query.keys
    known = list_topics(store, keys)
    if not known:
        store.check()
        raise QueryError(nothing_under([store], keys, query.wording.sign("prefix_entropy_bits")))
    return known


def wanted_names(query: Query, known: Iterable[str]) -> Mapping[str, Iterable[int] | None]:
    """Return the names of the query's topics, with partitions if the query assigns some.

    A pattern may match any part of a name (`java.util.regex.Matcher.find` in Spark's `SubscribePatternStrategy`).
    """
    subscription = query.subscription
    if subscription.assigned is not None:
        return subscription.assigned
    if subscription.pattern is not None:
        return {name: None for name in sorted(known) if subscription.pattern.search(name)}
    return dict.fromkeys(subscription.topics)


def unknown_topic(name: str, query: Query, known: Iterable[str]) -> QueryError:
    """Return the error of a query for a topic that never existed."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it contains {some(sorted(known))}"
    return QueryError(f"topic {name}: {where(query)} has no such topic; {hint}")


def missing_partitions(topic: str, missing: Iterable[int], held: Iterable[int], query: Query) -> QueryError:
    """Return the error of a query that assigns partitions which the topic does not have."""
    named = query.wording.name("partitions")
    return QueryError(f"{named}: the store has no partition {_list(missing)} of topic {topic}, only {_list(held)}")


def _only(topic: Topic, numbers: Iterable[int] | None, query: Query) -> Topic:
    """Return a topic with its assigned partitions only; a topic without data has none to compare with."""
    if numbers is None or not topic.partitions:
        return topic
    by_number = {catalog.keys.partition.partition: catalog for catalog in topic.partitions}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise missing_partitions(topic.name, missing, by_number, query)
    return replace(topic, partitions=tuple(by_number[number] for number in numbers))


def where(query: Query) -> str:
    """Return the cluster and location of a query, for messages."""
    return f"cluster {query.cluster} in {query.location}"


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
