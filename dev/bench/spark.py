"""`python -m dev.bench.spark`: full scans through Spark, and peers that read the same records.

A topic of two partitions for each codec, all segments closed and shipped to S3 and to a directory. One session,
local[2], runs one query over all columns: count, sum of lengths, maxima. Each round runs it over each source, and reads
the topic with a Java consumer:

- `kafka_segments` from S3, and from the directory; and again with a schema of offset and timestamp only;
- Spark's own Kafka source, from the broker;
- ready Arrow batches (`dev.bench.measuring.ready_batches`): the ceiling of the interface of Python data sources; and
  one row of them, which is the fixed time of any query through that interface;
- the same `.log` objects fetched from S3 on two threads, and dropped: server and client share the cores;
- Kafka's Java consumer without Spark, warm.

A row costs the JVM about as much as the readers. So the CPU of Spark's Python workers for a record, which is what this
project can change, is printed next to the rates. gzip and snappy have no goals. Ratios without the fixed time of a
query are printed too, without goals. Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as sql

from dev.bench.measuring.agent_runs import CLUSTER, ship_with_agent
from dev.bench.measuring.java_parts import JavaConsumer, spark_kafka_jars
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.ready_batches import ReadyBatches
from dev.bench.measuring.topics import SEGMENT_BYTES, ClosedPart, close_last, produce
from dev.local.kafka.cluster import LocalCluster
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

CEILING_RATIO = {"none": 0.75, "lz4": 0.75, "zstd": 0.65}
NARROW_RATIO = 3.0
KAFKA_SOURCE_RATIO = 2.0
BUCKET = "bench"
ARCHIVE_URL = f"s3://{BUCKET}/spark"
CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
PARTITIONS = 2
OURS_S3, OURS_FILE = "kafka_segments, S3", "kafka_segments, directory"
NARROW = ", offset and timestamp only"
NARROW_SCHEMA = "offset bigint, timestamp timestamp"
KAFKA_SOURCE, CEILING, CONSUMER = "Spark's Kafka source", "ready Arrow batches", "Java consumer (no Spark)"
ANY_QUERY, FETCHING = "one row of ready Arrow batches", "fetching from S3 (no Spark)"
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Scan:
    """The result and the cost of a scan.

    Attributes:
        seconds: by the clock.
        python_seconds: CPU seconds of Spark's Python workers.
    """

    records: int
    size: int
    greatest_offset: int
    seconds: float
    python_seconds: float = 0.0


def session(
    directory: Path, master: str = "local[2]", jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session with Spark's own Kafka source and the ready batches; workers find this package.

    Args:
        directory: of Spark's files.
    """
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .appName("bench")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.jars", ",".join(map(str, [*spark_kafka_jars(), *jars])))
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ReadyBatches)
    return spark


def python_seconds() -> float:
    """Return the CPU seconds of all Python processes below the JVMs of this process so far, ended workers too."""
    found = 0.0
    for jvm in psutil.Process().children():
        for process in jvm.children(recursive=True) if jvm.name() == "java" else ():
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith("python"):
                    found += sum(process.cpu_times()[:4])  # user, system, and those of children that ended
    return found


def collected(query: DataFrame) -> tuple[Row, float, float]:
    """Return the row of a query, its seconds, and the CPU seconds of Spark's Python workers."""
    used, began = python_seconds(), time.perf_counter()
    row = query.collect()[0]
    return row, time.perf_counter() - began, python_seconds() - used


def narrow_scan(table: DataFrame) -> Scan:
    """Run a query on two columns of every row."""
    query = table.agg(sql.count(sql.lit(1)), sql.max("offset"), sql.max("timestamp"))
    row, *cost = collected(query)
    return Scan(int(row[0]), 0, int(row[1]), *cost)


def scan(table: DataFrame) -> Scan:
    """Run a query on every column of every row."""
    query = table.agg(
        sql.count(sql.lit(1)),
        sql.sum(sql.length("key")) + sql.sum(sql.length("value")),
        sql.max("offset"),
        sql.max("topic"),
        sql.max("partition"),
        sql.max("timestamp"),
        sql.max("timestampType"),
    )
    row, *cost = collected(query)
    return Scan(int(row[0]), int(row[1]), int(row[2]), *cost)


def sources(
    spark: SparkSession, cluster: LocalCluster, topic: str, parts: Sequence[ClosedPart], directory: Path
) -> dict[str, Callable[[], Scan]]:
    """Return each source as a call that plans its query again and scans all of it."""
    ends = {str(part.partition): part.end for part in parts}

    def ours(location: str) -> Callable[[], Scan]:
        reader = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", topic)
        return lambda: scan(reader.load(location))

    def narrow(location: str) -> Callable[[], Scan]:
        reader = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", topic)
        return lambda: narrow_scan(reader.schema(NARROW_SCHEMA).load(location))

    def kafka() -> Scan:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return scan(reader.option("endingOffsets", json.dumps({topic: ends})).load())

    def ready(rows: int) -> Scan:
        return scan(ready_rows(rows).load())

    def ready_narrow() -> Scan:
        return narrow_scan(ready_rows(sum(ends.values())).schema(NARROW_SCHEMA).load())

    def ready_rows(rows: int) -> DataFrameReader:
        return spark.read.format("ready_batches").option("partitions", str(PARTITIONS)).option("rows", str(rows))

    on_s3, on_disk = ARCHIVE_URL, directory.as_uri()
    return {
        OURS_S3: ours(on_s3),
        OURS_FILE: ours(on_disk),
        OURS_S3 + NARROW: narrow(on_s3),
        OURS_FILE + NARROW: narrow(on_disk),
        KAFKA_SOURCE: kafka,
        CEILING: partial(ready, sum(ends.values())),
        CEILING + NARROW: ready_narrow,
        ANY_QUERY: partial(ready, 1),
        FETCHING: partial(fetch, on_s3, topic),
    }


def fetch(location: str, topic: str) -> Scan:
    """Fetch a topic's `.log` objects, a partition on each thread."""

    def fetch_partition(number: int) -> int:
        prefix, size = ClusterKeys(CLUSTER).partition(TopicPartition(topic, number)).prefix, 0
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        for info in store.list(prefix):
            if info.key.endswith(".log"):
                with store.open(info.key) as stream:
                    while count := stream.readinto(buffer):
                        size += count
        return size

    with open_store(location) as store, ThreadPoolExecutor(PARTITIONS) as pool:
        began = time.perf_counter()
        size = sum(pool.map(fetch_partition, range(PARTITIONS)))
        return Scan(0, size, 0, time.perf_counter() - began)


def fill_and_ship(
    cluster: LocalCluster, topic: str, codec: str, records: int, directory: Path | None = None
) -> list[ClosedPart]:
    """Produce, close segments, and ship to S3, and to a directory if there is one."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "segment.ms": "604800000"}
    cluster.create_topic(topic, partitions=PARTITIONS, config=config)
    for partition in range(PARTITIONS):
        produce(cluster, topic, partition, codec, records // PARTITIONS)
    parts = close_last(cluster, topic, range(PARTITIONS))
    environment = {} if cluster.s3 is None else cluster.s3.environment()
    urls = {"s3": ARCHIVE_URL, **({} if directory is None else {"file": directory.as_uri()})}
    for name, url in urls.items():
        ship_with_agent(cluster, url, topic, parts, name=f"agent-{codec}-{name}", environment=environment)
    return parts


def check(found: dict[str, list[Scan]], parts: Sequence[ClosedPart]) -> None:
    """Check that all sources returned the same records, and the ready batches as many.

    Raises:
        RuntimeError: they did not.
    """
    records = sum(part.end for part in parts)
    whole = [found[name] for name in (OURS_S3, OURS_FILE, KAFKA_SOURCE, CONSUMER)]
    seen = {(one.size, one.greatest_offset) for scans in whole for one in scans}
    counted = {name: scans for name, scans in found.items() if name not in (ANY_QUERY, FETCHING)}
    wrong = {name: one.records for name, scans in counted.items() for one in scans if one.records != records}
    if wrong or len(seen) != 1:
        raise RuntimeError(f"{records} records were shipped; seen were {wrong or records} of {seen}")


def report(codec: str, found: dict[str, list[Scan]], records: int) -> list[Goal]:
    """Print the rates; return the goals of this codec."""
    seconds = {name: [one.seconds for one in scans] for name, scans in found.items()}
    rows: list[tuple[object, ...]] = []
    for name, times in seconds.items():
        if name in (ANY_QUERY, FETCHING):
            rows.append((name, statistics.median(times), "", "", "", ""))
            continue
        rates = [records / one / 1e6 for one in times]
        rate, span = statistics.median(rates), f"{min(rates):.2f} to {max(rates):.2f}"
        ceiling = median_ratio(seconds[CEILING], times)
        python = statistics.median(one.python_seconds for one in found[name])
        rows.append((name, statistics.median(times), rate, span, ceiling, python / records * 1e6))
    print_table((codec, "seconds", "M records/s", "range", "/ ceiling", "Python us/record"), rows)
    beyond = {
        name: [one - least for one, least in zip(times, seconds[ANY_QUERY], strict=True)]
        for name, times in seconds.items()
    }
    print("without the fixed time of a query:")
    for ours in (OURS_S3, OURS_FILE, CEILING):
        ceiling, narrow = median_ratio(beyond[CEILING], beyond[ours]), median_ratio(beyond[ours], beyond[ours + NARROW])
        print(f"  {ours}: {ceiling:.2f} of the ceiling; two columns / all {narrow:.2f}")
    both = [one + other for one, other in zip(seconds[CEILING], seconds[FETCHING], strict=True)]
    print(f"ceiling, then fetching / {OURS_S3}: {median_ratio(both, seconds[OURS_S3]):.2f}")
    print(flush=True)
    goals = []
    for ours in (OURS_S3, OURS_FILE):
        if codec not in CEILING_RATIO:
            continue
        above = median_ratio(seconds[CEILING], seconds[ours])
        goals.append(Goal(f"{codec}: {ours} / ceiling", above, CEILING_RATIO[codec], at_least=True))
        above = median_ratio(seconds[KAFKA_SOURCE], seconds[ours])
        goals.append(Goal(f"{codec}: {ours} / Spark's Kafka source", above, KAFKA_SOURCE_RATIO, at_least=True))
        above = median_ratio(seconds[ours], seconds[ours + NARROW])
        goals.append(Goal(f"{codec}: {ours}: two columns / all", above, NARROW_RATIO, at_least=True))
    return goals


def main() -> int:
    """Fill, ship, scan in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=1_500_000, help="number of records of each codec")
    arguments.add_argument("--repeat", type=int, default=5, help="number of rounds, after two for warm-up")
    arguments.add_argument("--codecs", nargs="+", default=CODECS, choices=CODECS)
    options = arguments.parse_args()
    goals = []
    with ExitStack() as opened:
        cluster = opened.enter_context(LocalCluster(s3=True, buckets=[BUCKET], name="bench"))
        if cluster.s3 is None:
            raise RuntimeError("the cluster has no S3 server")
        os.environ.update(cluster.s3.environment())  # Spark's Python workers inherit it
        directory = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark.", dir=cluster.directory))
        )
        archive = directory / "archive"
        archive.mkdir()
        topics = {codec: f"bench-{codec}" for codec in options.codecs}
        parts = {
            codec: fill_and_ship(cluster, topic, codec, options.records, archive) for codec, topic in topics.items()
        }
        spark = session(directory)
        opened.callback(spark.stop)
        for codec, topic in topics.items():
            ends = [part.end for part in parts[codec]]
            consumer = opened.enter_context(JavaConsumer(cluster.bootstrap, topic, ends))

            def consume(consumer: JavaConsumer = consumer) -> Scan:
                one = consumer.round()
                return Scan(one.records, one.size, one.greatest_offset, one.seconds)

            things = {**sources(spark, cluster, topic, parts[codec], archive), CONSUMER: consume}
            found = rounds(things, options.repeat, warm_up=2)
            check(found, parts[codec])
            goals += report(codec, found, sum(ends))
    missed = print_goals(goals)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
