import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory

LINE = EpochHistory(((0, 0), (3, 100), (5, 250)))
PROTOCOL = Path(__file__).parents[3] / "docs/protocol.md"


def stretches(epochs: list[int]) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) at each change in a list with the epoch of each offset."""
    return tuple((epoch, n) for n, epoch in enumerate(epochs) if n == 0 or epochs[n - 1] != epoch)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (99, 0), (100, 3), (249, 3), (250, 5), (10**9, 5)])
def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it(offset: int, epoch: int) -> None:
    """Kafka's own leader epoch cache has the same rule."""
    assert LINE.at(offset) == epoch


def test_nothing_is_known_below_the_first_start() -> None:
    """An archive can begin in the middle of a log."""
    assert EpochHistory(((7, 50),)).at(49) is None


@pytest.mark.parametrize("pairs", [((1, 0), (1, 5)), ((2, 0), (1, 5)), ((1, 5), (2, 5))])
def test_epochs_that_do_not_rise_are_no_line(pairs: tuple[tuple[int, int], ...]) -> None:
    """Both epochs and start offsets must rise."""
    with pytest.raises(ValueError, match="do not rise"):
        EpochHistory(pairs)


def test_a_continuation_keeps_the_epochs_below_the_cut_and_adds_the_rest() -> None:
    """Offsets below the cut keep their epochs; an epoch that continues over the cut has one pair."""
    local = EpochHistory(((0, 0), (3, 120), (9, 300)))
    assert LINE.continued(local, 250) == EpochHistory(((0, 0), (3, 100), (9, 300)))
    assert EpochHistory().continued(local, 130) == EpochHistory(((3, 130), (9, 300)))


def test_an_epoch_begins_at_the_earlier_start_of_two_lists() -> None:
    """A follower learns of an epoch with the first batch that compaction left, so its start can be too high."""
    known = EpochHistory(((3, 8), (4, 11), (7, 14)))
    assert known.continued(EpochHistory(((3, 4), (4, 12), (7, 15), (9, 20))), 11).pairs == (
        (3, 8),
        (4, 11),
        (7, 14),
        (9, 20),
    )
    assert EpochHistory(((0, 0), (4, 11))).continued(EpochHistory(((3, 12), (4, 13))), 10).pairs == ((0, 0), (4, 11))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=8), st.data())
def test_a_continuation_of_two_lists_of_one_line_contains_what_either_contains(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each list can have starts that are too high, or lack epochs; together they never contradict the truth."""
    line, epoch, start = [], 0, 0
    for rise, length in steps:
        line.append((epoch, start))
        epoch, start = epoch + rise, start + length
    starts = [first for _, first in line] + [start]

    def seen() -> EpochHistory:
        late = [data.draw(st.integers(first, following)) for first, following in pairwise(starts)]
        return EpochHistory(
            tuple(
                (epoch, at) for (epoch, _), at, following in zip(line, late, starts[1:], strict=True) if at < following
            )
        )

    first, second, whole = seen(), seen(), EpochHistory(tuple(line))
    at = data.draw(st.integers(0, start))
    continued = first.continued(second, at)
    both = {epoch for epoch, _ in first} & {epoch for epoch, _ in second}
    for offset in range(at, start):
        truth, found, known = whole.at(offset), continued.at(offset), second.at(offset)
        assert truth is not None
        assert found is None or found <= truth
        assert known is None or (found is not None and found >= known)
        if first.at(offset) in both:
            assert found is not None
            assert found >= (first.at(offset) or 0)


def test_evidence_of_one_offset_removes_the_pairs_that_contradict_it() -> None:
    """No higher epoch begins below and no lower one above; an epoch that continues has one pair."""
    line = EpochHistory(((1, 0), (4, 10), (6, 30), (7, 40)))
    assert line.with_evidence(5, 20).pairs == ((1, 0), (4, 10), (5, 20), (6, 30), (7, 40))
    assert line.with_evidence(3, 20).pairs == ((1, 0), (3, 20), (6, 30), (7, 40))
    assert line.with_evidence(6, 20).pairs == ((1, 0), (4, 10), (6, 20), (7, 40))
    assert line.with_evidence(1, 20).pairs == ((1, 0), (6, 30), (7, 40))
    assert line.with_evidence(5, 30).pairs == ((1, 0), (4, 10), (5, 30), (7, 40))
    assert line.with_evidence(4, 20) == line


def test_leaderships_that_begin_further_on_stay_named() -> None:
    """One list counts below the offset, and the later epochs of the other from it on."""
    future = EpochHistory(((3, 8), (4, 11), (7, 14), (14, 17)))
    assert EpochHistory(((3, 8), (4, 11), (5, 12))).with_next(future, 13).pairs == (
        (3, 8),
        (4, 11),
        (5, 12),
        (7, 14),
        (14, 17),
    )
    assert EpochHistory(((3, 8), (15, 11))).with_next(future, 13).pairs == ((3, 8), (15, 11))
    assert EpochHistory().with_next(future, 14).pairs == ((7, 14), (14, 17))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30).map(sorted), st.data())
def test_the_dead_tail_begins_at_the_first_batch_of_another_epoch(living: list[int], data: st.DataObject) -> None:
    """The result is that of the definition, offset by offset, with one batch for each offset."""
    # A copy leaves the line once; after that its last common leader continues, or other leaders follow.
    parted = data.draw(st.integers(0, len(living)))
    goes_on = data.draw(st.integers(0, len(living) - parted)) if parted else 0
    others = data.draw(st.lists(st.integers(4, 6), min_size=len(living), max_size=len(living)).map(sorted))
    copy = (living[:parted] + living[parted - 1 : parted] * goes_on + others)[: len(living)]
    start = data.draw(st.integers(0, len(living) - 1))
    line = EpochHistory(stretches(living))
    expected = next((n for n in range(start, len(living)) if copy[n] != living[n]), len(living))
    assert line.live_end(stretches(copy), start, len(living)) == expected


def test_without_a_list_nothing_is_dead() -> None:
    """A foreign commit has no epochs to compare with."""
    assert EpochHistory().live_end(((4, 0),), 0, 10) == 10


def test_below_the_list_a_later_epoch_than_its_first_is_dead() -> None:
    """Epochs never fall along a log: the list begins with epoch 2 at 100, so epoch 3 wrote no offset below."""
    line = EpochHistory(((2, 100),))
    assert line.live_end(((3, 40),), 40, 90) == 40
    assert line.live_end(((1, 40), (3, 60)), 40, 90) == 60
    assert line.live_end(((1, 40), (2, 60)), 40, 90) == 90


def test_a_copy_without_a_batch_has_nothing_dead() -> None:
    """Compaction emptied the segment, and its metadata has no epochs."""
    assert LINE.live_end((), 0, 200) == 200
    assert LINE.live_end(((9, 200),), 0, 200) == 200


def test_no_batch_below_an_offset_that_agrees_is_dead_whatever_epochs_the_copy_has() -> None:
    """A copy can have a later start of an epoch than the commit: compaction removed the first batches of epoch 9.

    A follower that fetched the rest has epoch 9 from 6381 on. The lists are those of a copy and a commit that a soak
    test found: no record was lost, but readers reported a hole.
    """
    commit = EpochHistory(((1, 0), (3, 384), (5, 2220), (6, 3936), (7, 4272), (9, 6204), (10, 7020)))
    assert commit.live_end(((7, 6156), (9, 6381), (10, 7020)), 6156, 7032) == 7032
    assert commit.live_end(((7, 6156), (9, 6381), (8, 6400)), 6156, 7032) == 6400
    assert commit.live_end(((7, 6156), (8, 6381)), 6156, 7032) == 6204


def test_a_batch_without_an_epoch_neither_kills_nor_dies() -> None:
    """Magic 0 and 1 have no epoch; the batches after them are compared as usual."""
    assert LINE.live_end(((NO_EPOCH, 0), (3, 150)), 0, 200) == 200
    assert LINE.live_end(((NO_EPOCH, 0), (2, 150)), 0, 200) == 150


@st.composite
def rising(draw: st.DrawFn, lowest: int) -> tuple[tuple[int, int], ...]:
    """Return the (epoch, start offset) pairs of a list; both rise."""
    epochs = draw(st.lists(st.integers(lowest, 5), unique=True, max_size=4).map(sorted))
    starts = draw(st.lists(st.integers(0, 20), min_size=len(epochs), max_size=len(epochs), unique=True).map(sorted))
    return tuple(zip(epochs, starts, strict=True))


@given(
    rising(NO_EPOCH),
    st.lists(st.tuples(st.integers(NO_EPOCH, 5), st.integers(0, 20)), max_size=5, unique_by=lambda pair: pair[1]),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_r05_the_dead_tail_begins_at_the_first_contradiction_after_the_last_offset_that_agrees(
    pairs: tuple[tuple[int, int], ...], copy: list[tuple[int, int]], start: int, length: int
) -> None:
    """The copy is live below the last offset that agrees, and from there to the first contradiction (reading rule 2).

    An offset agrees if the copy and the list give it the same epoch; -1 neither agrees nor contradicts. Epochs never
    fall, so below the list's first pair a later epoch than that pair's contradicts.
    """
    line, end = EpochHistory(pairs), start + length
    copy = sorted(copy, key=lambda pair: pair[1])

    def named(offset: int) -> int:
        return next((epoch for epoch, first in reversed(copy) if first <= offset), NO_EPOCH)

    def listed(offset: int) -> int:
        return next((epoch for epoch, first in reversed(pairs) if first <= offset), NO_EPOCH)

    agreed = [offset for offset in range(end) if named(offset) == listed(offset) != NO_EPOCH]
    behind = range(max([start, *(offset + 1 for offset in agreed)]), end)

    def contradicted(offset: int) -> bool:
        if pairs and offset < pairs[0][1]:
            return named(offset) > pairs[0][0] != NO_EPOCH
        return NO_EPOCH not in {named(offset), listed(offset)} and named(offset) != listed(offset)

    contradicts = (offset for offset in behind if contradicted(offset))
    assert line.live_end(copy, start, end) == next(contradicts, end)


def test_r05_a_stretch_without_an_epoch_vouches_for_nothing() -> None:
    """If a copy ends with magic 0 or 1, its dead part stays dead, whatever the list has at its end."""
    line = EpochHistory(((2, 0), (4, 100)))
    assert line.live_end(((3, 100), (NO_EPOCH, 120)), 100, 200) == 100
    assert line.live_end(((3, 100), (NO_EPOCH, 120), (4, 150)), 100, 200) == 200
    assert EpochHistory(((NO_EPOCH, 0), (4, 100))).live_end(((3, 0), (NO_EPOCH, 50)), 0, 100) == 100


def test_the_examples_of_reading_rule_2_are_true() -> None:
    """`docs/protocol.md` has the commit's epochs, those of a copy, and the copy's live part."""
    rule = PROTOCOL.read_text().partition("### Reading rule 2")[2].partition("\n### ")[0]
    assert "for a copy that covers `[0,100)`" in rule
    examples = re.findall(r"^\| `(\[\[.*?\]\])` \| `(\[\[.*?\]\])` \| `\[0,(\d+)\)` \|", rule, re.MULTILINE)
    assert len(examples) == rule.count("\n| `")
    assert len(examples) > 10
    for commit, copy, live_end in examples:
        line = EpochHistory(tuple((epoch, start) for epoch, start in json.loads(commit)))
        assert line.live_end([(epoch, first) for epoch, first in json.loads(copy)], 0, 100) == int(live_end), copy
