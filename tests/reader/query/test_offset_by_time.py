"""Offsets by timestamp for a query that ends at corrupt batches, and for one that skips them."""

from dataclasses import replace

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.made_views import view_of
from ts_common.errors import CorruptData
from ts_reader.query.offset_by_time import first_offset_of
from ts_reader.query.policies import Mode, Tolerance
from ts_reader.query.query import Query, Subscription

LOG = batches((0, 5), (5, 10), (10, 15))
SIZE = len(batches((0, 5)))


def test_a_tolerant_query_skips_corrupt_batches(archive: MadeArchive) -> None:
    """Offsets 5 to 9 are damaged; the record at offset `o` has the timestamp 1000 + `o`."""
    body = bytearray(LOG)
    body[SIZE + 70] ^= 1
    archive.put_segment("t", 0, LOG, body=bytes(body))
    archive.commit("t", 15)
    strict = Query(archive.location, CLUSTER, 0, Subscription(("t",)))
    tolerant = replace(strict, tolerance=Tolerance(Mode.DROPMALFORMED))
    view = view_of(archive)
    assert [first_offset_of(archive.store, view, time, tolerant) for time in (1003, 1007, 1012, 1015)] == [
        3,
        10,
        12,
        None,
    ]
    assert first_offset_of(archive.store, view, 1003, strict) == 3
    with pytest.raises(CorruptData, match=r"pass mode=.DROPMALFORMED"):
        first_offset_of(archive.store, view, 1007, strict)


def test_a_tolerant_query_reads_an_intact_copy(archive: MadeArchive) -> None:
    """Another copy of the same offsets has the record."""
    body = bytearray(LOG)
    body[SIZE + 70] ^= 1
    archive.put_segment("t", 0, LOG, body=bytes(body))
    archive.put_segment("t", 0, LOG[: 2 * SIZE], variant=True)
    archive.commit("t", 15)
    tolerant = Query(archive.location, CLUSTER, 0, Subscription(("t",)), tolerance=Tolerance(Mode.DROPMALFORMED))
    assert first_offset_of(archive.store, view_of(archive), 1007, tolerant) == 7
