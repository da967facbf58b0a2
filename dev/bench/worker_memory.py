"""`python -m dev.bench.worker_memory`: the peak memory of a Python worker of Spark for one task.

Topics of one partition and one segment in an S3 bucket, all columns, local[1]. Each is read by its own Spark, and the
benchmark watches the `VmHWM` of its Python processes:

- 1 GiB of batches of 16 KiB, uncompressed and zstd; the `.index` cuts it into tasks of 128 MiB;
- the same without `.index`, so that one task reads all of it;
- records of 1 MB, uncompressed and zstd, eight to a batch.

Exits with 1 if a worker held 400 MB or more; `--no-gate` only prints.
"""

import multiprocessing
import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil

from dev.bench.measuring.made_archives import (
    CLUSTER,
    NONE,
    RECORDS_A_BATCH,
    TIME,
    ZSTD,
    batch_of,
    ship,
    small_records,
    template_segment,
)
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.spark import scan, session
from dev.local.stores.s3 import S3Server
from ts_common.store.factory import open_store

BUCKET: Final = "bench"
MEGABYTES: Final = 400.0
LARGE_VALUE: Final = 1_000_000
LARGE_A_BATCH: Final = 8
_EVERY_SECONDS: Final = 0.02


def large_records(codec: int) -> bytes:
    """Return a batch of records of a megabyte, half of it random."""
    generator = random.Random(7)
    return batch_of([generator.randbytes(LARGE_VALUE // 2) * 2 for _ in range(LARGE_A_BATCH)], codec)


class WorkerWatch(threading.Thread):
    """Samples every Python process below this one until `ended` is set; keeps the peak of any of them."""

    def __init__(self) -> None:
        super().__init__(name="worker-watch", daemon=True)
        self.ended = threading.Event()
        self.peak_kib = 0

    def run(self) -> None:
        """Sample."""
        while not self.ended.wait(_EVERY_SECONDS):
            for process in psutil.Process().children(recursive=True):
                try:
                    command = process.cmdline()
                    status = Path(f"/proc/{process.pid}/status").read_text()
                except (psutil.Error, OSError):
                    continue
                if "pyspark.daemon" in " ".join(command) or "pyspark.worker" in " ".join(command):
                    found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
                    self.peak_kib = max([self.peak_kib, *found])


def read(topic: str, result: "multiprocessing.SimpleQueue[tuple[int, float, float]]") -> None:
    """Read a topic in this process; return records, seconds, and the workers' peak in MB."""
    with tempfile.TemporaryDirectory(prefix="bench-memory.") as directory:
        spark = session(Path(directory), master="local[1]")
        watch = WorkerWatch()
        watch.start()
        reader = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", topic)
        found = scan(reader.load(f"s3://{BUCKET}/memory"))
        watch.ended.set()
        watch.join()
        spark.stop()
    result.put((found.records, found.seconds, watch.peak_kib * 1024 / 1e6))


def main() -> int:
    """Fill, read, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--mebibytes", type=int, default=1024, help="size of each segment, uncompressed")
    options = arguments.parse_args()
    patterns: dict[str, tuple[Callable[[], bytes], int]] = {
        "small-none": (lambda: small_records(RECORDS_A_BATCH), RECORDS_A_BATCH),
        "small-zstd": (lambda: small_records(RECORDS_A_BATCH, ZSTD), RECORDS_A_BATCH),
        "large-none": (lambda: large_records(NONE), LARGE_A_BATCH),
        "large-zstd": (lambda: large_records(ZSTD), LARGE_A_BATCH),
    }
    goals, rows = [], []
    spawned = multiprocessing.get_context("spawn")
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-memory.", dir=build) as directory, ExitStack() as opened:
        server = S3Server(Path(directory), Path(directory))
        server.start()
        opened.callback(server.stop)
        server.create_bucket(BUCKET)
        os.environ.update(server.environment())
        for name, (pattern_of, records) in patterns.items():
            pattern = pattern_of()
            batches = (options.mebibytes << 20) // len(pattern)
            made = template_segment(pattern, 0, records, batches, TIME, 100)
            for topic, files in ((name, made), (f"{name}-whole", (made[0], b"", b""))):
                with open_store(f"s3://{BUCKET}/memory") as store:
                    size = ship(store, topic, [(0, files)], batches * records)
                queue: multiprocessing.SimpleQueue[tuple[int, float, float]] = spawned.SimpleQueue()
                process = spawned.Process(target=read, args=(topic, queue))
                process.start()
                process.join()
                if process.exitcode:
                    raise RuntimeError(f"reading {topic} failed")
                found, seconds, peak = queue.get()
                if found != batches * records:
                    raise RuntimeError(f"{topic}: {found} records were read of {batches * records}")
                rows.append((topic, size >> 20, found, seconds, peak))
                goals.append(Goal(f"{topic}: a worker's peak", peak, MEGABYTES, at_least=False, unit=" MB"))
    print_table(("one segment", "MiB", "records", "seconds", "peak MB"), rows)
    print()
    missed = print_goals(goals)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
