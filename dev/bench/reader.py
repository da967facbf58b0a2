"""`python -m dev.bench.reader`: full scans by the Python reader, and their parts alone.

A topic of two partitions for each codec, in a directory and on S3: segments of 64 MiB, values of 300 bytes, batches of
16 KiB that differ. Each round measures, for each codec:

- the reader with one worker, from the directory; and the same files read into one buffer and decoded, in this process;
- the reader with two workers, from the directory; and two processes that scan one partition each, with one worker;
- the reader with two workers, from S3; and the same objects fetched from S3 on two threads, and dropped. Without a
  loss, the reader needs the sum of fetching alone and decoding alone.

Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dev.bench.measuring.made_archives import CLUSTER, LZ4, NONE, TIME, ZSTD, ship, small_records, template_segment
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.s3_server import s3_server
from ts_common.store.factory import open_store
from ts_reader import Archive
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import COLUMNS
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder

CODECS = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}
BUCKET = "bench"
SEGMENT_BYTES = 64 << 20
PARTITIONS = 2
RECORDS_A_BATCH = 51
ONE_CORE, TWO_CORES, FROM_S3 = 0.85, 0.9, 0.85
MEMORY_LIMIT = 512 << 20
READER_1, BARE = "reader, one worker", "one buffer, decoded"
READER_2, HALVES = "reader, two workers", "two processes, half each"
READER_S3, FETCHING = "reader, S3", "fetching from S3"
_CHUNK_BYTES = 8 << 20


def fill(location: str, segments: int) -> None:
    """Put a topic for each codec."""
    with open_store(location) as store:
        for name, codec in CODECS.items():
            pattern = small_records(RECORDS_A_BATCH, codec)
            batches = SEGMENT_BYTES // len(pattern)
            for partition in range(PARTITIONS):
                made, base = [], 0
                for _ in range(segments):
                    made.append(
                        (base, template_segment(pattern, base, RECORDS_A_BATCH, batches, TIME + base, RECORDS_A_BATCH))
                    )
                    base += RECORDS_A_BATCH * batches
                ship(store, name, made, base, partition)


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def consume(archive: Archive, topic: str) -> int:
    """Read all batches, and drop each."""
    return sum(batch.num_rows for batch in archive.scan(topic, memory_limit=MEMORY_LIMIT))


def bare(root: Path, topic: str) -> Callable[[], int]:
    """Return a run that reads each file into one buffer, and decodes it to Arrow."""
    logs = sorted((root / CLUSTER).glob(f"{topic}-*/*.log"))
    buffer = bytearray(max(log.stat().st_size for log in logs))
    view, pool = memoryview(buffer), BufferPool(Projection(headers=False), MAX_ROWS, MAX_BYTES)

    def run() -> int:
        rows = 0
        for log in logs:
            with log.open("rb", buffering=0) as file:
                size = file.readinto(view)
            decoder = SegmentDecoder(Projection(headers=False), size=size, pool=pool)
            for columns in decoder.decode([view[:size]]):
                rows += to_arrow(columns, topic, 0, COLUMNS).num_rows
        return rows

    return run


class Halves:
    """Two processes of a benchmark that read one partition of a topic each, again and again.

    Args:
        module: of the benchmark; its `--half` reads topics from standard input, and answers each with a line.
    """

    def __init__(self, module: str, location: str) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, "--half", str(partition), "--location", location],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for partition in range(PARTITIONS)
        ]

    def run(self, topic: str) -> None:
        """Give both a topic, and wait for them."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{topic}\n")
            process.stdin.flush()
        for process in self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("a process that reads half ended")

    def end(self) -> None:
        """End both."""
        for process in self._processes:
            process.communicate()


def scan_half(location: str, partition: int) -> None:
    """Scan a partition of each topic that is named on standard input."""
    archive = Archive(location, CLUSTER, workers=1)
    for line in sys.stdin:
        scan = archive.scan(line.strip(), partitions=[partition], memory_limit=MEMORY_LIMIT)
        print(sum(batch.num_rows for batch in scan), flush=True)


def fetch_all(location: str, topic: str) -> Callable[[], int]:
    """Return a run that fetches all `.log` objects of a topic on two threads."""
    store = open_store(location)
    keys = [info.key for info in store.list(f"{CLUSTER}/{topic}-") if info.key.endswith(".log")]

    def fetch(key: str) -> int:
        count = 0
        with store.open(key) as stream:
            while data := stream.read(_CHUNK_BYTES):
                count += len(data)
        return count

    def run() -> int:
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(fetch, keys))

    return run


def measure(root: Path, url: str, repeat: int) -> list[Goal]:
    """Print the seconds of each thing for each codec; return the goals."""
    goals: list[Goal] = []
    location = root.as_uri()
    one, two, remote = (
        Archive(location, CLUSTER, workers=1),
        Archive(location, CLUSTER, workers=2),
        Archive(url, CLUSTER, workers=2),
    )
    halves = Halves("dev.bench.reader", location)
    table = []
    try:
        for codec in CODECS:
            things: dict[str, Callable[[], Any]] = {
                READER_1: partial(consume, one, codec),
                BARE: bare(root, codec),
                READER_2: partial(consume, two, codec),
                HALVES: partial(halves.run, codec),
                READER_S3: partial(consume, remote, codec),
                FETCHING: fetch_all(url, codec),
            }
            found = rounds({name: partial(seconds, run) for name, run in things.items()}, repeat, warm_up=2)
            table.append((codec, *(statistics.median(found[name]) for name in things)))
            without_loss = [fetch + decode for fetch, decode in zip(found[FETCHING], found[HALVES], strict=True)]
            goals += [
                Goal(f"{codec}: one core / bare decoding", median_ratio(found[BARE], found[READER_1]), ONE_CORE, True),
                Goal(
                    f"{codec}: two cores / two processes", median_ratio(found[HALVES], found[READER_2]), TWO_CORES, True
                ),
                Goal(
                    f"{codec}: S3 / fetching, then decoding",
                    median_ratio(without_loss, found[READER_S3]),
                    FROM_S3,
                    True,
                ),
            ]
    finally:
        halves.end()
    print_table(("seconds", READER_1, BARE, READER_2, HALVES, READER_S3, FETCHING), table)
    return goals


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--segments", type=int, default=4, help="of each partition")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after two that warm up")
    arguments.add_argument("--half", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--location", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.half is not None:
        scan_half(options.location, options.half)
        return 0
    with ExitStack() as ending:
        _, directory = ending.enter_context(s3_server("reader", BUCKET))
        root = directory / "store"
        root.mkdir()
        url = f"s3://{BUCKET}/base"
        fill(root.as_uri(), options.segments)
        fill(url, options.segments)
        goals = measure(root, url, options.repeat)
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
