"""Histories that random ones seldom find, each for a clause."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.tail.agent import Agent
from tests.tail.bucket import Archive, Bucket
from tests.tail.clauses import TailClause
from tests.tail.kafka import Kafka
from tests.tail.reading import Broken, Shown, check
from tests.tail.steps import Process
from tests.tail.world import World


class Scripted(random.Random):
    """What agents draw.

    Attributes:
        wanted: what they choose, if they can.
    """

    wanted: Any = "tail"

    def choice(self, seq: Any) -> Any:
        """Return what is wanted, or the first."""
        return self.wanted if self.wanted in seq else seq[0]

    def random(self) -> float:
        """Merge nothing."""
        return 0.1


class Directed:
    """Two brokers of one partition, and no process but those that a history begins."""

    def __init__(self, clauses: frozenset[TailClause]) -> None:
        self.world = World(0, clauses)
        self.chance = self.world.chance = Scripted(0)
        self.kafka = Kafka(2, random.Random(0))
        self.archive = Archive(0, self.kafka)
        self.world.bucket = Bucket([self.archive])
        self.kafka.replicas[0].in_sync = self.kafka.in_sync = {0}

    def agent(self, broker: int) -> Process:
        """Begin an agent."""
        return self.world.begin(Agent(self.world, broker).run(), broker)

    def until(self, process: Process, reached: str | Callable[[], bool]) -> None:
        """Run a process until its next operation has a label, or until something is so.

        Raises:
            TimeoutError: that is never so.
        """
        for _ in range(1000):
            if process.operation.label == reached if isinstance(reached, str) else reached():
                return
            process.operation = process.steps.send(process.operation.do())
        raise TimeoutError(f"never {reached}")

    def after(self, process: Process, label: str) -> None:
        """Run a process until an operation with a label is done."""
        self.until(process, label)
        process.operation = process.steps.send(process.operation.do())

    def append(self, broker: int, count: int = 1) -> None:
        """Append batches of no transaction."""
        for _ in range(count):
            self.kafka.append(broker)

    def replicate(self, broker: int) -> None:
        """Let a follower copy all."""
        for _ in range(40):
            self.kafka.fetch(broker)

    def elect(self, leader: int, in_sync: Iterable[int]) -> None:
        """Begin a leadership that both brokers learn of."""
        self.kafka.in_sync = set(in_sync)
        self.kafka.elect(leader)
        self.kafka.learn(leader)
        self.kafka.learn(1 - leader)

    def read(self) -> Shown:
        """Return what a reader sees now, checked."""
        shown = self.world.read_now(self.archive)
        if shown is None:
            raise Broken("there is no view")
        check(self.archive, shown)
        return shown


def replaced(clauses: frozenset[TailClause]) -> None:
    """A log is truncated and replaced between the answer and the reading."""
    history = Directed(clauses)
    history.append(0)
    history.replicate(1)
    history.kafka.replicas[0].in_sync = {0}
    first = history.agent(0)
    history.after(first, "pack")
    history.append(0, 3)
    history.until(first, "read")  # the answer names an end that broker 1 does not have
    history.elect(1, {1})
    second = history.agent(1)
    history.after(second, "commit")
    history.kafka.replicas[1].in_sync = {0, 1}
    history.append(1, 2)  # not acknowledged until broker 0 has fetched once more
    for _ in range(2):
        history.kafka.fetch(0)
    first.operation = first.steps.send(first.operation.do())
    for _ in range(10):
        first.operation = first.steps.send(first.operation.do())
    history.read()


def reached(clauses: frozenset[TailClause]) -> None:
    """A pack of a former leader arrives after the next leader has covered what it saw."""
    history = Directed(clauses)
    kafka = history.kafka
    history.append(0)
    first = history.agent(0)
    history.after(first, "pack")
    history.append(0, 2)
    history.until(first, "pack")  # in flight
    history.replicate(1)
    history.elect(1, {1})
    second = history.agent(1)
    history.chance.wanted = "adopt"
    history.until(second, "pack")
    first.operation.do()
    shown = history.read()
    history.until(second, lambda: not _named(history))
    again = history.read()
    if again.end < shown.end:
        raise Broken(f"the end went back from {shown.end} to {again.end}")
    assert kafka.epoch == 1


def _named(history: Directed) -> bool:
    commit = history.archive.commit
    return commit is not None and commit.live is not None and bool(commit.live.former)


def compacted(clauses: frozenset[TailClause]) -> None:
    """The records of an aborted transaction are in a segment, and no longer in the log of the next leader."""
    history = Directed(clauses)
    kafka = history.kafka
    kafka.append(0, 1)
    kafka.append(0)
    kafka.roll(0)
    first = history.agent(0)
    history.chance.wanted = "run"
    history.until(first, lambda: history.archive.commit is not None and history.archive.commit.next_offset > 0)
    kafka.append(0, 1, "abort")
    kafka.append(0)
    kafka.replicas[0].removed.add(1)
    kafka.compacted.add(1)
    history.replicate(1)
    history.elect(1, {1})
    history.chance.wanted = "tail"
    second = history.agent(1)
    history.after(second, "pack")
    history.read()


DIRECTED = {
    frozenset({TailClause.EPOCHS, TailClause.FILE, TailClause.ENDED}): replaced,
    frozenset({TailClause.REACH}): reached,
    frozenset({TailClause.BEGINNING}): compacted,
}
