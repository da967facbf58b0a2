"""`tsctl tables`: create, run and status of the tables of a file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dev.local import forks
from dev.local.agent import write_config
from dev.local.waiting import wait_for
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.running import Ended, Run
from ts_common.archive.table_claims import tables_with_claims
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from tsctl.exit_codes import ExitCode

FILE = """
archive: {{url: "{url}", cluster: prod}}
catalog:
  type: sql
  uri: sqlite:///{directory}/catalog.db
  warehouse: file://{directory}/warehouse
tables:
  backup.t: {{topics: t}}
  backup.all: {{pattern: ".*", partition_by: topic}}
"""


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, "t", 0, 100)
    put(made, "u", 0, 20)
    (tmp_path / "tables.yaml").write_text(FILE.format(url=made.location, directory=tmp_path))
    return made


def put(archive: MadeArchive, topic: str, start: int, end: int) -> None:
    archive.put_segment(topic, start, batches(*steps(start, end)))
    archive.commit(topic, end, highest_base=start, last_stable_offset=end)


class Tables:
    """Runs commands on the file of this test."""

    def __init__(self, run: Run, file: Path) -> None:
        self._run = run
        self._file = file

    def __call__(self, *arguments: str) -> Ended:
        return self._run("tables", *arguments, "--file", self._file)


@pytest.fixture
def tables(run: Run, tmp_path: Path) -> Tables:
    return Tables(run, tmp_path / "tables.yaml")


def test_tables_are_created_run_and_shown(archive: MadeArchive, tables: Tables) -> None:
    """As a scheduler does it: one line for each table, and JSON with the same facts."""
    assert tables("create").out == "backup.t: created\nbackup.all: created\n"
    assert tables("create", "backup.t").out == "backup.t: exists\n"
    planned = tables("run", "--dry-run")
    assert "backup.t: 100 offsets in 1 part; nothing was added" in planned.out
    first = tables("run", "--workers", "1")
    assert first.code == ExitCode.FINE
    assert "backup.t: 100 records in 1 file" in first.out
    assert "backup.all: 120 records in 2 files" in first.out
    put(archive, "t", 100, 150)
    shown = json.loads(tables("status", "backup.t", "--json").out)["tables"][0]
    assert shown["lag"] == {"t": 50}
    assert shown["partitions"] == [{"topic": "t", "partition": 0, "topic_id": None, "from": 0, "to": 100, "missing": 0}]
    lines = tables("run", "--json", "--workers", "1").out.splitlines()
    assert [(line["table"], line["records"], line["commits"]) for line in map(json.loads, lines)] == [
        ("backup.t", 50, 1),
        ("backup.all", 50, 1),
    ]
    assert "backup.t t - 1 150 0 0" in " ".join(tables("status").out.split())


def test_a_table_that_waits_has_an_exit_code(archive: MadeArchive, tables: Tables) -> None:
    """The hole is named; the other tables are run."""
    put(archive, "t", 120, 150)
    tables("create")
    ran = tables("run", "--workers", "1")
    assert ran.code == ExitCode.FOUND
    assert "t-0: offsets 100 to 119 are missing in the archive" in ran.err
    assert "backup.all: 120 records" in ran.out
    shown = tables("status")
    assert shown.code == ExitCode.FOUND
    assert "offsets 100 to 119 are missing" in shown.err


def test_a_table_is_verified_with_evidence(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """The document has the snapshot, the claims and the sums; a row that differs has an exit code."""
    tables("create", "backup.t")
    tables("run", "backup.t", "--workers", "1")
    evidence = tmp_path / "evidence.json"
    ran = tables("verify", "backup.t", "--workers", "1", "--evidence", str(evidence))
    assert (ran.code, ran.out) == (ExitCode.FINE, "backup.t: 100 rows, 0 differences\n")
    (document,) = json.loads(evidence.read_text())["tables"]
    assert document["state"]["topics"]["t"][0]["partitions"]["0"]["to"] == 100
    assert [block["rows"] for block in document["blocks"]] == [100]
    (path,) = (tmp_path / "warehouse").rglob("*.parquet")
    pq.write_table(pq.read_table(path).slice(1), path, store_schema=False)
    ran = tables("verify", "backup.t", "--workers", "1", "--json")
    assert ran.code == ExitCode.FOUND
    assert ran.lines[0]["differences"] == [
        {"kind": "missing", "topic": "t", "topic_id": None, "partition": 0, "from": 0, "to": 1}
    ]
    assert "t-0: offset 0: the archive has the record, the table has no row" in ran.err


def test_the_values_of_a_parsed_table_are_verified(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """With `--deep`; without it, records are compared."""
    file = tmp_path / "tables.yaml"
    parser = '{type: expression, expression: "(?P<text>.*)", columns: {text: string}}'
    file.write_text(file.read_text().replace("{topics: t}", f"{{topics: t, parser: {parser}}}"))
    tables("create", "backup.t")
    tables("run", "backup.t", "--workers", "1")
    (path,) = (tmp_path / "warehouse").rglob("*.parquet")
    rows = pq.read_table(path)
    texts = pa.array(["other", *rows["text"].to_pylist()[1:]])
    at = rows.schema.get_field_index("text")
    pq.write_table(rows.set_column(at, rows.schema.field(at), texts), path, store_schema=False)
    assert tables("verify", "backup.t", "--workers", "1").out == "backup.t: 100 rows, 0 differences\n"
    ran = tables("verify", "backup.t", "--deep", "--workers", "1")
    assert (ran.code, ran.out) == (ExitCode.FOUND, "backup.t: 100 rows, 1 difference\n")
    assert "t-0: offset 0: the row differs from the record" in ran.err


def test_records_that_the_table_does_not_have_are_not_deleted(archive: MadeArchive, tables: Tables) -> None:
    """A topic of another table is a mistake; a key without a record is no error."""
    tables("create", "backup.t")
    tables("run", "backup.t", "--workers", "1")
    other = tables("forget", "backup.t", "--offsets", "unknown-0:1-2", "--workers", "1")
    assert (other.code, other.out) == (ExitCode.REFUSED, "")
    assert "the table has no record of topic unknown; it has records of t" in other.err
    unclaimed = tables("forget", "backup.t", "--offsets", "t-0:500", "--workers", "1")
    assert unclaimed.code == ExitCode.FINE
    assert unclaimed.out == (
        "backup.t: t-0: offsets 500 to 500 are outside of the claims of the table, which has 0 to 99\n"
    )
    unknown = tables("forget", "backup.t", "--key", "nothing", "--workers", "1")
    assert (unknown.code, unknown.out) == (ExitCode.FINE, "backup.t: no record has the key nothing\n")


def test_a_table_is_dropped_only_if_confirmed(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """First it is described; its files stay unless they are purged."""
    tables("create", "backup.t", "backup.all")
    tables("run", "--workers", "1")
    ran = tables("drop", "backup.t")
    assert ran.code == ExitCode.FINE
    assert "backup.t: 100 rows in 1 file" in ran.out
    assert "nothing was removed" in ran.out
    assert tables("run", "backup.t", "--workers", "1").code == ExitCode.FINE
    assert "its files stay" in tables("drop", "backup.t", "--yes").out
    assert list((tmp_path / "warehouse/backup/t").rglob("*.parquet"))
    assert tables_with_claims(archive.store, archive.keys) == ["backup.all"]
    assert tables("run", "backup.t").code == ExitCode.REFUSED
    assert "were deleted" in tables("drop", "backup.all", "--yes", "--purge").out
    assert not list((tmp_path / "warehouse/backup/all").rglob("*"))


def test_a_table_that_was_rolled_back_is_adopted(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """Its rows are those of an earlier commit, and runs continue from there; foreign rows prevent it."""
    tables("create", "backup.t")
    tables("run", "backup.t", "--workers", "1")
    put(archive, "t", 100, 150)
    tables("run", "backup.t", "--workers", "1")
    catalog = open_catalog(
        CATALOG, {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    )
    loaded = catalog.load_table("backup.t")
    loaded.manage_snapshots().rollback_to_snapshot(loaded.snapshots()[1].snapshot_id).commit()
    assert "main was rolled back" in tables("run", "backup.t").err
    ran = tables("verify", "backup.t", "--workers", "1")
    assert (ran.code, ran.out) == (ExitCode.FOUND, "backup.t: 100 rows, 0 differences\n")
    assert "main was rolled back" in ran.err
    ran = tables("adopt", "backup.t", "--workers", "1")
    assert (ran.code, ran.out) == (ExitCode.FINE, "backup.t: 100 rows, as its claims; runs continue from there\n")
    assert "50 records" in tables("run", "backup.t", "--workers", "1").out
    assert tables("verify", "backup.t", "--workers", "1").code == ExitCode.FINE
    rows = catalog.load_table("backup.t").scan(limit=1).to_arrow()
    catalog.load_table("backup.t").append(rows)
    ran = tables("adopt", "backup.t", "--workers", "1")
    assert ran.code == ExitCode.FOUND
    assert "the table has the row more than once" in ran.err


def test_an_error_of_one_table_does_not_stop_the_others(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """Of any command; the error is printed once, with the table's name, and the exit code is that of the first one."""
    tables("create", "backup.all")
    evidence = tmp_path / "evidence.json"
    for command, shown in (
        (("run", "--dry-run"), "backup.all: 120 offsets"),
        (("run", "--workers", "1"), "backup.all: 120 records"),
        (("status",), "backup.all u"),
        (("verify", "--workers", "1", "--evidence", str(evidence)), "backup.all: 120 rows, 0 differences"),
    ):
        ran = tables(*command)
        assert ran.code == ExitCode.REFUSED
        assert ran.err == (
            "tsctl: backup.t: table backup.t does not exist in the catalog; `tsctl tables create` makes it\n"
        )
        assert shown in " ".join(ran.out.split())
    assert not evidence.exists()
    file = tmp_path / "tables.yaml"
    file.write_text(file.read_text().replace("topics: t", "topics: tt"))
    ran = tables("create", "backup.t", "backup.all")
    assert (ran.code, ran.out) == (ExitCode.REFUSED, "backup.all: exists\n")
    assert ran.err.startswith("tsctl: backup.t: topic tt: ")


def test_a_pattern_without_a_topic_is_a_warning(archive: MadeArchive, tables: Tables) -> None:
    """It can be misspelt, or its topics can be new ones; the status has a row for the table."""
    pattern = ("backup.all", "--set", "pattern=nothing")
    tables("create", *pattern)
    for command in (("run", "--dry-run"), ("run", "--workers", "1")):
        ran = tables(*command, *pattern)
        assert ran.code == ExitCode.FINE
        assert ran.err == "tsctl: backup.all: the archive has no topic whose name matches `pattern`\n"
    assert tables("status", *pattern).out.splitlines()[1].split() == ["backup.all", "-", "-", "0", "0", "0", "-"]


def test_an_error_of_the_only_table_has_a_line_for_each_problem(tables: Tables, archive: MadeArchive) -> None:
    """With several tables it is one line."""
    wrong = ("--set", "archive.storage_options={region: eu-1}")
    one, both = tables("create", "backup.t", *wrong), tables("create", *wrong)
    assert (one.code, both.code) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert "tables.yaml: 1 problem\n  - archive: storage_options: they apply to S3 only" in one.err
    assert "\ntsctl: backup.all: " in both.err
    assert both.err.count("\n") == 2


def test_a_place_in_the_archive_of_a_properties_file_is_refused(
    archive: MadeArchive, tables: Tables, tmp_path: Path
) -> None:
    """As one in the archive of a URL is: a purge would delete segments."""
    agent = write_config(tmp_path, "prod", {"storage.service.endpoint.url": archive.location})
    table = f"{{topics: t, format: json, location: '{archive.location}/export'}}"
    (tmp_path / "tables.yaml").write_text(f"archive: {{config: {agent}}}\ntables: {{export.t: {table}}}\n")
    ran = tables("create")
    assert (ran.code, "overlap: choose a place outside of it" in ran.err) == (ExitCode.REFUSED, True), ran
    assert not Path(archive.location.removeprefix("file://"), "export").exists()


def test_rows_that_wait_are_counted(archive: MadeArchive, tables: Tables, tmp_path: Path) -> None:
    """A run adds them without a file; a compaction shows them."""
    table = f"{{topics: t, format: parquet, location: file://{tmp_path}/export, max_age: 1h}}"
    file = f"archive: {{url: '{archive.location}', cluster: prod}}\ntables: {{export.t: {table}}}\n"
    (tmp_path / "tables.yaml").write_text(file)
    tables("create")
    ran = tables("run", "--workers", "1")
    assert ran.out.startswith("export.t: 100 records in 0 files, ")
    assert ran.out.endswith("; held until max_age: 100 rows\n")
    (shown,) = tables("compact", "--json").lines
    assert (shown["files"], shown["held_rows"], shown["seconds"] > 0) == (1, 0, True)


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("pyiceberg", "tables", ("compact",)),
        pytest.param("ruamel", "tables", ("schema",), marks=pytest.mark.full),
        pytest.param("pyspark", "pyspark", ("compact", "backup.t"), marks=pytest.mark.full),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_the_extra_of_a_missing_package_is_named(
    archive: MadeArchive, tables: Tables, tmp_path: Path, package: str, extra: str, arguments: tuple[str, ...]
) -> None:
    """That of the command, which differs from that of `tsctl`."""
    tables("create", "backup.t")
    program = f"import sys; sys.modules[{package!r}] = None; from tsctl.start import main; main()"
    command = [sys.executable, "-c", program, "tables", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == ExitCode.REFUSED
    assert f"the package {package} is not installed" in line
    assert f"requirements/{extra}.txt" in line


def test_a_table_that_is_missing_is_found_before_spark_starts(tables: Tables, archive: MadeArchive) -> None:
    """A start needs a minute, and its message would be about jars."""
    ran = tables("compact", "backup.t", "--set", "spark.master=nothing")
    assert (ran.code, "backup.t does not exist in the catalog" in ran.err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("run", "backup.tt"), "the file has no such table"),
        (("run", "--every", "soon"), "'soon' is no time"),
        (("run", "--every", "0s"), "--every=0s: 1s or more is expected"),
        (("run", "--every", "1s", "--dry-run"), "give one of the two"),
        (("verify", "--evidence", "/no/such/file"), "--evidence=/no/such/file: No such file or directory"),
    ],
)
def test_a_mistake_is_one_message(
    archive: MadeArchive, tables: Tables, arguments: tuple[str, ...], reason: str
) -> None:
    """With the exit code of a user's mistake."""
    ran = tables(*arguments)
    assert ran.code == ExitCode.REFUSED
    assert reason in ran.err


def test_a_table_is_described_by_options(
    archive: MadeArchive, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file; with one they are further values."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    values = {
        "archive.url": archive.location,
        "archive.cluster": "prod",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/other.db",
        "catalog.warehouse": f"file://{tmp_path}/other",
        "topics": "[t, u]",
        "partition_by": "[topic, 'bucket(4, key)']",
    }
    options = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    assert run("tables", "create", "backup.one", *options).out == "backup.one: created\n"
    ran = run("tables", "run", "backup.one", "--workers", "1", *options)
    assert "backup.one: 120 records in 8 files" in ran.out
    file = tmp_path / "tables.yaml"
    ran = run("tables", "create", "backup.t", "--file", file, "--set", "topics=nothing")
    assert (ran.code, "topic nothing" in ran.err) == (ExitCode.REFUSED, True)
    for setting, reason in (
        ("topics", "KEY=VALUE is expected"),
        ("topics=[", "the value is no YAML"),
        ("topic=t", "did you mean topics?"),
    ):
        ran = run("tables", "status", "backup.t", "--file", file, "--set", setting)
        assert (ran.code, reason in ran.err) == (ExitCode.REFUSED, True), ran.err
    assert "name one table" in run("tables", "status", "--file", file, "--set", "topics=t").err
    ran = run("tables", "status", "backup.one", *options[:2])
    assert ran.err.startswith("tsctl: --set: 2 problems\n  - archive: config is needed, or url and cluster\n"), ran


def test_a_missing_file_is_named(run: Run) -> None:
    """By every command."""
    for command in ("create", "run", "status"):
        ran = run("tables", command, "--file", "nowhere.yaml")
        assert ran.code == ExitCode.REFUSED
        assert "nowhere.yaml" in ran.err


def test_the_schema_of_the_file_is_printed(run: Run) -> None:
    """For editors."""
    assert {"archive", "catalog", "spark", "tables"} == {*run("tables", "schema").document["properties"]}


def test_a_loop_adds_new_records_until_it_is_stopped(archive: MadeArchive, tmp_path: Path) -> None:
    """A file shows each run when it ends. SIGTERM ends the loop after the current run, with exit code 0."""
    command = ["tsctl", "tables", "run", "--every", "1s", "--workers", "1", "backup.t"]
    assert forks.run(["tsctl", "tables", "create"], cwd=tmp_path, env=os.environ, timeout=60).returncode == 0
    log = tmp_path / "log"
    with log.open("w") as output:
        process = forks.start(command, cwd=tmp_path, env=os.environ, output=output.fileno())
        try:
            wait_for(lambda: "100 records" in log.read_text(), "the first run", 60)
            put(archive, "t", 100, 150)
            wait_for(lambda: "50 records" in log.read_text(), "the next records", 60)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
