"""Aborted, open and cut-off transactions of a view (reading rule 4)."""

import struct

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import view_of
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.markers import ABORT, COMMIT
from ts_reader.reading.transactions import find_hidden, stable_end


def data(*offsets: int, producer: int = 7) -> bytes:
    return b"".join(batch(offset, [record(0)], attributes=TRANSACTIONAL, producer_id=producer) for offset in offsets)


def entry(producer: int, first: int, last: int, stable: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


def spans(archive: MadeArchive, start: int, stop: int) -> list[tuple[int, int, int]]:
    found = find_hidden(archive.store, view_of(archive), start, stop).transactions
    return [(one.producer_id, one.first_offset, one.last_offset) for one in found]


def two_segments(archive: MadeArchive, txnindex: bytes | None = None) -> None:
    """Producer 7 writes at 2 and 6 and aborts at 8; producer 8 writes at 4 and commits at 7."""
    archive.put_segment("t", 0, batches((0, 2)) + data(2) + batches((3, 4)) + data(4, producer=8), end=5)
    second = batches((5, 6)) + data(6) + marker(7, 8, COMMIT) + marker(8, 7, ABORT) + batches((9, 10))
    archive.put_segment("t", 5, second, txnindex=txnindex)
    archive.commit("t", 10, highest_base=5)


def without_metadata(archive: MadeArchive) -> None:
    """Remove the segments' metadata, as a Java uploader leaves them: headers have to be read."""
    for segment in view_of(archive).copies:
        archive.store.put(segment.key, archive.store.get(segment.key)[0])


@pytest.mark.parametrize("start", [0, 5, 6])
def test_headers_show_where_an_aborted_transaction_began(archive: MadeArchive, start: int) -> None:
    """Also in a segment below the range."""
    two_segments(archive)
    without_metadata(archive)
    assert spans(archive, start, 10) == [(7, 2, 8)]
    assert spans(archive, 0, 2) == []


def test_a_complete_txnindex_is_enough(archive: MadeArchive) -> None:
    """The segment itself is not read; an index with another CRC than the metadata's does not count."""
    two_segments(archive, entry(7, 3, 8, 9))
    assert spans(archive, 0, 10) == [(7, 3, 8)]  # the entry's offsets, not those of the headers
    (_, copy) = view_of(archive).copies
    archive.store.put(copy.keys.segment(copy.segment.name, ".txnindex"), entry(7, 4, 8, 9))
    assert spans(archive, 0, 10) == [(7, 2, 8)]


def test_the_stable_end_is_the_commits_or_that_of_the_headers(archive: MadeArchive) -> None:
    """An open transaction holds it back; the commit's is at most the view's end."""
    archive.put_segment("t", 0, batches((0, 3)) + data(3) + data(4, producer=8) + marker(5, 7, ABORT))
    archive.commit("t", 6)
    assert stable_end(archive.store, view_of(archive)) == 4
    for given, expected in ((2, 2), (99, 6)):
        archive.commit("t", 6, last_stable_offset=given)
        assert stable_end(archive.store, view_of(archive)) == expected


def test_a_transaction_that_is_open_at_a_hole_is_cut_off(archive: MadeArchive) -> None:
    """The hole may have its marker; a marker of the producer behind it may be another transaction's."""
    archive.put_segment("t", 0, batches((0, 2)) + data(2) + data(3, producer=8) + marker(4, 8, COMMIT))
    archive.put_segment("t", 8, marker(8, 7, COMMIT) + batches((9, 10)))
    archive.commit("t", 10, highest_base=8)
    hidden = find_hidden(archive.store, view_of(archive), 0, 10)
    assert hidden.transactions == (AbortedTransaction(7, 2, 4, -1),)
    (cut,) = hidden.cut_off
    assert (cut.producer_id, cut.first, cut.hole.start, cut.hole.end) == (7, 2, 5, 8)
    assert "producer 7" in cut.reason
    assert "5 to 7" in cut.reason
    assert find_hidden(archive.store, view_of(archive), 8, 10).cut_off == ()
