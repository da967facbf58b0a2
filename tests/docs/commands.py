"""The fenced blocks of a page, and a shell that runs them unchanged, in places of the test.

install, start = blocks(PAGE, "Install", language="sh")      by the heading above; of one language, or of all
commands(block)                                              the commands of a block, one by one
shell = Shell(directory, {"/etc/kafka": str(tmp_path), "broker-1.example:9464": agent.address})
shell.run(install, start, AGENT="http://127.0.0.1:1")        in one bash; returns their output if they end with 0
shell.ends(1, verify)                                        if the page expects another exit code

The shell changes only the names in the table of places, and values of variables that the page sets.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.local.forks import inherited

CHECKOUT = Path(__file__).parents[2]
_SECONDS = 800  # an installation needs half a minute on a quiet machine
_FENCE = re.compile(r"```(\w*)")
_COMMENT = re.compile(r"(?:^\s*|\s{2,})#\s.*$")
_HEADING = re.compile(r"#{2,6} (.*)")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        section: the heading above it, of the second level or below; empty before the first.
        line: number of its fence's line in the page.
        language: the language that the fence names; empty without one.
        text: its content.
        shown: its expected output: the next block, if that has the language `text`. Empty without one.
    """

    section: str
    line: int
    language: str
    text: str
    shown: str = ""


def blocks(page: Path, section: str | None = None, *, language: str | None = None) -> list[Block]:
    """Return the blocks of a page in their order.

    Args:
        page: a Markdown file.
        section: only those below this heading; empty for those before the first, None for all.
        language: only those of this language; None for all.

    Raises:
        ValueError: a fence has no end, or no block is found: a page that lost its commands must not pass.
    """
    found = [
        block
        for block in _parse(page)
        if (section is None or block.section == section) and (language is None or block.language == language)
    ]
    if not found:
        raise ValueError(f"{page.name}: no {language or 'fenced'} block{'' if section is None else f' in {section!r}'}")
    return found


def _parse(page: Path) -> list[Block]:
    found: list[Block] = []
    section, language, begins, held = "", None, 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if language is None:
            if fence := _FENCE.fullmatch(line):
                language, begins, held = fence[1], number, []
            elif heading := _HEADING.fullmatch(line):
                section = heading[1]
        elif line == "```":
            text = "".join(f"{one}\n" for one in held)
            if language == "text" and found:
                before = found[-1]
                found[-1] = Block(before.section, before.line, before.language, before.text, text)
            found.append(Block(section, begins, language, text))
            language = None
        else:
            held.append(line)
    if language is not None:
        raise ValueError(f"{page.name}, line {begins}: this block does not end")
    return found


def commands(block: Block) -> list[str]:
    """Return the commands of a block without comments, so that a test can append options.

    Each command is one line, or several that a backslash joins.
    """
    lines = block.text.replace("\\\n", "").splitlines()
    return [command for line in lines if (command := _COMMENT.sub("", line).rstrip())]


def _literal(text: str) -> str:
    """Return a replacement for `re.sub` that inserts `text` literally."""
    return text.replace("\\", "\\\\")


class CommandFailedError(AssertionError):
    """A page's commands ended with an unexpected exit code."""


class Shell:
    """Runs blocks of pages in bash.

    Args:
        directory: the working directory.
        places: names of the pages and their replacements. A name is replaced only at its beginning: the entry
            `/etc/kafka` changes `/etc/kafka/server.properties`, but not `/opt/etc/kafka`.
        programs: a directory of commands that precedes the others on the PATH.
        environment: additional variables; the attribute of this name has all variables.
    """

    def __init__(
        self,
        directory: Path,
        places: Mapping[str, str],
        programs: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.places = dict(places)
        path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "no_proxy": "127.0.0.1", **(environment or {})}

    def here(self, text: str) -> str:
        """Return a text of a page with this test's places."""
        if not self.places:
            return text
        longest_first = sorted(self.places, key=len, reverse=True)
        named = "|".join(rf"(?<![\w{'/' * name.startswith('/')}.-]){re.escape(name)}" for name in longest_first)
        return re.sub(rf"(?:{named})(?!\w)", lambda match: self.places[match[0]], text)

    def run(self, *parts: Block | str, **variables: str) -> str:
        """Run blocks as `ends` does, with exit code 0."""
        return self.ends(0, *parts, **variables)

    def ends(self, code: int, /, *parts: Block | str, **variables: str) -> str:
        """Run blocks in one shell and return their standard output.

        Args:
            code: the expected exit code of the last one; an earlier failure ends all.
            parts: blocks, or single commands.
            variables: values for variables that the blocks set, as a reader of the page would change them.

        Raises:
            CommandFailedError: the exit code differs.
            ValueError: the blocks do not set such a variable exactly once.
        """
        script = self.here("\n".join(part.text if isinstance(part, Block) else part for part in parts))
        for name, value in variables.items():
            setting = re.compile(rf"^((?:export )?{name}=)\S+", re.MULTILINE)
            if len(setting.findall(script)) != 1:
                raise ValueError(f"the page does not set {name}, or sets it twice")
            script = setting.sub(rf"\g<1>{_literal(shlex.quote(value))}", script)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            pass_fds=inherited(),
        )
        if ended.returncode != code:
            raise CommandFailedError(f"code {ended.returncode}\n{script}\n{ended.stdout}{ended.stderr}")
        return ended.stdout
