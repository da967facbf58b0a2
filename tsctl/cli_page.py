"""Writes the page of the command line from the command itself."""

import typer.main

from tsctl.cli import app
from tsctl.exit_codes import MEANINGS

_WIDTH = 100


def reference_page() -> str:
    """The command's own help as Markdown."""
    command = typer.main.get_command(app)
    lines = ["# The command `tsctl`", "", "Generated from `tsctl/cli.py`; `make docs` writes it anew."]
    lines += ["What the commands do, with examples: [tsctl.md](tsctl.md).", ""]
    with command.make_context("tsctl", [], resilient_parsing=True, max_content_width=_WIDTH) as context:
        for name, inner in getattr(command, "commands", {}).items():
            with inner.make_context(
                name, [], parent=context, resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
            ) as inner_context:
                lines += [f"## `tsctl {name}`", "", "```", inner.get_help(inner_context), "```", ""]
    lines += ["## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
