"""Bills that were worked out by hand, one for each formula of docs/cost.md; and what a change would do."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.commands import CHECKOUT
from tests.tsctl.cost.made_parts import GB, PRICES, part
from ts_common.archive.object_keys import INDEX_SUFFIXES
from ts_common.errors import ConfigurationError
from tsctl.cost.bill import NO_CHANGE, PER_LOG, Change, Item, Line, bill, once, total
from tsctl.cost.bill_tables import section
from tsctl.cost.object_counts import OWN, ObjectKind, Part

_PARTS = st.builds(
    part,
    st.sampled_from(["a", "b", OWN]),
    st.sampled_from(["COOL", "FROZEN", "WATCHED"]),  # without tiers, which are of the whole
    st.sampled_from(list(ObjectKind)),
    days=st.integers(0, 400),
    objects=st.integers(1, 1000),
    size=st.integers(0, 10**12),
)
OLD = 40  # days: agents sent no request for these objects in the last month


def found(lines: tuple[Line, ...]) -> dict[tuple[str, str], Any]:
    """Return quantity and amount of lines of one topic by item and class."""
    return {
        (line.item.value, line.storage_class): (pytest.approx(line.quantity), pytest.approx(line.amount))
        for line in lines
    }


def test_storage_has_the_tiers_of_its_class() -> None:
    """100 GB at 0.02 and 20 at 0.01 are 2.20, shared by the bytes of two topics."""
    lines = bill([part("a", days=OLD, size=90 * GB), part("b", days=OLD, size=30 * GB)], PRICES)
    assert {line.topic: line.amount for line in lines} == {"a": pytest.approx(1.65), "b": pytest.approx(0.55)}


def test_a_class_with_a_least_size_bills_small_objects_with_it() -> None:
    """1,000 objects of 31,072 bytes are billed with 100,000 bytes more each: 0.1 GB at 0.004."""
    lines = bill([part("a", "COOL", days=OLD, objects=1000, size=31_072_000)], PRICES)
    assert found(lines) == {
        ("storage", "COOL"): (0.031072, 0.031072 * 0.004),
        ("minimum size", "COOL"): (0.1, 0.1 * 0.004),
    }


def test_an_archive_class_bills_bytes_for_each_object() -> None:
    """1,000,000 objects: 32.768 GB at 0.001 in the class, and 8.192 GB at 0.02 in the default one."""
    lines = bill([part("a", "FROZEN", days=OLD, objects=10**6, size=GB)], PRICES)
    assert found(lines) == {
        ("storage", "FROZEN"): (1, 0.001),
        ("overhead", "FROZEN"): (32.768, 0.032768),
        ("overhead", "HOT"): (8.192, 0.16384),
    }


def test_a_class_that_is_watched_bills_large_objects_only() -> None:
    """2,000 large objects at 0.0025 for 1,000; 500 small ones cost nothing."""
    small = part("a", "WATCHED", ObjectKind.INDEX, days=OLD, objects=500, size=1000)
    lines = bill([part("a", "WATCHED", days=OLD, objects=2000), small], PRICES)
    assert found(lines)["monitoring", "WATCHED"] == (2000, 0.005)


def test_requests_have_the_class_of_their_objects() -> None:
    """Three objects for each new segment: of 4,500 PUTs 3,000 write them, 1,500 write marks in the default class."""
    new = [part("a", "COOL", objects=1000), part("a", "COOL", ObjectKind.INDEX, objects=2000)]
    lines = bill([*new, part("a", "COOL", days=OLD), part(OWN, kind=ObjectKind.OTHER)], PRICES)
    assert found(tuple(line for line in lines if line.unit == "requests")) == {
        ("put", "COOL"): (3000, 0.06),
        ("put", "HOT"): (1500, 0.0075),
        ("get", "HOT"): (500, 0.0002),
        ("head", "COOL"): (1000, 0.01),
    }


def test_the_estimate_has_the_requests_of_the_page() -> None:
    """A segment of three objects sends what the table of docs/sizing.md has, which a test counts at a real server."""
    text = (CHECKOUT / "docs/sizing.md").read_text().partition("## Requests of a segment")[2].partition("\n## ")[0]
    page: dict[str, float] = {}
    for method, times in re.findall(r"^\| (PUT|GET|HEAD|LIST) \|.*\| ([\d.]+) \|$", text, re.MULTILINE):
        page[method.lower()] = page.get(method.lower(), 0.0) + float(times)
    objects = len(INDEX_SUFFIXES)  # the `.log`, and no transactions
    assert page == {item.value: times + objects * (item is Item.PUT) for item, times in PER_LOG.items()}


def test_a_class_that_the_file_lacks_is_an_error_with_its_name() -> None:
    """A bill without it would be too low."""
    with pytest.raises(ConfigurationError, match="classes has no FROZE; did you mean FROZEN"):
        bill([part("a", "FROZE")], PRICES)


@given(st.lists(_PARTS, max_size=8))
def test_the_topics_share_the_whole_bill(parts: list[Part]) -> None:
    """What topics cost alone is what they cost together, and each has a row."""
    lines = bill(parts, PRICES)
    alone = [bill([each for each in parts if each.topic == topic], PRICES) for topic in ("a", "b", OWN)]
    # The default class has tiers, and gets at most 8 x 1,000 x 8 KiB here: the first one.
    assert sum(map(total, alone)) == pytest.approx(total(lines))
    items, topics = section(parts, PRICES).tables
    assert len(topics[1]) == len({each.topic for each in parts})
    assert items[1][-1][0] == "total"


def test_one_read_of_a_class_has_the_price_of_its_restores() -> None:
    """3 GB and 2,000 objects: by each speed, or by the GB; a class that is read for nothing has no such line."""
    parts = [part("a", name, objects=2000, size=3 * GB) for name in ("COOL", "FROZEN", "HOT")]
    assert section(parts, PRICES).notes[2:] == [
        "one read of all 3.0 GB in COOL: retrieval 0.0900",
        "one read of all 3.0 GB in FROZEN: Standard 0.2600, Bulk 0.0575",
    ]
    assert "one read of all 9.0 GB in COOL: retrieval 0.2700" in section(parts, PRICES, Change(None, "COOL")).notes


@given(
    st.lists(st.builds(part, st.sampled_from("ab"), kind=st.sampled_from(list(ObjectKind)), days=st.integers(0, 300)))
)
def test_the_present_values_change_nothing(parts: list[Part]) -> None:
    """The class and the mean size of today, and a retention above every age: the same bill."""
    change = Change(GB // 10, "HOT", 365)
    today = {(line.item, line.storage_class, line.topic): pytest.approx(line.amount) for line in bill(parts, PRICES)}
    after = {(line.item, line.storage_class, line.topic): line.amount for line in bill(parts, PRICES, change)}
    assert after == today
    assert once(parts, PRICES, change) == ()


def test_retention_removes_what_is_old_enough() -> None:
    """Segments of 90 days and older; younger ones and other objects stay. The requests of a month stay too."""
    parts = [
        part("a", days=89, size=GB),
        part("a", days=90, size=2 * GB),
        part("a", kind=ObjectKind.INDEX, days=300, size=4 * GB),
        part("a", kind=ObjectKind.OTHER, days=300, size=8 * GB),
    ]
    assert found(bill(parts, PRICES, Change(retention_days=90))) == {("storage", "HOT"): (9, 0.18)}
    assert found(once(parts, PRICES, Change(retention_days=90))) == {("delete", "HOT"): (20, 0.00002)}
    new = bill([part("a")], PRICES, Change(retention_days=5))
    assert "put" in {line.item for line in new}


def test_a_retention_below_the_minimum_duration_is_billed_to_its_end() -> None:
    """Once: 2 GB of 60 days for 30 more at 0.004. Each month: 3 new GB for 60 days of 90."""
    parts = [part("a", "COOL", days=10, size=3 * GB), part("a", "COOL", days=60, size=2 * GB)]
    change = Change(retention_days=30)
    assert found(once(parts, PRICES, change))["early removal", "COOL"] == (2, 0.008)
    after = found(bill(parts, PRICES, change))
    assert (after["storage", "COOL"], after["early removal", "COOL"]) == ((3, 0.012), (6, 0.024))


def test_a_cheaper_class_costs_a_transition_once() -> None:
    """12 objects at 0.02 for 1,000; then 2 GB at 0.004. The class of 3 GB of marks stays."""
    parts = [part("a", days=OLD, objects=12, size=2 * GB), part("a", kind=ObjectKind.OTHER, size=3 * GB)]
    change = Change(storage_class="COOL")
    assert found(once(parts, PRICES, change)) == {("transition", "COOL"): (12, 0.00024)}
    assert found(bill(parts, PRICES, change)) == {("storage", "COOL"): (2, 0.008), ("storage", "HOT"): (3, 0.06)}


def test_a_dearer_class_costs_a_copy() -> None:
    """1,000 objects of 5 GB, 100 days old: copied at 0.005, 80 days of 0.001 paid."""
    parts = [part("a", "FROZEN", days=100, objects=1000, size=5 * GB)]
    change = Change(storage_class="HOT")
    early = (5 * 80 / 30, 5 * 80 / 30 * 0.001)
    assert found(once(parts, PRICES, change)) == {("copy", "HOT"): (1000, 0.005), ("early removal", "FROZEN"): early}
    assert found(bill(parts, PRICES, change)) == {("storage", "HOT"): (5, 0.1)}


def test_larger_segments_are_fewer_objects_and_requests() -> None:
    """A quarter of 1,000 segments a month: 4,500 PUTs become 1,125; the indexes keep their bytes."""
    parts = [
        part("a", "FROZEN", objects=1000, size=GB),
        part("a", "FROZEN", ObjectKind.INDEX, objects=2000, size=GB / 100),
    ]
    after = found(bill(parts, PRICES, Change(segment_bytes=4_000_000)))
    quantities = {key: quantity for key, (quantity, _) in after.items()}
    assert quantities == {
        ("storage", "FROZEN"): 1.01,
        ("overhead", "FROZEN"): 750 * 32_768 / GB,
        ("overhead", "HOT"): 750 * 8192 / GB,
        ("put", "FROZEN"): 750,
        ("put", "HOT"): 375,
        ("head", "FROZEN"): 250,
        ("get", "HOT"): 125,
    }


def test_empty_segments_are_no_objects_of_another_size() -> None:
    """Another program can leave `.log` objects of 0 bytes."""
    parts = [part("a", objects=2, size=0), part("a", kind=ObjectKind.INDEX, objects=2, size=0)]
    assert bill(parts, PRICES, Change(segment_bytes=1 << 30)) == ()


def test_changes_together_are_those_one_by_one() -> None:
    """Retention first: what it removes is not moved."""
    parts = [part("a", days=OLD, objects=10), part("a", days=300, objects=1000)]
    change = Change(storage_class="COOL", retention_days=180)
    assert found(once(parts, PRICES, change)) == {
        ("transition", "COOL"): (10, 0.0002),
        ("delete", "HOT"): (1000, 0.001),
    }
    assert total(bill(parts, PRICES, change)) == pytest.approx(0.004)


def test_packs_of_the_live_tail_have_their_requests_by_the_month() -> None:
    """A merge of 64 puts one object, and deletes all; a retention has no influence."""
    packs = Part(OWN, "HOT", ObjectKind.PACK, 0.0, 10, GB, GB, monthly=64_000)
    for change in (NO_CHANGE, Change(retention_days=1)):
        found: dict[Item, Any] = {line.item: (line.quantity, line.amount) for line in bill([packs], PRICES, change)}
        assert found == {
            Item.STORAGE: (1, pytest.approx(0.02)),
            Item.PUT: (65_000, pytest.approx(0.325)),
            Item.DELETE: (65_000, pytest.approx(0.065)),
        }
