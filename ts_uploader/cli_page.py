"""Writes the page of the command line from the command itself."""

import typer.main

from ts_uploader.cli import app

_WIDTH = 100


def reference_page() -> str:
    """The command's own help as Markdown."""
    command = typer.main.get_command(app)
    lines = ["# The command `ts-uploader`", "", "Generated from `ts_uploader/cli.py`; `make docs` writes it anew.", ""]
    with command.make_context("ts-uploader", [], resilient_parsing=True, max_content_width=_WIDTH) as context:
        for name in sorted(getattr(command, "commands", {})):
            inner = command.commands[name]  # type: ignore[attr-defined]
            with inner.make_context(
                name, [], parent=context, resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
            ) as inner_context:
                lines += [f"## `ts-uploader {name}`", "", "```", inner.get_help(inner_context), "```", ""]
    lines += [
        "## Exit codes of `run`",
        "",
        "| code | meaning |",
        "| --- | --- |",
        "| 0 | stopped by SIGTERM or SIGINT |",
        "| 2 | refused: no waiting mends it, and the message says what does; nothing was written |",
        "| 75 | the store did not answer at the start, or another program listens on the HTTP address; nothing was "
        "written, and a supervisor should start it again |",
        "| 70 | ended by an error that is not the user's; a supervisor should start the agent again |",
        "",
        "## Exit codes of `check`",
        "",
        "| code | meaning |",
        "| --- | --- |",
        "| 0 | nothing has to be done; hints and warnings may stand there |",
        "| 1 | with `--strict`: there are warnings |",
        "| 2 | somebody must act, and the findings say on what |",
        "| 70 | ended by an error that is not the user's |",
        "| 75 | a store or the source of leadership did not answer: ask again |",
        "",
        "Which condition ends `check` and `run` with which code: [deploy.md](deploy.md#exit-codes).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
