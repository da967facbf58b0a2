"""`python -m dev.bench.cold_start`: the time of the first query of a session.

Each query runs in a fresh process with its own session, local[2]; time runs from the start of the session to the result
of its first query, in rounds:

- over a range of numbers, which is Spark alone, without Python;
- over a topic by Spark's own Kafka source, from the broker;
- over as many ready Arrow batches (`dev.bench.measuring.ready_batches`): the cost of the interface of Python data
  sources. Spark starts Python processes one after another to look for data sources, to make one, to plan and to read;
- over the same topic by `kafka_segments`, from S3, with the compiled code cached;
- the same with an empty cache of compiled code (once for each installation and machine), printed separately.

All but the first run the same query. The goal: less than 3 s more than Spark alone, if the compiled code is cached. The
interface's share of that is printed too. Exits with 1 if it is missed; `--no-gate` only prints.
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

from dev.bench.measuring.agent_runs import CLUSTER, ship_with_agent
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table, rounds
from dev.bench.measuring.topics import close_last, produce
from dev.bench.spark import BUCKET, scan, session
from dev.local.kafka.cluster import LocalCluster

SECONDS: Final = 3.0
TOPIC: Final = "bench-cold"
NUMBERS, KAFKA_SOURCE = "Spark alone", "Spark's Kafka source"
INTERFACE, OURS, COMPILING = "ready Arrow batches", "kafka_segments", "compiling"
_RESULT: Final = "seconds "


def numbers(spark: SparkSession) -> None:
    """Run Spark's own first query."""
    spark.range(1_000_000).selectExpr("sum(id)", "max(id)", "count(1)").collect()


def kafka(spark: SparkSession, bootstrap: str, end: int) -> None:
    """Read the topic from the broker."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    scan(reader.option("endingOffsets", json.dumps({TOPIC: {"0": end}})).load())


def interface(spark: SparkSession, rows: int) -> None:
    """Read as many rows of ready batches, from one task."""
    scan(spark.read.format("ready_batches").option("partitions", "1").option("rows", str(rows)).load())


def ours(spark: SparkSession) -> None:
    """Read the topic from S3."""
    reader = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", TOPIC)
    scan(reader.load(f"s3://{BUCKET}/cold"))


def measure(what: str, bootstrap: str, end: int) -> None:
    """Print the seconds of a session's first query; it runs in its own process."""
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
    """Return the seconds of a fresh session's first query.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "dev.bench.cold_start", "--measure", what, bootstrap, str(end)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if done.returncode or not said:
        raise RuntimeError(f"{what}: {done.stderr[-4000:]}")
    return float(said[0].removeprefix(_RESULT))


def main() -> int:
    """Fill, ship, query in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--repeat", type=int, default=5)
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
            raise RuntimeError("the cluster has no S3 server")
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
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
