"""Types of columns as text."""

import pyarrow as pa
import pytest

from ts_tables.parsers.parser_columns import make_column, parse_type


def test_types_are_nested() -> None:
    """Spaces do not count."""
    expected = pa.struct(
        [("a", pa.list_(pa.field("element", pa.decimal128(10, 2)))), ("b", pa.map_(pa.string(), pa.int64()))]
    )
    assert parse_type("struct< a:list<decimal(10,2)>,b : map<string,long> >") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the end is unknown"),
        ("strin", "strin is unknown; did you mean string"),
        ("list", "'<' is expected, and not 'the end'"),
        ("list<long", "'>' is expected"),
        ("long>", "unexpected '>'"),
        ("map<long, long>", "the keys of a map are strings"),
        ("struct<a: long, a: int>", "fields a and a of a struct have one name"),
        ("list<struct<x: long, y: int, X: int>>", "fields x and X of a struct have one name, as engines of SQL"),
        ("struct<>", "':' is expected"),
        ("decimal(39,1)", "a decimal has up to 38 digits"),
        ("decimal(2,3)", "a decimal has up to 38 digits"),
        ("decimal(x,y)", "a decimal has up to 38 digits"),
        ("list<json>", "json is unknown"),
        ("long; drop", "unexpected '; drop'"),
        ("list<" * 20 + "long" + ">" * 20, "more than 16 levels"),
    ],
)
def test_a_wrong_type_is_refused(text: str, reason: str) -> None:
    """With what is accepted."""
    with pytest.raises(ValueError, match=r"accepted are boolean") as raised:
        parse_type(text)
    assert reason in str(raised.value)


def test_only_a_timestamp_has_a_unit() -> None:
    """Of numbers."""
    assert make_column("at", "timestamp", unit="s").microseconds == 1_000_000
    with pytest.raises(ValueError, match="unit ms"):
        make_column("at", "long", unit="ms")
