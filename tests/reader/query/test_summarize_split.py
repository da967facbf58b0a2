"""The totals of a split that is read."""

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_reader.query.policies import Mode, Tolerance, View
from ts_reader.query.split import Split
from ts_reader.query.summarize_split import summarize_split
from ts_reader.query.totals import Detail, Totals


@pytest.fixture
def split(archive: MadeArchive) -> Split:
    """Return a split of a segment that lost records, and of two copies of later offsets."""
    sparse = batch(10, [record(0), record(5, timestamp_delta=-50)], last_offset_delta=9, max_timestamp=1000)
    archive.put_segment("t", 0, batches((0, 10), time=100) + sparse, end=20)
    archive.put_segment("t", 20, batches((20, 23)), end=30)
    archive.put_segment("t", 20, batches((22, 25)), end=30, variant=True)
    archive.commit("t", 30, highest_base=20)
    return Split(archive.location, tuple(ranges_of(view_of(archive))))


def test_copies_are_counted_once_and_batches_by_their_headers(archive: MadeArchive, split: Split) -> None:
    """Of each detail what it has."""
    assert summarize_split(archive.store, split, Detail.ROWS).rows == 17
    found = summarize_split(archive.store, split, Detail.HEADERS)
    assert (found.rows, found.first, found.last, found.greatest) == (17, 0, 24, 1024)
    assert summarize_split(archive.store, split, Detail.ALL) == Totals(17, 0, 24, 100, 1024)


def test_the_last_record_of_a_batch_that_lost_some_is_looked_up(archive: MadeArchive, split: Split) -> None:
    """The batch ends at offset 19, and its last record is at 15."""
    first = Split(archive.location, split.ranges[:1])
    found = summarize_split(archive.store, first, Detail.HEADERS)
    assert (found.rows, found.first, found.last, found.greatest) == (12, 0, 15, 1000)


def test_tolerant_splits_and_newest_records_are_counted_by_their_rows(archive: MadeArchive, split: Split) -> None:
    """A corrupt place is a row only with its column, and has no timestamp."""
    tolerance = Tolerance(Mode.PERMISSIVE, "raw")
    (copy,) = split.ranges[0].copies
    data, info = archive.store.get(copy.key)
    archive.store.put(copy.key, data[:70] + bytes([data[70] ^ 1]) + data[71:], metadata=info.metadata)
    part = Split(archive.location, split.ranges[:1], tolerance=tolerance)
    assert summarize_split(archive.store, part, Detail.ALL) == Totals(2, 10, 15, 950, 1000)
    assert summarize_split(archive.store, part, Detail.ALL, "raw") == Totals(3, 0, 15, 950, 1000)
    newest = Split(archive.location, split.ranges[1:], view=View.LATEST)
    assert summarize_split(archive.store, newest, Detail.ALL) == Totals(5, 20, 24, 1020, 1024)
