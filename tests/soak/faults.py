"""The faults: what breaks brokers, agents, ZooKeeper and the links between them, and repairs it.

A fault names what it needs: resources that no other fault may use meanwhile, and resources that several may share. Its
`play` causes it, waits, repairs it, and returns whether it really happened: a link without a connection cannot be cut.
A fault that did not happen is played again later.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from kazoo.exceptions import KazooException, NoNodeError

from dev.local.kafka.broker import ZooKeeperBroker
from dev.local.kafka.zookeeper import PartitionState
from dev.local.process import Server, ServerNotRunningError
from dev.local.waiting import WaitTimedOutError, wait_for
from tests.soak.stage import ASSIGNMENTS, PARTITIONS, UNCLEAN, Stage
from ts_common.errors import TransientError
from ts_common.model import TopicPartition

# The agent's own, and the resolution of ZooKeeper's clock.
_AGENT_SESSION_SECONDS = 10.0
# The path of requests to Kafka's controller.
_REASSIGN, _ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"


@dataclass(frozen=True)
class Scene:
    """One fault that is being played.

    Attributes:
        stage: the stage.
        broker: the broker, or the agent's broker.
        random: of this scene alone.
    """

    stage: Stage
    broker: int
    random: Random

    @property
    def other(self) -> int:
        """The other broker."""
        return 3 - self.broker

    def wait(self, least: float, most: float) -> None:
        """Wait for a random time, or until the faults end."""
        self.stage.over.wait(self.random.uniform(least, most))


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: for the counts.
        alone: the resources that it breaks; `{n}` is the broker, and `{o}` the other one.
        together: those that must not be broken meanwhile.
        play: causes it, repairs it, returns whether it happened.
        long: whether it should begin early because it needs long.
        ends_agent: whether an agent that must stay is spared.
    """

    name: str
    alone: tuple[str, ...]
    play: Callable[[Scene], bool]
    together: tuple[str, ...] = ()
    long: bool = False
    ends_agent: bool = False


def _kill_agent(scene: Scene) -> bool:
    agent = scene.stage.agents[scene.broker]
    happened = agent.alive
    agent.kill()
    scene.wait(0.0, 2.0)
    agent.launch()
    return happened


def _pause(server: Server, least: float, most: float, scene: Scene) -> bool:
    try:
        server.pause()
        scene.wait(least, most)
        server.resume()
    except ServerNotRunningError:  # an agent may end by itself
        return False
    return True


def _pause_agent(scene: Scene) -> bool:
    return _pause(scene.stage.agents[scene.broker], 1.0, 6.0, scene)


def _pause_broker(scene: Scene) -> bool:
    # Also longer than the session: when it resumes, it still considers itself the leader.
    return _pause(scene.stage.cluster.brokers[scene.broker], 0.5, 6.0, scene)


def _kill_broker(scene: Scene) -> bool:
    broker = scene.stage.cluster.zookeeper_broker(scene.broker)
    broker.kill()
    if scene.random.random() < 0.5:
        _expire(broker)
    scene.wait(0.0, 3.0)
    _start(broker)
    return True


def _stop_broker(scene: Scene) -> bool:
    broker = scene.stage.cluster.zookeeper_broker(scene.broker)
    broker.stop()
    _start(broker)
    return True


def _expire(broker: ZooKeeperBroker) -> None:
    with suppress(NoNodeError):  # it ended by itself at this moment
        broker.expire_session()


def _start(broker: ZooKeeperBroker) -> None:
    _expire(broker)
    broker.start()


def _move_leaders(scene: Scene) -> bool:
    """Move the leadership of some leaders in order."""

    def led() -> dict[TopicPartition, int]:
        movable = _movable(scene.stage, PARTITIONS)
        return {one: movable[one] for one in scene.random.sample(sorted(movable), min(3, len(movable)))}

    return _move(scene.stage, led)


def _movable(stage: Stage, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the partitions with both replicas in sync, and their leaders."""
    states = {partition: _state(stage, partition) for partition in partitions}
    return {one: state.leader for one, state in states.items() if state.leader > 0 and len(state.isr) > 1}


def _move(stage: Stage, movable: Callable[[], dict[TopicPartition, int]]) -> bool:
    """Reverse the replicas of partitions, and elect the first; return whether a leader moved."""
    try:
        led = wait_for(movable, "replicas in sync", 10, every=0.5)
        named = {one: {"topic": one.topic, "partition": one.partition} for one in led}
        turned = [{**name, "replicas": [3 - led[one], led[one]]} for one, name in named.items()]
        with stage.zookeeper.client() as client:
            for path, partitions in {_REASSIGN: turned, _ELECT: list(named.values())}.items():
                wait_for(lambda: client.exists(path) is None, "the controller to be free", 10)  # noqa: B023
                client.create(path, json.dumps({"version": 1, "partitions": partitions}).encode())
        wait_for(
            lambda: any(_state(stage, one).leader == 3 - leader for one, leader in led.items()), "a leader to move", 10
        )
    except (KazooException, WaitTimedOutError):
        return False
    return True


def _state(stage: Stage, partition: TopicPartition) -> PartitionState:
    return stage.zookeeper.partition_state(partition.topic, partition.partition) or PartitionState(-1, -1, ())


def _elect_uncleanly(scene: Scene) -> bool:
    """Stop the follower's replication and kill the leader, so that committed and shipped records are lost."""
    stage = scene.stage
    controller = _controller(stage)
    if controller is None:
        return False
    dying = 3 - controller  # the controller must reach itself: see dev.local.proxy.cluster_links
    unclean = [TopicPartition(UNCLEAN, number) for number in range(len(ASSIGNMENTS[UNCLEAN]))]

    def led_by_the_dying() -> list[TopicPartition]:
        return [one for one in unclean if _state(stage, one).leader == dying]

    if not led_by_the_dying() and not _move(stage, lambda: _movable(stage, unclean)):
        return False
    led = led_by_the_dying()
    if not led:
        return False
    link, broker = stage.links[f"broker-{dying}:peers"], stage.cluster.zookeeper_broker(dying)
    link.cut()
    try:
        wait_for(lambda: any(_state(stage, one).isr == (dying,) for one in led), "a lone leader", 8)
        _ship_more(stage, [one for one in led if _state(stage, one).isr == (dying,)])
        broker.kill()
    except WaitTimedOutError:
        return False
    finally:
        link.heal()
    _expire(broker)
    try:
        wait_for(lambda: any(_state(stage, one).leader == controller for one in led), "an election", 8)
        happened = True
    except WaitTimedOutError:
        happened = False
    scene.wait(1.0, 2.0)
    _start(broker)
    return happened


def _ship_more(stage: Stage, partitions: list[TopicPartition]) -> None:
    """Wait for a limited time until the archive has records that no follower has; the agent may be away."""
    ends = {one: stage.cluster.latest(one.topic, one.partition) for one in partitions}
    with suppress(WaitTimedOutError, TransientError):
        wait_for(lambda: any(stage.next_offset(one) > end for one, end in ends.items()), "them to be shipped", 6)


def _controller(stage: Stage) -> int | None:
    with stage.zookeeper.client() as client:
        if client.exists("/controller") is None:
            return None
        return int(json.loads(client.get("/controller")[0])["brokerid"])


def _kill_zookeeper(scene: Scene) -> bool:
    scene.stage.zookeeper.kill()
    scene.wait(0.0, 2.0)
    scene.stage.zookeeper.start()
    return True


def _pause_zookeeper(scene: Scene) -> bool:
    return _pause(scene.stage.zookeeper, 0.5, 4.5, scene)


def _kill_s3(scene: Scene) -> bool:
    stage = scene.stage
    stage.s3.kill()
    scene.wait(0.0, 2.0)
    stage.s3.launch()
    # Unlike `wait_ready`: its bucket for probes may remain from an attempt that the load interrupted.
    wait_for(stage.store_answers, "the S3 server to answer", 60)
    return True


def _pause_s3(scene: Scene) -> bool:
    return _pause(scene.stage.s3, 0.5, 6.0, scene)


def _expire_agent(scene: Scene) -> bool:
    link = scene.stage.links[f"agent-{scene.broker}:zookeeper"]
    if not link.counters().open:
        return False
    link.stall()
    seconds = 1.25 * _AGENT_SESSION_SECONDS
    cut_short = scene.stage.over.wait(seconds)
    link.heal()
    return not cut_short


def _cut(name: str, scene: Scene) -> bool:
    link = scene.stage.links[name.format(n=scene.broker)]
    before = link.counters()
    link.cut()
    scene.wait(0.3, 4.0)
    after = link.counters()
    link.heal()
    return (after.reset, after.refused) != (before.reset, before.refused)


def _stall(name: str, scene: Scene) -> bool:
    link = scene.stage.links[name.format(n=scene.broker)]
    link.stall()
    scene.wait(0.5, 5.0)
    open_ = link.counters().open
    link.heal()
    return open_ > 0


_LINKS: Mapping[str, str] = {
    "agent-zookeeper": "agent-{n}:zookeeper",
    "broker-zookeeper": "broker-{n}:zookeeper",
    "broker-broker": "broker-{n}:peers",
    "agent-s3": "agent-{n}:s3",
}

# One broker at a time: two that start at once need twice as long each.
_RESTART = ("restart", "broker-{n}", "broker-{n}:zookeeper", "broker-{n}:peers")

REPERTOIRE = (
    Fault("agent killed", ("agent-{n}",), _kill_agent, ends_agent=True),
    Fault("agent paused", ("agent-{n}",), _pause_agent),
    Fault("agent's session expired", ("agent-{n}:zookeeper",), _expire_agent, ("zookeeper",), long=True),
    Fault("broker killed", _RESTART, _kill_broker, ("zookeeper",), long=True),
    Fault("broker stopped", _RESTART, _stop_broker, ("zookeeper",), long=True),
    Fault("broker paused", ("broker-{n}",), _pause_broker),
    Fault(
        "unclean election",
        (*_RESTART, "broker-{o}", "broker-{o}:zookeeper", "broker-{o}:peers"),
        _elect_uncleanly,
        ("zookeeper",),
        long=True,
    ),
    Fault("leaders moved", ("broker-{n}", "broker-{o}"), _move_leaders, ("zookeeper",)),
    Fault("zookeeper killed", ("zookeeper",), _kill_zookeeper),
    Fault("zookeeper paused", ("zookeeper",), _pause_zookeeper),
    Fault("s3 killed", ("s3",), _kill_s3),
    Fault("s3 paused", ("s3",), _pause_s3),
    *(Fault(f"{said} cut", (link,), partial(_cut, link)) for said, link in _LINKS.items()),
    *(Fault(f"{said} stalled", (link,), partial(_stall, link)) for said, link in _LINKS.items()),
)
