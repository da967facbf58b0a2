"""`python -m dev.bench.tables_peers`: segments on S3 to Parquet files on S3, and Spark's own ways to the same files.

A topic of two partitions for each codec, produced by a real broker, all segments closed and shipped to S3 by the agent.
Each round writes all its records with their headers as Parquet with zstd:

- a run of a new table of plain files, as `tsctl tables run --workers 2` does it;
- `kafka_segments` from S3, and Spark's writer of Parquet;
- Spark's Kafka source from the broker, and the same writer;
- the parts of the table's run alone, as `dev.bench.tables` measures them: two processes fetch, decode, write and put.

Spark runs one session, local[2]. It writes to S3 by Hadoop's S3A and its `FileOutputCommitter`, whose second algorithm
renames each file once. Only the table promises each record once, and only it has the columns of the position.

The goals: 1.5 times the rate of `kafka_segments`, 2.5 times that of Spark's Kafka source. The ratio of the parts alone
is printed, without a goal: no run is faster than its parts. Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from secrets import token_hex

from pyspark.sql import DataFrameReader, SparkSession

from dev.bench.measuring.agent_runs import CLUSTER
from dev.bench.measuring.java_parts import spark_s3_jars
from dev.bench.measuring.new_tables import NewTables
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.topics import CODECS, ClosedPart
from dev.bench.reader import Halves
from dev.bench.reader import seconds as seconds_of
from dev.bench.spark import ARCHIVE_URL, BUCKET, fill_and_ship, session
from dev.local.kafka.cluster import LocalCluster
from dev.local.stores.s3 import S3Server
from ts_common.store.factory import open_store

TABLE, SEGMENTS, KAFKA = "table of Parquet files", "kafka_segments in Spark", "Spark's Kafka source"
PARTS = "fetch, decode, write_table, put"
RATIOS = {SEGMENTS: 1.5, KAFKA: 2.5}
PLAIN = f"{BUCKET}/tables"
OUTPUT = f"{BUCKET}/spark-output"


def s3a(server: S3Server) -> dict[str, str]:
    """Return the settings of a session that writes to a server."""
    return {
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.access.key": server.admin.access_key,
        "spark.hadoop.fs.s3a.secret.key": server.admin.secret_key,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    }


class Writers:
    """The three ways of one topic; each returns its seconds, and then checks what it wrote, and deletes it.

    Args:
        records: that the topic has.
    """

    def __init__(self, spark: SparkSession, topic: str, records: int) -> None:
        self._spark = spark
        self._topic = topic
        self._records = records
        self._new = NewTables({"url": ARCHIVE_URL, "cluster": CLUSTER}, f"s3://{PLAIN}")

    def table(self) -> float:
        """Run a new table."""
        run = self._new.run(self._topic, is_plain=True)
        self._check(TABLE, f"s3a://{PLAIN}/{run.name}")
        run.drop()
        return run.seconds

    def segments(self) -> float:
        """Write `kafka_segments` by Spark."""
        reader = self._spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", self._topic)
        return self._written(SEGMENTS, reader.option("path", ARCHIVE_URL))

    def kafka(self, bootstrap: str, parts: Sequence[ClosedPart]) -> float:
        """Write the broker's records by Spark."""
        ends = json.dumps({self._topic: {str(part.partition): part.end for part in parts}})
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        return self._written(KAFKA, reader.option("endingOffsets", ends))

    def _written(self, name: str, reader: DataFrameReader) -> float:
        location = f"{OUTPUT}/{token_hex(8)}"
        began = time.perf_counter()
        rows = reader.option("includeHeaders", "true").load()
        rows.write.option("compression", "zstd").parquet(f"s3a://{location}")
        seconds = time.perf_counter() - began
        self._check(name, f"s3a://{location}")
        with open_store(f"s3://{OUTPUT}") as store:
            store.delete([each.key for each in store.list()])
        return seconds

    def _check(self, name: str, location: str) -> None:
        """Check that files have the topic's records.

        Raises:
            RuntimeError: they do not.
        """
        found = self._spark.read.parquet(location).count()
        if found != self._records:
            raise RuntimeError(f"{self._records} records were shipped; {name} wrote {found}")


def main() -> int:
    """Fill, ship, write in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=4_000_000, help="number of records of each codec")
    arguments.add_argument("--repeat", type=int, default=3, help="rounds, after two that warm up")
    arguments.add_argument("--codecs", nargs="+", default=CODECS, choices=CODECS)
    options = arguments.parse_args()
    goals: list[Goal] = []
    table, bounds = [], []
    with ExitStack() as opened:
        cluster = opened.enter_context(LocalCluster(s3=True, buckets=[BUCKET], name="bench"))
        if cluster.s3 is None:
            raise RuntimeError("the cluster has no S3 server")
        os.environ.update(cluster.s3.environment())  # Spark's Python workers inherit it
        directory = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers.", dir=cluster.directory))
        )
        halves = Halves("dev.bench.tables", ARCHIVE_URL)
        opened.callback(halves.end)
        topics = {codec: f"bench-{codec}" for codec in options.codecs}
        parts = {codec: fill_and_ship(cluster, topic, codec, options.records) for codec, topic in topics.items()}
        spark = session(directory, jars=spark_s3_jars(), settings=s3a(cluster.s3))
        opened.callback(spark.stop)
        for codec, topic in topics.items():
            records = sum(part.end for part in parts[codec])
            writers = Writers(spark, topic, records)
            things: dict[str, Callable[[], float]] = {
                TABLE: writers.table,
                SEGMENTS: writers.segments,
                KAFKA: partial(writers.kafka, cluster.bootstrap, parts[codec]),
                PARTS: partial(seconds_of, partial(halves.run, topic)),
            }
            found = rounds(things, options.repeat, warm_up=2)
            rates = [records / statistics.median(found[name]) / 1e6 for name in things]
            table.append((codec, *(statistics.median(found[name]) for name in things), *rates))
            goals += [
                Goal(f"{codec}: {TABLE} / {name}", median_ratio(found[name], found[TABLE]), least, at_least=True)
                for name, least in RATIOS.items()
            ]
            bounds.append((codec, *(median_ratio(found[name], found[PARTS]) for name in RATIOS)))
    print_table(("seconds, then M records/s", *(TABLE, SEGMENTS, KAFKA, PARTS) * 2), table)
    print()
    print_table((f"{PARTS} /", *RATIOS), bounds)
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
