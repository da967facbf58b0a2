"""The topics and partitions of a query."""

import re

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.errors import QueryError
from ts_reader.query.query import Query, Subscription
from ts_reader.query.subscription import find_topics, wanted_names


@pytest.fixture
def orders(archive: MadeArchive) -> MadeArchive:
    """Return an archive with the topics `orders` (partitions 0 and 2), `orders-old` and the empty topic `new`."""
    for topic, partition in (("orders", 0), ("orders", 2), ("orders-old", 0)):
        archive.put_segment(topic, 0, batches((0, 5)), partition=partition)
        archive.commit(topic, 5, partition=partition)
    archive.put_incarnations("new", "AAAAAAAAAAAAAAAAAAAAAQ")
    return archive


def found(archive: MadeArchive, subscription: Subscription) -> list[tuple[str, list[int]]]:
    query = Query(archive.location, CLUSTER, 0, subscription)
    return [
        (topic.name, [catalog.keys.partition.partition for catalog in topic.partitions])
        for topic in find_topics(archive.store, query)
    ]


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(("orders-old", "orders")), [("orders-old", [0]), ("orders", [0, 2])]),
        (Subscription(pattern=re.compile("rder")), [("orders", [0, 2]), ("orders-old", [0])]),
        (Subscription(pattern=re.compile("^rder")), []),
        (Subscription(assigned={"orders": (2,), "new": (0, 9)}), [("orders", [2]), ("new", [])]),
    ],
)
def test_topics_are_named_matched_or_assigned(
    orders: MadeArchive, subscription: Subscription, expected: list[tuple[str, list[int]]]
) -> None:
    """A pattern may match any part of a name; the partitions of an empty topic cannot be checked."""
    assert found(orders, subscription) == expected


def test_an_unknown_topic_or_partition_is_an_error_with_a_hint(orders: MadeArchive) -> None:
    """The nearest name if one is near, else all of them; the partitions of the topic."""
    with pytest.raises(QueryError, match=r"topic order: cluster prod in .*; did you mean orders\?"):
        found(orders, Subscription(("order",)))
    with pytest.raises(QueryError, match="it contains new, orders, orders-old"):
        found(orders, Subscription(("x",)))
    with pytest.raises(QueryError, match="partitions: the store has no partition 1, 3 of topic orders, only 0, 2"):
        found(orders, Subscription(assigned={"orders": (0, 3, 1)}))


def test_a_cluster_that_the_store_lacks_is_an_error(orders: MadeArchive) -> None:
    """The message names the entropy width that has it."""
    query = Query(orders.location, CLUSTER, 4, Subscription(("orders",)))
    with pytest.raises(QueryError, match="prefix_entropy_bits=4; found with no prefix_entropy_bits"):
        find_topics(orders.store, query)


def test_names_need_no_store() -> None:
    """Names are in the query's order, matches of a pattern are sorted."""
    query = Query("file:///x", CLUSTER, 0, Subscription(("b", "a")))
    assert list(wanted_names(query, ["a", "b", "c"])) == ["b", "a"]
    matched = Query("file:///x", CLUSTER, 0, Subscription(pattern=re.compile("[ac]")))
    assert wanted_names(matched, ["c", "b", "a"]) == {"a": None, "c": None}
