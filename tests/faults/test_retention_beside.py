"""Retention next to agents, a producer, a reader, a table and an election, on Kafka with KRaft."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.beside_retention import (
    Collector,
    TableRuns,
    WholeReader,
    below_start,
    read_all,
    start_of,
    wait_out_grace,
)
from tests.faults.leaders import PATIENCE, Load, start_agents
from tests.uploader.beside import BUCKET, SMALL_FETCHES, archives
from ts_local.kafka.cluster import LocalCluster, wait_for
from ts_local.oracle import dump
from ts_local.proxy.s3 import S3FaultProxy


@pytest.fixture(scope="module")
def kraft() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2,
        mode="kraft",
        s3=True,
        buckets=[BUCKET],
        properties={**SMALL_FETCHES, "broker.session.timeout.ms": "2000"},
        topic_config={"segment.bytes": "20000"},
        name="retention-beside",
    ) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("kills", "moves"), [(2, 3), pytest.param(20, 25, marks=(pytest.mark.full, pytest.mark.timeout(1800)))]
)
def test_g03_no_reader_and_no_table_misses_a_record_while_retention_deletes(
    kraft: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, moves: int
) -> None:
    """The collector is killed at writes, and the leader dies: each record is read once until its start has passed."""
    topic = f"beside-{kills}"
    assert kraft.s3 is not None
    for name, value in kraft.s3.environment().items():
        monkeypatch.setenv(name, value)
    kraft.create_topic(topic, assignment=[[2, 1]])
    with archives(kraft, tmp_path) as archive_of, S3FaultProxy(kraft.s3) as proxy:
        archive = archive_of(topic)
        first = start_agents(archive, 1, 2)[1]
        reader = WholeReader(archive)
        with Load(kraft, topic, 1) as load:
            archive.wait_for_offset(1)
            table = TableRuns(archive, tmp_path)
            with reader, table, Collector(archive, proxy, seed=kills) as collector:

                def done(share: float) -> bool:
                    for each in (load, reader, table, collector):
                        each.check()
                    return (
                        collector.killed >= kills * share and len(reader.starts) >= moves * share and reader.reads > 3
                    )

                def state() -> object:
                    return collector.killed, reader.starts[-3:], reader.reads, reader.repeated

                seconds = PATIENCE * kills / 2
                wait_for(lambda: done(0.4), "retention to work", seconds, state=state)
                kraft.brokers[2].kill()
                wait_for(lambda: kraft.leader(topic, 0) == 1, "an election", PATIENCE)
                elected = archive.next_offset()
                wait_for(lambda: done(1) and archive.next_offset() > elected, "it to continue", seconds, state=state)
            produced = max(load.acknowledged[0])
        archive.wait_until_shipped(1)
        table.once()
        wait_out_grace(archive, PATIENCE)

        expected = {record.offset: record.value or b"" for record in dump(kraft.bootstrap, topic)}
        assert len(expected) > produced * 0.9
        start = start_of(archive)
        rows = table.rows()
        assert rows == [(offset, expected[offset]) for offset in range(archive.next_offset())]
        assert reader.rows == {offset: expected[offset] for offset in reader.rows}
        assert read_all(archive) == [(offset, expected[offset]) for offset in range(start, archive.next_offset())]
        left = below_start(archive)
        assert not [key for key in left if key.endswith(".log")]

        first.stop()
        archive.agent(1)
        end = archive.next_offset()
        with Load(kraft, topic, 1):
            wait_for(lambda: archive.next_offset() > end, "the agent to ship again", PATIENCE)
        assert below_start(archive) == left
        assert start_of(archive) == start
