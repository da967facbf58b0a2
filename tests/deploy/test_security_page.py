"""docs/security.md: the tests, files and options that it names exist."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "security.md").read_text()


def test_each_test_and_file_that_the_page_names_exists() -> None:
    """A claim without its proof fails."""
    named = set(re.findall(r"`((?:tests|deploy|docs)/[^`*]+)`", PAGE))
    assert len(named) > 15
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
    linked = re.findall(r"\]\(([^)#]+)", PAGE)
    assert [link for link in linked if not (CHECKOUT / "docs" / link).exists()] == []


def test_the_page_names_the_options_as_they_are_called() -> None:
    """They follow their common prefix."""
    configuration = (CHECKOUT / "docs" / "configuration.md").read_text()
    for option in re.findall(r"`(s3\.[a-z.]+)", PAGE):
        assert f"endpoint.{option}`" in configuration
