"""What `ts-uploader check` finds: each thing with its severity, what was found, and the way out. Pure.

ok           looked at, and as it should be
hint         worth knowing; nothing has to be done
warning      shipping works, and something may go wrong later
error        somebody must act: the agent would refuse to start, or data is at risk
unanswered   a store or the source of leadership did not answer: ask again
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
    """How much a finding matters; see the module's page."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"
    ERROR = "error"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        severity: how much it matters.
        about: what was looked at: a file, a store, a log dir.
        found: one sentence.
        way_out: what to do; empty where there is nothing to do.
    """

    severity: Severity
    about: str
    found: str
    way_out: str = ""

    def __post_init__(self) -> None:
        for name in ("about", "found", "way_out"):
            object.__setattr__(self, name, printable(redacted(getattr(self, name))))


def ok(about: str, found: str) -> Finding:
    """As it should be."""
    return Finding(Severity.OK, about, found)


def hint(about: str, found: str, way_out: str = "") -> Finding:
    """Worth knowing."""
    return Finding(Severity.HINT, about, found, way_out)


def warning(about: str, found: str, way_out: str) -> Finding:
    """May go wrong later."""
    return Finding(Severity.WARNING, about, found, way_out)


def error(about: str, found: str, way_out: str = "") -> Finding:
    """Somebody must act; where `found` is a message of ours it names the way out itself."""
    return Finding(Severity.ERROR, about, found, way_out)


def unanswered(about: str, found: str) -> Finding:
    """No answer came."""
    return Finding(Severity.UNANSWERED, about, found, "ask again when it is back")


def exit_code(findings: Iterable[Finding], *, strict: bool) -> int:
    """What the command ends with.

    Args:
        findings: all of them.
        strict: whether warnings count.
    """
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return EXIT_ACT
    if Severity.UNANSWERED in severities:
        return EXIT_UNANSWERED
    return EXIT_WARNINGS if strict and Severity.WARNING in severities else EXIT_FINE


def as_text(findings: Sequence[Finding]) -> str:
    """One block for each finding in the order they were found, and a line that counts them."""
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
    """The same as one JSON object; `exit` is the code that the command ends with."""
    return json.dumps({"exit": code, "findings": [asdict(finding) for finding in findings]}, indent=1) + "\n"
