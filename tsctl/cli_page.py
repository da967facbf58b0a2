"""The reference and the man page of `tsctl`, written from the commands themselves."""

from ts_common.command_pages import man_page, reference
from tsctl.cli import commands
from tsctl.exit_codes import MEANINGS


def section() -> str:
    """Return the commands' help as a section of Markdown."""
    lines = ["## `tsctl`", "", "What the commands do, with examples: [tsctl.md](tsctl.md).", ""]
    lines += reference(commands(), "tsctl")
    lines += ["### Exit codes of `tsctl`", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(lines) + "\n"


def manual() -> str:
    """Return the man page."""
    codes = {code.value: meaning for code, meaning in MEANINGS.items()}
    summary = "list, read and verify an archive of Kafka segments"
    return man_page(commands(), "tsctl", summary, codes, "ts-uploader(1), and docs/tsctl.md of the release.")
