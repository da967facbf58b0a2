"""JSON Schema: the Arrow type of a schema, and values that are not of it."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.reader.schemas.sources import Schemas, bundle, decoded, framed
from ts_common.errors import CorruptData
from ts_reader.schemas.contract import Part
from ts_reader.schemas.json_schema.columns import JsonSchemaFormat
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.schema_source import Reference, SchemaType

POINT = {"type": "object", "properties": {"x": {"type": "number"}}}
POINT_TYPE = pa.struct([("x", pa.float64())])


def format_of(schema: Any, **references: Any) -> JsonSchemaFormat:
    return JsonSchemaFormat(bundle(SchemaType.JSON, json.dumps(schema), references))


@pytest.mark.parametrize(
    ("schema", "expected", "value", "row"),
    [
        ({"type": "string", "format": "date-time"}, pa.string(), "2026", "2026"),
        ({"type": "integer"}, pa.int64(), 5.0, 5),
        ({"type": "number"}, pa.float64(), 5, 5.0),
        ({"type": "boolean"}, pa.bool_(), True, True),
        ({"type": "null"}, pa.null(), None, None),
        ({"type": ["null", "string"]}, pa.string(), None, None),
        ({"type": ["integer", "string"]}, pa.string(), 5, "5"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, pa.struct([("a", pa.int64())]), {}, {"a": None}),
        (POINT, POINT_TYPE, {"x": 1, "other": 2}, {"x": 1.0}),
        ({"properties": {"x": {"type": "number"}}}, POINT_TYPE, {"x": 1.5}, {"x": 1.5}),
        ({"type": "object"}, pa.string(), {"a": [1]}, '{"a":[1]}'),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.int64()),
            {"a": 1},
            [("a", 1)],
        ),
        ({"type": "array", "items": POINT}, pa.list_(POINT_TYPE), [{"x": 1}, None], [{"x": 1.0}, None]),
        ({"type": "array", "items": [{"type": "integer"}]}, pa.string(), [1, "x"], '[1,"x"]'),
        ({"type": "array", "prefixItems": [{}], "items": POINT}, pa.string(), [1], "[1]"),
        ({"oneOf": [{"type": "null"}, POINT]}, POINT_TYPE, None, None),
        ({"anyOf": [POINT, {"type": "string"}]}, pa.string(), "x", '"x"'),
        ({"enum": ["a", "b"]}, pa.string(), "a", "a"),
        ({"enum": ["a", 1]}, pa.string(), 1, "1"),
        ({"const": "a"}, pa.string(), "a", "a"),
        ({"$ref": "#/definitions/P", "definitions": {"P": POINT}}, POINT_TYPE, {"x": 1}, {"x": 1.0}),
        ({"$ref": "#/$defs/a~1b/items/0", "$defs": {"a/b": {"items": [POINT]}}}, POINT_TYPE, {"x": 1}, {"x": 1.0}),
        ({"$ref": "#pt", "$defs": {"P": {"$anchor": "pt", **POINT}}}, POINT_TYPE, {"x": 1}, {"x": 1.0}),
        ({"$ref": "#pt", "definitions": {"P": {"id": "#pt", **POINT}}}, POINT_TYPE, {"x": 1}, {"x": 1.0}),
        (
            {"$id": "http://a/b", "$ref": "http://a/b#/$defs/P", "$defs": {"P": POINT}},
            POINT_TYPE,
            {"x": 1},
            {"x": 1.0},
        ),
        ({"$ref": "http://elsewhere/x.json"}, pa.string(), 5, "5"),
        ({"$ref": "#/nowhere"}, pa.string(), 5, "5"),
        (
            {"allOf": [{"$ref": "#/$defs/P"}, {"properties": {"y": {"type": "string"}}}], "$defs": {"P": POINT}},
            pa.struct([("x", pa.float64()), ("y", pa.string())]),
            {"x": 1, "y": "z"},
            {"x": 1.0, "y": "z"},
        ),
        ({"allOf": [{"anyOf": [POINT]}]}, pa.string(), 1, "1"),
        (True, pa.string(), {"a": 1}, '{"a":1}'),
        ({}, pa.string(), None, None),
    ],
)
def test_each_schema_has_its_arrow_type(schema: Any, expected: pa.DataType, value: Any, row: Any) -> None:
    """As the table of `json_schema.columns` has it."""
    found = format_of(schema)
    assert found.arrow_type == expected
    assert pa.array([found.reading(None)(json.dumps(value).encode(), None)], expected).to_pylist() == [row]


def test_a_type_inside_of_itself_is_json() -> None:
    """By the root, by a definition, and by a circle of references."""
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}}
    found = format_of(node)
    assert found.arrow_type == pa.struct([("v", pa.int64()), ("next", pa.string())])
    assert found.reading(None)(b'{"v": 1, "next": {"v": 2}}', None) == {"v": 1, "next": '{"v":2}'}
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert format_of(circle).arrow_type == pa.string()
    assert format_of({"allOf": [{"$ref": "#"}]}).arrow_type == pa.string()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"i": "x"}', 'i: "x" is not an integer of 64 bits'),
        (b'{"i": 1.5}', "i: 1.5 is not an integer"),
        (b'{"i": true}', "i: true is not an integer"),
        (b'{"i": 99999999999999999999}', "is not an integer of 64 bits"),
        (b'{"s": 5}', "s: 5 is not a string"),
        (b'{"n": "1"}', 'n: "1" is not a number'),
        (b'{"b": 1}', "b: 1 is not a boolean"),
        (b'{"p": {"x": []}}', "p.x: [] is not a number"),
        (b'{"l": "abc"}', 'l: "abc" is not an array'),
        (b'"x"', '"x" is not an object'),
        (b"{", "unexpected end"),
        (b"[" * 100_000, "depth"),
        (b'{"j": ' + b"[" * 300 + b"]" * 300 + b"}", "j: JSON that is nested too deeply"),
        (b'{"s": ' + b"[" * 500 + b"]" * 500 + b"}", "s: JSON that is nested too deeply is not a string"),
        (b'{"n": NaN}', "column"),
        (b'"\xff"', "UTF-8"),
    ],
)
def test_a_value_of_another_type_is_refused(value: bytes, reason: str) -> None:
    """The reason has the place and the value."""
    schemas = Schemas()
    kinds = {"i": "integer", "s": "string", "n": "number", "b": "boolean"}
    properties: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    properties |= {"j": {}, "p": POINT, "l": {"type": "array", "items": {"type": "string"}}}
    number = schemas.add("t-value", {"type": "object", "properties": properties}, SchemaType.JSON)
    codec = open_codec("json-schema-framed", "t", Part.VALUE, schemas)
    rows, refused = decoded(codec, framed(number, value), framed(number, b'{"i": 1}'))
    assert rows[0] is None
    assert reason.lower() in (refused[0] or "").lower()
    assert (rows[1]["i"], refused[1]) == (1, None)


def test_an_integer_beyond_64_bits_is_refused() -> None:
    """The rows around it are not."""
    schemas = Schemas()
    number = schemas.add("t-value", {"type": "integer"}, SchemaType.JSON)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    rows, refused = decoded(codec, *(framed(number, str(each).encode()) for each in (1, (1 << 64) - 1, 3)))
    assert rows == [1, None, 3]
    assert "is not an integer of 64 bits" in (refused[1] or "")


def test_references_of_the_registry_are_resolved() -> None:
    """By their names, with a pointer into them, also from a reference."""
    schemas = Schemas()
    schemas.add("point", {"$defs": {"P": POINT}}, SchemaType.JSON)
    line = {"type": "object", "properties": {"from": {"$ref": "point.json#/$defs/P"}}}
    schemas.add("line", line, SchemaType.JSON, [Reference("point.json", "point", 1)])
    schemas.add("t-value", {"$ref": "line.json"}, SchemaType.JSON, [Reference("line.json", "line", 1)])
    assert open_codec("registry", "t", Part.VALUE, schemas).arrow_type == pa.struct([("from", POINT_TYPE)])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "an object or a boolean"),
        ("[" * 100_000, "nested more than 128"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested more than 128"),
    ],
)
def test_a_wrong_schema_is_an_error(schema: str, reason: str) -> None:
    """It names the schema."""
    with pytest.raises(CorruptData, match=reason) as error:
        JsonSchemaFormat(bundle(SchemaType.JSON, schema))
    assert "schema id 1" in str(error.value)


def test_a_bomb_of_references_is_rejected() -> None:
    """Ten levels, each with ten references to the next one."""
    levels: dict[str, Any] = {
        f"l{level}": {"properties": {f"p{n}": {"$ref": f"#/$defs/l{level + 1}"} for n in range(10)}}
        for level in range(10)
    }
    with pytest.raises(CorruptData, match="more than 10000 columns"):
        format_of({"$ref": "#/$defs/l0", "$defs": {**levels, "l10": {"type": "integer"}}})


def test_a_chain_of_references_is_bounded() -> None:
    """It neither ends the process nor the stack."""
    chain: dict[str, Any] = {f"l{n}": {"type": "array", "items": {"$ref": f"#/$defs/l{n + 1}"}} for n in range(100)}
    with pytest.raises(CorruptData, match="nested more than"):
        format_of({"$ref": "#/$defs/l0", "$defs": {**chain, "l100": {}}})
