"""The kinds of findings as Markdown."""

from tsctl.verify.finding_kinds import KINDS, SEVERITY_MEANINGS, Severity


def section() -> str:
    """Return a table for each severity."""
    lines = []
    for severity in reversed(Severity):
        lines += [
            f"#### {severity.label}: {SEVERITY_MEANINGS[severity]}",
            "",
            "| code | meaning | what to do |",
            "| --- | --- | --- |",
        ]
        lines += [f"| `{kind.code}` | {kind.meaning} | {kind.advice} |" for kind in KINDS if kind.severity is severity]
        lines.append("")
    return "\n".join(lines)
