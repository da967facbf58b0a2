"""The live tail with real brokers and agents: readers see each acknowledged record that Kafka kept, once."""

from collections.abc import Iterator

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.oracle import OracleRecord, dump
from tests.faults.leaders import Background, Load, produce, start_agents, wait_in_sync, wait_led
from tests.uploader.beside import ON_BOTH, Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import TAIL, shown, transact, wait_shown

pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture(autouse=True)
def _mended(cluster: LocalCluster) -> Iterator[None]:
    """Run each broker again after the test."""
    yield
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()


def test_records_of_an_open_segment_are_shown_and_stay_the_same_once_it_closes(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """Also before anything has closed, where the commit names no segment."""
    archive = archive_of("tail-open", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config={"segment.bytes": "60000"})
    agent = archive.agent(1)
    first = produce(cluster, archive.topic, "first", 50)
    seen = wait_shown(archive, 50)
    assert archive.commit() is not None
    assert archive.next_offset() == 0
    assert {record.offset: record.value for record in seen} == first
    rest = produce(cluster, archive.topic, "rest", 900)
    seen = wait_shown(archive, 950)
    archive.wait_until_shipped(1)
    assert 0 < archive.next_offset() < 950
    again = shown(archive)
    assert again == seen == dump(cluster.bootstrap, archive.topic)
    assert {record.offset: record.value for record in again} == first | rest
    assert agent.metrics()["ts_uploader_tail_lag_seconds"] == 0


class Watch(Background):
    """Reads the partition again and again: what was shown once stays, and each offset is shown once."""

    def __init__(self, archive: Archive) -> None:
        super().__init__()
        self.reads = 0
        self._archive = archive

    def run(self) -> None:
        before: list[OracleRecord] = []
        while not self._ending.wait(0.1):
            now = shown(self._archive)
            assert now[: len(before)] == before[: len(now)]
            assert len(now) >= len(before), f"the end went from {before[-1].offset} to {now[-1:]}"
            self.reads, before = self.reads + 1, now


@ON_BOTH
def test_each_acknowledged_record_is_shown_once_across_leaders_and_killed_agents(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """In order, equal to Kafka's consumer at both isolation levels, from the tail and from segments."""
    archive = archive_of("tail-moves", properties=TAIL)
    config = {"segment.bytes": "120000", "min.insync.replicas": "1"}
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config=config)
    agents = start_agents(archive, 1, 2)
    with Load(cluster, archive.topic, 1) as load, Watch(archive) as watch:
        for leader, other in ((1, 2), (2, 1)):
            transact(cluster, archive.topic)
            wait_shown(archive, max(load.acknowledged[0], default=0))
            agents[leader].kill()
            agents[leader].start()
            wait_shown(archive, max(load.acknowledged[0]))
            cluster.brokers[leader].kill()
            wait_led(cluster, archive.topic, other)
            wait_shown(archive, max(load.acknowledged[0]))
            cluster.brokers[leader].start()
            wait_in_sync(cluster, archive.topic, 1, 2)
        transact(cluster, archive.topic)
        watch.check()
    seen = wait_shown(archive, cluster.latest(archive.topic, 0) - 1)
    assert seen == dump(cluster.bootstrap, archive.topic)
    assert shown(archive, "read_committed") == dump(cluster.bootstrap, archive.topic, "read_committed")
    values = {record.offset: record.value for record in seen}
    assert load.acknowledged[0].items() <= values.items()
    assert watch.reads > 10
    assert archive.next_offset() > 0
