"""Which transactions of a partition a cut does not show: those with a later commit marker, and open ones."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.made_views import view_of
from tests.transactions import ABORT, data, ended
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, Transaction, TransactionsAt

DATA = Path(__file__).parent / "data"
NOON = 100_000_000


def spans(archive: MadeArchive, moment: int = NOON) -> list[tuple[int, int, int]]:
    found = TransactionsAt(archive.store, view_of(archive), moment).hidden
    return sorted((one.producer_id, one.first_offset, one.last_offset) for one in found)


def committed(archive: MadeArchive, *producers: int, since: int = 0) -> list[Transaction]:
    return list(TransactionsAt(archive.store, view_of(archive), NOON).committed(frozenset(producers), since))


def test_a_commit_marker_at_the_moment_shows_its_transaction(archive: MadeArchive) -> None:
    """One millisecond later it does not; the times of the records do not matter."""
    log = data(0, NOON - 9) + ended(1, NOON) + data(2, NOON - 8) + ended(3, NOON + 1)
    archive.put_segment("t", 0, log)
    archive.commit("t", 4, last_stable_offset=4)
    assert spans(archive) == [(7, 2, 3)]
    assert spans(archive, NOON - 1) == [(7, 0, 3)]
    assert spans(archive, NOON + 1) == []


def test_later_transactions_of_a_producer_are_one_span_up_to_an_earlier_marker(archive: MadeArchive) -> None:
    """A leader whose clock is behind can write an earlier marker after a later one."""
    log = data(0, 1) + ended(1, NOON + 5) + data(2, 1) + ended(3, NOON + 6) + data(4, 1) + ended(5, NOON - 3)
    archive.put_segment("t", 0, log + data(6, 1, 8) + data(7, 1) + ended(8, NOON + 7))
    archive.commit("t", 9, last_stable_offset=6)
    assert spans(archive) == [(7, 0, 3), (7, 7, 8), (8, 6, 8)]


def test_the_beginning_of_a_later_transaction_is_found_in_earlier_segments(archive: MadeArchive) -> None:
    """Those segments have only earlier times, so that no other part of them is read."""
    archive.put_segment("t", 0, data(0, 5) + ended(1, 6) + data(2, 7) + batches((3, 5)))
    archive.put_segment("t", 5, batches((5, 10), time=0))
    archive.put_segment("t", 10, data(10, 9) + ended(11, NOON + 1))
    archive.commit("t", 12, highest_base=10, last_stable_offset=12)
    assert spans(archive) == [(7, 2, 11)]


def test_a_first_sequence_number_is_a_beginning(archive: MadeArchive) -> None:
    """No earlier segment is read: this one is missing."""
    archive.put_segment("t", 0, batches((0, 10), time=0))
    archive.put_segment("t", 10, data(10, 9, sequence=0) + ended(11, NOON + 1))
    archive.commit("t", 12, highest_base=10, last_stable_offset=12)
    view = view_of(archive)
    archive.store.put(view.copies[0].key, b"unreadable")
    found = TransactionsAt(archive.store, view, NOON)
    assert [(one.first_offset, one.last_offset) for one in found.hidden] == [(10, 11)]


def test_an_open_transaction_is_hidden_from_the_last_stable_offset_on(archive: MadeArchive) -> None:
    """Also where no time is later; a commit without that offset has all headers read."""
    archive.put_segment("t", 0, data(0, 5) + ended(1, 6) + data(2, 7) + batches((3, 5), time=0))
    archive.put_segment("t", 5, batches((5, 10), time=0))
    for stable in (2, None):
        archive.commit("t", 10, highest_base=5, last_stable_offset=stable)
        assert spans(archive) == [(7, 2, 9)]


def test_a_transaction_without_a_marker_below_the_last_stable_offset_was_decided(archive: MadeArchive) -> None:
    """Compaction removed its marker: `read_committed` shows it, and so does a cut. The next one can be open."""
    archive.put_segment("t", 0, data(0, 5) + batches((2, 8), time=NOON) + data(8, 5) + batches((9, 10)), end=10)
    archive.commit("t", 10, last_stable_offset=10)
    assert spans(archive) == []
    archive.commit("t", 10, last_stable_offset=8)
    assert spans(archive) == [(7, 8, 9)]


def test_aborted_transactions_are_not_its_subject(archive: MadeArchive) -> None:
    """Neither are markers whose records are below the view."""
    archive.put_segment("t", 0, ended(0, NOON + 1, 8) + data(1, 1) + ended(2, NOON + 1, kind=ABORT))
    archive.commit("t", 3, last_stable_offset=3)
    assert spans(archive) == []


def test_the_transactions_of_some_producers_are_found_between_two_times(archive: MadeArchive) -> None:
    """With their epochs, and with beginnings in segments before that time."""
    archive.put_segment("t", 0, data(0, 5, epoch=3) + data(1, 6, 8) + ended(2, NOON - 9, 8))
    archive.put_segment("t", 3, ended(3, NOON - 4, epoch=4) + data(4, NOON, epoch=4) + ended(5, NOON + 9, epoch=5))
    archive.commit("t", 6, highest_base=3, last_stable_offset=6)
    first = Transaction(7, 3, 0, 3, begun=5, marker_epoch=4, time=NOON - 4)
    assert committed(archive, 7, since=NOON - 5) == [first]
    assert committed(archive, 8, since=NOON - 5) == []
    assert [each.producer_id for each in committed(archive, 7, 8)] == [8, 7]
    assert first.is_unique
    assert not Transaction(7, 3, 0, 3, 5, 3, NOON).is_unique


def test_late_transactions_began_about_the_moment_at_the_latest(archive: MadeArchive) -> None:
    """An open one has no marker; one that began much later was whole after the moment."""
    after = NOON + CLOCK_MARGIN_MS
    log = data(0, NOON - 1) + data(1, 5, 9, epoch=2) + ended(2, after) + data(3, after + 1) + ended(4, after + 2)
    archive.put_segment("t", 0, log)
    archive.commit("t", 5, last_stable_offset=1)
    late = TransactionsAt(archive.store, view_of(archive), NOON).late
    assert late == (Transaction(7, 0, 0, 2, NOON - 1, 0, after), Transaction(9, 2, 1, 4, 5))
    assert spans(archive) == [(7, 0, 4), (9, 1, 4)]


@pytest.mark.parametrize(("below", "is_late"), [(NOON + CLOCK_MARGIN_MS, True), (NOON + CLOCK_MARGIN_MS + 1, False)])
def test_the_marker_below_a_certain_transaction_reports_when_it_began(
    archive: MadeArchive, below: int, is_late: bool
) -> None:
    """A leader wrote its time; that of a record can be hours ahead, and the marker a day late."""
    log = data(0, 1, 8) + ended(1, below, 8) + data(2, 1 << 40, epoch=3) + ended(3, 1 << 40, epoch=4)
    archive.put_segment("t", 0, log)
    archive.commit("t", 4, last_stable_offset=4)
    late = TransactionsAt(archive.store, view_of(archive), NOON).late
    assert [each.not_before for each in late if each.producer_id == 7] == ([below] if is_late else [])


@pytest.mark.parametrize("partition", [0, 1])
def test_a_real_brokers_markers_have_the_next_producer_epoch(archive: MadeArchive, partition: int) -> None:
    """Kafka 4.1 with `transaction.version` 2: in both partitions a transaction has the same two epochs."""
    archive.put_segment("t", 0, (DATA / f"transaction-version-2-{partition}.log").read_bytes())
    archive.commit("t", 12, last_stable_offset=12)
    found = TransactionsAt(archive.store, view_of(archive), 1 << 60).committed(frozenset({0}), 0)
    assert [(each.epoch, each.marker_epoch, each.first, each.last, each.is_unique) for each in found] == [
        (0, 1, 0, 2, True),
        (1, 2, 3, 5, True),
        (3, 4, 9, 11, True),
    ]
