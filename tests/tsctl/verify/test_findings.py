"""The kinds of findings, and their page."""

from pathlib import Path

from tsctl.verify.findings import KINDS
from tsctl.verify.findings_page import reference_page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_findings_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (DOCS / "findings.md").read_text() == reference_page()


def test_codes_are_each_ones_own() -> None:
    """Scripts depend on them."""
    assert len({kind.code for kind in KINDS}) == len(KINDS) > 30
