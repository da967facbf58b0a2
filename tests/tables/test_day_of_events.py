"""A day of JSON events in 1,440 segments: tables by type and hour are those that DuckDB computes of the values."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import cases
from ts_tables import Tables
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog

NAME = "lake.events"
MINUTES = 1440
PER_MINUTE = 20
DAY_MS = 1_795_564_800_000  # 2026-11-25
DEFINITION = {
    "topics": "events",
    "parser": {
        "type": "json",
        "columns": {"id": "long", "type": "string", "event_time": {"type": "timestamp", "unit": "ms"}},
        "infer": True,
    },
    "partition_by": ["type", "hour(event_time)"],
}
# Computes the columns of the values once more, from their text.
EXPECTED = """
select partition, "offset", value ->> 'type' as type, (value ->> 'id')::bigint as id,
  epoch_ms((value ->> 'event_time')::bigint) as event_time,
  case when json_type(value, 'amount') in ('UBIGINT', 'BIGINT') then (value ->> 'amount')::bigint end as amount,
  case when json_type(value, 'amount') = 'VARCHAR' then value ->> 'amount' end as amount_string,
  case when json_type(value, 'amount') = 'DOUBLE' then (value ->> 'amount')::double end as amount_double,
  case when json_type(value, 'tags') = 'ARRAY' then (value -> 'tags')::varchar end as tags
from (select partition, "offset", value::json as value from given where is_json)
"""
FOUND = """
select _partition_id, _offset, type, id, event_time::timestamp, amount, amount_string, amount_double, tags from {}
"""


class Day(NamedTuple):
    """How a day is archived.

    Attributes:
        form: of the table.
        types: of events.
        partitions: of the topic, each with a segment a minute.
        runs: of the table.
        segments: of each partition; a record a minute and more.
    """

    form: str
    types: int
    partitions: int
    runs: int
    segments: int


QUICK = Day("parquet", 4, 1, 3, 48)
FULL = [Day("parquet", 50, 1, 4, MINUTES), Day("iceberg", 50, 1, 12, MINUTES)]


def events(day: Day) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number of the segment, partition and value.

    One in a thousand is malformed; the type of `amount` changes twice.
    """
    draw = random.Random(21)
    for minute in range(MINUTES):
        for number in range(PER_MINUTE):
            serial = minute * PER_MINUTE + number
            event: dict[str, Any] = {
                "id": serial,
                "type": f"type{draw.randrange(day.types):02d}",
                # Some are late, by up to three hours.
                "event_time": DAY_MS + minute * 60_000 - draw.choice([0, 0, 0, 0, 10_800_000]),
            }
            kind = serial * 3 // (MINUTES * PER_MINUTE)
            event["amount"] = [draw.randrange(1000), str(draw.randrange(1000)), draw.random()][kind]
            if serial % 7 == 0:
                event["tags"] = ["a", number]
            text = json.dumps(event).encode()
            yield minute * day.segments // MINUTES, serial % day.partitions, text[:-1] if serial % 1000 == 999 else text


@pytest.mark.parametrize("day", cases([QUICK, *FULL], quick=[QUICK]))
def test_t05_tables_by_type_and_hour_are_those_that_duckdb_computes(tmp_path: Path, day: Day) -> None:
    """In several runs, with columns that are found on the way; each refused record has a reason."""
    archive = MadeArchive(tmp_path / "archive")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    form = day.form
    content: dict[str, Any] = {
        "archive": {"url": archive.location, "cluster": CLUSTER},
        "catalog": catalog,
        "tables": {NAME: {**DEFINITION, "format": form}},
    }
    if form != "iceberg":
        content["tables"][NAME]["location"] = f"file://{tmp_path}/files"
    tables = Tables(content, engine=lambda tasks: [task() for task in tasks])
    ends = [0] * day.partitions
    given: list[tuple[int, int, str, bool]] = []
    waiting: list[list[bytes]] = [[] for _ in range(day.partitions)]
    last = 0
    is_created = False

    def ship() -> None:
        for partition, values in enumerate(waiting):
            start = ends[partition]
            records = [record(at, None, value, timestamp_delta=at) for at, value in enumerate(values)]
            data = batch(start, records, base_timestamp=DAY_MS, max_timestamp=DAY_MS + len(values) - 1)
            archive.put_segment("events", start, data, partition=partition)
            given.extend(
                (partition, start + at, value.decode(), value.endswith(b"}")) for at, value in enumerate(values)
            )
            ends[partition] += len(values)
            archive.commit(
                "events", ends[partition], partition=partition, highest_base=start, last_stable_offset=ends[partition]
            )
            values.clear()

    for segment, partition, value in events(day):
        if segment != last:
            ship()
            if segment % (day.segments // day.runs) == 0:
                is_created = is_created or tables.create(NAME)
                tables.run(NAME)
            last = segment
        waiting[partition].append(value)
    ship()
    tables.run(NAME)
    sizes = [Path(each).stat().st_size for each in paths_of(tmp_path, form, "", catalog)]
    print(f"{len(sizes)} files of {min(sizes):,} to {max(sizes):,} bytes")  # noqa: T201
    with duckdb.connect() as connection:
        names = ("partition", "offset", "value", "is_json")
        connection.register("given", pa.table(dict(zip(names, map(list, zip(*given, strict=True)), strict=True))))
        connection.execute(f"create table expected as {EXPECTED}")
        files = {of: paths_of(tmp_path, form, of, catalog) for of in ("", "_quarantine")}
        read = {
            of: f"read_parquet({some}, hive_partitioning = false, union_by_name = true)" for of, some in files.items()
        }
        connection.execute(f"create table found as {FOUND.format(read[''])}")
        for one, other in (("expected", "found"), ("found", "expected")):
            assert connection.sql(f"select * from {one} except all select * from {other} limit 3").fetchall() == []
        assert connection.sql("select count(*) from found").fetchall() == [(len(given) - len(given) // 1000,)]
        refused = connection.sql(f"select _partition_id, _offset, _reason from {read['_quarantine']}").fetchall()
    assert sorted(each[:2] for each in refused) == sorted(each[:2] for each in given if not each[3])
    assert {each[2].partition(":")[0] for each in refused} == {"unexpected end of data"}
    assert tables.verify(NAME).differences == ()


def paths_of(directory: Path, form: str, of: str, catalog: dict[str, str]) -> list[str]:
    """Return the paths of a table's files."""
    if form == "iceberg":
        table = open_catalog(CATALOG, catalog).load_table(f"{NAME}{of}")
        return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    return [str(each) for each in (directory / f"files{of}").rglob("*.parquet") if "_ts/" not in str(each)]
