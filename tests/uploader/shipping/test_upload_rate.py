"""The agent sends no faster than its configuration allows, and applies another limit while it runs."""

import os
import signal
import time

import pytest

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import PREFIX, Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records
from ts_common.store.wrappers.bandwidth import CREDIT_SECONDS, PIECE_SECONDS

KEY = PREFIX + "upload.max.bytes.per.second"
SECONDS = 120.0
LIMIT = 200_000
LIMIT_METRIC = "ts_uploader_upload_limit_bytes_per_second"


def configure(archive: Archive, agent: AgentProcess, **changed: str | None) -> None:
    """Write the archive's configuration with other values (None leaves a key out), and signal the agent."""
    properties = {key: value for key, value in {**archive.properties, **changed}.items() if value is not None}
    write_config(agent.config_dir, archive.keys.cluster, properties)
    os.kill(agent.pid, signal.SIGHUP)


def said(agent: AgentProcess, *texts: str) -> str:
    """The first line of an agent's log that holds all these, once there is one."""

    def found() -> str:
        lines = agent.log.read_text().splitlines()
        return next((line for line in lines if all(text in line for text in texts)), "")

    return wait_for(found, f"the log to say {texts}", SECONDS, state=agent.tail)


def closed_sizes(archive: Archive) -> list[int]:
    """Return the sizes of the closed segments' logs in bytes."""
    logs = sorted(archive.cluster.brokers[1].partition_directory(archive.topic, 0).glob("*.log"))
    return [path.stat().st_size for path in logs[:-1]]


def start(cluster: LocalCluster, archive_of: ArchiveOf, topic: str, limit: int) -> tuple[Archive, AgentProcess, float]:
    """An agent that may send so many bytes a second, with some 1.8 MB to ship; and when it was started.

    With that many uploads at once each takes longer than the upload time-out.
    """
    properties = {PREFIX + "upload.thread.count": "6", PREFIX + "upload.timeout.ms": "1000"}
    archive = archive_of(topic, properties={KEY: str(limit), **properties})
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(8_000), partition=0)
    began = time.monotonic()
    return archive, archive.agent(), began


def test_all_uploads_together_keep_to_the_limit_and_none_times_out(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """However fast the store is, no more bytes are sent than the limit allows; a waiting upload counts as progress."""
    archive, agent, began = start(cluster, archive_of, "rationed", LIMIT)
    assert 6 * closed_sizes(archive)[0] > LIMIT
    total = sum(closed_sizes(archive))
    assert total > 1_200_000
    archive.wait_until_shipped()
    assert time.monotonic() - began >= total / LIMIT - CREDIT_SECONDS - PIECE_SECONDS
    samples = agent.metrics()
    assert samples[LIMIT_METRIC] == LIMIT
    assert samples["ts_uploader_upload_waited_seconds_total"] > 1


@pytest.mark.full
def test_another_limit_becomes_effective_while_segments_are_sent(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """A limit gives way to another on SIGHUP; a file with errors changes nothing, nor does a count of threads."""
    archive, agent, _ = start(cluster, archive_of, "hurried", 1024)
    configure(archive, agent, **{KEY: "2048", PREFIX + "upload.thread.count": "5"})
    assert "upload.thread.count" in said(agent, "restart_needed")
    wait_for(lambda: agent.metrics()[LIMIT_METRIC] == 2048, "the limit to be in force", SECONDS)
    configure(archive, agent, **{KEY: "fast", PREFIX + "upload.thread.count": "0", "unknown": "x"})
    line = said(agent, "configuration_rejected")
    assert all(text in line for text in ("per.second=fast", "thread.count=0", "unknown: unknown key"))
    assert agent.metrics()[LIMIT_METRIC] == 2048
    behind = agent.metrics()['ts_uploader_partition_unshipped_segments{partition="0",topic="hurried"}']
    assert behind > 10  # which takes minutes at this rate
    configure(archive, agent, **{KEY: None})
    end = archive.wait_until_shipped()
    wait_for(lambda: agent.metrics()[LIMIT_METRIC] == float("inf"), "the limit to be gone", SECONDS)
    assert archive.read() == archive.oracle(end=end)
