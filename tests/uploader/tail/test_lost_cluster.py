"""A whole cluster is lost at once: what the archive still has, and what a restore brings back."""

import time
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Message

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.kafka.distribution import kafka_directory
from tests.faults.leaders import PATIENCE, Background, start_agents
from tests.tsctl.running import runner
from tests.uploader.beside import PREFIX
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import shown, shown_end
from ts_common.archive.tail_logs import TailLogs

pytestmark = pytest.mark.usefixtures("credentials", "mended")
INTERVAL = 0.2  # seconds
SLOW = 1.5  # seconds that a round can need on a busy machine
BUSY, QUIET = 0, 1
QUIET_RECORDS = 300
FAST_RECORDS = 1000  # a segment closes; then only the tail has what is produced for a long time


class Writers(Background):
    """Produce to one partition until the end, and some records to the other; no record is sent twice.

    Attributes:
        acknowledged: by partition, offset: the value, and when it was acknowledged, seconds since the epoch.
    """

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        super().__init__()
        self.acknowledged: dict[int, dict[int, tuple[bytes, float]]] = {BUSY: {}, QUIET: {}}
        self._topic = topic
        self._producer = cluster.producer({"enable.idempotence": True, "batch.size": 4000})

    def run(self) -> None:
        for number in count():
            partition = QUIET if number < QUIET_RECORDS else BUSY
            value = b"%07d-" % number + Random(number).randbytes(200)
            delivered = partial(self._delivered, partition, value)
            self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            self._producer.poll(0)
            if self._ending.wait(0.02 if number > FAST_RECORDS else 0):
                self._producer.purge()  # no broker is left
                return

    def _delivered(self, partition: int, value: bytes, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self.acknowledged[partition][offset] = value, time.time()


@pytest.mark.parametrize("restores", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_lost_cluster_leaves_all_but_what_the_last_two_intervals_acknowledged(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path, capfd: pytest.CaptureFixture[str], restores: bool
) -> None:
    """All agents end while producers write to one partition, and no broker answers; the other partition is whole.

    Brokers that are killed instead cost more time. A restore has the same records.
    """
    archive = archive_of(
        "tail-restored" if restores else "tail-lost",
        properties={PREFIX + "tail.interval.ms": str(int(INTERVAL * 1000))},
    )
    cluster.create_topic(archive.topic, assignment=[[1, 2], [2, 1]], config={"segment.bytes": "100000"})
    with Writers(cluster, archive.topic) as writers:
        acknowledged = writers.acknowledged
        agents = start_agents(archive, 1, 2)
        later = time.time() + 2.5 * INTERVAL + SLOW  # else each record could be one of the last two intervals
        wait_for(lambda: len(acknowledged[QUIET]) == QUIET_RECORDS, "the acknowledgements of the quiet one", PATIENCE)
        wait_for(lambda: shown_end(archive, QUIET) == QUIET_RECORDS, "the quiet partition to be shown", 10)
        wait_for(lambda: shown_end(archive, BUSY) > archive.next_offset(BUSY) > 0, "a segment and a tail", PATIENCE)
        wait_for(lambda: max(at for _, at in [*acknowledged[BUSY].values()][-1:]) > later, "more of these", PATIENCE)
        lost_at = time.time()
        for agent in agents.values():
            agent.kill()
        for broker in cluster.brokers.values():
            (broker.kill if restores else broker.pause)()
    seen = {BUSY: dict[int, bytes | None](), QUIET: dict[int, bytes | None]()}
    for record in shown(archive):
        assert record.offset not in seen[record.partition]
        seen[record.partition][record.offset] = record.value
    for partition, records in acknowledged.items():
        assert [*seen[partition]] == [*range(len(seen[partition]))]
        for offset, (value, _) in records.items():
            assert seen[partition].get(offset, value) == value
    assert seen[QUIET] == {offset: value for offset, (value, _) in acknowledged[QUIET].items()}
    missing = [at for offset, (_, at) in acknowledged[BUSY].items() if offset not in seen[BUSY]]
    commit = archive.commit(BUSY)
    assert commit is not None
    requested = TailLogs(archive.store, archive.keys).chain(archive.partition_keys(BUSY), commit).time
    assert requested is not None
    assert min(missing, default=lost_at) >= max(requested / 1000, lost_at - 2 * INTERVAL - SLOW)
    if restores:
        (tmp_path / "data").mkdir()
        place = ("--config", archive.config, "--whole", "--directory", tmp_path / "data")
        ended = runner(capfd)("drill", archive.topic, "--kafka", kafka_directory("3.9"), *place, "--json")
        assert ended.code == 0, ended
        assert (ended.document["succeeded"], ended.document["findings"]) == (True, [])
        assert ended.document["records"] == len(seen[BUSY]) + len(seen[QUIET])
