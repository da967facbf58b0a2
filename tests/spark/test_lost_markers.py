"""Transactions whose end marker compaction removed (R02, the last sentence of reading rule 4).

Two leaders' copies of the same offsets: one was shipped before the cleaner ran, the other so late that markers may be
missing from it. The tests check which of the first one's records count.
"""

import random
import struct
from dataclasses import dataclass
from itertools import pairwise

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.matrix import cases
from tests.spark.archives import Archive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.view import open_view
from ts_reader.reading.transactions import stable_end

ABORT, COMMIT = 0, 1
COMMITTED = {"subscribe": "t", "kafka.isolation.level": "read_committed"}


def plain(*offsets: int, epoch: int = 0) -> bytes:
    """Records outside of transactions, a batch each."""
    return b"".join(batch(offset, [record(0, b"k%d" % offset)], epoch=epoch) for offset in offsets)


def data(producer: int, *offsets: int) -> bytes:
    """Records of a producer's transaction, a batch each."""
    return b"".join(
        batch(offset, [record(0, b"k%d" % offset)], attributes=TRANSACTIONAL, producer_id=producer)
        for offset in offsets
    )


EARLY = plain(0, 1, 2, 3) + data(7, 4, 5, 6) + plain(7, 8, 9)  # [0, 10): the marker was at 12


def both(archive: Archive, late: bytes, *, early: bytes = EARLY, stable: int | None = 15) -> Archive:
    """A copy `[0, 10)` that was shipped early, and one of another leader that reaches up to 15."""
    archive.put_segment("t", 0, early)
    archive.put_segment("t", 0, late, variant=True, late=True)
    archive.commit("t", 15, last_stable_offset=stable)
    return archive


def test_r02_what_the_furthest_copy_does_not_hold_was_aborted_or_is_old(archive: Archive) -> None:
    """Neither the records nor the marker are left in it, so the earlier copy's records are not shown."""
    both(archive, plain(0, 1, 8, 14))
    assert archive.offsets(subscribe="t") == [*range(10), 14]
    assert archive.offsets(**COMMITTED) == [0, 1, 2, 3, 7, 8, 9, 14]
    for start, end in ((5, 9), (6, 7), (0, 5), (4, 15)):
        bounds = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{end}}}}}'}
        shown = [offset for offset in (0, 1, 2, 3, 7, 8, 9, 14) if start <= offset < end]
        assert archive.offsets(**COMMITTED, **bounds) == shown


def test_r02_what_the_furthest_copy_holds_counts(archive: Archive) -> None:
    """The cleaner would have dropped it, had it been aborted."""
    both(archive, plain(0) + data(7, 5) + plain(14))
    assert archive.offsets(**COMMITTED) == [0, 1, 2, 3, 5, 7, 8, 9, 14]


def test_r02_where_one_copy_is_all_there_is_it_counts(archive: Archive) -> None:
    """A copy that was shipped late proves nothing about offsets outside of its coverage."""
    archive.put_segment("t", 0, EARLY)
    archive.put_segment("t", 10, plain(10, 14), late=True)
    archive.commit("t", 15, last_stable_offset=15)
    assert archive.offsets(**COMMITTED) == [*range(11), 14]


def test_r02_of_copies_that_reach_equally_far_one_is_enough(archive: Archive) -> None:
    """Both are of the latest log, one of them from before the cleaner's next run."""
    archive.put_segment("t", 0, EARLY + plain(10, 11, 13, 14))
    archive.put_segment("t", 0, plain(0, 14), variant=True, late=True)
    archive.commit("t", 15, last_stable_offset=15)
    assert archive.offsets(**COMMITTED) == [*range(12), 13, 14]


def test_r02_a_marker_that_cannot_be_missing_decides(archive: Archive) -> None:
    """A copy that was shipped in time covers all up to it: committed records are shown, whatever a late copy lacks."""
    both(archive, plain(0, 1, 8, 14))
    archive.put_segment("t", 10, plain(10, 11) + marker(12, 7, COMMIT) + plain(13, 14))
    assert archive.offsets(**COMMITTED) == [*range(12), 13, 14]


def test_r02_a_later_marker_of_the_same_producer_is_not_trusted(archive: Archive) -> None:
    """Its own transaction's records are shown; those of the one before, whose marker may be missing, are not."""
    both(archive, plain(0) + data(7, 11) + marker(13, 7, COMMIT) + plain(14))
    assert archive.offsets(**COMMITTED) == [0, 1, 2, 3, 7, 8, 9, 11, 14]


def test_r02_a_dead_tail_reaches_nowhere(archive: Archive) -> None:
    """A late copy that an election killed from offset 8 on does not reach as far as the early one."""
    archive.put_segment("t", 0, EARLY)
    archive.put_segment("t", 0, plain(0) + plain(8, 14, epoch=1), variant=True, late=True)
    archive.put_segment("t", 10, plain(10, epoch=0) + plain(14, epoch=2), late=True)
    archive.commit("t", 15, epochs=((0, 0), (2, 11)), last_stable_offset=15)
    assert archive.offsets(**COMMITTED) == [*range(11), 14]


@pytest.mark.parametrize(("late", "stable"), [(plain(0, 14), 15), (data(7, 5) + plain(14), 5), (data(8, 13), 13)])
def test_r02_a_lost_marker_does_not_hold_back_the_stable_end(archive: Archive, late: bytes, stable: int) -> None:
    """If the commit has none: an open transaction holds it back, one without records does not."""
    both(archive, late, stable=None)
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    assert stable_end(archive.store, view) == stable


def test_r02_what_the_cleaner_emptied_is_no_open_transaction(archive: Archive) -> None:
    """The cleaner keeps a producer's last batch, without records, after it removed the marker."""
    emptied = batch(6, [], attributes=TRANSACTIONAL, producer_id=7, count=0, last_offset_delta=0)
    both(archive, plain(0) + emptied + plain(14), stable=None)
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    assert stable_end(archive.store, view) == 15
    assert archive.offsets(**COMMITTED) == [0, 1, 2, 3, 7, 8, 9, 14]


@dataclass(frozen=True)
class Entry:
    """One offset of a log: a record, or a marker (no key).

    Attributes:
        key: of the record.
        transaction: which it belongs to; None for none.
    """

    key: int | None
    transaction: int | None


END = 60


def true_log(draw: random.Random) -> tuple[list[Entry], dict[int, int], dict[int, bool]]:
    """A log, the producer of each transaction, and whether it was committed."""
    log: list[Entry] = []
    producers: dict[int, int] = {}
    fates: dict[int, bool] = {}
    open_ones: dict[int, int] = {}
    while len(log) < END:
        producer = draw.randrange(4)
        room = END - len(log) - len(open_ones)  # what is open has to end
        if producer in open_ones and (draw.random() < 0.3 or not room):
            log.append(Entry(None, open_ones.pop(producer)))
        elif producer == 3 and room:
            log.append(Entry(draw.randrange(8), None))
        elif producer != 3 and (room > 1 or (room and producer in open_ones)):
            if producer not in open_ones:
                open_ones[producer] = len(producers)
                fates[len(producers)] = draw.random() < 0.5
                producers[len(producers)] = producer
            log.append(Entry(draw.randrange(8), open_ones[producer]))
    return log, producers, fates


def cleaned(log: list[Entry], fates: dict[int, bool], *, forgets: bool) -> set[int]:
    """Return the offsets that the cleaner leaves; it removes markers of transactions without remaining records."""
    counting = {
        n: entry.key
        for n, entry in enumerate(log)
        if entry.key is not None and (entry.transaction is None or fates[entry.transaction])
    }
    newest = {key: n for n, key in counting.items()}
    kept = set(newest.values())
    alive = {log[n].transaction for n in kept}
    return kept | {
        n for n, entry in enumerate(log) if entry.key is None and (not forgets or entry.transaction in alive)
    }


def encoded(
    log: list[Entry], offsets: list[int], producers: dict[int, int], fates: dict[int, bool]
) -> tuple[bytes, bytes | None]:
    """A segment of these offsets, and its `.txnindex` where it has an abort marker."""
    body, index = b"", b""
    for n in offsets:
        key, transaction = log[n].key, log[n].transaction
        if transaction is None:
            body += plain(n)
        elif key is not None:
            body += data(producers[transaction], n)
        else:
            body += marker(n, producers[transaction], COMMIT if fates[transaction] else ABORT)
            if not fates[transaction]:
                first = min(m for m in range(END) if log[m].transaction == transaction)
                undecided = (m for m in range(n) if log[m].transaction not in {None, *ended(log, n)})
                index += struct.pack(">hqqqq", 0, producers[transaction], first, n, min(undecided, default=n + 1))
    return body, index or None


def ended(log: list[Entry], end: int) -> set[int | None]:
    """Return the transactions whose marker is at or below an offset."""
    return {entry.transaction for entry in log[: end + 1] if entry.key is None}


@pytest.mark.parametrize("seed", cases(range(400), quick=range(12)))
def test_r02_nothing_is_shown_that_the_furthest_copy_lacks_and_nothing_is_hidden_that_counts(
    archive: Archive, seed: int
) -> None:
    """Random logs, and leaders' copies of them: before the cleaner, after it, and after it forgot markers."""
    draw = random.Random(seed)
    log, producers, fates = true_log(draw)
    held: list[tuple[int, int, set[int], bool]] = []
    for leader in range(3):
        state = "raw" if leader == 0 else draw.choice(["raw", "cleaned", "late"])
        left = set(range(END)) if state == "raw" else cleaned(log, fates, forgets=state == "late")
        bounds = sorted({0, END, *(draw.randrange(1, END) for _ in range(draw.randrange(4)))})
        for start, end in pairwise(bounds):
            if leader and draw.random() < 0.3:
                continue
            here = sorted(n for n in left if start <= n < end)
            if leader and not here:
                continue
            body, index = encoded(log, here, producers, fates)
            archive.put_segment("t", start, body, end=end, variant=bool(leader), txnindex=index, late=state == "late")
            held.append((start, end, set(here), state == "late"))
    archive.commit("t", END, last_stable_offset=END)
    shown = set(archive.offsets(**COMMITTED))
    in_time = {n for start, end, _, is_late in held if not is_late for n in range(start, end)}
    for n, entry in enumerate(log):
        if entry.key is None:
            assert n not in shown
            continue
        over = [copy for copy in held if copy[0] <= n < copy[1]]
        reached = max(end for _, end, _, _ in over)
        furthest_holds = any(n in left for _, end, left, _ in over if end == reached)
        end_marker = next((m for m in range(n, END) if log[m] == Entry(None, entry.transaction)), n)
        if entry.transaction is not None and not fates[entry.transaction]:
            assert n not in shown or furthest_holds, f"aborted record {n} is shown"
            assert n not in shown or not any(end_marker in left for _, _, left, _ in held), (
                f"its marker {end_marker} is there"
            )
        elif any(n in left for _, _, left, _ in over):
            certain = entry.transaction is None or all(m in in_time for m in range(n, end_marker + 1))
            assert n in shown or not (furthest_holds or certain), f"record {n} is hidden"
