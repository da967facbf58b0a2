"""Scans whose keys and values a codec decodes."""

import io
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars
import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER
from tests.reader.archives import ScannedArchive
from tests.reader.schemas.sources import Schemas, archived, framed, schema_record
from ts_common.errors import ConfigurationError, CorruptData
from ts_reader import Archive
from ts_reader.execution import run

ORDER = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "user", "type": "string"}]}"""
OLD_ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}, {"name": "id", "type": "int"}]}'
)
ORDER_TYPE = pa.struct([("id", pa.int64()), ("user", pa.string())])
COUNT = 60


def avro(schema: str, value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(schema)), value)
    return buffer.getvalue()


def order(number: int) -> dict[str, Any]:
    return {"id": number, "user": f"u{number % 3}"}


def value_of(number: int) -> bytes:
    """Return an order in the frame of the schema that was the newest one at the time."""
    schema_id, schema = (1, OLD_ORDER) if number < COUNT // 2 else (2, ORDER)
    return framed(schema_id, avro(schema, order(number)))


def fill(archive: ScannedArchive, *, poison: bool = False) -> None:
    """Put orders of two schemas into two partitions, and the registry's topic."""
    for partition in range(2):
        records = [record(at, b"%d" % at, value_of(at)) for at in range(COUNT)]
        if poison:
            records[7] = record(7, b"7", b"no frame")
        archive.put_segment("orders", 0, batch(0, records), partition=partition)
        archive.commit("orders", COUNT, partition=partition)
    archived(
        archive,
        [schema_record("orders-value", 1, 1, OLD_ORDER), schema_record("orders-value", 2, 2, ORDER)],
    )


@pytest.mark.parametrize("engine", ["here", "workers", "the bytes alone in workers"])
def test_values_of_all_schemas_have_the_type_of_the_newest(
    archive: ScannedArchive, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archived topic of the registry resolves both ids, wherever the values are decoded."""
    fill(archive)
    workers = 1
    if engine != "here":
        workers = 2
        monkeypatch.setattr(run, "PROCESSES_FROM_BYTES", 0)
    if engine == "the bytes alone in workers":
        monkeypatch.setattr("ts_reader.execution.decoded_columns._BUILT_IN", "nothing.")
    opened = Archive(archive.location, CLUSTER, registry="topic:_schemas", workers=workers)
    scan = pickle.loads(pickle.dumps(opened)).scan("orders", value="registry", key="utf8")
    assert scan.schema.field("value").type == ORDER_TYPE
    table = pa.table(scan)
    for partition in range(2):
        rows = [row for row in table.to_pylist() if row["partition"] == partition]
        assert [row["value"] for row in rows] == [order(at) for at in range(COUNT)]
        assert [row["key"] for row in rows] == [str(at) for at in range(COUNT)]


def test_engines_filter_by_fields_of_values(archive: ScannedArchive) -> None:
    """DuckDB and polars pass the filter to the dataset, which applies it to decoded rows."""
    fill(archive)
    orders = Archive(archive.location, CLUSTER, registry="topic:_schemas", workers=1).scan("orders", value="registry")
    dataset = orders.dataset()  # noqa: F841  (DuckDB finds it by its name)
    found = duckdb.sql("select value.user, count(*) from dataset where value.id >= 30 group by 1 order by 1")
    assert found is not None
    assert found.fetchall() == [("u0", 20), ("u1", 20), ("u2", 20)]
    lazy = polars.scan_pyarrow_dataset(orders.dataset())
    assert lazy.filter(polars.col("value").struct.field("id") == 5).select("offset").collect().rows() == [(5,), (5,)]


def test_a_schema_may_be_a_file(archive: ScannedArchive, tmp_path: Path) -> None:
    """No registry is needed then."""
    (tmp_path / "order.avsc").write_text(ORDER)
    log = batch(0, [record(0, b"k", avro(ORDER, order(4)))])
    archive.put_segment("orders", 0, log)
    archive.commit("orders", 1)
    rows = archive.rows("orders", columns=["value"], value=f"avro,schema.file={tmp_path / 'order.avsc'}")
    assert rows == [{"value": order(4)}]


def test_a_value_that_does_not_decode_ends_the_scan_unless_null_is_selected(archive: ScannedArchive) -> None:
    """The error names its place and the way out; by the way out no row is lost."""
    fill(archive, poison=True)
    source = Schemas()
    source.add("orders-value", json.loads(OLD_ORDER))
    source.add("orders-value", json.loads(ORDER))
    opened = Archive(archive.location, CLUSTER, registry=source, workers=1)
    with pytest.raises(CorruptData, match=r'^orders-0, offset 7: value: not in a registry.*pass undecoded="null"$'):
        opened.scan("orders", partitions=[0], value="registry").to_table()
    scan = opened.scan("orders", partitions=[0], value="registry", undecoded="null")
    assert scan.schema.names[-1] == "value_error"
    rows = scan.to_table().to_pylist()
    assert [row["offset"] for row in rows if row["value"] is None] == [7]
    assert [row["offset"] for row in rows if row["value_error"] is not None] == [7]
    assert len(rows) == COUNT


@pytest.mark.parametrize(
    ("topic", "arguments", "message"),
    [
        ("orders", {"value": "avr"}, "value='avr': unknown codec; did you mean avro?"),
        ("orders", {"value": "avro,schema.fil"}, "'schema.fil': an option and its value are expected"),
        ("orders", {"value": 5}, "value=5: the name of a codec is expected"),
        ("orders", {"value": "avro"}, "its schema is unknown: pass registry=... to Archive, or schema.file=... here"),
        ("orders", {"value": {"clicks": "utf8"}}, "value: ['clicks'] are not topics of this scan"),
        (["orders", "clicks"], {"value": {"clicks": "utf8"}}, "value: nothing for orders"),
        (re.compile("o"), {"key": "utf8"}, "key: the codecs of a pattern are unknown; name the topics"),
        ("orders", {"undecoded": "drop"}, "undecoded='drop': accepted are error, null"),
        ("orders", {"columns": ["value_error"]}, "columns: 'value_error' is no column"),
        ("orders", {"mode": "PERMISSIVE", "corrupt_column": "key_error"}, "a name is expected that no other column"),
    ],
)
def test_u21_wrong_codecs_are_named(
    archive: ScannedArchive, topic: Any, arguments: dict[str, Any], message: str
) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigurationError) as caught:
        archive.scan(topic, **arguments)
    assert message in str(caught.value)


def test_u21_a_wrong_registry_is_named() -> None:
    """With what is expected."""
    wrong: list[Any] = ["registry:8081", 5, "topic:a/b"]
    for registry in wrong:
        with pytest.raises(ConfigurationError, match="registry"):
            Archive("file:///nowhere", CLUSTER, registry=registry)


def test_a_topic_without_a_schema_is_an_error_with_the_ways_out(archive: ScannedArchive) -> None:
    """It is found when the schema is first needed, and names the subject."""
    fill(archive)
    opened = Archive(archive.location, CLUSTER, registry="topic:_schemas", workers=1)
    with pytest.raises(ConfigurationError, match=r"does not have subject 'orders-key'; name the subject, the id or"):
        opened.scan("orders", key="registry").to_table()


def test_topics_with_different_types_are_scanned_one_by_one(archive: ScannedArchive) -> None:
    """A column has one type."""
    with pytest.raises(ConfigurationError, match="the values of the topics have different types"):
        _ = archive.scan(["a", "b"], value={"a": "utf8", "b": "int"}).schema
    assert archive.scan(["a", "b"], value={"a": "utf8", "b": "json"}).schema.field("value").type == pa.string()


def test_a_missing_package_of_codecs_is_named_with_the_way_out(
    archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's own packages are few: those of codecs are an extra."""
    monkeypatch.delitem(sys.modules, "ts_reader.schemas.opening", raising=False)
    monkeypatch.delitem(sys.modules, "ts_reader.schemas.plain", raising=False)
    monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(ConfigurationError, match=r"package orjson is not installed.*requirements/schemas.txt"):
        _ = archive.scan("orders", value="json").schema
