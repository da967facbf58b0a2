"""Bills that were worked out by hand, one for each formula of docs/cost.md."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsctl.cost.made_usage import GB, PRICES, part, usage
from ts_common.errors import ConfigurationError
from tsctl.cost.month import Item, Line, Reads, bill, total
from tsctl.cost.requests import Requests
from tsctl.cost.tables import bill_rows, topic_rows
from tsctl.cost.usage import OWN, Kind, Part

NO_REQUESTS = Requests({}, "none")
_PARTS = st.builds(
    part,
    st.sampled_from(["a", "b", OWN]),
    st.sampled_from(["COOL", "FROZEN", "WATCHED"]),  # without tiers, which are of the whole
    st.sampled_from(list(Kind)),
    days=st.integers(0, 400),
    objects=st.integers(1, 1000),
    size=st.integers(0, 10**12),
)


def amounts(*lines: Line) -> dict[tuple[str, str], Any]:
    """Return the amounts of lines by item and class."""
    return {(line.item.value, line.storage_class): pytest.approx(line.amount) for line in lines}


def test_storage_has_the_tiers_of_its_class() -> None:
    """100 GB at 0.02 and 20 at 0.01 are 2.20, shared by the bytes of two topics."""
    lines = bill(usage(part("a", size=90 * GB), part("b", size=30 * GB)), NO_REQUESTS, PRICES)
    assert {line.topic: line.amount for line in lines} == {"a": pytest.approx(1.65), "b": pytest.approx(0.55)}


def test_a_class_with_a_least_size_bills_small_objects_with_it() -> None:
    """1,000 objects of 31,072 bytes are billed with 100,000 bytes more each: 0.1 GB at 0.004."""
    lines = bill(usage(part("a", "COOL", objects=1000, size=31_072_000)), NO_REQUESTS, PRICES)
    assert amounts(*lines) == {("storage", "COOL"): 0.031072 * 0.004, ("minimum size", "COOL"): 0.1 * 0.004}


def test_an_archive_class_bills_bytes_for_each_object() -> None:
    """1,000,000 objects: 32.768 GB at 0.001 in the class, and 8.192 GB at 0.02 in the default one."""
    lines = bill(usage(part("a", "FROZEN", objects=10**6, size=GB)), NO_REQUESTS, PRICES)
    assert amounts(*lines) == {
        ("storage", "FROZEN"): 0.001,
        ("overhead", "FROZEN"): 0.032768,
        ("overhead", "HOT"): 0.16384,
    }


def test_a_class_that_is_watched_bills_large_objects_only() -> None:
    """2,000 large objects at 0.0025 for 1,000; 500 small ones cost nothing."""
    lines = bill(
        usage(part("a", "WATCHED", objects=2000), part("a", "WATCHED", Kind.INDEX, objects=500, size=1000)),
        NO_REQUESTS,
        PRICES,
    )
    assert amounts(*lines)["monitoring", "WATCHED"] == 0.005


def test_requests_have_the_class_of_their_objects() -> None:
    """Three objects for each segment: of 4,500 PUTs 3,000 write them, and 1,500 write marks in the default class."""
    held = usage(part("a", "COOL", objects=10), part("a", "COOL", Kind.INDEX, objects=20, size=2_800_000))
    monthly = {"put": 4500.0, "head": 2000.0, "get": 500.0, "list": 500.0, "delete": 1000.0, "copy": 100.0}
    lines = [line for line in bill(held, Requests(monthly, "made"), PRICES) if line.unit == "requests"]
    assert amounts(*lines) == {
        ("put", "COOL"): 0.06,
        ("put", "HOT"): 0.0075,
        ("copy", "HOT"): 0.0005,
        ("list", "HOT"): 0.0025,
        ("get", "HOT"): 0.0002,
        ("head", "COOL"): 0.02,
        ("delete", "HOT"): 0.001,
    }


def test_the_ends_of_brokers_are_the_clusters_own() -> None:
    """Two brokers put 17,280 a month in the default class; of fewer PUTs, all are theirs."""
    held = usage(part("a", "COOL"), brokers=2)
    lines = [line for line in bill(held, Requests({"put": 17_380}, ""), PRICES) if line.item == "put"]
    found = {(line.topic, line.storage_class): line.quantity for line in lines}
    assert found == {(OWN, "HOT"): 17_280, ("a", "COOL"): pytest.approx(40), ("a", "HOT"): pytest.approx(60)}
    (line,) = (line for line in bill(held, Requests({"put": 99.0}, ""), PRICES) if line.item == "put")
    assert (line.topic, line.quantity) == (OWN, 99)


def test_requests_belong_to_the_topics_that_get_segments() -> None:
    """Three new segments against one; an old one gets none. Without segments they are the cluster's own."""
    held = usage(part("a", objects=30), part("b", objects=10), part("c", objects=1000, days=200))
    found = {
        line.topic: line.quantity for line in bill(held, Requests({"get": 400.0}, ""), PRICES) if line.item == "get"
    }
    assert found == {"a": 300, "b": 100}
    (line,) = bill(usage(), Requests({"get": 400.0}, ""), PRICES)
    assert (line.topic, line.storage_class, line.quantity) == (OWN, "HOT", 400)


def test_reads_are_billed_by_the_bytes_of_each_class() -> None:
    """12 GB of 3 GB in COOL and 1 GB in FROZEN: 9 GB at 0.03; 3 GB at 0.02 and 30 objects at 0.1 for 1,000."""
    held = usage(part("a", "COOL", size=3 * GB), part("b", "FROZEN", size=GB))
    lines = bill(held, NO_REQUESTS, PRICES, Reads(gb=12))
    found = {(line.item, line.storage_class): line for line in lines}
    assert found[Item.RETRIEVAL, "COOL"].amount == pytest.approx(0.27)
    assert found[Item.RETRIEVAL, "FROZEN"].amount == pytest.approx(0.063)
    assert found[Item.GET, "COOL"].quantity == pytest.approx(9 * GB / (128 << 20))


@pytest.mark.parametrize(("bits", "partitions", "lists"), [(0, 4, 1), (5, 1000, 33), (20, 1000, 1001)])
def test_a_plan_lists_each_prefix_that_exists(bits: int, partitions: int, lists: int) -> None:
    """And the names of the prefixes; 1,000 plans at 0.005 for 1,000 listings."""
    (line,) = bill(usage(bits=bits, partitions=partitions), NO_REQUESTS, PRICES, Reads(plans=1000))
    assert line.quantity == 1000 * lists
    assert line.amount == pytest.approx(0.005 * lists)


def test_a_class_that_the_file_lacks_is_an_error_with_its_name() -> None:
    """A bill without it would be too low."""
    with pytest.raises(ConfigurationError, match="classes has no FROZE; did you mean FROZEN"):
        bill(usage(part("a", "FROZE")), NO_REQUESTS, PRICES)


@given(st.lists(_PARTS, max_size=8), st.integers(0, 10**9))
def test_the_topics_share_the_whole_bill(parts: list[Part], puts: int) -> None:
    """What topics cost alone is what they cost together; all requests are shared out; rows have the total."""
    requests = Requests({"put": puts, "head": puts}, "made")
    lines = bill(usage(*parts), requests, PRICES)
    alone = [
        bill(usage(*(each for each in parts if each.topic == topic)), NO_REQUESTS, PRICES) for topic in ("a", "b", OWN)
    ]
    stored = [line for line in lines if line.unit != "requests"]
    # The default class has tiers, and gets at most 8 x 1,000 x 8 KiB here: the first one.
    assert sum(map(total, alone)) == pytest.approx(total(stored))
    assert sum(line.quantity for line in lines if line.unit == "requests") == pytest.approx(2 * puts)
    assert sum(total(line for line in lines if line.topic == topic) for topic in ("a", "b", OWN)) == pytest.approx(
        total(lines)
    )
    assert len(topic_rows(usage(*parts), lines)) == len(
        {*(each.topic for each in parts), *(line.topic for line in lines)}
    )
    assert bill_rows(lines)[-1][0] == "total"
