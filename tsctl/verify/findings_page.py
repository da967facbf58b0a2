"""Writes docs/findings.md from the kinds of findings."""

from tsctl.verify.finding_kinds import KINDS, SEVERITY_MEANINGS, Severity


def reference_page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Findings of `tsctl verify`",
        "",
        "Generated from `tsctl/verify/finding_kinds.py` by `make docs`. How to restore an object, and until when:",
        "[repair.md](repair.md#putting-an-object-back).",
        "",
    ]
    for severity in reversed(Severity):
        lines += [
            f"## {severity.label}: {SEVERITY_MEANINGS[severity]}",
            "",
            "| code | meaning | what to do |",
            "| --- | --- | --- |",
        ]
        lines += [f"| `{kind.code}` | {kind.meaning} | {kind.advice} |" for kind in KINDS if kind.severity is severity]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
