"""The pages as a whole: few and short enough to read, each fact once, and no way to read the archive is left out."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT
from tsctl import cli_page

DOCS = CHECKOUT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# References: every option, the rules that the code cites by number, and a section for each alert.
_LONGER = {"cli.md", "protocol.md", "runbook.md"}
_GENERATED = {"cli.md", "configuration.md", "metrics.md"}
_WORDS = 14  # of a sentence that has a fact of its own
# How the picture and its descriptions name what each room of a reader is for; its page is the index's and README's.
_DOORS = {
    "ts_spark": ("Spark", "spark.md"),
    "ts_reader": ("Python", "reader.md"),
    "ts_tables": ("tables", "tables.md"),
    "ts_endpoint": ("Kafka clients", "endpoint.md"),
    "ts_consumer": ("Kafka clients", "consumer.md"),
    "tsctl": ("tsctl", "tsctl.md"),
}
_NO_DOORS = {"ts_common", "ts_uploader"}


def sentences(page: Path) -> list[str]:
    """Return the sentences of a page's prose and tables, in lower case, without code blocks and targets of links."""
    text = re.sub(r"^```.*?^```$|<!-- generated.*?<!-- end", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*[-*|#\d])| \| ", text)
    split = [one for paragraph in paragraphs for one in re.split(r"(?<=[.:;]) ", " ".join(paragraph.split()))]
    return [" ".join(re.findall(r"[\w.`'-]+", one.lower())).strip(". ") for one in split]


def test_there_are_few_pages_and_no_long_one() -> None:
    """A reader finds a page in the index, and a section by the headings; references are searched."""
    assert len(PAGES) <= 36
    lengths = {page.name: len(page.read_text().splitlines()) for page in PAGES}
    assert {name: length for name, length in lengths.items() if length > 480 and name not in _LONGER} == {}


def test_no_sentence_is_on_two_pages() -> None:
    """A fact has one place, and other pages link to it: two copies differ after a while."""
    found = defaultdict(set)
    for page in PAGES:
        if page.name not in _GENERATED:
            for sentence in sentences(page):
                if len(sentence.split()) >= _WORDS:
                    found[sentence].add(page.name)
    assert {sentence: pages for sentence, pages in found.items() if len(pages) > 1} == {}


def test_each_way_to_read_is_in_the_picture_and_on_the_first_pages() -> None:
    """Otherwise a newcomer learns of Spark alone; a new room of a reader is a new way."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    included = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert included - _NO_DOORS == set(_DOORS)
    readme, picture = (CHECKOUT / "README.md").read_text(), (DOCS / "system.svg").read_text()
    described = re.search(r"<desc .*?</desc>", picture, re.DOTALL)
    drawn = re.findall(r'class="name"[^>]*>([^<]+)<', picture)
    (above,) = re.findall(r"!\[([^]]*)\]\(docs/system\.svg\)", readme)
    (on_page,) = re.findall(r"!\[([^]]*)\]\(system\.svg\)", (DOCS / "how-it-works.md").read_text())
    assert described
    for name, page in _DOORS.values():
        assert any(name in one for one in drawn), name
        assert all(name in text for text in (above, on_page, described[0])), name
        assert f"(docs/{page})" in readme.partition("\n## ")[0], page
        assert f"({page})" in (DOCS / "README.md").read_text(), page


@pytest.mark.parametrize("reader", ["Operator", "Analyst", "Application's author", "Contributor"])
def test_the_index_has_a_section_for_each_reader(reader: str) -> None:
    """With the pages that this reader needs."""
    section = (DOCS / "README.md").read_text().partition(f"\n## {reader}\n")[2].partition("\n## ")[0]
    assert len(set(re.findall(r"\]\(([\w-]+\.md)", section))) >= 3


def test_a_page_shows_each_command_of_tsctl() -> None:
    """A command that only the reference has is not found by those who need it."""
    text = "".join(page.read_text() for page in PAGES if page.name not in _GENERATED)
    names = re.findall(r"^### `(tsctl [^`]+)`$", cli_page.section(), re.MULTILINE)
    assert len(names) > 20
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
