"""Runs that are killed at each of their writes: the next run completes them, and no row is there twice."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.matrix import cases
from tests.tables.made_tables import MadeTable
from ts_local.kafka.cluster import LocalCluster
from ts_local.proxy.s3 import DropRequest, Request, S3FaultProxy
from ts_local.stores.s3 import REGION, S3Server

BUCKET = "lake"
PARTITIONS = 2
_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,32}|snap-\d+|\d{5}")
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.tables.made_tables"])


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="lake") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


@dataclass
class Lake:
    """A table on S3 of an archive in a directory."""

    directory: Path
    warehouse: str
    properties: dict[str, str]
    archive: MadeArchive = field(init=False)
    end: int = 0

    def __post_init__(self) -> None:
        self.archive = MadeArchive(self.directory / "archive")

    def grow(self) -> None:
        """Add ten records to each partition."""
        for partition in range(PARTITIONS):
            log = batches(*steps(self.end, self.end + 10, 5))
            self.archive.put_segment("t", self.end, log, partition=partition)
            self.archive.commit(
                "t", self.end + 10, partition=partition, highest_base=self.end, last_stable_offset=self.end + 10
            )
        self.end += 10

    def table(self, endpoint: str) -> MadeTable:
        return _table(self.directory, self.warehouse, {**self.properties, "s3.endpoint": endpoint})

    def check(self, s3: S3Server) -> None:
        """Every record is there once, and no file is left over."""
        table = self.table(s3.endpoint)
        loaded = table.table
        io = loaded.io
        found: list[tuple[int, int]] = []
        for task in loaded.scan().plan_files():
            with io.new_input(task.file.file_path).open() as stream:
                rows = pq.read_table(stream, columns=["_partition_id", "_offset"], partitioning=None).to_pylist()
            found += [(row["_partition_id"], row["_offset"]) for row in rows]
        assert sorted(found) == [(number, offset) for number in range(PARTITIONS) for offset in range(self.end)]
        client = s3.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{self.directory.name}/")
        names = {f"s3://{BUCKET}/{each['Key']}" for page in pages for each in page.get("Contents", [])}
        client.close()
        root = loaded.location()
        # A catalog's metadata of lost commits stays, and so do the objects that pyarrow puts for directories.
        names = {name for name in names if not name.endswith((".metadata.json", "/data/", "/metadata/", "/_ts/plans/"))}
        kept = {snapshot.manifest_list for snapshot in loaded.snapshots()}
        for snapshot in loaded.snapshots():
            for manifest in snapshot.manifests(io):
                kept.add(manifest.manifest_path)
                kept |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}
        assert names == kept, root


def _table(directory: Path, warehouse: str, properties: dict[str, str]) -> MadeTable:
    return MadeTable(
        MadeArchive(directory / "archive"), directory, warehouse=warehouse, further=properties, partition_by=("topic",)
    )


def _run(directory: Path, warehouse: str, properties: dict[str, str]) -> None:
    """Run the table; the main function of a process that is killed."""
    _table(directory, warehouse, properties).run()


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path) -> Lake:
    properties = {
        "s3.access-key-id": s3.admin.access_key,
        "s3.secret-access-key": s3.admin.secret_key,
        "s3.region": REGION,
    }
    return Lake(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", properties)


class Victim:
    """A run in a process of its own, killed at its first write that has not killed one yet.

    Attributes:
        met: the kinds of the writes that killed a run.
        seen: the kinds of all writes.
    """

    def __init__(self, lake: Lake, proxy: S3FaultProxy, moment: str) -> None:
        self.met: set[str] = set()
        self.seen: set[str] = set()
        self._lake = lake
        self._proxy = proxy
        self._moment = moment
        self._pid = 0
        self._lock = threading.Lock()
        proxy.before(lambda request: self._at(request, "before"))
        proxy.after(lambda request: self._at(request, "after"))

    def live(self, *, immortal: bool = False) -> int:
        """Run once, and return the exit code of the process."""
        properties = {**self._lake.properties, "s3.endpoint": self._proxy.endpoint}
        process = _CONTEXT.Process(target=_run, args=(self._lake.directory, self._lake.warehouse, properties))
        process.start()
        with self._lock:
            self._pid = 0 if immortal else process.pid or 0
            self._counts: dict[str, int] = {}
        process.join(120)
        assert process.exitcode is not None
        return process.exitcode

    def _at(self, request: Request, moment: str) -> None:
        if request.method not in {"PUT", "POST", "DELETE"}:
            return
        name = _NAMES.sub("#", request.target.partition("?")[0].rpartition(f"/{self._lake.directory.name}/")[2])
        kind = f"{request.method} {name}"
        with self._lock:
            self.seen.add(kind)
            if moment != self._moment or kind in self.met or not self._pid:
                return
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0
            self.met.add(kind)
        if moment == "before":
            raise DropRequest


@pytest.mark.parametrize("moment", cases(["before", "after"], quick=["after"]))
def test_a_run_that_is_killed_at_any_write_is_completed_by_the_next(s3: S3Server, lake: Lake, moment: str) -> None:
    """Each run is killed at a write that no earlier one met, until no write is left."""
    lake.grow()
    lake.table(s3.endpoint).create()
    with S3FaultProxy(s3) as proxy:
        victim = Victim(lake, proxy, moment)
        assert victim.live(immortal=True) == 0
        recorded = set(victim.seen)
        assert len(recorded) >= 6, recorded
        for _ in range(4 * len(recorded)):
            lake.grow()
            if victim.live() == 0:
                break
        assert victim.met >= recorded, recorded - victim.met
        lake.grow()
        assert victim.live(immortal=True) == 0
    lake.check(s3)
