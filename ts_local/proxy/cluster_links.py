"""The links of a cluster whose connections a test wants to break.

| name | from | to |
| --- | --- | --- |
| broker-1:zookeeper | broker 1 | ZooKeeper |
| broker-1 | every broker | broker 1's listener for brokers |
| agent-1:zookeeper | the agent beside broker 1 | ZooKeeper |

Brokers find one another by what they advertise: each has a second listener, INTERNAL, and advertises the link's port
for it. The controller uses it too, also towards its own broker: cut the link into the controller's broker, and it
no longer hears its own orders, which a cut cable would not do. Clients and tools go straight to PLAINTEXT.
"""

from pathlib import Path

from ts_local.kafka import ZooKeeperBroker
from ts_local.ports import LOOPBACK, free_port
from ts_local.proxy.link import LinkProxy
from ts_local.zookeeper import ZooKeeper

INTERNAL = "INTERNAL"


def link_broker(broker: ZooKeeperBroker, zookeeper: ZooKeeper) -> dict[str, LinkProxy]:
    """Put links on what a broker asks of ZooKeeper and on what other brokers ask of it; before its first start.

    Its `properties` for listeners and `zookeeper.connect` are replaced.
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
    """The name of the link to ZooKeeper for the agent beside a broker."""
    return f"agent-{broker}:zookeeper"


def write_agent_properties(broker: ZooKeeperBroker, link: LinkProxy, path: Path) -> Path:
    """The broker's `server.properties` as an agent behind `link` should read it; the path."""
    properties = {**broker.properties, "zookeeper.connect": link.address}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
