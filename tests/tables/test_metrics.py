"""The file of metrics for the textfile collector of node_exporter."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ts_common.errors import OperatorError
from ts_tables.run import RunSummary
from ts_tables.run_metrics import MetricsFile

Values = dict[tuple[str, ...], float]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tables.prom"


def series(path: Path) -> Values:
    """Return the values of a file by name without the prefix, and by the values of its labels."""
    families = text_string_to_metric_families(path.read_text())
    samples = [sample for family in families for sample in family.samples]
    return {(each.name.removeprefix("ts_tables_"), *each.labels.values()): each.value for each in samples}


def record(path: Path, table: str, done: RunSummary, error: ValueError | None = None) -> list[str]:
    """Record a run of a table with an outcome, and return the warnings."""
    warnings: list[str] = []
    with suppress(ValueError), MetricsFile(path, warnings.append).recording(table) as summary:
        vars(summary).update(vars(done))
        if error is not None:
            raise error
    return warnings


def test_counters_continue_and_gauges_are_of_the_last_run(path: Path) -> None:
    """Each run is a process of its own; a topic that the table has no more loses its series."""
    first = RunSummary(2, 100, 3, 5000, 0, ("a hole", "another"), (), {"t": 7, "u": 0}, 1, 1_500)
    assert record(path, "a", first) == []
    at_first = series(path)
    assert record(path, "a", RunSummary(1, 10, 1, 200, 0, (), (), {"t": 0}, 0, None)) == []
    found = series(path)
    assert found.pop(("last_success_timestamp_seconds", "a")) >= at_first["last_success_timestamp_seconds", "a"] > 1e9
    assert (at_first["waiting_holes", "a"], at_first["lag_offsets", "a", "t"]) == (2, 7)
    assert found == {
        ("commits_total", "a"): 3,
        ("records_total", "a"): 110,
        ("late_total", "a"): 0,
        ("files_total", "a"): 4,
        ("refused_total", "a"): 0,
        ("bytes_total", "a"): 5200,
        ("conflicts_total", "a"): 1,
        ("lag_offsets", "a", "t"): 0,
        ("waiting_holes", "a"): 0,
        ("valid_through_timestamp_seconds", "a"): 1.5,  # an idle run has none, and the table still has its rows
        ("last_failure_timestamp_seconds", "a"): 0,
    }


def test_a_table_that_is_not_run_keeps_its_series(path: Path) -> None:
    """Also if its name and its topics need escapes."""
    strange = 'b "of\\ the\nlake'
    record(path, strange, RunSummary(records=5, lag={strange: 3}, valid_through=2_000))
    before = series(path)
    record(path, "a", RunSummary(records=1))
    assert {key: value for key, value in series(path).items() if key[1] == strange} == before
    assert before["lag_offsets", strange, strange] == 3


def test_a_run_that_fails_keeps_what_only_a_whole_run_shows(path: Path) -> None:
    """Its commits and conflicts count; lag and holes stay those of the last run without an error."""
    record(path, "a", RunSummary(records=5, lag={"t": 3}, waits=("a hole",)))
    before = series(path)
    failing = RunSummary(commits=1, records=10, conflicts=1, lag={"t": 0}, valid_through=9_000)
    record(path, "a", failing, ValueError("refused"))
    found = series(path)
    changed = {key[0]: value for key, value in found.items() if before.get(key) != value}
    assert changed.pop("last_failure_timestamp_seconds") >= found["last_success_timestamp_seconds", "a"]
    assert changed == {
        "commits_total": 1,
        "records_total": 15,
        "conflicts_total": 1,
        "valid_through_timestamp_seconds": 9,
    }


def test_a_run_that_is_interrupted_is_no_failure(path: Path) -> None:
    """What it had committed counts."""
    with pytest.raises(KeyboardInterrupt), MetricsFile(path, print).recording("a") as summary:
        summary.records = 5
        raise KeyboardInterrupt
    found = series(path)
    assert found["records_total", "a"] == 5
    assert found["last_success_timestamp_seconds", "a"] == found["last_failure_timestamp_seconds", "a"] == 0


@pytest.mark.parametrize(
    "content",
    [
        b"ts_tables_records_total{table=",
        b"\xff\xfe",
        b"ts_tables_records_total 5\n",
        b'ts_tables_files_total{table="a"} x',
    ],
    ids=["cut", "binary", "no label", "no number"],
)
def test_a_broken_former_file_is_replaced(path: Path, content: bytes) -> None:
    """Counters begin with 0, and the warning names the file."""
    path.write_bytes(content)
    (warning,) = record(path, "a", RunSummary(records=5))
    assert f"{path}: the former metrics are replaced" in warning
    assert series(path)["records_total", "a"] == 5


def test_the_metrics_of_another_program_are_not_replaced(path: Path) -> None:
    """As those that an operator's script writes for the same collector."""
    path.write_text("# TYPE backup_age_seconds gauge\nbackup_age_seconds 5\n")
    with pytest.raises(OperatorError, match="the metric backup_age_seconds of another program"):
        MetricsFile(path, print)
    assert "backup_age_seconds 5" in path.read_text()


def test_a_path_that_is_of_no_use_is_named_before_a_run(tmp_path: Path) -> None:
    """A directory is missing or has the name of the file, or the collector would not read the file."""
    with pytest.raises(OperatorError, match="nowhere is no directory that can be written"):
        MetricsFile(tmp_path / "nowhere" / "a.prom", print)
    (tmp_path / "a.prom").mkdir()
    with pytest.raises(OperatorError, match="the former metrics cannot be read"):
        MetricsFile(tmp_path / "a.prom", print)
    with pytest.raises(OperatorError, match=r"a\.txt: the collector reads only files whose names end in \.prom"):
        MetricsFile(tmp_path / "a.txt", print)


def test_a_file_that_cannot_be_written_ends_no_run(path: Path) -> None:
    """The table has its rows; a warning names the file, and no part of it is left over."""
    file, warnings = MetricsFile(path, lambda _: None), list[str]()
    file = MetricsFile(path, warnings.append)
    with file.recording("a"):
        path.mkdir()
    assert warnings[0].startswith(f"{path}: metrics of a were not written")
    assert [*path.parent.iterdir()] == [path]


def test_runs_of_several_tables_at_once_lose_no_series(path: Path) -> None:
    """As of two lines of a crontab with one file."""

    def runs(table: str) -> None:
        for _ in range(25):
            record(path, table, RunSummary(records=1))

    threads = [threading.Thread(target=runs, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [series(path)["records_total", name] for name in "abcd"] == [25] * 4
    assert [*path.parent.iterdir()] == [path]
