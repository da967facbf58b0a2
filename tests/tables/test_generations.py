"""Generations of a table: one is made next to the table in use, and gets its name."""

import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_parsed_tables import NAME, Killed, Made, kill_call
from ts_common.archive.commit import encode_log_start
from ts_common.archive.table_claims import claims_key, read_claims, tables_with_claims
from ts_common.errors import ConfigurationError, OperatorError
from ts_tables.definition.tables_file import parse_tables
from ts_tables.run import Pace

FIRST = {"type": "json", "columns": {"id": "long", "type": "string"}}
SECOND = {"type": "json", "columns": {"id": "long", "kind": {"type": "string", "path": ["type"]}}}


def value_of(offset: int) -> bytes:
    return b"{" if offset % 10 == 9 else json.dumps({"id": offset, "type": f"t{offset % 3}"}).encode()


def put(made: Made, start: int, end: int) -> None:
    made.put_values(start, [value_of(offset) for offset in range(start, end)])


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a table with twenty records, and with a second generation that was not created."""
    more = {"parser": FIRST, "generations": {2: {"parser": SECOND, "partition_by": "kind"}}}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", more)
    put(made, 0, 20)
    made.tables.create(NAME)
    made.tables.run(NAME)
    return made


def check(made: Made, end: int, column: str) -> None:
    """The table in use has all records, with the column of its generation."""
    expected = [(offset, f"t{offset % 3}") for offset in range(end) if offset % 10 != 9]
    assert made.select(f"select _offset, {column} from {{}} order by _offset") == expected
    refused = made.select("select _offset from {} order by 1", "_quarantine")
    assert refused == [(offset,) for offset in range(9, end, 10)]
    assert made.tables.verify(NAME).differences == ()


def test_a_generation_gets_the_name_of_the_table(made: Made) -> None:
    """With its refused records. The former one is left, follows the archive, and is dropped by its number."""
    second = f"{NAME}@2"
    assert made.tables.create(second)
    made.tables.run(second)
    put(made, 20, 30)
    made.tables.run(NAME)
    check(made, 30, "type")
    with pytest.raises(
        OperatorError, match=r"lake\.events@2 lacks offsets that lake\.events has: t-0 10 offsets from 20 on"
    ):
        made.tables.switch(NAME, 2)
    made.tables.run(second)
    assert made.tables.switch(NAME, 2) == 1
    check(made, 30, "kind")
    put(made, 30, 40)
    made.tables.run(NAME)
    check(made, 40, "kind")
    assert made.tables.run(f"{NAME}@1").records == 9
    assert [(each.number, each.is_in_use) for each in made.tables.generations(NAME)] == [(1, False), (2, True)]
    assert made.tables.switch(NAME, 1) == 2
    check(made, 40, "type")
    made.tables.switch(NAME, 2)
    made.tables.drop(f"{NAME}@1", purge=True)
    assert [each.contents is None for each in made.tables.generations(NAME)] == [True, False]
    check(made, 40, "kind")


@pytest.mark.parametrize("at", cases(range(4), quick=[1, 3]))
@pytest.mark.parametrize("is_late", cases([False, True], quick=[True]), ids=["before", "after"])
def test_a_switch_that_is_killed_at_a_rename_is_completed(
    made: Made, monkeypatch: pytest.MonkeyPatch, at: int, is_late: bool
) -> None:
    """By the same command; a run or a creation in between changes nothing."""
    made.tables.create(f"{NAME}@2")
    made.tables.run(f"{NAME}@2")
    with kill_call(monkeypatch, SqlCatalog, "rename_table", at, is_late=is_late), pytest.raises(Killed):
        made.tables.switch(NAME, 2)
    put(made, 20, 30)
    actions: list[Callable[[str], Any]] = [made.tables.run, made.tables.create]
    for action, name in product(actions, (NAME, f"{NAME}@2")):
        try:
            action(name)
        except OperatorError as error:
            assert "tsctl tables switch" in str(error)  # noqa: PT017
    made.tables.switch(NAME, 2)
    made.tables.run(NAME)
    check(made, 30, "kind")


def test_a_generation_that_differs_is_no_replacement(made: Made) -> None:
    """Unless the comparison is left out."""
    second = f"{NAME}@2"
    made.tables.create(second)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ts_tables.files.parsed_columns.raw_digests", lambda rows: rows["key"])
        made.tables.run(second)
    with pytest.raises(OperatorError, match="differs from the archive in"):
        made.tables.switch(NAME, 2)
    assert made.tables.switch(NAME, 2, compares=False) == 1


def test_each_generation_has_claims_of_its_own(made: Made) -> None:
    """Retention waits for both; a switch does not exchange them."""
    made.tables.create(f"{NAME}@2")
    made.tables.run(f"{NAME}@2")
    made.tables.switch(NAME, 2)
    made.tables.run(NAME)
    keys = [claims_key(made.archive.keys, name) for name in (NAME, f"{NAME}_g2")]
    stored = {info.key for info in made.archive.store.list("")}
    assert {*keys} <= stored
    made.tables.drop(f"{NAME}@1", purge=True)
    stored = {info.key for info in made.archive.store.list("")}
    assert [key in stored for key in keys] == [False, True]


def test_a_generation_of_plain_files_has_a_location_of_its_own(tmp_path: Path) -> None:
    """Its readers switch, so the command is refused."""
    more = {"parser": FIRST, "generations": {2: {"parser": SECOND}}}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", more)
    put(made, 0, 20)
    for name in (NAME, f"{NAME}@2"):
        made.tables.create(name)
        made.tables.run(name)
        assert made.tables.verify(name).differences == ()
    assert [each.is_dir() for each in (tmp_path / "lake/files", tmp_path / "lake/files_g2_quarantine")] == [True, True]
    with pytest.raises(OperatorError, match="its readers name the location"):
        made.tables.switch(NAME, 2)


def test_a_rate_spreads_the_commits(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are as long as the bytes need at the rate."""
    slept: list[float] = []
    clock = iter(range(1_000_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 1000)
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = Pace(1000)
    pace.wait(5000)
    pace.wait(1000)
    assert slept == [pytest.approx(5, abs=0.01), pytest.approx(6, abs=0.01)]
    monkeypatch.undo()
    made.more["generations"][2]["rate"] = "1KiB"
    assert parse_tables(made.content, "test").tables[NAME].of_generation(2).rate == 1024


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        ({1: {"parser": SECOND}}, "1 is the number of the definition itself"),
        ({2: {"topics": "u"}}, "topics: it is not of a generation"),
        ({2: {"partition_by": "nothing"}}, r"generations\.2: .*no column nothing"),
        ({0: {"parser": SECOND}}, "a number from 1 on is expected"),
    ],
)
def test_a_wrong_generation_is_named(made: Made, generations: dict[int, Any], expected: str) -> None:
    """When the file is read."""
    made.more["generations"] = generations
    with pytest.raises(ConfigurationError, match=expected):
        _ = made.tables


@pytest.mark.parametrize("name", ["lake.events@3", "lake.events@x", "lake.events@"])
def test_an_unknown_generation_is_named(made: Made, name: str) -> None:
    """With those that the table has, or the form that is expected."""
    with pytest.raises(ConfigurationError, match=r"the table has 1, 2|as in lake\.events@2"):
        made.tables.run(name)


def test_a_generation_that_lacks_former_records_is_no_replacement(made: Made) -> None:
    """Retention removed them before it was created; a deletion that it did not have counts too."""
    put(made, 20, 30)
    made.archive.store.put(made.archive.partition("t").log_start, encode_log_start(20))
    made.tables.create(f"{NAME}@2")
    made.tables.run(f"{NAME}@2")
    made.tables.run(NAME)
    with pytest.raises(OperatorError, match="t-0 20 offsets from 0 on"):
        made.tables.switch(NAME, 2)


def test_a_deletion_is_repeated_before_a_switch(made: Made) -> None:
    """Else deleted rows would be there again."""
    made.tables.create(f"{NAME}@2")
    made.tables.run(f"{NAME}@2")
    made.tables.forget(NAME, offsets=[("t", 0, 3, 5)])
    with pytest.raises(OperatorError, match="t-0 2 deletions, the first at offset 3"):
        made.tables.switch(NAME, 2)
    made.tables.forget(f"{NAME}@2", offsets=[("t", 0, 3, 5)])
    made.tables.switch(NAME, 2)
    assert made.select("select count(*) from {} where _offset in (3, 4)") == [(0,)]


@pytest.mark.parametrize("at", cases(range(1, 4), quick=[2]))
def test_no_table_is_dropped_amid_a_switch(made: Made, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """It would be one of the wrong generation."""
    made.tables.create(f"{NAME}@2")
    made.tables.run(f"{NAME}@2")
    with kill_call(monkeypatch, SqlCatalog, "rename_table", at), pytest.raises(Killed):
        made.tables.switch(NAME, 2)
    actions: list[Callable[[str], Any]] = [made.tables.drop, made.tables.verify, made.tables.status]
    for action, name in product(actions, (NAME, f"{NAME}@1", f"{NAME}@2")):
        with pytest.raises(OperatorError, match="tsctl tables switch"):
            action(name)
    made.tables.switch(NAME, 2)
    check(made, 20, "kind")


@pytest.mark.parametrize("raw", cases([1, 2], quick=[1]))
def test_a_raw_and_a_parsed_generation_replace_each_other(tmp_path: Path, raw: int) -> None:
    """Only the parsed one has refused records."""
    more = {"parser": None if raw == 1 else FIRST, "generations": {2: {"parser": None if raw == 2 else FIRST}}}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg", more)
    put(made, 0, 20)
    for name in (NAME, f"{NAME}@2"):
        made.tables.create(name)
        made.tables.run(name)
    for number in (2, 1, 2):
        made.tables.switch(NAME, number)
        made.tables.run(NAME)
        assert made.tables.verify(NAME).differences == ()
        assert made.select("select count(*) from {}") == [(20 if number == raw else 18,)]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"format": "parquet", "quarantine": "SAME"}, "two tables have the location"),
        ({"format": "parquet", "quarantine": "SAME/inner"}, "is below"),
        ({"format": "iceberg", "quarantine": NAME}, "two tables have the name lake.events"),
        ({"format": "iceberg", "quarantine": "bad"}, "namespace.name is expected"),
    ],
)
def test_refused_records_need_a_place_of_their_own(tmp_path: Path, more: dict[str, Any], expected: str) -> None:
    """Else they would be counted as rows."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", more["format"], {"parser": FIRST})
    made.more["quarantine"] = more["quarantine"].replace("SAME", f"file://{made.directory}/files")
    with pytest.raises(ConfigurationError, match=expected):
        _ = made.tables


def claimed(made: Made) -> list[str]:
    """Return the names of what tables need of the archive."""
    return tables_with_claims(made.archive.store, made.archive.keys)


def test_a_generation_that_becomes_the_definition_needs_the_archive_once(made: Made) -> None:
    """No object of its former place in the file is left, which would keep segments from retention."""
    second = f"{NAME}@2"
    made.tables.create(second)
    made.tables.run(second)
    made.tables.switch(NAME, 2)
    made.tables.run(NAME)
    made.tables.drop(f"{NAME}@1", purge=True)
    made.more = {"parser": SECOND, "partition_by": "kind", "generation": 2}
    put(made, 20, 30)
    made.tables.run(NAME)
    check(made, 30, "kind")
    (name,) = claimed(made)
    found = read_claims(made.archive.store, made.archive.keys, name)
    assert found is not None
    assert found.needed_from == {"t-0": 30}
    made.tables.drop(NAME, purge=True)
    assert claimed(made) == []


@pytest.mark.parametrize("generation", [1, 2])
def test_a_number_that_is_not_that_of_the_table_leaves_no_claims(made: Made, generation: int) -> None:
    """What the table needs has the number of its state."""
    made.more = {"parser": FIRST, "generation": 3 - generation}
    if generation == 2:
        made.tables.drop(NAME, purge=True)
        made.more["generation"] = 2
        made.tables.create(NAME)
        made.tables.run(NAME)
        del made.more["generation"]
    made.tables.run(NAME)
    assert len(claimed(made)) == 1
    made.tables.drop(NAME, purge=True)
    assert claimed(made) == []
