"""Writes the page of findings from the findings themselves."""

from typing import Final

from tsctl.verify.findings import KINDS, Severity

_SAYINGS: Final = {
    Severity.DATA_LOSS: "records that no object holds",
    Severity.DAMAGED: "what stands there is not what was shipped, or cannot be shown; the records may be had otherwise",
    Severity.SUSPICIOUS: "no record is missing or damaged, and somebody should know why it is so",
    Severity.INFORMATION: "as the protocol allows it; nobody need act",
}


def reference_page() -> str:
    """The page as Markdown."""
    lines = [
        "# What `tsctl verify` can find",
        "",
        "Generated from `tsctl/verify/findings.py` by `make docs`. How to put an object back, and until when:",
        "[repair.md](repair.md#putting-an-object-back).",
        "",
    ]
    for severity in reversed(Severity):
        lines += [
            f"## {severity.label}: {_SAYINGS[severity]}",
            "",
            "| code | meaning | what to do |",
            "| --- | --- | --- |",
        ]
        lines += [f"| `{kind.code}` | {kind.meaning} | {kind.advice} |" for kind in KINDS if kind.severity is severity]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
