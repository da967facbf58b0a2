"""Batches that do not count because compaction removed their marker; tests/spark/test_lost_markers.py has the model."""

from tests.common.log_format.build import TRANSACTIONAL, batch, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_reader.reading.missing_markers import Batch, hidden_batches, may_be_lost

DATA = batch(2, [record(0), record(1)], attributes=TRANSACTIONAL, producer_id=7)
EARLY = batches((0, 2)) + DATA + batches((4, 5))


def two_copies(archive: MadeArchive, late: bytes) -> None:
    """A copy `[0, 5)` that was shipped in time, and one `[0, 10)` that was shipped late."""
    archive.put_segment("t", 0, EARLY)
    archive.put_segment("t", 0, late, variant=True, late=True)
    archive.commit("t", 10)


def hidden(archive: MadeArchive, marker: int | None, start: int = 0, stop: int = 10) -> set[Batch]:
    view = view_of(archive)
    return hidden_batches(archive.store, view, ranges_of(view), start, stop, lambda number, producer, offset: marker)


def test_a_batch_that_the_furthest_copy_lacks_is_hidden_if_its_marker_may_be_missing(archive: MadeArchive) -> None:
    """The copy in time ends at 5, so a marker at 4 is certain, and one at 7 or none at all is not."""
    two_copies(archive, batches((0, 1), (9, 10)))
    assert may_be_lost(view_of(archive).copies)
    assert hidden(archive, None) == hidden(archive, 7) == {Batch(7, 2, 3)}
    assert hidden(archive, 4) == set()
    assert hidden(archive, None, start=4) == hidden(archive, None, stop=2) == set()


def test_a_batch_that_the_furthest_copy_has_counts(archive: MadeArchive) -> None:
    """The cleaner would have removed it if it was aborted."""
    two_copies(archive, batches((0, 1)) + DATA + batches((9, 10)))
    assert hidden(archive, None) == set()


def test_copies_that_were_shipped_in_time_have_their_markers(archive: MadeArchive) -> None:
    """No segment is read for them."""
    archive.put_segment("t", 0, EARLY, txnindex=b"")
    archive.commit("t", 5)
    assert not may_be_lost(view_of(archive).copies)
