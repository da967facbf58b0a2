"""Pages about a command line, from the command itself: a reference in Markdown and a man page."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from typer import Typer
from typer.main import get_command

_WIDTH = 100


@contextmanager
def _context(app: Typer, name: str) -> Iterator[tuple[Any, Any]]:
    """Yield the command and its click context."""
    command: Any = get_command(app)
    with command.make_context(name, [], resilient_parsing=True, max_content_width=_WIDTH) as context:
        yield command, context


def _commands(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each subcommand with its name and its click context, in the order of the help.

    A command with commands of its own is these, and itself if it runs without one.
    """
    for name, inner in command.commands.items():
        with inner.make_context(
            name, [], parent=context, resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
        ) as inner_context:
            if hasattr(inner, "commands"):
                if inner.invoke_without_command:
                    yield name, inner, inner_context
                yield from ((f"{name} {own}", *rest) for own, *rest in _commands(inner, inner_context))
            else:
                yield name, inner, inner_context


def reference(app: Typer, name: str) -> list[str]:
    """Return the help of each subcommand as lines of Markdown."""
    lines = []
    with _context(app, name) as (command, context):
        for inner_name, inner, inner_context in _commands(command, context):
            lines += [f"### `{name} {inner_name}`", "", "```", inner.get_help(inner_context), "```", ""]
    return lines


def man_page(app: Typer, name: str, summary: str, exit_codes: Mapping[int, str], see_also: str) -> str:
    """Return a man page of section 1 as roff.

    Args:
        summary: one line without a period.
        exit_codes: meanings by code.
        see_also: a sentence about further pages.
    """
    lines = [
        f'.TH {name.upper()} 1 "" "ts-uploader {version("ts-uploader")}" "User Commands"',
        ".SH NAME",
        rf"{_roff(name)} \- {_roff(summary)}",
        ".SH SYNOPSIS",
        rf".B {_roff(name)}",
        r".I COMMAND",
        "[OPTIONS] [ARGUMENTS]",
        ".SH COMMANDS",
    ]
    with _context(app, name) as (command, context):
        for inner_name, inner, inner_context in _commands(command, context):
            usage = " ".join(inner.collect_usage_pieces(inner_context))
            lines += [f'.SS "{_roff(name)} {_roff(inner_name)} {_roff(usage)}"', *_paragraphs(inner.help or "")]
            for parameter in inner.get_params(inner_context):
                if record := parameter.get_help_record(inner_context):
                    lines += [".TP", rf".B {_roff(record[0])}", _roff(record[1]) or "."]
    lines += [".SH EXIT STATUS"]
    for code, meaning in exit_codes.items():
        lines += [".TP", f".B {code}", _roff(meaning)]
    return "\n".join([*lines, ".SH SEE ALSO", _roff(see_also)]) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield lines of roff for the paragraphs of a help text."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _roff(" ".join(paragraph.replace("\b", "").split()))


def _roff(text: str) -> str:
    r"""Escape backslashes, hyphens, quotes, and dots and quotes at the start of a line."""
    escaped = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
