"""All that read an archive while its live tail grows, each opened once for each isolation level."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, dump
from tests.endpoint.running import Running
from tests.faults.leaders import PATIENCE
from tests.made_archive import MadeArchive
from tests.tables.made_tables import MadeTable
from tests.uploader.beside import Archive, archives
from tests.uploader.tail.shown import LEVELS, TAIL, shown
from ts_consumer import TieredConsumer
from ts_tables.files.layout import FileFormat

Rows = list[tuple[int, bytes | None]]
Read = Callable[[int], Rows]  # all rows so far, once they are so many
Readers = Mapping[tuple[str, Isolation], Read]

ENDPOINT_OPTIONS = ("--groups", "memory", "--refresh", "1")
BATCH, STREAM = "Spark batch", "Spark stream"


def kafkas_rows(bootstrap: str, topic: str, level: Isolation) -> Rows:
    """Return what Kafka's own consumer reads."""
    return [(each.offset, each.value) for each in dump(bootstrap, topic, level)]


def shown_rows(archive: Archive, level: Isolation) -> Rows:
    """Return what a scan of `ts_reader` reads."""
    return [(each.offset, each.value) for each in shown(archive, level)]


@contextmanager
def readable_archive(brokers: LocalCluster, cluster: LocalCluster, directory: Path, topic: str) -> Iterator[Archive]:
    """Make an archive with a live tail in the S3 server of the Spark session; this process can read it.

    Args:
        brokers: whose agents write it.
        cluster: that has the S3 server.
    """
    assert cluster.s3 is not None
    with pytest.MonkeyPatch.context() as patched, archives(brokers, directory) as archive_of:
        for name, value in cluster.s3.environment().items():
            patched.setenv(name, value)
        yield archive_of(topic, properties=TAIL, s3=cluster.s3)


@contextmanager
def all_readers(
    archive: Archive, spark: SparkSession, endpoint: Running, directory: Path, of_spark: tuple[Isolation, ...] = LEVELS
) -> Iterator[Readers]:
    """Open a client of the endpoint, a consumer over both tiers, a table, and queries of Spark.

    Args:
        endpoint: of the archive's cluster.
        directory: for tables and the checkpoints of streams.
        of_spark: the isolation levels of Spark's queries, which need the longest time.
    """
    endpoint.wait_until_ready()
    readers: dict[tuple[str, Isolation], Read] = {}
    with ExitStack() as opened:
        for level in LEVELS:
            named = opened.enter_context(_clients(archive, level, endpoint.address))
            named["table"] = _table(archive, level, directory / f"table-{level}")
            if level in of_spark:
                named |= _spark_readers(spark, archive, level, directory / f"checkpoint-{level}")
            readers |= {(name, level): read for name, read in named.items()}
        yield readers


def assert_all_show(readers: Readers, archive: Archive, bootstrap: str) -> None:
    """Check that each reader has what Kafka's consumer reads, each record once and in order. They read at once."""
    with ThreadPoolExecutor(len(readers) + 2 * len(LEVELS)) as pool:
        asked = {level: pool.submit(kafkas_rows, bootstrap, archive.topic, level) for level in LEVELS}
        scanned = {level: pool.submit(shown_rows, archive, level) for level in LEVELS}

        def rows_of(each: tuple[str, Isolation]) -> Rows:
            return readers[each](0 if each[0] in (BATCH, STREAM) else len(asked[each[1]].result()))

        found = {each: pool.submit(rows_of, each) for each in readers}
        kafkas = {level: future.result() for level, future in asked.items()}
    for level in LEVELS:
        assert scanned[level].result() == kafkas[level]
    for (name, level), read in found.items():
        assert read.result() == kafkas[level], (name, level)


def _client(consumer: Consumer | TieredConsumer, topic: str) -> Read:
    """Return what reads on with a client."""
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = Rows()

    def is_read(count: int) -> bool:
        for message in consumer.consume(500, 0.1):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
        return len(found) >= count

    def read(count: int) -> Rows:
        wait_for(lambda: is_read(count), f"{count} records of {topic}", PATIENCE, state=lambda: found[-1:])
        return [*found]

    return read


@contextmanager
def _clients(archive: Archive, level: Isolation, address: str) -> Iterator[dict[str, Read]]:
    settings = {"group.id": f"g-{level}", "isolation.level": level, "enable.auto.commit": False}
    tiered = {
        "tiered.storage.mode": "TIERED_STORAGE_ONLY",
        "tiered.storage.refresh.ms": "1000",
        "kafka.cluster.id": archive.keys.cluster,
        "storage.service.endpoint.url": archive.location,
    }
    of_endpoint = Consumer({"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": 1000, **settings})
    with (
        closing(of_endpoint),
        TieredConsumer({"bootstrap.servers": archive.cluster.bootstrap, **settings, **tiered}) as consumer,
    ):
        yield {"endpoint": _client(of_endpoint, archive.topic), "consumer": _client(consumer, archive.topic)}


def _table(archive: Archive, level: Isolation, directory: Path) -> Read:
    """Return what runs a table, whose claims reach into the tail."""
    made = MadeArchive(archive.location, archive.keys.entropy_bits, archive.keys.cluster)
    is_committed = level == "read_committed"
    found = MadeTable(made, directory, (archive.topic,), read_committed=is_committed, format=FileFormat.PARQUET)
    found.create()

    def read(_: int) -> Rows:
        found.run()
        return [(row["_offset"], row["value"]) for row in found.rows()]

    return read


def _spark_readers(spark: SparkSession, archive: Archive, level: Isolation, checkpoint: Path) -> dict[str, Read]:
    """Return a batch query, and a stream that begins at its checkpoint and runs until it has read what there is."""
    options = {"path": archive.location, "cluster": archive.keys.cluster, "subscribe": archive.topic}
    options |= {"kafka.isolation.level": level, "startingOffsets": "earliest"}

    def rows(frame: DataFrame) -> Rows:
        return [(row.offset, bytes(row.value)) for row in frame.select("offset", "value").collect()]

    def batch(_: int) -> Rows:
        return rows(spark.read.format("kafka_segments").options(**options).load())

    streamed: dict[int, Rows] = {}  # by batch: one can run twice

    def stream(_: int) -> Rows:
        writer = spark.readStream.format("kafka_segments").options(**options).load().writeStream
        writer = writer.foreachBatch(lambda frame, batch: streamed.update({batch: rows(frame)}))
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
        return [row for batch in sorted(streamed) for row in streamed[batch]]

    return {BATCH: batch, STREAM: stream}
