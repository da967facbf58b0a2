"""The value of erased offsets, against a dictionary from each offset to its epoch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import examples
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets

PLACES = st.integers(0, 40)
EPOCHS = st.integers(-1, 3)
RUNS = st.lists(st.tuples(PLACES, st.integers(1, 12), EPOCHS).map(lambda run: (run[0], run[0] + run[1], run[2])))


def entries(runs: list[tuple[int, int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for start, end, epoch in runs:
        for offset in range(start, end):
            found[offset] = max(epoch, found.get(offset, epoch))
    return found


def of(erased: ErasedOffsets) -> dict[int, int]:
    return {offset: run.epoch for run in erased for offset in range(run.start, run.end)}


@settings(max_examples=examples(100, quick=30))
@given(RUNS)
def test_an_offset_in_several_runs_has_the_greatest_epoch(runs: list[tuple[int, int, int]]) -> None:
    """Runs in any order become ascending, disjoint ones, as few as possible."""
    erased = ErasedOffsets.of(runs)
    assert of(erased) == entries(runs)
    assert erased.count == len(entries(runs))
    ends = [(run.end, run.epoch) for run in erased]
    assert all((run.start, run.epoch) not in ends for run in erased)
    assert ErasedOffsets.of(reversed(runs)) == erased


@settings(max_examples=examples(100, quick=30))
@given(RUNS, PLACES, EPOCHS)
def test_an_entry_hides_a_record_unless_its_batch_has_a_higher_epoch(
    runs: list[tuple[int, int, int]], offset: int, epoch: int
) -> None:
    """The batch of the erased record has the entry's epoch; a batch of a later leader has a higher one."""
    assert ErasedOffsets.of(runs).hides(offset, epoch) == (entries(runs).get(offset, -2) >= epoch)


@settings(max_examples=examples(100, quick=30))
@given(RUNS, PLACES, st.integers(0, 12), EPOCHS)
def test_the_part_of_a_range_has_its_offsets_only(
    runs: list[tuple[int, int, int]], start: int, length: int, epoch: int
) -> None:
    """Runs that reach beyond the range are cut at its bounds."""
    erased, end = ErasedOffsets.of(runs), start + length
    inside = {offset: each for offset, each in entries(runs).items() if start <= offset < end}
    assert of(erased.between(start, end)) == inside
    assert erased.meets(start, end) == bool(inside)
    hidden = [offset for low, high in erased.in_batch(start, end, epoch) for offset in range(low, high)]
    assert hidden == sorted(offset for offset, each in inside.items() if epoch <= each)


@settings(max_examples=examples(100, quick=30))
@given(RUNS, RUNS)
def test_a_union_contains_both(first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> None:
    """It hides what either hides, and nothing else."""
    one, other = ErasedOffsets.of(first), ErasedOffsets.of(second)
    both = one.union(other)
    assert of(both) == entries([*first, *second])
    assert both.contains(one)
    assert both.contains(other)
    assert one.contains(NOTHING_ERASED)
    assert one.contains(other) == all(of(one).get(offset, -2) >= epoch for offset, epoch in of(other).items())


@pytest.mark.parametrize(
    "runs", [[(5, 5, 0)], [(5, 4, 0)], [(-1, 2, 0)], [(0, 3, 0), (2, 4, 0)], [(4, 5, 0), (0, 1, 0)]]
)
def test_runs_that_do_not_ascend_are_rejected(runs: list[tuple[int, int, int]]) -> None:
    """An empty run, one below offset 0, or one that does not follow the run before."""
    with pytest.raises(ValueError, match="do not follow"):
        ErasedOffsets.ascending(runs)
