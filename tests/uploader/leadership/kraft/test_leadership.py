"""An agent on brokers in KRaft mode: what it ships, and from where it reads leadership."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import BUCKET, archives
from tests.uploader.conftest import ArchiveOf
from tests.uploader.leadership.kraft_records import records
from ts_common.model import TopicPartition as Partition
from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient

# Kafka 4 rejects segments below 1 MiB, and a follower appends a whole fetch at once.
FETCHES = {"replica.fetch.max.bytes": "200000", "replica.fetch.response.max.bytes": "200000"}
ROLLS = {1: {"log.segment.bytes": "1048576"}, 2: {"log.segment.bytes": "1500000"}}


@pytest.fixture(scope="module")
def kraft() -> Iterator[LocalCluster]:
    """Two brokers that roll at different sizes; the first is the controller too."""
    with LocalCluster(
        brokers=2,
        mode="kraft",
        s3=True,
        buckets=[BUCKET],
        properties={
            **FETCHES,
            "broker.session.timeout.ms": "2000",
            "auto.leader.rebalance.enable": "false",
            "replica.high.watermark.checkpoint.interval.ms": "500",
        },
        broker_properties=ROLLS,
        name="kraft-agents",
    ) as cluster:
        yield cluster


@pytest.fixture
def archive_of(kraft: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    with archives(kraft, tmp_path) as archive:
        yield archive


def elect_preferred(cluster: LocalCluster, topic: str, leader: int) -> None:
    """Move leadership to the first replica, as an operator does."""
    admin, moved = cluster.admin(), TopicPartition(topic, 0)
    errors = admin.elect_leaders(ElectionType.PREFERRED, [moved]).result(30)
    assert errors[moved] is None, errors
    wait_for(lambda: cluster.leader(topic, 0) == leader, f"broker {leader} to lead {topic}")


@pytest.mark.full
def test_u04_kraft_leaders_that_move_and_die_leave_no_hole(kraft: LocalCluster, archive_of: ArchiveOf) -> None:
    """A leader is killed, restarted and elected again, with an agent on each broker: each record is read once."""
    archive = archive_of("moved")
    kraft.create_topic("moved", assignment=[[2, 1]], config={"min.insync.replicas": "1"})
    beside = {broker: archive.agent(broker) for broker in (1, 2)}
    kraft.produce("moved", records(1500), partition=0)
    archive.wait_until_shipped(2)
    kraft.brokers[2].kill()
    wait_for(lambda: kraft.leader("moved", 0) == 1, "broker 1 to lead")
    wait_for(lambda: beside[2].health()["leadership"] == "unknown", "the agent to miss its broker")
    kraft.produce("moved", records(1500, start=1500), partition=0)
    archive.wait_until_shipped(1)
    kraft.brokers[2].start()
    wait_for(lambda: beside[2].health()["leadership"] == "watched", "the agent to find its broker again")
    wait_for(lambda: kraft.in_sync("moved", 0) == {1, 2}, "both brokers in sync")
    elect_preferred(kraft, "moved", 2)
    kraft.produce("moved", records(1500, start=3000), partition=0)
    end = archive.wait_until_shipped(2)
    commit = archive.commit()
    assert commit is not None
    assert [epoch for epoch, _ in commit.epochs.pairs] == sorted({epoch for epoch, _ in commit.epochs.pairs})
    assert len(commit.epochs.pairs) >= 3
    assert archive.read() == archive.oracle(end=archive.next_offset())
    assert 3000 < end <= archive.next_offset()


@pytest.mark.full
def test_a_controller_that_is_lost_does_not_matter(kraft: LocalCluster, archive_of: ArchiveOf) -> None:
    """The cut-off broker's own metadata counts: its agent ships on, and so does one that starts then."""
    archive = archive_of("orphaned")
    kraft.create_topic("orphaned", assignment=[[2]])
    kraft.produce("orphaned", records(1500), partition=0)
    archive.agent(2)
    before = archive.wait_until_shipped(2)
    kraft.brokers[1].kill()
    kraft.produce("orphaned", records(1500, start=1500), partition=0)
    archive.agent(2)
    end = archive.wait_until_shipped(2)
    read = archive.read()
    kraft.brokers[1].start()
    assert end > before
    assert read == archive.oracle(end=archive.next_offset())


def test_u45_a_deleted_topic_keeps_its_tail(secured_kraft: LocalCluster, tmp_path: Path) -> None:
    """Its active segment is shipped from the renamed directory, as far as the high watermark: no record is missing."""
    with archives(secured_kraft, tmp_path) as archive_of:
        archive = archive_of("doomed")
        secured_kraft.create_topic("doomed", assignment=[[1]], config={"segment.bytes": "20000"})
        produced = records(200)
        secured_kraft.produce("doomed", produced, partition=0)
        archive.agent()
        archive.wait_until_shipped()
        secured_kraft.delete_topic("doomed")
        archive.wait_for_offset(len(produced))
        read = archive.read()
    assert [(record.key, record.value) for record in read] == [(each.key, each.value) for each in produced]


@pytest.mark.full  # brokers stop and start again: three quarters of a minute
def test_what_is_committed_is_shipped_under_min_isr_too(kraft: LocalCluster, archive_of: ArchiveOf) -> None:
    """The high watermark stays below the start of the leader's epoch, and the broker does not return its epoch."""
    archive = archive_of("alone")
    kraft.create_topic("other", assignment=[[1]], config={"min.insync.replicas": "1"})
    kraft.create_topic("alone", assignment=[[1, 2]], config={"min.insync.replicas": "2"})
    kraft.produce("alone", records(1500), partition=0)
    kraft.brokers[2].stop()
    wait_for(lambda: kraft.in_sync("alone", 0) == {1}, "the leader to be left alone")
    kraft.produce("alone", records(500, start=1500), partition=0, config={"acks": "1"})
    kraft.brokers[1].restart()
    wait_for(lambda: kraft.leader("alone", 0) == 1, "broker 1 to lead")
    asked = [Partition("alone", 0), Partition("other", 0)]
    client = LibrdkafkaClient(1, {"bootstrap.servers": kraft.brokers[1].bootstrap}, 10.0)
    wait_for(lambda: client.latest(asked).epochs.get(asked[1]), "the other partition's epoch")
    assert client.latest(asked).epochs[asked[0]] is None
    client.close(10.0)
    directory = kraft.brokers[1].partition_directory("alone", 0)
    committed = max(base for base in (int(path.stem) for path in directory.glob("*.log")) if base <= 1500)
    agent = archive.agent(1)
    archive.wait_for_offset(committed)
    assert archive.next_offset() == committed > 0, agent.tail(20)
    kraft.brokers[2].start()
    wait_for(lambda: kraft.in_sync("alone", 0) == {1, 2}, "both brokers in sync")
    end = archive.wait_until_shipped(1)
    assert end > 1500
    assert archive.read() == archive.oracle(end=end)
