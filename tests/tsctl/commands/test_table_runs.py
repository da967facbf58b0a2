"""`tsctl tables run` for schedulers: its metrics, its JSON, and its progress on a terminal."""

import os
import pty
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.running import Ended, Run
from tsctl.exit_codes import ExitCode

FILE = """
archive: {{url: "{url}", cluster: prod}}
catalog:
  type: sql
  uri: sqlite:///{directory}/catalog.db
  warehouse: file://{directory}/warehouse
tables:
  backup.t: {{topics: t}}
  backup.u: {{topics: u}}
"""


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, "t", 0, 100)
    put(made, "u", 0, 20)
    (tmp_path / "tables.yaml").write_text(FILE.format(url=made.location, directory=tmp_path))
    return made


def put(archive: MadeArchive, topic: str, start: int, end: int) -> None:
    archive.put_segment(topic, start, batches(*steps(start, end), time=1_000))
    archive.commit(topic, end, highest_base=start, last_stable_offset=end)


class Runs:
    """Runs the tables of this test's file with a file of metrics."""

    def __init__(self, run: Run, directory: Path) -> None:
        self._run = run
        self.file = directory / "tables.yaml"
        self.metrics = directory / "tables.prom"

    def create(self, *names: str) -> None:
        assert self._run("tables", "create", *names, "--file", self.file).code == ExitCode.FINE

    def __call__(self, *arguments: object) -> Ended:
        options = ("--file", self.file, "--metrics-file", self.metrics, "--workers", "1")
        return self._run("tables", "run", *options, *arguments)

    def series(self) -> dict[tuple[str, ...], float]:
        """Return the values of the file by name without the prefix, and by the values of the labels."""
        families = text_string_to_metric_families(self.metrics.read_text())
        samples = [sample for family in families for sample in family.samples]
        return {(each.name.removeprefix("ts_tables_"), *each.labels.values()): each.value for each in samples}


@pytest.fixture
def runs(run: Run, tmp_path: Path) -> Runs:
    return Runs(run, tmp_path)


def test_each_run_of_a_table_changes_its_metrics(archive: MadeArchive, runs: Runs) -> None:
    """Tables that were run, that wait at a hole, or that failed; an idle run keeps how fresh the rows are."""
    runs.create("backup.t")
    put(archive, "t", 120, 150)
    ran = runs()
    assert (ran.code, "backup.u does not exist" in ran.err) == (ExitCode.REFUSED, True)
    first = runs.series()
    assert first["waiting_holes", "backup.t"] == 1
    assert first["last_success_timestamp_seconds", "backup.t"] > first["last_failure_timestamp_seconds", "backup.t"]
    assert first["last_failure_timestamp_seconds", "backup.u"] > first["last_success_timestamp_seconds", "backup.u"]
    assert first["lag_offsets", "backup.t", "t"] == 50
    put(archive, "t", 100, 120)
    archive.commit("t", 150, highest_base=120, last_stable_offset=150)
    ended = runs("backup.t", "--json")
    (shown,) = ended.lines
    assert (ended.code, shown["records"], shown["conflicts"], shown["waits"]) == (ExitCode.FINE, 50, 0, [])
    assert shown["seconds"] > 0
    found = runs.series()
    assert (found["records_total", "backup.t"], found["commits_total", "backup.t"]) == (150, 2)
    assert (found["waiting_holes", "backup.t"], found["lag_offsets", "backup.t", "t"]) == (0, 0)
    assert {key: value for key, value in found.items() if key[1] == "backup.u"} == {
        key: value for key, value in first.items() if key[1] == "backup.u"
    }
    assert shown["valid_through"] == "1970-01-01T00:00:01.149Z"
    assert found["valid_through_timestamp_seconds", "backup.t"] == 1.149
    assert runs("backup.t", "--json").lines[0]["valid_through"] is None
    assert runs.series()["valid_through_timestamp_seconds", "backup.t"] == 1.149


def test_metrics_that_cannot_be_written_are_named_before_a_run(archive: MadeArchive, runs: Runs) -> None:
    """So that a scheduler's first run shows it, and nothing was added."""
    runs.create()
    good, runs.metrics = runs.metrics, runs.metrics.parent / "nowhere" / "tables.prom"
    ran = runs()
    assert (ran.code, ran.out) == (ExitCode.REFUSED, "")
    assert "nowhere is no directory that can be written" in ran.err
    runs.metrics = good
    good.write_text("cut {")
    ran = runs()
    assert (ran.code, "backup.t: 100 records" in ran.out) == (ExitCode.FINE, True)
    assert ran.err.count("the former metrics are replaced") == 1


def test_a_terminal_shows_how_many_tasks_have_ended(
    archive: MadeArchive, runs: Runs, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of runs and verifications; standard output has nothing of it, and with JSON there is no bar."""
    runs.create()
    monkeypatch.setenv("TERM", "xterm")
    for command, line, is_drawn in (
        (("run",), "backup.t: 100 records", True),
        (("verify",), "backup.t: 100 rows, 0 differences\n", True),
        (("verify", "--json"), '{"table":"backup.t","rows":100,"differences":[]}\n', False),
    ):
        here, there = pty.openpty()
        with os.fdopen(there, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            ended = run("tables", *command, "backup.t", "--file", runs.file)
        drawn = b""
        with suppress(OSError):  # EIO: the end of a terminal
            while data := os.read(here, 4096):
                drawn += data
        os.close(here)
        assert ended.out.startswith(line)
        assert ended.out.count("\n") == 1
        assert (b"tasks" in drawn, b"1/1" in drawn, b"\x1b[2K" in drawn) == (is_drawn,) * 3  # drawn, and erased


def test_each_command_warns_of_a_partition_at_its_beginning(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """Its records are in no table yet, which is no error: the exit code is 0, as that of `sql` and `cat`."""
    runs = Runs(run, tmp_path)
    runs.create()
    archive.put_segment("t", 0, batches((0, 10)), partition=1)
    file = ("--file", tmp_path / "tables.yaml")
    for command in (
        ("run", "--dry-run"),
        ("run", "--workers", "1"),
        ("run", "--workers", "1"),
        ("status",),
        ("verify",),
    ):
        ended = run("tables", *command, *file)
        assert (ended.code, ended.err.count("backup.t: t-1: beginning: 1 segment")) == (0, 1), command
        assert "backup.u: " not in ended.err
