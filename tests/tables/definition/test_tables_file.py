"""The file that describes the tables of a cluster."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

from ts_common.errors import ConfigurationError
from ts_reader.query.query import OnHole
from ts_tables.definition.tables_file import json_schema, parse_tables, read_tables_file, with_settings

GOOD = """
archive: {url: s3://bucket/base, cluster: prod}
catalog: {type: sql, uri: "sqlite:////t.db", s3.force-virtual-addressing: true, n: 1}
tables:
  backup.orders:
    topics: orders
    partition_by: day(timestamp)
  backup.clicks:
    pattern: clicks\\..*
    partition_by: [hour(timestamp), topic]
    sort_by: [offset]
    target_size: 64MiB
    on_hole: pass
    start: {clicks.a: {0: 17}}
"""
WRONG = """
archive: {url: s3://bucket/base, config: prod.properties}
catalog: {}
extra: 1
tables:
  orders: {topics: orders}
  backup.a: {topics: [a, b/c], pattern: "(", partition_by: [week(timestamp)], sort_by: [valu], on_hole: stop}
  backup.b: {}
  backup.c: {topics: c, partion_by: topic, target_size: 3 apples, start: {c: {0: -1}}}
  backup.d: {topics: [d, d]}
  backup.e: {topics: e, partition_by: ["bucket(4, key)", "bucket(8, key)"]}
  backup.f: {topics: f, parser: {type: json, columns: {a: lon, _offset: long}}}
  backup.g: {topics: g, parser: {type: jsn, columns: {a: long}}}
  backup.h: {topics: h, parser: {type: delimited, columns: {a: long}}}
  backup.i: {topics: [i, j], parser: {type: avro}}
  backup.j: {topics: j, parser: {type: json, columns: {A: long, a: long}}, sort_by: b}
  backup.k: {topics: k, parser: {type: json, columns: {a: "list<long>"}}, sort_by: a, partition_by: day(timestamp)}
  backup.l: {topics: l, quarantine: backup.m}
  backup.n: {topics: n, parser: {type: thrift, options: {idl: missing.thrift, struct: Event, protocol: json}}}
  backup.o: {topics: o, parser: {type: thrift, columns: {a: long}, options: {idl: missing.thrift, struct: Event}}}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tables.yaml"
    path.write_text(text)
    return path


def test_a_file_has_the_tables_of_a_cluster(tmp_path: Path) -> None:
    """A list of one is a text too, and properties of the catalog are texts."""
    found = read_tables_file(written(tmp_path, GOOD))
    assert found.catalog == {"type": "sql", "uri": "sqlite:////t.db", "s3.force-virtual-addressing": "true", "n": "1"}
    orders, clicks = found.tables.values()
    assert (orders.topics, orders.partition_by) == (("orders",), ("day(timestamp)",))
    assert (orders.isolation, orders.target_size, orders.commit_size) == ("read_committed", 256 << 20, 64 << 30)
    assert (clicks.on_hole, clicks.target_size, clicks.start) == (OnHole.PASS, 64 << 20, {"clicks.a": {0: 17}})


def test_every_mistake_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    """With its place, and what is accepted."""
    with pytest.raises(ConfigurationError) as found:
        read_tables_file(written(tmp_path, WRONG))
    text = str(found.value)
    for part in (
        "archive: config sets url too",
        "catalog: ",
        "extra: this name is unknown",
        "tables.orders: 'orders' is no name of a table; namespace.name is expected",
        "tables.backup.a.topics.1: 'b/c' is no name of a topic",
        "tables.backup.a.pattern: '(' is no regular expression",
        "tables.backup.a.partition_by: 'week(timestamp)': week is unknown",
        "tables.backup.a.sort_by: 'valu': a table is sorted by key",
        "tables.backup.a.on_hole: input should be 'wait' or 'pass'",
        "tables.backup.b: topics or pattern is needed",
        "tables.backup.c.partion_by: this name is unknown; did you mean partition_by?",
        "tables.backup.c.target_size: '3 apples' is no size",
        "tables.backup.c.start.c.0: input should be greater than or equal to 0",
        "tables.backup.d: topics: a name is given twice",
        "tables.backup.e.partition_by: two terms have the name key_bucket",
        "tables.backup.f.parser.columns.a.type: type 'lon': lon is unknown; did you mean long?",
        "tables.backup.g.parser.type: 'jsn' is unknown; did you mean json?",
        "tables.backup.h.parser: delimiter: delimited needs one",
        "tables.backup.i: topics: the schema of avro is of one topic",
        "tables.backup.j.parser: column A: the table has another one of this name",
        "tables.backup.k.sort_by: 'a': rows have no order by a list<element: int64>",
        "tables.backup.k.partition_by: 'day(timestamp)': the table has no column timestamp",
        "tables.backup.l: quarantine: without a parser, no record is refused",
        "tables.backup.n.parser: options.protocol: 'json' is unknown; accepted are binary, compact",
        "tables.backup.o.parser: columns: thrift has its own",
    ):
        assert part in text, text


def test_settings_of_spark_are_texts_by_their_own_names(tmp_path: Path) -> None:
    """By the file, and by settings of a command."""
    content = {"archive": {"config": "/a"}, "catalog": {"uri": "u"}, "tables": {"b.t": {"topics": "t"}}}
    given = with_settings(content, ["spark.master=local[2]", "spark.ui.enabled=false"], None, "--set")
    assert parse_tables(given, "file").spark == {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    for wrong in ({"master": "local"}, {"spark.jars": ["a.jar"]}, {"spark.sql": {"catalog": "x"}}):
        with pytest.raises(ConfigurationError, match=r"spark: .*: a setting of Spark is expected"):
            parse_tables({**content, "spark": wrong}, "file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "archive, catalog and tables are expected"),
        ("[1, 2]", "archive, catalog and tables are expected"),
        ("a: [", "it is no YAML"),
    ],
)
def test_what_is_no_file_of_tables_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """In one line; `tests/common/config/test_yaml_files.py` has what is no YAML."""
    with pytest.raises(ConfigurationError, match=reason):
        read_tables_file(written(tmp_path, text))


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("archive: {url: bucket/base, cluster: prod}", "archive.url: 'bucket/base' is not a store URL"),
        ("catalog: {uri: 'sqlite:///t.db'}", "catalog: uri: sqlite:///t.db has no absolute path"),
        ("catalog: {type: sql, uri: sqlite+pysqlite://}", "has no absolute path"),
        ("catalog: {type: sql, uri: 'sqlite:////t.db', warehouse: lake/w}", "catalog: warehouse: 'lake/w' is no URL"),
        ("tables: {b.t: {topics: t, location: lake/t}}", "tables.b.t: location: 'lake/t' is no URL"),
        ("tables: {b.t: {topics: t, format: json, location: /t}}", "tables.b.t: location: '/t' is not a store URL"),
        ("tables: {b.t: {topics: t, location: s3://bucket/base/t/}}", "s3://bucket/base/t/ and the archive .* overlap"),
        ("tables: {b.t: {topics: t, location: s3://bucket}}", "location s3://bucket and the archive .* overlap"),
        ("catalog: {uri: 'sqlite:////t.db', warehouse: s3://bucket/base/w}", "warehouse .* is in the archive"),
    ],
)
def test_a_wrong_place_is_refused(part: str, reason: str) -> None:
    """One that is relative differs by the directory of a command; one that overlaps the archive mixes their files."""
    content = YAML(typ="safe").load(GOOD) | YAML(typ="safe").load(part)
    with pytest.raises(ConfigurationError, match=reason):
        parse_tables(content, "file")


@pytest.mark.parametrize("other", ["b.t_g2", "b.t_g1", "b.t_quarantine_g2", "b.t_quarantine"])
def test_a_table_with_the_name_of_another_ones_part_is_refused(other: str) -> None:
    """Refused records and generations have tables of their own, whose names follow from that of the table."""
    parser = {"type": "json", "columns": {"id": "long"}}
    table = {"topics": "t", "parser": parser, "generations": {2: {"parser": {**parser, "infer": True}}}}
    with pytest.raises(ConfigurationError, match=f"two tables have the name {other}; one is of refused records, or"):
        parse_tables(YAML(typ="safe").load(GOOD) | {"tables": {"b.t": table, other: {"topics": "t"}}}, "file")


def test_a_warehouse_may_contain_the_archive_or_be_a_name() -> None:
    """Its tables are below it; a REST catalog gives its warehouses names."""
    for catalog in (
        {"uri": "sqlite:////t.db", "warehouse": "s3://bucket"},
        {"type": "rest", "uri": "http://catalog", "warehouse": "lake"},
        {"warehouse": "lake"},  # the type can be in pyiceberg's own file
    ):
        parse_tables(YAML(typ="safe").load(GOOD) | {"catalog": catalog}, "file")


@pytest.mark.parametrize(
    ("topics", "reason"),
    [("topics: orders", "no topic ordrs; did you mean orders"), ("pattern: orders", "no topic ordrs")],
)
def test_a_first_offset_of_no_topic_is_refused(topics: str, reason: str) -> None:
    """A misspelt one would begin at the start of the log, and repeat what the other sink has."""
    table = YAML(typ="safe").load(f"{{{topics}, start: {{ordrs: {{0: 5}}}}}}")
    with pytest.raises(ConfigurationError, match=rf"tables\.b\.t: start: the table has {reason}"):
        parse_tables(YAML(typ="safe").load(GOOD) | {"tables": {"b.t": table}}, "file")


def test_a_format_that_is_unknown_needs_no_catalog() -> None:
    """The only problem is the format."""
    tables = {"b.t": {"topics": "t", "format": "csv", "location": "s3://lake/t"}}
    with pytest.raises(ConfigurationError, match=r"file: 1 problem\n  - tables\.b\.t\.format: input should be"):
        parse_tables({"archive": {"config": "/a"}, "tables": tables}, "file")


def test_editors_get_a_json_schema() -> None:
    """It accepts what the file may have: one topic as a text, sizes with units, numbers as properties."""
    schema = json_schema()
    assert {"archive", "catalog", "spark", "tables"} == {*schema["properties"]}
    content = YAML(typ="safe").load(GOOD)
    content["tables"]["export.t"] = {"topics": "t", "format": "json", "location": "s3://lake/t", "max_age": "1h"}
    content["spark"] = {"spark.ui.enabled": False}
    for table in content["tables"].values():  # JSON has no numbers as keys
        table["start"] = {
            topic: {str(key): value for key, value in by.items()} for topic, by in table.get("start", {}).items()
        }
    validator = Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(content)] == []
    content["tables"]["export.t"] = {"topic": "t", "max_age": 1}
    assert {error.json_path for error in validator.iter_errors(content)} == {
        "$.tables['export.t']",
        "$.tables['export.t'].max_age",
    }
