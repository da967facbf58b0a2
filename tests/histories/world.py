"""One history: brokers, agents, a store and its weather, and the acts that a history is drawn from.

Each step of a history has a seed of its own, which draws everything that happens in it. So a step does the same
whatever other steps are left out, and a failing history can be minimised.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from dev.simulation.memory_store import MemoryStore
from tests.histories.agents import Agent, Killed, Work
from tests.histories.checks import Checks
from tests.histories.cleaner import compact
from tests.histories.clock import Clock
from tests.histories.cluster import Cluster
from tests.histories.draws import Flavour, Step, weights_of
from tests.histories.faults import FaultyStore, Put, Weather
from tests.histories.interrupts import installed
from tests.histories.plots import PLOTS
from ts_common.config.cluster_config import OffsetReset

NESTED = 2  # how deep others act inside tasks
_MOST_TOPICS = 3
_MOST_OFFSETS = 60  # of a log; above that producers write little


def directory_in_memory() -> Path | None:
    """The fastest directory for files; None for the system's temporary directory."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


class World:
    """A history under way.

    Args:
        flavour: its kind.
    """

    def __init__(self, flavour: Flavour) -> None:
        self.flavour = flavour
        self._directory = Path(tempfile.mkdtemp(prefix="histories-", dir=directory_in_memory()))
        self.notes: list[str] = []
        self.clock = Clock()
        self.cluster = Cluster(self._directory, flavour.rolls, flavour.magic, transactional=flavour.transactional)
        self.weather = Weather()
        self.stack: list[Work] = []
        self.depth = 0
        objects = MemoryStore()
        self.store = FaultyStore(objects, self.weather, self.pause, lambda: self.stack[-1], self._landed, self.note)
        reset = OffsetReset.LATEST if flavour.latest else OffsetReset.EARLIEST
        self.checks = Checks(self.cluster, objects, reset)
        self.agents = [
            Agent(self.cluster, broker, self.store, self.clock, self.stack, reset, has_tail=flavour.tail)
            for broker in flavour.agents
        ]
        weights = weights_of(flavour, inside_tasks=True)
        self._acts, self._weights = list(weights), list(weights.values())

    @contextmanager
    def open(self) -> Iterator["World"]:
        """Run with interrupts inside tasks, and remove the files afterwards."""
        try:
            with installed(self.pause, self._sleep, self.clock, self.cluster.change_times):
                self._begin()
                yield self
        finally:
            self.store.close()
            shutil.rmtree(self._directory)

    def note(self, text: str) -> None:
        """Note an event, for the report of a failing history."""
        self.notes.append("  " * len(self.stack) + text)

    def take(self, step: Step) -> None:
        """Run one step."""
        rng = Random(step.seed)
        self.weather.rng = rng
        self.weather.pauses = rng.choice((0.0, 0.03, 0.03, 0.15, 0.3))
        self.weather.renames = rng.random() < 0.3
        self.weather.faults = rng.choice((0.0, 0.0, 0.0, 0.15, 0.3))
        self.weather.reads = rng.choice((0.0, 0.0, 0.0, 0.1))
        self.act(step.act, rng)
        self.weather.pauses = self.weather.faults = self.weather.reads = 0.0

    def act(self, name: str, rng: Random) -> None:
        """Run one act or plot."""
        if name in PLOTS:
            PLOTS[name](self, rng)
        else:
            getattr(self, "_" + name.replace(" ", "_"))(rng)

    def pause(self, _what: str) -> None:
        """Perhaps let others act; the caller's process may have ended afterwards."""
        rng, pauses = self.weather.rng, self.weather.pauses
        if not self.stack or self.depth >= NESTED or not pauses or rng.random() >= pauses:
            return
        self.depth += 1
        try:
            if self.weather.renames:
                self._rename(rng)
            else:
                for _ in range(rng.choice((1, 1, 2, 4))):
                    self.act(rng.choices(self._acts, self._weights)[0], rng)
        finally:
            self.depth -= 1
        for work in self.stack:
            work.look()
        if self.stack[-1].agent.life != self.stack[-1].life:
            self.note("is dead")
            raise Killed

    def _sleep(self, seconds: float) -> None:
        self.clock.tick(seconds)
        self.pause("sleep")

    def _landed(self, put: Put) -> None:
        for work in self.stack:
            work.look()
        weather, self.weather.pauses = self.weather.pauses, 0.0
        self.checks.landed(put, late=not self.stack or put.by is not self.stack[-1])
        self.weather.pauses = weather

    def _begin(self) -> None:
        rng = Random(0)
        if self.flavour.late_start:
            self.cluster.produce(rng, self.flavour.late_start)
            for _ in range(2):
                for number in range(len(self.flavour.rolls)):
                    self.cluster.fetch(number)
            for number, replica in enumerate(self.cluster.brokers):  # each by its own clock
                replica.expire(self.flavour.late_start // 5 + number)
                replica.finish()
                replica.unlink(everything=True)

    # --- acts of brokers

    def _broker(self, rng: Random) -> int:
        return rng.randrange(len(self.flavour.rolls))

    def _produce(self, rng: Random) -> None:
        room = max(1, (_MOST_OFFSETS - self.cluster.leading.end) // 4)
        count, behind = rng.randint(1, min(6, room)), rng.choice((None, None, 0, 1, 2))
        self.cluster.produce(rng, count)
        for number in range(len(self.flavour.rolls)):
            if number != behind:
                self.cluster.fetch(number)
        if rng.random() < 0.7:
            for number in range(len(self.flavour.rolls)):
                if number != behind:
                    self.cluster.fetch(number)
        self.note(f"{count} batches are produced in epoch {self.cluster.epoch}; {behind} fetches none; {self._state()}")

    def _fetch(self, rng: Random) -> None:
        number = self._broker(rng)
        self.cluster.fetch(number, rng.choice((1, 1000)))
        self.note(f"broker {number} fetches; {self._state()}")

    def _elect(self, rng: Random) -> None:
        number = rng.choice((self.cluster.leader, self._broker(rng), self._broker(rng)))
        self.cluster.elect(number)
        self.begin_leading(rng)

    def _lose_records(self, rng: Random) -> None:
        cluster = self.cluster
        behind = self._broker(rng)
        cluster.lag(behind)
        cluster.produce(rng, rng.randint(0, 4))
        for number in cluster.in_sync:
            cluster.fetch(number)
        if rng.random() < 0.6:  # ship records that will be lost
            self._lead(rng)
        cluster.elect(behind, unclean=True)
        self.begin_leading(rng)

    def begin_leading(self, rng: Random) -> None:
        """Let the elected broker become the leader, perhaps later."""
        self.note(
            f"broker {self.cluster.leader} is elected in epoch {self.cluster.epoch}; lossy {self.cluster.topic.lossy}"
        )
        if rng.random() < 0.7:
            self.cluster.begin_leading()

    def _retention(self, rng: Random) -> None:
        number = self._broker(rng)
        replica = self.cluster.brokers[number]
        replica.expire(rng.choice((1, 1, 2, 3, 9)), active=rng.random() < 0.3)
        self._some_steps(number, rng)
        self.note(f"retention on broker {number}: live are {replica.bases}")

    def _compact(self, rng: Random) -> None:
        number = rng.choice((self.cluster.leader, self._broker(rng)))
        replica = self.cluster.brokers[number]
        before = replica.bases
        compact(replica, rng)
        self.note(f"the cleaner on broker {number}: {before} become {replica.bases}")
        self._some_steps(number, rng)

    def _rename(self, rng: Random) -> None:
        number = self._broker(rng)
        if self.weather.renames and self.stack:
            number = self.stack[-1].agent.broker
        self._some_steps(number, rng)

    def _some_steps(self, number: int, rng: Random) -> None:
        replica = self.cluster.brokers[number]
        if rng.random() < (0.1 if self.weather.renames else 0.5):
            replica.finish()
            return
        if replica.ongoing is not None:
            for _ in range(rng.randint(1, 6)):
                replica.step()
            self.note(f"some renames on broker {number}: {self._names(number)}")

    def _unlink(self, rng: Random) -> None:
        number = self._broker(rng)
        everything = rng.random() < 0.3
        self.cluster.brokers[number].unlink(everything=everything)
        if everything:
            self.cluster.remove_deleted(number)
        self.note(f"broker {number} unlinks: {self._names(number)}")

    def _lag(self, rng: Random) -> None:
        number = self._broker(rng)
        self.cluster.lag(number)
        self.note(f"broker {number} leaves the in-sync replicas; {self._state()}")

    def _wipe(self, rng: Random) -> None:
        number = rng.choice((self.cluster.leader, self._broker(rng)))
        if rng.random() < 0.5:
            for other in range(len(self.flavour.rolls)):
                if other != number:
                    self.cluster.lag(other)
        self.cluster.wipe(number, self.clock.true())
        self.note(f"broker {number} has a new disk; {self._state()}; lossy {self.cluster.topic.lossy}")

    def _checkpoint(self, rng: Random) -> None:
        number = rng.choice((self.cluster.leader, self._broker(rng)))
        what = rng.choice(("both", "both", "gather", "write"))
        if what != "write":
            self.cluster.gather_high_watermark(number)
        if what != "gather":
            figure = self.cluster.write_high_watermark(number, self.clock.wall())
            self.note(f"broker {number} writes its high watermark {figure}")

    def _write_checkpoint_late(self, rng: Random) -> None:
        """Let a broker write what it collected before the deletion, for the new topic's name."""
        number = self._broker(rng)
        self.cluster.write_high_watermark(number, self.clock.wall())

    def _create(self, rng: Random) -> None:
        if len(self.cluster.topics) < _MOST_TOPICS:
            if rng.random() < 0.5:  # producers write until the end, and no follower fetches that
                self.cluster.produce(rng, rng.randint(1, 4))
            self.cluster.create(self.clock.true(3600))  # `incarnation` uses the creation time of a directory
            self.note("the topic is deleted and created again")
            if rng.random() < 0.5:
                self._write_checkpoint_late(rng)

    def _clock(self, rng: Random) -> None:
        seconds = rng.choice((-7200, -60, 60, 7200))
        self.clock.jump(seconds)
        self.note(f"the clock is set by {seconds} s")

    # --- acts of agents

    def agent(self, rng: Random, broker: int | None = None) -> Agent:
        """Return one of the agents; with `broker`, one on that broker."""
        mine = [agent for agent in self.agents if broker is None or agent.broker == broker]
        return rng.choice(mine)

    def works(self, agent: Agent, rng: Random, count: int) -> None:
        """Let an agent run at most this many of its tasks."""
        for _ in range(count):
            if not agent.tasks:
                return
            self.note(f"agent {self.agents.index(agent)} works")
            done = agent.work(rng.randrange(8))
            self.note(f"agent {self.agents.index(agent)}: {done}")

    def _see(self, rng: Random) -> None:
        agent = self.agent(rng)
        what = rng.choice(("leadership", "directory", "checkpoint"))
        getattr(agent, f"see_{what}")()
        self.note(f"agent {self.agents.index(agent)} sees {what}")

    def _answer(self, rng: Random) -> None:
        agent = self.agent(rng, rng.choice((self.cluster.leader, None)))
        agent.request_high_watermark()
        if rng.random() < 0.8:
            agent.see_answer(rng.randrange(8))
        self.note(f"agent {self.agents.index(agent)} sees an answer")

    def _work(self, rng: Random) -> None:
        self.works(self.agent(rng), rng, rng.randint(1, 6))

    def _lead(self, rng: Random) -> None:
        """Let the leader's agent observe everything, with checkpoints in between, and work."""
        agent = self.agent(rng, self.cluster.leader)
        self.note(f"agent {self.agents.index(agent)} sees everything")
        self.cluster.begin_leading()
        agent.see()
        for _ in range(3):  # the first can be an old collection
            self.cluster.gather_high_watermark(agent.broker)
            self.cluster.write_high_watermark(agent.broker, self.clock.wall())
            agent.see_checkpoint()
        self.works(agent, rng, rng.choice((2, 6, 20)))

    def _sleepy(self, rng: Random) -> None:
        """Let an agent observe its files but not who leads now, and work."""
        agent = self.agent(rng)
        agent.see_directory()
        agent.see_checkpoint()
        self.works(agent, rng, rng.randint(1, 12))

    def _crash(self, rng: Random) -> None:
        agent = self.agent(rng)
        agent.restart()
        self.note(f"agent {self.agents.index(agent)} is killed")

    def _land(self, rng: Random) -> None:
        if self.store.late:
            self.store.land(rng.randrange(8))

    def _rest(self, _: Random) -> None:
        from tests.histories.liveness import come_to_rest

        come_to_rest(self)

    # ---

    def _state(self) -> str:
        ends = [(replica.start, replica.end) for replica in self.cluster.brokers]
        return f"logs {ends}, in sync {self.cluster.in_sync}, committed {self.cluster.topic.high_watermark}"

    def _names(self, number: int) -> str:
        path = self.cluster.brokers[number].path
        return " ".join(sorted(name.name.lstrip("0") or "0" for name in path.iterdir() if ".log" in name.name))
