"""Ranges that cannot have records of a time are left out."""

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import timeindex_of
from tests.made_views import ranges_of, view_of
from ts_reader.query.filters import BEYOND, LOWEST, Ranges
from ts_reader.query.plan_partition import prune_by_time


def pruned(archive: MadeArchive, *milliseconds: tuple[int, int]) -> list[tuple[int, int]]:
    wanted: Ranges = milliseconds
    parts = prune_by_time(archive.store, ranges_of(view_of(archive)), wanted)
    return [(part.start, part.end) for part in parts]


@pytest.fixture
def three(archive: MadeArchive) -> MadeArchive:
    """Return three segments of 100 records; the record at offset `o` has the timestamp 1000 + `o`."""
    for base in (0, 100, 200):
        archive.put_segment("t", base, log := batches(*steps(base, base + 100, step=1)), timeindex=timeindex_of(log))
    archive.commit("t", 300, highest_base=200)
    return archive


def test_only_segments_with_records_of_the_time_are_read(three: MadeArchive) -> None:
    """Batches of one record prove the least timestamp too; the first range begins where the `.timeindex` leads."""
    assert pruned(three, (LOWEST, BEYOND)) == [(0, 100), (100, 200), (200, 300)]
    assert pruned(three, (LOWEST, 1100)) == [(0, 100)]
    assert pruned(three, (1300, BEYOND)) == []
    assert pruned(three, (1000, 1001), (1299, BEYOND)) == [(0, 100), (200, 300)]
    ((start, end),) = pruned(three, (1150, 1160))
    assert (end, start % 100 > 40) == (200, True)
    assert start <= 150


def test_a_range_after_one_that_was_left_out_begins_where_the_timeindex_leads(archive: MadeArchive) -> None:
    """Timestamps go back in the second segment, so the wanted ones begin twice."""
    for base, time in ((0, 1000), (100, 0), (200, 800)):
        log = batches(*steps(base, base + 100), time=time)
        archive.put_segment("t", base, log, timeindex=timeindex_of(log))
    archive.commit("t", 300, highest_base=200)
    assert pruned(archive, (1050, BEYOND)) == [(50, 100), (250, 300)]


def test_a_segment_whose_times_are_not_proved_is_read(archive: MadeArchive) -> None:
    """Several records in a batch do not prove the least timestamp; the agent could not scan a damaged one."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.put_segment("t", 100, batch(100, [record(0)], base_timestamp=5, max_timestamp=5))
    archive.commit("t", 101, highest_base=100)
    assert pruned(archive, (LOWEST, 900)) == [(0, 100), (100, 101)]
    assert pruned(archive, (6, 900)) == [(0, 100)]
    damaged = bytearray(batches(*steps(101, 200)))
    damaged[65] ^= 1
    archive.put_segment("t", 101, bytes(damaged))
    archive.commit("t", 200, highest_base=101)
    assert pruned(archive, (9000, BEYOND)) == [(101, 200)]
