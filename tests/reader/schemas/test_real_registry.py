"""A real registry and producers' own serializers: rows by the registry equal those by the archived `_schemas`."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from dev.local.registry import RegistryServer
from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.reader.schemas.sources import Record, archived, decoded, framed, schema_record
from ts_common.errors import ConfigurationError, ObjectNotFound
from ts_reader.schemas.archived import ArchivedSchemas
from ts_reader.schemas.bundle import load_bundle
from ts_reader.schemas.contract import Part
from ts_reader.schemas.opening import open_codec
from ts_reader.schemas.protobuf.compiler import compile_protobuf
from ts_reader.schemas.protobuf.format import _pool_of
from ts_reader.schemas.registry import Registry
from ts_reader.schemas.schema_source import SchemaSource
from ts_tables import Tables

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "payment", "type": ["null", "string", {"type": "record", "name": "Card", "fields": [
            {"name": "number", "type": "string"}]}], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
SMALL: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Order {
  message Line { string article = 1; uint32 count = 2; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  repeated Line lines = 2;
  State state = 3;
  google.protobuf.Timestamp at = 4;
  money.Money price = 5;
  oneof payment { string card = 6; string voucher = 7; }
  optional string note = 8;
}
message Refund { int64 id = 1; }
"""
MONEY = 'syntax = "proto3"; package money; message Money { string currency = 1; int64 cents = 2; }'
CLICK = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Click",
    "type": "object",
    "properties": {
        "page": {"type": "string"},
        "ms": {"type": "integer"},
        "place": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Start a registry."""
    directory: Path = tmp_path_factory.mktemp("registry")
    with RegistryServer(directory, directory) as registry:
        yield registry


@pytest.fixture
def client(server: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """Open a producer's client of the registry."""
    with SchemaRegistryClient({"url": server.url}) as opened:
        yield opened


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def written_by_confluent(archive: MadeArchive, registry: Registry, *topics: str) -> ArchivedSchemas:
    """Archive what Confluent's registry would have written into `_schemas`: the schemas of this registry."""
    records: list[Record] = []
    for subject in registry.subjects():
        if not any(topic in subject for topic in topics):
            continue
        newest = registry.latest(subject).version or 0
        for version in range(1, newest + 1):
            found = registry.version(subject, version)
            number = found.id
            assert number is not None
            references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in found.references]
            records.append(schema_record(subject, version, number, found.text, kind=found.kind, references=references))
    return archived(archive, records)


def rows_by(source: SchemaSource, topic: str, values: list[bytes]) -> list[dict[str, Any]]:
    codec = open_codec("registry", topic, Part.VALUE, source)
    again = pickle.loads(pickle.dumps(codec))
    rows, refused = decoded(again, *values)
    assert refused == [None] * len(values)
    assert decoded(codec, *values) == (rows, refused)
    return rows


def test_avro_of_two_versions_is_equal_from_both_sources(
    server: RegistryServer, client: SchemaRegistryClient, archive: MadeArchive
) -> None:
    """Written by Confluent's serializer, the second version with another field; the newest one is the reader's."""
    registry = Registry(server.url)
    first = AvroSerializer(client, json.dumps(ORDER))
    order = {
        "id": 7,
        "price": Decimal("12.34"),
        "at": datetime(2026, 11, 1, 12, 0, 0, 5, UTC),
        "key": str(UUID(int=1)),
        "due": date(2026, 12, 24),
        "payment": {"number": "4711"},
        "tags": {"a": 1},
    }
    values = [first(order, context("orders"))]
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "channel", "type": "string", "default": "web"}]}
    second = AvroSerializer(client, json.dumps(newer))
    values.append(second({**order, "due": None, "payment": "cash", "channel": "shop"}, context("orders")))

    rows = rows_by(registry, "orders", values)
    assert rows == rows_by(written_by_confluent(archive, registry, "orders"), "orders", values)
    assert [row["channel"] for row in rows] == ["web", "shop"]
    assert rows[0] == {
        **order,
        "payment": {"string": None, "Card": {"number": "4711"}},
        "tags": [("a", 1)],
        "channel": "web",
    }
    assert rows[1]["payment"] == {"string": "cash", "Card": None}


def test_protobuf_with_an_import_is_equal_from_both_sources(
    server: RegistryServer, client: SchemaRegistryClient, archive: MadeArchive
) -> None:
    """Written by Confluent's serializer; another message of the file is refused by its name."""
    registry = Registry(server.url)
    server.register("money.proto", MONEY, "PROTOBUF")
    reference = {"name": "money.proto", "subject": "money.proto", "version": 1}
    server.register("proto-orders-value", PROTO, "PROTOBUF", [reference])
    reader = load_bundle(registry.latest("proto-orders-value"), registry)
    pool, file = _pool_of(compile_protobuf(reader), reader)
    kinds = {name: message_factory.GetMessageClass(found) for name, found in file.message_types_by_name.items()}
    order = kinds["Order"](id=5, state=1, card="4711", lines=[{"article": "x", "count": 2}])
    order.at.FromDatetime(datetime(2026, 11, 1, tzinfo=UTC))
    order.price.currency, order.price.cents = "EUR", 199
    del pool
    values = [frame_of(server, registry, order, (0,)), frame_of(server, registry, kinds["Order"](note=""), (0,))]

    source = written_by_confluent(archive, registry, "money", "proto-orders")
    rows = rows_by(registry, "proto-orders", values)
    assert rows == rows_by(source, "proto-orders", values)
    assert rows[0] == {
        "id": 5,
        "lines": [{"article": "x", "count": 2}],
        "state": "PAID",
        "at": datetime(2026, 11, 1, tzinfo=UTC),
        "price": {"currency": "EUR", "cents": 199},
        "card": "4711",
        "voucher": None,
        "note": None,
    }
    assert (rows[1]["id"], rows[1]["note"], rows[1]["price"]) == (0, "", None)
    codec = open_codec("protobuf-framed", "proto-orders", Part.VALUE, source)
    _, refused = decoded(codec, frame_of(server, registry, kinds["Refund"](id=1), (1,)))
    assert refused == ["message shop.Refund; expected shop.Order"]


def frame_of(server: RegistryServer, registry: Registry, message: Any, indexes: tuple[int, ...]) -> bytes:
    del server
    number = registry.latest("proto-orders-value").id
    assert number is not None
    path = b"\0" if indexes == (0,) else bytes([2, *(index * 2 for index in indexes)])
    return framed(number, path + message.SerializeToString())


def test_protobuf_of_a_serializer_that_registers_its_own_schema(
    server: RegistryServer, client: SchemaRegistryClient, archive: MadeArchive
) -> None:
    """Confluent's serializer for Python registers base64 of the descriptor; a nested message has two indexes."""
    registry = Registry(server.url)
    text = 'syntax = "proto3"; message Outer { message Inner { int32 a = 1; map<string, bytes> b = 2; } } message B {}'
    server.register("nested.source", text, "PROTOBUF")
    reader = load_bundle(registry.latest("nested.source"), registry)
    pool, file = _pool_of(compile_protobuf(reader), reader)
    inner = message_factory.GetMessageClass(file.message_types_by_name["Outer"].nested_types_by_name["Inner"])
    serializer = ProtobufSerializer(inner, client, {"use.deprecated.format": False})
    values = [serializer(inner(a=3, b={"k": b"v"}), context("nested"))]
    del pool
    source = written_by_confluent(archive, registry, "nested-value")
    for each in (registry, source):
        codec = open_codec("registry", "nested", Part.VALUE, each, {"message": "Outer.Inner"})
        assert decoded(codec, *values) == ([{"a": 3, "b": [("k", b"v")]}], [None])


def test_json_schema_is_equal_from_both_sources(
    server: RegistryServer, client: SchemaRegistryClient, archive: MadeArchive
) -> None:
    """Written by Confluent's serializer."""
    registry = Registry(server.url)
    serializer = JSONSerializer(json.dumps(CLICK), client, lambda value, _: value)
    clicks = [{"page": "/a", "ms": 12, "place": {"x": 1.5, "y": 2}, "tags": ["x"]}, {"page": "/b"}]
    values = [serializer(click, context("clicks")) for click in clicks]
    rows = rows_by(registry, "clicks", values)
    assert rows == rows_by(written_by_confluent(archive, registry, "clicks"), "clicks", values)
    assert rows == [clicks[0], {"page": "/b", "ms": None, "place": None, "tags": None}]


def test_what_the_registry_does_not_have_is_an_error_of_one_line(server: RegistryServer) -> None:
    """An id, a subject, a version; a topic without a subject names the ways out."""
    registry = Registry(server.url)
    for missing in (lambda: registry.schema(4711), lambda: registry.latest("no"), lambda: registry.version("no", 3)):
        with pytest.raises(ObjectNotFound, match="does not have") as error:
            missing()  # type: ignore[no-untyped-call]
        assert len(str(error.value).splitlines()) == 1
        assert server.url in str(error.value)
    with pytest.raises(ConfigurationError, match="name the subject, the id or the file"):
        open_codec("registry", "nowhere", Part.VALUE, registry)


def test_an_unknown_id_is_a_refused_row(server: RegistryServer) -> None:
    """The other rows are read, and the id is looked up once."""
    number = server.register("ids-value", json.dumps("string"))
    codec = open_codec("avro-framed", "ids", Part.VALUE, Registry(server.url))
    assert codec.arrow_type == pa.string()
    rows, refused = decoded(codec, framed(number, b"\2a"), framed(99_999, b"\2a"), None, framed(99_999, b"\2a"))
    assert rows == ["a", None, None, None]
    assert refused[0] is refused[2] is None
    assert refused[1] == refused[3] == f"the registry {server.url} does not have schema id 99999"


def test_a_table_is_equal_from_both_sources(
    server: RegistryServer, client: SchemaRegistryClient, archive: MadeArchive, tmp_path: Path
) -> None:
    """Over two versions of a schema, with a refused record; the second run adds the column of the second version."""
    registry = Registry(server.url)
    first = AvroSerializer(client, json.dumps(SMALL))
    newer = {**SMALL, "fields": [*SMALL["fields"], {"name": "channel", "type": ["null", "string"], "default": None}]}

    def run(name: str, source: str) -> list[Any]:
        files = tmp_path / name
        content = {
            "archive": {"url": archive.location, "cluster": CLUSTER, "registry": source},
            "tables": {
                "lake.sales": {
                    "topics": "sales",
                    "parser": {"type": "registry"},
                    "format": "parquet",
                    "location": f"file://{files}",
                }
            },
        }
        tables = Tables(content, engine=lambda tasks: [task() for task in tasks])
        tables.create("lake.sales")
        tables.run("lake.sales")
        assert tables.verify("lake.sales").differences == ()
        read = "read_parquet('{}/*.parquet', union_by_name = true)"
        order = "order by _offset"
        reader = duckdb.connect()
        refused = reader.execute(
            f"select _offset, _reason from {read.format(f'{files}_quarantine')} {order}"
        ).fetchall()
        return [reader.execute(f"select * from {read.format(files)} {order}").fetchall(), refused]

    sale = {"id": 7, "at": datetime(2026, 11, 1, 12, 0, 0, 5000, UTC)}
    values = [first(sale, context("sales")), b"junk"]
    archive.put_segment("sales", 0, batch(0, [record(at, None, value) for at, value in enumerate(values)]))
    archive.commit("sales", 2, highest_base=0)
    written_by_confluent(archive, registry, "sales")
    assert run("registry", server.url) == run("archived", "topic:_schemas")
    second = AvroSerializer(client, json.dumps(newer))
    archive.put_segment("sales", 2, batch(2, [record(0, None, second({**sale, "channel": "web"}, context("sales")))]))
    archive.commit("sales", 3, highest_base=2)
    written_by_confluent(archive, registry, "sales")
    found = run("registry", server.url)
    assert found == run("archived", "topic:_schemas")
    assert [row[-1] for row in found[0]] == [None, "web"]
    assert found[0][0][-3:-1] == (7, sale["at"])
    assert [offset for offset, _ in found[1]] == [1]
