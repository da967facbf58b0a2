"""Marks: an hour is marked once all Kafka partitions have passed it, and late rows behind the mark are counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_parsed_tables import FORMATS, NAME, OF_EACH_KIND, Killed, Made, kill_commit
from ts_common.errors import ConfigurationError, OperatorError
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.iceberg.head import read_head

PARSER = {"type": "json", "columns": {"at": {"type": "timestamp", "unit": "s"}}}
HOUR = 3600


@pytest.fixture(params=cases(FORMATS, quick=["iceberg"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Make a table by hour whose partitions 0 and 1 have a record of the first hour each."""
    more: dict[str, Any] = {"parser": PARSER, "partition_by": "hour(at)", "marks": {}}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param, more)
    put(made, 0, 0, 10)
    put(made, 0, 1, 20)
    made.tables.create(NAME)
    return made


def put(made: Made, offset: int, partition: int, *times: int) -> None:
    made.put_values(offset, [json.dumps({"at": each}).encode() for each in times], partition)


def marks(made: Made) -> set[str]:
    """Return the directories that readers see as marked; of Iceberg what the state has."""
    if made.format != "iceberg":
        root = made.directory / "files"
        return {str(each.parent.relative_to(root)).removeprefix("at_hour=") for each in root.rglob("_SUCCESS")}
    head = read_head(open_catalog(CATALOG, made.catalog).load_table(NAME))
    assert head is not None
    end = head.state.announced or 0
    return {f"1970-01-01-{hour:02d}" for hour in range(end) if hour in {0, 1, 3}}


@OF_EACH_KIND
def test_an_hour_is_marked_when_all_partitions_have_passed_it(made: Made) -> None:
    """The slowest one decides; an hour without rows has no mark."""
    assert made.tables.run(NAME).marked == ()
    put(made, 1, 0, HOUR + 1, 3 * HOUR + 1, 5 * HOUR)
    summary = made.tables.run(NAME)
    assert (summary.marked, summary.marked_through) == ((), 0)
    put(made, 1, 1, 4 * HOUR)
    summary = made.tables.run(NAME)
    hours = ("1970-01-01-00", "1970-01-01-01", "1970-01-01-03")
    assert (summary.marked, summary.marked_through, summary.late) == (hours, 4 * HOUR, 0)
    assert marks(made) == {*hours}
    assert made.tables.run(NAME).marked == ()
    assert made.tables.verify(NAME).notes == ()


def test_late_rows_behind_the_mark_are_counted(made: Made) -> None:
    """They are added all the same."""
    for partition in (0, 1):
        put(made, 1, partition, 5 * HOUR)
    made.tables.run(NAME)
    put(made, 2, 0, 100, 4 * HOUR + 1, 5 * HOUR, 6 * HOUR)
    summary = made.tables.run(NAME)
    assert (summary.late, summary.records) == (2, 4)
    assert made.select("select count(*) from {}") == [(8,)]


@OF_EACH_KIND
@pytest.mark.parametrize("at", cases(range(4), quick=[1, 3]))
def test_a_run_that_is_killed_announces_later(made: Made, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """At a commit of refused records, of rows, or of what was announced: the next run marks the same hours."""
    for partition in (0, 1):
        put(made, 1, partition, 5 * HOUR)
    try:
        with kill_commit(made, monkeypatch, at):
            made.tables.run(NAME)
    except Killed:
        made.tables.run(NAME)
    assert marks(made) & {"1970-01-01-00"}
    assert made.tables.run(NAME).commits == 0
    assert made.tables.verify(NAME).differences == ()


def test_a_command_runs_for_each_hour(made: Made, tmp_path: Path) -> None:
    """One that fails is repeated by the next run, which names it."""
    out = tmp_path / "out"
    made.more["marks"] = {"command": f"sh -c 'echo $TS_TABLE $TS_PARTITION >> {out}; test -e {out}.go'"}
    for partition in (0, 1):
        put(made, 1, partition, HOUR, 5 * HOUR)
    with pytest.raises(OperatorError, match="for 1970-01-01-00: exit code 1; the next run repeats it"):
        made.tables.run(NAME)
    Path(f"{out}.go").touch()
    made.tables.run(NAME)
    lines = [f"{NAME} 1970-01-01-00", f"{NAME} 1970-01-01-00", f"{NAME} 1970-01-01-01"]
    assert out.read_text().splitlines() == lines
    made.tables.run(NAME)
    assert len(out.read_text().splitlines()) == 3


def test_a_grace_and_idle_partitions(made: Made) -> None:
    """A partition is waited for, unless it is idle; a time of the future passes only the current hour."""
    made.more["marks"] = {"after": "2h"}
    put(made, 1, 0, 5 * HOUR, 1 << 40)
    put(made, 1, 1, 5 * HOUR)
    assert made.tables.run(NAME).marked_through == 3 * HOUR
    made.more["marks"] = {"idle": "1h"}
    put(made, 3, 0, 6 * HOUR)
    found = made.tables.run(NAME).marked_through
    assert found is not None
    assert found > 1000 * HOUR


def test_held_rows_are_not_marked(tmp_path: Path) -> None:
    """Readers do not see them: the hour is marked when they are shown."""
    more = {"parser": PARSER, "partition_by": "hour(at)", "marks": {}, "max_age": "1h"}
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", more)
    put(made, 0, 0, 10, 5 * HOUR)
    made.tables.create(NAME)
    assert made.tables.run(NAME).marked == ()
    made.tables.show_held(NAME)
    assert made.tables.run(NAME).marked == ("1970-01-01-00",)


@OF_EACH_KIND
def test_a_drop_removes_the_marks(made: Made) -> None:
    """With the files."""
    for partition in (0, 1):
        put(made, 1, partition, 5 * HOUR)
    made.tables.run(NAME)
    made.tables.drop(NAME, purge=True)
    assert not [*made.directory.rglob("_SUCCESS")]


def test_marks_need_an_hour_or_a_day(made: Made) -> None:
    """The message names the key."""
    made.more["partition_by"] = []
    with pytest.raises(ConfigurationError, match="marks: partition_by needs an hour or a day"):
        _ = made.tables
