"""The kinds of findings as Markdown."""

from typing import Final

from tsctl.verify.finding_kinds import KINDS, Severity

_MEANINGS: Final = {
    Severity.DATA_LOSS: "readers cannot return the records: no object contains them, or no commit covers them",
    Severity.DAMAGED: "an object is missing, malformed or not as it was shipped; another copy may have the records",
    Severity.SUSPICIOUS: "no record is missing or damaged, but the cause needs attention",
    Severity.INFORMATION: "the protocol allows it; nothing to do",
}


def section() -> str:
    """Return a table for each severity."""
    lines = []
    for severity in reversed(Severity):
        lines += [
            f"#### {severity.label}: {_MEANINGS[severity]}",
            "",
            "| code | meaning | what to do |",
            "| --- | --- | --- |",
        ]
        lines += [f"| `{kind.code}` | {kind.meaning} | {kind.advice} |" for kind in KINDS if kind.severity is severity]
        lines.append("")
    return "\n".join(lines)
