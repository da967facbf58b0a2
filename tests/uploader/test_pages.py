from pathlib import Path

from ts_uploader import cli_page
from ts_uploader.metrics import metrics_page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_metrics_page_is_the_generated_one() -> None:
    """The page under docs never falls behind the code."""
    assert (DOCS / "metrics.md").read_text() == metrics_page.reference_page()


def test_the_command_line_page_is_the_generated_one() -> None:
    """The page under docs never falls behind the command."""
    assert (DOCS / "cli.md").read_text() == cli_page.reference_page()
    assert (DOCS / "man/ts-uploader.1").read_text() == cli_page.manual()
