"""Values that a codec decodes become columns; what it refuses is refused."""

import io
import json
from pathlib import Path

import fastavro

from tests.tables.parsers.made_records import parsed
from ts_common.schemas.contract import Part
from ts_common.schemas.opening import open_codec
from ts_tables.parsers.decoded import DecodedParser

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def encoded(**fields: object) -> bytes:
    """Return a value in Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), fields)
    return out.getvalue()


def test_the_fields_of_a_struct_are_columns(tmp_path: Path) -> None:
    """A tombstone is a row of nulls."""
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    parser = DecodedParser(open_codec("avro", "orders", Part.VALUE, None, {"schema.file": str(file)}))
    rows, refused = parsed(parser, [encoded(id=1, note="x"), None, b"\xff", encoded(id=2, note=None)])
    assert rows == [(0, {"id": 1, "note": "x"}), (1, {"id": None, "note": None}), (3, {"id": 2, "note": None})]
    assert list(refused) == [2]


def test_a_value_that_is_no_struct_is_one_column() -> None:
    """Its name is `value`."""
    rows, refused = parsed(DecodedParser(open_codec("long", "numbers", Part.VALUE)), [b"\0" * 7 + b"\5", b"x"])
    assert rows == [(0, {"value": 5})]
    assert list(refused) == [1]
