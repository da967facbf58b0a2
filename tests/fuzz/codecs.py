"""Schemas and values of a registry: a reader's schema, a writer's one, and a value in the frame of the latter.

An input is a line of JSON, `[language, reader's schema, writer's schema]`, and the bytes after the frame. A schema that
does not compile is `CorruptData`. A value is a row of the column's type, or is refused with a reason.
"""

import json
import random
from typing import Any, Final

import pyarrow as pa

from tests.fuzz.mutate import mutate_bytes, mutate_json
from tests.fuzz.target import Mismatch, Target
from tests.reader.schemas.sources import Schemas, framed
from ts_common.errors import CorruptData
from ts_reader.schemas.bundle import load_bundle
from ts_reader.schemas.contract import Part
from ts_reader.schemas.schema_codec import SchemaCodec
from ts_reader.schemas.schema_source import SchemaType

_AVRO: Final[list[Any]] = [
    "string",
    "bytes",
    {"type": "array", "items": "long"},
    {"type": "map", "values": ["null", "double"]},
    {"type": "fixed", "name": "F", "size": 3},
    {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "long", "logicalType": "timestamp-micros"},
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "user", "type": ["null", "string"], "default": None},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}, "default": []},
            {"name": "at", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        ],
    },
    {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "left", "type": ["null", "Tree"]}, {"name": "value", "type": "float"}],
    },
]
_JSON: Final[list[Any]] = [
    {"type": "object", "properties": {"id": {"type": "integer"}, "user": {"type": ["string", "null"]}}},
    {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"$ref": "#"}}}},
    {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
]
_PROTOBUF: Final[list[str]] = [
    'syntax = "proto3"; message Order { int64 id = 1; string user = 2; repeated double totals = 3 [packed = true]; }',
    'syntax = "proto2"; message A { required sint32 a = 1; optional group B = 2 { optional bytes c = 3; } }',
    'syntax = "proto3"; message M { map<string, M> inner = 1; oneof o { int32 x = 2; string y = 3; } enum E { Z = 0; } '
    "E e = 4; }",
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message T { google.protobuf.Timestamp at = 1; }',
]
_ALL: Final[dict[SchemaType, list[Any]]] = {
    SchemaType.AVRO: _AVRO,
    SchemaType.JSON: _JSON,
    SchemaType.PROTOBUF: _PROTOBUF,
}


class Codecs(Target):
    """One value after the other, by a codec of its own."""

    def draw(self, chance: random.Random) -> bytes:
        """Two schemas of one language, often changed, and a value of any bytes."""
        kind = chance.choice(list(SchemaType))
        texts = [_text(chance, kind) for _ in range(2)]
        if chance.random() < 0.4:
            texts[1] = texts[0]
        return json.dumps([kind, *texts]).encode() + b"\n" + _value(chance, kind)

    def run(self, data: bytes) -> None:
        """Compile the schemas, and decode the value alone and next to a null."""
        line, _, payload = data.partition(b"\n")
        try:
            kind, reader, writer = json.loads(line)
            language = SchemaType(kind)
        except (ValueError, TypeError):
            return
        if not isinstance(reader, str) or not isinstance(writer, str):
            return
        source = Schemas()
        numbers = [source.add("t-value", text, language, raw=True) for text in (reader, writer)]
        try:
            bundle = load_bundle(source.schema(numbers[0]), source)
            codec = SchemaCodec("t", Part.VALUE, bundle, source)
        except CorruptData:
            return
        values = pa.array([framed(numbers[1], payload), None, framed(numbers[0], payload)], pa.binary())
        found = codec.decode(values)
        if found.column.type != codec.arrow_type or len(found.column) != 3 or len(found.refused) != 3:
            raise Mismatch(f"{found.column.type} of {len(found.column)} rows; expected {codec.arrow_type} of 3")
        found.column.validate(full=True)
        if found.column[1].is_valid or found.refused[1].is_valid:
            raise Mismatch("a null became a value, or was refused")
        for row in (0, 2):
            if found.refused[row].is_valid and found.column[row].is_valid:
                raise Mismatch(f"a refused row has a value: {found.refused[row]}")
        alone = codec.decode(values.slice(0, 1))
        if not alone.column.equals(found.column.slice(0, 1)) and not _has_nan(alone.column):
            raise Mismatch("a value decodes to another one next to others")


def _text(chance: random.Random, kind: SchemaType) -> str:
    schema = chance.choice(_ALL[kind])
    if kind is SchemaType.PROTOBUF:
        text: str = schema
        if chance.random() < 0.4:
            text = mutate_bytes(chance, text.encode()).decode("utf-8", "replace")
        return text
    return json.dumps(mutate_json(chance, schema) if chance.random() < 0.5 else schema)


def _value(chance: random.Random, kind: SchemaType) -> bytes:
    size = chance.choice((0, 1, 5, 20, 200))
    if kind is SchemaType.JSON:
        value = json.dumps(chance.choice(({"id": 1, "user": None}, [{"a": 1.5, "b": []}], "x", True, {"k": [1]})))
        return mutate_bytes(chance, value.encode()) if chance.random() < 0.5 else value.encode()
    if chance.random() < 0.5:
        return bytes(chance.choice((0, 2, 4, 6, 8, 10, 1, 127, 128, 255)) for _ in range(size))
    return chance.randbytes(size)


def _has_nan(column: pa.Array) -> bool:
    return "nan" in str(column).lower()
