"""`tsctl find --field`: a path in values of JSON, Avro and Protobuf, and values that lack it."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.reader.schemas.test_protobuf import message_of
from tests.tsctl.running import Ended, Run

AVRO = """{"type": "record", "name": "Order", "fields": [
  {"name": "user", "type": ["null", {"type": "record", "name": "User", "fields": [
    {"name": "id", "type": "long"}, {"name": "mail", "type": ["null", "string"]}]}]},
  {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
    {"name": "sku", "type": "string"}]}}},
  {"name": "labels", "type": {"type": "map", "values": "string"}}]}"""
PROTOBUF = """
syntax = "proto3";
message Order {
  message User { int64 id = 1; optional string mail = 2; }
  enum State { NEW = 0; PAID = 1; }
  User user = 1; repeated string skus = 2; map<int32, string> labels = 3; State state = 4; double amount = 5;
}
"""


def order(user: int | None, mail: str | None = None, skus: Sequence[str] = (), **labels: str) -> dict[str, Any]:
    return {
        "user": None if user is None else {"id": user, "mail": mail},
        "items": [{"sku": sku} for sku in skus],
        "labels": labels,
    }


ORDERS = [order(42, "a@b", ["x", "y"], shop="berlin"), order(7), order(None, skus=["y"]), order(42)]


def encoded(value: dict[str, Any]) -> bytes:
    """Return a value of `AVRO`."""
    buffer = BytesIO()
    schemaless_writer(buffer, parse_schema(json.loads(AVRO)), value)
    return buffer.getvalue()


class Searched:
    """An archive of topic `t` with values, and searches in it."""

    def __init__(self, directory: Path, run: Run) -> None:
        self.archive = MadeArchive(directory / "store")
        self._run = run

    def put(self, values: Sequence[bytes | None]) -> None:
        self.archive.put_segment("t", 0, batch(0, [record(at, b"k", value) for at, value in enumerate(values)]))
        self.archive.commit("t", len(values))

    def run(self, *arguments: object) -> Ended:
        return self._run("find", "--url", self.archive.location, "--cluster", CLUSTER, "--topic", "t", *arguments)

    def find(self, field: str, *arguments: object) -> Ended:
        return self.run("--offsets", "--field", field, *arguments)

    def offsets(self, field: str, *arguments: object) -> list[int]:
        """Return the offsets that a search finds, without a word on the values."""
        ended = self.find(field, *arguments)
        assert ended.code == 0
        assert "--field" not in ended.err
        return [line["offset"] for line in ended.lines]


@pytest.fixture
def searched(tmp_path: Path, run: Run) -> Searched:
    return Searched(tmp_path, run)


def test_a_field_of_json_is_found_by_its_path(searched: Searched) -> None:
    """In lists and in lists of lists; numbers, truth and null are compared as text; a tombstone matches nothing."""
    values = [*ORDERS, {"user": {"id": "42"}, "paid": True, "items": [[{"sku": "x"}], 5]}, {"user": {"id": 42.5}}]
    searched.put([*(json.dumps(value).encode() for value in values), None])
    assert searched.offsets("user.id=42") == [0, 3, 4]
    assert searched.offsets("user.id=42.5") == [5]
    assert searched.offsets("user.mail=null") == [1, 3]
    assert searched.offsets("items.sku=x") == [0, 4]
    assert searched.offsets("labels.shop=berlin") == [0]
    assert searched.offsets("paid=true") == [4]
    assert searched.offsets("user.mail=a@b") == [0]
    assert searched.offsets("user.id=a=b") == []


def test_values_that_cannot_be_compared_are_one_message(searched: Searched) -> None:
    """An object at the path, a number before its end, no JSON. A field that some values lack is normal."""
    values = [b'{"user": {"id": 1}}', b'{"user": 5}', b"{", b"[1]", b'{"user": null}', b"{}", b'{"user": {"id": {}}}']
    searched.put(values)
    ended = searched.find("user=null")
    assert [line["offset"] for line in ended.lines] == [4]
    (message,) = (line for line in ended.err.splitlines() if "--field" in line)
    assert "2 values with an object there, whose fields need a longer path" in message
    assert "1 value with no object where the path needs one" in message
    assert "1 value not decoded, the first: " in message
    assert "without the field" not in message
    lacking = searched.find("users.id=1")
    assert lacking.lines == []
    assert "--field users.id: 5 values without the field" in lacking.err


def test_a_field_of_avro_is_found_by_a_registrys_schema(searched: Searched) -> None:
    """Through a union, a list and a map. With --registry, values are decoded by it."""
    archived(searched.archive, [schema_record("t-value", 1, 7, AVRO)])
    searched.put([*(framed(7, encoded(value)) for value in ORDERS), None, framed(8, encoded(ORDERS[0]))])
    registry = ("--registry", "topic:_schemas")
    for field, offsets in FOUND.items():
        ended = searched.find(field, *registry)
        assert [line["offset"] for line in ended.lines] == offsets
        assert "1 value not decoded, the first: " in ended.err  # of a schema that the registry does not have
    (line,) = searched.run("--field", "labels.shop=berlin", *registry).lines
    assert line["value"]["user"] == {"id": 42, "mail": "a@b"}


FOUND = {"user.id=42": [0, 3], "user.mail=null": [1, 3], "items.sku=y": [0, 2], "labels.shop=berlin": [0]}


def test_a_field_of_protobuf_is_found_by_a_schema_of_a_file(searched: Searched, tmp_path: Path) -> None:
    """Numbers of enumerations have their names, and a field that is not set its default."""
    values: list[dict[str, Any]] = [
        {"user": {"id": 42, "mail": "a@b"}, "skus": ["x", "y"], "labels": {1: "berlin"}, "state": 1},
        {"user": {"id": 7}, "amount": 0.5},
        {"skus": ["y"]},
    ]
    (tmp_path / "order.proto").write_text(PROTOBUF)
    searched.put([message_of(PROTOBUF, value)[1] for value in values])
    form = ("--value", f"protobuf,schema.file={tmp_path / 'order.proto'}")
    assert searched.offsets("user.id=42", *form) == [0]
    assert searched.offsets("user.mail=null", *form) == [1]
    assert searched.offsets("skus=y", *form) == [0, 2]
    assert searched.offsets("labels.1=berlin", *form) == [0]
    assert searched.offsets("state=PAID", *form) == [0]
    assert searched.offsets("amount=0.5", *form) == [1]


@pytest.mark.parametrize(
    ("field", "form", "message"),
    [
        ("user.idd=42", "avro", "user has no field idd by its schema; did you mean id?"),
        ("nobody=1", "avro", "a value has no field nobody by its schema; it has user, items, labels"),
        ("user=42", "avro", "user is an object; name a field of it"),
        ("items=42", "avro", "items is an object; name a field of it"),
        ("labels=a", "avro", "labels is an object; name a field of it"),
        ("user.id.x=1", "avro", "user.id is int64, and has no field x"),
        ("a=1", "utf8", "a value is string, and has no field a"),
        ("a=1", "hex", "a value is bytes, and has no field a"),
    ],
)
def test_a_field_that_the_schema_lacks_is_a_mistake(
    searched: Searched, tmp_path: Path, field: str, form: str, message: str
) -> None:
    """Known before a record is read, with the way out."""
    searched.put([encoded(ORDERS[0])])
    (tmp_path / "order.avsc").write_text(AVRO)
    schema = f",schema.file={tmp_path / 'order.avsc'}" if form == "avro" else ""
    ended = searched.find(field, "--value", form + schema)
    assert (ended.code, ended.out) == (2, "")
    assert f"--field={field}: {message}" in ended.err
