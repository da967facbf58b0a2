"""Protobuf: the Arrow type of each field, the message of a value, and schemas that protoc rejects."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.reader.schemas.sources import Schemas, bundle, decoded, framed
from ts_common.errors import CorruptData
from ts_reader.schemas.contract import Part
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.protobuf.compiler import ROOT, compile_protobuf
from ts_reader.schemas.protobuf.format import ProtobufFormat, _pool_of
from ts_reader.schemas.schema_source import Reference, SchemaType

EVERYTHING = """
syntax = "proto3";
package p;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
message All {
  message Inner { int32 x = 1 [(confluent.field_meta).doc = "a number"]; }
  message Empty {}
  enum State { NEW = 0; PAID = 1; }
  int32 i = 1; sint64 s64 = 2; uint32 u32 = 3; uint64 u64 = 4; fixed64 f64 = 5; sfixed32 sf = 6;
  float f = 7; double d = 8; bool b = 9; string s = 10; bytes y = 11;
  State state = 12; Inner inner = 13; Empty empty = 14;
  repeated int32 many = 15; repeated Inner inners = 16; repeated State states = 17;
  map<int32, string> names = 18; map<string, Inner> by_name = 19;
  oneof choice { string card = 20; int64 voucher = 21; }
  optional int32 maybe = 22;
  google.protobuf.Timestamp at = 23; google.protobuf.Duration took = 24;
  google.protobuf.StringValue text = 25; google.protobuf.UInt64Value big = 26;
  google.protobuf.Struct struct = 27; google.protobuf.Any any = 28;
  All all = 29;
}
"""


def message_of(schema: str, values: Mapping[str, Any], name: str | None = None) -> tuple[ProtobufFormat, bytes]:
    """Return a format, and a value of its message."""
    found = ProtobufFormat(bundle(SchemaType.PROTOBUF, schema), name)
    return found, found._class(**values).SerializeToString()


def row_of(found: ProtobufFormat, data: bytes) -> Any:
    return pa.array([found.reading(None)(data, None)], found.arrow_type).to_pylist()[0]


def test_each_field_has_its_arrow_type() -> None:
    """As the table of `protobuf.messages` has it; a set field has its value."""
    inner = pa.struct([("x", pa.int32())])
    found, data = message_of(
        EVERYTHING,
        {
            "i": -1, "s64": -5, "u32": (1 << 32) - 1, "u64": (1 << 64) - 1, "f64": 1, "sf": -7, "f": 1.5, "d": 0.1,
            "b": True, "s": "x", "y": b"\xff", "state": 7, "inner": {"x": 1}, "empty": {}, "many": [1, 2],
            "inners": [{"x": 2}], "states": [0, 1], "names": {1: "a"}, "by_name": {"k": {"x": 3}}, "voucher": 9,
            "at": datetime(2026, 11, 1, 1, 2, 3, 4, UTC), "took": timedelta(seconds=-1.5), "text": {"value": "t"},
            "big": {"value": 5}, "struct": {"a": 1.5}, "any": {"type_url": "u", "value": b"v"}, "all": {"i": 4},
        },
    )  # fmt: skip
    expected: dict[str, tuple[pa.DataType, Any]] = {
        "i": (pa.int32(), -1),
        "s64": (pa.int64(), -5),
        "u32": (pa.int64(), (1 << 32) - 1),
        "u64": (pa.decimal128(20, 0), Decimal((1 << 64) - 1)),
        "f64": (pa.decimal128(20, 0), Decimal(1)),
        "sf": (pa.int32(), -7),
        "f": (pa.float32(), 1.5),
        "d": (pa.float64(), 0.1),
        "b": (pa.bool_(), True),
        "s": (pa.string(), "x"),
        "y": (pa.binary(), b"\xff"),
        "state": (pa.string(), "7"),
        "inner": (inner, {"x": 1}),
        "empty": (pa.bool_(), True),
        "many": (pa.list_(pa.int32()), [1, 2]),
        "inners": (pa.list_(inner), [{"x": 2}]),
        "states": (pa.list_(pa.string()), ["NEW", "PAID"]),
        "names": (pa.map_(pa.int32(), pa.string()), [(1, "a")]),
        "by_name": (pa.map_(pa.string(), inner), [("k", {"x": 3})]),
        "card": (pa.string(), None),
        "voucher": (pa.int64(), 9),
        "maybe": (pa.int32(), None),
        "at": (pa.timestamp("us", "UTC"), datetime(2026, 11, 1, 1, 2, 3, 4, UTC)),
        "took": (pa.duration("us"), timedelta(seconds=-1.5)),
        "text": (pa.string(), "t"),
        "big": (pa.decimal128(20, 0), Decimal(5)),
        "struct": (pa.string(), '{"a": 1.5}'),
        "any": (pa.struct([("type_url", pa.string()), ("value", pa.binary())]), {"type_url": "u", "value": b"v"}),
        "all": (pa.string(), '{"i": 4}'),
    }
    assert found.arrow_type == pa.struct([(name, kind) for name, (kind, _) in expected.items()])
    assert row_of(found, data) == {name: value for name, (_, value) in expected.items()}


def test_an_absent_field_is_null_if_it_tracks_presence() -> None:
    """Otherwise it is Protobuf's default; proto2's own default is not shown."""
    proto3, data = message_of('syntax="proto3"; message M { int32 a=1; optional int32 b=2; repeated int32 c=3; }', {})
    assert row_of(proto3, data) == {"a": 0, "b": None, "c": []}
    proto2, data = message_of(
        'syntax="proto2"; message M { required int32 a=1; optional int32 b=2 [default=5]; '
        "optional group G=3 { optional int32 x=1; } extensions 100 to 200; }",
        {"a": 1, "g": {"x": 2}},
    )
    assert row_of(proto2, data) == {"a": 1, "b": None, "g": {"x": 2}}


def test_a_value_of_another_version_is_read_by_field_numbers() -> None:
    """A renamed field, a new one, and one that the reader does not have."""
    schemas = Schemas()
    old = schemas.add("t-value", 'syntax="proto3"; message M { int32 a=1; string gone=2; }', SchemaType.PROTOBUF)
    new = schemas.add("t-value", 'syntax="proto3"; message M { int32 b=1; string c=3; }', SchemaType.PROTOBUF)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    rows, refused = decoded(codec, framed(old, b"\0\x08\x05\x12\x01x"), framed(new, b"\0\x08\x06\x1a\x01y"))
    assert (rows, refused) == ([{"b": 5, "c": ""}, {"b": 6, "c": "y"}], [None, None])


def test_the_message_is_that_of_the_indexes() -> None:
    """A value of another message, and indexes of none, are refused; an option chooses the reader's message."""
    schemas = Schemas()
    text = 'syntax="proto3"; package p; message A { message In { int32 x=1; } } message B { int32 y=1; }'
    number = schemas.add("t-value", text, SchemaType.PROTOBUF)
    nested = open_codec("protobuf-framed", "t", Part.VALUE, schemas, {"message": "A.In"})
    second = open_codec("protobuf-framed", "t", Part.VALUE, schemas, {"message": "p.B"})
    values = [framed(number, each + b"\x08\x05") for each in (b"\x04\0\0", b"\x02\x02", b"\0", b"\x02\x12", b"\x80")]
    rows, refused = decoded(nested, *values)
    assert rows[0] == {"x": 5}
    assert refused[1:4] == [f"message {name}; expected p.A.In" for name in ("p.B", "p.A", "(9,)")]
    assert decoded(second, values[1]) == ([{"y": 5}], [None])
    with pytest.raises(CorruptData, match=r"no message 'C'"):
        open_codec("registry", "t", Part.VALUE, schemas, {"message": "C"})


def test_references_are_imports_also_of_imports() -> None:
    """A schema in base64 imports one in text, and the other way round."""
    schemas = Schemas()
    base = 'syntax="proto3"; package b; message B { int32 x=1; }'
    middle = 'syntax="proto3"; package m; import public "dir/b.proto"; message M { b.B b=1; }'
    top = (
        'syntax="proto3"; import "m.proto"; import "google/type/date.proto"; '
        "message T { m.M m=1; b.B b=2; google.type.Date d=3; }"
    )
    schemas.add("base", base, SchemaType.PROTOBUF)
    schemas.add("middle", middle, SchemaType.PROTOBUF, [Reference("dir/b.proto", "base", 1)])
    schemas.add("t-value", top, SchemaType.PROTOBUF, [Reference("m.proto", "middle", 1)])
    kind = open_codec("registry", "t", Part.VALUE, schemas).arrow_type
    inner = pa.struct([("x", pa.int32())])
    day = pa.struct([(name, pa.int32()) for name in ("year", "month", "day")])
    assert kind == pa.struct([("m", pa.struct([("b", inner)])), ("b", inner), ("d", day)])

    files = {file.name: file for file in compile_protobuf(bundle(SchemaType.PROTOBUF, middle, {"dir/b.proto": base}))}
    in_base64 = {name: base64.b64encode(file.SerializeToString()).decode() for name, file in files.items()}
    for references, root in (
        ({"dir/b.proto": base, "m.proto": in_base64[ROOT]}, top),
        ({"dir/b.proto": in_base64["dir/b.proto"], "m.proto": middle}, top),
    ):
        assert ProtobufFormat(bundle(SchemaType.PROTOBUF, root, references)).arrow_type == kind
    whole = bundle(SchemaType.PROTOBUF, in_base64[ROOT], {"dir/b.proto": base})
    assert ProtobufFormat(whole).arrow_type == pa.struct([("b", inner)])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "no message at all"),
        ("not proto", "line 1:1: Expected top-level statement"),
        ('syntax="proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax="proto3"; import "nowhere.proto";', 'Import "nowhere.proto" was not found'),
        ('syntax="proto3"; import "ts_root.proto"; message A {}', "recursively imports itself"),
        ('syntax="proto3"; import "/etc/passwd"; message A {}', "/etc/passwd"),
        ('syntax="proto3"; import "../../etc/passwd"; message A {}', "etc/passwd"),
        ('syntax="proto3"; message A {' + "message A {" * 200 + "}" * 201, "maximum recursion limit"),
        ("\ud800", "not files"),
    ],
)
def test_a_wrong_schema_is_an_error_of_one_line(schema: str, reason: str) -> None:
    """It names the schema, and what protoc reports."""
    with pytest.raises(CorruptData) as error:
        ProtobufFormat(bundle(SchemaType.PROTOBUF, schema))
    assert reason in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["../x.proto", "--python_out=x", "@x", "/etc/x.proto", "a\\b.proto", "a//b.proto", 'a".proto', "x" * 600]
)
def test_a_reference_with_an_odd_name_is_rejected(name: str) -> None:
    """A name becomes the path of a file."""
    with pytest.raises(CorruptData, match="not the name of an import"):
        compile_protobuf(bundle(SchemaType.PROTOBUF, 'syntax="proto3";', {name: 'syntax="proto3";'}))


def test_imports_that_are_no_files_are_rejected() -> None:
    """One import is the folder of another."""
    with pytest.raises(CorruptData, match="not files"):
        compile_protobuf(bundle(SchemaType.PROTOBUF, 'syntax="proto3";', {"a": "", "a/b.proto": ""}))


def test_hostile_descriptors_in_base64_are_rejected() -> None:
    """A cycle of imports, an import that is missing, and a type that is not declared."""

    def text(**fields: Any) -> str:
        return base64.b64encode(FileDescriptorProto(**fields).SerializeToString()).decode()

    with pytest.raises(CorruptData, match="imports itself"):
        compile_protobuf(bundle(SchemaType.PROTOBUF, text(dependency=["a"]), {"a": text(dependency=["a"])}))
    with pytest.raises(CorruptData, match="was not found"):
        compile_protobuf(bundle(SchemaType.PROTOBUF, text(dependency=["nowhere.proto"])))
    field = {"name": "x", "number": 1, "label": 1, "type": 11, "type_name": ".Nowhere"}
    broken = bundle(SchemaType.PROTOBUF, text(message_type=[{"name": "M", "field": [field]}]))
    with pytest.raises(CorruptData, match="not a schema of Protobuf"):
        _pool_of(compile_protobuf(broken), broken)


def test_a_bomb_of_messages_is_rejected() -> None:
    """Twelve messages, each with ten of the next one, are a million columns."""
    text = 'syntax="proto3";' + "".join(
        f"message M{level} {{ " + " ".join(f"M{level + 1} f{n}={n};" for n in range(1, 11)) + " }"
        for level in range(12)
    )
    with pytest.raises(CorruptData, match="more than 10000 columns"):
        ProtobufFormat(bundle(SchemaType.PROTOBUF, f"{text} message M12 {{ int32 x=1; }}"))


def test_a_bomb_of_recursive_messages_is_rejected() -> None:
    """The last one has the first one inside, which is a column too."""
    levels = "".join(f"message M{n} {{ M{n + 1} a=1; M{n + 1} b=2; }}" for n in range(16))
    with pytest.raises(CorruptData, match="more than 10000 columns"):
        ProtobufFormat(bundle(SchemaType.PROTOBUF, f'syntax="proto3"; {levels} message M16 {{ M0 a=1; }}'))


@pytest.mark.parametrize(
    ("kind", "seconds", "nanos", "row"),
    [
        ("Timestamp", -1, 999_999_000, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("Timestamp", 0, 1_000_000_000, None),
        ("Timestamp", 0, -1, None),
        ("Timestamp", 1 << 62, 0, None),
        ("Timestamp", 9_223_372_036_854, 775_807_000, None),
        ("Duration", -1, -1_000, timedelta(seconds=-1, microseconds=-1)),
        ("Duration", 1, -1, None),
        ("Duration", 0, 1_000_000_000, None),
        ("Duration", -(1 << 62), 0, None),
    ],
)
def test_an_invalid_time_is_rejected(kind: str, seconds: int, nanos: int, row: Any) -> None:
    """As Protobuf defines it, and within 64 bits of microseconds."""
    text = (
        f'syntax="proto3"; import "google/protobuf/{kind.lower()}.proto"; message M {{ google.protobuf.{kind} t=1; }}'
    )
    found, data = message_of(text, {"t": {"seconds": seconds, "nanos": nanos}})
    if row is None:
        with pytest.raises(ValueError, match=f"{seconds} seconds and {nanos} nanoseconds are not a {kind}"):
            row_of(found, data)
    else:
        assert row_of(found, data) == {"t": row}


@pytest.mark.parametrize(
    ("kind", "nanos", "row"),
    [
        ("Timestamp", 123_456_789, datetime(1970, 1, 1, 0, 0, 0, 123_456, UTC)),
        ("Duration", -1_999, timedelta(microseconds=-1)),
        ("Duration", -999, timedelta()),
    ],
)
def test_a_part_of_a_microsecond_is_refused_unless_an_option_cuts_it(kind: str, nanos: int, row: Any) -> None:
    """A column has microseconds; with `nanoseconds=cut` the rest does not matter."""
    text = (
        f'syntax="proto3"; import "google/protobuf/{kind.lower()}.proto"; message M {{ google.protobuf.{kind} t=1; }}'
    )
    found, data = message_of(text, {"t": {"nanos": nanos}})
    with pytest.raises(ValueError, match=f"{nanos} nanoseconds have a part of a microsecond; nanoseconds=cut cuts it"):
        row_of(found, data)
    assert row_of(ProtobufFormat(bundle(SchemaType.PROTOBUF, text), cuts=True), data) == {"t": row}


def test_hostile_bytes_are_refused() -> None:
    """Cut off, nested too deeply, and no UTF-8; a field named as a method of the library."""
    found, _ = message_of('syntax="proto3"; message M { M m=1; string s=2; }', {})
    nested = b""
    for _ in range(300):
        size = len(nested)
        nested = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + nested
    for data in (b"\x0a\xff", nested, b"\x12\x01\xff", b"\xff" * 20):
        with pytest.raises(ValueError, match="not a message M"):
            found.reading(None)(data, None)
    odd, data = message_of('syntax="proto3"; message M { string HasField=1; optional int32 x=2; }', {"HasField": "x"})
    with pytest.raises(ValueError, match="not a message M"):
        odd.reading(None)(data, None)


def test_json_of_a_recursive_message_keeps_the_names_of_the_schema() -> None:
    """As columns do."""
    found, data = message_of('syntax="proto3"; message M { M in_ner=1; int32 a_b=2; }', {"in_ner": {"a_b": 3}})
    assert json.loads(row_of(found, data)["in_ner"]) == {"a_b": 3}


def test_an_own_type_with_a_well_known_name_is_rejected_or_refused() -> None:
    """It has not the fields of the well-known one."""
    text = 'syntax="proto3"; package google.protobuf; message M { StringValue s=1; } message StringValue { int32 x=1; }'
    with pytest.raises(CorruptData, match="value"):
        ProtobufFormat(bundle(SchemaType.PROTOBUF, text))
    text = 'syntax="proto3"; package google.protobuf; message M { Timestamp t=1; } message Timestamp { int32 x=1; }'
    found, data = message_of(text, {"t": {"x": 1}})
    with pytest.raises(ValueError, match="not a message"):
        found.reading(None)(data, None)
