"""The live tail with real brokers and agents: readers see each acknowledged record that Kafka kept, once."""

import json
from typing import Any

import pytest

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord, dump
from tests.archive import record_of
from tests.faults.leaders import PATIENCE, Background, Load, produce, start_agents
from tests.uploader.beside import Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.leader_moves import give_back, lose_leader
from tests.uploader.tail.shown import TAIL, shown, transact, wait_shown
from ts_reader.following import ends

pytestmark = pytest.mark.usefixtures("credentials", "mended")
STEPS = 4  # of one life of the stream
LAG = "ts_uploader_tail_lag_seconds"


class Watch(Background):
    """Reads the partition again and again: what was shown once stays, and each offset is shown once."""

    def __init__(self, archive: Archive) -> None:
        super().__init__()
        self.reads = 0
        self._archive = archive

    def run(self) -> None:
        before: list[OracleRecord] = []
        while not self._ending.wait(0.2):
            now = shown(self._archive)
            assert now[: len(before)] == before[: len(now)]
            assert len(now) >= len(before), f"the end went from {before[-1].offset} to {now[-1:]}"
            self.reads, before = self.reads + 1, now


class Followed(Background):
    """Follows a topic, and begins again at the last saved position after some steps."""

    def __init__(self, archive: Archive) -> None:
        super().__init__()
        self.records: list[OracleRecord] = []
        self.lives = 0
        self._archive = archive

    def wait(self, end: int) -> None:
        """Wait until an offset was read."""

        def is_read() -> bool:
            self.check()
            return bool(self.records) and self.records[-1].offset >= end

        wait_for(is_read, f"the stream to read offset {end}", PATIENCE, state=lambda: str(self._archive.commit()))

    def run(self) -> None:
        position: Any = None
        opened = ts_reader.Archive(self._archive.location, self._archive.keys.cluster, workers=1)
        scan = opened.scan(self._archive.topic, include_headers=True)
        while not self._ending.is_set():
            self.lives += 1
            steps = scan.follow(position=position, poll_seconds=0.2, stop=self._ending)
            for number, step in enumerate(steps, 1):
                self.records += map(record_of, step.to_table().to_pylist())
                position = json.loads(json.dumps(step.position))
                if number == STEPS:
                    break
            steps.close()


@pytest.fixture
def _commits_are_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream reads the packs alone for half a second: it waits so long for segments that no pack had."""
    monkeypatch.setattr(ends, "COMMIT_SECONDS", 0.5)


@pytest.mark.usefixtures("_commits_are_read_soon")
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
    """In order, equal to Kafka's consumer at both isolation levels; by scans, and by a stream that ends and begins.

    First no segment has closed, and the commit names none; at the end segments have what was in the tail. A leader
    that was paused leads on for a moment, and receives what producers sent it.
    """
    archive = archive_of(f"tail-moves-{len(moves)}", properties=TAIL)
    config = {"segment.bytes": "60000", "min.insync.replicas": "1"}
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config=config)
    agents = start_agents(archive, 1, 2)
    acknowledged = produce(cluster, archive.topic, "first", 50)
    assert {record.offset: record.value for record in wait_shown(archive, 50)} == acknowledged
    assert archive.commit() is not None
    assert archive.next_offset() == 0
    wait_for(lambda: agents[1].metrics()[LAG] == 0, "a tail without a lag", PATIENCE)
    with Followed(archive) as followed:
        with Load(cluster, archive.topic, 1, every=0.2) as load, Watch(archive) as watch:
            for number, move in enumerate(moves.split()):
                leader = number % 2 + 1
                transact(cluster, archive.topic)
                wait_for(lambda: len(load.acknowledged[0]) > 0, "an acknowledged record", PATIENCE)
                wait_shown(archive, max(load.acknowledged[0]))
                agents[leader].kill()
                agents[leader].start()
                wait_shown(archive, max(load.acknowledged[0]))
                other = lose_leader(cluster, archive.topic, move, leader)
                of_other = cluster.brokers[other].bootstrap
                acknowledged |= produce(cluster, archive.topic, f"other{number}", 20, bootstrap_servers=of_other)
                wait_shown(archive, max(acknowledged) + 1)
                give_back(cluster, archive.topic, move, leader)
            acknowledged |= produce(cluster, archive.topic, "last", 300)  # more than a segment
            wait_for(lambda: archive.next_offset() > 0, "a segment to be shipped", PATIENCE)
            watch.check()
        seen = wait_shown(archive, cluster.latest(archive.topic, 0))
        followed.wait(seen[-1].offset)
    assert seen == dump(cluster.bootstrap, archive.topic)
    assert shown(archive, "read_committed") == dump(cluster.bootstrap, archive.topic, "read_committed")
    values = {record.offset: record.value for record in seen}
    assert (load.acknowledged[0] | acknowledged).items() <= values.items()
    assert watch.reads > 1
    assert followed.records == seen
    assert followed.lives > 1
