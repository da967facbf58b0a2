"""The live tail with real brokers and agents: readers see each acknowledged record that Kafka kept, once."""

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.oracle import OracleRecord, dump
from tests.faults.leaders import Background, Load, produce, start_agents, wait_in_sync, wait_led
from tests.uploader.beside import Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import TAIL, shown, transact, wait_shown

pytestmark = pytest.mark.usefixtures("credentials", "mended")


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


@pytest.mark.parametrize(
    ("cluster", "moves"),
    [
        ("zookeeper", "pause"),
        pytest.param("kraft", "kill pause", marks=pytest.mark.full),
        pytest.param("zookeeper", "pause kill pause kill kill pause pause kill", marks=pytest.mark.full),
        pytest.param("kraft", "pause kill pause kill kill pause pause kill", marks=pytest.mark.full),
    ],
    indirect=["cluster"],
)
def test_each_acknowledged_record_is_shown_once_across_leaders_and_killed_agents(
    cluster: LocalCluster, archive_of: ArchiveOf, moves: str
) -> None:
    """In order, equal to Kafka's consumer at both isolation levels, from the tail and from segments.

    A leader that was paused leads on for a moment, and receives what producers sent it.
    """
    archive = archive_of(f"tail-moves-{len(moves)}", properties=TAIL)
    config = {"segment.bytes": "120000", "min.insync.replicas": "1"}
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config=config)
    agents = start_agents(archive, 1, 2)
    while_paused: dict[int, bytes] = {}
    with Load(cluster, archive.topic, 1) as load, Watch(archive) as watch:
        for number, move in enumerate(moves.split()):
            leader, other = number % 2 + 1, 2 - number % 2
            transact(cluster, archive.topic)
            wait_shown(archive, max(load.acknowledged[0], default=0))
            agents[leader].kill()
            agents[leader].start()
            wait_shown(archive, max(load.acknowledged[0]))
            broker = cluster.brokers[leader]
            (broker.kill if move == "kill" else broker.pause)()
            wait_led(cluster, archive.topic, other)
            of_other = cluster.brokers[other].bootstrap
            while_paused |= produce(cluster, archive.topic, f"other{number}", 20, bootstrap_servers=of_other)
            wait_shown(archive, max(while_paused) + 1)
            (broker.start if move == "kill" else broker.resume)()
            wait_in_sync(cluster, archive.topic, 1, 2)
        transact(cluster, archive.topic)
        watch.check()
    seen = wait_shown(archive, cluster.latest(archive.topic, 0))
    assert seen == dump(cluster.bootstrap, archive.topic)
    assert shown(archive, "read_committed") == dump(cluster.bootstrap, archive.topic, "read_committed")
    values = {record.offset: record.value for record in seen}
    assert (load.acknowledged[0] | while_paused).items() <= values.items()
    assert watch.reads > 10
    assert archive.next_offset() > 0
