"""One history: the order of all steps, and the faults."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.tail.agent import Agent
from tests.tail.bucket import Archive, Bucket
from tests.tail.clauses import ALL_OF_TAIL, TailClause
from tests.tail.kafka import Kafka
from tests.tail.reading import Broken, Shown, Stream, check, reader, view
from tests.tail.retention import collector
from tests.tail.steps import UNKNOWN, Process, Steps

STEPS: Final = 3000
GRACE: Final = 400  # steps
# The shares of steps: of brokers, of late puts, of faults of agents.
_PROFILES: Final = {"even": (0.20, 0.05, 0.006), "busy": (0.08, 0.04, 0.006), "wild": (0.50, 0.05, 0.005)}


@dataclass(frozen=True)
class Result:
    """What a history showed.

    Attributes:
        broken: the rule that it broke; None without one.
        has_lost: whether an election lost records.
    """

    broken: str | None
    counts: Counter[str]
    has_lost: bool


class World:
    """The brokers, the store and all processes of one history.

    Attributes:
        time: the number of steps.
        grace: in steps.
        counts: how often something happened.
    """

    def __init__(self, seed: int, clauses: frozenset[TailClause] = ALL_OF_TAIL, profile: str = "") -> None:
        self.chance = random.Random(seed)
        self.clauses = clauses
        self.profile = profile or self.chance.choice(sorted(_PROFILES))
        self.is_clean = self.chance.random() < 0.25
        self.time, self.grace = 0, GRACE
        self.counts: Counter[str] = Counter()
        brokers = self.chance.choice((2, 2, 3))
        partitions = self.chance.choice((1, 1, 2))
        self.bucket = Bucket([Archive(number, Kafka(brokers, self.chance)) for number in range(partitions)])
        self.streams = [Stream(self, archive) for archive in self.bucket.archives]
        self._is_quiet = False
        self._late: list[tuple[Callable[[], Any], Process | None]] = []
        self.processes: list[Process] = []

    def begin_all(self) -> None:
        """Begin the processes of a random history."""
        for broker in range(len(self.bucket.archives[0].kafka.replicas)):
            self.begin(Agent(self, broker).run(), broker)
        for archive, stream in zip(self.bucket.archives, self.streams, strict=True):
            self.begin(reader(self, archive), None)
            self.begin(stream.run(), None)
            self.begin(collector(self, archive), None)

    def begin(self, steps: Steps[Any], broker: int | None) -> Process:
        """Begin a process."""
        process = Process(steps, next(steps), broker)
        self.processes.append(process)
        return process

    def step(self) -> None:
        """Do one step of anything."""
        self.time += 1
        draw = self.chance.random()
        brokers, late, faults = _PROFILES[self.profile]
        if draw < brokers:
            kafka = self.chance.choice(self.bucket.archives).kafka
            if self.profile == "wild":
                kafka.storm()
            else:
                kafka.event(is_clean=self.is_clean)
        elif draw < brokers + late and self._late:
            self._land(self.chance.randrange(len(self._late)))
        elif draw < brokers + late + faults:
            self._fault()
        else:
            ready = [each for each in self.processes if not (each.is_done or each.is_paused or each.waits)]
            if self.chance.random() < (0.8 if self.profile == "busy" else 0.5):
                ready = [each for each in ready if each.broker is not None and each.broker >= 0] or ready
            if ready:
                self._run(self.chance.choice(ready))

    def _fault(self) -> None:
        agents = [each for each in self.processes if each.broker is not None and each.broker >= 0 and not each.is_done]
        process, draw = self.chance.choice(agents), self.chance.random()
        assert process.broker is not None
        if draw < 0.33:  # killed, or a second process of the same agent
            process.is_done |= draw < 0.25
            self.begin(Agent(self, process.broker).run(), process.broker)
        elif draw < 0.6:
            process.is_paused = True
        else:
            for each in self.processes:
                each.is_paused = False

    def _run(self, process: Process) -> None:
        """Do the next operation of a process; the answer of a put can be late or lost, and so can the put."""
        operation = process.operation
        draw = self.chance.random() if operation.is_put and not self._is_quiet else 0
        if draw < 0.72:
            self._answer(process, operation.do())
        elif draw < 0.84:
            self._late.append((operation.do, process))
            process.waits = True
        else:
            if draw < 0.91:
                self._late.append((operation.do, None))
            elif draw < 0.96:
                operation.do()
            self._answer(process, UNKNOWN)

    def _answer(self, process: Process, result: Any) -> None:
        try:
            process.operation = process.steps.send(result)
        except StopIteration:
            process.is_done = True

    def _land(self, number: int) -> None:
        operation, process = self._late.pop(number)
        result = operation()
        if process is not None and process.waits:
            process.waits = False
            if not process.is_done:
                self._answer(process, result)

    def settle(self) -> None:
        """End all faults, and check that all is archived: one agent a broker, leaders that stay.

        Raises:
            Broken: the view or a stream lacks something.
        """
        self._is_quiet = True
        for archive in self.bucket.archives:
            _heal(archive.kafka)
        while self._late:
            self._land(0)
        brokers = set[int]()
        for process in self.processes:
            process.is_paused = False
            if process.broker is not None and process.broker >= 0 and not process.is_done:
                process.is_done = process.broker in brokers
                brokers.add(process.broker)
        for round_ in range(20_000):
            self.time += 1
            if round_ % 3 == 0:
                kafka = self.chance.choice(self.bucket.archives).kafka
                kafka.fetch(self.chance.randrange(len(kafka.replicas)))
            ready = [each for each in self.processes if not each.is_done]
            self._run(self.chance.choice(ready))
            if round_ > 300 and round_ % 100 == 0 and all(map(self._is_complete, range(len(self.streams)))):
                break
        else:
            ends = [(archive.commit, archive.kafka.leader, archive.kafka.epoch) for archive in self.bucket.archives]
            raise Broken(f"not complete: {ends}; streams at {[each.position for each in self.streams]}")
        for archive, stream in zip(self.bucket.archives, self.streams, strict=True):
            shown = self.read_now(archive)
            assert shown is not None
            check(archive, shown)
            compacted = archive.kafka.compacted
            lasting = [
                batch for batch in shown.batches if batch.number not in compacted and batch.first >= stream.begun
            ]
            if [b for b in stream.read if b.number not in compacted and b.first >= shown.start] != lasting:
                raise Broken(f"a stream has {stream.read}, the archive {shown.batches}")

    def _is_complete(self, number: int) -> bool:
        archive = self.bucket.archives[number]
        kafka, commit = archive.kafka, archive.commit
        if commit is None or commit.epoch != kafka.epoch:
            return False
        shown, leader = self.read_now(archive), kafka.replicas[kafka.leader]
        # Compaction can have removed the last batches of a log that was truncated: no entry shows where it ends.
        held_end = max((batch.end for batch in leader.held()), default=0)
        if shown is None or shown.end < held_end or leader.high != leader.end:
            return False
        return self.streams[number].position == shown.end

    def read_now(self, archive: Archive) -> Shown | None:
        """Return a view that no other step interrupts.

        Raises:
            Broken: the reader begins again for ever.
        """
        steps: Steps[Shown | None] = view(self, archive)
        operation = next(steps)
        for _ in range(5000):
            try:
                operation = steps.send(operation.do())
            except StopIteration as stop:
                found: Shown | None = stop.value
                return found
        raise Broken("a reader begins again for ever: the newest pack leads to no object")


def _heal(kafka: Kafka) -> None:
    for broker, replica in enumerate(kafka.replicas):
        kafka.start(broker)
        replica.is_cut = False
    if kafka.leader not in kafka.in_sync or kafka.chance.random() < 0.3:
        kafka.elect(min(kafka.in_sync))
    for broker in range(len(kafka.replicas)):
        kafka.learn(broker)


def history(seed: int, clauses: frozenset[TailClause] = ALL_OF_TAIL, steps: int = STEPS, profile: str = "") -> Result:
    """Run one history, and settle it."""
    world = World(seed, clauses, profile)
    broken = None
    try:
        world.begin_all()
        for _ in range(steps):
            world.step()
        world.settle()
    except Broken as error:
        broken = str(error)
    except (ValueError, KeyError) as error:
        if clauses == ALL_OF_TAIL:
            raise
        broken = f"{type(error).__name__}: {error}"
    return Result(broken, world.counts, any(archive.kafka.losses for archive in world.bucket.archives))
