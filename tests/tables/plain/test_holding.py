"""Files that are held: rows are claimed at once, and shown when a file is full or old enough."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, put, verified
from ts_common.errors import CorruptData
from ts_common.store.shared_stores import shared_store
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.files.layout import FileFormat
from ts_tables.plain import opened as opened_files
from ts_tables.plain.entries import PlainFile
from ts_tables.plain.holding import Holding, sort_out


class Clock:
    """A clock that a test sets."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(opened_files, "time", clock)
    return clock


def made(tmp_path: Path, form: FileFormat = FileFormat.PARQUET) -> MadeTable:
    archive = MadeArchive(tmp_path / "archive")
    table = MadeTable(
        archive, tmp_path / "lake", format=form, max_age=3600, policy=Policy(on_taken_back=OnTakenBack.DELETE)
    )
    table.create()
    return table


@pytest.mark.parametrize("form", [*FileFormat])
def test_small_files_become_one_when_the_oldest_is_old_enough(tmp_path: Path, clock: Clock, form: FileFormat) -> None:
    """Nothing is shown before; then a run without news shows one file with all rows."""
    table = made(tmp_path, form)
    for start in range(0, 150, 50):
        put(table.archive, start, start + 50)
        assert table.run().records == 50
        clock.now += 1000
    assert table.paths() == []
    assert table.offsets() == list(range(150))  # claimed and staged
    assert verified(table).differences == ()
    assert table.run().commits == 0
    clock.now += 600
    summary = table.run()
    assert (summary.commits, summary.records, summary.files) == (1, 0, 1)
    assert len(table.paths()) == 1
    assert table.offsets() == list(range(150))
    assert verified(table).differences == ()
    assert table.files() == table.committed_files()
    assert table.run().commits == 0


def test_held_bytes_that_changed_are_not_merged(tmp_path: Path, clock: Clock) -> None:
    """A merge reads each file whole; one that was cut would be shown without its last rows."""
    table = made(tmp_path)
    for start in range(0, 100, 50):
        put(table.archive, start, start + 50)
        table.run()
    store = shared_store(table.place.location)
    held = [each.key for each in store.list() if "/staging/" in each.key]
    data = [store.get(key)[0] for key in held]
    store.put(held[0], data[1])
    clock.now += 4000
    with pytest.raises(CorruptData, match="has other bytes than those that were written"):
        table.run()
    assert table.paths() == []
    store.put(held[0], data[0])
    table.run()
    assert table.offsets() == list(range(100))


def test_a_full_file_is_shown_at_once(tmp_path: Path, clock: Clock) -> None:
    """The held ones are merged as soon as they fill it."""
    del clock
    table = made(tmp_path)
    put(table.archive, 0, 50)
    table.run()
    table.target_bytes = 5 * sum(each.size for each in table.plain().open().contents.held) // 2
    put(table.archive, 50, 100)
    table.run()
    assert table.paths() == []
    put(table.archive, 100, 150)
    table.run()
    assert len(table.paths()) == 1
    assert table.offsets() == list(range(150))


def test_held_rows_that_an_election_removes_never_appear(tmp_path: Path, clock: Clock) -> None:
    """An election removes them from the log before their file is shown."""
    table = made(tmp_path)
    put(table.archive, 0, 50)
    table.run()
    table.archive.put_segment("t", 0, batches(*steps(0, 20)), variant=True)
    table.archive.put_segment("t", 20, batches(*steps(20, 40), epoch=1, value=b"w"), variant=True)
    table.archive.commit("t", 40, epochs=[(0, 0), (1, 20)], highest_base=20, last_stable_offset=40)
    table.run()
    clock.now += 4000
    table.run()
    assert [row["value"] for row in table.rows()] == [b"v"] * 20 + [b"w"] * 20
    assert table.offsets() == list(range(40))
    assert len(table.paths()) == 1
    assert verified(table).differences == ()


def test_rows_that_are_shown_are_not_held_again(tmp_path: Path, clock: Clock) -> None:
    """An election removes a part of a shown file from the log; its other rows stay, in another one."""
    table = made(tmp_path)
    put(table.archive, 0, 50)
    table.run()
    clock.now += 4000
    table.run()
    table.archive.put_segment("t", 0, batches(*steps(0, 20)), variant=True)
    table.archive.put_segment("t", 20, batches(*steps(20, 40), epoch=1), variant=True)
    table.archive.commit("t", 40, epochs=[(0, 0), (1, 20)], highest_base=20, last_stable_offset=40)
    table.run()
    assert table.plain().contents().rows == 40
    assert table.offsets() == list(range(40))


def test_a_clock_that_was_ahead_holds_nothing_for_longer(tmp_path: Path, clock: Clock) -> None:
    """Files that were first held in the future are shown."""
    table = made(tmp_path)
    put(table.archive, 0, 50)
    clock.now += 10**6
    table.run()
    clock.now -= 10**6
    table.run()
    assert len(table.paths()) == 1


def test_an_election_does_not_renew_the_age_of_other_rows(tmp_path: Path, clock: Clock) -> None:
    """Rows that are held in a file that is written again are as old as before."""
    table = made(tmp_path)
    put(table.archive, 0, 50)
    table.run()
    clock.now += 3000
    table.archive.put_segment("t", 0, batches(*steps(0, 20)), variant=True)
    table.archive.put_segment("t", 20, batches(*steps(20, 40), epoch=1), variant=True)
    table.archive.commit("t", 40, epochs=[(0, 0), (1, 20)], highest_base=20, last_stable_offset=40)
    table.run()
    clock.now += 1000
    table.run()
    assert len(table.paths()) == 1


def test_files_of_one_key_are_merged_and_others_wait() -> None:
    """Each partition key has its own age and size; a file that is large enough is shown as it is."""

    def file(name: str, key: str, size: int, since: int = 0) -> PlainFile:
        return PlainFile(name, size, 0, 1, (key,), (), since)

    held = [file("a", "x", 10, 100), file("b", "x", 10, 190), file("c", "y", 10, 190)]
    found = sort_out(
        held, [file("d", "x", 10), file("e", "y", 10), file("f", "z", 95), file("g", "z", 5)], HOLDING, 200
    )
    assert [[each.path for each in some] for some in found.merges] == [["a", "b", "d"]]
    assert [each.path for each in found.shown] == ["f", "g"]
    assert [(each.path, each.since) for each in found.held] == [("c", 190), ("e", 200)]


HOLDING = Holding(target_bytes=100, max_age=100)
