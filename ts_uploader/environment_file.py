"""Reads the environment file of the unit as systemd does, so that `ts-uploader check` runs with the agent's settings.

The grammar is that of systemd.exec(5), `EnvironmentFile=`: a name and a value a line, comments with `#` or `;`, values
in single or double quotes or without. A backslash at the end of a line continues it. Nothing is expanded. No value is
part of a message, since credentials are among them.
"""

import re
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from ts_common.suggestions import nearest
from ts_uploader.findings import Finding, error, hint, ok, warning

DEFAULT: Final = Path("/etc/ts-uploader/environment")
STANDARD_INPUT: Final = Path("-")
ARGUMENTS: Final = "TS_UPLOADER_ARGUMENTS"
SERVER_PROPERTIES: Final = "KAFKA_SERVER_PROPERTIES"
_UNITS_SERVER_PROPERTIES: Final = Path("/etc/kafka/server.properties")  # what the unit sets before the file
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHITESPACE: Final = " \t\n\r"
_NEWLINES: Final = "\n\r"
_ESCAPED_IN_QUOTES: Final = '"\\`$'


@dataclass(frozen=True, slots=True)
class UnitEnvironment:
    """The content of the unit's file.

    Attributes:
        variables: by name; values may be secret.
        arguments: options of `ts-uploader run` by their Python names, from `TS_UPLOADER_ARGUMENTS`.
        findings: findings on the file, without values.
        read: whether the file exists and was read.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    arguments: Mapping[str, str] = field(default_factory=dict, repr=False)
    findings: tuple[Finding, ...] = ()
    read: bool = False

    def server_properties(self, environment: Mapping[str, str]) -> Path | None:
        """Return the broker's file that the unit passes to the agent; None if nothing names one.

        Args:
            environment: of the process; used if the file does not name it.
        """
        named = self.arguments.get("server_properties") or self.variables.get(SERVER_PROPERTIES)
        if named := named or environment.get(SERVER_PROPERTIES):
            return Path(named)
        return _UNITS_SERVER_PROPERTIES if self.read else None


def read_unit_environment(path: Path | None, options: Collection[str]) -> UnitEnvironment:
    """Read the unit's file.

    Args:
        path: of the file, `-` for standard input; None for the default one, which may be missing or unreadable.
        options: of `ts-uploader run`, `--name` each; all of them need a value.
    """
    about = f"environment file {path or DEFAULT}"
    try:
        text = sys.stdin.read() if path == STANDARD_INPUT else (path or DEFAULT).read_text(encoding="utf-8")
    except FileNotFoundError:
        return UnitEnvironment(findings=() if path is None else (error(about, "the file does not exist"),))
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "it is not UTF-8"
        if path is not None:
            return UnitEnvironment(findings=(error(about, f"it cannot be read: {reason}"),))
        way = f"give it as root: runuser -u ts-uploader -- ... --environment-file - < {DEFAULT}"
        found = f"it cannot be read by this user ({reason}): this check has none of the unit's variables and arguments"
        return UnitEnvironment(findings=(hint(about, found, way),))
    variables, ignored = parse_environment_file(text)
    findings = [warning(about, each, "write NAME=value, or # before all of the line") for each in ignored]
    arguments: Mapping[str, str] = {}
    try:
        arguments = _parse_arguments(variables.get(ARGUMENTS, ""), options)
    except ValueError as wrong:
        findings.append(error(about, f"{ARGUMENTS}: {wrong}"))
    names = ", ".join(sorted(variables)) or "nothing"
    options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(arguments))
    findings.append(ok(about, f"sets {names}" + (f"; the unit's arguments: {options}" if options else "")))
    return UnitEnvironment(variables, arguments, tuple(findings), read=True)


def _parse_arguments(text: str, options: Collection[str]) -> dict[str, str]:
    """Return the options in the unit's arguments, which systemd splits at white space outside of quotes.

    Raises:
        ValueError: they are not options of `run`; the message has no values.
    """
    try:
        words = shlex.split(text)
    except ValueError as unclosed:
        raise ValueError("a quote is not closed") from unclosed
    found: dict[str, str] = {}
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if not option.startswith("--"):
            raise ValueError("a word in it is neither an option nor an option's value")
        if option not in options:
            raise ValueError(f"{option}: run has no such option{nearest(option, options)}")
        if not equals and (value := next(remaining, "")) == "":
            raise ValueError(f"{option}: its value is missing")
        found[option.removeprefix("--").replace("-", "_")] = value
    return found


class _State(Enum):
    """The parser's position in the file, as in systemd's own parser (src/basic/env-file.c)."""

    BEFORE_NAME = auto()
    NAME = auto()
    BEFORE_VALUE = auto()
    VALUE = auto()
    ESCAPE = auto()
    SINGLE = auto()
    DOUBLE = auto()
    DOUBLE_ESCAPE = auto()
    COMMENT = auto()


def parse_environment_file(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables, and a sentence for each line that systemd ignores.

    Args:
        text: of the file.
    """
    parser = _Parser()
    for character in text:
        parser.read(character)
    parser.end()
    return parser.variables, parser.ignored


class _Parser:
    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.ignored: list[str] = []
        self._state = _State.BEFORE_NAME
        self._line = self._began = 1
        self._last = ""
        self._name = ""
        self._value = ""
        self._kept = 0  # leading characters of the value that are kept when white space at its end is removed

    def read(self, character: str) -> None:
        """Read one more character."""
        match self._state:
            case _State.BEFORE_NAME:
                if character in "#;":
                    self._state = _State.COMMENT
                elif character not in _WHITESPACE:
                    self._state, self._name, self._value, self._kept = _State.NAME, character, "", 0
                    self._began = self._line
            case _State.NAME:
                if character in _NEWLINES:
                    self._pass_over()
                elif character == "=":
                    self._state = _State.BEFORE_VALUE
                else:
                    self._name += character
            case _State.BEFORE_VALUE:
                if character == "'":
                    self._state = _State.SINGLE
                elif character == '"':
                    self._state = _State.DOUBLE
                elif character == "\\":
                    self._state = _State.ESCAPE
                elif character in _NEWLINES:
                    self._set()
                elif character not in _WHITESPACE:
                    self._state = _State.VALUE
                    self._value += character
            case _State.VALUE:
                if character in _NEWLINES:
                    self._set()
                elif character == "\\":
                    self._state = _State.ESCAPE
                else:
                    self._value += character
            case _State.ESCAPE:
                self._state = _State.VALUE
                if character not in _NEWLINES:
                    self._value += character
                    self._kept = len(self._value)
            case _State.SINGLE | _State.DOUBLE:
                if character == ("'" if self._state is _State.SINGLE else '"'):
                    self._state, self._kept = _State.BEFORE_VALUE, len(self._value)
                elif character == "\\" and self._state is _State.DOUBLE:
                    self._state = _State.DOUBLE_ESCAPE
                else:
                    self._value += character
            case _State.DOUBLE_ESCAPE:
                self._state = _State.DOUBLE
                if character in _ESCAPED_IN_QUOTES:
                    self._value += character
                elif character not in _NEWLINES:
                    self._value += f"\\{character}"
            case _State.COMMENT:
                if character in _NEWLINES:
                    self._state = _State.BEFORE_NAME
                    if self._last == "\\":
                        text = "a comment ends with a backslash; systemd before 254 adds the next line to it"
                        self.ignored.append(f"line {self._line}: {text}")
        self._last = character
        self._line += character == "\n"

    def end(self) -> None:
        """End the file; an unclosed quote ends with it."""
        if self._state is _State.NAME:
            self._pass_over()
        elif self._state not in {_State.BEFORE_NAME, _State.COMMENT}:
            if self._state in {_State.SINGLE, _State.DOUBLE, _State.DOUBLE_ESCAPE}:
                self._kept = len(self._value)
            self._set()

    def _set(self) -> None:
        self._state = _State.BEFORE_NAME
        name = self._name.rstrip(_WHITESPACE)
        if not _NAME.fullmatch(name):
            self.ignored.append(f"line {self._began}: no valid variable name before the =; systemd ignores it")
            return
        rest = self._value[self._kept :].rstrip(_WHITESPACE)
        self.variables[name] = self._value[: self._kept] + rest

    def _pass_over(self) -> None:
        self._state = _State.BEFORE_NAME
        self.ignored.append(f"line {self._began}: there is no =; systemd ignores it")
