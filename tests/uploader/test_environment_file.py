"""The unit's environment file: read as systemd reads it, so that a check looks as the agent will run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.uploader.checking import URL, Check
from ts_uploader.environment_file import parse_environment_file
from ts_uploader.findings import EXIT_ACT, EXIT_FINE, EXIT_UNANSWERED

SECRET = "Zq7x-unit-secret"
PROGRAM = str(Path(sys.executable).with_name("ts-uploader"))


@pytest.fixture
def check(cluster: LocalCluster, tmp_path: Path) -> Check:
    return Check(cluster, tmp_path)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("A=b\n# B=c\n; C=d\n\n D = e \n", {"A": "b", "D": "e"}),
        ("A=b # no comment\n", {"A": "b # no comment"}),
        ('A="b c"\nB=\'d "e\'\nC=f\' g\'"h"i\n', {"A": "b c", "B": 'd "e', "C": "f' g'\"h\"i"}),
        ("A=\"b\"'c' d\n", {"A": "bcd"}),
        ("A=b\\\n  c\\\\d\\ \n", {"A": "b  c\\d "}),
        ('A="b\\\nc\\"d\\$e\\f"\nB=\'g\\h\'\n', {"A": 'bc"d$e\\f', "B": "g\\h"}),
        ("A=\nB=$A ${A} %h `id`", {"A": "", "B": "$A ${A} %h `id`"}),
        ("A=b\r\nA=c\r\n", {"A": "c"}),
        ('A="b\n c \n', {"A": "b\n c \n"}),
    ],
)
def test_values_are_those_that_systemd_gives_to_the_unit(text: str, variables: dict[str, str]) -> None:
    """Quotes, escapes, comments and continued lines; compared with systemd's own parser when this was written."""
    assert parse_environment_file(text) == (variables, [])


def test_lines_that_systemd_ignores_are_reported_by_their_number() -> None:
    """Without their values; a comment that older releases continue is reported too."""
    found, ignored = parse_environment_file(f"export A={SECRET}\n1B={SECRET}\nC={SECRET}\n{SECRET}\n# x\\\nD=e\n")
    assert found == {"C": SECRET, "D": "e"}
    assert [each.partition(":")[0] for each in ignored] == ["line 1", "line 2", "line 4", "line 5"]
    assert SECRET not in "".join(ignored)


def test_a_check_reads_credentials_and_arguments_of_the_unit(check: Check) -> None:
    """From a file and from standard input; what is printed of it are names."""
    write = check.directory / "environment"
    values = {name: value for name, value in check.s3.environment().items() if name.startswith("AWS_")}
    lines = [f'{name}="{value}"' for name, value in values.items()]
    lines += [f"KAFKA_SERVER_PROPERTIES={check.broker}", f"UNKNOWN={SECRET}"]
    lines += ['TS_UPLOADER_ARGUMENTS="--cluster-id prod --http-address=127.0.0.1:0"']
    write.write_text("\n".join(lines) + "\n")
    check.run({URL: check.location})  # writes the configuration, and the layout of nothing
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(check.directory), "NO_PROXY": "127.0.0.1"}
    for place in (str(write), "-"):
        ended = subprocess.run(
            [PROGRAM, "check", str(check.config), "--environment-file", place],
            env={**bare, "PYTHONPATH": str(Path(__file__).parents[2])},
            input=write.read_text(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == EXIT_FINE, ended.stdout + ended.stderr
        assert "the unit's arguments: --cluster-id, --http-address" in ended.stdout
        assert "AWS_SECRET_ACCESS_KEY" in ended.stdout
        said = ended.stdout + ended.stderr
        assert [value for value in (SECRET, values["AWS_SECRET_ACCESS_KEY"]) if value in said] == []


def test_the_command_line_overrides_the_environment_file(check: Check) -> None:
    """And the file before the variables of the process, as systemd has it."""
    file = check.directory / "environment"
    file.write_text("AWS_ENDPOINT_URL_S3=http://127.0.0.1:9\nTS_UPLOADER_ARGUMENTS=--cluster-id other\n")
    ended = check.run({URL: check.location}, "--environment-file", str(file))
    assert ended.returncode == EXIT_UNANSWERED, ended.stdout
    assert "of cluster prod" in ended.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"TS_UPLOADER_ARGUMENTS=--clutser-id {SECRET}\n", "did you mean --cluster-id?"),
        (f"TS_UPLOADER_ARGUMENTS={SECRET}\n", "neither an option"),
        ("TS_UPLOADER_ARGUMENTS=--cluster-id\n", "its value is missing"),
        (f'TS_UPLOADER_ARGUMENTS="--cluster-id \'{SECRET}"\n', "a quote is not closed"),
        (None, "the file does not exist"),
    ],
)
def test_arguments_that_the_unit_could_not_run_with_are_errors(tmp_path: Path, text: str | None, said: str) -> None:
    """They are reported with all other findings, and without their values."""
    file = tmp_path / "environment"
    if text is not None:
        file.write_text(text)
    command = [PROGRAM, "check", str(tmp_path), "--environment-file", str(file), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    findings = json.loads(ended.stdout)["findings"]
    assert ended.returncode == EXIT_ACT
    (found,) = [
        each for each in findings if each["about"].startswith("environment file") and each["severity"] == "error"
    ]
    assert said in found["found"]
    assert SECRET not in ended.stdout + ended.stderr
