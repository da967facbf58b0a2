"""What `make docs` writes: no page falls behind the code that it is generated from."""

import pytest

from dev import pages


def test_generated_pages_are_up_to_date() -> None:
    """A changed description without `make docs` fails."""
    generated = pages.pages()
    assert {name: (pages.DOCS / name).read_text() for name in generated} == generated


def test_a_page_that_lost_the_place_of_its_part_is_an_error() -> None:
    """The part would otherwise be left out, or be written twice."""
    for text in ("no comments", "<!-- generated: findings -->\n", "<!-- end: findings -->\n"):
        with pytest.raises(ValueError, match="expected one"):
            pages.with_part(text, "findings", "| a |\n")
    page = "before\n<!-- generated: findings -->\nformer\n<!-- end: findings -->\nafter\n"
    expected = "before\n<!-- generated: findings -->\n\n| a |\n\n<!-- end: findings -->\nafter\n"
    assert pages.with_part(page, "findings", "| a |\n") == expected
