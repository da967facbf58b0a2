"""Sequences of acts, for situations that single acts hardly ever reach.

A plot can stop half-way if the brokers are not in the state for it.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.histories.cleaner import compact

if TYPE_CHECKING:
    from tests.histories.agents import Agent
    from tests.histories.world import World

_CHECKPOINTS = 3  # the first can be an old collection
_SEGMENTS = 4  # two closed ones to clean, one behind them, and the active one


def _see_all(world: "World", agent: "Agent") -> None:
    """Observe leadership, directory, and enough checkpoints for one to count."""
    agent.see()
    for _ in range(_CHECKPOINTS):
        world.cluster.gather_high_watermark(agent.broker)
        world.cluster.write_high_watermark(agent.broker, world.clock.wall())
        agent.see_checkpoint()


def _lead_while_cleaning(world: "World", rng: Random) -> None:
    """Let the leader's agent list and work between the cleaner's renames."""
    world.cluster.begin_leading()
    compact(world.cluster.leading, rng)
    world.note(f"the cleaner on broker {world.cluster.leader} leaves {world.cluster.leading.bases}")
    if world.depth == 0:
        world.weather.renames, world.weather.pauses = True, rng.choice((0.15, 0.4))
    world.act("lead", rng)


def _lead_between_renames(world: "World", rng: Random) -> None:
    """Empty a segment; then pause the cleaner between the renames of the next one, which is not listed then.

    Long enough that the leader's agent lists the directory, ships and commits. The empty segment then seems to have a
    higher neighbour.
    """
    cluster = world.cluster
    cluster.begin_leading()
    for _ in range(2):
        cluster.produce(rng, rng.randint(3, 6))
        for number in sorted(cluster.in_sync):
            cluster.fetch(number)
            cluster.fetch(number)
    leading = cluster.leading
    if len(leading.bases) < _SEGMENTS:
        return
    first = rng.randrange(len(leading.bases) - _SEGMENTS + 1)
    compact(leading, rng, first=first, way="everything")
    leading.finish()
    compact(leading, rng, first=first + 1)
    name = leading.path / f"{leading.bases[first + 1]:020d}.log"
    while leading.ongoing is not None and name.exists():
        leading.step()
    world.note(f"the cleaner on broker {cluster.leader} pauses: {name.name} is gone; {leading.bases} are to be")
    world.weather.pauses = 0.0
    world.act("lead", rng)


def _lead_with_old_figures(world: "World", rng: Random) -> None:
    """Let a leader lose an unclean election, follow, and lead again, with an earlier high watermark in its file.

    It may have collected another such value, and write it now. Nothing that it appends is committed, and the next
    election can end it.
    """
    cluster = world.cluster
    cluster.begin_leading()
    old, other = cluster.leader, rng.randrange(len(cluster.brokers))
    cluster.lag(other)
    cluster.produce(rng, rng.randint(2, 6))
    for number in sorted(cluster.in_sync):
        cluster.fetch(number)
    for _ in range(2):
        cluster.gather_high_watermark(old)
        cluster.write_high_watermark(old, world.clock.wall())
    cluster.gather_high_watermark(old)  # written when it leads again
    cluster.elect(other, unclean=True)
    cluster.begin_leading()
    for _ in range(2):
        cluster.fetch(old)
    cluster.elect(old)
    world.begin_leading(rng)
    cluster.begin_leading()
    cluster.produce(rng, rng.randint(3, 6))
    agent = world.agent(rng, old)
    agent.see()
    if rng.random() < 0.5:
        cluster.write_high_watermark(old, world.clock.wall())
    agent.see_directory()
    agent.see_checkpoint()
    world.note(f"agent {world.agents.index(agent)} sees figures of before")
    world.works(agent, rng, 12)


def _overtaken(world: "World", rng: Random) -> None:
    """Let a leader lose an unclean election and follow, while its agent works on, perhaps on a task of before."""
    cluster, old = world.cluster, world.cluster.leader
    if rng.random() < 0.5:
        world.act("lose records", rng)
    else:
        cluster.begin_leading()
        behind = rng.randrange(len(cluster.brokers))
        for count in (rng.randint(0, 3), rng.randint(2, 6)):  # where the logs part, the epoch may have begun already
            cluster.produce(rng, count)
            for number in (*sorted(cluster.in_sync), *sorted(cluster.in_sync)):
                cluster.fetch(number)
            cluster.lag(behind)
        agent = world.agent(rng, old)
        _see_all(world, agent)
        world.works(agent, rng, rng.randint(1, 3))
        cluster.elect(behind, unclean=True)
        world.begin_leading(rng)
    cluster.produce(rng, rng.randint(0, 5))
    for _ in range(rng.randint(1, 4)):
        cluster.fetch(old, rng.choice((1, 2, 1000)))
        agent = world.agent(rng, old)
        if rng.random() < 0.3:
            agent.see_directory()
        world.works(agent, rng, 2)


def _come_back_over_dead_files(world: "World", rng: Random) -> None:
    """Let a leader with a losing log follow; retention removes what it fetched, and it leads again.

    Then `.deleted` files of both logs are below its lowest live segment.
    """
    cluster = world.cluster
    old, other = cluster.leader, rng.randrange(len(cluster.brokers))
    cluster.lag(other)
    cluster.produce(rng, rng.randint(4, 9))
    for _ in range(2):
        for number in cluster.in_sync:
            cluster.fetch(number)
    cluster.leading.expire(len(cluster.leading.bases) - rng.randint(2, 4))
    cluster.elect(other, unclean=True)
    cluster.begin_leading()
    for _ in range(rng.randint(1, 3)):
        cluster.produce(rng, rng.randint(1, 5))
        cluster.fetch(old)
        cluster.fetch(old)
    cluster.brokers[old].roll()
    cluster.brokers[old].expire(rng.randint(1, 9))
    cluster.brokers[old].finish()
    cluster.elect(old, unclean=True)
    world.begin_leading(rng)
    world.act("lead", rng)


PLOTS: dict[str, Callable[["World", Random], None]] = {
    "lead while cleaning": _lead_while_cleaning,
    "lead between renames": _lead_between_renames,
    "lead with old figures": _lead_with_old_figures,
    "overtaken": _overtaken,
    "come back over dead files": _come_back_over_dead_files,
}
