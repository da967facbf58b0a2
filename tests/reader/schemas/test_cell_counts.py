"""Values that are larger than their bytes: refused before they need the memory, or decoded a few at once."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.reader.schemas.sources import Schemas, decoded, framed
from ts_common.errors import BatchTooLarge, CorruptData
from ts_reader.schemas import rows as rows_module
from ts_reader.schemas.contract import Part
from ts_reader.schemas.limits import CELLS_AT_ONCE, MAX_CELLS
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.rows import ColumnBuilder
from ts_reader.schemas.schema_source import SchemaType

COLUMNS = 1_000
MANY = MAX_CELLS // COLUMNS + 1
FEW = MAX_CELLS // COLUMNS // 100
NAMES = [f"f{n}" for n in range(COLUMNS)]
WIDE_JSON = {"type": "object", "properties": {name: {"type": "integer"} for name in NAMES}}
SCALARS = " ".join(f"int32 f{n} = {n + 10};" for n in range(COLUMNS))


def avro(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind, **more} for field, kind in fields]}


def long(number: int) -> bytes:
    """Return a positive number in Avro's encoding."""
    number <<= 1
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def array(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema}


OLD_ITEM = avro("I", ("x", "boolean"))
NEW_ITEM = {**OLD_ITEM, "fields": [*OLD_ITEM["fields"], *avro("", *((n, ["null", "int"]) for n in NAMES))["fields"]]}
for each in NEW_ITEM["fields"][1:]:
    each["default"] = None
ZEROS = {**OLD_ITEM, "fields": [*OLD_ITEM["fields"], *avro("", *((n, "int") for n in NAMES), default=0)["fields"]]}
NULLS = avro("I", ("x", "boolean"), *((name, "null") for name in NAMES))
WIDE = avro("W", *((name, "int") for name in NAMES))
FIXED = {"type": "fixed", "name": "F", "size": 8 * COLUMNS}
RECURSIVE = f'syntax="proto3"; message T {{ repeated T i = 1; {SCALARS} }}'
INSIDE = f'syntax="proto3"; message T {{ %s i = 1; }} message I {{ {SCALARS} }}'
AVRO, JSON, PROTOBUF = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF


def texts(item: str) -> Any:
    return lambda count: f"[{','.join([item] * count)}]".encode()


def block(item: bytes) -> Any:
    return lambda count: long(count) + item * count + b"\0"


def entries(count: int) -> bytes:
    """Return a message of a map of empty messages."""
    return b"\0" + b"".join(b"\x0a\x05\x08" + bytes([n & 127 | 128, n >> 7]) + b"\x12\0" for n in range(count))


@pytest.mark.parametrize(
    ("kind", "writer", "reader", "payload"),
    [
        (JSON, array(WIDE_JSON), None, texts("{}")),
        (JSON, array(WIDE_JSON), None, texts("null")),
        (JSON, array({"type": "object", "properties": {"a": array(WIDE_JSON)}}), None, texts('{"a":[{}]}')),
        (
            JSON,
            {"type": "object", "additionalProperties": WIDE_JSON},
            None,
            lambda count: json.dumps({str(n): {} for n in range(count)}).encode(),
        ),
        (PROTOBUF, INSIDE.replace("%s", "repeated I"), None, lambda count: b"\0" + b"\x0a\0" * count),
        (
            PROTOBUF,
            INSIDE.replace("%s", "map<int32, I>"),
            None,
            entries,
        ),
        (PROTOBUF, RECURSIVE, None, lambda count: b"\0" + b"\x0a\0" * count),
        (AVRO, array(OLD_ITEM), array(NEW_ITEM), block(b"\1")),
        (AVRO, array(OLD_ITEM), array(ZEROS), block(b"\1")),
        pytest.param(AVRO, array(NULLS), None, block(b"\1"), marks=pytest.mark.full),
        (AVRO, array(NULLS), array(OLD_ITEM), block(b"\1")),
        (AVRO, array(["null", WIDE]), None, block(b"\0")),
        (AVRO, array(["null", FIXED]), None, block(b"\0")),
        (
            AVRO,
            avro("N", ("next", ["null", "N"]), ("all", array(NULLS))),
            None,
            lambda count: b"\0" + long(count) + b"\1" * count + b"\0",
        ),
    ],
)  # fmt: skip
def test_items_that_are_wide_refuse_their_value(kind: SchemaType, writer: Any, reader: Any, payload: Any) -> None:
    """A few bytes for each; a value of fewer items is read, and so are the rows around."""
    schemas = Schemas()
    number = schemas.add("t-value", writer, kind)
    if reader is not None:
        schemas.add("t-value", reader, kind)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    result = codec.decode(pa.array([framed(number, payload(each)) for each in (FEW, MANY, FEW)], pa.binary()))
    reasons = result.refused.to_pylist()
    assert (reasons[0], reasons[2]) == (None, None)
    assert any(limit in (reasons[1] or "") for limit in (f"more than {MAX_CELLS} cells", "defaults of the schema"))
    assert result.column.is_valid().to_pylist() == [True, False, True]
    assert result.column.slice(0, 1).equals(result.column.slice(2, 1))


def test_null_defaults_in_the_json_of_a_recursive_type_count() -> None:
    """Each inner value has the names of all of them."""
    fields = [{"name": "all", "type": array("N")}]
    news = [{"name": name * 20, "type": ["null", "int"], "default": None} for name in NAMES]
    schemas = Schemas()
    number = schemas.add("t-value", {"type": "record", "name": "N", "fields": fields})
    schemas.add("t-value", {"type": "record", "name": "N", "fields": fields + news})
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    rows, refused = decoded(codec, *(framed(number, long(count) + b"\0" * count + b"\0") for count in (600, 2)))
    assert "defaults of the schema" in (refused[0] or "")
    assert json.loads(rows[1]["all"][0])["f1" * 20] is None


def test_wire_data_that_is_no_message_is_refused() -> None:
    """Also where its cells are counted first: groups without an end, sizes beyond the end, and many levels."""
    schemas = Schemas()
    number = schemas.add("t-value", INSIDE.replace("%s", "repeated I"), PROTOBUF)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    filler = b"\x18\1" * (2 * MANY)
    ends = [b"\x13\x14", b"", b"\x13", b"\x14", b"\x0a\x05", b"\xff" * 11, b"\x13" * 200, b"\x0f", b"\x0a", b"\x1d\0"]
    _, refused = decoded(codec, *(framed(number, b"\0" + filler + end) for end in ends))
    assert refused[:2] == [None, None]
    assert all("not a message T" in (reason or "") for reason in refused[2:])


def test_extensions_are_counted() -> None:
    """The library parses those that the schema declares."""
    schemas = Schemas()
    scalars = SCALARS.replace("int32", "optional int32")
    text = f'syntax="proto2"; message T {{ extensions 1; }} message I {{ {scalars} }} extend T {{ repeated I i = 1; }}'
    number = schemas.add("t-value", text, PROTOBUF)
    codec = open_codec("registry", "t", Part.VALUE, schemas)
    rows, refused = decoded(codec, *(framed(number, b"\0" + b"\x0a\0" * count) for count in (FEW, MANY)))
    assert (rows, refused[0]) == ([True, None], None)
    assert "cells" in (refused[1] or "")


def test_a_row_that_is_too_wide_is_an_error_of_the_schema() -> None:
    """Even a null of it needs the memory."""
    schemas = Schemas()
    fixed = [{"type": "fixed", "name": f"F{n}", "size": 1 << 20} for n in range(40)]
    schemas.add("t-value", avro("R", *((f"f{n}", ["null", kind]) for n, kind in enumerate(fixed))))
    with pytest.raises(CorruptData, match="each row has"):
        open_codec("registry", "t", Part.VALUE, schemas)


def test_wide_rows_become_arrow_a_few_at_once() -> None:
    """As many as have the cells, even if they are null."""
    builder = ColumnBuilder(pa.struct([(name, pa.int64()) for name in NAMES]))
    most = 0
    for _ in range(2 * CELLS_AT_ONCE // COLUMNS):
        builder.add(None)
        most = max(most, len(builder._values))
    assert 0 < most <= CELLS_AT_ONCE // COLUMNS
    assert len(builder.finish().column) == 2 * CELLS_AT_ONCE // COLUMNS


def test_a_column_of_too_many_cells_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is within its limit; all together are not."""
    monkeypatch.setattr(rows_module, "MAX_COLUMN_CELLS", 3 * CELLS_AT_ONCE)
    builder = ColumnBuilder(pa.list_(pa.struct([(name, pa.int64()) for name in NAMES])))
    value = [None] * (CELLS_AT_ONCE // COLUMNS + 1)
    for _ in range(2):
        builder.add(value)
    with pytest.raises(BatchTooLarge, match="3 rows decode to more than 3145728 cells"):
        builder.add(value)
