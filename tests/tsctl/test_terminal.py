"""`tsctl` on a terminal: no name, id, reason or record value in the store controls it."""

import json
import os
import pty
from pathlib import Path
from urllib.request import url2pathname

import pytest

from dev.local.forks import run, start
from tests.common.log_format.build import batch, record
from tests.hostile_text import ESCAPES, on_terminal, raw_in
from tests.spark.archives import Archive
from ts_common.archive.gap_records import Gap
from tsctl.exit_codes import ExitCode

REASON = f"because {ESCAPES}"


@pytest.fixture
def named(tmp_path: Path) -> tuple[str, ...]:
    """Return an archive with these characters in a value, header, gap's reason, topic id and directory's name."""
    archive = Archive(tmp_path / "store")
    value = ESCAPES.encode()
    archive.put_segment("t", 0, batch(0, [record(0, value, value, headers=[(value, value)])]), index=b"", timeindex=b"")
    archive.put_segment("t", 4, batch(4, [record(0)]))
    archive.store.put(archive.partition("t").gap(1, 4), Gap(1, 4, REASON, 1, 1).encode())
    archive.commit("t", 5, highest_base=4)
    archive.put_segment("u", 0, batch(0, [record(0)]))
    archive.commit("u", 1)
    listed = {"incarnations": [{"topicId": ESCAPES, "firstSeen": 1, "directory": "u"}]}
    archive.store.put(archive.keys.incarnations("u"), json.dumps(listed).encode())
    archive.put_segment("v", 0, batch(0, [record(0)]))
    archive.commit("v", 1)
    here = Path(url2pathname(archive.location.removeprefix("file://"))) / archive.partition("v").prefix
    (here.parent / f"v~{ESCAPES.replace('/', '')}-0").mkdir()
    (here.parent / f"v~{ESCAPES}-0" / f"{0:020d}.log").write_bytes(b"x")
    archive.store.close()
    return ("--url", archive.location, "--cluster", "prod")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("ls",), "pwned"),
        pytest.param(("ls", "t", "--level", "segments"), "t", marks=pytest.mark.full),
        (("gaps", "t"), "because"),
        pytest.param(("gaps", "t", "--json"), "because", marks=pytest.mark.full),
        (("cat", "t"), "pwned"),
        pytest.param(("cat", "u", "--incarnation", "9"), "pwned", marks=pytest.mark.full),
        pytest.param(("cat", "v"), "pwned", marks=pytest.mark.full),
        (("verify", "t", "--in-flight-hours", "0"), "because"),
        pytest.param(("verify",), "pwned", marks=pytest.mark.full),
        pytest.param(("verify", "t", "--json"), "because", marks=pytest.mark.full),
        pytest.param(("cat", f"absent{ESCAPES}"), "pwned", marks=pytest.mark.full),
        ((f"no-such-command{ESCAPES}",), "pwned"),
    ],
)
def test_r16_no_text_of_the_store_commands_the_terminal(
    named: tuple[str, ...], command: tuple[str, ...], said: str
) -> None:
    """The text is shown, with its control and bidirectional characters escaped."""
    arguments = command if command[0].startswith("no-such") else (*command, *named)
    code, written = on_terminal(["tsctl", *arguments])
    assert said in written
    assert raw_in(written) == []
    assert code != ExitCode.BROKEN
    assert "Traceback" not in written


def test_escaped_records_are_equal_json(named: tuple[str, ...]) -> None:
    """A program that parses the lines gets the value that was produced."""
    _, written = on_terminal(["tsctl", "cat", "t", "--max", "1", *named])
    line = next(line for line in written.splitlines() if line.startswith("{"))
    assert json.loads(line)["value"] == ESCAPES


def test_r16_the_report_shows_no_such_character(named: tuple[str, ...], tmp_path: Path) -> None:
    """Neither its markup nor the data of its script contains one."""
    page = tmp_path / "report.html"
    _, written = on_terminal(["tsctl", "report", "--output", str(page), *named])
    assert "because" in page.read_text()
    assert raw_in(written + page.read_text().partition("<script>")[0]) == []
    data = page.read_text().partition("const charts = ")[2].partition(";\n")[0]
    assert raw_in(data) == []
    assert "\\u001b" not in data


@pytest.mark.parametrize(
    "command",
    [
        ("cat", "t", "--max", "1"),
        pytest.param(("sql", "--allow-loss", "--format", "csv", "select key from t"), marks=pytest.mark.full),
        pytest.param(("sql", "--allow-loss", "select count(*) from t"), marks=pytest.mark.full),
    ],
)
def test_a_progress_bar_removes_no_line_of_a_redirected_output(
    named: tuple[str, ...], command: tuple[str, ...], tmp_path: Path
) -> None:
    """With standard error on a terminal, all lines are in the file, and the bar is removed at the end."""
    words = ["tsctl", *command, *named]
    expected = run(words, cwd=tmp_path, env=os.environ, timeout=60)
    here, there = pty.openpty()
    file = tmp_path / "lines"
    with file.open("wb") as lines:
        terminal = {**os.environ, "TERM": "xterm-256color"}  # on a dumb one no bar is drawn
        process = start(words, cwd=tmp_path, env=terminal, output=lines.fileno(), errors=there)
    os.close(there)
    drawn = b""
    try:
        while data := os.read(here, 4096):
            drawn += data
    except OSError:  # Linux's word for the end of a terminal
        pass
    os.close(here)
    assert process.wait(60) == expected.returncode
    assert file.read_text() == expected.stdout != ""
    assert b"\x1b[2K" in drawn  # a bar was drawn, and its line is erased


def test_r16_csv_on_a_terminal_is_escaped(named: tuple[str, ...]) -> None:
    """Names of columns and values; a file has them as they are."""
    for command in (
        ("cat", "t", "--format", "csv"),
        ("sql", "--allow-loss", "--format", "csv", f'select key as "{ESCAPES}" from t'),
    ):
        _, shown = on_terminal(["tsctl", *command, *named])
        assert raw_in(shown) == []
        assert "pwned" in shown
