from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix import cases
from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.plan import MAX_COPIES, MEAN_COPIES, Hole, ReadRange, unite, with_spares
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))


def copy(
    base: int,
    end: int,
    *,
    records: int | None = None,
    epoch: int = 0,
    crc: int = 0,
    repair: int | None = None,
    replaces: str | None = None,
) -> SegmentCopy:
    """Return a copy of `[base, end)`; dense unless `records` is lower."""
    metadata = SegmentMetadata(
        end, ((epoch, base),), end - base if records is None else records, 1, 1, crc, replaces=replaces
    )
    name = SegmentName(base, epoch, crc, repair) if crc else SegmentName(base)
    return SegmentCopy(KEYS, StoredSegment(name, 1, frozenset()), metadata)


def bounds(plan: list[ReadRange | Hole]) -> list[tuple[int, int]]:
    return [(step.start, step.end) for step in plan]


def test_overlapping_copies_are_read_once() -> None:
    """Two leaders have segments with other boundaries; each offset is read once (fault U04's reading side)."""
    plan = unite([copy(0, 100), copy(100, 200), copy(90, 250)], EpochHistory(((0, 0),)), 0, 250)
    assert bounds(plan) == [(0, 100), (100, 250)]
    assert all(isinstance(step, ReadRange) and len(step.copies) == 1 for step in plan)


def test_compacted_copies_of_one_range_are_all_read() -> None:
    """Compaction can remove a record from one copy and not from another, so the union is read."""
    plan = unite([copy(0, 100, records=3), copy(0, 100, records=5, crc=9)], EpochHistory(), 0, 100)
    assert [len(step.copies) for step in plan if isinstance(step, ReadRange)] == [2]


def test_a_hole_is_named_with_its_range() -> None:
    """A missing segment is data loss, and a gap record has its reason."""
    copies = [copy(0, 100), copy(150, 200)]
    assert unite(copies, EpochHistory(), 0, 200)[1] == Hole(100, 150, recorded=False)
    assert unite(copies, EpochHistory(), 0, 200, gaps=[(100, 150)])[1] == Hole(100, 150, recorded=True)


def test_a_dead_tail_is_not_read() -> None:
    """After an election that lost records, the commit's epochs determine the live copy."""
    plan = unite([copy(0, 100), copy(60, 120, epoch=2)], EpochHistory(((0, 0), (2, 60))), 0, 120)
    assert bounds(plan) == [(0, 60), (60, 120)]
    assert [step.copies[0].base for step in plan if isinstance(step, ReadRange)] == [0, 60]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.booleans()), max_size=12),
    st.integers(0, 20),
    st.integers(0, 40),
)
def test_a_plan_covers_its_range_without_a_seam_and_without_doubles(
    segments: list[tuple[int, int, bool]], start: int, length: int
) -> None:
    """For any copies, each offset is in one step, and a hole is where no copy is."""
    copies = [
        copy(base, base + size, records=size if dense else size - 1, crc=n + 1)
        for n, (base, size, dense) in enumerate(segments)
    ]
    end = start + length
    position = start
    for step in unite(copies, EpochHistory(), start, end):
        assert step.start == position < step.end
        covering = {c.key for c in copies if c.base < step.end and c.end > step.start}
        if isinstance(step, Hole):
            assert not covering
        else:
            assert all(c.base <= step.start and c.end >= step.end for c in step.copies)
            assert step.copies[0].dense or {c.key for c in step.copies} == covering
        position = step.end
    assert position == end


def test_of_equal_copies_the_later_name_is_read() -> None:
    """A variant is put because the plain name has other bytes, and a repair because the variant has."""
    copies = [copy(0, 100, crc=9), copy(0, 100), copy(0, 100, crc=9, repair=2), copy(0, 100, crc=9, repair=1)]
    for count, expected in ((4, 2), (3, 2), (2, None)):
        (step,) = unite(copies[:count], EpochHistory(), 0, 100)
        assert isinstance(step, ReadRange)
        assert step.copies[0].segment.name == SegmentName(0, 0, 9, expected)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.booleans()), max_size=8),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.booleans(), st.integers(0, 7)), max_size=6),
)
def test_a_replaced_copy_is_read_only_where_no_other_copy_is(
    segments: list[tuple[int, int, bool]], repairs: list[tuple[int, int, bool, int]]
) -> None:
    """The leader's segments begin and end elsewhere than the damaged one, and compaction may have removed records."""
    first = [
        copy(base, base + size, records=size if dense else size - 1, crc=n + 1)
        for n, (base, size, dense) in enumerate(segments)
    ]
    named = [each.segment.name.stem for each in first]
    copies = first + [
        copy(
            base,
            base + size,
            records=size if dense else size - 1,
            crc=n + 100,
            replaces=named[of] if of < len(named) else None,
        )
        for n, (base, size, dense, of) in enumerate(repairs)
    ]
    replaced = {each.metadata.replaces for each in copies}
    position = 0
    for step in with_spares(
        (part for part in unite(copies, EpochHistory(), 0, 60) if isinstance(part, ReadRange)), copies, EpochHistory()
    ):
        assert step.start >= position
        position = step.end
        covering = [each for each in copies if each.base <= step.start and each.end > step.start]
        whole = [each for each in covering if each.segment.name.stem not in replaced]
        bad = {each.segment.name.stem for each in step.copies} & replaced
        assert not (whole and bad)
        if bad:
            assert all(each.base >= step.end for each in copies if each.base > step.start)
        ranks = [spare.copies[0].segment.name.stem in replaced for spare in step.spares]
        assert ranks == sorted(ranks)
        assert {each.key for each in covering} <= {
            one.key for one in (*step.copies, *(copy for spare in step.spares for copy in spare.copies))
        }


def test_r15_more_copies_of_one_offset_than_elections_leave_are_refused() -> None:
    """Thousands of small objects for the same offsets would cost time and memory that grow with their square."""
    many = [copy(0, 10**9, records=1, crc=1 + number) for number in range(MAX_COPIES + 1)]
    assert len(unite(many[:MAX_COPIES], EpochHistory(), 0, 10**9)) == 1
    with pytest.raises(CorruptData, match=f"c/t-0/: {MAX_COPIES + 1:,} segments cover offset 0; at most"):
        unite(many, EpochHistory(), 0, 10**9)


def overlapping(count: int, each: int) -> list[SegmentCopy]:
    """Return `count` copies, and `each` of them for each offset."""
    return [copy(base, base + each, records=1, crc=1 + base) for base in range(count)]


@pytest.mark.parametrize("scale", cases([1, 10], quick=[10]))
def test_r15_more_overlapping_copies_than_elections_leave_are_refused(
    monkeypatch: pytest.MonkeyPatch, scale: int
) -> None:
    """Each offset has fewer copies than the limit, but a plan would contain them millions of times."""
    monkeypatch.setattr("ts_common.archive.plan.MAX_COPIES", MAX_COPIES // scale)
    monkeypatch.setattr("ts_common.archive.plan.MEAN_COPIES", MEAN_COPIES // scale)
    count, each_offset = 20_000 // scale, 900 // scale
    many = overlapping(count, each_offset)
    with pytest.raises(CorruptData, match=f"c/t-0/: its {count} segments overlap so much that each offset has more"):
        unite(many, EpochHistory(), 0, count)
    dense = [replace(each, metadata=replace(each.metadata, records=each_offset)) for each in many]
    parts = [part for part in unite(dense, EpochHistory(), 0, count) if isinstance(part, ReadRange)]
    assert len(parts) == 23
    assert {len(part.copies) for part in parts} == {1}
    with pytest.raises(CorruptData, match="overlap so much"):
        list(with_spares([ReadRange(at, at + 1, ()) for at in range(count)], dense, EpochHistory()))


def test_spares_are_the_living_copies_that_a_range_does_not_read() -> None:
    """Spares are cut to the range and to their live parts, also if they begin inside the range."""
    first, second, third = copy(0, 100), copy(40, 160), copy(90, 250)
    dead = copy(50, 200, epoch=7, crc=5)
    epochs = EpochHistory(((0, 0),))
    plan = [ReadRange(0, 100, (first,)), ReadRange(100, 120, (second,)), ReadRange(120, 250, (third,))]
    assert [part.spares for part in with_spares(plan, [third, dead, first, second], epochs)] == [
        (ReadRange(40, 100, (second,)), ReadRange(90, 100, (third,))),
        (ReadRange(100, 120, (third,)),),
        (ReadRange(120, 160, (second,)),),
    ]


def test_each_hole_has_the_gap_records_that_it_meets() -> None:
    """Among many records, some are before the hole, after it, inside it, or at one of its ends."""
    gaps = [(0, 5), (8, 12), (14, 16), (18, 30), (40, 50)]
    assert unite([copy(5, 10), copy(30, 40)], EpochHistory(), 5, 45, gaps)[1:] == [
        Hole(10, 12, recorded=True),
        Hole(12, 14, recorded=False),
        Hole(14, 16, recorded=True),
        Hole(16, 18, recorded=False),
        Hole(18, 30, recorded=True),
        ReadRange(30, 40, (copy(30, 40),)),
        Hole(40, 45, recorded=True),
    ]
