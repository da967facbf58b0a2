"""`python -m dev.bench.restore`: `tsctl restore` and bare boto3 with the same objects; the start of a restored broker.

The archive has partitions of segments of 64 MiB, in batches of 16 KiB, on a real S3 server. In each round a fresh
process of bare boto3 copies the `.log` objects into files on four threads, and syncs each. Another one runs `fetch` and
`place` for the disks of a stopped broker, with as many threads. Loading does not count. Then a real broker with an
empty topic is started, gets 600 small segments of the topic by all steps, and is started again.

The goals: at least 0.8 of the speed of bare boto3; a start within 5 s of the one without segments. Exits with 1 if one
is missed; `--no-gate` only prints.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import boto3

from dev.bench.measuring.made_archives import CLUSTER, RECORDS_A_BATCH, TIME, ship, small_records, template_segment
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.local.kafka.cluster import LocalCluster
from ts_common.store.factory import open_store
from ts_common.store.wrappers.bandwidth import Allowance
from ts_reader.options.archive_name import name_archive
from tsctl.archive_options import open_archive
from tsctl.restore.documents import Created
from tsctl.restore.host_run import HostRun
from tsctl.restore.hosts import Host
from tsctl.restore.restore_directory import RestoreDirectory

GOAL_RATIO = 0.8
GOAL_SECONDS = 5.0
BUCKET, TOPIC, SMALL = "bench", "restored", "small"
LOCATION: Final = f"s3://{BUCKET}/archive"
BARE, RESTORE = "bare boto3", "fetch and place"
THREADS = 4
SEGMENT_BYTES = 64 << 20
SMALL_SEGMENTS = 600
TOPIC_ID = "5fWnyHqTQDqQDqQDqQDqQA"
_ARCHIVE = ("--url", LOCATION, "--cluster", CLUSTER, "--entropy-bits", "0")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Copied:
    """The cost of one run.

    Attributes:
        seconds: of the work.
        cpu: its CPU seconds, all threads.
        size: bytes of the files.
    """

    seconds: float
    cpu: float
    size: int


def fill(topic: str, partitions: int, segments: int, segment_bytes: int) -> int:
    """Put partitions of whole segments; return the bytes of their `.log` objects."""
    pattern = small_records(RECORDS_A_BATCH)
    batches = max(segment_bytes // len(pattern), 1)
    records = batches * RECORDS_A_BATCH
    bases = range(0, segments * records, records)
    made = [(base, template_segment(pattern, base, RECORDS_A_BATCH, batches, TIME, RECORDS_A_BATCH)) for base in bases]
    with open_store(LOCATION) as store:
        return sum(ship(store, topic, made, segments * records, number) for number in range(partitions))


def copy_bare(directory: Path) -> Copied:
    """Copy all `.log` objects of the topic."""
    client = boto3.client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"archive/{CLUSTER}/{TOPIC}-")
    keys = [each["Key"] for page in pages for each in page.get("Contents", ()) if each["Key"].endswith(".log")]

    def copy(key: str) -> int:
        path = directory / key.replace("/", "_")
        with path.open("wb") as file:
            for chunk in client.get_object(Bucket=BUCKET, Key=key)["Body"].iter_chunks(_CHUNK_BYTES):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    cpu, began = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        size = sum(pool.map(copy, keys))
    return Copied(time.perf_counter() - began, time.process_time() - cpu, size)


def restore(directory: Path) -> Copied:
    """Fetch and place all replicas of a stopped broker, whose disk is made here."""
    plan = directory.parent / "plan"
    log_dir, steps = directory / "data", directory / "steps"
    shutil.copytree(plan, steps)
    restored = RestoreDirectory(steps)
    Created(restored.plan.plan, "kafka", {TOPIC: TOPIC_ID}).save(restored.created_file)
    for name in restored.plan.partitions:
        place = log_dir / str(name)
        place.mkdir(parents=True)
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=kafka\nnode.id=1\n")
    (log_dir / ".kafka_cleanshutdown").touch()
    properties = directory / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={log_dir}\n")
    run = HostRun(restored, Host.of(properties))
    with open_archive(name_archive(None, LOCATION, CLUSTER, 0), print) as archive:
        cpu, began = time.process_time(), time.perf_counter()
        run.fetch(archive, Allowance(), lambda _: None)
        record = run.place()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Copied(seconds, cpu, sum(each.size for each in record.partitions.values()))


def copy_apart(directory: Path, what: str) -> Copied:
    """Copy in a fresh process, into a directory that is removed then; nothing waits to be written before."""
    made = directory / "copied"
    made.mkdir()
    os.sync()
    try:
        command = [sys.executable, "-m", "dev.bench.restore", "--copy", str(made), "--what", what]
        answer = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True)
        return Copied(**json.loads(answer.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(made)


def tsctl(step: str, directory: Path, *arguments: object) -> None:
    """Run a step of the installed command."""
    program = Path(sys.executable).with_name("tsctl")
    subprocess.run([program, "restore", step, directory, *map(str, arguments)], stdout=subprocess.DEVNULL, check=True)


def plan(directory: Path, topic: str) -> None:
    """Make the plan of one topic for one broker."""
    tsctl("plan", directory, topic, "--brokers", "1", "--replication-factor", "1", *_ARCHIVE)


def start_seconds(cluster: LocalCluster) -> float:
    """Return the seconds that a stopped broker needs to start."""
    began = time.perf_counter()
    cluster.brokers[1].start()
    return time.perf_counter() - began


def start_restored(cluster: LocalCluster, directory: Path) -> tuple[float, float]:
    """Return the seconds of a start with an empty topic, and with its restored segments."""
    broker = cluster.brokers[1]
    host = ("--server-properties", broker.server_properties)
    plan(directory, SMALL)
    tsctl("create", directory, "--bootstrap-server", cluster.bootstrap, "--no-archive", *_ARCHIVE)
    broker.stop()
    empty = start_seconds(cluster)
    tsctl("fetch", directory, *host, *_ARCHIVE)
    broker.stop()
    for step in ("place", "check"):
        tsctl(step, directory, *host)
    segments = len([*broker.partition_directory(SMALL, 0).glob("*.log")])
    if segments <= SMALL_SEGMENTS:
        raise RuntimeError(f"{segments} segments were placed")
    return empty, start_seconds(cluster)


def report(found: dict[str, list[Copied]], starts: Sequence[tuple[float, float]]) -> int:
    """Print the tables and the goals; return how many were missed."""
    rows = [
        (
            name,
            f"{statistics.median(each.size / each.seconds for each in copies) / 1e6:.0f}",
            statistics.median(each.cpu / each.size * 1e9 for each in copies),
        )
        for name, copies in found.items()
    ]
    print_table(("median", "MB/s", "CPU s/GB"), rows)
    print_table(("start, s", "without segments", f"with {SMALL_SEGMENTS}"), [("", *each) for each in starts])
    print()
    ratio = median_ratio([each.seconds for each in found[BARE]], [each.seconds for each in found[RESTORE]])
    more = statistics.median(after - before for before, after in starts)
    return print_goals(
        [
            Goal("fetch and place / bare boto3", ratio, GOAL_RATIO, at_least=True),
            Goal(
                "start of a restored broker, more than without segments", more, GOAL_SECONDS, at_least=False, unit=" s"
            ),
        ]
    )


def main() -> int:
    """Fill, copy in rounds, restore a broker, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=1000, help="approximate size of the objects")
    arguments.add_argument("--partitions", type=int, default=8)
    arguments.add_argument("--repeat", type=int, default=3, help="number of rounds, after a warm-up")
    arguments.add_argument("--copy", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--what", choices=(BARE, RESTORE), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.copy is not None:
        copied = copy_bare(options.copy) if options.what == BARE else restore(options.copy)
        print(json.dumps(asdict(copied)))
        return 0
    with LocalCluster(mode="kraft", s3=True, buckets=[BUCKET], name="bench") as cluster:
        if cluster.s3 is None:
            raise RuntimeError("a cluster without an S3 server")
        os.environ.update(cluster.s3.environment())
        segments = max(round(options.megabytes * 1e6 / options.partitions / SEGMENT_BYTES), 1)
        size = fill(TOPIC, options.partitions, segments, SEGMENT_BYTES)
        print(f"{options.partitions} partitions of {segments} segments, {size / 1e6:.0f} MB", flush=True)
        fill(SMALL, 1, SMALL_SEGMENTS, 100_000)
        plan(cluster.directory / "plan", TOPIC)
        found = rounds(
            {name: partial(copy_apart, cluster.directory, name) for name in (BARE, RESTORE)}, options.repeat, 1
        )
        starts = [start_restored(cluster, cluster.directory / "small")]
    if {each.size for each in found[BARE]} != {size} or min(each.size for each in found[RESTORE]) < size:
        raise RuntimeError(f"{size} bytes were put, and others were copied: {found}")
    return exit_code(report(found, starts), options)


if __name__ == "__main__":
    sys.exit(main())
