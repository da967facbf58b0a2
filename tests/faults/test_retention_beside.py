"""Retention next to agents, a producer, readers, a table, repairs and an election.

The long case is on Kafka with KRaft, the short one on the folder's cluster. `make test` has the parts of it: in
`tests/tsctl/gc` kills, holds and readers of a policy, in `tests/lineage` the order of writes.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import dump
from dev.local.proxy.s3 import S3FaultProxy
from tests.faults.beside_retention import (
    Collector,
    Repairs,
    SparkStream,
    TableRuns,
    WholeReader,
    below_start,
    read_all,
    start_of,
    wait_out_grace,
)
from tests.faults.leaders import PATIENCE, Load, start_agents
from tests.uploader.beside import BUCKET, SMALL_FETCHES, archives


@pytest.fixture(scope="module")
def zookeeper(two_brokers: LocalCluster) -> LocalCluster:
    return two_brokers


@pytest.fixture(scope="module")
def kraft() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2,
        mode="kraft",
        s3=True,
        buckets=[BUCKET],
        properties={**SMALL_FETCHES, "broker.session.timeout.ms": "2000"},
        name="retention-beside",
    ) as cluster:
        yield cluster


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> LocalCluster:
    found: LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.mark.full
@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize(
    ("brokers", "kills", "moves", "streamed"),
    [("zookeeper", 1, 2, False), pytest.param("kraft", 20, 25, True, marks=pytest.mark.timeout(3600))],
    indirect=["brokers"],
)
def test_g03_no_reader_and_no_table_misses_a_record_while_retention_deletes_and_repairs_run(
    brokers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, moves: int, streamed: bool
) -> None:
    """The collector is killed at writes, and the leader dies: each record is read once until its start has passed.

    The long case has a Spark stream too, for which the policy waits.
    """
    topic = f"beside-{kills}"
    assert brokers.s3 is not None
    for name, value in brokers.s3.environment().items():
        monkeypatch.setenv(name, value)
    brokers.create_topic(topic, assignment=[[2, 1]], config={"segment.bytes": "20000"})
    with archives(brokers, tmp_path) as archive_of, S3FaultProxy(brokers.s3) as proxy, ExitStack() as streams:
        archive = archive_of(topic)
        agents = start_agents(archive, 1, 2)
        # The long case deletes for minutes: it must delete faster than the producer writes, in spite of the kills.
        with Load(brokers, topic, 1, every=0.2 if streamed else 0.05) as load:
            archive.wait_for_offset(1)
            table = TableRuns(archive, tmp_path)
            stream = streams.enter_context(SparkStream(archive, tmp_path)) if streamed else None
            checkpoint = None if stream is None else stream.checkpoint
            repairs = Repairs(archive, list(agents.values()), checkpoint)
            reader = WholeReader(archive, repairs)
            collector = Collector(archive, proxy, 3 * kills, 100 if streamed else 25, checkpoint)
            with reader, table, collector, repairs:  # a segment that is hidden counts once it is released

                def done(share: float) -> bool:
                    for each in (load, reader, table, repairs, collector):
                        each.check()
                    if stream is not None:
                        stream.check()
                    has_moved = collector.killed >= kills * share and len(reader.starts) >= moves * share
                    return has_moved and reader.reads > 3 and repairs.repaired >= 2 * share

                def state() -> object:
                    return collector.killed, reader.starts[-3:], reader.reads, reader.repeated, repairs.statuses

                seconds = PATIENCE * max(1, kills / 2)
                wait_for(lambda: done(0.4), "retention to work", seconds, state=state)
                brokers.brokers[2].kill()
                wait_for(lambda: brokers.leader(topic, 0) == 1, "an election", PATIENCE)
                elected = archive.next_offset()
                wait_for(lambda: done(1) and archive.next_offset() > elected, "it to continue", seconds, state=state)
            produced = max(load.acknowledged[0])
        archive.wait_until_shipped(1)
        table.once()
        streams.close()
        streamed_rows = None if stream is None else stream.finish()
        wait_out_grace(archive, PATIENCE, checkpoint)

        expected = {record.offset: record.value or b"" for record in dump(brokers.bootstrap, topic)}
        assert len(expected) > produced * 0.9
        start = start_of(archive)
        rows = table.rows()
        assert rows == [(offset, expected[offset]) for offset in range(archive.next_offset())]
        assert streamed_rows in (None, rows)
        assert reader.rows == {offset: expected[offset] for offset in reader.rows}
        assert read_all(archive) == [(offset, expected[offset]) for offset in range(start, archive.next_offset())]
        left = below_start(archive)
        assert not [key for key in left if key.endswith(".log")]

        agents[1].stop()
        archive.agent(1)
        end = archive.next_offset()
        with Load(brokers, topic, 1):
            wait_for(lambda: archive.next_offset() > end, "the agent to ship again", PATIENCE)
        assert below_start(archive) == left
        assert start_of(archive) == start
