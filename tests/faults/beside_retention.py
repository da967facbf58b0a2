"""Programs that run while retention deletes: a collector that is killed at writes, readers, a table, and repairs."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from dev.local import forks
from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import wait_for
from dev.local.proxy.s3 import DropRequest, Request, S3FaultProxy
from tests.faults.leaders import Background
from tests.uploader.beside import Archive
from ts_common.archive.commit import LogStart, decode_log_start
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, SegmentName
from ts_common.archive.table_claims import read_claims
from ts_common.errors import ObjectNotFound, TieredStorageError
from ts_common.store.factory import open_store
from ts_reader import Archive as Reader
from ts_tables import Tables
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from tsctl.exit_codes import ExitCode
from tsctl.gc.archive_run import NO_FUSE, LocationResult, begin, work_in
from tsctl.gc.incarnations import read_topic_incarnations
from tsctl.gc.policy import Policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.report import SUFFIX, Report
from tsctl.gc.run import run_once
from tsctl.repair.run import RepairStatus

TABLE: Final = "backup.t"
KEPT_BYTES: Final = 60_000
_GRACE_MS: Final = 1000  # a policy has an hour at least
_FEWEST_WRITES: Final = 3  # before the collector is killed
_REPAIR_SECONDS: Final = 120.0
# The error of a reader that planned before an object was deleted.
_DOCUMENTED: Final = re.compile(r"run the query again|plan it again")
_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.faults.beside_retention"])


def policy(keys: ClusterKeys, checkpoint: str | None = None) -> Policy:
    """Return a policy by size that waits for the table, and for a stream if its checkpoint is given."""
    readers = [{"table": TABLE}, *([] if checkpoint is None else [{"checkpoint": checkpoint}])]
    rule = {"topics": ".*", "max_size": f"{KEPT_BYTES}", "confirm_small": True, "until_read_by": readers}
    return Policy.model_validate({"cluster": keys.cluster, "least_time": "0s", "rules": [rule]})


def collect(location: str, keys: ClusterKeys, checkpoint: str | None = None) -> LocationResult:
    """Run once, with a grace that the test can wait for."""
    result = LocationResult(location, Report())
    with open_store(location) as store, result.report.writing(store, keys):
        now = begin(store, keys, result.report)
        retention = PolicyRetention(policy(keys, checkpoint), [store], keys, now)
        work = work_in(store, keys, retention, now, _GRACE_MS, result.report)
        incarnations = read_topic_incarnations(store, keys, lambda _: True, result.report.skip)
        run_once(work, incarnations, NO_FUSE, found=result.found)
    return result


def collect_for_ever(location: str, keys: ClusterKeys, checkpoint: str | None, environment: Mapping[str, str]) -> None:
    """Run again and again until the process is killed."""
    os.environ.update(environment)
    while True:
        time.sleep(0.1)  # leaves processors to the others; a run deletes whatever is due
        assert not collect(location, keys, checkpoint).report.errors


class Collector(Background):
    """A collector in a process of its own, killed at a write whose number is drawn, and started again.

    After the last kill it deletes faster than a producer writes, however slow the machine is.

    Attributes:
        killed: how often it was killed.

    Args:
        archive: where it runs.
        proxy: between the collector and the store.
        kills: how often it is killed.
        most_writes: after so many writes it is killed at the latest.
        checkpoint: of a stream for which the policy waits.
    """

    def __init__(
        self, archive: Archive, proxy: S3FaultProxy, kills: int, most_writes: int, checkpoint: str | None
    ) -> None:
        super().__init__()
        self.killed = 0
        self._kills = kills
        self._most_writes = most_writes
        self._arguments = (archive.location, archive.keys, checkpoint, proxy.environment())
        self._random = Random(most_writes)
        self._lock = threading.Lock()  # guards the next two
        self._process: BaseProcess | None = None
        self._left = 0
        proxy.before(self._at)

    def run(self) -> None:
        while not self._ending.is_set():
            process = _CONTEXT.Process(target=collect_for_ever, args=self._arguments)
            with self._lock:
                self._left = self._random.randint(_FEWEST_WRITES, self._most_writes)
                process.start()
                self._process = process
            while process.is_alive() and not self._ending.wait(0.05):
                pass
            process.kill()
            process.join()
            if not self._ending.is_set():
                assert process.exitcode == -signal.SIGKILL, "the collector failed; its traceback is on stderr"

    def _at(self, request: Request) -> None:
        if request.method not in {"PUT", "DELETE"} or request.path.endswith(SUFFIX):
            return  # no run reads a report
        with self._lock:
            self._left -= 1
            if self._left > 0 or self.killed == self._kills or self._process is None or self._process.pid is None:
                return
            os.kill(self._process.pid, signal.SIGKILL)
            self._process = None
            self.killed += 1
        raise DropRequest


class WholeReader(Background):
    """Reads the whole view again and again, and checks the invariants of retention each time.

    Attributes:
        rows: value by offset, of all reads; a record that changes fails the test.
        reads: number of complete reads.
        repeated: number of reads that failed with the documented error, or at a hole before it was repaired.
        starts: each first offset above all before; it can be lower in between, because a hole shows what was hidden.
    """

    def __init__(self, archive: Archive, repairs: "Repairs") -> None:
        super().__init__()
        self._repairs = repairs
        self.rows: dict[int, bytes] = {}
        self.reads = self.repeated = 0
        self.starts: list[int] = []
        self._archive = archive
        self._store = archive.store

    def run(self) -> None:
        while not self._ending.wait(0.2):
            floor, least = floor_of(self._archive), self._archive.next_offset()
            is_broken, generation = self._repairs.is_broken, self._repairs.generation
            if least == 0:
                continue
            try:
                found = read_all(self._archive)
            except TieredStorageError as error:
                is_hole = is_broken or generation != self._repairs.generation
                if not (is_hole or _DOCUMENTED.search(str(error))):
                    raise
                self.repeated += 1
                continue
            self._check(found, floor, least)
            self._check_policy()

    def _check(self, found: list[tuple[int, bytes]], floor: int, least: int) -> None:
        offsets = [offset for offset, _ in found]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "a record is missing or twice"
        assert offsets[0] >= floor, "what was released shows again"
        assert offsets[-1] >= least - 1
        for offset, value in found:
            assert self.rows.setdefault(offset, value) == value
        if not self.starts or self.starts[-1] < offsets[0]:
            self.starts.append(offsets[0])
        self.reads += 1
        self._repairs.was_read.set()

    def _check_policy(self) -> None:
        """Check that the policy's bytes are still there, and nothing was hidden that the table needs."""
        start, keys, generation = start_of(self._archive), self._archive.partition_keys(), self._repairs.generation
        if start == 0 or self._repairs.is_broken:
            return
        claims = read_claims(self._store, self._archive.keys, TABLE)
        assert claims is not None
        assert start <= claims.needed_from[keys.directory]
        size = 0
        for info in self._store.list(keys.prefix):
            parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
            if parsed is not None and parsed[1] == LOG_SUFFIX and parsed[0].base >= start:
                size += info.size
        assert size >= KEPT_BYTES or start_of(self._archive) != start or generation != self._repairs.generation


class TableRuns(Background):
    """Runs of the table again and again."""

    def __init__(self, archive: Archive, directory: Path) -> None:
        super().__init__()
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}/lake"}
        source: dict[str, Any] = {"url": archive.location, "cluster": archive.keys.cluster}
        source["prefix_entropy_bits"] = archive.keys.entropy_bits
        content = {"archive": source, "catalog": catalog, "tables": {TABLE: {"topics": archive.topic}}}
        self._tables = Tables(content, workers=1)
        self._catalog = catalog
        self._tables.create(TABLE)
        self.once()

    def once(self) -> None:
        """Run once."""
        self._tables.run(TABLE)

    def run(self) -> None:
        while not self._ending.wait(0.3):
            self.once()

    def rows(self) -> list[tuple[int, bytes]]:
        """Return offset and value of each row, ascending."""
        found = open_catalog(CATALOG, self._catalog).load_table(TABLE).scan().to_arrow()
        return sorted(zip(found["_offset"].to_pylist(), found["value"].to_pylist(), strict=True))


class Repairs(Background):
    """Deletes a segment that retention deletes soon and the policy's readers have read, and repairs the hole.

    On a slow machine a whole read needs longer than a repair, so the view is read once between two holes.

    Attributes:
        generation: changes when a segment is deleted, and when its offsets can be read again.
        statuses: number of repairs by their status.
        was_read: set by a reader that has read the whole view.
    """

    def __init__(self, archive: Archive, agents: Sequence[AgentProcess], checkpoint: str | None) -> None:
        super().__init__()
        self.generation = 0
        self.statuses: Counter[str] = Counter()
        self.was_read = threading.Event()
        self._archive, self._agents, self._policy = archive, agents, policy(archive.keys, checkpoint)
        self._command = ["tsctl", "repair", archive.topic, "--depth", "listing", "--wait", "20s", "--json"]
        self._command += ["--url", archive.location, "--cluster", archive.keys.cluster]

    @property
    def is_broken(self) -> bool:
        """Whether the archive can have a hole now."""
        return self.generation % 2 == 1

    @property
    def repaired(self) -> int:
        """Return the number of segments that were put back."""
        return self.statuses[RepairStatus.REPAIRED.value]

    def run(self) -> None:
        while not self._ending.wait(0.1):
            base = self._lowest_read() if self.was_read.is_set() else None
            if base is None:
                continue
            self.generation += 1
            self._archive.store.delete([self._key(base)])
            while not self._is_whole(base):
                self._repair()
            self.generation += 1
            self.was_read.clear()

    def _lowest_read(self) -> int | None:
        """Return the base of the lowest segment from `log.start` on that no reader needs any more."""
        archive = self._archive
        keys, start = archive.partition_keys(), start_of(archive)
        needed = PolicyRetention(self._policy, [archive.store], archive.keys, 0).needed(keys)
        logs = [info.key.removeprefix(keys.prefix) for info in archive.store.list(keys.prefix)]
        bases = [parsed[0].base for name in logs if (parsed := SegmentName.parse(name)) and parsed[1] == LOG_SUFFIX]
        live = [base for base in bases if base >= start]
        return live[0] if needed is not None and len(live) > 1 and live[1] <= needed.offset else None

    def _key(self, base: int) -> str:
        return self._archive.partition_keys().segment(SegmentName(base))

    def _is_whole(self, base: int) -> bool:
        """Return whether the segment is stored again, or retention has released it: what is hidden can show again."""
        try:
            self._archive.store.head(self._key(base))
        except ObjectNotFound:
            return floor_of(self._archive) > base
        return True

    def _repair(self) -> None:
        done = threading.Event()
        look = threading.Thread(target=self._look_soon, args=(done,))
        look.start()
        try:
            ended = forks.run(self._command, cwd=Path.cwd(), env=os.environ, timeout=_REPAIR_SECONDS)
        finally:
            done.set()
            look.join()
        if ended.returncode == ExitCode.TRY_AGAIN and not ended.stdout:
            assert "run" in ended.stderr, ended.stderr
            assert "again" in ended.stderr, ended.stderr
        else:
            assert ended.returncode in {ExitCode.FINE, ExitCode.FOUND, ExitCode.TRY_AGAIN}, ended.stderr
            self.statuses.update(each["status"] for each in json.loads(ended.stdout)["repairs"])

    def _look_soon(self, done: threading.Event) -> None:
        """Make the agents look for requests at once instead of within a minute."""
        while not done.wait(0.5):
            for agent in self._agents:
                os.kill(agent.pid, signal.SIGHUP)


class SparkStream:
    """A Spark stream of the topic into parquet files, in a process of its own for the length of a `with`.

    Attributes:
        checkpoint: its location.
    """

    def __init__(self, archive: Archive, directory: Path) -> None:
        self.checkpoint = (directory / "checkpoint").as_uri()
        self._sink, self._log = directory / "sink", directory / "driver.log"
        self._commits = directory / "checkpoint" / "commits"
        options = {"path": archive.location, "cluster": archive.keys.cluster, "subscribe": archive.topic}
        options |= {"prefixEntropyBits": str(archive.keys.entropy_bits), "startingOffsets": "earliest"}
        program = [sys.executable, "-m", "tests.spark.streaming.process", json.dumps(options)]
        self._command = [*program, str(self._sink), str(directory / "checkpoint")]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "SparkStream":
        """Start the stream, and wait until it has committed a batch."""
        self._process = self._start("follow")
        wait_for(lambda: any(self._commits.glob("[0-9]*")), "a first batch", 240, state=self._tail)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def check(self) -> None:
        """Raise if the driver has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self._tail()

    def finish(self) -> list[tuple[int, bytes]]:
        """Run a driver until it has read everything; return offset and value of each row of the sink, ascending."""
        process = self._start("finish")
        assert process.wait(240) == 0, self._tail()
        # A driver that was killed leaves files of a batch that it did not commit.
        logs = [path.read_text().splitlines()[1:] for path in (self._sink / "_spark_metadata").glob("[0-9]*")]
        files = {unquote(urlsplit(json.loads(line)["path"]).path) for lines in logs for line in lines}
        found = pa.concat_tables(pq.read_table(file, columns=["offset", "value"]) for file in files)
        return sorted(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))

    def _start(self, mode: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._command, mode], env=environment, start_new_session=True, stdout=log, stderr=log
            )

    def _tail(self) -> str:
        return self._log.read_text()[-5000:]


def start_of(archive: Archive) -> int:
    """Return the start in `log.start`; 0 before an agent wrote it."""
    return _log_start(archive).offset


def floor_of(archive: Archive) -> int:
    """Return the floor in `log.start`; 0 before a run wrote it."""
    return _log_start(archive).floor or 0


def _log_start(archive: Archive) -> LogStart:
    key = archive.partition_keys().log_start
    try:
        return decode_log_start(archive.store.get(key)[0], key)
    except ObjectNotFound:
        return LogStart(0)


def read_all(archive: Archive) -> list[tuple[int, bytes]]:
    """Return offset and value of each record of the view, with `ts_reader`."""
    reader = Reader(archive.location, archive.keys.cluster, prefix_entropy_bits=archive.keys.entropy_bits, workers=1)
    found = reader.scan(archive.topic, columns=["offset", "value"]).to_table()
    return list(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))


def below_start(archive: Archive) -> dict[str, float]:
    """Return the objects of segments whose base is below `log.start`, with the times when they were written."""
    keys, start = archive.partition_keys(), start_of(archive)
    found = {}
    for info in archive.store.list(keys.prefix):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is not None and parsed[0].base < start:
            found[info.key] = info.modified
    return found


def wait_out_grace(archive: Archive, seconds: float, checkpoint: str | None) -> None:
    """Run without kills until nothing is due, hidden, or left below `log.start`."""

    def is_over() -> bool:
        found = collect(archive.location, archive.keys, checkpoint).found
        logs = [key for key in below_start(archive) if key.endswith(LOG_SUFFIX)]
        return not (found.candidates or found.going or logs or floor_of(archive) < start_of(archive))

    wait_for(is_over, "everything that is due to be deleted", seconds)
