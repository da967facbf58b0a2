"""Links in a cluster, so that a test can break its connections.

| name | from | to |
| --- | --- | --- |
| broker-1:zookeeper | broker 1 | ZooKeeper |
| broker-1 | every broker | broker 1's listener for brokers |
| agent-1:zookeeper | the agent of broker 1 | ZooKeeper |

Each broker has a second listener, INTERNAL, and advertises the link's port for it to the other brokers. The controller
uses it too, even for its own broker. So if the link of the controller's broker is cut, that broker does not receive
its own requests, unlike with a cut cable. Clients and tools use PLAINTEXT directly.
"""

from pathlib import Path

from dev.local.kafka.broker import ZooKeeperBroker
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.ports import LOOPBACK, free_port
from dev.local.proxy.link import LinkProxy

INTERNAL = "INTERNAL"


def link_broker(broker: ZooKeeperBroker, zookeeper: ZooKeeper) -> dict[str, LinkProxy]:
    """Route a broker's connections to ZooKeeper, and other brokers' connections to it, through links; return them.

    It replaces the broker's `properties` for listeners and `zookeeper.connect`, so call it before the first start.
    """
    internal = free_port()
    out = LinkProxy(f"{broker.name}:zookeeper", zookeeper.port)
    into = LinkProxy(broker.name, internal)
    broker.properties.update(
        {
            "zookeeper.connect": out.address,
            "listeners": f"PLAINTEXT://{broker.bootstrap},{INTERNAL}://{LOOPBACK}:{internal}",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},{INTERNAL}://{into.address}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{INTERNAL}:PLAINTEXT",
            "inter.broker.listener.name": INTERNAL,
        }
    )
    return {link.name: link for link in (out, into)}


def agent_link_name(broker: int) -> str:
    """Return the name of the link to ZooKeeper for a broker's agent."""
    return f"agent-{broker}:zookeeper"


def write_agent_properties(broker: ZooKeeperBroker, link: LinkProxy, path: Path) -> Path:
    """Write the broker's `server.properties` for an agent behind `link`, and return the path."""
    properties = {**broker.properties, "zookeeper.connect": link.address}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
