"""The pages of rules and faults: each citation exists, and each fault has its test."""

import re
from functools import cache
from pathlib import Path

from tests.docs.commands import CHECKOUT

PROTOCOL = CHECKOUT / "docs/protocol.md"
FAULTS = CHECKOUT / "docs/faults.md"
_ROOMS = (
    "deploy",
    "dev",
    "docs",
    "tests",
    "ts_common",
    "ts_endpoint",
    "ts_reader",
    "ts_spark",
    "ts_tables",
    "ts_uploader",
    "tsctl",
)
_CITED = re.compile(
    r"\b(?:(protocol|reading|retention|table|tail|find|erase|endpoint)[ -])?rules? (\d+(?:(?:, | and | to )\d+)*)",
    re.IGNORECASE,
)

_FULL = re.compile(r"^@pytest\.mark\.full\n(?:(?!def ).*\n)*def (test_\w+)", re.MULTILINE)
_ALL_FULL = "\npytestmark = pytest.mark.full"


@cache
def texts() -> dict[str, str]:
    """Return code, tests and pages by path; a run of blanks and comment signs is one blank."""
    files = [CHECKOUT / "README.md", *(file for room in _ROOMS for file in (CHECKOUT / room).rglob("*"))]
    kept = [file for file in files if file.suffix in {".py", ".md", ".yml", ".yaml"} and file != Path(__file__)]
    return {str(file.relative_to(CHECKOUT)): re.sub(r"\n[\s#]*", " ", file.read_text()) for file in kept}


def faults() -> dict[str, str]:
    """Return each fault of the page with the rest of its row."""
    return dict(re.findall(r"^\| ([A-Z]\d\d[a-z]?) \| (.*)$", FAULTS.read_text(), re.MULTILINE))


def named_after_faults() -> dict[str, set[str]]:
    """Return each fault that a test is named after, with those that `make test` runs as the page names them."""
    found: dict[str, set[str]] = {}
    for file in (CHECKOUT / "tests").rglob("test_*.py"):
        text = file.read_text()
        for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE):
            is_full = _ALL_FULL in text or name in _FULL.findall(text)
            for letter, number in re.findall(r"(?<=_)([a-z])(\d\d[a-z]?)(?=_)", name):
                tests = found.setdefault(letter.upper() + number, set())
                tests.update(() if is_full else [f"{file.relative_to(CHECKOUT)}::{name}"])
    return found


def test_each_rule_that_is_cited_exists() -> None:
    """`protocol rule 5` has a heading. A number needs the kind of the rule before it."""
    known = set(re.findall(r"^### (\w+) rule (\d+)", PROTOCOL.read_text(), re.MULTILINE))
    wrong = []
    for name, text in texts().items():
        if name == "docs/protocol.md":
            continue
        cited = [(kind, number) for kind, several in _CITED.findall(text) for number in re.findall(r"\d+", several)]
        wrong += [f"{name}: {kind} rule {number}" for kind, number in cited if (kind.capitalize(), number) not in known]
    assert wrong == []


def test_each_rule_of_uploading_and_reading_names_its_code() -> None:
    """`test_links.py` checks that these files exist."""
    sections = re.split(r"^### ", PROTOCOL.read_text(), flags=re.MULTILINE)[1:]
    unnamed = [
        section.partition("\n")[0]
        for section in sections
        if not section.startswith("Retention") and not re.search(r"^Code: `", section, re.MULTILINE)
    ]
    assert unnamed == []


def test_each_fault_that_is_cited_is_on_the_page() -> None:
    """In names of tests, in docstrings and on other pages."""
    known = set(faults())
    cited = {(name, one) for name, text in texts().items() for one in re.findall(r"\b[UR]\d\d[bc]?\b", text)}
    assert {(name, one) for name, one in cited if one not in known} == set()
    assert set(named_after_faults()) - known == set()


def test_each_fault_has_the_tests_that_the_page_names() -> None:
    """`make test` runs them. Only the faults under "Planned" have no test."""
    named, planned = named_after_faults(), FAULTS.read_text().partition("## Planned")[2]
    assert [
        (fault, test)
        for fault, row in faults().items()
        if fault in named or f"| {fault} |" not in planned
        for test in re.findall(r"`(tests/[^`]*)`", row) or [""]
        if test not in named.get(fault, ())
    ] == []
