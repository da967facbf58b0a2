"""What is due in a partition: nothing younger than the rule, nothing that is still needed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.model import TopicPartition
from tsctl.gc.due import Limit, Rule, due, record_time

KEYS = ClusterKeys("prod", 0).partition(TopicPartition("t", 0))
DAY = 86_400_000
NOW = 20_000 * DAY
EPOCHS = EpochHistory(((0, 0),))


def copy_of(
    base: int,
    end: int,
    days: float | None,
    *,
    shipped: float | None = None,
    stored: float | None = None,
    size: int = 100,
) -> SegmentCopy:
    """Return a segment whose greatest timestamp is so many days ago; it was shipped then, and written then."""
    time = None if days is None else NOW - int(days * DAY)
    of_shipping = time if shipped is None else NOW - int(shipped * DAY)
    written = of_shipping if stored is None else NOW - int(stored * DAY)
    metadata = SegmentMetadata(end, ((0, base),), end - base, time, time, 0, shipped=of_shipping)
    return SegmentCopy(KEYS, StoredSegment(SegmentName(base), size, frozenset(), "e", written), metadata)


def found(
    rule: Rule,
    *copies: SegmentCopy,
    needed_from: int | None = None,
    stable: int | None = None,
    start: int = 0,
    floor: int = 0,
) -> Any:
    """Return start and limit of a partition that ends with the last of these copies."""
    end = max(each.end for each in copies)
    view = PartitionView(KEYS, start, end, EPOCHS, copies, (), stable)
    commit = Commit(max(each.base for each in copies), end, 0, EPOCHS, stable, None, 1, 0, "n")
    result = due(view, commit, rule, NOW, needed_from, floor)
    return result.start, result.limit


TEN = [copy_of(at * 10, at * 10 + 10, 100 - at * 10) for at in range(10)]  # 100, 90, ... 10 days old


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(), (0, Limit.RULE)),
        (Rule(age=65 * DAY), (40, Limit.RULE)),
        (Rule(age=60 * DAY), (50, Limit.RULE)),
        (Rule(age=5 * DAY), (90, Limit.COMMIT)),
        (Rule(age=65 * DAY, least=75 * DAY), (30, Limit.LEAST_TIME)),
        (Rule(size=250), (70, Limit.RULE)),
        (Rule(size=300), (70, Limit.RULE)),
        (Rule(size=301), (60, Limit.RULE)),
        (Rule(size=0), (90, Limit.RULE)),
        (Rule(size=5000), (0, Limit.RULE)),
        (Rule(age=65 * DAY, size=250), (70, Limit.RULE)),
    ],
)
def test_age_and_size_make_segments_due(rule: Rule, expected: tuple[int, Limit]) -> None:
    """Either does; the last segment stays, and so does what the store has for less than the least time."""
    assert found(rule, *TEN) == expected


def test_an_open_transaction_and_needed_offsets_stay() -> None:
    """The view begins at or below the last stable offset, and at or below what a table has not read."""
    assert found(Rule(age=30 * DAY), *TEN, stable=44) == (44, Limit.TRANSACTION)
    assert found(Rule(age=30 * DAY), *TEN, needed_from=17) == (17, Limit.NEEDED)
    assert found(Rule(age=30 * DAY), *TEN, needed_from=17, start=20) == (20, Limit.NEEDED)


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        (copy_of(0, 10, -30_000, shipped=90), NOW - 90 * DAY),  # a record from the future
        (copy_of(0, 10, None, shipped=90), NOW - 90 * DAY),
        (replace(copy_of(0, 10, 1), metadata=replace(copy_of(0, 10, 1).metadata, time_max=-1)), NOW - DAY),
        (copy_of(0, 10, 5_000, shipped=90), NOW - 5_000 * DAY),  # a backfill of old records
        (copy_of(0, 10, 80, shipped=70, stored=1), NOW - 80 * DAY),  # a bucket that was copied yesterday
    ],
    ids=["future", "no time", "-1", "backfill", "copied"],
)
def test_g02_age_counts_from_the_lesser_of_timestamp_and_shipping(copy: SegmentCopy, expected: int) -> None:
    """A clock that is ahead holds nothing for ever; the time of a copy of the object has no effect."""
    assert record_time(copy) == expected


def test_g02_nothing_is_due_before_the_least_time() -> None:
    """Old records that arrived yesterday stay, and so does a bucket that was copied yesterday."""
    last = copy_of(20, 30, 1)
    for young in (copy_of(0, 10, 5_000, shipped=1), copy_of(0, 10, 5_000, shipped=90, stored=1)):
        assert found(Rule(age=30 * DAY, least=7 * DAY), young, copy_of(10, 20, 40), last) == (0, Limit.LEAST_TIME)


def test_a_segment_of_unknown_age_stays() -> None:
    """Doubt deletes nothing."""
    unknown = copy_of(0, 10, None)
    unknown = replace(unknown, segment=replace(unknown.segment, modified=None))
    for rule in (Rule(age=1), Rule(size=0, least=1)):
        assert found(rule, unknown, copy_of(10, 20, 5))[0] == 0


def test_a_young_copy_that_begins_below_keeps_its_offsets() -> None:
    """Another leader rolled elsewhere: the start is at most the base of its copy."""
    assert found(Rule(age=30 * DAY), copy_of(0, 10, 90), copy_of(4, 20, 5), copy_of(20, 30, 1)) == (4, Limit.RULE)


def test_bytes_are_living_bytes() -> None:
    """A copy that no reader needs has none."""
    twice = [copy_of(0, 10, 9), copy_of(0, 5, 9), copy_of(10, 20, 5), copy_of(10, 15, 5), copy_of(20, 30, 1)]
    assert found(Rule(size=200), *twice) == (10, Limit.RULE)


def test_what_a_deletion_left_has_no_living_bytes_and_its_holes_are_no_loss() -> None:
    """Readers need nothing below the floor. A hole that reaches above it can be repaired from there on."""
    left = [TEN[0], TEN[1], *TEN[5:]]
    assert found(Rule(size=600), *left, floor=50) == (0, Limit.RULE)
    assert found(Rule(size=500), *left, floor=50) == (50, Limit.RULE)
    assert found(Rule(age=75 * DAY), *left, floor=50) == (50, Limit.RULE)
    assert found(Rule(age=75 * DAY), *left, floor=40) == (40, Limit.HOLE)
    assert found(Rule(age=75 * DAY), *left) == (20, Limit.HOLE)


@given(
    ages=st.lists(st.tuples(st.integers(1, 20), st.floats(-50, 200), st.floats(-1, 200)), min_size=1, max_size=8),
    age=st.one_of(st.none(), st.integers(0, 150)),
    size=st.one_of(st.none(), st.integers(0, 900)),
    least=st.integers(0, 100),
    needed=st.one_of(st.none(), st.integers(0, 160)),
)
def test_nothing_younger_is_due_whatever_is_drawn(
    ages: list[tuple[int, float, float]], age: int | None, size: int | None, least: int, needed: int | None
) -> None:
    """What ends at or below the new start is old enough or beyond the size, and nothing needs it."""
    copies, base = [], 0
    for length, days, shipped in ages:
        copies.append(copy_of(base, base + length, days, shipped=shipped))
        base += length
    rule = Rule(None if age is None else age * DAY, size, least * DAY)
    start, _ = found(rule, *copies, needed_from=needed)
    gone = [copy for copy in copies if copy.end <= start]
    left = sum(copy.segment.size for copy in copies if copy.end > start)
    assert start <= copies[-1].base
    assert needed is None or start <= needed
    for copy in gone:
        time = record_time(copy)
        assert time is not None
        assert (age is not None and NOW - time >= age * DAY) or (size is not None and left >= size)
        assert NOW - max(copy.metadata.shipped or 0, copy.segment.modified or 0) >= least * DAY
