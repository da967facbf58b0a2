"""Kafka 3.9 in KRaft mode, as a cluster is after its migration: the agent works as with Kafka 4."""

from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, Archive, archives
from tests.uploader.produced import records
from ts_common.log_format.checkpoints import parse_partition_metadata


@pytest.mark.full
def test_u04_leaders_of_kafka_3_9_that_die_leave_no_hole(tmp_path: Path) -> None:
    """The leader is killed, with an agent on each broker: each record is read once, in rising epochs, under one id."""
    with (
        LocalCluster(
            brokers=2,
            mode="kraft",
            line="3.9",
            own_controller=True,
            s3=True,
            buckets=[BUCKET],
            properties={**SMALL_FETCHES, "broker.session.timeout.ms": "2000"},
            broker_properties=ROLLS,
            name="kraft-older",
        ) as cluster,
        archives(cluster, tmp_path) as archive_of,
    ):
        archive: Archive = archive_of("older")
        cluster.create_topic("older", assignment=[[2, 1]], config={"min.insync.replicas": "1"})
        for broker in (1, 2):
            archive.agent(broker)
        cluster.produce("older", records(1500), partition=0)
        before = archive.wait_until_shipped(2)
        cluster.brokers[2].kill()
        wait_for(lambda: cluster.leader("older", 0) == 1, "broker 1 to lead", 60)
        cluster.produce("older", records(1500, start=1500), partition=0)
        end = archive.wait_until_shipped(1)
        commit = archive.commit()
        assert commit is not None
        assert len(commit.epochs.pairs) == 2
        metadata = cluster.brokers[1].partition_directory("older", 0) / "partition.metadata"
        assert commit.topic_id == parse_partition_metadata(metadata.read_bytes())
        assert archive.read() == archive.oracle(end=end)
        assert end > before > 0
