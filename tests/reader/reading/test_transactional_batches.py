"""The transactional batches of a segment, by their headers."""

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import only_copy
from ts_common.errors import CorruptData
from ts_reader.reading.transactional_batches import read_transactional

FIRST = batch(2, [record(0), record(1)], attributes=TRANSACTIONAL, producer_id=7)
SECOND = batch(6, [record(0)], attributes=TRANSACTIONAL, producer_id=8)
LOG = batches((0, 2)) + FIRST + marker(4, 7, 0) + batches((5, 6)) + SECOND


def put(archive: MadeArchive, body: bytes = LOG) -> None:
    archive.put_segment("t", 0, LOG, body=body)
    archive.commit("t", 7)


def found(archive: MadeArchive, start: int, end: int) -> list[tuple[int, int, bool]]:
    read = read_transactional(archive.store, only_copy(archive), start, end)
    return [(header.base_offset, header.producer_id, bool(records)) for header, records in read]


def test_only_markers_have_their_records(archive: MadeArchive) -> None:
    """A batch that overlaps the range is included; batches outside of transactions are not."""
    put(archive)
    assert found(archive, 0, 7) == [(2, 7, False), (4, 7, True), (6, 8, False)]
    assert found(archive, 3, 6) == [(2, 7, False), (4, 7, True)]


def test_a_wrong_crc_of_any_batch_that_is_passed_is_an_error(archive: MadeArchive) -> None:
    """Also of one that is not wanted; nothing behind the range is read."""
    body = bytearray(LOG)
    body[len(batches((0, 2)) + FIRST + marker(4, 7, 0)) + 65] ^= 1
    put(archive, bytes(body))
    assert found(archive, 0, 5) == [(2, 7, False), (4, 7, True)]
    with pytest.raises(CorruptData, match=r"prod/t-0/.*\.log in .*CRC"):
        found(archive, 0, 7)


def test_an_object_that_is_shorter_than_listed_is_an_error(archive: MadeArchive) -> None:
    """It was cut after it was listed."""
    put(archive)
    copy = only_copy(archive)
    archive.store.put(copy.key, LOG[:-10])
    with pytest.raises(CorruptData):
        list(read_transactional(archive.store, copy, 0, 7))
