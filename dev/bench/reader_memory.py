"""`python -m dev.bench.reader_memory`: the memory of a scan by the Python reader, in all its processes.

Topics of two partitions in a directory, one segment each: 1 GiB of batches of 16 KiB, and records of 1 MB, eight to a
batch; uncompressed and zstd. Each scan runs in a fresh process, with one worker and with two, with `memory_limit` of
256 MiB. The benchmark sums the proportional set sizes of the process and its workers, so that shared memory counts
once. Imports do not count: the first figure is that after a scan of a small topic in all processes.

The goal: at most `memory_limit` + 50 MB above that. Exits with 1 if it is missed; `--no-gate` only prints.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

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
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals
from dev.bench.worker_memory import LARGE_A_BATCH, large_records
from ts_common.store.factory import open_store
from ts_reader import Archive
from ts_reader.execution import run

LIMIT: Final = 256 << 20
ABOVE_MB: Final = 50.0
PARTITIONS: Final = 2
SMALL: Final = "small"
_EVERY_SECONDS: Final = 0.02
_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def fill(location: str, size: int) -> list[str]:
    """Put the topics; return their names."""
    kinds = {"batches of 16 KiB": (small_records, RECORDS_A_BATCH), "records of 1 MB": (large_records, LARGE_A_BATCH)}
    names = []
    with open_store(location) as store:
        for kind, (_, records) in kinds.items():
            for codec_name, codec in (("none", NONE), ("zstd", ZSTD)):
                pattern = small_records(records, codec) if kind.startswith("batches") else large_records(codec)
                name = f"{kind}, {codec_name}"
                topic = re.sub(r"\W+", "-", name)
                names.append(topic)
                count = size // len(pattern)
                for partition in range(PARTITIONS):
                    segment = template_segment(pattern, 0, records, count, TIME, records)
                    ship(store, topic, [(0, segment)], records * count, partition)
        for partition in range(PARTITIONS):
            segment = template_segment(small_records(RECORDS_A_BATCH), 0, RECORDS_A_BATCH, 1, TIME, 1)
            ship(store, SMALL, [(0, segment)], RECORDS_A_BATCH, partition)
    return names


def memory(process: psutil.Process) -> int:
    """Return the bytes of a process and its children; shared memory counts once."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(OSError, psutil.Error):
            found = _PSS.search(Path(f"/proc/{each.pid}/smaps_rollup").read_text())
            total += int(found[1]) << 10 if found else 0
    return total


def scan_here(location: str, topic: str, workers: int) -> None:
    """Scan a small topic; wait for a line; scan the topic, and drop its batches. A line follows each scan."""
    run.PROCESSES_FROM_BYTES = 0  # type: ignore[misc]  # a small topic too is read by workers
    archive = Archive(location, CLUSTER, workers=workers)
    for each in (SMALL, topic):
        rows = sum(batch.num_rows for batch in archive.scan(each, memory_limit=LIMIT))
        print(rows, flush=True)
        sys.stdin.readline()


def measure(location: str, topic: str, workers: int) -> float:
    """Return how much more memory a scan used than its processes had before, in MB."""
    command = [sys.executable, "-m", "dev.bench.reader_memory", "--scan", topic, "--location", location]
    with subprocess.Popen(
        [*command, "--workers", str(workers)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("no pipes")
        process = psutil.Process(child.pid)
        child.stdout.readline()
        before = peak = memory(process)
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(_EVERY_SECONDS):
                peak = max(peak, memory(process))

        watching = threading.Thread(target=watch, name="memory-watch")
        watching.start()
        print(file=child.stdin, flush=True)
        rows = child.stdout.readline()
        ended.set()
        watching.join()
        child.communicate("\n")
        if not rows.strip() or child.returncode:
            raise RuntimeError(f"the scan of {topic} ended with {child.returncode}")
    return (peak - before) / 1e6


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=1024, help="size of a segment, in MiB")
    arguments.add_argument("--scan", help=argparse.SUPPRESS)
    arguments.add_argument("--location", help=argparse.SUPPRESS)
    arguments.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.scan is not None:
        scan_here(options.location, options.scan, options.workers)
        return 0
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    goals = []
    with tempfile.TemporaryDirectory(prefix="bench-reader-memory.", dir=build) as directory:
        location = Path(directory).as_uri()
        for topic in fill(location, options.megabytes << 20):
            for workers in (1, PARTITIONS):
                used = measure(location, topic, workers)
                bound = LIMIT / 1e6 + ABOVE_MB
                goals.append(Goal(f"{topic}, {workers} workers", used, bound, at_least=False, unit=" MB"))
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
