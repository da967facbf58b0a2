"""`python -m bench.cold_start`: what the first query of a session costs.

Each is a fresh process with a session of its own, local[2]; time runs from the session being there to the result of its
first query, in rounds:

- over a range of numbers, which is Spark alone, without Python;
- over a topic by Spark's own Kafka source, from the broker;
- over as many ready-made Arrow batches (`bench.ready_batches`): what the interface of Python data sources costs, since
  Spark starts a Python process each to look for data sources, to make one, to plan and to read;
- over the same topic by `kafka_segments`, from S3, with the compiled code cached;
- the same with an empty cache of compiled code (once per installation and machine), printed apart.

All but the first run the same query. The goal: under 3 s more than Spark alone, once the compiled code is cached; how
much of that is the interface's is printed beside it. Exits with 1 where it is missed; `--no-gate` only prints.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.agent_runs import CLUSTER, ship_with_agent
from bench.pairs import Goal, print_goals, print_table, rounds
from bench.spark import BUCKET, scan, session
from bench.topics import close_last, produce
from ts_local.cluster import LocalCluster

SECONDS: Final = 3.0
TOPIC: Final = "bench-cold"
NUMBERS, KAFKA_SOURCE = "Spark alone", "Spark's Kafka source"
INTERFACE, OURS, COMPILING = "ready Arrow batches", "kafka_segments", "compiling"
_RESULT: Final = "seconds "


def numbers(spark: SparkSession) -> None:
    """Spark's own first query."""
    spark.range(1_000_000).selectExpr("sum(id)", "max(id)", "count(1)").collect()


def kafka(spark: SparkSession, bootstrap: str, end: int) -> None:
    """All of the topic from the broker."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    scan(reader.option("endingOffsets", json.dumps({TOPIC: {"0": end}})).load())


def interface(spark: SparkSession, rows: int) -> None:
    """Ready-made batches of as many rows, from one task."""
    scan(spark.read.format("ready_batches").option("partitions", "1").option("rows", str(rows)).load())


def ours(spark: SparkSession) -> None:
    """All of the topic from S3."""
    reader = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", TOPIC)
    scan(reader.load(f"s3://{BUCKET}/cold"))


def measure(what: str, bootstrap: str, end: int) -> None:
    """In a process of its own: print the seconds of a session's first query."""
    queries: dict[str, Callable[[SparkSession], None]] = {
        NUMBERS: numbers,
        KAFKA_SOURCE: partial(kafka, bootstrap=bootstrap, end=end),
        INTERFACE: partial(interface, rows=end),
        OURS: ours,
    }
    with tempfile.TemporaryDirectory(prefix="bench-cold.") as directory:
        spark = session(Path(directory))
        began = time.perf_counter()
        queries[what](spark)
        print(f"{_RESULT}{time.perf_counter() - began}", flush=True)
        spark.stop()


def first_query(what: str, bootstrap: str, end: int, environment: Mapping[str, str]) -> float:
    """Seconds of a fresh session's first query.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "bench.cold_start", "--measure", what, bootstrap, str(end)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if done.returncode or not said:
        raise RuntimeError(f"{what}: {done.stderr[-4000:]}")
    return float(said[0].removeprefix(_RESULT))


def main() -> int:
    """Fill, ship, ask in turn, report."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--no-gate", action="store_true", help="exit with 0 also where a goal is missed")
    arguments.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure:
        measure(options.measure[0], options.measure[1], int(options.measure[2]))
        return 0
    with (
        LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster,
        tempfile.TemporaryDirectory(prefix="bench-compiled.") as empty,
    ):
        if cluster.s3 is None:
            raise RuntimeError("an S3 server was asked for")
        os.environ.update(cluster.s3.environment())
        cluster.create_topic(TOPIC)
        produce(cluster, TOPIC, 0, "lz4", options.records)
        parts = close_last(cluster, TOPIC, [0])
        url = f"s3://{BUCKET}/cold"
        ship_with_agent(cluster, url, TOPIC, parts, name="agent-cold", environment=cluster.s3.environment())
        ask = partial(first_query, bootstrap=cluster.bootstrap, end=parts[0].end)
        cached = {"NUMBA_CACHE_DIR": empty}
        compiling = ask(OURS, environment=cached)
        found = rounds(
            {what: partial(ask, what, environment=cached) for what in (NUMBERS, KAFKA_SOURCE, INTERFACE, OURS)},
            options.repeat,
        )
    rows = [(what, statistics.median(times), f"{min(times):.2f} to {max(times):.2f}") for what, times in found.items()]
    rows.append((f"{OURS}, {COMPILING}", compiling, "once"))
    print_table(("first query of a session", "seconds", "range"), rows)
    print()

    def beyond(one: str, other: str) -> float:
        return statistics.median(more - less for more, less in zip(found[one], found[other], strict=True))

    print(f"the interface, beyond {NUMBERS}: {beyond(INTERFACE, NUMBERS):.2f} s")
    print(f"{OURS}, beyond the interface: {beyond(OURS, INTERFACE):.2f} s")
    missed = print_goals([Goal(f"{OURS} beyond {NUMBERS}", beyond(OURS, NUMBERS), SECONDS, at_least=False, unit=" s")])
    return 1 if missed and not options.no_gate else 0


if __name__ == "__main__":
    sys.exit(main())
