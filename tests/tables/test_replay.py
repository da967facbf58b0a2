"""A replay: what a mended parser accepts moves to the table, once, whatever ends it."""

import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_parsed_tables import FORMATS, NAME, OF_EACH_KIND, Killed, Made, kill_commit
from ts_common.errors import OperatorError
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.plain.target import PlainTarget
from ts_tables.targets import HeadMoved

BROKEN = {"type": "json", "columns": {"id": "long", "at": "timestamp"}}
MENDED = {"type": "json", "columns": {"id": "long", "at": {"type": "timestamp", "unit": "ms"}}}


def value_of(offset: int) -> bytes:
    """Return a value: of five, one has a time as text, one is no JSON, and three have a number that is no text."""
    match offset % 5:
        case 0:
            return json.dumps({"id": offset, "at": "2026-11-26T00:00:00Z"}).encode()
        case 1:
            return b"{"
        case 2:
            return json.dumps([{"id": offset, "at": 1}] * 2).encode()
        case _:
            return json.dumps({"id": offset, "at": offset}).encode()


@pytest.fixture(params=cases(FORMATS, quick=["iceberg"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Make a table whose parser refuses four of five records."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param, {"parser": BROKEN})
    made.put_values(0, [value_of(offset) for offset in range(20)])
    made.put_values(0, [value_of(offset) for offset in range(10)], partition=1)
    made.tables.create(NAME)
    made.tables.run(NAME)
    return made


def places(made: Made, of: str = "") -> list[tuple[Any, ...]]:
    return made.select("select _partition_id, _offset from {} order by all", of)


def expected(kinds: set[int], ends: tuple[int, int] = (20, 10)) -> list[tuple[Any, ...]]:
    """Return the place of each row of records of some kinds."""
    return [
        (partition, offset)
        for partition, end in enumerate(ends)
        for offset in range(end)
        for _ in range(2 if offset % 5 == 2 else 1)
        if offset % 5 in kinds
    ]


def check(made: Made, ends: tuple[int, int] = (20, 10)) -> None:
    """All but the records of kind 1 are rows, and no record is in both tables."""
    assert places(made) == expected({0, 2, 3, 4}, ends)
    assert places(made, "_quarantine") == expected({1}, ends)
    assert made.tables.verify(NAME).differences == ()


@OF_EACH_KIND
def test_accepted_records_move_to_the_table(made: Made) -> None:
    """Those that are refused still have the new reason; rows of before stay; the next run uses the mended parser."""
    assert places(made) == expected({0})
    (before,) = made.select("select distinct _parser from {}", "_quarantine")
    made.more["parser"] = MENDED
    with pytest.raises(OperatorError, match="tsctl tables replay-quarantine"):
        made.tables.run(NAME)
    done = made.tables.replay(NAME)
    assert (done.moved, done.left) == (18, 6)
    check(made)
    (after,) = made.select("select distinct _parser from {}", "_quarantine")
    assert after != before
    assert made.tables.replay(NAME).moved == 0
    made.put_values(20, [value_of(offset) for offset in (21, 22, 23)])
    made.tables.run(NAME)
    assert made.select("select count(*) from {} where _offset >= 20") == [(3,)]
    assert made.select("select count(*) from {} where _offset >= 20", "_quarantine") == [(1,)]
    assert made.tables.verify(NAME).differences == ()


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("is_late", cases([False, True], quick=[True]), ids=["before", "after"])
@pytest.mark.parametrize("again", cases(["run", "replay"], quick=["run"]))
def test_a_replay_that_ends_at_a_commit_is_completed(
    made: Made, monkeypatch: pytest.MonkeyPatch, at: int, is_late: bool, again: str
) -> None:
    """By the next replay, or by a run if the table was committed."""
    made.more["parser"] = MENDED
    with kill_commit(made, monkeypatch, at, is_late=is_late), pytest.raises(Killed):
        made.tables.replay(NAME)
    if again == "run" and (at, is_late) >= (1, True):
        made.tables.run(NAME)
    made.tables.replay(NAME)
    check(made)


@pytest.mark.parametrize("killed", cases([0, 1, 2, None], quick=[1]))
@pytest.mark.parametrize("amid", [0, 1])
def test_a_run_of_the_former_parser_amid_a_replay_leaves_no_table_stuck(
    made: Made, monkeypatch: pytest.MonkeyPatch, amid: int, killed: int | None
) -> None:
    """It was planned before a replay, which ends or is killed at one of its commits."""
    made.put_values(20, [value_of(offset) for offset in range(20, 30)])
    mended = Made(made.archive, made.directory, made.format, {"parser": MENDED})
    kind = IcebergTarget if made.format == "iceberg" else PlainTarget
    commit, count = kind.commit, iter(range(100))

    def replayed(*arguments: Any, **named: Any) -> Any:
        if next(count) == amid:
            monkeypatch.setattr(kind, "commit", commit)
            with suppress(Killed, OperatorError), ExitStack() as stack:
                if killed is not None:
                    stack.enter_context(kill_commit(made, monkeypatch, killed))
                mended.tables.replay(NAME)
        return commit(*arguments, **named)

    monkeypatch.setattr(kind, "commit", replayed)
    with suppress(HeadMoved):
        made.tables.run(NAME)
    monkeypatch.setattr(kind, "commit", commit)
    mended.tables.replay(NAME)
    mended.tables.run(NAME)
    rows, refused = {*places(mended)}, places(mended, "_quarantine")
    assert rows.isdisjoint(refused)
    assert rows >= {*expected({2, 3, 4}, (30, 10))}  # of kind 0 both parsers read none of the other's
    assert sorted(rows | {*refused}) == sorted({*expected({0, 1, 2, 3, 4}, (30, 10))})
    assert mended.tables.verify(NAME).differences == ()


def test_rows_that_an_election_removed_stay(made: Made) -> None:
    """With `on_taken_back: keep`, refused records at offsets of two leaders are not replayed."""
    made.more["on_taken_back"] = "keep"
    made.put_values(15, [b"{", b"[3]"], epoch=1)
    made.tables.run(NAME)
    kept = made.select("select _offset, _reason, _parser from {} where _offset >= 15 order by all", "_quarantine")
    made.more["parser"] = MENDED
    made.tables.replay(NAME)
    assert made.tables.verify(NAME).differences == ()
    left = made.select("select _offset, _reason, _parser from {} where _offset >= 15 order by all", "_quarantine")
    assert left == kept
    assert len(left) == 6


def test_a_replay_during_an_unfinished_run_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that run refused is known only by its own parser."""
    made.put_values(20, [value_of(offset) for offset in (20, 21)])
    with kill_commit(made, monkeypatch, 1), pytest.raises(Killed):
        made.tables.run(NAME)
    made.more["parser"] = MENDED
    with pytest.raises(OperatorError, match="the last run of the table did not end"):
        made.tables.replay(NAME)


@pytest.mark.parametrize(
    ("more", "expected_error"),
    [({"parser": None}, "no record of it is refused"), ({"mode": "latest", "format": "iceberg"}, "has no replay")],
)
def test_a_table_without_a_replay_is_named(tmp_path: Path, more: dict[str, Any], expected_error: str) -> None:
    """A raw table, and one of newest records."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", {"parser": BROKEN, **more})
    made.put_values(0, [value_of(0)])
    made.tables.create(NAME)
    with pytest.raises(OperatorError, match=expected_error):
        made.tables.replay(NAME)


def test_records_that_are_refused_still_stay_with_held_files(tmp_path: Path) -> None:
    """Files that are due by now are merged, and shown."""
    more = {"parser": BROKEN, "max_age": "1h"}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", more)
    for start in (0, 10):
        made.put_values(start, [value_of(offset) for offset in range(start, start + 10)])
        if not start:
            made.tables.create(NAME)
        made.tables.run(NAME)
    made.more = {"parser": MENDED, "max_age": "0s"}
    done = made.tables.replay(NAME)
    assert (done.moved, done.left) == (12, 4)
    made.tables.show_held(NAME)
    assert places(made, "_quarantine") == expected({1}, (20, 0))
    assert made.tables.verify(NAME).differences == ()


def test_a_replay_with_a_parser_of_other_columns_is_refused(made: Made) -> None:
    """Files of before would lack them."""
    made.more["parser"] = {
        "type": "json",
        "columns": {"id": "long", "at": {"type": "timestamp", "unit": "ms"}, "new": "long"},
    }
    with pytest.raises(OperatorError, match=r"other columns|its columns new differ"):
        made.tables.replay(NAME)
    made.more["parser"] = MENDED
    made.tables.replay(NAME)
    check(made)
