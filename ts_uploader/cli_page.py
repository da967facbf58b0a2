"""The reference and the man page of `ts-uploader`, written from the command itself."""

from typing import Final

from ts_common.command_pages import man_page, reference
from ts_uploader.cli import app

_RUN: Final = {
    0: "stopped by SIGTERM or SIGINT",
    2: "rejected: the message names what to change; nothing was written",
    75: "the store did not answer at the start, or another program listens on the HTTP address; nothing was "
    "written, and a supervisor should start the agent again",
    70: "ended by an error that is not the user's; a supervisor should start the agent again",
}
_CHECK: Final = {
    0: "nothing has to be done; there may be hints and warnings",
    1: "with `--strict`: there are warnings",
    2: "the operator must act on the findings",
    70: "ended by an error that is not the user's",
    75: "a store or the source of leadership did not answer: run the check again",
}


def section() -> str:
    """Return the command's help as a section of Markdown."""
    lines = ["## `ts-uploader`", "", *reference(app, "ts-uploader")]
    for name, codes in (("run", _RUN), ("check", _CHECK)):
        lines += [f"### Exit codes of `ts-uploader {name}`", "", "| code | meaning |", "| --- | --- |"]
        lines += [*(f"| {code} | {meaning} |" for code, meaning in codes.items()), ""]
    lines += ["[Deployment](deploy.md#exit-codes) lists the exit code of each condition."]
    return "\n".join(lines) + "\n"


def manual() -> str:
    """Return the man page."""
    codes = {code: f"run: {_RUN.get(code, 'not used')}. check: {_CHECK[code]}." for code in _CHECK}
    summary = "ship closed Kafka segments to object storage"
    return man_page(app, "ts-uploader", summary, codes, "tsctl(1), and docs/deploy.md of the release.")
