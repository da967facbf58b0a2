"""Closed segments that a broker removes before their upload, while packs have some of their records."""

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.archive import read_incarnation
from tests.faults.files import gaps_of
from tests.faults.leaders import PATIENCE, bases, produce, start_agents
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import TAIL, wait_shown

pytestmark = pytest.mark.usefixtures("credentials", "mended")


@pytest.mark.parametrize("elects", [False, pytest.param(True, marks=pytest.mark.full)])
def test_u47_records_that_were_shown_stay_though_retention_removed_their_segment(
    cluster: LocalCluster, archive_of: ArchiveOf, elects: bool
) -> None:
    """No agent runs meanwhile, and the broker can be elected again; only what no pack had is a gap."""
    archive = archive_of(f"tail-removed-{elects}", properties=TAIL)
    config = {"segment.bytes": "60000", "file.delete.delay.ms": "100", "min.insync.replicas": "1"}
    cluster.create_topic(archive.topic, assignment=[[1]], config=config)
    (agent,) = start_agents(archive, 1).values()
    acknowledged = produce(cluster, archive.topic, "first", 100)
    seen = wait_shown(archive, 100)
    assert {record.offset: record.value for record in seen} == acknowledged
    assert archive.next_offset() == 0
    agent.kill()
    produce(cluster, archive.topic, "later", 1500)
    cluster.alter_config(archive.topic, {"retention.bytes": "1"})
    wait_for(lambda: bases(cluster, 1, archive.topic)[0] > 100, "retention to remove the segments", PATIENCE)
    cluster.alter_config(archive.topic, {"retention.bytes": "-1"})
    if elects:
        cluster.brokers[1].kill()
        cluster.brokers[1].launch()
        cluster.brokers[1].wait_ready()
    agent.start()
    lowest = bases(cluster, 1, archive.topic)[0]
    wait_for(lambda: archive.next_offset() >= lowest, "the gap to be passed", PATIENCE)
    assert gaps_of(archive) == [(100, lowest)]
    records, holes = read_incarnation(archive.store, archive.partition_keys())
    assert [record for record in records if record.offset < 100] == seen
    assert holes == [(100, lowest)]
