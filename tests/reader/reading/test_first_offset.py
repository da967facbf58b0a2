"""Offsets by timestamp: the first record, in the order of offsets, that has it or a later one."""

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import index_of, timeindex_of
from tests.made_views import view_of
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.errors import CorruptData
from ts_reader.reading.first_offset import first_offset_at, search_for


def first(archive: MadeArchive, milliseconds: int, *, after_hole: bool = True) -> int | None:
    search = search_for(archive.store, milliseconds, erased=NOTHING_ERASED, way_out="Pass mode")
    return first_offset_at(view_of(archive), search, after_hole=after_hole)


def test_timestamps_need_not_ascend(archive: MadeArchive) -> None:
    """The first match counts, also inside a batch whose later records are earlier again."""
    times = (1000, 5000, 3000, 4000)
    log = batch(
        0,
        [record(n, timestamp_delta=time - 1000) for n, time in enumerate(times)],
        base_timestamp=1000,
        max_timestamp=5000,
    )
    archive.put_segment("t", 0, log)
    archive.put_segment("t", 4, batches((4, 10), time=2000))
    archive.commit("t", 10, highest_base=4)
    assert [first(archive, time) for time in (0, 1000, 1001, 4500, 5000, 5001)] == [0, 0, 1, 1, 1, None]


def test_a_segment_whose_records_are_all_earlier_is_not_read(archive: MadeArchive) -> None:
    """Its metadata has the greatest timestamp; its object is garbage here."""
    log = batches((0, 10))
    archive.put_segment("t", 0, log, body=bytes(len(log)))
    archive.put_segment("t", 10, batches((10, 20)))
    archive.commit("t", 20, highest_base=10)
    assert first(archive, 1010) == 10
    with pytest.raises(CorruptData, match="Pass mode"):
        first(archive, 1009)


def test_reading_begins_where_the_timeindex_leads(archive: MadeArchive) -> None:
    """What is before it is garbage here, and is not read."""
    log = batches(*steps(0, 400), value=bytes(100))
    garbage = len(log) // 2
    archive.put_segment(
        "t", 0, log, body=bytes(garbage) + log[garbage:], index=index_of(log), timeindex=timeindex_of(log)
    )
    archive.commit("t", 400)
    assert first(archive, 1350) == 350


def test_a_hole_before_the_match_is_returned_unless_the_caller_requests_the_record(archive: MadeArchive) -> None:
    """The record with that timestamp may be in the hole, so a query that starts there has to report the loss."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.put_segment("t", 20, batches((20, 30)))
    archive.commit("t", 40, highest_base=20)
    assert (first(archive, 1015), first(archive, 1015, after_hole=False)) == (10, 20)
    assert first(archive, 1025) == 25  # a record after the hole is earlier, so the match was not lost
    assert (first(archive, 1035), first(archive, 1035, after_hole=False)) == (30, None)
