"""The prompt of `tsctl sql`, on a terminal of its own."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches

SECONDS = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`tsctl` on a pseudo-terminal; what it prints is read until a text appears."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tsctl.cli", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, **environment},
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """Return what is printed until a pattern appears, without the terminal's escapes."""
        seen, deadline = "", time.monotonic() + SECONDS
        poll = select.poll()  # `select` refuses numbers above 1023, which a long run has
        poll.register(self._master, select.POLLIN)
        while not re.search(pattern, _ESCAPES.sub("", seen)):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not appear in {seen!r}"
            if poll.poll(1000 * left):
                seen += os.read(self._master, 1 << 16).decode(errors="replace")
                if "\x1b[6n" in seen:  # the library queries the place of the cursor
                    self.type("\x1b[1;1R")
                    seen = seen.replace("\x1b[6n", "")
        return _ESCAPES.sub("", seen)

    def ends(self) -> int:
        """Return the exit code."""
        return self._process.wait(SECONDS)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """The command on an archive with a topic of five records."""
    archive = MadeArchive(tmp_path / "store")
    archive.put_segment("clicks", 0, batches((0, 5)))
    archive.commit("clicks", 5)
    return ["sql", "--url", archive.location, "--cluster", "prod"]


def test_the_prompt_runs_statements_until_ctrl_d(arguments: list[str], tmp_path: Path) -> None:
    """A statement of two lines, an error that does not end it, the topics, and history for the next time."""
    # Keys are typed at a prompt only: before it, the terminal is in another mode.
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"}
    with Terminal(arguments, environment) as terminal:
        terminal.until("sql>")
        terminal.type("select count(*)\r")
        terminal.until(r"\.\.\.>")
        terminal.type("from clicks;\r")
        terminal.until(r"count_star\(\)\s+5[\s\S]*sql>")
        terminal.type("select * from nope;\r")
        terminal.until(r"no such topic[\s\S]*sql>")
        terminal.type("show tables;\r")
        terminal.until(r"\nclicks\s[\s\S]*sql>")
        terminal.type("\x04")
        assert terminal.ends() == 0
    history = tmp_path / "state" / "tsctl" / "sql-history"
    assert "from clicks;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
