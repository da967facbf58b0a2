"""Leadership sources of one broker over ZooKeeper."""

from collections.abc import Callable, Set

from tests.uploader.leadership.listening import Listener
from tests.uploader.leadership.zookeeper.kafka_nodes import BROKER
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.messages.observations import Led

NEVER = 3600.0  # a poll that no test reaches

Listen = Callable[..., Listener]


class Quick(ZookeeperLeadership):
    """Waits this long for a starting ZooKeeper, which accepts connections that it never answers."""

    session_seconds = 3.0


class Impatient(ZookeeperLeadership):
    session_seconds = 1.0
    give_up_seconds = 1.0


def listener_of(
    connect: str, kind: type[ZookeeperLeadership] = ZookeeperLeadership, poll_seconds: float = NEVER
) -> Listener:
    environment = Environment("c", BROKER, (), connect, kraft=False)
    return Listener(lambda emit: kind(environment, emit, poll_seconds))


def led(listener: Listener, since: int = 0) -> Set[TopicPartition]:
    return {said.partition for said in listener.said[since:] if isinstance(said, Led)}
