import re
from pathlib import Path

from ts_common.wording import clause, counted, some

CHECKOUT = Path(__file__).parents[2]
PRODUCT = ("ts_common", "ts_consumer", "ts_endpoint", "ts_reader", "ts_spark", "ts_tables", "ts_uploader", "tsctl")
# What a command counts in its results.
COUNTS = "commits|copies|days|differences|files|manifests|parts|records|rows|segments"
# Neither `counted(...)`, nor a constant, nor the first of "2 of 3 rows"; the number of a bound is never 1.
OWN_PLURAL = re.compile(
    rf"""^(?!.*(?:more than|at most|at least|overlap|2 GiB|would be noted)).*"""
    rf"""(?<!of )\{{(?!counted\()(?![\w.]*\b_?[A-Z_]+(?:[:}}]))[^{{}}"]+(?<!:g)\}} """
    rf"""(?:(?!are|have)[a-z]+ )?(?:{COUNTS})\b""",
    re.MULTILINE,
)


def test_a_count_has_separators_and_a_plural() -> None:
    """Only one thing has no plural."""
    assert [counted(n, "segment") for n in (0, 1, 2, 2400)] == [
        "0 segments",
        "1 segment",
        "2 segments",
        "2,400 segments",
    ]
    plurals = [counted(2, noun) for noun in ("entry", "day", "batch", "index", "process", "data file")]
    assert plurals == ["2 entries", "2 days", "2 batches", "2 indexes", "2 processes", "2 data files"]


def test_a_list_has_its_first_texts_and_the_number_of_the_others() -> None:
    """In their order; without texts it is empty."""
    assert [some([]), some(["b", "a"])] == ["", "b, a"]
    assert some(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert some((f"t{n:02}" for n in range(12)), 2) == "t00, t01 and 10 more"


def test_every_count_has_its_noun_from_one_function() -> None:
    """`1 commits` is the fault of a message that writes the plural itself."""
    assert OWN_PLURAL.search('f"{n:,} commits"')
    assert not OWN_PLURAL.search("f\"{counted(n, 'file')}, at {_MOST_ROWS:,} rows and {MOST} rows\"")
    found = [
        f"{path.relative_to(CHECKOUT)}: {match[0].strip()}"
        for room in PRODUCT
        for path in (CHECKOUT / room).rglob("*.py")
        for match in OWN_PLURAL.finditer(path.read_text())
    ]
    assert found == []


def test_a_foreign_text_continues_as_a_clause() -> None:
    """S3's messages end with a full stop, and a way out follows."""
    assert [clause(text) for text in ("Access Denied.", "no\n", "", "v1.2")] == ["Access Denied", "no", "", "v1.2"]
