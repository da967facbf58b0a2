"""Log lines on standard error, of a process that configures its logs."""

import json
import subprocess
import sys

import pytest

from ts_common import logs
from ts_common.logs import LogFormat

PROGRAM = """
import logging, sys
import structlog
from ts_common.logs import LogFormat, configure_logs
configure_logs(LogFormat(sys.argv[1]), int(sys.argv[2]))
log = structlog.get_logger()
log.debug("hidden_event")
log.info("segment_shipped", key="a\\x1b[2J", url="http://user:hush@proxy/", size=7)
logging.getLogger("library").warning("slow %s", "http://user:hush@proxy/")
logging.getLogger("library").info("hidden library")
logging.getLogger("kazoo").warning("hidden kazoo")
def fail():
    password = "hush"
    raise ValueError("broken")
try:
    fail()
except ValueError:
    log.exception("agent_failed")
"""


def lines(form: LogFormat, level: int = 20) -> list[str]:
    """Return the lines of a process that logs one event of each kind."""
    run = subprocess.run([sys.executable, "-c", PROGRAM, form, str(level)], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_json_has_one_object_for_each_event() -> None:
    """Each line has time, level, event and facts; a traceback is one of the facts."""
    found = [json.loads(line) for line in lines(LogFormat.JSON)]
    assert [(each["level"], each["event"]) for each in found] == [
        ("info", "segment_shipped"),
        ("warning", "slow http://***@proxy/"),
        ("error", "agent_failed"),
    ]
    assert all("timestamp" in each for each in found)
    assert found[0]["size"] == 7
    assert found[2]["exception"].endswith("ValueError: broken")


def test_text_has_one_line_for_each_event_and_a_plain_traceback() -> None:
    """The traceback shows no local variables, because they can contain passwords."""
    found = lines(LogFormat.TEXT)
    assert "segment_shipped" in found[0]
    assert "size=7" in found[0]
    assert found[-1] == "ValueError: broken"
    assert not any("hush" in line for line in found if 'password = "hush"' not in line)


@pytest.mark.parametrize("form", LogFormat)
def test_no_line_has_credentials_or_hidden_events(form: LogFormat) -> None:
    """Libraries log from warnings on, kazoo from errors on, and events below the level are left out."""
    text = "\n".join(lines(form))
    assert "user:hush" not in text
    assert "\x1b" not in text
    assert "hidden" not in text


def test_the_level_selects_the_events() -> None:
    """At the level of warnings, no event below it is written."""
    found = lines(LogFormat.JSON, 30)
    assert [json.loads(line)["level"] for line in found] == ["warning", "error"]


REPLACED = """
import contextlib, io, structlog
from ts_common.logs import LogFormat, configure_logs
for number in range(2):
    with io.StringIO() as replaced, contextlib.redirect_stderr(replaced):
        if not number:
            configure_logs(LogFormat.TEXT)
            log = structlog.get_logger()
        log.warning("segment_skipped", number=number)
        print(replaced.getvalue(), end="")
log.warning("segment_skipped", number=2)
"""


def test_a_line_is_written_to_the_standard_error_of_its_time() -> None:
    """A program that replaced it, and closed the replacement, continues to log."""
    run = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, text=True, check=True)
    assert [line.rpartition(" ")[2] for line in run.stdout.splitlines()] == ["number=0", "number=1"]
    assert run.stderr.rstrip().endswith("number=2")


def test_each_identity_is_first_once_and_the_oldest_are_forgotten() -> None:
    """The memory is bounded."""
    mine = [("test_logs", number) for number in range(logs._MOST_IDENTITIES + 1)]
    assert all(map(logs.is_first, mine))
    assert not logs.is_first(mine[-1])
    assert logs.is_first(mine[0])
