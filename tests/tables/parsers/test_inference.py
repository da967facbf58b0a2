"""Columns that are found in JSON values: no value is lost, and none changes its type."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.matrix import examples
from tests.tables.parsers.made_records import made_records, parsed
from ts_tables.parsers.inference import FoundColumn, Member, with_members
from ts_tables.parsers.json_values import JsonParser, OnType
from ts_tables.parsers.parser_columns import make_column


def data_of(*values: Any) -> list[bytes]:
    """Return JSON texts."""
    return [json.dumps(value).encode() for value in values]


def grown(parser: JsonParser, values: list[bytes]) -> JsonParser:
    """Return the parser with the columns of these values."""
    for _ in range(3):  # an integer that no double has is found after the doubles
        found = parser.parse(made_records(values))
        if not found.unknown:
            return parser
        other = parser.grown(found.unknown, ["id"])
        assert isinstance(other, JsonParser)
        parser = other
    raise AssertionError(found.unknown)


def test_each_kind_of_a_member_has_a_column() -> None:
    """The first one has its name; integers are in the doubles that the same values have."""
    values = data_of(
        {"id": 1, "a": "x", "b": 1, "c": {"d": [1.5]}, "e": None},
        {"id": 2, "a": 5, "b": 1.5, "c": True},
        {"id": 3, "a": [], "b": 1 << 60},
    )
    parser = grown(JsonParser([make_column("id", "long")], infers=True), values)
    assert [(each.name, each.kind) for each in parser.found] == [
        ("a", "string"),
        ("a_long", "long"),
        ("a_json", "json"),
        ("b", "double"),
        ("c", "json"),
        ("c_boolean", "boolean"),
        ("b_long", "long"),
    ]


def test_an_integer_that_no_double_has_gets_a_column() -> None:
    """It would lose digits; one of more than 64 bits is text of JSON."""
    parser = grown(JsonParser([], infers=True), data_of({"b": 1.5}))
    parser = grown(parser, [b'{"b": 9007199254740993}', b'{"b": 123456789012345678901}', b'{"b": 3}'])
    assert [each.name for each in parser.found] == ["b", "b_long", "b_json"]
    rows, _ = parsed(parser, [b'{"b": 9007199254740993}', b'{"b": 123456789012345678901}'])
    assert [row for _, row in rows] == [
        {"b": None, "b_long": 9007199254740993, "b_json": None},
        {"b": None, "b_long": None, "b_json": "123456789012345678901"},
    ]


def test_names_of_columns_are_safe_and_single() -> None:
    """Engines of SQL compare them without regard to case."""
    members = [Member(name, "long") for name in ("user.name", "user name", "A", "a", "ID", "", "é" * 300)]
    names = [each.name for each in with_members([], members, ["id"])]
    assert names == ["user_name", "user_name_long", "A", "a_long", "ID_long", "member", "_" * 100]


def test_another_kind_can_refuse_its_record() -> None:
    """A new member is a new column nevertheless."""
    parser = JsonParser([], infers=True, on_type=OnType.QUARANTINE, found=[FoundColumn("a", "a", "long")])
    found = parser.parse(made_records(data_of({"a": "x"}, {"a": 1, "b": 2})))
    assert found.refused.to_pylist() == [0]
    assert found.reasons.to_pylist() == ["a: 'x' is no long"]
    assert found.unknown == (Member("b", "long"),)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=2), SCALARS, max_size=2)
OBJECTS = st.lists(st.dictionaries(st.sampled_from(["a", "A", "b", "b.c"]), VALUES, max_size=4), min_size=1, max_size=8)


@given(first=OBJECTS, second=OBJECTS)
@example(first=[{"A": 0}, {"A": 0.0}], second=[{"A": 9007199254740993}])
@settings(max_examples=examples(500, quick=40))
def test_every_value_is_in_one_column_whatever_later_records_contain(first: list[Any], second: list[Any]) -> None:
    """A record that is parsed again, with the columns of later ones, has the same values in the same columns."""
    one = grown(JsonParser([], infers=True), data_of(*first))
    both = grown(one, data_of(*second))
    assert [*both.found][: len(one.found)] == [*one.found]
    rows, refused = parsed(one, data_of(*first))
    again, _ = parsed(both, data_of(*first))
    assert refused == {}
    for (_, row), (_, later), given_object in zip(rows, again, first, strict=True):
        assert {name: value for name, value in later.items() if value is not None} == {
            name: value for name, value in row.items() if value is not None
        }
        members = {each.name: each for each in one.found}
        shown = {members[name].member: (members[name].kind, row[name]) for name in row if row[name] is not None}
        expected = {name: value for name, value in given_object.items() if value is not None}
        assert shown.keys() == expected.keys()
        for name, (kind, value) in shown.items():
            assert json.loads(value) == expected[name] if kind == "json" else value == expected[name]
