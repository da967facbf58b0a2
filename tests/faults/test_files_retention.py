"""Retention and DeleteRecords remove segments before, and while, they are shipped (faults U07 and U24)."""

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.conftest import ArchiveOf
from tests.faults.files import (
    SECONDS,
    deleted_bases,
    gaps_of,
    live_bases,
    look,
    paused,
    records,
    sample,
    text_of,
    wait_for_backlog,
    wait_until_said,
)
from ts_common.archive.plan import Hole

SMALL = {"segment.bytes": "20000"}


def counted(agent: AgentProcess, name: str) -> float:
    """Return the sum over all reasons."""
    samples = agent.metrics().items()
    return sum(value for sample, value in samples if sample.startswith(f"ts_uploader_{name}_total{{reason="))


def reason_of(agent: AgentProcess) -> str:
    return wait_until_said(agent, "gap_recorded", "error")


def test_u07_what_retention_renamed_is_shipped_from_the_renamed_files(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Store and agent are paused until every closed segment is `.deleted`: all of it is shipped, without a gap."""
    topic = f"renamed-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "file.delete.delay.ms": "600000"})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(200), partition=0)
    agent = archive.agent()
    shipped = archive.wait_until_shipped()
    with paused(archive.s3):
        cluster.produce(topic, records(2000, start=200), partition=0)
        wait_for_backlog(agent, archive, 15)
        closed = [base for base in live_bases(directory)[:-1] if base >= shipped]
        oracle = archive.oracle()
        with paused(agent):
            cluster.alter_config(topic, {"retention.bytes": "1"})
            wait_for(lambda: len(live_bases(directory)) == 1, "retention to take every closed segment", SECONDS)
    assert len(closed) >= 15
    end = archive.wait_until_shipped()
    assert set(closed) <= set(deleted_bases(directory))  # they were shipped from there
    assert end > closed[-1]
    assert archive.read() == oracle[:end]
    assert gaps_of(archive) == []
    assert counted(agent, "gaps") == 0


def test_u39_what_retention_renamed_while_no_agent_ran_is_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """The store is unavailable and the agent dies; the next one ships all `.deleted` segments, without a gap."""
    topic = f"renamed-before-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "file.delete.delay.ms": "600000"})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(200), partition=0)
    agent = archive.agent()
    shipped = archive.wait_until_shipped()
    with paused(archive.s3):
        cluster.produce(topic, records(1000, start=200), partition=0)
        wait_for_backlog(agent, archive, 5)
        agent.kill()
    closed = [base for base in live_bases(directory)[:-1] if base >= shipped]
    oracle = archive.oracle()
    cluster.alter_config(topic, {"retention.bytes": "1"})
    wait_for(lambda: len(live_bases(directory)) == 1, "retention to take every closed segment", SECONDS)
    again = archive.agent()
    end = archive.wait_until_shipped()
    assert set(closed) <= set(deleted_bases(directory))  # they were shipped from there
    assert end > closed[-1]
    assert archive.read() == oracle[:end]
    assert gaps_of(archive) == []
    assert counted(again, "gaps") == 0


def test_u07_what_retention_unlinked_becomes_a_gap_with_its_reason(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """The files are deleted before the store answers: open ones are shipped, the rest is a gap, then all continues."""
    topic = f"unlinked-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "file.delete.delay.ms": "1"})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(200), partition=0)
    agent = archive.agent()
    shipped = archive.wait_until_shipped()
    with paused(archive.s3):
        cluster.produce(topic, records(2000, start=200), partition=0)
        wait_for_backlog(agent, archive, 15)
        oracle = archive.oracle()
        cluster.alter_config(topic, {"retention.bytes": "1"})
        wait_for(
            lambda: len(live_bases(directory)) == 1 and not deleted_bases(directory),
            "retention to unlink every closed segment",
            SECONDS,
        )
        (active,) = live_bases(directory)
    archive.wait_for_offset(active, seconds=SECONDS)
    ((start, end),) = gaps_of(archive)
    assert shipped < start < end == active
    line = reason_of(agent)
    for part in (f"{topic}-0", f"start={start}", f"end={end}", "retention"):
        assert part in line
    assert counted(agent, "gaps") == 1
    assert counted(agent, "gap_offsets") == end - start
    cluster.alter_config(topic, {"retention.bytes": "-1"})
    cluster.produce(topic, records(500, start=2200), partition=0)
    behind = archive.wait_until_shipped()
    assert behind > end
    seen = look(archive)
    assert seen.holes == [Hole(start, end, recorded=True)]
    assert [r for r in seen.records if r.offset < end] == oracle[:start]
    assert [r for r in seen.records if r.offset >= end] == archive.oracle(end=behind)


@pytest.mark.full
def test_u24_records_deleted_below_the_next_offset_change_nothing(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """DeleteRecords inside shipped offsets: every object stays, readers still begin at 0, and shipping continues."""
    topic = "deleted-below"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "file.delete.delay.ms": "1"})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(1000), partition=0)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    oracle, before = archive.oracle(), archive.objects()
    below = live_bases(directory)[-3] + 5
    cluster.delete_records(topic, {0: below})
    wait_for(lambda: live_bases(directory)[0] > 0, "the broker to delete segments", SECONDS)
    assert cluster.earliest(topic, 0) == below
    assert below < end
    cluster.produce(topic, records(500, start=1000), partition=0)
    further = archive.wait_until_shipped()
    assert further > end
    after = archive.objects()
    logs = [key for key in before if key.endswith((".log", ".index", ".timeindex", "log.start"))]
    assert {key: after.get(key) for key in logs} == {key: before[key] for key in logs}
    read = archive.read()
    assert read[:below] == oracle[:below]
    assert read[below:] == archive.oracle(end=further)
    assert gaps_of(archive) == []
    assert counted(agent, "gaps") == 0


def test_u24_records_deleted_above_the_next_offset_are_a_gap_with_that_reason(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """DeleteRecords removes unshipped records: the gap has that reason, the rest is shipped."""
    topic = "deleted-above"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**SMALL, "file.delete.delay.ms": "1"})
    broker = cluster.brokers[1]
    directory = broker.partition_directory(topic, 0)
    cluster.produce(topic, records(200), partition=0)
    agent = archive.agent()
    shipped = archive.wait_until_shipped()
    with paused(agent):
        cluster.produce(topic, records(1500, start=200), partition=0)
        oracle = archive.oracle()
        begins = live_bases(directory)[-4]
        asked = begins + 7
        cluster.delete_records(topic, {0: asked})
        # The agent ships what is still `.deleted`.
        wait_for(
            lambda: live_bases(directory)[0] == begins and not deleted_bases(directory),
            "the broker to unlink segments",
            SECONDS,
        )
        wait_for(
            lambda: f"{topic} 0 {asked}" in (broker.log_dirs[0] / "log-start-offset-checkpoint").read_text(),
            "the broker to write down where its log starts",
            SECONDS,
        )
    end = archive.wait_until_shipped()
    assert gaps_of(archive) == [(shipped, begins)]
    line = reason_of(agent)
    assert f"DeleteRecords moved the log start to {asked}" in line
    record = archive.store.get(archive.partition_keys().gap(shipped, begins))[0].decode()
    assert f"DeleteRecords moved the log start to {asked}" in record
    assert counted(agent, "gaps") == 1
    seen = look(archive)
    assert seen.holes == [Hole(shipped, begins, recorded=True)]
    # The segment with the new log start is shipped whole.
    assert seen.records == [*oracle[:shipped], *oracle[begins:end]]
    assert sample(agent, "hole", archive) == 0
    assert "died" not in text_of(agent)
