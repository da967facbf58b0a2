"""Values that a codec decodes become columns; what it refuses is refused."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import fastavro

from tests.tables.parsers.made_records import parsed
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.opening import open_codec
from ts_tables.parsers.decoded import DecodedParser, SchemaReading, columns_of
from ts_tables.parsers.inference import FoundColumn

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


def made_parser(*codecs: Codec) -> DecodedParser:
    """Return a parser of codecs, the newest last."""
    readings = [SchemaReading(codec) for codec in reversed(codecs)]
    columns: list[FoundColumn] = []
    for reading in reversed(readings):
        columns = columns_of(reading, columns, ())
    return DecodedParser(readings, columns)


def test_the_fields_of_a_struct_are_columns(tmp_path: Path) -> None:
    """A tombstone is a row of nulls."""
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    parser = made_parser(open_codec("avro", "orders", Part.VALUE, None, {"schema.file": str(file)}))
    rows, refused = parsed(parser, [encoded(id=1, note="x"), None, b"\xff", encoded(id=2, note=None)])
    assert rows == [(0, {"id": 1, "note": "x"}), (1, {"id": None, "note": None}), (3, {"id": 2, "note": None})]
    assert list(refused) == [2]


def test_a_value_that_is_no_struct_is_one_column() -> None:
    """Its name is `value`."""
    rows, refused = parsed(made_parser(open_codec("long", "numbers", Part.VALUE)), [b"\0" * 7 + b"\5", b"x"])
    assert rows == [(0, {"value": 5})]
    assert list(refused) == [1]


def made_codec(directory: Path, *fields: Mapping[str, object]) -> Codec:
    """Return a codec of Avro whose record has these fields."""
    file = directory / f"{len([*directory.iterdir()])}.avsc"
    file.write_text(json.dumps({**SCHEMA, "fields": fields}))
    return open_codec("avro", "orders", Part.VALUE, None, {"schema.file": str(file)})


def test_columns_of_former_schemas_stay(tmp_path: Path) -> None:
    """A new field is a further column, and one of another type too; all schemas refuse what is refused."""
    one = {"name": "id", "type": "long"}
    first = made_codec(tmp_path, one, {"name": "note", "type": ["null", "string"], "default": None})
    second = made_codec(tmp_path, one, {"name": "note", "type": ["null", "long"], "default": None})
    third = made_codec(tmp_path, one)
    parser = made_parser(first, second, third)
    assert [(each.name, each.kind) for each in parser.found] == [
        ("id", "long"),
        ("note", "string"),
        ("note_long", "long"),
    ]
    assert len(parser.readings) == 3
    assert len(made_parser(first, third, second, first).readings) == 2  # the third has no column of its own
    rows, refused = parsed(parser, [b"\2", b"", encoded(id=2, note="x"), encoded(id=3, note=None)])
    assert rows == [
        (0, {"id": 1, "note": None, "note_long": None}),
        (2, {"id": 2, "note": "x", "note_long": None}),
        (3, {"id": 3, "note": None, "note_long": None}),
    ]
    assert list(refused) == [1]


def test_a_time_of_milliseconds_has_microseconds_in_the_table(tmp_path: Path) -> None:
    """Iceberg has no other times."""
    codec = made_codec(tmp_path, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}})
    assert str(made_parser(codec).columns.field("at").type) == "timestamp[us, tz=UTC]"
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, 5)
    rows, _ = parsed(made_parser(codec), [out.getvalue()])
    assert rows == [(0, {"at": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)})]
