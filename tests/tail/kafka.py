"""The replicas of one partition: elections, truncation, high watermarks, transactions, compaction."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ts_common.archive.epoch_history import EpochHistory


class Batch(NamedTuple):
    """A batch `[first, end)`; `producer` is above 0 in a transaction, and `marker` is `commit`, `abort` or empty."""

    first: int
    end: int
    epoch: int
    number: int
    producer: int = 0
    marker: str = ""


def pairs_of(batches: Iterable[Batch]) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) wherever the epoch changes."""
    pairs: list[tuple[int, int]] = []
    for batch in batches:
        if not pairs or batch.epoch != pairs[-1][0]:
            pairs.append((batch.epoch, batch.first))
    return tuple(pairs)


class Ended(NamedTuple):
    """A transaction: its batches and its marker; None while it is open."""

    batches: tuple[Batch, ...]
    marker: Batch | None


def transactions_of(batches: Iterable[Batch]) -> list[Ended]:
    """Return the transactions of a log in the order of their ends; open ones last."""
    found, still_open = list[Ended](), dict[int, list[Batch]]()
    for batch in batches:
        if batch.marker:
            found.append(Ended(tuple(still_open.pop(batch.producer, ())), batch))
        elif batch.producer:
            still_open.setdefault(batch.producer, []).append(batch)
    return [*found, *(Ended(tuple(of), None) for of in still_open.values())]


def stable_end(batches: Iterable[Batch], end: int) -> int:
    """Return the last stable offset of a log that ends at `end`."""
    begun = (each for each in transactions_of(b for b in batches if b.end <= end) if each.marker is None)
    return min((each.batches[0].first for each in begun), default=end)


@dataclass
class Replica:
    """The log of one broker.

    Attributes:
        log: with the batches that its cleaner removed.
        removed: numbers of these batches.
        seen: numbers of the batches that the broker had at any time: its producer snapshots have their transactions.
        epochs: of its epoch file.
        bases: of its segment files.
        high: its high watermark.
        role: the leader epoch and the leader by its metadata; None after a start.
        fetched: by follower, the end of its log; of a leader.
        in_sync: the followers that a leader waits for.
    """

    log: list[Batch] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    bases: list[int] = field(default_factory=lambda: [0])
    high: int = 0
    role: tuple[int, int] | None = None
    truncates: bool = True
    is_up: bool = True
    is_cut: bool = False
    fetched: dict[int, int] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The end of the log."""
        return self.log[-1].end if self.log else 0

    @property
    def history(self) -> EpochHistory:
        """The epoch file."""
        return EpochHistory(tuple(self.epochs))

    @property
    def last_epoch(self) -> int | None:
        """The epoch that the epoch file ends with."""
        return self.epochs[-1][0] if self.epochs else None

    def held(self, start: int = 0) -> list[Batch]:
        """Return the batches of the files from an offset on."""
        return [batch for batch in self.log if batch.first >= start and batch.number not in self.removed]

    def assign(self, epoch: int, start: int) -> None:
        """Enter an epoch into the epoch file."""
        self.epochs = [pair for pair in self.epochs if pair[0] < epoch and pair[1] < start] + [(epoch, start)]

    def truncate(self, end: int) -> None:
        """Cut the log."""
        self.log = [batch for batch in self.log if batch.end <= end]
        end = min(end, self.end)
        self.epochs = [pair for pair in self.epochs if pair[1] < end]
        self.bases = [base for base in self.bases if base < end or base == 0]
        self.high = min(self.high, end)


class Kafka:
    """One partition.

    Attributes:
        logs: of each leader epoch, the log of its leader.
        begins: of each leader epoch, the log's end when the leadership began.
        acknowledged: of each leader epoch, the greatest high watermark that its leader answered with.
        losses: the leader epochs that began by an election which lost acknowledged records.
        compacted: numbers of the batches that any cleaner removed.
    """

    def __init__(self, count: int, chance: random.Random) -> None:
        self.chance = chance
        self.replicas = [Replica() for _ in range(count)]
        self.epoch, self.leader, self.in_sync = -1, 0, set(range(count))
        self.logs: dict[int, list[Batch]] = {}
        self.begins: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.losses: list[int] = []
        self.compacted: set[int] = set()
        self._number = 0
        self.elect(0)
        for broker in range(count):
            self.learn(broker)

    def elect(self, leader: int) -> None:
        """Begin a leadership; it is unclean if the leader is not in sync."""
        if leader not in self.in_sync:
            self.in_sync = {leader}
        self.epoch, self.leader = self.epoch + 1, leader
        mine = set(self.replicas[leader].log)
        if any(
            batch not in mine and batch.end <= end
            for epoch, end in self.acknowledged.items()
            for batch in self.logs[epoch]
        ):
            self.losses.append(self.epoch)

    def leads(self, broker: int) -> bool:
        """Return whether a broker leads by its own metadata."""
        replica = self.replicas[broker]
        return replica.is_up and replica.role is not None and replica.role[1] == broker

    def learn(self, broker: int) -> None:
        """Let a broker read who leads."""
        replica = self.replicas[broker]
        if replica.role is not None and replica.role[0] == self.epoch:
            return
        replica.role = self.epoch, self.leader
        if self.leader != broker:
            replica.truncates = True
            return
        replica.assign(self.epoch, replica.end)
        replica.fetched, replica.in_sync = {}, set(self.in_sync)
        self.logs[self.epoch], self.begins[self.epoch] = list(replica.log), replica.end
        self.acknowledged[self.epoch] = 0
        self.raise_high(broker)

    def raise_high(self, broker: int) -> None:
        """Raise a leader's high watermark to what the replicas in sync have."""
        replica = self.replicas[broker]
        assert replica.role is not None
        epoch = replica.role[0]
        ends = [replica.fetched.get(each, -1) for each in replica.in_sync if each != broker]
        replica.high = max(replica.high, min([replica.end, *ends]))
        if replica.high >= self.begins[epoch]:
            self.acknowledged[epoch] = max(self.acknowledged[epoch], replica.high)

    def produce(self, broker: int) -> None:
        """Append a batch, which can belong to a transaction or end one."""
        if not self.leads(broker):
            return
        chance = self.chance
        begun = (each for each in transactions_of(self.replicas[broker].log) if each.marker is None)
        still_open = {each.batches[0].producer for each in begun}
        producer = chance.choice((0, 0, 0, 1, 2))
        marker = chance.choice(("commit", "abort")) if producer in still_open and chance.random() < 0.5 else ""
        self.append(broker, producer, marker, 1 if marker else chance.randint(1, 3))

    def append(self, broker: int, producer: int = 0, marker: str = "", size: int = 1) -> None:
        """Append a batch to the log of a leader."""
        replica = self.replicas[broker]
        assert replica.role is not None
        self._number += 1
        batch = Batch(replica.end, replica.end + size, replica.role[0], self._number, producer, marker)
        replica.log.append(batch)
        replica.seen.add(batch.number)
        self.logs[batch.epoch].append(batch)
        self.raise_high(broker)

    def fetch(self, broker: int) -> None:
        """Let a follower truncate, or copy some batches."""
        follower = self.replicas[broker]
        if not follower.is_up or follower.role is None:
            return
        epoch, number = follower.role
        leader = self.replicas[number]
        if number == broker or not leader.is_up or leader.role != follower.role:
            return
        if leader.is_cut and self.chance.random() < 0.5:
            return
        if follower.truncates:
            follower.truncate(follower.history.shared_end(follower.end, leader.history, leader.end))
            follower.truncates = False
            return
        leader.fetched[broker] = follower.end
        self.raise_high(number)
        for batch in [each for each in leader.log if each.first >= follower.end][: self.chance.randint(1, 4)]:
            follower.log.append(batch)
            if batch.number in leader.removed:
                follower.removed.add(batch.number)
                continue
            follower.removed.discard(batch.number)
            follower.seen.add(batch.number)
            if not follower.epochs or batch.epoch > follower.epochs[-1][0]:
                follower.assign(batch.epoch, batch.first)
        follower.high = max(follower.high, min(leader.high, follower.end))
        is_known = not leader.is_cut and self.epoch == epoch
        if is_known and min(follower.end, leader.fetched[broker]) >= leader.high:
            leader.in_sync.add(broker)
            self.in_sync.add(broker)

    def shrink(self) -> None:
        """Remove a follower from the replicas in sync."""
        leader = self.replicas[self.leader]
        if leader.is_cut or not self.leads(self.leader) or leader.role != (self.epoch, self.leader):
            return
        others = sorted(leader.in_sync - {self.leader})
        if others:
            other = self.chance.choice(others)
            leader.in_sync.discard(other)
            self.in_sync.discard(other)
            self.raise_high(self.leader)

    def roll(self, broker: int) -> None:
        """Close the active segment."""
        replica = self.replicas[broker]
        if self.leads(broker) and replica.end > replica.bases[-1]:
            replica.bases.append(replica.end)

    def clean(self, broker: int) -> None:
        """Let a cleaner remove a record, or all of an aborted transaction, below the active segment."""
        replica = self.replicas[broker]
        below = min(replica.bases[-1], replica.high, stable_end(replica.log, replica.end))
        ended = [each for each in transactions_of(replica.log) if each.marker is not None and each.batches]
        removable: list[tuple[Batch, ...]] = [(batch,) for batch in replica.held() if not batch.producer]
        for each in ended:
            is_aborted = each.marker is not None and each.marker.marker == "abort"
            removable += [each.batches] if is_aborted else [(batch,) for batch in each.batches]
        removable = [each for each in removable if each[-1].end <= below]
        if removable:
            numbers = {batch.number for batch in self.chance.choice(removable)}
            replica.removed |= numbers
            self.compacted |= numbers

    def stop(self, broker: int) -> None:
        """Stop a broker, unless it is the last."""
        if self.replicas[broker].is_up and sum(each.is_up for each in self.replicas) > 1:
            self.replicas[broker].is_up, self.replicas[broker].role = False, None

    def start(self, broker: int) -> None:
        """Start a broker; it never continues to lead in its former epoch."""
        replica = self.replicas[broker]
        if replica.is_up:
            return
        replica.is_up, replica.truncates, replica.role = True, True, None
        replica.high = min(replica.high, replica.end)
        if self.leader == broker:
            self.elect(
                self.chance.choice([each for each in sorted(self.in_sync) if self.replicas[each].is_up] or [broker])
            )

    def reachable(self, among: Iterable[int]) -> Sequence[int]:
        """Return the brokers that the controller reaches."""
        return [each for each in sorted(among) if self.replicas[each].is_up and not self.replicas[each].is_cut]

    def event(self, *, is_clean: bool) -> None:
        """Do anything that a cluster does."""
        chance, draw = self.chance, self.chance.random()
        broker = chance.randrange(len(self.replicas))
        replica = self.replicas[broker]
        if draw < 0.37:
            self.produce(chance.choice((self.leader, broker)))
        elif draw < 0.69:
            self.fetch(broker)
        elif draw < 0.75:
            self.roll(broker)
        elif draw < 0.78:
            self.clean(broker)
        elif draw < 0.84:
            if replica.is_up and not replica.is_cut:
                self.learn(broker)
        elif draw < 0.87:
            self.shrink()
        elif draw < 0.90:
            if among := self.reachable(self.in_sync):
                self.elect(chance.choice(among))
        elif draw < 0.91:
            replica.is_cut = not replica.is_cut
        elif draw < 0.93:
            self.stop(broker)
        elif draw < 0.97:
            self.start(broker)
        elif not is_clean and draw < 0.985:
            if among := self.reachable(range(len(self.replicas))):
                self.elect(chance.choice(among))
        elif not is_clean and draw < 0.99 and not replica.is_up:
            replica.truncate(chance.randint(0, replica.end))  # a disk that lost its end

    def storm(self) -> None:
        """Elections and truncations in quick succession, while agents are slow."""
        chance, draw = self.chance, self.chance.random()
        broker = chance.randrange(len(self.replicas))
        if draw < 0.25:
            self.produce(self.leader)
        elif draw < 0.62:
            self.fetch(broker)
        elif draw < 0.80:
            self.learn(broker)
        elif draw < 0.82:
            self.shrink()
        elif draw < 0.84:
            self.produce(broker)
        elif draw < 0.86:
            self.roll(broker)
        elif draw < 0.885:
            self.elect(chance.choice(sorted(self.in_sync)))
        elif draw < 0.90:
            self.elect(broker)

    def answer(self, broker: int) -> tuple[int, int] | None:
        """Return what a broker answers to ListOffsets: its leader epoch and high watermark; None for an error."""
        replica = self.replicas[broker]
        if not self.leads(broker) or replica.role is None or replica.high < self.begins[replica.role[0]]:
            return None
        return replica.role[0], replica.high
