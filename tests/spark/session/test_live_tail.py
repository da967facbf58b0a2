"""All readers of the archive show the tail that a real agent ships, and then its segments, as Kafka's consumer does."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dev.local.kafka.cluster import LocalCluster
from dev.local.oracle import Isolation
from tests.endpoint.running import running
from tests.faults.leaders import PATIENCE, produce
from tests.spark.session.tail_readers import ENDPOINT_OPTIONS, Readers, all_readers, assert_all_show, readable_archive
from tests.uploader.beside import Archive
from tests.uploader.tail.shown import LEVELS, wait_shown


def transact(producer: Producer, topic: str) -> None:
    """Produce a transaction that commits, one that aborts, and one that stays open."""
    for ends in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"transaction-%d" % number, partition=0)
        producer.flush(PATIENCE)  # an abort would drop unsent records
        if ends is not None:
            ends(PATIENCE)


@pytest.fixture
def brokers(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The broker of this folder, or one of Kafka 4."""
    if request.param == "zookeeper":
        yield cluster
    else:
        with LocalCluster(mode="kraft", name="kraft-tail") as started:
            yield started


@pytest.fixture
def archive(brokers: LocalCluster, cluster: LocalCluster, tmp_path: Path) -> Iterator[Archive]:
    """An archive in the S3 server of the Spark session, which this process can read."""
    with readable_archive(brokers, cluster, tmp_path, "tail-readers") as made:
        yield made


@pytest.mark.parametrize(
    ("brokers", "of_spark"),
    [("zookeeper", LEVELS[1:]), pytest.param("kraft", LEVELS, marks=pytest.mark.full)],
    indirect=["brokers"],
)
def test_all_readers_show_what_kafka_has_across_the_change_to_segments(
    brokers: LocalCluster, archive: Archive, spark: SparkSession, tmp_path: Path, of_spark: tuple[Isolation, ...]
) -> None:
    """At both isolation levels: first with a transaction that is open; then segments have what was in the tail.

    Spark needs the longest time, so `make test` has its queries of committed transactions alone.
    """
    brokers.create_topic(archive.topic, config={"segment.bytes": "60000"})
    agent = archive.agent(1, waits=False)  # the endpoint starts meanwhile
    # On a slow machine it is open for longer than a minute.
    producer = brokers.producer({"transactional.id": archive.topic, "transaction.timeout.ms": 600_000})
    with ExitStack() as opened:
        (endpoint,) = opened.enter_context(running(archive.location, tmp_path, options=ENDPOINT_OPTIONS))
        agent.wait_ready()
        producer.init_transactions(PATIENCE)
        readers: Readers = {}
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
            readers = readers or opened.enter_context(all_readers(archive, spark, endpoint, tmp_path, of_spark))
            assert_all_show(readers, archive, brokers.bootstrap)
            assert archive.next_offset() == following
