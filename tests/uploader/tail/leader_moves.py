"""Two brokers of each mode for histories of elections, and the ways that lose a leader for a time."""

from pathlib import Path

from dev.local.kafka.cluster import LocalCluster
from tests.faults.leaders import suspend, wait_in_sync, wait_led
from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, SMALL_SEGMENTS


def linked_brokers() -> LocalCluster:
    """Return two brokers of Kafka 3.9 whose links can be cut."""
    properties = {
        **SMALL_FETCHES,
        "zookeeper.session.timeout.ms": "2000",
        "zookeeper.connection.timeout.ms": "20000",
    }
    return LocalCluster(
        brokers=2,
        proxied=True,
        s3=True,
        buckets=[BUCKET],
        properties=properties,
        broker_properties=ROLLS,
        name="linked-tail",
    )


def kraft_brokers() -> LocalCluster:
    """Return two brokers of Kafka 4, with a controller that no test stops. Topics have the sizes `SMALL_SEGMENTS`."""
    return LocalCluster(
        brokers=2,
        mode="kraft",
        own_controller=True,
        s3=True,
        buckets=[BUCKET],
        properties={
            **SMALL_FETCHES,
            "broker.session.timeout.ms": "2000",
            "log.cleaner.backoff.ms": "500",
        },
        topic_config=SMALL_SEGMENTS,
        name="kraft-agents",
    )


def beside(cluster: LocalCluster, broker: int) -> Path:
    """Return what an agent reads of its broker: it reaches ZooKeeper by a link of its own, and the broker directly."""
    path, properties = cluster.agent_surroundings(broker), cluster.brokers[broker].properties
    path.write_text(path.read_text().replace(properties["advertised.listeners"], properties["listeners"]))
    return path


def cut_off(cluster: LocalCluster, broker: int) -> None:
    """Cut a broker and its agent off from ZooKeeper and from the other broker; clients and the store reach both."""
    for name in (f"broker-{broker}:zookeeper", f"broker-{broker}", f"agent-{broker}:zookeeper"):
        cluster.links[name].cut()


def lose_leader(cluster: LocalCluster, topic: str, move: str, leader: int) -> int:
    """Pause, kill or cut off the leader; return the broker that leads then."""
    broker, other = cluster.brokers[leader], 3 - leader
    match move:
        case "kill":
            broker.kill()
        case "pause":
            suspend(cluster, leader)
        case _:
            cut_off(cluster, leader)
    wait_led(cluster, topic, other, by=other)
    return other


def give_back(cluster: LocalCluster, topic: str, move: str, leader: int) -> None:
    """Let a former leader follow, until both brokers are in sync."""
    broker = cluster.brokers[leader]
    match move:
        case "kill":
            broker.start()
        case "pause":
            broker.resume()
        case _:
            for link in cluster.links.values():
                link.heal()
    wait_in_sync(cluster, topic, 1, 2)
