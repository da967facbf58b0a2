"""`python -m dev.bench.reader_peers`: the Python reader next to Spark and to a consumer of the broker.

A topic of two partitions for each codec, produced by a real broker, shipped to a directory and to S3. Each round runs:

- one query over all columns, count, sum of lengths and maxima, by DuckDB over the reader's dataset from the directory,
  and by `kafka_segments` in Spark, local[2];
- the reader alone to Arrow batches, from the directory; and `confluent_kafka.Consumer.consume` from the broker to Arrow
  batches with the same columns, in this process.

The goals: 4 times the rate of Spark for the uncompressed topic (printed for all codecs), 5 times that of the consumer.
Exits with 1 if one is missed; `--no-gate` only prints.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import confluent_kafka
import duckdb
import pyarrow as pa
from pyspark.sql import DataFrameReader

from dev.bench.measuring.agent_runs import CLUSTER
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.topics import ClosedPart
from dev.bench.spark import BUCKET, PARTITIONS, Scan, fill_and_ship, scan, session
from dev.local.kafka.cluster import LocalCluster
from ts_reader import Archive
from ts_reader.decode.arrow_schema import arrow_schema

CODECS = ("none", "lz4", "zstd")
SPARK_RATIO, CONSUMER_RATIO = 4.0, 5.0
DUCKDB, SPARK = "DuckDB on the reader", "kafka_segments in Spark"
BATCHES, CONSUMER = "reader, Arrow batches", "consumer, Arrow batches"
_CONSUMED_AT_ONCE = 10_000
_SECONDS = 60.0
_QUERY = """
    select count(*), sum(octet_length(key)) + sum(octet_length(value)), max("offset"), max(topic), max(partition),
           max(timestamp), max("timestampType") from rows
"""


def query(archive: Archive, topic: str) -> Scan:
    """Plan the topic again, and run the query of `dev.bench.spark.scan`."""
    began = time.perf_counter()
    rows = archive.scan(topic).dataset()
    with duckdb.connect() as connection:
        found = connection.register("rows", rows).execute(_QUERY).fetchone()
    if found is None:
        raise RuntimeError("the query returned nothing")
    return Scan(int(found[0]), int(found[1]), int(found[2]), time.perf_counter() - began)


def in_spark(source: DataFrameReader, location: str) -> Scan:
    """Plan the topic again, and run the query in Spark."""
    return scan(source.load(location))


def read_batches(archive: Archive, topic: str) -> Scan:
    """Read all batches, and drop each."""
    began, records = time.perf_counter(), 0
    for batch in archive.scan(topic):
        records += batch.num_rows
    return Scan(records, 0, 0, time.perf_counter() - began)


def consume_batches(bootstrap: str, topic: str, parts: Sequence[ClosedPart]) -> Scan:
    """Read all records from the broker as batches of the reader's columns, and drop each."""
    began, records, wanted = time.perf_counter(), 0, sum(part.end for part in parts)
    for batch in _consumed(bootstrap, topic, {part.partition: part.end for part in parts}, wanted):
        records += batch.num_rows
    return Scan(records, 0, 0, time.perf_counter() - began)


def _consumed(bootstrap: str, topic: str, ends: Mapping[int, int], wanted: int) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, number, begin) for number in range(PARTITIONS)])
        while wanted > 0:
            messages = consumer.consume(min(_CONSUMED_AT_ONCE, wanted), _SECONDS)  # it waits for as many
            if not messages:
                raise RuntimeError(f"the broker returned nothing for {_SECONDS:.0f} s, and {wanted} records are left")
            # The active segment, which is not shipped, has a few more.
            messages = [message for message in messages if (message.offset() or 0) < ends[message.partition() or 0]]
            times = [message.timestamp() for message in messages]
            columns = [
                [message.key() for message in messages],
                [message.value() for message in messages],
                [message.topic() for message in messages],
                [message.partition() for message in messages],
                [message.offset() for message in messages],
                [1000 * milliseconds for _, milliseconds in times],
                [kind - 1 for kind, _ in times],
            ]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            wanted -= len(messages)
    finally:
        consumer.close()


def check(found: dict[str, list[Scan]], records: int) -> None:
    """Check that all returned the same records.

    Raises:
        RuntimeError: they did not.
    """
    counted = {one.records for scans in found.values() for one in scans}
    seen = {(one.size, one.greatest_offset) for name in (DUCKDB, SPARK) for one in found[name]}
    if counted != {records} or len(seen) != 1:
        raise RuntimeError(f"{records} records were shipped; {counted} were read, {seen} of them")


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=1_500_000, help="number of records of each codec")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after two that warm up")
    options = arguments.parse_args()
    goals: list[Goal] = []
    table = []
    with ExitStack() as opened:
        cluster = opened.enter_context(LocalCluster(s3=True, buckets=[BUCKET], name="bench"))
        directory = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers.", dir=cluster.directory))
        )
        root = directory / "store"
        root.mkdir()
        spark = session(directory)
        opened.callback(spark.stop)
        archive = Archive(root.as_uri(), CLUSTER, workers=PARTITIONS)
        for codec in CODECS:
            topic = f"peers-{codec}"
            parts = fill_and_ship(cluster, topic, codec, options.records, root)
            source = spark.read.format("kafka_segments").option("cluster", CLUSTER).option("subscribe", topic)
            things: dict[str, Callable[[], Scan]] = {
                DUCKDB: partial(query, archive, topic),
                SPARK: partial(in_spark, source, root.as_uri()),
                BATCHES: partial(read_batches, archive, topic),
                CONSUMER: partial(consume_batches, cluster.bootstrap, topic, parts),
            }
            found = rounds(things, options.repeat, warm_up=2)
            check(found, sum(part.end for part in parts))
            seconds = {name: [one.seconds for one in scans] for name, scans in found.items()}
            to_spark = median_ratio(seconds[SPARK], seconds[DUCKDB])
            to_consumer = median_ratio(seconds[CONSUMER], seconds[BATCHES])
            table.append((codec, *(statistics.median(seconds[name]) for name in things), to_spark, to_consumer))
            if codec == "none":
                goals.append(Goal(f"{codec}: {DUCKDB} / {SPARK}", to_spark, SPARK_RATIO, at_least=True))
            goals.append(Goal(f"{codec}: {BATCHES} / {CONSUMER}", to_consumer, CONSUMER_RATIO, at_least=True))
    print_table(("seconds", DUCKDB, SPARK, BATCHES, CONSUMER, "/ Spark", "/ consumer"), table)
    print()
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
