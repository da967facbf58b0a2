"""Foreign text is shown without control characters of terminals, and JSON keeps its meaning."""

import json
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_text import ESCAPES, raw_in
from ts_common.errors import ConfigurationError, CorruptData
from ts_common.printable import printable, printable_json, printable_lines


@given(st.text())
def test_r16_what_is_printed_is_printable_and_readable_text_is_unchanged(text: str) -> None:
    """Each character that Python considers printable is kept, and each other one is escaped."""
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert raw_in(printable_lines(text)) == []
    assert printable_lines(text).count("\n") == text.count("\n")


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_without_raw_characters_means_the_same(value: object) -> None:
    """Half of a surrogate pair, characters above U+FFFF and DEL are valid UTF-8 too."""
    document = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(document.encode()) == value
    assert raw_in(document) == []


def test_r16_no_error_holds_a_character_that_commands_a_terminal() -> None:
    """One problem of a configuration is one line."""
    assert raw_in(str(CorruptData(f"{ESCAPES}: damaged"))) == []
    refused = ConfigurationError(ESCAPES, [f"a\n{ESCAPES}", "b"])
    assert raw_in(str(refused)) == []
    assert len(str(refused).splitlines()) == 3


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
def test_r16_no_log_line_holds_a_character_that_commands_a_terminal(form: str) -> None:
    """This holds for events, facts, lists, libraries' messages and tracebacks; only a traceback has several lines."""
    script = (
        "from ts_common.logs import LogFormat, configure_logs\nimport logging, structlog\n"
        f"configure_logs(LogFormat.{form})\nlog = structlog.get_logger()\ntext = {ESCAPES!r}\n"
        "class Odd:\n    def __repr__(self):\n        return text\n"
        "log.warning(text, fact=text, listed=[text], odd=Odd(), inside=[Odd()], lines='a\\nb')\n"
        "logging.getLogger('theirs').warning('%s', text)\n"
        "try:\n    raise ZeroDivisionError(text)\n"
        "except ZeroDivisionError:\n    log.exception('ended')\n    logging.getLogger('theirs').exception('too')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.count("ZeroDivisionError: ") == 2
    assert ended.stderr.count("pwned") == 8
    assert raw_in(ended.stderr) == []
    lines = ended.stderr.splitlines()
    if form == "JSON":
        assert [json.loads(line)["event"] for line in lines][2:] == ["ended", "too"]
        assert json.loads(lines[0])["level"] == logging.getLevelName(logging.WARNING).lower()
    else:
        assert "a\\nb" in lines[0]
