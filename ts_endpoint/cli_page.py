"""The reference and the man page of `ts-endpoint`, written from the command itself."""

from typing import Final

from ts_common.command_pages import man_page, reference
from ts_endpoint.cli import app

_CODES: Final = {
    0: "done; `serve`: stopped by SIGTERM or SIGINT",
    2: "rejected: the message names what to change",
    70: "ended by an error that is not the user's; a supervisor should start it again",
    75: "the store did not answer at the start, or another program listens at an address; a supervisor should start it "
    "again",
    130: "ended at once by a second SIGINT; 143: by a second SIGTERM",
}


def section() -> str:
    """Return the command's help as a section of Markdown."""
    lines = ["## `ts-endpoint`", "", "What it is for, with examples: [the endpoint](endpoint.md).", ""]
    lines += reference(app, "ts-endpoint")
    lines += ["### Exit codes of `ts-endpoint`", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code} | {meaning} |" for code, meaning in _CODES.items()]
    return "\n".join(lines) + "\n"


def manual() -> str:
    """Return the man page."""
    summary = "serve an archive of Kafka segments to Kafka clients"
    return man_page(app, "ts-endpoint", summary, _CODES, "tsctl(1), ts-uploader(1), docs/endpoint.md of the release.")
