"""What headers of batches describe, and which batches are decoded all the same."""

import gzip
from typing import Any

import numpy as np
import pytest

from tests.common.log_format.build import LOG_APPEND_TIME, TRANSACTIONAL, batch, marker, message, record
from ts_common.log_format.index_files import AbortedTransaction
from ts_reader.decode.batch_summary import BatchSummary
from ts_reader.decode.columns import Projection
from ts_reader.decode.segment_decoder import SegmentDecoder


def zipped(base: int, records: list[bytes], *, attributes: int = 0, **fields: Any) -> bytes:
    body = gzip.compress(b"".join(records))
    return batch(base, body=body, count=len(records), attributes=attributes | 1, **fields)


FULL = zipped(0, [record(delta, timestamp_delta=-delta) for delta in range(10)], max_timestamp=1000)
SPARSE = zipped(10, [record(2), record(5)], last_offset_delta=9, max_timestamp=1000)
BROKER_TIME = zipped(20, [record(0), record(1)], attributes=LOG_APPEND_TIME, max_timestamp=3000)
EMPTY = batch(22, [], last_offset_delta=3, max_timestamp=9000)
LOG = FULL + SPARSE + BROKER_TIME + EMPTY + marker(26, 5, 1)


def summarized(log: bytes, start: int = 0, end: int = 99, **wanted: bool) -> tuple[BatchSummary, list[int]]:
    """Return the summary, and the offsets of the records that were decoded."""
    summary, offsets = BatchSummary(**wanted), []
    decoder = SegmentDecoder(
        Projection(key=False, value=False, headers=False),
        start,
        end,
        aborted=[AbortedTransaction(7, 30, 39, 40)],
        summary=summary,
    )
    for columns in decoder.decode([log]):
        summary.add(columns.offsets, columns.timestamps)
        offsets += columns.offsets.tolist()
    return summary, offsets


def test_a_number_of_records_needs_a_record_only_of_a_cut_batch_that_lost_some() -> None:
    """A bound that cuts a whole batch leaves as many records as offsets."""
    for start, end, rows, decoded in (
        (0, 99, 14, []),
        (3, 99, 11, []),
        (3, 11, 7, []),
        (3, 14, 8, [12]),
        (14, 99, 3, [15]),
    ):
        summary, offsets = summarized(LOG, start, end, offsets=False, least=False)
        assert (summary.rows, offsets) == (rows, decoded)


def test_offsets_and_the_greatest_timestamp_need_the_first_records_and_those_of_cut_batches() -> None:
    """Batches without records and markers count for nothing, whatever time they have."""
    summary, offsets = summarized(LOG, least=False)
    assert (offsets, summary.rows, summary.first, summary.last, summary.greatest) == ([], 14, 0, 21, 3000)
    summary, offsets = summarized(LOG, 8, least=False)
    assert (offsets, summary.first, summary.greatest) == ([8, 9], 8, 3000)
    summary, offsets = summarized(LOG, 10, 21, least=False)
    assert (offsets, summary.first, summary.last, summary.greatest) == ([12, 15], 12, 20, 3000)


def test_the_last_offset_of_a_batch_that_lost_records_is_unknown() -> None:
    """Its base offset is noted; a batch behind it makes that needless."""
    summary, _ = summarized(FULL + SPARSE, least=False)
    assert (summary.rows, summary.last, summary.sparse) == (12, 9, 10)
    summary, _ = summarized(LOG, least=False)
    assert (summary.sparse, summary.last) == (10, 21)
    assert summarized(FULL, least=False)[0].sparse is None


def test_the_least_timestamp_needs_the_records_of_their_producers_time() -> None:
    """Not those with the broker's time, and not the only one of its batch."""
    one = zipped(30, [record(0)], base_timestamp=500, max_timestamp=500)
    summary, offsets = summarized(LOG + one)
    assert offsets == [*range(10), 12, 15]
    assert (summary.rows, summary.least, summary.greatest, summary.last) == (15, 500, 3000, 30)


@pytest.mark.parametrize("wanted", [{"offsets": False, "least": False}, {"least": False}, {}])
def test_old_messages_are_decoded_and_aborted_transactions_are_not(wanted: dict[str, bool]) -> None:
    """A run of messages is no batch; a hidden batch counts for nothing."""
    hidden = batch(30, [record(0)], attributes=TRANSACTIONAL, producer_id=7)
    summary, offsets = summarized(message(1, 3, b"v") + message(1, 4, b"v") + hidden, **wanted)
    assert (offsets, summary.rows, summary.first, summary.last, summary.greatest) == ([3, 4], 2, 3, 4, 77)


def test_records_are_counted_as_they_are_shown_where_a_header_can_be_wrong() -> None:
    """No broker checks batches without a codec; after one that counts too many records no header is used."""
    plain = batch(0, [record(0), record(0), record(1)], last_offset_delta=2)
    summary, offsets = summarized(plain + FULL[:8].replace(b"\0" * 8, (3).to_bytes(8, "big")) + FULL[8:], least=False)
    assert (offsets, summary.rows, summary.last) == ([0, 1, *range(3, 13)], 12, 12)
    wrong = zipped(0, [record(0), record(1), record(2)], last_offset_delta=0)
    summary, offsets = summarized(wrong + zipped(1, [record(0)]) + zipped(2, [record(0), record(1)]), least=False)
    assert (offsets, summary.rows, summary.last) == ([0, 1, 2, 3], 4, 3)


@pytest.mark.parametrize("batches_between", [0, 64])  # 64 are decoded together
@pytest.mark.parametrize(
    "before",
    [
        batch(0, [record(0), record(70)], last_offset_delta=1),
        message(0, 1, gzip.compress(message(0, 0, b"v") + message(0, 70, b"v")), attributes=1),
    ],
    ids=["batch", "wrapper"],
)
def test_records_above_their_header_hide_those_of_a_described_batch(before: bytes, batches_between: int) -> None:
    """A record with an offset above its header's hides the next ones, which the number of records leaves out."""
    between = b"".join(batch(2 + number, [], last_offset_delta=0) for number in range(batches_between))
    described = zipped(66, [record(number) for number in range(10)], attributes=LOG_APPEND_TIME)
    summary, offsets = summarized(before + between + described)
    assert (offsets, summary.rows, summary.last) == ([0, 70, *range(71, 76)], 7, 75)


@pytest.mark.parametrize(
    "behind",
    [
        batch(10, [record(-6), record(0)], last_offset_delta=1),
        message(1, 11, gzip.compress(message(1, 0, b"hidden") + message(1, 6, b"v")), attributes=1),
    ],
    ids=["batch", "wrapper"],
)
def test_a_batch_that_its_header_describes_hides_later_records_of_its_offsets(behind: bytes) -> None:
    """A consumer's position is behind such a batch, so a record of the next one can be below it."""
    summary, offsets = summarized(zipped(0, [record(n) for n in range(10)], attributes=LOG_APPEND_TIME) + behind)
    assert (summary.rows, offsets) == (11, [10 if behind[16] == 2 else 11])


def test_a_summary_without_a_record_has_none() -> None:
    """Also no offsets."""
    summary, _ = summarized(EMPTY)
    assert (summary.rows, summary.last, summary.sparse) == (0, -1, None)
    summary.add(np.array([4, 6]), np.array([10, 5]))
    assert (summary.rows, summary.first, summary.last, summary.least, summary.greatest) == (2, 4, 6, 5, 10)
