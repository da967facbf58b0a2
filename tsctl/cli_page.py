"""Writes the reference page and the man page of `tsctl` from the commands themselves."""

import sys

from ts_common.command_pages import man_page, reference
from tsctl.cli import commands
from tsctl.exit_codes import MEANINGS


def reference_page() -> str:
    """Return the command's help as Markdown."""
    lines = ["# The command `tsctl`", "", "Generated from `tsctl/cli.py` by `make docs`."]
    lines += ["What the commands do, with examples: [tsctl.md](tsctl.md).", "", *reference(commands(), "tsctl")]
    lines += ["## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(lines) + "\n"


def manual() -> str:
    """Return the man page."""
    codes = {code.value: meaning for code, meaning in MEANINGS.items()}
    summary = "list, read and verify an archive of Kafka segments"
    return man_page(commands(), "tsctl", summary, codes, "ts-uploader(1), and docs/tsctl.md of the release.")


if __name__ == "__main__":
    sys.stdout.write(manual() if "--man" in sys.argv else reference_page())
