"""Transactions that are open where a hole begins (R14): the hole may hold their end, so their records are hidden."""

import random
import struct
from itertools import pairwise

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.matrix import cases
from tests.spark.archives import Archive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import DataLoss
from ts_reader.reading.transactions import stable_end

ABORT, COMMIT = 0, 1
COMMITTED = {"subscribe": "t", "kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}
PRODUCER = 5


def data(start: int, end: int, producer: int = PRODUCER) -> bytes:
    """Offsets `[start, end)` of a producer's transaction, a batch each."""
    return b"".join(
        batch(offset, [record(0)], attributes=TRANSACTIONAL, producer_id=producer) for offset in range(start, end)
    )


def plain(start: int, end: int) -> bytes:
    return b"".join(batch(offset, [record(0)]) for offset in range(start, end))


def entry(producer: int, first: int, last: int, stable: int) -> bytes:
    """Of a `.txnindex`."""
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


def with_gap(
    archive: Archive, below: bytes, above: bytes, *, stable: int | None = 30, txnindex: bytes | None = None
) -> Archive:
    """A copy of `[0, 10)`, a recorded gap `[10, 20)`, and a copy of `[20, 30)`, with its `.txnindex`."""
    archive.put_segment("t", 0, below, end=10)
    archive.store.put(archive.partition("t").gap(10, 20), Gap(10, 20, "retention", 0, 1).encode())
    archive.put_segment("t", 20, above, end=30, txnindex=txnindex)
    archive.commit("t", 30, highest_base=20, last_stable_offset=stable)
    return archive


def between(start: int, end: int) -> dict[str, str]:
    return {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{end}}}}}'}


def test_r14_records_whose_marker_is_in_a_gap_are_hidden_and_reported(archive: Archive) -> None:
    """The abort marker was at 12, and retention deleted it before it was shipped."""
    with_gap(archive, plain(0, 2) + data(2, 10), plain(20, 30))
    assert archive.offsets(**COMMITTED) == [0, 1, *range(20, 30)]
    told = "t-0: offsets 2 to 9 are not shown as far as producer 5 wrote them"
    assert any(str(loss).startswith(told) for loss in archive.plan(**COMMITTED).losses)
    assert archive.offsets(subscribe="t", failOnDataLoss="false") == [*range(10), *range(20, 30)]


@pytest.mark.parametrize(("kind", "shown"), [(COMMIT, range(20, 25)), (ABORT, range(0))])
def test_r14_a_marker_behind_the_hole_may_be_the_next_transactions(archive: Archive, kind: int, shown: range) -> None:
    """The first transaction's abort lies in the hole, where the second one began; its marker counts behind the hole."""
    txnindex = entry(PRODUCER, 15, 25, 26) if kind == ABORT else None
    with_gap(archive, data(0, 10), data(20, 25) + marker(25, PRODUCER, kind) + plain(26, 30), txnindex=txnindex)
    assert archive.offsets(**COMMITTED) == [*shown, *range(26, 30)]


def test_r14_what_ended_before_the_hole_is_shown(archive: Archive) -> None:
    """Only what is open where the hole begins is in doubt; another producer's transaction is."""
    below = data(0, 3) + data(3, 6, producer=6) + marker(6, PRODUCER, COMMIT) + plain(7, 10)
    with_gap(archive, below, plain(20, 30))
    assert archive.offsets(**COMMITTED) == [0, 1, 2, 7, 8, 9, *range(20, 30)]


def test_r14_a_transaction_that_began_inside_the_hole_is_decided_by_its_own_marker(archive: Archive) -> None:
    """Nothing below the hole is its, and behind it the marker decides."""
    with_gap(archive, plain(0, 10), data(20, 24) + marker(24, PRODUCER, COMMIT) + plain(25, 30))
    assert archive.offsets(**COMMITTED) == [*range(10), *range(20, 24), *range(25, 30)]


def test_r14_what_began_below_the_logs_start_is_open_by_what_is_shown_of_it(archive: Archive) -> None:
    """If the view begins inside a transaction, its records above are hidden, and nothing below is read."""
    with_gap(archive, data(0, 10), plain(20, 30))
    archive.commit("t", 30, highest_base=20, last_stable_offset=30, log_start=6)
    assert archive.offsets(**COMMITTED) == [*range(20, 30)]
    archive.commit("t", 30, highest_base=20, last_stable_offset=30, log_start=10)
    assert archive.plan(**COMMITTED).splits
    assert not any("not shown" in str(loss) for loss in archive.plan(**COMMITTED).losses)


def test_r14_a_range_below_the_hole_is_in_doubt_too(archive: Archive) -> None:
    """A query that ends long before the hole meets the transaction, and fails where losses are not allowed."""
    with_gap(archive, plain(0, 2) + data(2, 4) + plain(4, 6) + data(6, 7) + plain(7, 10), plain(20, 30))
    assert archive.offsets(**{**COMMITTED, **between(1, 5)}) == [1, 4]
    with pytest.raises(DataLoss, match="offsets 2 to 9 are not shown"):
        archive.plan(**{**COMMITTED, **between(1, 5), "failOnDataLoss": "true"})
    assert archive.offsets(**{**COMMITTED, **between(7, 10), "failOnDataLoss": "true"}) == [7, 8, 9]


def test_r14_a_hole_without_a_record_is_as_one_with(archive: Archive) -> None:
    """A segment that was removed by hand, and a transaction that is cut off at each of two holes."""
    for base in (0, 20, 40):
        archive.put_segment("t", base, data(base, base + 5) + plain(base + 5, base + 10))
    archive.commit("t", 50, highest_base=40, last_stable_offset=50)
    assert archive.offsets(**COMMITTED) == [*range(5, 10), *range(25, 30), *range(40, 50)]


def test_r14_the_last_stable_offset_is_as_before(archive: Archive) -> None:
    """If the commit has no last stable offset, a marker after the hole ends the producer's transaction before it."""
    with_gap(archive, data(0, 10), data(20, 24) + marker(24, PRODUCER, COMMIT) + plain(25, 30), stable=None)
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    assert stable_end(archive.store, view) == 30


@pytest.mark.parametrize("seed", cases(range(400), quick=range(10)))
def test_r14_with_holes_nothing_aborted_is_shown_and_no_more_is_hidden_than_is_in_doubt(
    archive: Archive, seed: int
) -> None:
    """Random logs of three producers without random segments; any range of them is read."""
    draw = random.Random(seed)
    end, log, open_ones = 80, [], dict[int, int]()
    fates: dict[int, bool] = {}
    whose: list[tuple[int, int] | None] = []  # of each offset: producer and transaction; None outside of any
    indexes: list[bytes] = []  # of each offset, its entries in a `.txnindex`
    for offset in range(end):
        indexes.append(b"")
        producer = draw.randrange(4)
        if end - offset <= len(open_ones):
            producer = next(iter(open_ones))
        if producer in open_ones and (draw.random() < 0.3 or end - offset <= len(open_ones)):
            transaction = open_ones.pop(producer)
            fates[transaction] = draw.random() < 0.5
            if not fates[transaction]:
                indexes[offset] = entry(producer, transaction, offset, min(open_ones.values(), default=offset + 1))
            log.append(marker(offset, producer, COMMIT if fates[transaction] else ABORT))
            whose.append((producer, -1))
        elif producer == 3 or end - offset <= len(open_ones) + 1:
            log.append(plain(offset, offset + 1))
            whose.append(None)
        else:
            log.append(data(offset, offset + 1, producer))
            whose.append((producer, open_ones.setdefault(producer, offset)))
    bounds = sorted({0, end, *(draw.randrange(1, end) for _ in range(7))})
    held = [(low, high) for low, high in pairwise(bounds) if draw.random() < 0.7] or [(0, end)]
    for low, high in held:
        if seed % 2:  # a Java uploader's: the headers are read
            archive.store.put(archive.partition("t").segment(SegmentName(low)), b"".join(log[low:high]))
        else:
            archive.put_segment("t", low, b"".join(log[low:high]), txnindex=b"".join(indexes[low:high]) or None)
    archive.commit("t", end, highest_base=held[-1][0], last_stable_offset=end, log_start=held[0][0])
    is_held = [any(low <= offset < high for low, high in held) for offset in range(end)]
    start, stop = sorted((draw.randrange(held[0][0], end), draw.randrange(held[0][0], end + 1)))
    if start == stop:
        return
    expected = []
    for offset in (n for n in range(start, stop) if is_held[n]):
        owner = whose[offset]
        if owner is None:
            expected.append(offset)
        elif owner[1] >= 0:
            end_marker = next(n for n in range(offset, end) if whose[n] == (owner[0], -1))
            if all(is_held[offset : end_marker + 1]) and fates[owner[1]]:
                expected.append(offset)
    assert archive.offsets(**{**COMMITTED, **between(start, stop)}) == expected
