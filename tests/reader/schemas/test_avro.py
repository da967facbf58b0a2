"""Avro: the Arrow type of each type, and the resolution of a writer's schema to the reader's."""

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.reader.schemas.sources import Schemas, decoded, framed
from ts_reader.schemas.contract import Part
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.schema_source import Reference

DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
UTC_TIME = datetime(2026, 11, 1, 12, 30, 15, 123_000, UTC)


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def read(writer: Any, values: list[Any], reader: Any = None) -> tuple[pa.DataType, list[Any], list[str | None]]:
    """Return the type, the rows and the reasons of values by a writer's schema, as the reader's."""
    schemas = Schemas()
    number = schemas.add("t-value", writer)
    if reader is not None:
        schemas.add("t-value", reader)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    return codec.arrow_type, *decoded(codec, *(framed(number, encoded(writer, value)) for value in values))


@pytest.mark.parametrize(
    ("schema", "expected", "value", "row"),
    [
        ("boolean", pa.bool_(), True, True),
        ("int", pa.int32(), -5, -5),
        ("long", pa.int64(), 1 << 60, 1 << 60),
        ("float", pa.float32(), 1.5, 1.5),
        ("double", pa.float64(), 0.1, 0.1),
        ("bytes", pa.binary(), b"\xff", b"\xff"),
        ("string", pa.string(), "\u00e4", "\u00e4"),
        ("null", pa.null(), None, None),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(3), b"abc", b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "B"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1, 2], [1, 2]),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
        (record(field("a", "int")), pa.struct([("a", pa.int32())]), {"a": 1}, {"a": 1}),
        (record(), pa.bool_(), {}, True),
        (["null", "string"], pa.string(), None, None),
        (["string"], pa.string(), "x", "x"),
        (
            ["null", "int", "string"],
            pa.struct([("int", pa.int32()), ("string", pa.string())]),
            "x",
            {"int": None, "string": "x"},
        ),
        (["int", "string"], pa.struct([("int", pa.int32()), ("string", pa.string())]), 5, {"int": 5, "string": None}),
        (
            [logical("int", "date"), logical("long", "timestamp-millis")],
            pa.struct([("int", pa.date32()), ("long", pa.timestamp("ms", "UTC"))]),
            ("long", UTC_TIME),
            {"int": None, "long": UTC_TIME},
        ),
        (
            ["null", {**record(field("a", "int")), "namespace": "x"}, {**record(field("b", "int")), "namespace": "y"}],
            pa.struct([("x_R", pa.struct([("a", pa.int32())])), ("y_R", pa.struct([("b", pa.int32())]))]),
            ("y.R", {"b": 1}),
            {"x_R": None, "y_R": {"b": 1}},
        ),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2), Decimal("-1.25"), Decimal("-1.25")),
        (logical("bytes", "decimal", precision=50, scale=0), pa.decimal256(50, 0), Decimal(10**40), Decimal(10**40)),
        (logical("bytes", "decimal", precision=80, scale=1), pa.string(), Decimal("1.5"), "1.5"),
        (
            {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 5, "scale": 1},
            pa.decimal128(5, 1),
            Decimal("2.5"),
            Decimal("2.5"),
        ),
        (logical("string", "uuid"), pa.string(), "x", "x"),
        (logical("int", "date"), pa.date32(), date(1969, 12, 31), date(1969, 12, 31)),
        (logical("int", "time-millis"), pa.time32("ms"), time(1, 2, 3), time(1, 2, 3)),
        (logical("long", "time-micros"), pa.time64("us"), time(1, 2, 3, 4), time(1, 2, 3, 4)),
        (logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), UTC_TIME, UTC_TIME),
        (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), UTC_TIME, UTC_TIME),
        (logical("long", "local-timestamp-millis"), pa.timestamp("ms"), datetime(2026, 1, 1), datetime(2026, 1, 1)),
        (logical("long", "local-timestamp-micros"), pa.timestamp("us"), datetime(2026, 1, 1), datetime(2026, 1, 1)),
        (
            DURATION,
            pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())]),
            b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
            {"months": 1, "days": 2, "milliseconds": (1 << 32) - 1},
        ),
        (logical("int", "nonsense"), pa.int32(), 4, 4),
        (logical("string", "decimal", precision=4), pa.string(), "x", "x"),
    ],
)
def test_each_type_has_its_arrow_type(schema: Any, expected: pa.DataType, value: Any, row: Any) -> None:
    """As the table of `avro.arrow_types` has it; inside of a record, too."""
    if schema in (["string"], "null"):
        assert read(schema, [value])[:2] == (expected, [row])
        return
    assert read(schema, [value]) == (expected, [row], [None])
    found = read(record(field("v", schema), name="Outer"), [{"v": value}])
    assert found == (pa.struct([("v", expected)]), [{"v": row}], [None])


def test_nanoseconds_have_their_types() -> None:
    """The library has no writer for them."""
    schemas = Schemas()
    fields = [field("a", logical("long", "timestamp-nanos")), field("b", logical("long", "local-timestamp-nanos"))]
    number = schemas.add("t-value", record(*fields))
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    assert codec.arrow_type == pa.struct([("a", pa.timestamp("ns", "UTC")), ("b", pa.timestamp("ns"))])
    column = codec.decode(pa.array([framed(number, b"\x02\x04")], pa.binary())).column
    assert column.flatten()[0].cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    ("kind", "name", "least", "most"),
    [
        ("int", "date", 2 - (1 << 31), (1 << 31) - 2),
        ("int", "time-millis", 0, 86_399_999),
        ("long", "time-micros", 0, 86_399_999_999),
        ("long", "timestamp-millis", -9_223_372_022_400_000, 9_223_372_022_400_000),
        ("long", "local-timestamp-millis", -9_223_372_022_400_000, 9_223_372_022_400_000),
        ("long", "timestamp-micros", -9_223_372_022_400_000_000, 9_223_372_022_400_000_000),
        ("long", "timestamp-nanos", 2 - (1 << 63), (1 << 63) - 2),
    ],
)
def test_a_time_beyond_its_type_is_refused(kind: str, name: str, least: int, most: int) -> None:
    """Otherwise it is another time, or an infinite one; three days of milliseconds were midnight."""
    schemas = Schemas()
    number = schemas.add("t-value", logical(kind, name))
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    values = [framed(number, encoded(kind, value)) for value in (least, most, least - 1, most + 1)]
    result = codec.decode(pa.array(values, pa.binary()))
    assert result.column.is_valid().to_pylist() == [True, True, False, False]
    assert result.refused.to_pylist() == [None, None, *(f"{value} is not a {name}" for value in (least - 1, most + 1))]


def test_one_source_of_two_fields_is_resolved_for_each() -> None:
    """By its name and by an alias, in two units."""
    inner = [record(field("at", logical("long", f"timestamp-{unit}")), name="I") for unit in ("millis", "micros")]
    new = record(field("x", inner[1]), field("y", {**inner[1], "name": "J"}, aliases=["x"]))
    _, rows, _ = read(record(field("x", inner[0])), [{"x": {"at": UTC_TIME}}], new)
    assert rows == [{"x": {"at": UTC_TIME}, "y": {"at": UTC_TIME}}]


def test_a_logical_type_next_to_the_type_of_a_field_is_ignored() -> None:
    """A frequent mistake, outside of the specification."""
    kind, rows, _ = read(record(field("a", "long", logicalType="timestamp-millis")), [{"a": 5}])
    assert (kind, rows) == (pa.struct([("a", pa.int64())]), [{"a": 5}])


def test_a_uuid_of_a_fixed_is_a_text() -> None:
    """The specification 1.12 allows both."""
    schemas = Schemas()
    number = schemas.add("t-value", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"})
    rows, _ = decoded(open_codec("registry", "t", Part.VALUE, schemas), framed(number, bytes(range(16))))
    assert rows == ["00010203-0405-0607-0809-0a0b0c0d0e0f"]


@pytest.mark.parametrize(
    ("writer", "value", "reader", "row"),
    [
        ("int", 5, "long", 5),
        ("int", 5, "float", 5.0),
        ("long", 1 << 53, "double", float(1 << 53)),
        ("float", 1.5, "double", 1.5),
        ("string", "x", "bytes", b"x"),
        ("bytes", b"x", "string", "x"),
        ("int", 5, ["null", "long"], 5),
        ("int", 5, ["null", "string", "long"], {"string": None, "long": 5}),
        (["null", "int"], 5, "long", 5),
        (["int", "string"], "x", "string", "x"),
        (["int", "string"], 5, ["string", "null", "double"], {"string": None, "double": 5.0}),
        ({"type": "array", "items": "int"}, [1], {"type": "array", "items": "double"}, [1.0]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"type": "map", "values": "long"}, [("a", 1)]),
        (
            record(field("a", "int"), field("gone", "string")),
            {"a": 1, "gone": "x"},
            record(
                field("new", "string", default="d"), field("a", "long"), field("none", ["null", "int"], default=None)
            ),
            {"new": "d", "a": 1, "none": None},
        ),
        (
            record(field("old", "int")),
            {"old": 1},
            record(field("a", "int", aliases=["older", "old"])),
            {"a": 1},
        ),
        (
            record(field("a", "int")),
            {"a": 1},
            record(
                field("b", "bytes", default="\u00ff"),
                field("c", record(field("d", "int", default=7), name="S"), default={}),
                field("e", {"type": "array", "items": "int"}, default=[1, 2]),
                field("f", ["int", "string"], default=4),
                field("g", logical("bytes", "decimal", precision=4, scale=2), default="\u007b"),
            ),
            {"b": b"\xff", "c": {"d": 7}, "e": [1, 2], "f": {"int": 4, "string": None}, "g": Decimal("1.23")},
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "B",
            {"type": "enum", "name": "E", "symbols": ["A", "X"], "default": "X"},
            "X",
        ),
        (
            logical("bytes", "decimal", precision=4, scale=1),
            Decimal("1.5"),
            logical("bytes", "decimal", precision=9, scale=3),
            Decimal("1.500"),
        ),
        (logical("long", "timestamp-millis"), UTC_TIME, logical("long", "timestamp-micros"), UTC_TIME),
        (logical("long", "timestamp-micros"), UTC_TIME, logical("long", "timestamp-millis"), UTC_TIME),
        ("int", 1, logical("int", "date"), date(1970, 1, 2)),
    ],
)
def test_a_value_of_another_version_is_resolved(writer: Any, value: Any, reader: Any, row: Any) -> None:
    """By the rules of the specification; see `avro.resolution` for units of time."""
    assert read(writer, [value], reader)[1:] == ([row], [None])


@pytest.mark.parametrize(
    ("writer", "value", "reader", "reason"),
    [
        ("string", "x", "int", "the writer's string is not the reader's int"),
        (["null", "int"], None, "int", "the writer's null is not the reader's int"),
        (["int", "string"], "x", ["null", "int"], "the writer's string is not the reader's int"),
        (record(field("a", "int")), {"a": 1}, record(field("b", "int")), "has no default"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "B",
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "not a symbol",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            b"ab",
            {"type": "fixed", "name": "F", "size": 3},
            "2 bytes is not one of 3",
        ),
        ("bytes", b"\xff", "string", "invalid start byte"),
    ],
)
def test_a_value_that_does_not_resolve_is_refused(writer: Any, value: Any, reader: Any, reason: str) -> None:
    """A type of a union that does not resolve refuses only values of it."""
    _, rows, reasons = read(writer, [value], reader)
    assert rows == [None]
    assert reason in (reasons[0] or "")


def test_a_mismatch_in_a_union_refuses_only_its_values() -> None:
    """The union's other types are read."""
    _, rows, reasons = read(["int", "string"], [5, "x"], "long")
    assert rows == [5, None]
    assert [reason is None for reason in reasons] == [True, False]


def test_a_type_inside_of_itself_is_json() -> None:
    """All levels below the first are one text; unions name their members there, and bytes are base64."""
    node = record(
        field("v", "int"),
        field("raw", ["null", "int", "bytes"]),
        field("next", ["null", "Node"]),
        field("all", {"type": "array", "items": "Node"}),
        name="Node",
    )
    leaf = {"v": 2, "raw": b"\xff", "next": None, "all": []}
    kind, rows, _ = read(node, [{"v": 1, "raw": 3, "next": leaf, "all": [leaf]}])
    assert kind.field("next").type == pa.string()
    inner = {"v": 2, "raw": {"bytes": "/w=="}, "next": None, "all": []}
    assert json.loads(rows[0]["next"]) == inner
    assert [json.loads(each) for each in rows[0]["all"]] == [inner]


def test_a_recursive_value_of_another_version_is_resolved_at_all_levels() -> None:
    """A new field with a default, a promoted one, and a removed one."""
    old = record(field("v", "int"), field("gone", "int"), field("next", ["null", "N"]), name="N")
    new = record(field("v", "double"), field("x", "string", default="d"), field("next", ["null", "N"]), name="N")
    value = {"v": 1, "gone": 0, "next": {"v": 2, "gone": 0, "next": {"v": 3, "gone": 0, "next": None}}}
    _, rows, _ = read(old, [value], new)
    assert json.loads(rows[0]["next"]) == {"v": 2.0, "x": "d", "next": {"v": 3.0, "x": "d", "next": None}}


def test_types_of_references_are_known() -> None:
    """By their full names, from another subject."""
    schemas = Schemas()
    schemas.add("address", {**record(field("city", "string"), name="Address"), "namespace": "shop"})
    outer = record(field("to", "shop.Address"), field("bill", ["null", "shop.Address"]))
    number = schemas.add("t-value", outer, references=[Reference("shop.Address", "address", 1)])
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    rows, _ = decoded(codec, framed(number, b"\2x" + b"\2" + b"\2y"))
    assert rows == [{"to": {"city": "x"}, "bill": {"city": "y"}}]
