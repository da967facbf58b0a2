"""Pages about a command line, generated from the command itself."""

from typing import Annotated

import typer

from ts_common.command_pages import man_page, reference

app = typer.Typer()


@app.command()
def fetch(path: str, dry_run: Annotated[bool, typer.Option(help="Print 'a\\b' only.")] = False) -> None:
    """Fetch a path.

    .hidden files are read too.
    """


@app.command()
def clean() -> None:
    """Delete everything."""


def test_a_man_page_has_every_command_option_and_exit_code() -> None:
    """Text is escaped for roff: backslashes, hyphens, and dots at the start of a line."""
    page = man_page(app, "tool", "does a thing", {0: "done", 75: "try again"}, "other(1).").splitlines()
    assert '.SS "tool fetch [OPTIONS] {path}"' in page
    assert '.SS "tool clean [OPTIONS]"' in page
    assert r"\&.hidden files are read too." in page
    assert any(line.startswith(r".B \-\-dry\-run") for line in page)
    assert any(r"Print 'a\eb' only." in line for line in page)
    assert page[page.index(".B 75") + 1] == "try again"
    assert not [line for line in page if line.startswith(".") and line.split()[0] not in _MACROS]


def test_a_reference_page_has_the_help_of_every_command() -> None:
    """The order is that of the program's own help."""
    assert [line for line in reference(app, "tool") if line.startswith("### ")] == [
        "### `tool fetch`",
        "### `tool clean`",
    ]


_MACROS = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I"}
