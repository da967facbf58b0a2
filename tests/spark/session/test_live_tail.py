"""All readers of the archive show the tail that a real agent ships, and then its segments, as Kafka's consumer does."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, dump
from tests.endpoint.running import running
from tests.faults.leaders import PATIENCE, produce
from tests.made_archive import MadeArchive
from tests.tables.made_tables import MadeTable
from tests.uploader.beside import BUCKET, Archive, archives
from tests.uploader.tail.shown import LEVELS, TAIL, shown, wait_shown
from ts_consumer import TieredConsumer
from ts_tables.files.layout import FileFormat

Rows = list[tuple[int, bytes | None]]
Read = Callable[[int], Rows]  # all rows so far, once they are so many


def client(consumer: Consumer | TieredConsumer, topic: str) -> Read:
    """Return what reads on with a client."""
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = Rows()

    def is_read(count: int) -> bool:
        for message in consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
        return len(found) >= count

    def read(count: int) -> Rows:
        wait_for(lambda: is_read(count), f"{count} records of {topic}", PATIENCE, state=lambda: found[-1:])
        return [*found]

    return read


@contextmanager
def clients(archive: Archive, level: Isolation, address: str) -> Iterator[dict[str, Read]]:
    """Open a client of the endpoint, and a consumer over both tiers."""
    settings = {"group.id": f"g-{level}", "isolation.level": level, "enable.auto.commit": False}
    tiered = {
        "tiered.storage.mode": "TIERED_STORAGE_ONLY",
        "tiered.storage.refresh.ms": "1000",
        "kafka.cluster.id": archive.keys.cluster,
        "storage.service.endpoint.url": archive.location,
    }
    of_endpoint = Consumer({"bootstrap.servers": address, **settings})
    with TieredConsumer({"bootstrap.servers": archive.cluster.bootstrap, **settings, **tiered}) as consumer:
        yield {"endpoint": client(of_endpoint, archive.topic), "consumer": client(consumer, archive.topic)}
        of_endpoint.close()


def table(archive: Archive, level: Isolation, directory: Path) -> Read:
    """Return what runs a table, whose claims reach into the tail."""
    made = MadeArchive(archive.location, archive.keys.entropy_bits, archive.keys.cluster)
    is_committed = level == "read_committed"
    found = MadeTable(made, directory, (archive.topic,), read_committed=is_committed, format=FileFormat.PARQUET)
    found.create()

    def read(_: int) -> Rows:
        found.run()
        return [(row["_offset"], row["value"]) for row in found.rows()]

    return read


def spark_readers(spark: SparkSession, archive: Archive, level: Isolation, directory: Path) -> dict[str, Read]:
    """Return a batch query, and a stream that runs until it has read what there is."""
    options = {"path": archive.location, "cluster": archive.keys.cluster, "subscribe": archive.topic}
    options |= {"kafka.isolation.level": level, "startingOffsets": "earliest"}

    def rows(frame: DataFrame) -> Rows:
        return [(row.offset, bytes(row.value)) for row in frame.select("offset", "value").collect()]

    def batch(_: int) -> Rows:
        return rows(spark.read.format("kafka_segments").options(**options).load())

    def stream(_: int) -> Rows:
        writer = spark.readStream.format("kafka_segments").options(**options).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        writer.option("path", str(directory / "sink")).trigger(availableNow=True).start().awaitTermination()
        return sorted(rows(spark.read.parquet(str(directory / "sink"))))

    return {"Spark batch": batch, "Spark stream": stream}


def transact(producer: Producer, topic: str) -> None:
    """Produce a transaction that commits, one that aborts, and one that stays open."""
    for ends in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"transaction-%d" % number, partition=0)
        producer.flush(PATIENCE)  # an abort would drop unsent records
        if ends is not None:
            ends(PATIENCE)


@pytest.fixture(params=["kraft", pytest.param("zookeeper", marks=pytest.mark.full)])
def brokers(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A broker of Kafka 4, or the one of this folder."""
    if request.param == "zookeeper":
        yield cluster
    else:
        with LocalCluster(mode="kraft", name="kraft-tail") as started:
            yield started


@pytest.fixture
def archive(brokers: LocalCluster, cluster: LocalCluster, tmp_path: Path) -> Iterator[Archive]:
    """An archive in the S3 server of the Spark session, which this process can read."""
    assert cluster.s3 is not None
    cluster.s3.create_bucket(BUCKET)
    with pytest.MonkeyPatch.context() as patched, archives(brokers, tmp_path) as archive_of:
        for name, value in cluster.s3.environment().items():
            patched.setenv(name, value)
        yield archive_of("tail-readers", properties=TAIL, s3=cluster.s3)


def test_all_readers_show_what_kafka_has_across_the_change_to_segments(
    brokers: LocalCluster, archive: Archive, spark: SparkSession, tmp_path: Path
) -> None:
    """At both isolation levels: first with a transaction that is open; then segments have what was in the tail."""
    brokers.create_topic(archive.topic, config={"segment.bytes": "60000"})
    archive.agent(1)
    producer = brokers.producer({"transactional.id": archive.topic})
    producer.init_transactions(PATIENCE)
    with ExitStack() as opened:
        options = ["--groups", "memory", "--refresh", "1"]
        (endpoint,) = opened.enter_context(running(archive.location, tmp_path, options=options))
        readers: dict[tuple[str, Isolation], Read] = {}
        end, following = 0, 0
        for stage in range(2):
            if stage:
                producer.abort_transaction(PATIENCE)
            produce(brokers, archive.topic, f"stage{stage}", 400)
            transact(producer, archive.topic)
            produce(brokers, archive.topic, f"more{stage}", 50)
            if stage:
                producer.abort_transaction(PATIENCE)
            archive.wait_until_shipped(1)
            before, end = end, brokers.latest(archive.topic, 0)
            wait_shown(archive, end)
            following = archive.next_offset()
            assert before < following < end - 10
            if not readers:
                endpoint.wait_until_ready()
                for level in LEVELS:
                    named = opened.enter_context(clients(archive, level, endpoint.address))
                    named["table"] = table(archive, level, tmp_path / f"table-{level}")
                    named |= spark_readers(spark, archive, level, tmp_path / f"spark-{level}")
                    readers |= {(name, level): read for name, read in named.items()}
            kafkas = {level: dump(brokers.bootstrap, archive.topic, level) for level in LEVELS}
            for level in LEVELS:
                assert shown(archive, level) == kafkas[level]
            for (name, level), read in readers.items():
                rows = [(each.offset, each.value) for each in kafkas[level]]
                assert read(len(rows)) == rows, (name, level, stage)
            assert archive.next_offset() == following
