"""What a `.timeindex` proves."""

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import timeindex_of
from tests.made_views import only_copy
from ts_common.archive.object_keys import SegmentName
from ts_reader.reading.time_index import claims_of, first_that_may_reach

LOG = batches(*steps(100, 200))  # the record at offset `o` has timestamp 1000 + `o`; entries end at 149 and 189


@pytest.fixture
def indexed(archive: MadeArchive) -> MadeArchive:
    """Return an archive with the segment [100, 200) and its `.timeindex`."""
    archive.put_segment("t", 100, LOG, timeindex=timeindex_of(LOG))
    archive.commit("t", 200, log_start=100, highest_base=100)
    return archive


def test_records_below_an_entry_are_earlier(indexed: MadeArchive) -> None:
    """An entry's timestamp itself may be reached at its offset."""
    copy = only_copy(indexed)
    found = [first_that_may_reach(indexed.store, copy, time) for time in (1000, 1149, 1150, 1189, 1190, 9999)]
    assert found == [100, 100, 150, 150, 190, 190]


@pytest.mark.parametrize("stored", [None, b"", timeindex_of(LOG, every=2)])
def test_only_the_timeindex_that_the_metadata_names_counts(indexed: MadeArchive, stored: bytes | None) -> None:
    """Without it any record of the segment may be late enough."""
    key = indexed.partition("t").segment(SegmentName(100), ".timeindex")
    copy = only_copy(indexed)
    if stored is None:
        indexed.store.delete([key])
    else:
        indexed.store.put(key, stored)
    assert first_that_may_reach(indexed.store, copy, 1190) == 100
    assert claims_of(indexed.store, copy) == ()


def test_claims_are_those_of_the_index_in_absolute_offsets(indexed: MadeArchive) -> None:
    """A timestamp, and the offset of the last record that it bounds."""
    assert claims_of(indexed.store, only_copy(indexed)) == ((1149, 149), (1189, 189))
