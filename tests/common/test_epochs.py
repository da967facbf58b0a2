import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.epochs import NO_EPOCH, EpochLine

LINE = EpochLine(((0, 0), (3, 100), (5, 250)))


def stretches(epochs: list[int]) -> tuple[tuple[int, int], ...]:
    """(epoch, first offset) wherever the epoch of one offset after the other changes."""
    return tuple((epoch, n) for n, epoch in enumerate(epochs) if n == 0 or epochs[n - 1] != epoch)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (99, 0), (100, 3), (249, 3), (250, 5), (10**9, 5)])
def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it(offset: int, epoch: int) -> None:
    """As Kafka's own leader epoch cache reads it."""
    assert LINE.at(offset) == epoch


def test_nothing_is_known_below_the_first_start() -> None:
    """An archive can begin in the middle of a log."""
    assert EpochLine(((7, 50),)).at(49) is None


@pytest.mark.parametrize("pairs", [((1, 0), (1, 5)), ((2, 0), (1, 5)), ((1, 5), (2, 5))])
def test_epochs_that_do_not_rise_are_no_line(pairs: tuple[tuple[int, int], ...]) -> None:
    """Neither epochs nor starts may stand still or fall."""
    with pytest.raises(ValueError, match="do not rise"):
        EpochLine(pairs)


def test_a_continuation_keeps_the_past_and_takes_the_rest() -> None:
    """Below the cut nothing changes; a reign that goes on over the cut is named once."""
    local = EpochLine(((0, 0), (3, 120), (9, 300)))
    assert LINE.continued(local, 250) == EpochLine(((0, 0), (3, 100), (9, 300)))
    assert EpochLine().continued(local, 130) == EpochLine(((3, 130), (9, 300)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30).map(sorted), st.data())
def test_the_live_part_ends_at_the_first_batch_of_another_epoch(living: list[int], data: st.DataObject) -> None:
    """Against the definition, offset by offset: one offset, one batch."""
    copy = data.draw(st.lists(st.integers(-1, 3), min_size=len(living), max_size=len(living)).map(sorted))
    start = data.draw(st.integers(0, len(living) - 1))
    line = EpochLine(stretches(living))
    expected = next((n for n in range(start, len(living)) if copy[n] not in {living[n], NO_EPOCH}), len(living))
    assert line.live_end(stretches(copy), start, len(living)) == expected


def test_without_a_list_nothing_is_dead() -> None:
    """A foreign commit has no epochs to judge by."""
    assert EpochLine().live_end(((4, 0),), 0, 10) == 10
