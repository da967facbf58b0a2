"""After the last fault, everything that can be shipped is, within a bounded number of listings and tasks."""

from typing import TYPE_CHECKING

from tests.histories.agents import TP, Agent
from ts_common.errors import TopicIdChanged
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from tests.histories.world import World

_ROUNDS = 7
_UNLINKED_IN = 4  # then `file.delete.delay.ms` has passed
_TASKS_A_ROUND = 80


def come_to_rest(world: "World") -> None:
    """Let store and brokers work and agents list again and again; then run the checks of `_at_rest`."""
    cluster, weather = world.cluster, world.weather
    weather.pauses = weather.faults = weather.reads = 0.0
    world.note("everything works from here on")
    while world.store.late:
        world.store.land(0)
    cluster.produce(weather.rng, 1)
    for number in range(_ROUNDS):
        for broker, replica in enumerate(cluster.brokers):
            replica.finish()
            if number == _UNLINKED_IN:
                replica.unlink(everything=True)
                cluster.remove_deleted(broker)
            cluster.fetch(broker)
            replica.finish()
        for agent in world.agents:
            agent.see_leadership()
            agent.see_directory()
            agent.see_directory()
        world.clock.tick(CHECKPOINT_SECONDS)
        for _ in range(3):
            for broker in range(len(cluster.brokers)):
                cluster.gather_high_watermark(broker)
                cluster.write_high_watermark(broker, world.clock.wall())
            for agent in world.agents:
                agent.see_checkpoint()
        for position, agent in enumerate(world.agents):
            agent.see_checkpoint()
            for _ in range(_TASKS_A_ROUND):
                if not agent.tasks:
                    break
                world.note(f"agent {position} works")
                world.note(f"agent {position}: {agent.work(0)}")
    _at_rest(world)


def _at_rest(world: "World") -> None:
    cluster, checks = world.cluster, world.checks
    if any(_asks_an_operator(agent) for agent in world.agents):
        return
    for position, agent in enumerate(world.agents):
        assert not agent.tasks, f"agent {position} never comes to rest: {agent.tasks}"
    _deleted_at_rest(world)
    leader = cluster.leading
    ends = [end for end in leader.bases[1:] if end <= leader.high_watermark]
    agent = next(agent for agent in world.agents if agent.broker == cluster.leader)
    waiting = agent.tracker.backlog()[TP]
    archive = checks.archive(cluster.topic)
    commit = checks.commit(archive) if archive is not None else None
    if archive is None or commit is None:
        start = archive.start if archive is not None else None
        begun = world.flavour.latest and (start is None or not ends or ends[-1] <= start)
        assert not ends or begun, f"nothing is committed of {leader.bases}: {waiting}"
        return
    assert archive.start is not None
    assert not ends or commit.next_offset >= ends[-1] or (world.flavour.latest and ends[-1] <= archive.start), (
        f"next offset {commit.next_offset}, closed is up to {ends[-1]}: {waiting}"
    )
    assert waiting.wait is None, f"all is shipped, and {waiting.wait} is shown"
    assert commit.epoch == cluster.epoch, f"the commit is of epoch {commit.epoch}, and {cluster.epoch} leads"
    gaps = checks.check_view(archive, commit, {(leader.start, tuple(leader.epochs))})
    held = leader.offsets(closed=True)
    assert not gaps & held, f"the leader holds {sorted(gaps & held)}, and a gap record stands for them"


def _deleted_at_rest(world: "World") -> None:
    """Check that no record of a deleted topic is missing in silence, if an agent saw its directory."""
    cluster, checks = world.cluster, world.checks
    for topic in cluster.topics[:-1]:
        archive = checks.archive(topic)
        commit = checks.commit(archive) if archive is not None else None
        for agent in world.agents:
            replica = cluster.replica_of(agent.broker, topic.topic_id)
            if commit is None or topic.topic_id not in agent.told or not replica.epochs:
                continue
            reached = commit.next_offset >= replica.end or commit.epoch > replica.epochs[-1][0]
            assert reached, f"{topic.topic_id}: next offset {commit.next_offset}, the log ends at {replica.end}"


def _asks_an_operator(agent: Agent) -> bool:
    """Whether a new incarnation looks like the old one under another id, so an operator has to decide."""
    backlog = agent.tracker.backlog().get(TP)
    return backlog is not None and backlog.wait is not None and TopicIdChanged.__name__ in backlog.wait.text
