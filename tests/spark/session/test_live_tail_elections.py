"""All readers show what Kafka kept, each record once, while leaders of a live tail are lost and agents are killed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.endpoint.running import running
from tests.faults.leaders import PATIENCE, Load, lines, produce, suspend, wait_in_sync, wait_led
from tests.spark.session.tail_readers import (
    BATCH,
    ENDPOINT_OPTIONS,
    STREAM,
    Rows,
    all_readers,
    assert_all_show,
    kafkas_rows,
    readable_archive,
    shown_rows,
)
from tests.uploader.beside import Archive
from tests.uploader.tail.leader_moves import beside, give_back, kraft_brokers, linked_brokers, lose_leader
from tests.uploader.tail.shown import LEVELS, UNCLEAN, shown, transact, wait_shown
from ts_common.errors import DataLoss

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
SHARED = 100
CLUSTERS = {"3.9": linked_brokers, "4": kraft_brokers}


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two brokers of a line of Kafka."""
    with CLUSTERS[request.param]() as started:
        yield started


@pytest.fixture
def archive(brokers: LocalCluster, cluster: LocalCluster, tmp_path: Path) -> Iterator[Archive]:
    """An archive in the S3 server of the Spark session, which this process can read."""
    with readable_archive(brokers, cluster, tmp_path, "tail-elections") as made:
        yield made


@pytest.mark.parametrize(("brokers", "moves"), [("3.9", "kill pause cut"), ("4", "kill pause")], indirect=["brokers"])
def test_all_readers_show_what_kafka_kept_across_elections(
    brokers: LocalCluster, archive: Archive, spark: SparkSession, tmp_path: Path, moves: str
) -> None:
    """Killed, paused and cut-off leaders, that producers send records to, at both isolation levels.

    Readers read while the former leader is away, and after it follows. Segments close meanwhile.
    """
    config = {"segment.bytes": "60000", "min.insync.replicas": "1"}
    brokers.create_topic(archive.topic, assignment=[[1, 2]], config=config)
    acknowledged = produce(brokers, archive.topic, "first", 50)
    links = beside(brokers, 1) if brokers.links else None
    agents = {1: archive.agent(1, surroundings=links), 2: archive.agent(2)}
    wait_shown(archive, 50)
    assert archive.next_offset() == 0
    with ExitStack() as opened:
        (endpoint,) = opened.enter_context(running(archive.location, tmp_path, options=ENDPOINT_OPTIONS))
        readers = opened.enter_context(all_readers(archive, spark, endpoint, tmp_path))
        assert_all_show(readers, archive, brokers.bootstrap)
        for number, move in enumerate(moves.split()):
            leader = number % 2 + 1
            with Load(brokers, archive.topic, 1, every=0.5, timeout=600) as load:
                transact(brokers, archive.topic)
                acked = load.acknowledged[0]
                wait_shown(archive, max(wait_for(lambda: [*acked], "the first acknowledgement", PATIENCE)))  # noqa: B023
                agents[leader].kill()
                agents[leader].start()
                other = lose_leader(brokers, archive.topic, move, leader)
                of_other = brokers.brokers[other].bootstrap
                later = produce(brokers, archive.topic, f"other{number}", 20, bootstrap_servers=of_other)
                wait_shown(archive, max(later) + 1)
                early = {each: read(len(shown_rows(archive, each[1]))) for each, read in readers.items()}
                give_back(brokers, archive.topic, move, leader)
            acknowledged |= acked | later
            transact(brokers, archive.topic)
            wait_shown(archive, brokers.latest(archive.topic, 0))
            assert_all_show(readers, archive, brokers.bootstrap)
            kafkas: dict[str, Rows] = {level: kafkas_rows(brokers.bootstrap, archive.topic, level) for level in LEVELS}
            for (name, level), rows in early.items():
                assert rows, (name, level, move)
                assert rows == kafkas[level][: len(rows)], (name, level, move)
            assert acknowledged.items() <= dict(kafkas["read_uncommitted"]).items()
    assert archive.next_offset() > 0


@pytest.mark.parametrize("brokers", CLUSTERS, indirect=True)
def test_records_that_an_unclean_election_removed_are_reported_by_all_that_had_read_them(
    brokers: LocalCluster, archive: Archive, spark: SparkSession, tmp_path: Path
) -> None:
    """No segment has closed. What reads from the start shows what Kafka has; a client reads again as from a broker."""
    brokers.create_topic(archive.topic, assignment=[[1, 2]], config=UNCLEAN)
    for broker in (1, 2):
        archive.agent(broker)
    produce(brokers, archive.topic, "shared", SHARED)
    suspend(brokers, 2)
    wait_in_sync(brokers, archive.topic, 1)
    dead = produce(brokers, archive.topic, "dead", 50)
    wait_shown(archive, max(dead) + 1)
    with ExitStack() as opened:
        (endpoint,) = opened.enter_context(running(archive.location, tmp_path, options=ENDPOINT_OPTIONS))
        readers = opened.enter_context(all_readers(archive, spark, endpoint, tmp_path / "before"))
        before = kafkas_rows(brokers.brokers[1].bootstrap, archive.topic, "read_committed")
        for (name, level), read in readers.items():
            assert read(len(before)) == before, (name, level)
        brokers.brokers[1].kill()
        brokers.brokers[2].resume()
        wait_led(brokers, archive.topic, 2)
        of_later = brokers.brokers[2].bootstrap
        living = produce(brokers, archive.topic, "living", 30, bootstrap_servers=of_later)
        assert living.keys() < dead.keys()
        wait_for(lambda: lines(shown(archive))[-1:] == ["living"], "the later leader's records", PATIENCE)
        wait_shown(archive, max(living) + 1)
        assert archive.next_offset() == 0
        assert_all_show(
            opened.enter_context(all_readers(archive, spark, endpoint, tmp_path / "after")), archive, of_later
        )
        kafkas = kafkas_rows(of_later, archive.topic, "read_committed")
        for (name, level), read in readers.items():
            match name:
                case "endpoint":
                    again = before + kafkas[SHARED:]
                    assert read(len(again)) == again, level
                case "consumer":
                    with pytest.raises(KafkaException) as truncated:
                        read(len(before) + 1)
                    assert truncated.value.args[0].code() == KafkaError._LOG_TRUNCATION
                case "table":
                    with pytest.raises(DataLoss, match="on_taken_back"):
                        read(0)
                case _ if name == STREAM:
                    with pytest.raises(StreamingQueryException, match="an election removed them"):
                        read(0)
                case _:
                    assert name == BATCH
                    assert read(0) == kafkas, level
