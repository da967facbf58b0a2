"""A cluster whose brokers connect to ZooKeeper and to each other through links.

Only tests of `make test-full` cut such links, and they fail with them.
"""

import json
import shutil
import socket
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.process import ServerDiedError

pytestmark = pytest.mark.full


def controller_of(cluster: LocalCluster) -> int:
    """Return the id of the controller."""
    assert cluster.zookeeper is not None
    with cluster.zookeeper.client() as client:
        raw, _ = client.get("/controller")
    return int(json.loads(raw)["brokerid"])


def test_every_broker_has_its_links_and_clients_have_none(linked: LocalCluster) -> None:
    """Brokers use the links' ports, and clients receive the real ones."""
    assert set(linked.links) == {"broker-1", "broker-1:zookeeper", "broker-2", "broker-2:zookeeper"}
    assert all(linked.links[f"broker-{number}:zookeeper"].counters().open == 1 for number in (1, 2))
    said = linked.brokers[1].metadata().brokers
    assert {broker.port for broker in said.values()} == {broker.port for broker in linked.brokers.values()}
    for broker in linked.brokers.values():
        assert f"INTERNAL://{linked.links[broker.name].address}\n" in broker.server_properties.read_text()


def test_a_follower_falls_out_when_it_cannot_reach_the_leader(linked: LocalCluster) -> None:
    """Its fetches use the link of the leader's broker; after `heal` it replicates the missing records."""
    controller = controller_of(linked)
    # The leader requests from the controller to shrink the set; keep the controller's own link: see cluster_links.
    leader = 3 - controller
    linked.create_topic("fetched", assignment=[[leader, controller]])
    link = linked.links[f"broker-{leader}"]
    before = link.counters().moved
    linked.produce("fetched", [Record(b"x" * 1000) for _ in range(100)])
    wait_for(lambda: link.counters().moved > before + 100_000, "the records to pass the link")
    link.cut()
    assert link.counters().reset > 0
    linked.produce(
        "fetched", [Record(b"alone")]
    )  # a follower without missing records is in sync, even if it sends no fetch
    wait_for(lambda: linked.in_sync("fetched", 0) == {leader}, "the follower out of sync")
    assert all(broker.alive for broker in linked.brokers.values())
    link.heal()
    wait_for(lambda: linked.in_sync("fetched", 0) == {1, 2}, "both replicas in sync")


def test_a_broker_without_zookeeper_keeps_running_and_loses_its_leadership(linked: LocalCluster) -> None:
    """A stalled link to ZooKeeper ends its session; after `heal` the same process registers again."""
    zookeeper = linked.zookeeper
    assert zookeeper is not None
    cut = 3 - controller_of(linked)
    linked.create_topic("lonely", assignment=[[cut, 3 - cut]])
    pid = linked.brokers[cut].pid
    linked.links[f"broker-{cut}:zookeeper"].stall()
    wait_for(lambda: linked.leader("lonely", 0) == 3 - cut, "the other broker to lead")
    assert linked.brokers[cut].metadata().brokers
    linked.links[f"broker-{cut}:zookeeper"].heal()
    wait_for(lambda: cut in zookeeper.registered_brokers(), "the broker registered again")
    wait_for(lambda: linked.in_sync("lonely", 0) == {1, 2}, "both replicas in sync")
    assert linked.brokers[cut].pid == pid


def test_an_agents_surroundings_differ_in_zookeeper_only(linked: LocalCluster) -> None:
    """The copy names the agent's own link, which is the same at a second call."""
    path = linked.agent_surroundings(2)
    link = linked.links["agent-2:zookeeper"]
    assert linked.agent_surroundings(2) == path
    assert linked.links["agent-2:zookeeper"] is link
    ours = set(path.read_text().splitlines())
    theirs = set(linked.brokers[2].server_properties.read_text().splitlines())
    assert ours - theirs == {f"zookeeper.connect={link.address}"}
    client = KazooClient(hosts=link.address)
    client.start(timeout=20)
    assert client.exists("/brokers/ids/2")
    client.stop()
    client.close()


def test_an_agent_is_cut_from_zookeeper_alone(linked: LocalCluster, tmp_path: Path) -> None:
    """The real agent uses its own link and reconnects after a cut; the brokers are not affected."""
    config, shipped = tmp_path / "conf", tmp_path / "shipped"
    shipped.mkdir()
    write_config(config, "linked", {"storage.service.endpoint.url": shipped.as_uri()})
    agent = AgentProcess(tmp_path, linked.logs, config, linked.agent_surroundings(1), "linked", name="linked-agent")
    link = linked.links["agent-1:zookeeper"]
    agent.start()
    try:
        wait_for(lambda: link.counters().open == 1, "the agent at ZooKeeper")
        link.cut()
        wait_for(lambda: link.counters().refused > 0, "the agent to try again")
        link.heal()
        wait_for(lambda: link.counters().open == 1, "the agent at ZooKeeper again")
        assert agent.alive
    finally:
        agent.kill()
    assert linked.links["broker-1:zookeeper"].counters().open == 1


def test_links_end_with_the_cluster() -> None:
    """Links are closed even if the cluster did not start; KRaft mode has none."""
    cluster = LocalCluster(proxied=True, properties={"num.io.threads": "none"}, name="unlinked")
    with pytest.raises(ServerDiedError), cluster:
        pytest.fail("it started")
    assert set(cluster.links) == {"broker-1", "broker-1:zookeeper"}
    for link in cluster.links.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", link.port)).close()
        with pytest.raises(RuntimeError, match=f"the link {link.name} is closed"):
            link.heal()
    shutil.rmtree(cluster.logs)
    with pytest.raises(ValueError, match="a proxied cluster runs with ZooKeeper"):
        LocalCluster(mode="kraft", proxied=True)
