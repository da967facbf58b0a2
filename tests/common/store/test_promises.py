"""docs/contributing.md lists the promises of each store, each with its tests."""

import re
from pathlib import Path

from tests.common.store.conftest import kinds_of

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "contributing.md"
# The columns after promise and tests.
COLUMNS = ("s3", "gs", "az", "webhdfs", "file")
TEST = re.compile(r"`(test_\w+)`")


def named_in(path: Path) -> set[str]:
    """Return the names of a file's tests."""
    return set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))


CONTRACT = {name for path in HERE.glob("test_contract_*.py") for name in named_in(path)}
ALL = {name for path in HERE.rglob("test_*.py") for name in named_in(path)}


def table() -> list[list[str]]:
    """Return the rows of the table, as texts."""
    lines = PAGE.read_text().partition("### Promises")[2].partition("| promise |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines.splitlines()[2:]]
    assert len(rows) > 20
    return rows


def test_the_table_names_tests_that_exist_and_hold_that_driver() -> None:
    """A "yes" has tests that run with that driver, in its row or in its cell; any other cell is a "no"."""
    for promise, tests, *cells in table():
        assert len(cells) == len(COLUMNS), promise
        row = set(TEST.findall(tests))
        assert row, promise
        assert row <= ALL, promise
        for kind, cell in zip(COLUMNS, cells, strict=True):
            cell = cell.strip("| ")  # noqa: PLW2901 - the last one of a line
            own = set(TEST.findall(cell))
            assert own <= ALL, (promise, kind)
            if not cell.startswith("yes"):
                assert cell.startswith("no: "), (promise, kind, cell)
            elif not own:
                assert row <= CONTRACT, (promise, kind)
                assert all(kind in kinds_of(test) for test in row), (promise, kind)


def test_the_table_contains_every_test_of_the_contract() -> None:
    """The page lists the whole contract."""
    named = {name for _, tests, *_ in table() for name in TEST.findall(tests)}
    assert CONTRACT - named == set()
