"""Totals of a plan: ranges whose metadata suffices, and ranges that are read."""

from dataclasses import replace

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.made_views import ranges_of, view_of
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.errors import ObjectNotFound
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_reader.query.query import CorruptionMode, Tolerance
from ts_reader.query.read_split import summarize_split
from ts_reader.query.splits import Split
from ts_reader.query.totals import Detail, Totals, known_totals

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def part(archive: MadeArchive) -> ReadRange:
    """Return the range of a segment of 100 records whose object is missing."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.commit("t", 100)
    (part,) = ranges_of(view_of(archive))
    archive.store.delete([archive.partition("t").segment(SegmentName(0))])
    return part


def total(archive: MadeArchive, *parts: ReadRange, detail: Detail = Detail.HEADERS, **more: object) -> Totals:
    splits = [replace(Split(archive.location, (part,)), **more) for part in parts]  # type: ignore[arg-type]
    totals, unread = known_totals(splits, detail)
    for split in unread:
        totals.setdefault(PARTITION, Totals()).add(summarize_split(archive.store, split, detail))
    return totals[PARTITION]


def test_ranges_that_are_together_a_segment_need_no_object(archive: MadeArchive, part: ReadRange) -> None:
    """Splitting cuts a segment; for a number of rows any part of one suffices."""
    pieces = [replace(part, start=start, end=start + 25) for start in range(0, 100, 25)]
    found = total(archive, *pieces)
    assert (found.rows, found.first, found.last, found.greatest) == (100, 0, 99, 1099)
    assert total(archive, *pieces[1:3], detail=Detail.ROWS).rows == 50
    with pytest.raises(ObjectNotFound):
        total(archive, *pieces[:3])


def test_what_metadata_does_not_prove_is_read(archive: MadeArchive, part: ReadRange) -> None:
    """Control records, or an unknown number; aborted transactions; damage; two copies; tolerance; the least time."""
    (copy,) = part.copies

    def known(**fields: object) -> ReadRange:
        return replace(part, copies=(replace(copy, metadata=replace(copy.metadata, **fields)),))  # type: ignore[arg-type]

    unproven = [known(control=None), known(control=1), known(records=None), known(corruptions=1)]
    for each in (*unproven, replace(part, copies=(copy, copy))):
        with pytest.raises(ObjectNotFound):
            total(archive, each, detail=Detail.ROWS)
    for more in (
        {"aborted": (AbortedTransaction(1, 99, 120, 0),)},
        {"tolerance": Tolerance(CorruptionMode.DROPMALFORMED)},
    ):
        with pytest.raises(ObjectNotFound):
            total(archive, part, detail=Detail.ROWS, **more)
    elsewhere = (AbortedTransaction(1, 100, 120, 0),)
    assert total(archive, part, detail=Detail.ROWS, aborted=elsewhere).rows == 100
    assert total(archive, known(records=60), detail=Detail.ROWS).rows == 60
    for each, detail in ((known(records=60), Detail.HEADERS), (part, Detail.ALL)):
        with pytest.raises(ObjectNotFound):
            total(archive, each, detail=detail)
    found = total(archive, known(time_min=7), detail=Detail.ALL)
    assert (found.least, found.greatest) == (7, 1099)
