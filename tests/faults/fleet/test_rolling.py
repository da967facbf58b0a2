"""A rolling upgrade under load: brokers and agents restarted one after the other, agents alone, and back again.

The quick one is in `test_upgrade_page`, for one broker and its agent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.conftest import ArchiveOf
from tests.faults.fleet.later import LATER, is_later
from tests.faults.leaders import PATIENCE, Load, assert_shown, start_agents, wait_in_sync, wait_leadership_shipped
from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, Archive, archives

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers that roll their segments at different sizes."""
    with LocalCluster(
        brokers=3,
        s3=True,
        buckets=[BUCKET],
        properties={
            **SMALL_FETCHES,
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "auto.leader.rebalance.enable": "false",
        },
        broker_properties={**ROLLS, 3: {"log.segment.bytes": "131000"}},
        name="rolling",
    ) as cluster:
        yield cluster


def upgraded(archive: Archive, broker: int, old: AgentProcess, *, later: bool) -> AgentProcess:
    """Start an agent of another release in place of an agent."""
    old.stop()
    environment = {**archive.s3.environment(), "PYTHONPATH": str(CHECKOUT)}
    return archive.agent(broker, environment=environment, arguments=LATER if later else ())


def wait_all_ship(archive: Archive, partitions: int) -> None:
    """Wait until every partition's commit has moved."""
    for partition, before in {number: archive.next_offset(number) for number in range(partitions)}.items():
        archive.wait_for_offset(before + 1, partition, PATIENCE)


def assert_whole(archive: Archive, acknowledged: Mapping[int, Mapping[int, bytes]]) -> None:
    """Check that each record is shown once, as Kafka's consumer returns it, and that no segment was shipped twice."""
    for partition, sent in acknowledged.items():
        leader = archive.cluster.leader(archive.topic, partition)
        assert leader is not None
        end = wait_leadership_shipped(archive, leader, partition)
        assert_shown(archive, sent, end, partition)
        contents = defaultdict(list)
        for key, etag in archive.objects().items():
            if key.startswith(archive.partition_keys(partition).prefix) and key.endswith(".log"):
                contents[etag].append(key)
        assert [keys for keys in contents.values() if len(keys) > 1] == []


@pytest.mark.full
def test_agents_are_upgraded_one_by_one_and_put_back_under_load(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """For a while each broker has an agent of another release; no record is lost or repeated, in either direction."""
    topic, partitions = "agents-upgraded", 2
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [2, 1]])
    agents = start_agents(archive, 1, 2)
    with Load(cluster, topic, partitions) as load:
        wait_all_ship(archive, partitions)
        for later in (True, False):
            agents[1] = upgraded(archive, 1, agents[1], later=later)
            wait_all_ship(archive, partitions)
            assert [is_later(archive, partition) for partition in range(partitions)] == [later, False]
    assert_whole(archive, load.acknowledged)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_three_brokers_and_their_agents_are_upgraded_one_after_the_other(three: LocalCluster, tmp_path: Path) -> None:
    """In the order of operators: agent, broker, broker, agent; then the agents alone, to another release and back."""
    topic, partitions = "rolling", 3
    three.create_topic(topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    with archives(three, tmp_path) as archive_of:
        archive = archive_of(topic)
        agents = start_agents(archive, *three.brokers)
        with Load(three, topic, partitions) as load:
            wait_all_ship(archive, partitions)
            for number, broker in three.brokers.items():
                agents[number].stop()
                broker.restart()
                for partition in range(partitions):
                    wait_in_sync(three, topic, *three.brokers, partition=partition)
                agents[number].start()
                wait_all_ship(archive, partitions)
            leaders = {three.leader(topic, partition) for partition in range(partitions)}
            assert None not in leaders
            for later in (True, False):
                for number in three.brokers:
                    agents[number] = upgraded(archive, number, agents[number], later=later)
                    wait_all_ship(archive, partitions)
        assert_whole(archive, load.acknowledged)
        assert max(commit.epoch for n in range(partitions) if (commit := archive.commit(n)) is not None) > 0


@pytest.mark.full
def test_a_broker_that_ends_without_its_agent_is_waited_for(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Only the broker is upgraded: its agent stays, stops while another leads, and continues afterwards."""
    topic = "broker-alone"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    agents = start_agents(archive, 1, 2)
    with Load(cluster, topic, 1) as load:
        wait_all_ship(archive, 1)
        for number in (1, 2, 1):
            cluster.brokers[number].restart()
            wait_in_sync(cluster, topic, 1, 2)
            wait_all_ship(archive, 1)
    assert_whole(archive, load.acknowledged)
    for agent in agents.values():
        wait_for(lambda: agent.health()["status"] == "ok", "the agent to be well", PATIENCE)  # noqa: B023
