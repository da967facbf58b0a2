"""Many windows of offsets: exactly the parts of the plan that have them, with bounded memory and requests."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.made_seals import looking_for_seals
from tests.matrix import examples
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_ranges import Part, as_ranges
from ts_common.archive.view import open_view
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_reader.query import windows as under_test
from ts_reader.query.filters import QueryFilters, Ranges
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Query, Subscription
from ts_reader.query.read_split import read_split
from ts_reader.query.windows import clipped, union
from ts_uploader.shipping.sealing import seal

OFFSETS = st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda each: (each[0], each[0] + each[1]))
END = 60


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionView, PartitionView]:
    """Views of offsets [0,60): by sealed objects, and by listing, with a hole at 50. Copies overlap at 40."""
    archive = MadeArchive(tmp_path_factory.mktemp("views"))
    for base in range(0, 40, 5):
        archive.put_segment("t", base, batches((base, base + 5)), index=bytes(8))
    archive.commit("t", 40, highest_base=35)
    keys = archive.partition("t")
    with looking_for_seals(1):
        seal(archive.store, keys, 1, 1)
        archive.put_segment("t", 40, batches((40, 50)))
        archive.put_segment("t", 40, batches((40, 44)), variant=True)
        archive.put_segment("t", 50, batches((50, 55)))
        archive.put_segment("t", 55, batches((55, 60)))
        archive.commit("t", END, highest_base=55)
        by_seals = open_view(archive.store, read_catalog(archive.store, keys, seals=True))
    archive.store.delete([keys.segment(SegmentName(50))])
    listed = open_view(archive.store, read_catalog(archive.store, keys))
    assert by_seals.sealed
    assert not listed.sealed
    return by_seals, listed


def by_offset(parts: list[Part | Hole]) -> dict[int, tuple[SegmentCopy, ...] | None]:
    """Return the copies of each offset; None in a hole. An offset is in one part."""
    found: dict[int, tuple[SegmentCopy, ...] | None] = {}
    steps: Sequence[ReadRange | Hole] = as_ranges(parts)
    for part in steps:
        for offset in range(part.start, part.end):
            assert offset not in found
            found[offset] = None if isinstance(part, Hole) else part.copies
    return found


@settings(max_examples=examples(500, quick=30))
@given(st.lists(OFFSETS, max_size=12), st.integers(0, 1), st.booleans())
def test_windows_have_the_parts_of_the_whole_plan(
    views: tuple[PartitionView, PartitionView], drawn: list[tuple[int, int]], which: int, joins: bool
) -> None:
    """Each offset of a window has the copies that it has in the plan of all offsets; others are near one, or absent."""
    windows = union(drawn)
    whole = by_offset([*views[which].runs(0, END)])
    with pytest.MonkeyPatch.context() as patch:
        if not joins:
            patch.setattr(under_test, "NEAR_BYTES", -1)
        found = by_offset([*clipped(views[which].runs(0, END), windows)])
    assert found.items() <= whole.items()
    wanted = {offset for low, high in windows for offset in range(low, min(high, END))}
    assert wanted <= found.keys()
    if not joins:
        assert wanted == found.keys()
    assert list(found) == sorted(found)


@settings(max_examples=examples(500, quick=30))
@given(st.lists(OFFSETS, max_size=12), st.integers(1, 12))
def test_a_union_has_each_offset_in_a_bounded_number_of_ranges(drawn: list[tuple[int, int]], most: int) -> None:
    """With more ranges than the maximum, the narrowest gaps are closed."""
    exact, bounded = union(drawn), union(drawn, most)

    def offsets(ranges: Ranges) -> set[int]:
        return {offset for low, high in ranges for offset in range(low, high)}

    assert offsets(exact) == offsets(tuple(drawn)) <= offsets(bounded)
    assert len(bounded) == min(most, len(exact))
    assert all(before[1] < after[0] for before, after in pairwise(exact))
    closed = offsets(bounded) - offsets(exact)
    gaps = sorted(after[0] - before[1] for before, after in pairwise(exact))
    assert len(closed) == sum(gaps[: len(exact) - len(bounded)])


def test_more_windows_than_32_read_no_object_between_them(tmp_path: Path) -> None:
    """A hundred windows in every third of 300 segments: a hundred segments are read, once each."""
    archive = MadeArchive(tmp_path)
    for base in range(0, 3000, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 3000, highest_base=2990)
    wanted = tuple((base + low, base + low + 1) for base in range(0, 3000, 30) for low in (2, 7))
    plan = plan_query(
        archive.store, Query(archive.location, CLUSTER, None, Subscription(("t",))), QueryFilters(offsets=wanted)
    )
    assert plan.segments == 100
    counts = StoreCounts()
    store = CountedStore(archive.store, counts)
    rows = [
        row["offset"]
        for split in plan.splits
        for batch in read_split(store, split, ["offset"])
        for row in batch.to_pylist()
    ]
    assert {low for low, _ in wanted} <= set(rows)
    assert len(rows) < 700  # at most what is between two windows of one segment
    assert sum(counts.requests.values()) == 100
