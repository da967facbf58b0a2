"""Hostile schemas and bytes: refused with a reason, in bounded time and memory."""

import json
import resource
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reader.schemas.sources import Schemas, bundle, decoded, framed
from ts_common.errors import CorruptData
from ts_reader.schemas.contract import Part
from ts_reader.schemas.formats import AvroFormat
from ts_reader.schemas.limits import MAX_VALUE_BYTES
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.schema_codec import SchemaCodec
from ts_reader.schemas.schema_source import SchemaType

SECONDS = 5.0


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def chain(length: int, width: int = 1) -> dict[str, Any]:
    """Return records, where each contains the former, `width` times."""
    levels = [
        record(f"R{n}", *(field(f"f{m}", f"R{n - 1}" if n else "int") for m in range(width))) for n in range(length)
    ]
    return record("Top", *(field(f"d{n}", level) for n, level in enumerate(levels)))


BOMBS: list[tuple[Any, str]] = [
    ("nowhere", "not declared"),
    ({"type": "record", "name": "R"}, "no 'fields'|not a type"),
    ({"type": "enum", "name": "E", "symbols": [1]}, "not a name"),
    ({"type": "fixed", "name": "F", "size": -1}, "a size of"),
    ({"type": "fixed", "name": "F", "size": 1 << 40}, "a size of"),
    ([], "empty"),
    (["int", "int"], "one type twice"),
    (["int", ["null", "string"]], "a union in it"),
    (["int"] * 2000, "a union of 2000 types"),
    (5, "not a type"),
    ({"type": "array"}, "not declared"),
    (record("R", field("a", "int"), field("a", "int")), "one name"),
    (record("R", field("a", record("R"))), "declared twice"),
    (record("A", field("a", "A")), "without an end"),
    ({"type": "array", "items": "null"}, "items without bytes"),
    ({"type": "array", "items": record("E")}, "items without bytes"),
    ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "items without bytes"),
    (chain(300), "levels deep"),
    (chain(30, width=2), "more than 10000 columns"),
    (record("R", field("a", "int", default="x")), ""),
]


@pytest.mark.parametrize(("schema", "reason"), BOMBS, ids=[str(n) for n in range(len(BOMBS))])
def test_a_hostile_schema_of_avro_is_rejected(schema: Any, reason: str) -> None:
    """At once, with the name of the schema; a default that is never used is no error."""
    started = time.monotonic()
    if not reason:
        assert AvroFormat(bundle(SchemaType.AVRO, json.dumps(schema))).arrow_type == pa.struct([("a", pa.int32())])
        return
    with pytest.raises(CorruptData, match=reason) as error:
        AvroFormat(bundle(SchemaType.AVRO, json.dumps(schema)))
    assert "schema id 1" in str(error.value)
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize("text", ["[" * 100_000, '{"type":' * 300 + '"int"' + "}" * 300, "", "\0", "{"])
def test_a_text_that_is_no_schema_is_rejected(text: str) -> None:
    """Nested too deeply, or no JSON."""
    with pytest.raises(CorruptData, match=r"nested more than|not JSON"):
        AvroFormat(bundle(SchemaType.AVRO, text))


def codec_of(reader: Any, *writers: Any) -> tuple[SchemaCodec, list[int]]:
    """Return a codec, and the ids of its writers' schemas; the reader's is the last one."""
    schemas = Schemas()
    numbers = [schemas.add("t-value", each) for each in (*writers, reader)]
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    assert isinstance(codec, SchemaCodec)
    return codec, numbers


def test_hostile_schemas_of_writers_refuse_their_rows() -> None:
    """Those of others are read."""
    codec, numbers = codec_of("int", *(schema for schema, reason in BOMBS if reason))
    started = time.monotonic()
    rows, refused = decoded(codec, *(framed(number, b"\0" * 20) for number in numbers[:-1]), framed(numbers[-1], b"\2"))
    assert rows == [None] * (len(numbers) - 1) + [1]
    assert all(refused[:-1])
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("string", b"\xfe\xff\xff\xff\x0f", "not of the writer"),
        ("bytes", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "not of the writer"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "not of the writer"),
        ({"type": "map", "values": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\2a", "not of the writer"),
        (["null", "int"], b"\x06", "not of the writer"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08", "not of the writer"),
        ("int", b"\2\2", "1 byte left over"),
        ("int", b"", "not of the writer"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\xff\x7f", "is not a date"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0},
            b"\x06\x7f\xff\xff",
            "does not fit its column",
        ),
    ],
)
def test_hostile_bytes_of_avro_are_refused(schema: Any, data: bytes, reason: str) -> None:
    """Counts and sizes beyond the bytes; the rows around them are read."""
    codec, (number,) = codec_of(schema)
    started = time.monotonic()
    rows, refused = decoded(codec, None, framed(number, data), None)
    assert rows == [None] * 3
    assert reason in (refused[1] or "")
    assert refused[0] is refused[2] is None
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    ("schema", "level", "end"),
    [
        (record("N", field("next", ["null", "N"])), b"\2", b"\0"),
        ({"type": "array", "items": record("N", field("all", {"type": "array", "items": "N"}))}, b"\2", b"\0"),
        (record("N", field("by", {"type": "map", "values": "N"})), b"\2\2k", b"\0"),
    ],
)
def test_a_deep_value_of_a_recursive_schema_is_refused(schema: Any, level: bytes, end: bytes) -> None:
    """A million levels would end the process: fastavro recurses in C."""
    codec, (number,) = codec_of(schema)
    for depth in (200, 1_000_000):
        rows, refused = decoded(codec, framed(number, level * depth + end * depth))
        assert rows == [None]
        assert "nested more than" in (refused[0] or "")


def test_defaults_in_an_array_are_bounded() -> None:
    """A kilobyte for each of a million items."""
    old = {"type": "array", "items": record("I", field("x", "int"))}
    new = {"type": "array", "items": record("I", field("x", "int"), field("d", "string", default="x" * 1000))}
    codec, (first, _) = codec_of(new, old)
    data = b"\xc0\x84\x3d" + b"\2" * 500_000 + b"\0"  # a block of 500,000 items
    rows, refused = decoded(codec, framed(first, data), framed(first, b"\2\2\0"))
    assert "defaults of the schema" in (refused[0] or "")
    assert rows[1] == [{"x": 1, "d": "x" * 1000}]


def test_a_default_that_contains_itself_is_rejected() -> None:
    """The specification allows to declare it."""
    old = record("Top", field("x", "int"))
    node = record("N", field("a", ["N", "null"], default={}), field("b", ["N", "null"], default={}))
    codec, (first, _) = codec_of(record("Top", field("x", "int"), field("n", node, default={})), old)
    started = time.monotonic()
    assert "default" in (decoded(codec, framed(first, b"\2"))[1][0] or "")
    assert time.monotonic() - started < SECONDS


def test_unions_of_unions_compile_in_bounded_time() -> None:
    """Each level has thirty records of the same shape."""

    def nested(level: int) -> Any:
        if level == 0:
            return "int"
        inner = nested(level - 1)
        return [record(f"R{level}", field("x", inner)), record(f"S{level}", field("y", "int")), "string"]

    codec, (first, second) = codec_of(nested(15), nested(14))
    started = time.monotonic()
    decoded(codec, framed(first, b"\4\2a"), framed(second, b"\4\2a"))
    assert time.monotonic() - started < SECONDS


def test_a_value_beyond_the_limit_is_refused() -> None:
    """Before anything reads it; an option has another limit."""
    schemas = Schemas()
    value = framed(schemas.add("t-value", "bytes"), b"\x28" + bytes(20))
    for most, rows in ((26, [bytes(20)]), (25, [None])):
        codec = open_codec("registry", "t", Part.VALUE, schemas, {"max.value.bytes": str(most)})
        assert decoded(codec, value)[0] == rows
    _, refused = decoded(codec, value)
    assert "at most 25 are decoded (max.value.bytes)" in (refused[0] or "")
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    assert decoded(codec, bytes(MAX_VALUE_BYTES + 1))[0] == [None]


def test_many_rows_need_no_more_memory_than_a_few() -> None:
    """Values are Arrow arrays after some thousand rows."""
    schema = record("R", *(field(f"f{n}", "long") for n in range(20)))
    codec, (number,) = codec_of(schema)
    column = pa.array([framed(number, b"\2" * 20)] * 60_000, pa.binary())
    codec.decode(column.slice(0, 5_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = codec.decode(column)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 3 * result.column.nbytes + (30 << 20)


PROTO = 'syntax="proto3"; message M { M m=1; repeated string s=2; map<int32, bytes> b=3; double d=4; }'
LANGUAGES: list[tuple[SchemaType, Any]] = [
    (
        SchemaType.AVRO,
        record(
            "R",
            field("a", ["null", "int", "string", {"type": "array", "items": "R"}]),
            field("b", {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 4}}),
            field("c", {"type": "long", "logicalType": "timestamp-millis"}),
        ),
    ),
    (SchemaType.PROTOBUF, PROTO),
    (
        SchemaType.JSON,
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"items": {}, "type": "array"}}},
    ),
]


@pytest.mark.parametrize(("kind", "schema"), LANGUAGES, ids=[kind for kind, _ in LANGUAGES])
def test_any_bytes_are_a_row_or_a_reason(kind: SchemaType, schema: Any) -> None:
    """And equal ones the same, alone or in a batch."""
    schemas = Schemas()
    number = schemas.add("t-value", schema, kind)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    data = st.one_of(st.binary(max_size=40), st.from_regex(rb"\{[\"ab:0-9,\[\]]{0,12}\}", fullmatch=True))

    @given(st.lists(data, max_size=6))
    def check(payloads: list[bytes]) -> None:
        values = [framed(number, payload) for payload in payloads]
        rows, refused = decoded(codec, *values)
        assert [decoded(codec, value) for value in values] == [
            ([row], [reason]) for row, reason in zip(rows, refused, strict=True)
        ]
        assert all(reason is None or row is None for row, reason in zip(rows, refused, strict=True))

    check()
