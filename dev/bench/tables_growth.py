"""`python -m dev.bench.tables_growth`: what a run of a table costs as its segments become many, or large.

Topics of two partitions on S3, for an Iceberg table with its catalog in SQLite, and for Parquet files:

- ten segments of 128 KiB in each partition, ten times and a hundred times as many: seconds of a run with two workers,
  and the memory of the driver;
- one segment of 1 GiB without `.index`, uncompressed and zstd, which one task reads: the memory of its worker process.

Each run is in a fresh process, which first runs a table of a small topic. So imports and compiled code do not count:
memory is the peak (`VmHWM`) above what the process had after the small table. `tests/tables/test_requests.py` counts
the requests of a run that finds nothing new.

Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from dev.bench.measuring.made_archives import (
    CLUSTER,
    NONE,
    RECORDS_A_BATCH,
    TIME,
    ZSTD,
    ship,
    small_records,
    template_segment,
)
from dev.bench.measuring.new_tables import NewTables, sql_catalog
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.processes import PeakMemory
from dev.bench.measuring.s3_server import s3_server
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.execution.process_pool import run_in_worker

BUCKET: Final = "bench"
URL: Final = f"s3://{BUCKET}/growth"
PARTITIONS: Final = 2
SCALES: Final = (1, 10, 100)
SMALL: Final = "small"
SEGMENT_BYTES: Final = 128 << 10
KINDS: Final = {"Iceberg table": False, "Parquet files": True}
LARGE: Final = {"none": NONE, "zstd": ZSTD}
SLOWER, DRIVER_MB, TASK_MB = 1.5, 500.0, 500.0
_WORKER: Final = "ts_reader.execution.worker_start"


@dataclass(frozen=True)
class Measured:
    """What a process measured.

    Attributes:
        records: that the run added.
        seconds: of the run.
        driver_mb: peak of the process above what it had after the small table, in MB.
        worker_mb: the same of the worker process with the most.
    """

    records: int
    seconds: float
    driver_mb: float
    worker_mb: float


def put_segments(store: ObjectStore, topic: str, segments: int, size: int, codec: int = NONE) -> int:
    """Put small segments in each partition; return the number of records.

    Args:
        segments: of each partition.
        size: of a segment, in bytes.
        codec: of its batches.
    """
    pattern = small_records(RECORDS_A_BATCH, codec)
    batches = size // len(pattern)
    records = RECORDS_A_BATCH * batches
    for partition in range(PARTITIONS):
        made = [
            (base, template_segment(pattern, base, RECORDS_A_BATCH, batches, TIME + base, RECORDS_A_BATCH))
            for base in range(0, records * segments, records)
        ]
        ship(store, topic, made, records * segments, partition)
    return PARTITIONS * segments * records


def put_large(store: ObjectStore, topic: str, size: int, codec: int) -> int:
    """Put one segment that cannot be split; return the number of records; parameters as of `put_segments`."""
    pattern = small_records(RECORDS_A_BATCH, codec)
    batches = size // len(pattern)
    log, _, _ = template_segment(pattern, 0, RECORDS_A_BATCH, batches, TIME, RECORDS_A_BATCH)
    ship(store, topic, [(0, (log, b"", b""))], RECORDS_A_BATCH * batches)
    return RECORDS_A_BATCH * batches


def large(codec: str) -> str:
    """Return the topic of a large segment."""
    return f"large-{codec}"


def scaled(scale: int) -> str:
    """Return the topic of so many times the segments."""
    return f"growth-{scale}"


def run_here(topic: str, catalog: dict[str, str], *, is_plain: bool, in_one: bool) -> Measured:
    """Run a table of the small topic and one of another topic; return what the second run needed.

    Args:
        topic: of the second table.
        catalog: of Iceberg tables.
        is_plain: whether both have plain files.
        in_one: whether one worker process does all tasks; otherwise two do.
    """
    engine = _in_one_worker if in_one else None
    new = NewTables({"url": URL, "cluster": CLUSTER}, f"s3://{BUCKET}/plain", catalog, engine=engine)
    new.run(SMALL, is_plain=is_plain).drop()
    driver, workers = PeakMemory(os.getpid()), list(_workers())
    peaks = [PeakMemory(each.pid) for each in workers]
    run = new.run(topic, is_plain=is_plain)
    measured = Measured(run.summary.records, run.seconds, driver.megabytes, max(each.megabytes for each in peaks))
    if (now := list(_workers())) != workers:
        raise RuntimeError(f"the second table was run by other worker processes, {now}, than the small one, {workers}")
    run.drop()
    return measured


def _in_one_worker(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    return [run_in_worker(task) for task in tasks]


def _workers() -> Iterator[psutil.Process]:
    for each in sorted(psutil.Process().children(), key=lambda child: child.pid):
        if _WORKER in each.cmdline():
            yield each


def run_apart(topic: str, catalog: dict[str, str], *, is_plain: bool, in_one: bool = False) -> Measured:
    """Do as `run_here` in a fresh process.

    Raises:
        RuntimeError: it failed; its standard error has the reason.
    """
    said = json.dumps({"topic": topic, "catalog": catalog, "is_plain": is_plain, "in_one": in_one})
    command = [sys.executable, "-m", "dev.bench.tables_growth", "--run", said]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a run of a table of {topic} ended with {done.returncode}")
    return Measured(**json.loads(done.stdout))


def check(found: dict[str, list[Measured]], records: int) -> None:
    """Check that each run added all records.

    Raises:
        RuntimeError: one did not.
    """
    wrong = {name: each.records for name, runs in found.items() for each in runs if each.records != records}
    if wrong:
        raise RuntimeError(f"{records} records were shipped; added were {wrong}")


def measure_growth(catalog: dict[str, str], records: dict[int, int], segments: int, repeat: int) -> list[Goal]:
    """Print the cost of more segments; return the goals.

    Args:
        catalog: of Iceberg tables.
        records: of each scale.
        segments: of each partition at the first scale.
        repeat: the number of rounds.
    """
    things = {
        f"{kind}, {scale}": partial(run_apart, scaled(scale), catalog, is_plain=is_plain)
        for kind, is_plain in KINDS.items()
        for scale in SCALES
    }
    found = rounds(things, repeat)
    rows, goals = [], []
    for kind in KINDS:
        runs = {scale: found[f"{kind}, {scale}"] for scale in SCALES}
        each = {
            scale: [one.seconds * 1000 / (PARTITIONS * segments * scale) for one in runs[scale]] for scale in SCALES
        }
        for scale in SCALES:
            check({f"{kind}, {scale}": runs[scale]}, records[scale])
            rows.append(
                (
                    f"{kind}, {PARTITIONS * segments * scale} segments",
                    statistics.median(one.seconds for one in runs[scale]),
                    statistics.median(each[scale]),
                    max(one.driver_mb for one in runs[scale]),
                    max(one.worker_mb for one in runs[scale]),
                )
            )
        most, fewer = SCALES[-1], SCALES[-2]
        slower = median_ratio(each[most], each[fewer])
        goals.append(Goal(f"{kind}: time of a segment, {most} / {fewer} times", slower, SLOWER, at_least=False))
        peak = max(one.driver_mb for one in runs[most])
        goals.append(Goal(f"{kind}: driver, {most} times", peak, DRIVER_MB, at_least=False, unit=" MB"))
    print_table(("", "seconds", "ms a segment", "driver MB", "worker MB"), rows)
    print(flush=True)
    return goals


def measure_large(catalog: dict[str, str], records: dict[str, int]) -> list[Goal]:
    """Print the memory of a task with a large segment, by the codecs of `records`; return the goals."""
    rows, goals = [], []
    for codec, shipped in records.items():
        for kind, is_plain in KINDS.items():
            one = run_apart(large(codec), catalog, is_plain=is_plain, in_one=True)
            check({kind: [one]}, shipped)
            rows.append((f"{kind}, {codec}", one.records, one.seconds, one.driver_mb, one.worker_mb))
            name = f"{kind}: a task with one segment, {codec}"
            goals.append(Goal(name, one.worker_mb, TASK_MB, at_least=False, unit=" MB"))
    print_table(("one segment", "records", "seconds", "driver MB", "worker MB"), rows)
    print(flush=True)
    return goals


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--segments", type=int, default=10, help="small ones of each partition, at the first scale")
    arguments.add_argument("--mebibytes", type=int, default=1024, help="size of the large segments")
    arguments.add_argument("--repeat", type=int, default=3, help="rounds of the runs of small segments")
    arguments.add_argument("--run", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.run is not None:
        print(json.dumps(vars(run_here(**json.loads(options.run)))))
        return 0
    with ExitStack() as ending:
        server, directory = ending.enter_context(s3_server("growth", BUCKET))
        catalog = sql_catalog(server, directory, BUCKET)
        with open_store(URL) as store:
            put_segments(store, SMALL, 1, SEGMENT_BYTES)
            small = {
                scale: put_segments(store, scaled(scale), options.segments * scale, SEGMENT_BYTES) for scale in SCALES
            }
            sizes = {
                codec: put_large(store, large(codec), options.mebibytes << 20, number)
                for codec, number in LARGE.items()
            }
        goals = measure_growth(catalog, small, options.segments, options.repeat)
        goals += measure_large(catalog, sizes)
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
