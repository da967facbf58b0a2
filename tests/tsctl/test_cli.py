"""The command as a whole: its exit codes, its imports and its page."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.local.ports import free_port
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.conftest import FIELDS, Shipped
from tests.tsctl.running import PROGRAM, Run
from ts_common.archive.view import open_view
from ts_common.errors import AccessDenied, DataLoss, StoreUnavailable, WrongClock
from ts_reader.query import plan_query
from tsctl import cli
from tsctl.exit_codes import MEANINGS, ExitCode, code_of


def test_every_exit_code_has_its_meaning() -> None:
    """The documentation's table has all of them."""
    assert set(MEANINGS) == set(ExitCode)


def test_u14_a_store_that_does_not_answer_is_status_75(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """One message names it."""
    address = f"http://127.0.0.1:{free_port()}"
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, address)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    ended = run("ls", "--url", "s3://bucket/base", "--cluster", "prod")
    assert ended.code == 75
    (told,) = ended.err.splitlines()
    assert "bucket" in told


def test_u14_credentials_that_are_refused_are_status_2(
    shipped: Shipped, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """An operator must act."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    ended = run("cat", FIELDS, "--config", shipped.config)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1


def test_an_erasure_reads_the_ends_of_the_running_cluster(shipped: Shipped, run: Run, tmp_path: Path) -> None:
    """A dry run has the high watermarks as ends, above what is archived; the store and the cluster stay as they are."""
    keys = tmp_path / "keys"
    keys.write_text("nobody\n")
    of = ("--topic", FIELDS, "--config", shipped.config, "--bootstrap-server", shipped.cluster.bootstrap, "--json")
    found = run("erase", "add", "x", "--key-file", keys, "--reference", "r", "--due", "2090-01-01", "--dry-run", *of)
    assert found.code == 0
    ends = {each["partition"]: (each["end"], each["next_offset"]) for each in found.document["partitions"]}
    live = run("erase", "check", *of).document["cluster"]["partitions"]
    assert ends == {each["partition"]: (each["end"], each["archived_to"]) for each in live}
    for (topic, number), archived in shipped.next_offsets.items():
        if topic == FIELDS:
            end, following = ends[f"{topic}-{number}"]
            assert (end, following) == (shipped.cluster.latest(topic, number), archived)


def test_r11_an_object_that_retention_deleted_meanwhile_is_status_75(
    hand_made: Archive, named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """The same command reads the new state if it runs again."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    opened: Callable[..., object] = open_view

    def taken(*arguments: object, **named_ones: object) -> object:
        view = opened(*arguments, **named_ones)
        hand_made.store.delete(info.key for info in list(hand_made.store.list("prod/t-0/")) if info.key.endswith("log"))
        return view

    monkeypatch.setattr(plan_query, "open_view", taken)
    ended = run("cat", "t", *named)
    assert ended.code == 75
    assert "retention" in ended.err


def test_an_error_of_our_own_is_status_70(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Only this error has a traceback."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("tsctl.archive_options.name_archive", broken)
    assert cli.run(["ls"]) == ExitCode.BROKEN
    assert "ZeroDivisionError: ours" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("package", "arguments"), [("numpy", ("cat", "t")), ("plotly", ("report", "--output", "page.html"))]
)
def test_a_package_that_a_command_lacks_is_status_2(
    package: str, arguments: tuple[str, ...], hand_made: Archive, named: tuple[str, ...], tmp_path: Path
) -> None:
    """Both commands are in the agent's environment too, where only some of them have their packages."""
    hand_made.put_segment("t", 0, batches((0, 2)))
    hand_made.commit("t", 2)
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no', name='{package}')")
    ended = subprocess.run(
        [sys.executable, "-c", "from tsctl.start import main; main()", *arguments, *named],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    line = ended.stderr.splitlines()[-1]
    assert f"tsctl: the package {package} is not installed" in line
    assert "requirements/tsctl.txt" in line


def test_the_version_is_printed_without_the_commands() -> None:
    """A probe of a host pays for no import that only commands need."""
    code = "import sys; from tsctl.start import main; sys.argv[1:] = ['--version']; main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line, modules = done.stdout.splitlines()
    assert line.startswith("tsctl ")
    assert {"typer", "structlog", "tsctl.cli"}.isdisjoint(modules.split())


def test_an_unknown_option_is_status_2(run: Run) -> None:
    """The output has the command's usage."""
    ended = run("ls", "--frobnicate")
    assert (ended.code, "No such option: --frobnicate" in ended.err) == (2, True)
    assert run("frobnicate").code == 2


def test_every_command_can_write_json(run: Run) -> None:
    """A program that uses the tool does not have to parse tables."""
    for command in cli.commands().registered_commands:
        assert command.callback is not None
        assert "--json" in run(command.callback.__name__.replace("_", "-"), "--help").out, command.callback


def test_a_report_lists_its_findings(run: Run, hand_made: Archive, named: tuple[str, ...], tmp_path: Path) -> None:
    """The file is for people, and the findings on standard output are for programs."""
    hand_made.put_segment("t", 0, batches((0, 2)))
    hand_made.commit("t", 6)
    page = tmp_path / "report.html"
    ended = run("report", *named, "--json", "--output", str(page))
    assert ended.code == 0
    assert ended.document["file"] == str(page)
    assert "hole" in {finding["code"] for finding in ended.document["findings"]}
    assert page.read_text().startswith("<!doctype html>")


_COMMANDS = """
import sys, json
from tsctl.start import main
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line
    try:
        main()
    except SystemExit:
        print(*sys.modules, file=sys.stderr)
"""


def _loaded(*lines: tuple[str, ...]) -> list[set[str]]:
    """Run command lines in one new process, and return the modules that are loaded after each."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(lines)], capture_output=True, text=True, check=True, timeout=300
    )
    return [set(line.split()) for line in done.stderr.splitlines() if line.startswith("sys builtins ")]


def test_a_command_loads_only_what_it_needs(hand_made: Archive, named: tuple[str, ...]) -> None:
    """Listings and checks decode nothing and need no cluster; without a terminal no command draws."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    lines = ("ls", "-l", "segments", *named), ("gaps", *named), ("verify", *named), ("status", "--help")
    *looking, asking, querying = _loaded(*lines, ("sql", *named, "select 1"))
    (finding,) = _loaded(("find", "--topic", "t", "--key", "k", *named))
    undrawn = {"rich.console", "rich.progress", "pygments", "pandas", "jinja2", "plotly"}
    unasked = {"confluent_kafka", "prometheus_client", "botocore"}
    undecoded = {"numpy", "pyarrow", "llvmlite", "numba", "duckdb", "fastavro", "orjson"}
    for loaded in (*looking, asking):
        assert (undrawn | unasked | undecoded).isdisjoint(loaded)
        assert ("urllib3" in loaded) == (loaded is asking)
    assert {"duckdb", "pyarrow"} <= querying
    assert (undrawn | unasked | {"pyarrow.parquet", "numba"}).isdisjoint(querying)
    unfound = {"pydantic", "ruamel.yaml", "pyarrow.dataset", "multiprocessing", "ts_reader.following.follower"}
    assert "pyarrow.parquet" in finding
    assert (undrawn | unasked | unfound | {"numba"}).isdisjoint(finding)


@pytest.mark.full
def test_kept_code_is_loaded_without_numba(hand_made: Archive, named: tuple[str, ...]) -> None:
    """Its import needs longer than a short scan."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    _loaded(("cat", "t", *named))  # it may compile
    (decoding,) = _loaded(("cat", "t", *named))
    assert {"llvmlite", "pyarrow"} <= decoding
    assert "numba" not in decoding


def test_the_installed_command_exits_with_its_status(hand_made: Archive, named: tuple[str, ...]) -> None:
    """It runs in its own process, and its JSON is UTF-8 in any locale."""
    hand_made.put_segment("t", 0, batches((0, 2), value="h\u00e9".encode()))
    hand_made.put_segment("t", 5, batches((5, 6)))
    hand_made.commit("t", 6)
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run([PROGRAM, "cat", "t", *named], capture_output=True, check=False, env=environment, timeout=300)
    assert done.returncode == 1
    assert "h\u00e9" in done.stdout.decode()
    assert done.stderr.decode() == (
        "tsctl: t-0: offsets 2 to 4 are lost: no object in the store contains them; tsctl repair can put them back\n"
    )


def test_an_error_that_an_operator_must_resolve_is_code_2() -> None:
    """A wrong clock too, although the agent waits for the clock to be set."""
    codes = [code_of(error("x")) for error in (WrongClock, AccessDenied, StoreUnavailable, DataLoss)]
    assert codes == [ExitCode.REFUSED, ExitCode.REFUSED, ExitCode.TRY_AGAIN, ExitCode.FOUND]
