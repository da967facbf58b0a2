"""Where transactions begin and end, by the headers of ranges."""

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_common.log_format.markers import ABORT, COMMIT
from ts_reader.reading.missing_markers import Batch
from ts_reader.reading.transaction_events import Abort, Event, Events, Walk


def data(offset: int, producer: int) -> bytes:
    return batch(offset, [record(0)], attributes=TRANSACTIONAL, producer_id=producer)


def test_a_walk_reports_aborts_and_keeps_what_is_open() -> None:
    """The begin of a transaction is certain once the producer's marker before it was met."""
    walk = Walk()
    assert walk.add([Event(3, 7, None), Event(5, 8, None), Event(6, 7, ABORT)]) == [Abort(7, 6, 3, is_certain=False)]
    assert walk.open == {8: 5}
    events = [Event(8, 7, None), Event(9, 7, ABORT), Event(10, 8, COMMIT), Event(11, 9, ABORT)]
    assert walk.add(events) == [Abort(7, 9, 8, is_certain=True), Abort(9, 11, None, is_certain=False)]
    assert walk.open == {}


def test_events_are_the_first_batch_of_each_transaction_and_the_markers(archive: MadeArchive) -> None:
    """Of all copies of a range; a batch that does not count begins nothing, and neither does one without records."""
    emptied = batch(4, [], attributes=TRANSACTIONAL, producer_id=9, count=0)
    log = data(0, 7) + data(1, 7) + marker(2, 7, COMMIT) + data(3, 7) + emptied
    archive.put_segment("t", 0, log)
    archive.put_segment("t", 5, batches((5, 6)) + marker(6, 7, ABORT), variant=True)
    archive.commit("t", 7, highest_base=5)
    ranges = ranges_of(view_of(archive))
    events = Events(archive.store, ranges)
    assert [(event.offset, event.producer_id, event.kind) for event in events.of(0)] == [
        (0, 7, None),
        (2, 7, COMMIT),
        (3, 7, None),
    ]
    assert [events.next_marker(0, 7, offset) for offset in (1, 2, 6)] == [2, 6, None]
    assert events.next_marker(1, 7, 0) == 6
    assert events.next_marker(0, 8, 0) is None
    without = Events(archive.store, ranges, frozenset({Batch(7, 0, 0)}))
    assert [event.offset for event in without.of(0)] == [1, 2, 3]


def test_a_transaction_that_is_open_where_a_range_starts_begins_after_the_last_marker(archive: MadeArchive) -> None:
    """In any copy: another one can lack its first batch, which compaction emptied."""
    archive.put_segment("t", 0, data(0, 7) + marker(1, 7, COMMIT) + data(2, 7) + data(3, 8), end=5)
    archive.put_segment("t", 0, data(0, 7) + marker(1, 7, COMMIT) + data(4, 7), end=5, variant=True)
    archive.put_segment("t", 5, batches((5, 8)))
    archive.put_segment("t", 8, data(8, 7) + marker(9, 8, COMMIT))
    archive.commit("t", 10, highest_base=8)
    events = Events(archive.store, ranges_of(view_of(archive)))
    found = events.open_at(2, 7)
    assert found is not None
    assert (found.offset, found.kind) == (2, None)
    assert events.open_at(2, 9) is None
    assert events.open_at(3, 8) is None
