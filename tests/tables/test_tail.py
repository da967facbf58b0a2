"""Tables that claim records of a live tail: each row once, and what an election removes of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.made_tail import MadeTail, entry, live, plain, ship
from tests.tables.made_tables import MadeTable, verified
from tests.transactions import ABORT, data, ended
from ts_reader.following.commit_snapshot import CommitSnapshot, Observer
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.files.layout import FileFormat


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Return a closed segment `[0, 100)` of topic `t`, and packs with its tail up to 130."""
    archive = MadeArchive(tmp_path / "store")
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)), plain(archive, (110, 130)))
    return archive


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    """Return a new table of plain files."""
    table = MadeTable(archive, tmp_path / "lake", format=FileFormat.PARQUET)
    table.create()
    return table


def close(archive: MadeArchive, end: int) -> None:
    archive.put_segment("t", 100, batches((100, end)))
    archive.commit("t", end, highest_base=100, last_stable_offset=end, live=live((0, end)))


def test_a_table_has_each_record_of_a_tail_once(archive: MadeArchive, table: MadeTable) -> None:
    """Its claims reach into the tail; the segment that closes later has records of both sides of their end."""
    assert table.run().records == 130
    close(archive, 150)
    assert table.run().records == 20
    assert table.offsets() == list(range(150))
    assert (found := verified(table)).rows == len(table.offsets())
    assert (found.differences, found.notes) == ((), ())


def test_a_table_without_tails_ends_at_the_next_offset(archive: MadeArchive, table: MadeTable) -> None:
    """It claims closed segments alone."""
    table.tail = False
    assert table.run().records == 100


def test_a_table_whose_tail_is_not_shown_for_a_time_waits(archive: MadeArchive, table: MadeTable) -> None:
    """A commit that was written again names no tail: the run deletes no row, and adds no row twice."""
    table.run()
    archive.commit("t", 100, live=None)
    assert table.run().records == 0
    close(archive, 140)
    assert table.run().records == 10
    assert table.offsets() == list(range(140))


def after_the_look(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Change the archive after a run has read the commits, and before it reads the views."""
    look = Observer.look

    def looked(observer: Observer, *, is_first: bool) -> CommitSnapshot:
        found = look(observer, is_first=is_first)
        change()
        return found

    monkeypatch.setattr(Observer, "look", looked)


def test_a_tail_that_ends_earlier_than_at_the_look_is_claimed_as_far_as_it_is_shown(
    archive: MadeArchive, table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan reads the commits first, and the views later; what is between is claimed by a later run."""
    after_the_look(monkeypatch, lambda: archive.commit("t", 100, live=None))
    assert table.run().records == 100
    monkeypatch.undo()
    archive.commit("t", 100, live=live((0, 100)))
    assert table.run().records == 30
    assert table.offsets() == list(range(130))


def test_rows_of_a_tail_that_an_election_removed_are_replaced(archive: MadeArchive, table: MadeTable) -> None:
    """The new leader's epochs are in the commit before a segment closes."""
    table.policy = Policy(on_taken_back=OnTakenBack.DELETE)
    table.run()
    archive.commit("t", 100, live=live((0, 100), (2, 115), log="2"), epoch=2)
    kept, new = plain(archive, (100, 115), epoch=2, batch_epoch=0), plain(archive, (115, 120), epoch=2)
    MadeTail(archive, "2").put(kept, new)
    assert table.run().records == 5
    assert table.offsets() == list(range(120))
    assert (found := verified(table)).rows == len(table.offsets())
    assert (found.differences, found.notes) == ((), ())


def test_rows_of_an_election_after_the_look_are_claimed_with_its_log(
    archive: MadeArchive, table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed with the log of before, they would be removed rows for the next run, which adds them a second time."""
    table.policy = Policy(on_taken_back=OnTakenBack.KEEP)

    def elected() -> None:
        archive.commit("t", 100, live=live((0, 100), (2, 115), log="2"), epoch=2)
        MadeTail(archive, "2").put(
            plain(archive, (100, 115), epoch=2, batch_epoch=0), plain(archive, (115, 135), epoch=2)
        )

    after_the_look(monkeypatch, elected)
    assert table.run().records == 115
    monkeypatch.undo()
    assert table.run().records == 20
    assert table.offsets() == list(range(135))


def test_an_aborted_transaction_whose_marker_is_not_shown_any_more_is_not_claimed(
    archive: MadeArchive, table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look saw its marker, and the view that is read later does not: there the transaction is open."""
    tail, begun = MadeTail(archive, "2"), entry(archive, "t", 100, data(100, 1000), stable=100)
    tail.put(begun, entry(archive, "t", 101, ended(101, 1000, kind=ABORT), aborted=[(7, 100, 101)]))
    archive.commit("t", 100, last_stable_offset=100, live=live((0, 100), log="2"))

    def damaged() -> None:
        """Ship again what cannot be read any more, as far as one pack has it."""
        again = MadeTail(archive, "3")
        again.put(begun)
        archive.commit("t", 100, last_stable_offset=100, live=live((0, 100), log="3"))

    after_the_look(monkeypatch, damaged)
    assert table.run().records == 100
    assert table.offsets() == list(range(100))
