"""What a change would do, worked out by hand; and that the present values change nothing."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsctl.cost.made_usage import GB, PRICES, part, usage
from tsctl.cost.changes import Change, what_if
from tsctl.cost.month import Item, Line, bill, total
from tsctl.cost.requests import Requests, estimate
from tsctl.cost.usage import Kind, Part

NO_REQUESTS = Requests({}, "none")


def found(lines: tuple[Line, ...]) -> dict[tuple[str, str], Any]:
    """Return quantity and amount of lines by item and class."""
    return {
        (line.item.value, line.storage_class): (pytest.approx(line.quantity), pytest.approx(line.amount))
        for line in lines
    }


@given(st.lists(st.builds(part, st.sampled_from("ab"), kind=st.sampled_from(list(Kind)), days=st.integers(0, 300))))
def test_the_present_values_change_nothing(parts: list[Part]) -> None:
    """The class, the mean size and the entropy bits of today, and a retention above every age: the same bill."""
    held = usage(*parts, brokers=3, bits=5)
    asked = estimate(held)
    outcome = what_if(held, asked, PRICES, Change(GB // 10, "HOT", 365, 5))
    today = bill(held, asked, PRICES)
    plain = {(line.item.value, line.storage_class, line.topic): line.amount for line in outcome.lines}
    assert plain == {(line.item.value, line.storage_class, line.topic): pytest.approx(line.amount) for line in today}
    assert outcome.once == ()
    assert what_if(held, asked, PRICES, Change()).lines == today


def test_retention_removes_what_is_old_enough() -> None:
    """Segments of 90 days and older; younger ones, marks and what no agent wrote stay."""
    held = usage(
        part("a", days=89, size=GB),
        part("a", days=90, size=2 * GB),
        part("a", kind=Kind.INDEX, days=300, size=4 * GB),
        part("a", kind=Kind.MARK, days=300, size=8 * GB),
        part("a", kind=Kind.OTHER, days=300, size=16 * GB),
    )
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(retention_days=90))
    assert found(outcome.lines) == {("storage", "HOT"): (25, 0.5)}
    assert outcome.once == ()  # HOT has no minimum duration


def test_a_retention_below_the_minimum_duration_is_billed_to_its_end() -> None:
    """Once: 2 GB of 60 days for 30 more at 0.004. Each month: 3 GB for 60 days of 90."""
    held = usage(part("a", "COOL", days=10, size=3 * GB), part("a", "COOL", days=60, size=2 * GB))
    held = replace(held, edges=tuple(sorted({*held.edges, 30.0})))
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(retention_days=30))
    assert found(outcome.once) == {("early removal", "COOL"): (2, 0.008)}
    assert found(outcome.lines) == {("storage", "COOL"): (3, 0.012), ("early removal", "COOL"): (6, 0.024)}


def test_an_early_removal_each_month_is_by_the_age_of_segments() -> None:
    """3 GB arrived in 10 days, so 9 GB a month, for 60 days of 90; an old mark changes nothing."""
    held = replace(usage(part("a", "COOL", days=10, size=3 * GB), days=400), segment_days=10.0)
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(retention_days=30))
    assert found(outcome.lines)["early removal", "COOL"] == (18, 0.072)
    assert outcome.notes == ("retention: the oldest segment is 10 days old, so nothing would be removed yet",)


def test_a_cheaper_class_costs_a_transition_once() -> None:
    """12 objects at 0.02 for 1,000; then 2 GB at 0.004. The class of 3 GB of marks stays."""
    held = usage(part("a", objects=12, size=2 * GB), part("a", kind=Kind.MARK, size=3 * GB))
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(storage_class="COOL"))
    assert found(outcome.once) == {("transition", "COOL"): (12, 0.00024)}
    assert found(outcome.lines) == {("storage", "COOL"): (2, 0.008), ("storage", "HOT"): (3, 0.06)}
    assert "each GB read costs 0.03 EUR" in outcome.notes[0]


def test_a_class_that_needs_a_restore_is_filled_by_a_lifecycle_rule() -> None:
    """Agents write no object into an archive class: the configuration rejects it."""
    (note,) = what_if(usage(part("a")), NO_REQUESTS, PRICES, Change(storage_class="FROZEN")).notes
    assert note.startswith("class: all objects of segments are in FROZEN, where a lifecycle rule moves them")
    (note,) = what_if(usage(part("a")), NO_REQUESTS, PRICES, Change(storage_class="COOL")).notes
    assert note.startswith("class: all objects of segments are in COOL, and agents write them there")


def test_a_dearer_class_costs_a_restore_and_a_copy() -> None:
    """1,000 objects of 5 GB, 100 days old: copied at 0.005, restored at 0.02 and 0.1, 80 days of 0.001 paid."""
    held = usage(part("a", "FROZEN", days=100, objects=1000, size=5 * GB))
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(storage_class="HOT"))
    assert found(outcome.once) == {
        ("copy to another place", "HOT"): (1000, 0.005),
        ("retrieval", "FROZEN"): (5, 0.2),
        ("early removal", "FROZEN"): (5 * 80 / 30, 5 * 80 / 30 * 0.001),
    }
    assert found(outcome.lines) == {("storage", "HOT"): (5, 0.1)}


def test_larger_segments_are_fewer_objects_and_requests() -> None:
    """A quarter of 1,000 segments a month: 4,500 PUTs become 1,125; ends stay."""
    held = usage(
        part("a", "FROZEN", objects=1000, size=GB),
        part("a", "FROZEN", Kind.INDEX, objects=2000, size=GB / 100),
        brokers=1,
    )
    outcome = what_if(held, estimate(held), PRICES, Change(segment_bytes=4_000_000))
    quantities: dict[tuple[str, str], float] = defaultdict(float)
    for line in outcome.lines:
        quantities[line.item, line.storage_class] += line.quantity
    assert quantities[Item.OVERHEAD, "FROZEN"] == pytest.approx(750 * 32768 / GB)
    assert quantities[Item.PUT, "FROZEN"] + quantities[Item.PUT, "HOT"] == pytest.approx(1125 + 8640)
    assert quantities[Item.HEAD, "FROZEN"] == pytest.approx(500)
    assert quantities[Item.LIST, "HOT"] == pytest.approx(125)
    assert quantities[Item.STORAGE, "FROZEN"] == pytest.approx(1.01)


def test_empty_segments_are_no_objects_of_another_size() -> None:
    """Another program can leave `.log` objects of 0 bytes; the PUTs of the estimate have the default class then."""
    held = usage(part("a", "COOL", objects=2, size=0), part("a", "COOL", Kind.INDEX, objects=2, size=0))
    outcome = what_if(held, Requests({"put": 1000.0}, "made"), PRICES, Change(segment_bytes=1 << 30))
    assert found(outcome.lines) == {("put", "HOT"): (1000, 0.005)}


def test_other_entropy_bits_cost_a_copy_of_everything() -> None:
    """4,000 objects at 0.005, and 1,000 at 0.02 with 2 GB read at 0.03; no month changes without plans."""
    held = usage(part("a", objects=4000), part("a", "COOL", objects=1000, size=2 * GB), bits=0)
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(entropy_bits=5))
    assert found(outcome.once) == {
        ("copy to another place", "HOT"): (4000, 0.02),
        ("copy to another place", "COOL"): (1000, 0.02),
        ("retrieval", "COOL"): (2, 0.06),
    }
    assert outcome.lines == bill(held, NO_REQUESTS, PRICES)
    assert "32 prefixes for 112,000 writes per second" in outcome.notes[0]
    assert "which needs 0 bits" in outcome.notes[0]
    busy = Requests({"put": 10_000 * 30 * 86_400.0}, "made")  # log2(10,000 / 3,500) rounded up, and two
    assert "which needs 4 bits" in what_if(held, busy, PRICES, Change(entropy_bits=5)).notes[0]


def test_changes_together_are_those_one_by_one() -> None:
    """Retention first: what it removes is not moved."""
    held = usage(part("a", objects=10), part("a", days=300, objects=1000))
    outcome = what_if(held, NO_REQUESTS, PRICES, Change(storage_class="COOL", retention_days=90))
    assert found(outcome.once) == {("transition", "COOL"): (10, 0.0002)}
    assert total(outcome.lines) == pytest.approx(0.004)
