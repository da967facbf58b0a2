"""Tables whose schemas evolve in a registry: columns only grow, and no record changes its place."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.tables.test_parsed_tables import FORMATS, NAME, OF_EACH_KIND, Made, kill_run
from ts_common.errors import ConfigurationError, OperatorError
from ts_tables.claims.state import TableState
from ts_tables.definition.tables_file import parse_tables
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.opening import Opening
from ts_tables.parsers.inference import FoundColumn

ID = {"name": "id", "type": "long"}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}
PLACE = {"name": "Place", "type": "record", "fields": [{"name": "x", "type": "double"}]}
VERSIONS: list[list[dict[str, Any]]] = [
    [ID, AT, {"name": "amount", "type": "int", "default": 0}],
    [
        ID,
        AT,
        {"name": "place", "type": ["null", PLACE], "default": None},
        {"name": "amount", "type": "int", "default": 0},
    ],
    [ID, AT, {"name": "amount", "type": "double", "default": 0.0}],
]  # the second adds a field between others; the third removes that, and changes a type


def schema_of(version: int) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": VERSIONS[version - 1]}


def encoded(version: int, **fields: Any) -> bytes:
    """Return a value in Confluent's frame; the id of a version is ten times it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema_of(version)), {"at": 0, **fields})
    return framed(10 * version, out.getvalue())


class Evolving(Made):
    """A table of topic `t` by the archived `_schemas`."""

    registered = 0

    def state(self) -> TableState:
        """Return the state of the table."""
        found: TableState = Opening(parse_tables(self.content, "test"), "test").parts(NAME).target.open().state
        return found

    def register(self) -> None:
        """Archive the next version of the schema."""
        self.registered += 1
        one = schema_record("t-value", self.registered, 10 * self.registered, json.dumps(schema_of(self.registered)))
        archived(self.archive, [one], base=self.registered - 1)


@pytest.fixture(params=cases(FORMATS, quick=["iceberg"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Evolving:
    made = Evolving(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param)
    made.registry = "topic:_schemas"
    made.more = {"parser": {"type": "registry"}, "partition_by": "day(at)"}
    made.register()
    return made


REGION = {"name": "region", "type": "string", "default": ""}


def put_key(made: Evolving, offset: int, version: int, value: bytes, **fields: Any) -> None:
    """Archive a record whose key has this version of the schema of keys, which the second version gives a field."""
    out = io.BytesIO()
    schema = {"type": "record", "name": "Key", "fields": [ID, REGION][:version]}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), fields)
    if made.registered < version + 1:
        archived(made.archive, [schema_record("t-key", version, 100 + version, json.dumps(schema))], base=version)
        made.registered = version + 1
    made.put_values(offset, [value], key=framed(100 + version, out.getvalue()))


@pytest.mark.parametrize(
    ("parser", "value"),
    [({"type": "json", "columns": {"id": "long"}}, b'{"id": 1}'), ({"type": "registry"}, encoded(1, id=1, amount=1))],
    ids=["json", "registry"],
)
def test_keys_keep_the_schema_of_the_table(made: Evolving, parser: dict[str, Any], value: bytes) -> None:
    """Keys of a newer schema are read with it; a table that is created later has that one."""
    made.more = {"parser": parser, "mode": "changes", "key": "registry"}
    put_key(made, 0, 1, value, id=7)
    made.tables.create(NAME)
    made.tables.run(NAME)
    put_key(made, 1, 2, value, id=8, region="eu")
    made.put_values(2, [b"{"], key=b"junk")
    assert not made.tables.create(NAME)
    made.tables.run(NAME)
    assert rows_of(made, "_key", "id") == [({"id": 7}, 1), ({"id": 8}, 1)]
    assert made.tables.verify(NAME).differences == ()
    assert made.tables.replay(NAME).left == 1
    assert made.state().key_schema == "subject=t-key,version=1"
    made.tables.drop(NAME, purge=True)
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert rows_of(made, "_key") == [({"id": 7, "region": ""},), ({"id": 8, "region": "eu"},)]


def test_members_whose_names_differ_in_case_are_refused(tmp_path: Path) -> None:
    """Of a schema too: engines of SQL would read one of both, or none."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet")
    members = [{"name": name, "type": "long"} for name in ("x", "y", "X")]
    inner = {"type": "array", "items": {"type": "record", "name": "Inner", "fields": members}}
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": [ID, {"name": "inner", "type": inner}]}))
    made.more["parser"] = {"type": "avro", "options": {"schema.file": str(file)}}
    made.put_values(0, [b"{"])
    with pytest.raises(ConfigurationError, match="column inner: its members x and X have one name, as engines of SQL"):
        made.tables.create(NAME)


def rows_of(made: Made, *columns: str) -> list[tuple[Any, ...]]:
    return made.select(f"select {', '.join(columns)} from {{}} order by _offset")


@OF_EACH_KIND
def test_columns_follow_the_schemas_of_a_registry(made: Evolving) -> None:
    """A new field has a column; one that is removed keeps it; one of another type has a second one."""
    made.put_values(0, [encoded(1, id=1, amount=10), b"junk"])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.register()
    made.put_values(2, [encoded(1, id=2, amount=20), encoded(2, id=3, amount=30, place={"x": 1.5})])
    made.tables.run(NAME)
    made.register()
    made.put_values(4, [encoded(2, id=4, amount=40, place={"x": 2.5}), encoded(3, id=5, amount=5.5, at=86_400_000)])
    made.tables.run(NAME)
    assert rows_of(made, "id", "amount", "place", "amount_double") == [
        (1, 10, None, None),
        (2, 20, None, None),
        (3, 30, {"x": 1.5}, None),
        (4, 40, {"x": 2.5}, 40.0),
        (5, None, None, 5.5),
    ]
    assert made.select("select _offset from {}", "_quarantine") == [(1,)]
    if made.format != "json":
        assert rows_of(made, '"at"')[-1] == (datetime(1970, 1, 2, tzinfo=UTC),)
    assert made.tables.verify(NAME).differences == ()


@OF_EACH_KIND
def test_a_wider_type_widens_the_column(made: Evolving) -> None:
    """In the commit of the first rows; a value of the former schema, and a schema that is narrow again, fit too."""
    narrow: list[dict[str, Any]] = [ID, AT, {"name": "amount", "type": "int"}, {"name": "ratio", "type": "float"}]
    wide: list[dict[str, Any]] = [ID, AT, {"name": "amount", "type": "long"}, {"name": "ratio", "type": "double"}]
    own = [*VERSIONS]
    VERSIONS[:] = [narrow, wide, narrow]
    try:
        made.registered = 0
        archived(made.archive, [], base=0)
        made.register()
        made.put_values(0, [encoded(1, id=1, amount=10, ratio=0.1), encoded(1, id=2, amount=20, ratio=0.5)])
        made.tables.create(NAME)
        made.tables.run(NAME)
        made.register()
        more = [encoded(1, id=3, amount=30, ratio=0.1), encoded(2, id=4, amount=1 << 40, ratio=0.1)]
        made.put_values(1, more, epoch=2)
        made.more["on_taken_back"] = "delete"
        made.tables.run(NAME)
        made.register()
        made.put_values(3, [encoded(3, id=5, amount=50, ratio=1.5)], epoch=2, begins=1)
        made.tables.run(NAME)
        single = 0.10000000149011612
        assert rows_of(made, "id", "amount", "ratio") == [
            (1, 10, single),
            (3, 30, single),
            (4, 1 << 40, 0.1),
            (5, 50, 1.5),
        ]
        assert made.state().columns[2:] == (
            FoundColumn("amount", "amount", "long"),
            FoundColumn("ratio", "ratio", "double"),
        )
        assert made.tables.verify(NAME, deep=True).differences == ()
        if made.format == "iceberg":
            scanned = open_catalog(CATALOG, made.catalog).load_table(NAME).scan().to_arrow().sort_by("_offset")
            assert scanned["amount"].to_pylist() == [10, 30, 1 << 40, 50]
            assert scanned["ratio"].to_pylist() == [single, single, 0.1, 1.5]
    finally:
        VERSIONS[:] = own


def test_rows_that_an_election_removed_are_deleted_from_files_without_the_new_columns(made: Evolving) -> None:
    """Their files are written again with them."""
    made.put_values(0, [encoded(1, id=1, amount=10), encoded(1, id=2, amount=20)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.register()
    made.put_values(1, [encoded(2, id=3, amount=30, place={"x": 1.5})], epoch=2)
    made.more["on_taken_back"] = "delete"
    made.tables.run(NAME)
    assert rows_of(made, "id", "amount", "place") == [(1, 10, None), (3, 30, {"x": 1.5})]
    assert made.tables.verify(NAME).differences == ()


def test_a_schema_that_is_registered_between_the_two_commits_changes_nothing(
    made: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was refused stays refused, and the columns are those that the refused records were committed with."""
    made.put_values(0, [encoded(1, id=1, amount=10), encoded(2, id=2, amount=20, place=None)])
    made.tables.create(NAME)
    kill_run(made, monkeypatch, 1)
    assert made.select("select _offset from {}", "_quarantine") == [(1,)]
    made.register()
    made.put_values(2, [encoded(2, id=3, amount=30, place={"x": 1.5})])
    made.tables.run(NAME)
    assert rows_of(made, "id", "amount") == [(1, 10), (3, 30)]
    assert made.tables.verify(NAME).differences == ()
    made.put_values(3, [encoded(2, id=4, amount=40, place={"x": 2.5})])
    made.tables.run(NAME)
    assert rows_of(made, "id", "place")[-1] == (4, {"x": 2.5})


def test_a_version_that_is_named_stays(made: Evolving) -> None:
    """Naming one is no change of the parser; the newest one is adopted when the name is removed."""
    made.more["parser"] = {"type": "registry", "options": {"version": "1"}}
    made.register()
    made.put_values(0, [encoded(2, id=1, amount=10, place={"x": 1.5})])
    made.tables.create(NAME)
    made.tables.run(NAME)
    assert rows_of(made, "id", "amount") == [(1, 10)]
    made.more["parser"] = {"type": "registry"}
    made.put_values(1, [encoded(2, id=2, amount=20, place={"x": 2.5})])
    made.tables.run(NAME)
    assert rows_of(made, "id", "place") == [(1, None), (2, {"x": 2.5})]


def test_a_file_of_a_schema_cannot_lose_a_column(tmp_path: Path) -> None:
    """It can get columns; the message names the way out."""
    made = Evolving(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet")
    file = tmp_path / "order.avsc"
    made.more["parser"] = {"type": "avro", "options": {"schema.file": str(file)}}
    file.write_text(json.dumps(schema_of(1)))
    made.put_values(0, [encoded(1, id=1, amount=10)[5:]])
    made.tables.create(NAME)
    made.tables.run(NAME)
    file.write_text(json.dumps(schema_of(3)))
    with pytest.raises(OperatorError, match="put that file back, or create a table of another name"):
        made.tables.run(NAME)
    new = {"name": "new", "type": "int", "default": 7}
    file.write_text(json.dumps({**schema_of(1), "fields": [*VERSIONS[0], new]}))
    made.put_values(1, [encoded(1, id=2, amount=20)[5:] + b"\x06"])
    made.tables.run(NAME)
    assert rows_of(made, "id", "amount", "new") == [(1, 10, None), (2, 20, 3)]


def test_the_state_names_columns_and_schemas(made: Evolving) -> None:
    """The version of the subject."""
    made.put_values(0, [encoded(1, id=1)])
    made.tables.create(NAME)
    state = made.state()
    assert state.schemas == ("subject=t-value,version=1",)
    assert state.columns == (
        FoundColumn("id", "id", "long"),
        FoundColumn("at", "at", "timestamp"),
        FoundColumn("amount", "amount", "int"),
    )


def test_a_record_of_many_fields_is_a_column(made: Evolving) -> None:
    """The state has its whole type."""
    fields = [{"name": f"field_{number}", "type": "string"} for number in range(200)]
    VERSIONS.append([ID, AT, {"name": "wide", "type": {"type": "record", "name": "Wide", "fields": fields}}])
    try:
        made.registered = len(VERSIONS) - 1
        archived(made.archive, [schema_record("t-value", 2, 40, json.dumps(schema_of(len(VERSIONS))))], base=1)
        wide = {field["name"]: "x" for field in fields}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema_of(4)), {"id": 1, "at": 0, "wide": wide})
        made.put_values(0, [framed(40, out.getvalue())])
        made.tables.create(NAME)
        made.tables.run(NAME)
        assert rows_of(made, "id", "wide.field_199") == [(1, "x")]
    finally:
        VERSIONS.pop()
