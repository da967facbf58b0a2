"""Runs that are killed at each of their writes: the next run completes them, and no row is there twice.

In a run on Spark, the driver is killed at writes of its own and of its tasks: more than twenty in all cases.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import REGION, S3Server
from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches, steps
from tests.matrix import cases, sampled
from tests.tables.made_parser import MadeParser, rows_of
from tests.tables.made_tables import MadeTable
from tests.tables.victims import Victim
from ts_common.store.options import AddressingStyle, Connection, Credentials
from ts_tables.files.layout import FileFormat
from ts_tables.parsers.changes import KEY, RecordParser
from ts_tables.run import run_once

BUCKET = "lake"
PARTITIONS = 2
KEYS, DELETED = 23, 11  # of a table of newest records: the number of keys; each record of so many deletes its key


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="lake") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


@dataclass
class Lake:
    """A table on S3 of an archive in a directory.

    Attributes:
        format: of plain files; None for an Iceberg table.
        kind: of its rows.
    """

    directory: Path
    s3: S3Server
    format: FileFormat | None
    kind: "Kind" = "raw"
    archive: MadeArchive = field(init=False)
    end: int = 0

    def __post_init__(self) -> None:
        self.archive = MadeArchive(self.directory / "archive")

    def grow(self) -> None:
        """Add ten records to each partition."""
        for partition in range(PARTITIONS):
            log = batches(*steps(self.end, self.end + 10, 5))
            if self.kind == "newest":
                log = batch(self.end, [_record(self.end, at) for at in range(10)])
            self.archive.put_segment("t", self.end, log, partition=partition)
            self.archive.commit(
                "t", self.end + 10, partition=partition, highest_base=self.end, last_stable_offset=self.end + 10
            )
        self.end += 10

    def arguments(self, endpoint: str) -> "Arguments":
        """Return the arguments of `_table`."""
        keys = Keys(endpoint, self.s3.admin.access_key, self.s3.admin.secret_key)
        return self.directory, f"s3://{BUCKET}/{self.directory.name}/t", keys, self.format, self.kind

    @property
    def table(self) -> MadeTable:
        return _table(*self.arguments(self.s3.endpoint))

    def check(self) -> None:
        """Every record is there once, and no file is left over."""
        is_parsed = self.kind != "raw"
        tables = [self.table, *([self.table.quarantine] if is_parsed else [])]
        found = [[(row["_partition_id"], row["_offset"]) for row in each.rows()] for each in tables]
        places = [(number, offset) for number in range(PARTITIONS) for offset in range(self.end)]
        expected = places
        if self.kind == "newest":
            newest = {offset % KEYS: offset for offset in range(self.end) if rows_of(offset)}
            alive = {offset for offset in newest.values() if offset % DELETED}
            expected = [place for place in places if place[1] in alive]
        rows = [place for place in expected for _ in range(rows_of(place[1]) if is_parsed else 1)]
        assert found == [rows, *([[place for place in places if not rows_of(place[1])]] if is_parsed else [])]
        client = self.s3.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{self.directory.name}/")
        names = {each["Key"] for page in pages for each in page.get("Contents", [])}
        client.close()
        if self.format is None:
            # A catalog's metadata of lost commits stays, and so do the objects that pyarrow puts for directories.
            names = {
                name for name in names if not name.endswith((".metadata.json", "/data/", "/metadata/", "/_ts/plans/"))
            }
            kept = {path for each in tables for path in _committed(each)}
            if self.kind == "newest":  # the directory of a plan whose staged rows were removed, and its files not
                names = {name for name in names if not re.search("/data/[0-9a-f]{16}/$", name)}
        else:
            names = {name for name in names if "/ledger/" not in name and not name.endswith("/_ts/files.json")}
            kept = {
                f"{each.place.location.removeprefix(f's3://{BUCKET}/')}/{name}"
                for each in tables
                for name in each.committed_files()
            }
        assert names == kept


def _committed(table: MadeTable) -> set[str]:
    loaded = table.table
    kept = {snapshot.manifest_list for snapshot in loaded.snapshots()}
    for snapshot in loaded.snapshots():
        for manifest in snapshot.manifests(loaded.io):
            kept.add(manifest.manifest_path)
            kept |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io)}
    return {each.removeprefix(f"s3://{BUCKET}/") for each in kept}


class Keys(NamedTuple):
    """Credentials at an endpoint."""

    endpoint: str
    access_key: str
    secret_key: str


Kind = Literal["raw", "parsed", "newest"]
Arguments = tuple[Path, str, Keys, FileFormat | None, Kind]


def _record(start: int, at: int) -> bytes:
    """Return a record of one of few keys; some delete them."""
    offset = start + at
    return record(at, b"k%d" % (offset % KEYS), b"v" if offset % DELETED else None)


def _table(directory: Path, location: str, keys: Keys, file_format: FileFormat | None, kind: Kind) -> MadeTable:
    properties = {
        "s3.endpoint": keys.endpoint,
        "s3.access-key-id": keys.access_key,
        "s3.secret-access-key": keys.secret_key,
        "s3.region": REGION,
    }
    credentials = Credentials(keys.access_key, keys.secret_key)
    return MadeTable(
        MadeArchive(directory / "archive"),
        directory,
        warehouse=location,
        further=properties,
        format=file_format,
        location=location,
        connection=Connection(
            endpoint_url=keys.endpoint, region=REGION, addressing_style=AddressingStyle.PATH, credentials=credentials
        ),
        partition_by={"raw": ("topic",), "parsed": ("_topic",), "newest": (f"bucket(2, {KEY})",)}[kind],
        parser={"raw": None, "parsed": MadeParser(), "newest": RecordParser(MadeParser())}[kind],
        newest_only=kind == "newest",
    )


def _run(arguments: Arguments, engine: str) -> None:
    """Run the table; the main function of a process that is killed."""
    table = _table(*arguments)
    if engine == "processes":
        table.run()
        return
    from dev.local.spark import local_session
    from ts_tables.engines.spark import SparkEngine

    directory = arguments[0] / "spark"
    directory.mkdir(exist_ok=True)
    with local_session(directory) as spark:
        run_once(table.target(), table.planner(), SparkEngine(spark), parsing=table.parsing)


CASES = [
    *product(("processes", "spark"), (None, FileFormat.PARQUET), ("before", "after"), ("raw",)),
    *product(("processes",), (None, FileFormat.PARQUET), ("before", "after"), ("parsed",)),
    *product(("processes",), (None,), ("before", "after"), ("newest",)),
    *product(("processes",), (FileFormat.ORC,), ("before", "after"), ("parsed",)),
    *product(("processes",), (FileFormat.TEXT, FileFormat.SEQUENCE), ("after",), ("raw",)),
]
LONGEST_SECONDS = {"processes": 120, "spark": 300}  # of one run
QUICK = [("processes", None, "after", "raw")]  # a parsed table in `test_parsed_tables.py`, plain files in `plain/`


@pytest.mark.timeout(3600)  # of Spark: twenty sessions
@pytest.mark.parametrize("case", cases(CASES, quick=QUICK), ids=str)
def test_t01_a_run_that_is_killed_at_any_write_is_completed_by_the_next(
    s3: S3Server, tmp_path: Path, case: tuple[str, FileFormat | None, str, Kind]
) -> None:
    """Each run is killed at a write that no earlier one met, until no write is left.

    `make test` kills at a fifth of the first run's kinds of writes, `make test-full` at those of recoveries too.
    """
    engine, form, moment, kind = case
    lake = Lake(tmp_path, s3, form, kind)
    lake.grow()
    lake.table.create()
    with S3FaultProxy(s3) as proxy:
        victim = Victim(proxy, tmp_path.name, moment)

        def live(*, immortal: bool = False) -> int:
            arguments, longest = lake.arguments(proxy.endpoint), LONGEST_SECONDS[engine]
            return victim.live(_run, arguments, engine, immortal=immortal, longest_seconds=longest)

        assert live(immortal=True) == 0
        recorded = sorted(victim.seen)
        assert len(recorded) >= 5, recorded
        struck = {*sampled(recorded, step=5)}
        victim.only = None if struck == {*recorded} else frozenset(struck)
        for _ in range(4 * len(recorded)):
            lake.grow()
            if live() == 0:
                break
        assert victim.met >= struck, struck - victim.met
        lake.grow()
        assert live(immortal=True) == 0
    lake.check()
