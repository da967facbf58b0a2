"""Leadership that is unknown, wrong, late or always changing, with agents on real brokers."""

import re
import shutil

import psutil
import pytest
from kazoo.client import KazooClient

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import Hold
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.leaders import (
    PATIENCE,
    CommitWatch,
    Load,
    assert_shown,
    bases,
    high_watermark,
    lines,
    move_leader,
    open_sessions,
    produce,
    start_agents,
    state,
    wait_in_sync,
    wait_leadership_shipped,
    wait_led,
    zookeeper_of,
)
from tests.uploader.beside import BUCKET, PREFIX, Archive
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT

pytestmark = pytest.mark.usefixtures("mended")

OTHER = {1: 2, 2: 1}


@pytest.mark.parametrize("moves", [2, pytest.param(20, marks=pytest.mark.full)])
def test_u04_leaders_moved_under_load_with_agents_killed_leave_no_hole(
    cluster: LocalCluster, archive_of: ArchiveOf, moves: int
) -> None:
    """Brokers that roll at different sizes, agents killed in between: acknowledged records are read once, in order."""
    topic = f"moved-{moves}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [2, 1]])
    agents = start_agents(archive, 1, 2)

    def has_records_of_the_leader(partition: int) -> bool:
        commit, epoch = archive.commit(partition), state(cluster, topic, partition).leader_epoch
        return commit is not None and any(pair[0] >= epoch for pair in commit.epochs.pairs)

    with zookeeper_of(cluster).client() as client, Load(cluster, topic, 2) as load:
        for move in range(moves):
            leader = move % 2 + 1
            for partition, to in ((0, OTHER[leader]), (1, leader)):
                move_leader(client, topic, to, OTHER[to], partition)
            wait_for(lambda: all(map(has_records_of_the_leader, (0, 1))), "records of both new leaders", PATIENCE)
            killed = (move // 2) % 2 + 1  # the agent of one partition's former leader, and of the other's new one
            agents[killed].kill()
            view = archive.read(move % 2)
            assert [record.offset for record in view] == list(range(len(view)))
            agents[killed] = archive.agent(killed)
    for partition in (0, 1):
        end = wait_leadership_shipped(archive, state(cluster, topic, partition).leader, partition)
        assert set(bases(cluster, 1, topic, partition)) ^ set(bases(cluster, 2, topic, partition))
        commit = archive.commit(partition)
        assert commit is not None
        assert commit.epoch > moves
        assert len(commit.epochs.pairs) >= moves
        assert_shown(archive, load.acknowledged[partition], end, partition)


def test_u06_a_commit_of_the_former_leader_is_refused_though_the_first_line_stays(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Paused with a commit on its way, it resumes after a commit that differs in the second line only."""
    topic = f"woken-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    with S3FaultProxy(archive.s3) as proxy, zookeeper_of(cluster).client() as client, CommitWatch(archive) as watch:
        stale = archive.agent(1, environment=proxy.environment())
        acknowledged = fill(cluster, topic, 2)
        archive.wait_for_offset(bases(cluster, 1, topic)[1], seconds=PATIENCE)
        before = archive.commit()
        held = Hold()
        proxy.script(Rule(held, methods={"PUT"}, target=r"/offset\.wm$"))
        acknowledged |= fill(cluster, topic, 3)
        wait_for(lambda: held.fired == 1, "the second commit on its way", PATIENCE)
        stale.pause()

        move_leader(client, topic, 2, 1)
        archive.agent(2)
        assert before is not None
        wait_for(lambda: archive.next_offset() > before.next_offset, "the new leader to ship", PATIENCE)
        after = archive.commit()
        assert after is not None
        assert (after.broker, after.highest_base) == (2, before.highest_base)
        assert after.epoch > before.epoch
        assert before.next_offset < after.next_offset < bases(cluster, 1, topic)[2]

        stale.resume()
        held.release()
        proxy.wait_for_request(lambda r: r.method == "PUT" and r.status == 412, "the late commit's refusal", PATIENCE)
        assert archive.commit() == after
        wait_for(lambda: stale.metrics()["ts_uploader_fenced_total"] == 1, "it to step back", PATIENCE)
        acknowledged |= produce(cluster, topic, "later", 900)
        end = wait_leadership_shipped(archive, 2)
        assert not leads(stale, topic)
    assert watch.pairs == sorted(set(watch.pairs))
    assert len(watch.pairs) > 2
    assert stale.metrics()["ts_uploader_commits_total"] == 1
    assert_shown(archive, acknowledged, end)


def fill(cluster: LocalCluster, topic: str, segments: int) -> dict[int, bytes]:
    """Produce until the first broker has so many segments; a few records at a time, so that the other has fewer."""
    acknowledged: dict[int, bytes] = {}
    while len(bases(cluster, 1, topic)) < segments:
        acknowledged |= produce(cluster, topic, "filled", 30, batch_size=1000)
    return acknowledged


def leads(agent: AgentProcess, topic: str, partition: int = 0) -> bool:
    """Whether an agent reports that its broker leads a partition whose directory exists."""
    return f'ts_uploader_partition_hole{{partition="{partition}",topic="{topic}"}}' in agent.metrics()


@pytest.mark.full
@pytest.mark.parametrize("times", [10])
def test_u06_agents_stopped_in_mid_work_wake_up_behind_another_leadership(
    cluster: LocalCluster, archive_of: ArchiveOf, times: int
) -> None:
    """The paused one had shipped segments without a commit; the pair of epoch and next offset never decreases."""
    topic = f"stopped-{times}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    agents = start_agents(archive, 1, 2)
    client_of = zookeeper_of(cluster).client
    with client_of() as client, Load(cluster, topic, 1) as load, CommitWatch(archive) as watch:
        archive.wait_for_offset(1, seconds=PATIENCE)
        for time in range(times):
            former, leader = time % 2 + 1, (time + 1) % 2 + 1
            wait_for(lambda: stopped_before_its_commit(archive, agents[former]), "work in hand", PATIENCE, every=0.0)  # noqa: B023
            at = archive.next_offset()
            move_leader(client, topic, leader, former)
            wait_for(lambda: committed_by(archive, leader), f"broker {leader} to commit", PATIENCE)  # noqa: B023
            wait_for(lambda: archive.next_offset() > at, f"broker {leader} to ship", PATIENCE)  # noqa: B023
            agents[former].resume()
            wait_for(lambda: not leads(agents[former], topic), "it to hear that it leads no more", PATIENCE)  # noqa: B023
            assert committed_by(archive, leader)
        end = wait_leadership_shipped(archive, leader)
    assert watch.pairs == sorted(set(watch.pairs))
    assert len({epoch for epoch, _ in watch.pairs}) > times
    assert_shown(archive, load.acknowledged[0], end)


def committed_by(archive: Archive, broker: int) -> bool:
    """Whether the commit was written by a broker's agent."""
    commit = archive.commit()
    return commit is not None and commit.broker == broker


def stopped_before_its_commit(archive: Archive, agent: AgentProcess) -> bool:
    """Whether the agent, paused now, has put a log that no commit covers."""
    agent.pause()
    logs = [int(found[1]) for key in archive.objects() if (found := re.search(r"/(\d{20})[^/]*\.log$", key))]
    if logs and max(logs) >= archive.next_offset():
        return True
    agent.resume()
    return False


def test_u08_closed_segments_above_the_high_watermark_wait_for_the_follower(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """Too few in-sync replicas: the leader's segments are not shipped until the follower has them too."""
    topic = "held-back"
    witness = f"{topic}-witness"
    archive = archive_of(topic, properties={PREFIX + "kafka.topics.include": f"{topic}|{witness}"})
    cluster.create_topic(topic, assignment=[[1, 2]], config={"min.insync.replicas": "2"})
    cluster.create_topic(witness, assignment=[[1]])
    agent = archive.agent(1)
    acknowledged = produce(cluster, topic, "both", 100)
    cluster.brokers[2].pause()
    wait_in_sync(cluster, topic, 1)
    acknowledged |= produce(cluster, topic, "alone", 1300, acks=1)
    closed = bases(cluster, 1, topic)[1:]
    produce(cluster, witness, "witness", 900)
    end = bases(cluster, 1, witness)[-1]
    wait_for(
        lambda: agent.metrics().get(f'ts_uploader_partition_next_offset{{partition="0",topic="{witness}"}}') == end,
        "the other topic to be shipped, by a checkpoint that was written after all of this",
        PATIENCE,
    )
    assert len(closed) > 3
    assert cluster.latest(topic, 0) == high_watermark(cluster, 1, topic) == 100 < closed[0]
    assert [key for key in archive.objects() if f"/{topic}-0/" in key and key.endswith(".log")] == []
    assert leads(agent, topic)

    cluster.brokers[2].resume()
    wait_in_sync(cluster, topic, 1, 2)
    end = archive.wait_until_shipped(1)
    assert end == closed[-1]
    assert_shown(archive, acknowledged, end)


def test_u16_without_zookeeper_led_partitions_are_shipped_and_later_all_is_read_again(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """The server stops and returns: unknown is not "not leader", and later changes are noticed."""
    topic = "unknown"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [2, 1]])
    agents = start_agents(archive, 1, 2)
    acknowledged = {partition: produce(cluster, topic, "before", 600, partition) for partition in (0, 1)}
    for partition, leader in ((0, 1), (1, 2)):
        wait_leadership_shipped(archive, leader, partition)
    zookeeper = zookeeper_of(cluster)
    zookeeper.stop()
    for agent in agents.values():
        wait_connected(agent, connected=False)
    for partition, leader in ((0, 1), (1, 2)):
        before = archive.next_offset(partition)
        acknowledged[partition] |= produce(cluster, topic, "without", 1000, partition)
        active = bases(cluster, leader, topic, partition)[-1]
        assert active > before
        archive.wait_for_offset(active, partition, PATIENCE)
    assert not zookeeper.alive
    for agent in agents.values():
        assert agent.metrics()["ts_uploader_leadership_connected"] == 0

    zookeeper.start()
    for agent in agents.values():
        wait_connected(agent, connected=True)
    with zookeeper.client() as client:
        for partition, to in ((0, 2), (1, 1)):
            move_leader(client, topic, to, OTHER[to], partition)
    for partition, leader in ((0, 2), (1, 1)):
        acknowledged[partition] |= produce(cluster, topic, "after", 1000, partition)
        end = wait_leadership_shipped(archive, leader, partition)
        assert lines(assert_shown(archive, acknowledged[partition], end, partition)) == ["before", "without", "after"]


def wait_connected(agent: AgentProcess, *, connected: bool) -> None:
    """Wait until an agent's leadership source is connected, or not."""
    wait_for(
        lambda: agent.metrics()["ts_uploader_leadership_connected"] == connected,
        f"{agent.name} connected to ZooKeeper: {connected}",
        PATIENCE,
    )


@pytest.mark.full
def test_u16_an_agent_whose_session_expired_continues_and_then_reads_everything_again(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """Cut off, it ships its partitions and no new ones; with another session it follows both moved leaders."""
    topic, left, taken = "expired", 0, 1
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [2, 1]])
    others = agent_sessions(cluster)  # of agents that earlier tests killed
    agent = archive.agent(1, surroundings=cluster.agent_surroundings(1))
    link = cluster.links["agent-1:zookeeper"]
    acknowledged = {partition: produce(cluster, topic, "before", 600, partition) for partition in (left, taken)}
    wait_leadership_shipped(archive, 1, left)
    session = agent_sessions(cluster) - others
    assert len(session) == 1
    archive.agent(2)
    wait_leadership_shipped(archive, 2, taken)

    link.cut()
    wait_connected(agent, connected=False)
    acknowledged[left] |= produce(cluster, topic, "cut off", 1000, left)
    archive.wait_for_offset(bases(cluster, 1, topic, left)[-1], left, PATIENCE)
    wait_for(lambda: not session & agent_sessions(cluster), "the session to expire", PATIENCE)
    with zookeeper_of(cluster).client() as client:
        move_leader(client, topic, 2, 1, left)
        move_leader(client, topic, 1, 2, taken)
    for partition in (left, taken):
        acknowledged[partition] |= produce(cluster, topic, "moved", 1000, partition)
    wait_leadership_shipped(archive, 2, left)
    assert not leads(agent, topic, taken)
    assert archive.next_offset(taken) < bases(cluster, 1, topic, taken)[-1]

    others = agent_sessions(cluster)
    link.heal()
    ends = {left: bases(cluster, 2, topic, left)[-1], taken: wait_leadership_shipped(archive, 1, taken)}
    wait_for(lambda: not leads(agent, topic, left), "it to hear what it no longer leads", PATIENCE)
    wait_connected(agent, connected=True)
    assert len(agent_sessions(cluster) - others) == 1
    for partition, end in ends.items():
        assert_shown(archive, acknowledged[partition], end, partition)


def agent_sessions(cluster: LocalCluster) -> set[int]:
    """Return ZooKeeper's open sessions with an agent's timeout, by ZooKeeper's own journal."""
    agents = round(ZookeeperLeadership.session_seconds * 1000)
    return {session for session, timeout in open_sessions(zookeeper_of(cluster)).items() if timeout == agents}


# `tests/uploader/leadership/test_leadership_contract.py` has flaps of the brokers without an agent.
@pytest.mark.full
@pytest.mark.parametrize("flaps", [100])
def test_u18_flapping_leadership_leaks_nothing(cluster: LocalCluster, archive_of: ArchiveOf, flaps: int) -> None:
    """The leader moves faster than segments are shipped: nothing leaks, and no record is missing."""
    topic = f"flapping-{flaps}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    agents = start_agents(archive, 1, 2)
    with zookeeper_of(cluster).client() as client, Load(cluster, topic, 1) as load, CommitWatch(archive) as watch:
        for leader in (2, 1, 2, 1, 2, 1):
            move_leader(client, topic, leader, OTHER[leader])
            before = archive.next_offset()
            wait_for(lambda: archive.next_offset() > before, "the new leader to ship", PATIENCE)  # noqa: B023
        flap(client, topic, flaps)
        # Threads and connections are created as needed, so a few more are no leak; one for each leadership is.
        usual = [max(used) + max(8, flaps // 4) for used in zip(*map(usage, agents.values()), strict=True)]
        epoch = state(cluster, topic).leader_epoch
        leader = flap(client, topic, flaps)
        assert state(cluster, topic).leader_epoch >= epoch + flaps
    end = wait_leadership_shipped(archive, leader)
    assert watch.pairs == sorted(set(watch.pairs))
    for broker, agent in agents.items():
        wait_for(lambda: leads(agent, topic) == (broker == leader), f"agent {broker} to know who leads", PATIENCE)  # noqa: B023
        wait_for(
            lambda: all(now <= then for now, then in zip(usage(agent), usual, strict=True)),  # noqa: B023
            f"no more threads and descriptors than {usual}",
            state=lambda: usage(agent),  # noqa: B023
        )
        assert agent.health()["dead_threads"] == []
    s3 = archive.s3.client()
    try:
        assert s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []
    finally:
        s3.close()
    assert_shown(archive, load.acknowledged[0], end)


def flap(client: KazooClient, topic: str, times: int) -> int:
    """Move the leader so many times without waiting; return the last leader."""
    leader = 1
    for _ in range(times):
        leader = OTHER[leader]
        move_leader(client, topic, leader, OTHER[leader])
    return leader


def usage(agent: AgentProcess) -> tuple[int, int]:
    """Return threads and open descriptors of an agent."""
    process = psutil.Process(agent.pid)
    return process.num_threads(), process.num_fds()


# A broker starts twice again: `tests/uploader/tracking/test_high_watermarks.py` has the files without it.
@pytest.mark.full
def test_u28_a_high_watermark_from_before_the_leadership_or_of_a_namesake_is_ignored(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """The checkpoint is written once an hour: nothing counts by it, nor for a new topic of that name."""
    topic, interval = "namesake", "replica.high.watermark.checkpoint.interval.ms"
    broker = cluster.brokers[1]
    usual = broker.properties[interval]
    cluster.create_topic(topic, assignment=[[1]])
    old = produce(cluster, topic, "old", 3000)
    broker.stop()
    broker.properties[interval] = "3600000"
    broker.start()
    wait_led(cluster, topic, 1)
    wait_for(lambda: high_watermark(cluster, 1, topic) == len(old), "the one checkpoint", PATIENCE)
    archive = archive_of(topic, properties={PREFIX + "kafka.topics.include": f"{topic}.*"})
    agent = archive.agent(1)
    wait_for(lambda: leads(agent, topic), "the agent to see what is led", PATIENCE)
    assert len(bases(cluster, 1, topic)) > 3
    show_checkpoint_again(cluster, agent, f"{topic}-one")
    assert archive.objects() == {}

    cluster.delete_topic(topic)
    wait_for(lambda: not leads(agent, topic), "the agent to see the topic go", PATIENCE)
    cluster.create_topic(topic, assignment=[[1, 2]], config={"min.insync.replicas": "2"})
    cluster.brokers[2].pause()
    wait_in_sync(cluster, topic, 1)
    new = produce(cluster, topic, "new", 1300, acks=1)
    wait_for(lambda: leads(agent, topic), "the agent to see the new topic", PATIENCE)
    show_checkpoint_again(cluster, agent, f"{topic}-two")
    assert high_watermark(cluster, 1, topic) == len(old) > bases(cluster, 1, topic)[-1] > cluster.latest(topic, 0) == 0
    assert archive.objects() == {}

    cluster.brokers[2].resume()
    wait_in_sync(cluster, topic, 1, 2)  # from the high watermark on, which is 0: the other may lack most records
    wait_for(lambda: cluster.latest(topic, 0) == len(new), "the other broker to have all", PATIENCE)
    broker.stop()
    broker.properties[interval] = usual
    broker.start()
    wait_in_sync(cluster, topic, 1, 2)
    with zookeeper_of(cluster).client() as client:
        move_leader(client, topic, 1, 2)
    end = archive.wait_until_shipped(1)
    assert end > 1000
    assert lines(assert_shown(archive, new, end)) == ["new"]


def show_checkpoint_again(cluster: LocalCluster, agent: AgentProcess, another: str) -> None:
    """Let an agent read a broker's high watermarks once more: the same old file, under its name again.

    Return once the agent has found a topic that was created after that.
    """
    checkpoint = cluster.brokers[1].log_dirs[0] / HIGH_WATERMARK_CHECKPOINT
    copy = cluster.directory / "checkpoint"
    shutil.copy2(checkpoint, copy)
    copy.replace(checkpoint)
    cluster.create_topic(another, assignment=[[1]])
    wait_for(lambda: leads(agent, another), f"the agent to see {another}", PATIENCE)
