"""Streams over a live tail with a real broker and agent: each record once, across segments and killed agents."""

import json
from typing import Any

import pytest

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord, dump
from tests.archive import record_of
from tests.faults.leaders import PATIENCE, Background, produce
from tests.uploader.beside import Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import TAIL

pytestmark = pytest.mark.usefixtures("credentials")
STEPS = 4  # of one life of the stream


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
            steps = scan.follow(position=position, poll_seconds=0.1, stop=self._ending)
            for number, step in enumerate(steps, 1):
                self.records += map(record_of, step.to_table().to_pylist())
                position = json.loads(json.dumps(step.position))
                if number == STEPS:
                    break
            steps.close()


def test_a_stream_reads_each_record_once_while_segments_close_and_the_agent_is_killed(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """In order, equal to Kafka's consumer, from packs and from segments."""
    archive = archive_of("tail-followed", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config={"segment.bytes": "60000"})
    agent = archive.agent(1)
    produce(cluster, archive.topic, "first", 10)
    wait_for(lambda: archive.commit() is not None, "the first commit", PATIENCE)
    with Followed(archive) as followed:
        for number in range(4):
            followed.wait(max(produce(cluster, archive.topic, f"part{number}", 400)))
            if number == 1:
                agent.kill()
                agent.start()
    assert followed.records == dump(cluster.bootstrap, archive.topic)
    assert archive.next_offset() > 0
    assert followed.lives > 1
