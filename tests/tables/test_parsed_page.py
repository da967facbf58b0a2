"""docs/parsed-tables.md: its tables are made of a small archive, and its lists are complete."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ruamel.yaml import YAML

from tests.common.log_format.build import batch, record
from tests.docs.commands import CHECKOUT, blocks
from tests.made_archive import CLUSTER, MadeArchive
from ts_reader.schemas.choice import NAMES
from ts_tables import Tables
from ts_tables.definition.parser_definition import ColumnDefinition
from ts_tables.files.parsed_columns import OWN_NAMES
from ts_tables.files.raw_columns import RAW_SCHEMA, REFUSED_SCHEMA

PAGE = CHECKOUT / "docs/parsed-tables.md"
EVENTS = [
    {
        "id": 1,
        "type": "view",
        "meta": {"time": "2026-11-25T12:00:00Z"},
        "amount": 1.5,
        "tags": ["a"],
        "payload": {"b": 1},
    },
    {"id": 2, "type": "click"},
    {"type": "view"},
]


def tables_of(
    directory: Path,
    topic: str,
    values: Sequence[bytes | None],
    definition: dict[str, Any],
    keys: Sequence[bytes] = (),
) -> Tables:
    """Return a table with a definition of the page over an archive of these values; of plain files, if it can be."""
    archive = MadeArchive(directory / "store")
    found = keys or [b"k"] * len(values)
    records = [record(at, found[at], value, timestamp_delta=at) for at, value in enumerate(values)]
    archive.put_segment(topic, 0, batch(0, records, max_timestamp=len(values) - 1))
    archive.commit(topic, len(values), last_stable_offset=len(values))
    place = {"topics": topic, "format": "parquet", "location": f"file://{directory}/files"}
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}
    is_iceberg = definition.get("mode") == "latest"
    content = {
        "archive": {"url": archive.location, "cluster": CLUSTER},
        "catalog": catalog if is_iceberg else {},
        "tables": {"lake.events": {**definition, **({} if is_iceberg else place)}},
    }
    return Tables(content, engine=lambda tasks: [task() for task in tasks])


def rows_of(directory: Path, columns: str, name: str = "files") -> list[tuple[Any, ...]]:
    """Return rows by offset."""
    found = duckdb.sql(f"select {columns} from read_parquet('{directory}/{name}/**/*.parquet') order by _offset")
    return [] if found is None else found.fetchall()


def test_the_first_table_has_the_columns_of_the_page(tmp_path: Path) -> None:
    """One event lacks its id."""
    first, *_ = blocks(PAGE, language="yaml")
    definition = YAML(typ="safe").load(first.text)["tables"]["lake.events"]
    tables = tables_of(tmp_path, "events", [json.dumps(event).encode() for event in EVENTS], definition)
    tables.create("lake.events")
    summary = tables.run("lake.events")
    assert (summary.records, summary.refused) == (2, 1)
    assert tables.verify("lake.events").differences == ()
    found = rows_of(tmp_path, "id, type, amount::text, tags, rest, epoch(event_time)")
    assert found == [(1, "view", "1.50", ["a"], '{"b":1}', 1795608000.0), (2, "click", None, None, None, None)]
    assert rows_of(tmp_path, "_offset, _reason", "files_quarantine") == [(2, "id: it is missing")]


def test_the_class_of_the_page_is_a_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the definition of the page."""
    (code,) = blocks(PAGE, language="python")
    (tmp_path / "lengths.py").write_text(code.text)
    monkeypatch.syspath_prepend(tmp_path)
    *_, last = blocks(PAGE, language="yaml")
    tables = tables_of(tmp_path, "words", [b"one", b"", b"three"], YAML(typ="safe").load(last.text))
    tables.create("lake.events")
    tables.run("lake.events")
    assert rows_of(tmp_path, "_offset, size") == [(0, 3), (2, 5)]
    assert rows_of(tmp_path, "_offset, _reason", "files_quarantine") == [(1, "it is empty")]


def test_the_table_of_thrift_is_that_of_the_page(tmp_path: Path) -> None:
    """With an IDL at another place; the bytes are those of the compact protocol."""
    _, second, *_ = blocks(PAGE, language="yaml")
    (definition,) = YAML(typ="safe").load(second.text)["tables"].values()
    idl = tmp_path / Path(definition["parser"]["options"]["idl"]).name
    idl.write_text("enum Kind { VIEW = 1 }\nstruct Event { 1: required i64 id; 2: optional Kind kind = Kind.VIEW }")
    definition["parser"]["options"]["idl"] = str(idl)
    tables = tables_of(tmp_path, "events", [b"\x16\x0e\0", b"\x16\x01\x15\x0a\0", b"\x15\x0e\0"], definition)
    tables.create("lake.events")
    tables.run("lake.events")
    assert rows_of(tmp_path, "id, kind") == [(7, "VIEW"), (-1, "5")]
    refused = [(2, "id: its bytes are of type i32; the IDL has i64")]
    assert rows_of(tmp_path, "_offset, _reason", "files_quarantine") == refused


def test_the_query_of_changes_returns_the_newest_of_each_key(tmp_path: Path) -> None:
    """Without keys that were deleted."""
    archive_values = [b'{"a": 1}', b'{"a": 2}', None]
    definition = {"parser": {"type": "json", "columns": {"a": "long"}}, "mode": "changes", "key": "utf8"}
    tables = tables_of(tmp_path, "customers", archive_values, definition, [b"x", b"y", b"x"])
    tables.create("lake.events")
    tables.run("lake.events")
    (query,) = blocks(PAGE, language="sql")
    customers = f"read_parquet('{tmp_path}/files/**/*.parquet')"
    found = duckdb.sql(query.text.strip().rstrip(";").replace("customers", customers))
    assert found is not None
    assert [dict(zip(found.columns, row, strict=True))["_key"] for row in found.fetchall()] == ["y"]


def test_the_table_of_newest_records_is_that_of_the_page(tmp_path: Path) -> None:
    """One customer moved, and one was deleted."""
    _, _, third, *_ = blocks(PAGE, language="yaml")
    (definition,) = YAML(typ="safe").load(third.text)["tables"].values()
    values = [
        b'{"name": "A", "city": "Oslo"}',
        b'{"name": "B", "city": "Rome"}',
        b'{"name": "A", "city": "Bonn"}',
        None,
    ]
    tables = tables_of(tmp_path, "customers", values, definition, [b"a", b"b", b"a", b"b"])
    tables.create("lake.events")
    tables.run("lake.events")
    assert tables.verify("lake.events").differences == ()
    found = duckdb.sql(f"select _key, name, city from read_parquet('{tmp_path}/warehouse/**/*.parquet')")
    assert found is not None
    assert found.fetchall() == [("a", "A", "Bonn")]


def test_the_page_names_every_column_and_key() -> None:
    """Of both tables and of a column's definition."""
    text = PAGE.read_text()
    own = [*OWN_NAMES, *(name for name in REFUSED_SCHEMA.names if name not in RAW_SCHEMA.names)]
    keys = list(ColumnDefinition.model_fields)
    for name in (*own, *keys):
        assert re.search(rf"[|,] `{name}`[ ,]", text), name
    assert {"registry", "avro", "protobuf", "json-schema"} < {*NAMES}
