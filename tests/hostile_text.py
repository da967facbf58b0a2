"""Text that commands a terminal or reorders a line, and what has to be absent where programs write."""

import os
import pty
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dev.local.forks import start

ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x9b2J\x9d0;title\x9c\x7f\u202egpj.exe\u2066x\u2069\u200e\u200f\u061c\u2028\u2029"
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SECONDS = 60


def raw_in(text: str) -> list[str]:
    """The characters of a text that no terminal and no page may get; a terminal's own line ends do not count."""
    return _RAW.findall(text.replace("\r\n", "\n"))


def on_terminal(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command on a terminal that has no colours; its exit code, and what it wrote to both outputs.

    The command begins with the name of a program of `dev.local.forks`.
    """
    ours, theirs = pty.openpty()
    try:
        variables = {**os.environ, **(environment or {}), "TERM": "dumb", "COLUMNS": "300"}
        process = start(command, cwd=Path.cwd(), env=variables, output=theirs)
    finally:
        os.close(theirs)
    written = bytearray()
    with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):  # EIO: the last writer has ended
        while piece := terminal.read(1 << 16):
            written += piece
    return process.wait(_SECONDS), written.decode()
