"""Which topics are shipped, changed while the agent runs: SIGHUP, and no restart."""

import os
import signal
from collections.abc import Mapping

import pytest

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import PREFIX, Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records

INCLUDE = PREFIX + "kafka.topics.include"
EXCLUDE = PREFIX + "kafka.topics.exclude"
SECONDS = 60.0


def configure(archive: Archive, agent: AgentProcess, changed: Mapping[str, str]) -> None:
    """Write the configuration again, and signal the agent."""
    write_config(agent.config_dir, archive.keys.cluster, {**archive.properties, **changed})
    os.kill(agent.pid, signal.SIGHUP)


def led(agent: AgentProcess) -> set[str]:
    """The topics of the partitions in its metrics."""
    return {partition["topic"] for partition in agent.status()["partitions"]}


def wait_for_led(agent: AgentProcess, *topics: str) -> None:
    """Until its metrics have these topics, and no others."""
    wait_for(lambda: led(agent) == set(topics), f"the agent to ship {topics}", SECONDS, state=agent.tail)


def topics(cluster: LocalCluster, archive_of: ArchiveOf, stays: str, comes: str) -> tuple[Archive, Archive]:
    """Two topics with something to ship, and the archive of each in the same place."""
    archive = archive_of(stays)
    for topic in (stays, comes):
        cluster.create_topic(topic, assignment=[[1]])
        cluster.produce(topic, records(1000), partition=0)
    return archive, archive_of(comes)


def test_topics_appear_and_disappear_with_their_patterns(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """New topics are shipped, removed ones are dropped, and a bad pattern changes nothing and is reported."""
    archive, later = topics(cluster, archive_of, "stays-here", "comes-later")
    agent = archive.agent()
    wait_for_led(agent, "stays-here")
    configure(archive, agent, {INCLUDE: ".*", EXCLUDE: "stays-here,(unclosed"})
    wait_for(lambda: "configuration_rejected" in agent.tail(), "the refusal", SECONDS)
    assert "'(unclosed' is not a regular expression" in agent.log.read_text()
    assert led(agent) == {"stays-here"}
    configure(archive, agent, {INCLUDE: ".*", EXCLUDE: "stays-here|__.*"})
    wait_for(lambda: "stays-here" not in led(agent), "the excluded topic to go", SECONDS, state=agent.tail)
    later.wait_until_shipped()
    assert agent.health()["status"] == "ok"


@pytest.mark.full
def test_a_topic_that_is_excluded_and_included_again_is_complete(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """While it is excluded nothing of it is shipped; afterwards nothing is missing."""
    archive, later = topics(cluster, archive_of, "goes-and-comes", "in-between")
    agent = archive.agent()
    before = archive.wait_until_shipped()
    configure(archive, agent, {INCLUDE: "in-between"})
    wait_for_led(agent, "in-between")
    for topic in ("goes-and-comes", "in-between"):
        cluster.produce(topic, records(1000, start=1000), partition=0)
    later.wait_until_shipped()
    assert archive.next_offset() == before
    configure(archive, agent, {INCLUDE: "goes-and-comes"})
    wait_for_led(agent, "goes-and-comes")
    end = archive.wait_until_shipped()
    assert end > before
    assert archive.read() == archive.oracle(end=end)
