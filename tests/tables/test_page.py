"""docs/tables.md: its file and commands run on a small archive, and its tables list every key."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from ruamel.yaml import YAML

from tests.docs.commands import CHECKOUT, blocks, commands
from tests.made_archive import MadeArchive, batches
from tests.tsctl.running import runner
from ts_tables import Tables
from ts_tables.definition.table_definitions import TableDefinition
from ts_tables.definition.table_fields import MarksDefinition
from ts_tables.definition.tables_file import parse_tables
from ts_tables.engines.spark.catalogs import spark_settings
from ts_tables.run_metrics import families
from tsctl.exit_codes import ExitCode

PAGE = CHECKOUT / "docs/tables.md"
DAGS = CHECKOUT / "deploy/airflow/tables.py"
_LOAD = """
import json, pathlib, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {
    name: {"catchup": dag.catchup, "max_active_runs": dag.max_active_runs, "tasks": list(dag.task_ids)}
    for name, dag in bag.dags.items()
}
pathlib.Path(sys.argv[2]).write_text(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


def write_file(directory: Path) -> None:
    """Write the page's file, `tables.yaml`, for an archive and a lake in this directory."""
    archive = MadeArchive(directory / "store")
    archive.put_segment("page_views", 0, batches((0, 50)))
    archive.commit("page_views", 50, last_stable_offset=50)
    file, spark, *_ = blocks(PAGE, language="yaml")
    text = placed(file.text.replace("s3://bucket/base/prefix", archive.location), directory)
    (directory / "tables.yaml").write_text(text + spark.text)


def placed(text: str, directory: Path) -> str:
    """Return a text of the page with the catalog and the lake in a directory."""
    return text.replace("/var/lib/ts-uploader", str(directory)).replace("s3://lake", f"file://{directory}")


def test_the_pages_file_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From top to bottom, with an archive and a lake of this test."""
    write_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    shell = [block for block in blocks(PAGE, language="sh") if block.text.startswith("tsctl")]
    ran = [command for block in shell for command in commands(block)]
    assert len(ran) == 5
    outputs = []
    for command in ran:
        ended = runner(capfd)(*shlex.split(command)[1:])
        assert ended.code == 0, ended
        outputs.append(ended.out)
    assert "50 offsets in 1 part; nothing was added" in outputs[1]
    assert "50 records in 1 file" in outputs[2]
    assert outputs[4] == "backup.page_views: 50 rows, 0 differences\n"
    python, _, reading = blocks(PAGE, language="python")  # tests/tables/spark runs what the second one does
    exec(compile(python.text, str(PAGE), "exec"), {})
    assert capfd.readouterr().out == "0 {'page_views': 0}\n"
    exec(compile(placed(reading.text, tmp_path), str(PAGE), "exec"), {})
    assert capfd.readouterr().out == "[(50, 49)]\n"


def test_the_page_has_sparks_settings_of_its_catalog() -> None:
    """Those that a compaction finds by the page's file."""
    file, *_ = blocks(PAGE, language="yaml")
    (settings,) = blocks(PAGE, language="properties")
    catalog = parse_tables(YAML(typ="safe").load(file.text), "the page").catalog
    assert dict(line.split("=", 1) for line in settings.text.splitlines()) == spark_settings("ts-uploader", catalog)


def test_the_pages_plain_files_are_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They wait until they are compacted; then the page's statement counts their rows."""
    write_file(tmp_path)
    _, _, plain, *_ = blocks(PAGE, language="yaml")
    archive = (tmp_path / "tables.yaml").read_text().partition("catalog:")[0]
    tables = plain.text.replace("topics: orders", "topics: page_views").replace("s3://lake", f"file://{tmp_path}/lake")
    (tmp_path / "tables.yaml").write_text(archive + tables)
    monkeypatch.chdir(tmp_path)
    for command in ("create", "run", "verify", "compact"):
        ended = runner(capfd)("tables", command)
        assert ended.code == 0, ended
    (statement,) = blocks(PAGE, language="sql")
    query = statement.text.replace("s3://lake", f"{tmp_path}/lake")
    assert duckdb.execute(query).fetchall() == [(50,)]


def written(command: str, directory: Path) -> list[str]:
    """Return the arguments of a command of `tsctl`, with a created table in the place of the page's file."""
    write_file(directory)
    Tables(directory / "tables.yaml").create("backup.page_views")
    program, *arguments = shlex.split(command)
    assert program == "/opt/tables/bin/tsctl"
    places = {"/etc/ts-uploader": directory, "/var/lib/prometheus/node-exporter": directory}
    for place, there in places.items():
        arguments = [argument.replace(place, str(there)) for argument in arguments]
    return arguments


def test_the_line_of_the_crontab_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Five fields of times, then a command that adds rows and writes metrics."""
    (line,) = blocks(PAGE, language="cron")
    *times, flock, option, lock, command = line.text.split(maxsplit=8)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in times)
    assert (len(times), flock, option, lock) == (5, "flock", "-n", "/var/lib/ts-uploader/tables.lock")
    assert "50 records in 1 file" in runner(capfd)(*written(command, tmp_path)).out
    assert 'ts_tables_records_total{table="backup.page_views"} 50.0' in (tmp_path / "tables.prom").read_text()


def test_the_command_of_the_airflow_file_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file without Airflow: it is Python, and its command adds rows and writes metrics."""
    text = DAGS.read_text()
    compile(text, str(DAGS), "exec")
    (command,) = [
        ast.literal_eval(each.value)
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "RUN"
    ]
    assert runner(capfd)(*written(command, tmp_path)).document["records"] == 50
    assert 'ts_tables_records_total{table="backup.page_views"} 50.0' in (tmp_path / "tables.prom").read_text()


@pytest.mark.full
def test_airflow_loads_the_file(tmp_path: Path) -> None:
    """In an environment of its own; no earlier interval is run, and no two runs overlap."""
    python = tmp_path / "airflow" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "uv", "venv", "-q", "-p", sys.executable, python.parents[1]], check=True)
    packages = ("apache-airflow==3.3.2", "apache-airflow-providers-standard==1.21.0")
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "-q", "-p", str(python), *packages], check=True)
    environment = {"AIRFLOW_HOME": str(tmp_path), "PATH": f"{python.parent}:/usr/bin:/bin"}
    loading = [str(python), "-c", _LOAD, str(DAGS.parent), str(tmp_path / "loaded.json")]
    subprocess.run(loading, env=environment, check=True)
    assert json.loads((tmp_path / "loaded.json").read_text()) == {
        "errors": {},
        "dags": {"tables": {"catchup": False, "max_active_runs": 1, "tasks": ["run"]}},
    }


def test_the_page_lists_every_exit_code_and_metric() -> None:
    """With the descriptions that the file of metrics has, and no other."""
    section = PAGE.read_text().partition("## Schedulers and metrics")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \| ", section, re.MULTILINE)] == [*ExitCode]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", section, re.MULTILINE)
    assert rows == [
        (each.name + "_total" * (each.type == "counter"), each.type, each.documentation) for each in families()
    ]


def test_the_page_lists_every_key_of_a_table() -> None:
    """And no other."""
    keys, marks = PAGE.read_text().partition("| key of a table")[2].split("\n## Marks")
    rows = [re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE) for text in (keys, marks)]
    assert rows == [[*TableDefinition.model_fields], [*MarksDefinition.model_fields]]
