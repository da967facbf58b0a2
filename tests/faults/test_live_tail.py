"""The live tail with real brokers and agents: readers see each acknowledged record that Kafka kept, once."""

import pytest

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, OracleRecord, dump
from tests.archive import record_of
from tests.faults.conftest import ArchiveOf
from tests.faults.leaders import PATIENCE, produce
from tests.uploader.beside import PREFIX, Archive

pytestmark = pytest.mark.usefixtures("mended")

TAIL = {PREFIX + "tail.interval.ms": "200"}


def shown(archive: Archive, isolation: Isolation = "read_uncommitted") -> list[OracleRecord]:
    """Return what readers see, with the live tail."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in archive.s3.environment().items():
            patched.setenv(name, value)
        opened = ts_reader.Archive(archive.location, archive.keys.cluster, workers=1)
        scan = opened.scan(archive.topic, include_headers=True, isolation_level=isolation)
        return [record_of(row) for row in scan.to_table().to_pylist()]


def wait_shown(archive: Archive, end: int) -> list[OracleRecord]:
    """Wait until readers see all records below an offset."""
    wait_for(
        lambda: bool(seen := shown(archive)) and seen[-1].offset >= end - 1,
        f"{archive.topic} to be shown up to {end}",
        PATIENCE,
        state=lambda: "\n".join([str(archive.commit()), *(agent.tail(10) for agent in archive.agents)]),
    )
    return shown(archive)


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
