"""The changes of keys: tombstones and keys as columns."""

import json

from tests.tables.parsers.made_records import made_records
from ts_reader.schemas.contract import Part
from ts_reader.schemas.opening import open_codec
from ts_tables.parsers.changes import CHANGES, RecordParser
from ts_tables.parsers.contract import check
from ts_tables.parsers.decoded import SchemaReading
from ts_tables.parsers.inference import FoundColumn, Member
from ts_tables.parsers.json_values import JsonParser
from ts_tables.parsers.parser_columns import make_column

VALUES = [b'{"a": 1}', None, b"{", b'[{"a": 2}, {"a": 3}]']


def test_a_tombstone_is_a_row_with_its_key() -> None:
    """A record of several rows has its key in each."""
    parser = RecordParser(JsonParser([make_column("a", "long")]))
    found = parser.parse(made_records(VALUES, [b"k", b"l", b"m", None]))
    check(parser, found, 4)
    assert found.rows.to_pylist() == [
        {"_key": b"k", "_is_deleted": False, "a": 1},
        {"_key": b"l", "_is_deleted": True, "a": None},
        {"_key": None, "_is_deleted": False, "a": 2},
        {"_key": None, "_is_deleted": False, "a": 3},
    ]
    assert found.refused.to_pylist() == [2]


def test_a_key_that_does_not_decode_refuses_its_record() -> None:
    """A value that was refused keeps its own reason."""
    parser = RecordParser(
        JsonParser([make_column("a", "long")]), CHANGES, SchemaReading(open_codec("int", "topic", Part.KEY))
    )
    found = parser.parse(made_records(VALUES, [b"\0\0\0\1", b"x", b"y", b"\0\0\0\2"]))
    check(parser, found, 4)
    assert found.rows["_key"].to_pylist() == [1, 2, 2]
    assert found.refused.to_pylist() == [1, 2]
    assert found.reasons[0].as_py() == "_key: 1 byte; expected an integer of 4"
    assert not found.reasons[1].as_py().startswith("_key")


def test_columns_are_found_in_values_too() -> None:
    """None of them has the name of the key."""
    parser = RecordParser(JsonParser([], infers=True))
    records = made_records([json.dumps({"_key": 5}).encode(), None], [b"k", b"l"])
    found = parser.parse(records)
    check(parser, found, 2)
    assert found.unknown == (Member("_key", "long"),)
    grown = parser.grown(found.unknown, ["_offset"])
    assert grown.found == (FoundColumn("_key_long", "_key", "long"),)
    assert grown.parse(records).rows.to_pylist() == [
        {"_key": b"k", "_is_deleted": False, "_key_long": 5},
        {"_key": b"l", "_is_deleted": True, "_key_long": None},
    ]
