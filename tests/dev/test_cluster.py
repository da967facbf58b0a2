"""Whole clusters: brokers start, survive kill, pause and restart, and leave nothing behind."""

import shutil

import psutil
import pytest
from kazoo.client import KazooClient, KazooState

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.kafka.topics import NotDeliveredError
from dev.local.process import ServerDiedError


@pytest.mark.full
def test_two_brokers_with_zookeeper_replicate_and_survive_kill_and_restart(zookeeper_pair: LocalCluster) -> None:
    """After kill -9 the other broker leads with a higher epoch, writes continue, and the killed broker catches up."""
    cluster = zookeeper_pair
    assert cluster.zookeeper is not None
    cluster.create_topic("killed", assignment=[[1, 2]], config={"segment.bytes": "100000"})
    assert cluster.produce("killed", [Record(b"a"), Record(b"b")]) == [(0, 0), (0, 1)]
    before = cluster.zookeeper.partition_state("killed", 0)
    assert before is not None

    cluster.brokers[1].kill()
    assert not cluster.brokers[1].alive
    wait_for(lambda: cluster.leader("killed", 0) == 2, "broker 2 to lead killed-0", 20)
    after = cluster.zookeeper.partition_state("killed", 0)
    assert after is not None
    assert after.leader_epoch > before.leader_epoch
    assert cluster.produce("killed", [Record(b"c")]) == [(0, 2)]

    cluster.brokers[1].start()
    wait_for(lambda: cluster.in_sync("killed", 0) == {1, 2}, "both replicas of killed-0 in sync", 20)
    assert (cluster.earliest("killed", 0), cluster.latest("killed", 0)) == (0, 3)


@pytest.mark.parametrize("is_paused", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_lost_brokers_session_can_be_ended_at_once(zookeeper_pair: LocalCluster, is_paused: bool) -> None:
    """A test does not have to wait for ZooKeeper's session timeout; a broker that is resumed registers again."""
    cluster, topic = zookeeper_pair, f"expired-{is_paused}"
    assert cluster.zookeeper is not None
    cluster.create_topic(topic, assignment=[[2, 1]])
    broker = cluster.zookeeper_broker(2)
    with pytest.raises(RuntimeError, match="broker-2 answers"):
        broker.expire_session()
    (broker.pause if is_paused else broker.kill)()
    broker.expire_session()
    assert cluster.zookeeper.registered_brokers() == {1}
    broker.expire_session()  # it has none
    wait_for(lambda: cluster.leader(topic, 0) == 1, f"broker 1 to lead {topic}-0", 20)
    (broker.resume if is_paused else broker.start)()
    wait_for(lambda: cluster.in_sync(topic, 0) == {1, 2}, f"both replicas of {topic}-0 in sync", 20)
    assert cluster.zookeeper.registered_brokers() == {1, 2}


def test_a_session_ends_long_before_its_timeout(zookeeper_pair: LocalCluster) -> None:
    """Its owner is alive, and learns that the session has expired; a session of a minute does not end by itself."""
    zookeeper = zookeeper_pair.zookeeper
    assert zookeeper is not None
    owner = KazooClient(hosts=zookeeper.connect, timeout=60.0)
    owner.start()
    states = [owner.state]
    owner.add_listener(states.append)
    owner.create("/brokers/ids/77", ephemeral=True)
    zookeeper.expire_session(77)
    assert 77 not in zookeeper.registered_brokers()
    wait_for(lambda: KazooState.LOST in states, "the owner to learn it", state=lambda: states)
    owner.stop()
    owner.close()


@pytest.mark.full
def test_a_paused_leader_loses_its_partitions_and_returns_as_follower(zookeeper_pair: LocalCluster) -> None:
    """SIGSTOP ends the broker's session; after SIGCONT it follows, without a restart."""
    cluster = zookeeper_pair
    cluster.create_topic("paused", assignment=[[1, 2]])
    pid = cluster.brokers[1].pid
    cluster.brokers[1].pause()
    wait_for(lambda: cluster.leader("paused", 0) == 2, "broker 2 to lead paused-0", 20)
    cluster.brokers[1].resume()
    wait_for(lambda: cluster.in_sync("paused", 0) == {1, 2}, "both replicas of paused-0 in sync", 20)
    assert cluster.leader("paused", 0) == 2
    assert cluster.brokers[1].pid == pid


def test_the_agents_view_of_a_broker_is_on_disk(zookeeper_pair: LocalCluster) -> None:
    """server.properties names the log dirs, and partitions and the cluster's id are found in them."""
    cluster = zookeeper_pair
    cluster.create_topic("spread", assignment=[[1]] * 8)  # other tests have left more in one log dir
    broker = cluster.brokers[1]
    text = broker.server_properties.read_text()
    assert f"log.dirs={broker.log_dirs[0]},{broker.log_dirs[1]}\n" in text
    assert "broker.id=1\n" in text
    found = {broker.partition_directory("spread", partition).parent for partition in range(8)}
    assert found == set(broker.log_dirs)
    assert cluster.brokers[2].cluster_id() == cluster.cluster_id
    with pytest.raises(FileNotFoundError, match="broker-2 has no spread-0"):
        cluster.brokers[2].partition_directory("spread", 0)


def test_topics_are_altered_trimmed_and_deleted(zookeeper_pair: LocalCluster) -> None:
    """DeleteRecords moves the log start, a smaller segment size rolls segments, a deleted topic is not listed."""
    cluster = zookeeper_pair
    cluster.create_topic("changed", assignment=[[1]])
    cluster.alter_config("changed", {"segment.bytes": "20000"})
    directory = cluster.brokers[1].partition_directory("changed", 0)

    def rolls() -> bool:
        """A broker applies the new size at its next roll."""
        cluster.produce("changed", [Record(b"x" * 1000) for _ in range(100)])
        return len(list(directory.glob("*.log"))) > 3

    wait_for(rolls, "segments of that size")
    end = cluster.latest("changed", 0)
    cluster.delete_records("changed", {0: 42})
    assert (cluster.earliest("changed", 0), cluster.latest("changed", 0)) == (42, end)
    cluster.delete_topic("changed")
    assert "changed" not in cluster.admin().list_topics(timeout=30).topics


def test_a_record_that_the_broker_refuses_is_an_error(zookeeper_pair: LocalCluster) -> None:
    """produce() never loses a record silently."""
    zookeeper_pair.create_topic("narrow", config={"max.message.bytes": "1000"})
    with pytest.raises(NotDeliveredError, match=r"narrow: 1 records refused, 0 unanswered; .*too large"):
        zookeeper_pair.produce("narrow", [Record(b"x" * 2000)])


@pytest.mark.full
def test_brokers_with_kraft_replicate_and_survive_kill_and_restart(kraft: LocalCluster) -> None:
    """Kafka 4 elects another leader after kill -9, and the killed broker returns."""
    kraft.create_topic("killed", assignment=[[2, 1]])
    assert kraft.produce("killed", [Record(b"a")]) == [(0, 0)]
    kraft.brokers[2].kill()
    wait_for(lambda: kraft.leader("killed", 0) == 1, "broker 1 to lead killed-0", 20)
    assert kraft.produce("killed", [Record(b"b")]) == [(0, 1)]
    kraft.brokers[2].start()
    wait_for(lambda: kraft.in_sync("killed", 0) == {1, 2}, "both replicas of killed-0 in sync", 20)
    assert kraft.latest("killed", 0) == 2
    assert kraft.zookeeper is None
    assert "process.roles=broker,controller\n" in kraft.brokers[1].server_properties.read_text()


def test_nothing_is_left_when_the_block_ends() -> None:
    """The block ends every process and deletes the data and, if no test failed, the logs."""
    with LocalCluster(brokers=0, s3=True, name="gone") as cluster:
        pids = [server.pid for server in cluster.servers]
        sockets = list(cluster.directory.rglob("*.sock"))
        assert len(pids) == 2
        assert sockets
    assert not any(map(psutil.pid_exists, pids))
    assert not cluster.directory.exists()
    assert not cluster.logs.exists()


def test_an_error_in_the_block_keeps_the_logs_and_shows_their_ends() -> None:
    """The error has the ends of all logs as a note, and the files stay."""
    with pytest.raises(LookupError) as caught, LocalCluster(brokers=0, s3=True, name="failed") as cluster:
        pids = [server.pid for server in cluster.servers]
        raise LookupError("a test's own")
    assert "--- the end of" in caught.value.__notes__[0]
    assert not any(map(psutil.pid_exists, pids))
    assert not cluster.directory.exists()
    assert {log.name for log in cluster.logs.iterdir()} == {"s3.log", "zookeeper.log"}
    shutil.rmtree(cluster.logs)


def test_a_broker_that_cannot_start_ends_the_whole_cluster_with_its_reason() -> None:
    """The error shows the wrong setting, and the servers that did start are ended."""
    cluster = LocalCluster(mode="kraft", properties={"num.io.threads": "none"}, name="wrong")
    with pytest.raises(ServerDiedError, match=r"(?s)broker-1 .*num\.io\.threads"), cluster:
        pytest.fail("it started")
    assert not any(server.alive for server in cluster.servers)
    assert not cluster.directory.exists()
    shutil.rmtree(cluster.logs)
