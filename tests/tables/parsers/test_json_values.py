"""JSON values become columns exactly, or are refused with a reason."""

import json
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import examples
from tests.tables.parsers.made_records import parsed
from ts_tables.parsers.json_values import JsonParser
from ts_tables.parsers.parser_columns import make_column

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def parser_of(**kinds: str) -> JsonParser:
    """Return a parser of columns by their types."""
    return JsonParser([make_column(name, kind) for name, kind in kinds.items()])


FITS: list[tuple[str, str, Any]] = [
    ("string", '"é"', "é"),
    ("boolean", "false", False),
    ("int", "-2147483648", -(1 << 31)),
    ("long", "9223372036854775807", (1 << 63) - 1),
    ("long", "1.0", 1),
    ("long", "9007199254740993.0", 9007199254740993),
    ("long", "9007199254740993e0", 9007199254740993),
    ("long", "1e18", 10**18),
    ("long", "999999999999999E3", 999999999999999000),
    ("double", "1", 1.0),
    ("double", "9007199254740992", 9007199254740992.0),
    ("double", "1e-7", 1e-7),
    ("float", "0.5", 0.5),
    ("decimal(20,2)", "123456789012345678.25", Decimal("123456789012345678.25")),
    ("decimal(5,2)", "1.1", Decimal("1.10")),
    ("decimal(5,2)", '"1.1"', Decimal("1.10")),
    ("binary", '"AP8="', b"\x00\xff"),
    ("date", '"2026-11-25"', date(2026, 11, 25)),
    ("timestamp", '"2026-11-25T12:00:00Z"', NOON),
    ("timestamp", '"2026-11-25T14:00:00.000000000+02:00"', NOON),
    ("timestamp", '"2026-11-25T12:00:00"', NOON),
    ("timestamp", '"2026-11-25 12:00"', NOON),
    ("json", '{"a": [1.50, "x", null]}', '{"a":[1.5,"x",null]}'),
    ("json", "[12345678901234567890123, 0.12345678901234567890]", "[12345678901234567890123,0.12345678901234567890]"),
    ("list<long>", "[1, null]", [1, None]),
    ("map<string, double>", '{"a": 1}', [("a", 1.0)]),
    ("struct<a: long, b: list<string>>", '{"b": ["x"], "c": 1}', {"a": None, "b": ["x"]}),
]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_a_zero_keeps_its_sign_unless_it_is_an_integer(kind: str) -> None:
    """As Spark and DuckDB read it; also next to a number that is read exactly."""
    signs = {"-0": 1.0, "-0.0": -1.0, "-0e0": -1.0, "-0.0000000000000000000000": -1.0, "0.0": 1.0}
    values = [b'{"a": %s, "b": %s}' % (text.encode(), other) for text in signs for other in (b"1", b"9" * 30)]
    rows, refused = parsed(parser_of(a=kind), values)
    assert not refused
    assert [math.copysign(1.0, row["a"]) for _, row in rows] == [sign for sign in signs.values() for _ in range(2)]


@pytest.mark.parametrize(("kind", "text", "expected"), FITS)
def test_a_value_that_fits_is_exact(kind: str, text: str, expected: Any) -> None:
    """Also among values that do not fit."""
    other = '{"a": {"deep": true}}' if "struct" not in kind and kind != "json" else '{"a": 1}'
    rows, refused = parsed(parser_of(a=kind), [f'{{"a": {text}}}'.encode(), other.encode()])
    assert rows[0] == (0, {"a": expected})
    assert {*refused} <= {1}


MISFITS = [
    ("string", "1"),
    ("boolean", "1"),
    ("int", "2147483648"),
    ("long", "1.5"),
    ("long", "4503599627370496.3"),
    ("long", "123456789.00000000049"),
    ("int", "0.99999999999999999"),
    ("int", "9999999999999999e-16"),
    ("list<long>", "[4503599627370496.3]"),
    ("struct<a: long>", '{"a": 1.00000000000000001}'),
    ("long", "true"),
    ("long", "9223372036854775808"),
    ("long", "12345678901234567890123"),
    ("long", '"1"'),
    ("double", "true"),
    ("double", '"1"'),
    ("double", "9007199254740993"),
    ("double", "123456789012345678901"),
    ("double", "1e-400"),
    ("long", "1e-400"),
    ("float", "16777217"),
    ("float", "1e-50"),
    ("float", "1e39"),
    ("decimal(5,2)", "-6248964780502162e-237"),
    ("timestamp", '"2026-11-25T14:00:00.000000999+02:00"'),
    ("decimal(5,2)", "1.234"),
    ("decimal(5,2)", "12345"),
    ("decimal(5,2)", '"NaN"'),
    ("decimal(5,2)", '"1_0"'),
    ("decimal(5,2)", '" 1"'),
    ("decimal(5,2)", '"\u0661"'),
    ("binary", '"AP8"'),
    ("date", '"2026-11-31"'),
    ("timestamp", '"noon"'),
    ("timestamp", "5"),
    ("list<long>", "[1.5]"),
    ("list<long>", "{}"),
    ("map<string, long>", '{"a": "b"}'),
    ("struct<a: long>", "[1]"),
    ("struct<a: long>", '{"a": "1"}'),
]


@pytest.mark.parametrize(("kind", "text"), MISFITS)
def test_a_value_that_does_not_fit_refuses_its_record_alone(kind: str, text: str) -> None:
    """The reason names the column and the value; nothing is cut, rounded or made of something else."""
    rows, refused = parsed(parser_of(a=kind), [b"{}", f'{{"a": {text}}}'.encode(), b'{"a": null}'])
    assert rows == [(0, {"a": None}), (2, {"a": None})]
    assert list(refused) == [1]
    assert refused[1].startswith("a: ")
    assert " is no " in refused[1]


def test_times_of_numbers_have_a_unit() -> None:
    """Milliseconds here; text is refused then."""
    parser = JsonParser([make_column("at", "timestamp", unit="ms")])
    values = [b'{"at": 1500}', b'{"at": 1.5}', b'{"at": "2026-11-25T12:00:00Z"}', b'{"at": 1e18}']
    values += [b'{"at": 0.99999999999999999}']
    rows, refused = parsed(parser, values)
    assert rows == [(0, {"at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)})]
    assert sorted(refused) == [1, 2, 3, 4]


def test_a_path_leads_into_objects() -> None:
    """A path through something else leads to null."""
    parser = JsonParser([make_column("city", "string", ["user", "address", "city"])])
    values = [b'{"user": {"address": {"city": "Ulm"}}}', b'{"user": {"address": 1}}', b'{"user": null}']
    assert [row["city"] for _, row in parsed(parser, values)[0]] == ["Ulm", None, None]


def test_a_required_column_refuses_records_without_it() -> None:
    """A tombstone too; without required columns it is a row of nulls."""
    values = [b'{"a": 1}', b"{}", b'{"a": null}', None]
    rows, refused = parsed(JsonParser([make_column("a", "long", required=True)]), values)
    assert rows == [(0, {"a": 1})]
    assert refused == dict.fromkeys((1, 2, 3), "a: it is missing")
    assert parsed(parser_of(a="long"), values)[0] == [
        (0, {"a": 1}),
        (1, {"a": None}),
        (2, {"a": None}),
        (3, {"a": None}),
    ]


def test_an_array_has_a_row_for_each_object_or_is_refused_whole() -> None:
    """A record is in the table with all its rows, or not at all."""
    values = [b'[{"a": 1}, {"a": 2}]', b'[{"a": 3}, {"a": "x"}]', b"[]", b"[1]", b'{"a": 4}']
    rows, refused = parsed(parser_of(a="long"), values)
    assert rows == [(0, {"a": 1}), (0, {"a": 2}), (4, {"a": 4})]
    assert sorted(refused) == [1, 2, 3]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"{} {}",
        b'{"a": NaN}',
        b'{"a": 1e400}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"5",
        b"null",
        b'{"a": ' * 2000 + b"1" + b"}" * 2000,
        b'{"a": ' + b"[" * 900 + b"1234567890123456.7" + b"]" * 900 + b"}",
        b'{"a": ' + b"1" * 10_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(value: bytes) -> None:
    """In one line, whatever bytes it has."""
    rows, refused = parsed(parser_of(a="json", b="decimal(3,1)"), [value, b"{}"])
    assert [number for number, _ in rows] == [1] or b"[[[" in value
    assert all("\n" not in reason and len(reason) <= 300 for reason in refused.values())


def test_a_value_is_read_up_to_a_depth_whatever_its_columns() -> None:
    """Python's `json` reads some texts once more; its own bound depends on the version."""
    deep = [b'{"b": 1.5, "a": ' + b"[" * n + b"1234567890123456.7" + b"]" * n + b"}" for n in (511, 512)]
    for kind in ("decimal(3,1)", "double", "json"):
        rows, refused = parsed(parser_of(b=kind), deep)
        assert [number for number, _ in rows] == [0]
        assert refused == {1: "it is nested more than 512 levels deep"}


def test_a_row_depends_on_no_other_number_of_its_record_or_batch() -> None:
    """A long number makes Python's `json` read its record once more."""
    texts = ["0.99999999999999999", "1e18", "1.0", "4503599627370496.3", "1.50"]
    alone = [parsed(parser_of(a="long", b="json"), [f'{{"a":{text},"b":{text}}}'.encode()]) for text in texts]
    others = [f'{{"a":{text},"b":{text},"c":12345678901234567890.1}}'.encode() for text in texts]
    rows, refused = parsed(parser_of(a="long", b="json"), others)
    assert [row for _, row in rows] == [row for some, _ in alone for _, row in some]
    assert [*refused.values()] == [reason for _, some in alone for reason in some.values()]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)
KINDS = [
    "string",
    "long",
    "int",
    "double",
    "float",
    "boolean",
    "timestamp",
    "date",
    "json",
    "decimal(9,3)",
    "list<long>",
]


@given(values=st.lists(JSON, max_size=12), kind=st.sampled_from(KINDS), cut=st.integers(0, 12))
@settings(max_examples=examples(1000, quick=60))
def test_equal_values_have_equal_rows_in_any_batch(values: list[Any], kind: str, cut: int) -> None:
    """Else a rerun would refuse other records than the run before it."""
    parser = pickle.loads(pickle.dumps(parser_of(a=kind, b="json")))
    data = [json.dumps({"a": value, "b": value}).encode() for value in values]
    rows, refused = parsed(parser, data)
    first, first_refused = parsed(parser, data[:cut])
    second, second_refused = parsed(parser, data[cut:])
    begin = len(data[:cut])
    assert rows == first + [(number + begin, row) for number, row in second]
    assert refused == first_refused | {number + begin: reason for number, reason in second_refused.items()}
