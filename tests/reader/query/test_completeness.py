"""The proof that a cut is complete: a later record, or the word of an agent."""

from dataclasses import replace

import pytest

from tests.made_archive import MadeArchive, batches
from tests.made_views import view_of
from ts_common.archive.ends import End, Ends
from ts_common.archive.view import PartitionView
from ts_common.model import TopicPartition
from ts_reader.query.completeness import Shipped, has_later, unproven
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS

NOON = 100_000_000
LATER = NOON + CLOCK_MARGIN_MS
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def words(*found: tuple[int, int], broker: int = 1, partition: TopicPartition = T0) -> list[Ends]:
    return [
        Ends(broker + place, 0, {partition: End(high_watermark, time)})
        for place, (high_watermark, time) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("ends", "is_proven"),
    [
        ([], False),
        (words((10, LATER)), True),
        (words((9, LATER + 1)), True),
        (words((10, LATER - 1)), False),  # clocks differ, and records wait in producers
        (words((11, LATER)), False),  # offset 10 is in an active segment
        (words((10, LATER), (11, LATER)), False),  # the first broker leads no more, and has not learned it
        (words((10, LATER), (11, LATER - 1)), True),  # an election lost offset 10
        (words((10, LATER), partition=T1), False),
    ],
)
def test_the_word_of_an_agent_is_a_proof_if_it_is_late_and_all_below_it_is_shipped(
    ends: list[Ends], is_proven: bool
) -> None:
    """A partition with ten offsets in the store, none of them later than the moment."""
    assert unproven([Shipped(T0, 10, has_later=False)], ends, NOON) == (() if is_proven else (T0,))


def test_a_later_record_is_a_proof_without_a_word_and_against_it() -> None:
    """What an active segment has is then at higher offsets; each partition has its own proof."""
    shipped = [Shipped(T1, 10, has_later=False), Shipped(T0, 10, has_later=True)]
    assert unproven(shipped, words((99, LATER)), NOON) == (T1,)


def test_a_word_is_about_the_newest_incarnation() -> None:
    """It has no topic id."""
    assert unproven([Shipped(T0, 10, has_later=False, is_newest=False)], words((10, LATER)), NOON) == (T0,)


def shipped_at(view: PartitionView, time: int | None) -> PartitionView:
    copies = [replace(copy, metadata=replace(copy.metadata, shipped=time)) for copy in view.copies]
    return replace(view, copies=tuple(copies))


def test_a_segment_that_was_shipped_before_the_moment_proves_nothing(archive: MadeArchive) -> None:
    """The clock of its producer was ahead; an older archive does not have that time."""
    archive.put_segment("t", 0, batches((0, 10), time=LATER))
    archive.commit("t", 10)
    view = view_of(archive)
    assert has_later(view, NOON)
    assert has_later(view, NOON + 9)
    assert not has_later(view, NOON + 10)
    assert has_later(shipped_at(view, LATER), NOON)
    assert not has_later(shipped_at(view, LATER - 1), NOON)


def test_the_greatest_timestamp_of_a_segment_counts_if_all_of_it_is_in_the_view(archive: MadeArchive) -> None:
    """A dead tail and offsets above the next one can have that timestamp."""
    archive.put_segment("t", 0, batches((0, 10), epoch=1, time=LATER - 10) + batches((10, 20), epoch=2, time=LATER))
    archive.commit("t", 20, epochs=[(1, 0), (2, 10)])
    assert has_later(view_of(archive), NOON)
    archive.commit("t", 20, epochs=[(1, 0), (3, 10)])
    assert not has_later(view_of(archive), NOON)
    archive.commit("t", 15, epochs=[(1, 0), (2, 10)])
    assert not has_later(view_of(archive), NOON)
