"""Delimited text and regular expressions become columns exactly, or records are refused with a reason."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.tables.parsers.made_records import parsed
from ts_tables.parsers.delimited import DelimitedParser
from ts_tables.parsers.expression import ExpressionParser
from ts_tables.parsers.parser_columns import make_column

ONE = [make_column("a", "string"), make_column("b", "long"), make_column("c", "double")]

FITS: list[tuple[str, str, Any]] = [
    ("string", "", ""),
    ("long", "", None),
    ("long", "-007", -7),
    ("int", "2147483647", 2147483647),
    ("double", ".5e1", 5.0),
    ("float", "0.5", 0.5),
    ("boolean", "TRUE", True),
    ("decimal(5,2)", "1.1", Decimal("1.10")),
    ("timestamp", "2026-11-25T12:00:00", datetime(2026, 11, 25, 12, tzinfo=UTC)),
    ("binary", "AP8=", b"\x00\xff"),
    ("json", '{"a": 1.0}', '{"a":1.0}'),
    ("list<long>", "[1, 2]", [1, 2]),
]
MISFITS = [
    ("long", "0x10"),
    ("long", "1.0"),
    ("long", " 1"),
    ("long", "9223372036854775808"),
    ("int", "2147483648"),
    ("long", "\u0661"),
    ("double", "1e400"),
    ("double", "nan"),
    ("float", "1e39"),
    ("boolean", "yes"),
    ("decimal(5,2)", "1.234"),
    ("timestamp", "noon"),
    ("binary", "AP8"),
    ("json", "{"),
    ("list<long>", "[1.5]"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), FITS)
def test_a_text_that_fits_is_exact(kind: str, text: str, expected: Any) -> None:
    """An empty one is null, but in a string."""
    parser = DelimitedParser([make_column("a", kind), make_column("b", "string")], "|")
    assert parsed(parser, [f"{text}|".encode(), b"?|"])[0][0] == (0, {"a": expected, "b": ""})


@pytest.mark.parametrize(("kind", "text"), MISFITS)
def test_a_text_that_does_not_fit_refuses_its_record_alone(kind: str, text: str) -> None:
    """The reason names the column and the text."""
    parser = DelimitedParser([make_column("a", kind), make_column("b", "string")], "|")
    rows, refused = parsed(parser, [b"|x", f"{text}|y".encode(), b"|z"])
    assert [row["b"] for _, row in rows] == ["x", "z"]
    assert list(refused) == [1]
    assert refused[1].startswith(("a: " + repr(text), f"a: {text}"))
    assert " is no " in refused[1]


@pytest.mark.parametrize("text", ["1_000", " 5", "\u0663", "+5"])
def test_a_time_that_is_a_number_has_ascii_digits_alone(text: str) -> None:
    """Python accepts more; the other columns of numbers do not."""
    parser = DelimitedParser([make_column("a", "timestamp", unit="s"), make_column("b", "string")], "|")
    rows, refused = parsed(parser, [f"{text}|".encode(), b"-5|"])
    assert [row["a"] for _, row in rows] == [datetime(1969, 12, 31, 23, 59, 55, tzinfo=UTC)]
    assert list(refused) == [0]


def test_lines_have_all_fields_or_are_refused() -> None:
    """One line end does not count; a tombstone is a row of nulls, unless a column is required."""
    values = [b"x\t1\t2.5\r\n", b"x\t1", b"x\t1\t2\t3", b"", None, b"\xff\t1\t1", b"y\t\t"]
    rows, refused = parsed(DelimitedParser(ONE, "\t"), values)
    assert rows == [
        (0, {"a": "x", "b": 1, "c": 2.5}),
        (4, {"a": None, "b": None, "c": None}),
        (6, {"a": "y", "b": None, "c": None}),
    ]
    assert refused == {
        1: "it has 2 fields; expected 3",
        2: "it has 4 fields; expected 3",
        3: "it has 1 field; expected 3",
        5: "b'\\xff\\t1\\t1' is no UTF-8",
    }
    required = [make_column("a", "string", required=True), *ONE[1:]]
    assert [number for number, _ in parsed(DelimitedParser(required, "\t"), values)[0]] == [0, 6]


def test_quoted_fields_may_have_delimiters() -> None:
    """As in RFC 4180; a quote that is not closed refuses the record."""
    values = [b'"a,""b""\nc",1,2', b'"open,1,2', b'"a"b,1,2', b"a\nb,1,2", b'x,"1",2', b""]
    rows, refused = parsed(DelimitedParser(ONE, ",", '"'), values)
    assert rows == [(0, {"a": 'a,"b"\nc', "b": 1, "c": 2.0}), (4, {"a": "x", "b": 1, "c": 2.0})]
    assert sorted(refused) == [1, 2, 3, 5]


def test_groups_of_an_expression_are_columns() -> None:
    """In their own order; what does not match is refused."""
    expression = r"^(?P<b>\d+) (?P<a>\w+)(?: (?P<c>\S+))?$"
    rows, refused = parsed(ExpressionParser(ONE, expression), [b"7 x 2", b"7 x", b"x 7", None, b"8 y z"])
    assert rows == [
        (0, {"a": "x", "b": 7, "c": 2.0}),
        (1, {"a": "x", "b": 7, "c": None}),
        (3, {"a": None, "b": None, "c": None}),
    ]
    assert refused == {2: "'x 7' does not match", 4: "c: 'z' is no double"}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "is no regular expression"),
        ("a", "has the groups ; the columns are a, b, c"),
        ("(?P<a>.)", "has the groups a"),
    ],
)
def test_a_wrong_expression_is_refused(expression: str, reason: str) -> None:
    """Before the first record."""
    with pytest.raises(ValueError, match=r"[(a]") as raised:
        ExpressionParser(ONE, expression)
    assert reason in str(raised.value)


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    """Python's own expressions would need years for this one."""
    parser = ExpressionParser([make_column("a", "string")], r"^(?P<a>(?:a+)+)$")
    rows, refused = parsed(parser, [b"a" * 100_000 + b"b", b"aaa"])
    assert rows == [(1, {"a": "aaa"})]
    assert list(refused) == [0]
