"""Brokers, leaders and commits: one topic's incarnation (`Topic`), and the cluster that re-creates it (`Cluster`).

Imports no agent. The `Topic` keeps the past that the checks need: the log of each leader epoch, and how far it was
committed.
"""

import itertools
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.histories.records import NO_EPOCH, NO_PRODUCER, Batch, Codec, Held, History, Kind, transactions
from tests.histories.replica import Replica

TOPIC_IDS = tuple(f"{letter * 21}Q" for letter in "ABCDEFGH")
HIGH_WATERMARKS = "replication-offset-checkpoint"


@dataclass
class Topic:
    """One incarnation of the topic.

    Attributes:
        topic_id: Kafka's.
        codec: of its batches.
        lines: the log of the leader of each past epoch, as it was at its end.
        committed: the high watermark, at most, of each past epoch.
        high_watermark: the greatest of a leader of the living log; records below it are acknowledged.
        lossy: epochs that began with an election that lost acknowledged records.
        breaks: epochs that began with a leader that was not in sync.
    """

    topic_id: str
    codec: Codec
    lines: dict[int, History] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    high_watermark: int = 0
    lossy: list[int] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)


class Cluster:
    """Replicas of one partition.

    Args:
        directory: parent of their log dirs.
        rolls: records per segment, broker by broker.
        magic: of the batches.
        transactional: whether producers write transactions.
    """

    def __init__(self, directory: Path, rolls: tuple[int, ...], magic: int, *, transactional: bool) -> None:
        self._directory = directory
        self._rolls = rolls
        self._magic = magic
        self._transactional = transactional
        self._numbers = itertools.count(1)
        self.topics: list[Topic] = []
        self.deleted: dict[str, list[Replica]] = {}  # by topic id, those of each broker
        self.brokers: list[Replica] = []
        self._gathered: list[int | None] = [None for _ in rolls]
        self._is_chosen_only = True
        self.change_times: dict[int, int] = {}
        self._writes = itertools.count(1)
        self.create()

    @property
    def topic(self) -> Topic:
        """The living topic."""
        return self.topics[-1]

    @property
    def leading(self) -> Replica:
        """The leader's replica."""
        return self.brokers[self.leader]

    def replica_of(self, broker: int, topic_id: str) -> Replica:
        """Return a broker's replica of a topic, also after its deletion."""
        return self.deleted.get(topic_id, self.brokers)[broker]

    def remove_deleted(self, number: int) -> None:
        """Remove a broker's `-delete` directories: `file.delete.delay.ms` has passed."""
        for replicas in self.deleted.values():
            shutil.rmtree(replicas[number].path, ignore_errors=True)

    def is_deleted(self, _: str, topic_id: str) -> bool:
        """Whether the cluster no longer has a topic id."""
        return topic_id != self.topic.topic_id

    def line_of(self, topic: Topic, epoch: int) -> History:
        """Return the log that a leader epoch wrote, or still writes."""
        return self._line if topic is self.topic and epoch >= self.epoch else topic.lines.get(epoch, [])

    def committed_in(self, topic: Topic, epoch: int) -> int:
        """Return the end of the records that were committed by the end of an epoch."""
        current = topic is self.topic and epoch >= self.epoch
        return topic.high_watermark if current else topic.committed.get(epoch, 0)

    def create(self, made_at: int = 10**18) -> None:
        """Create the topic; delete the one before, and rename its directories."""
        if self.topics:
            self._end_epoch()
            self.deleted[self.topic.topic_id] = self.brokers
        self.topics.append(Topic(TOPIC_IDS[len(self.topics)], Codec(self._magic)))
        for broker in self.brokers:
            broker.delete()
        self.brokers = [self._replica(number, made_at) for number in range(len(self._rolls))]
        self.leader = self.epoch = 0
        self.in_sync = set(range(len(self._rolls)))
        self._line: History = self.brokers[0].history
        self._begin_epoch()

    # --- the leader

    def begin_leading(self) -> None:
        """Let the broker become the leader, some time after the controller elected it."""
        if self._is_chosen_only:
            self._is_chosen_only = False
            self.leading.lead(self.epoch)
            self._line = self.leading.history
            self._move_high_watermark()

    def produce(self, rng: Random, count: int, *, single: bool = False) -> None:
        """Append batches, plain ones, and those of transactions with their markers.

        Args:
            rng: draws the batches.
            count: of batches.
            single: each has one record.
        """
        self.begin_leading()
        leader = self.leading
        for _ in range(count):
            begun = transactions(leader.history).open if self._transactional else {}
            epoch = self.epoch if self._magic >= 2 else NO_EPOCH
            if begun and rng.random() < 0.35:
                producer = rng.choice(sorted(begun))
                kind = Kind.COMMIT if rng.random() < 0.6 else Kind.ABORT
                batch = Batch(leader.end, (next(self._numbers),), epoch, producer, kind, begun[producer])
            else:
                size = 1 if single or self._magic < 2 else rng.choice((1, 1, 2, 3))
                producer = rng.choice((NO_PRODUCER, 1, 2)) if self._transactional else NO_PRODUCER
                batch = Batch(leader.end, tuple(next(self._numbers) for _ in range(size)), epoch, producer)
            # The append extends the leader's own log.
            leader.append(Held.whole(batch), leader.history + [batch] * len(batch.numbers))
        self._move_high_watermark()

    def end_transactions(self) -> None:
        """Abort open transactions, as the coordinator does after `transaction.timeout.ms`."""
        self.begin_leading()
        leader = self.leading
        for producer, first in transactions(leader.history).open.items():
            marker = Batch(leader.end, (next(self._numbers),), self.epoch, producer, Kind.ABORT, first)
            leader.append(Held.whole(marker), [*leader.history, marker])
        self._move_high_watermark()

    # --- followers

    def fetch(self, number: int, most: int = 1000) -> None:
        """Truncate a follower to the leader's log, note how far it is, and append the fetched batches.

        Args:
            number: of the broker.
            most: batches in the answer.
        """
        if number == self.leader:
            return
        self.begin_leading()
        leader, replica = self.leading, self.brokers[number]
        replica.leads_in = None
        replica.finish()
        parted = replica.parts_from(leader.history)
        if parted < replica.end:
            replica.truncate(parted)
            replica.finish()
        else:
            replica.forget_empty_epochs()
        if replica.end < leader.start:
            below = [pair for pair in leader.epochs if pair[1] <= leader.start][-1:]
            replica.begin_at(leader.start, leader.history, below)
            replica.finish()
        self._ends[number] = replica.end
        if replica.end >= leader.high_watermark:
            self.in_sync.add(number)
        self._move_high_watermark()
        behind = [held for base in leader.bases for held in leader.segments[base] if held.batch.base >= replica.end]
        for held in behind[:most]:
            replica.append(held, leader.history)
        replica.high_watermark = min(leader.high_watermark, replica.end)

    def lag(self, number: int) -> None:
        """Remove a follower from the in-sync replicas; the others commit without it."""
        if number != self.leader and number in self.in_sync:
            self.in_sync.discard(number)
            if not self._is_chosen_only:
                self._move_high_watermark()

    # --- elections

    def elect(self, number: int, *, unclean: bool = False) -> None:
        """Elect a leader, one of the in-sync replicas or an unclean one; the epoch rises."""
        if number not in self.in_sync and not unclean:
            return
        topic, chosen = self.topic, self.brokers[number]
        if number not in self.in_sync:
            self.in_sync = {number}
            topic.breaks.append(self.epoch + 1)
        self._end_epoch()
        shared = chosen.parts_from(self._line)
        self.epoch += 1
        self.leader = number
        if shared < topic.high_watermark:
            topic.lossy.append(self.epoch)
            topic.high_watermark = shared
        self._begin_epoch()

    def wipe(self, number: int, made_at: int) -> None:
        """Replace a broker's disk. If it was the only in-sync replica, it leads with an empty log."""
        alone = self.in_sync == {number}
        if not alone:
            self.in_sync.discard(number)
            if number == self.leader:
                self.elect(min(self.in_sync))
            elif not self._is_chosen_only:
                self._move_high_watermark()
        old = self.brokers[number]
        old.finish()
        shutil.rmtree(old.path)
        if alone:
            self._end_epoch()
        self.brokers[number] = self._replica(number, made_at)
        if alone:
            self.epoch += 1
            self.topic.breaks.append(self.epoch)
            if self.topic.high_watermark:
                self.topic.lossy.append(self.epoch)
                self.topic.high_watermark = 0
            self._begin_epoch()

    # --- high watermarks

    def answer(self, number: int, epoch: int) -> int | None:
        """Return a broker's answer to ListOffsets in a leader epoch; None for an error.

        A broker that was deposed answers too, until it has read that. No leader answers before its high watermark has
        reached the beginning of its epoch.
        """
        replica = self.brokers[number]
        if replica.leads_in != epoch or replica.high_watermark < replica.begun_at:
            return None
        return replica.high_watermark

    def gather_high_watermark(self, number: int) -> None:
        """Collect what a broker is about to write, unless it has not written the last collection yet."""
        if self._gathered[number] is None:
            self._gathered[number] = self.brokers[number].high_watermark

    def write_high_watermark(self, number: int, written_at: int) -> int | None:
        """Write the collection, which may be old; return it, None without one."""
        figure, self._gathered[number] = self._gathered[number], None
        if figure is None:
            return None
        path = self.brokers[number].path.parent / HIGH_WATERMARKS
        new = path.with_name(path.name + ".tmp")
        new.write_text(f"0\n2\nother 0 {next(self._writes)}\nt 0 {figure}\n")
        os.utime(new, ns=(written_at, written_at))
        new.replace(path)
        return figure

    # ---

    def _replica(self, number: int, made_at: int) -> Replica:
        path = self._directory / f"broker-{number}" / "t-0"
        return Replica(path, self._rolls[number], self.topic.codec, self.topic.topic_id, made_at, self.change_times)

    def _end_epoch(self) -> None:
        self.topic.lines[self.epoch] = list(self._line)
        self.topic.committed[self.epoch] = self.topic.high_watermark

    def _begin_epoch(self) -> None:
        self._is_chosen_only = True
        self._ends: dict[int, int] = {}
        self._line = list(self.leading.history)

    def _move_high_watermark(self) -> None:
        leader = self.leading
        others = [self._ends.get(number) for number in self.in_sync - {self.leader}]
        ends = [end for end in others if end is not None]
        if len(ends) == len(others):  # a follower that did not fetch in this epoch is unknown
            leader.high_watermark = max(leader.high_watermark, min([leader.end, *ends]))
        self.topic.high_watermark = max(self.topic.high_watermark, leader.high_watermark)
