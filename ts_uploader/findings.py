"""The findings of `ts-uploader check`: each with its severity, the observation, and what to do. Pure.

ok           checked, and correct
hint         useful to read; no action needed
warning      shipping works, but may fail later
error        the operator must act: the agent would not start, or data is at risk
unanswered   a store or the leadership source did not answer: check again later
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from ts_common.printable import printable
from ts_common.redaction import redacted
from ts_common.wording import counted

EXIT_FINE = 0
EXIT_WARNINGS = 1
EXIT_ACT = 2
EXIT_UNANSWERED = 75  # EX_TEMPFAIL


class Severity(StrEnum):
    """How much a finding matters; see the module's docstring."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"
    ERROR = "error"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        severity: how much it matters.
        about: what was checked: a file, a store, a log dir.
        found: one sentence.
        way_out: what to do; empty if there is nothing to do.
    """

    severity: Severity
    about: str
    found: str
    way_out: str = ""

    def __post_init__(self) -> None:
        for name in ("about", "found", "way_out"):
            object.__setattr__(self, name, printable(redacted(getattr(self, name))))


def ok(about: str, found: str) -> Finding:
    """Return a finding of a check that passed."""
    return Finding(Severity.OK, about, found)


def hint(about: str, found: str, way_out: str = "") -> Finding:
    """Return a finding that needs no action."""
    return Finding(Severity.HINT, about, found, way_out)


def warning(about: str, found: str, way_out: str) -> Finding:
    """Return a finding that may lead to a failure later."""
    return Finding(Severity.WARNING, about, found, way_out)


def error(about: str, found: str, way_out: str = "") -> Finding:
    """Return a finding that the operator must act on; an error message in `found` names what to do itself."""
    return Finding(Severity.ERROR, about, found, way_out)


def unanswered(about: str, found: str) -> Finding:
    """Return a finding of a check without an answer."""
    return Finding(Severity.UNANSWERED, about, found, "check again when it is back")


def exit_code(findings: Iterable[Finding], *, strict: bool) -> int:
    """Return the exit code of the command.

    Args:
        strict: whether warnings count.
    """
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return EXIT_ACT
    if Severity.UNANSWERED in severities:
        return EXIT_UNANSWERED
    return EXIT_WARNINGS if strict and Severity.WARNING in severities else EXIT_FINE


def as_text(findings: Sequence[Finding]) -> str:
    """Return one block for each finding in order, and a line that counts them."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity.upper():<11}{finding.about}: {finding.found}")
        if finding.way_out:
            lines.append(f"{'':<11}-> {finding.way_out}")
    counts = [(sum(f.severity is severity for f in findings), severity) for severity in reversed(Severity)]
    lines.append(", ".join(_counted(count, severity) for count, severity in counts if count))
    return "\n".join(lines) + "\n"


def _counted(count: int, severity: Severity) -> str:
    adjectives = {Severity.OK, Severity.UNANSWERED}
    return f"{count} {severity}" if severity in adjectives else counted(count, severity)


def as_json(findings: Sequence[Finding], code: int) -> str:
    """Return the findings as one JSON object; `exit` is the exit code of the command."""
    return json.dumps({"exit": code, "findings": [asdict(finding) for finding in findings]}, indent=1) + "\n"
