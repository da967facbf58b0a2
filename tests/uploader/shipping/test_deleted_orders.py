"""Agents of several replicas of one deleted topic, in drawn orders of their single store operations."""

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import cases
from tests.uploader.batches import batch
from tests.uploader.local_directory import CLUSTER, ID, TP
from tests.uploader.shipping.test_deleted_directory import EPOCH, Doomed
from ts_common.errors import TieredStorageError
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import DeletedShipped
from ts_uploader.messages.tasks import ReadPosition, ShipDeleted
from ts_uploader.shipping.deleted_task import again

BATCH = 5
END = 40


class Turns:
    """Lets one thread run at a time; before each operation a drawn one continues."""

    def __init__(self, draw: random.Random, names: list[str]) -> None:
        self._draw, self._names = draw, names
        self._changed = threading.Condition()
        self._next = draw.choice(names)

    def wait(self, name: str) -> None:
        """Wait until this thread's next operation is drawn."""
        with self._changed:
            self._pass_on()
            self._changed.wait_for(lambda: self._next == name)

    def begin(self, name: str) -> None:
        """Wait for the thread's first turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == name)

    def end(self, name: str) -> None:
        """Leave the turns to the other threads."""
        with self._changed:
            self._names.remove(name)
            if self._names:
                self._pass_on()

    def _pass_on(self) -> None:
        self._next = self._draw.choice(self._names)
        self._changed.notify_all()


class Killed(BaseException):
    """The agent's process ended before an operation."""


class Interleaved(WrappedStore):
    """A store that waits for the agent's turn before each operation, or ends the agent instead."""

    def __init__(self, inner: ObjectStore, turns: Turns, name: str, kills: Callable[[], bool]) -> None:
        super().__init__(inner, threads=1)
        self._turns, self._name, self._kills = turns, name, kills

    def _wait(self) -> None:
        self._turns.wait(self._name)
        if self._kills():
            raise Killed

    def put(self, *given: Any, **named: Any) -> ObjectInfo:
        """Wait, then call the inner store."""
        self._wait()
        return super().put(*given, **named)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Wait, then call the inner store."""
        self._wait()
        return super().open(key, byte_range)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Wait, then call the inner store."""
        self._wait()
        return super().list(prefix, start_after=start_after)


class Replica:
    """One drawn log, and what its agent does with it until nothing is left to do.

    Attributes:
        start: of the log.
        end: of the log.
        known: the last high watermark that the agent has; None without one.
        done: the agent's last result.
        was_there: whether the directory existed when the agent was done.
    """

    def __init__(self, root: Path, number: int, store: ObjectStore, draw: random.Random, leader: "Replica | None"):
        self.led = leader is None
        self.number, self._draw, self._inner = number, draw, store
        most = END if leader is None else leader.end
        self.end: int = draw.randrange(2 * BATCH, most + 1, BATCH)
        self.start: int = draw.choice([start for start in (0, 0, BATCH, 2 * BATCH) if start < self.end])
        committed = self.end if leader is None or leader.known is None else min(leader.known, self.end)
        self.known: int | None = draw.choice([committed, committed, draw.randint(0, committed), None])
        self.epochs: tuple[tuple[int, int], ...] = ((EPOCH, 0),)
        if leader is not None:
            self.epochs = leader.epochs
            if len(leader.epochs) > 1 and draw.random() < 0.3:  # it never got a record of the last epoch
                self.epochs = leader.epochs[:1]
                self.known = None if self.known is None else min(self.known, leader.epochs[1][1])
        elif draw.random() < 0.4:
            self.epochs = ((1, 0), (EPOCH, BATCH))
        self.log = Doomed(root / str(number), store)
        self._fill()
        self.done: DeletedShipped | None = None
        self.was_there = False
        self._mortality = draw.choice([0.0, 0.03])

    def _fill(self) -> None:
        self.log.local.unlink(0, 10, 20)
        inner = range(self.start + BATCH, self.end, BATCH)
        bases = [self.start, *sorted(self._draw.sample(inner, self._draw.randint(0, min(4, len(inner)))))]
        for base, following in zip(bases, [*bases[1:], self.end], strict=True):
            data = [batch(offset, BATCH, self._epoch(offset)) for offset in range(base, following, BATCH)]
            self.log.local.write(base, b"".join(data))
        self.log.local.epochs(*(pair for pair in self.epochs if pair[1] < self.end))

    def _epoch(self, offset: int) -> int:
        return max(epoch for epoch, start in self.epochs if start <= offset)

    def open(self) -> None:
        """Write what an agent writes that begins to lead: `log.start`."""
        leadership = Leadership(EPOCH, ID, 0)
        read = ReadPosition(TP, 0, leadership, self.log.local.listing(), self.start, None, 0)
        CommitLog(CLUSTER, self.number, lambda _: self._inner).read(read)

    def begin(self, turns: Turns) -> ShipDeleted:
        """Return the agent's task: the directory is deleted, and its log is read."""
        last = next(epoch for epoch, start in reversed(self.epochs) if start < self.end)
        task = replace(self.log.task(self.known, led=self.led), leadership=Leadership(last, ID, 0))
        task = self.log.shipper(self.number).note_log(task)
        self.log.store = Interleaved(self._inner, turns, str(self.number), self._is_killed)
        return task

    def _is_killed(self) -> bool:
        return self._draw.random() < self._mortality

    def work(self, task: ShipDeleted, turns: Turns) -> None:
        """Run the task until nothing is left to do."""
        turns.begin(str(self.number))
        try:
            self._work(task)
        finally:
            self.log.store = self._inner
            turns.end(str(self.number))

    def _work(self, task: ShipDeleted) -> None:
        shipper, tries = self.log.shipper(self.number), 0
        while self.done is None:
            tries += 1
            if tries > 12 or self._draw.random() < 0.1:  # the broker removes it
                shutil.rmtree(task.listing.directory, ignore_errors=True)
            try:
                self.log.store.list("")  # another agent's turn, also if this one only waits
                found = shipper.ship(task, self.log.committed.append)
            except Killed:
                if not task.listing.directory.exists():  # no agent reads the directory again
                    found = again(replace(task, attempt=100), "killed")
                else:
                    shipper = self.log.shipper(self.number)
                    task = replace(task, led=False, patient=False, attempt=0, confirmed=False, log=None)
                    task = shipper.note_log(task)
                    continue
            except (TieredStorageError, OSError) as error:
                if tries > 40:
                    raise
                found = again(task, str(error))
            if isinstance(found, DeletedShipped):
                self.done, self.was_there = found, task.listing.directory.exists()
            else:
                task = found.task


def run(root: Path, draw: random.Random) -> tuple[list[Replica], list[int], tuple[tuple[int, int], ...], int]:
    """Return the replicas, the offsets that readers get, the gaps, and the next offset of the archive."""
    (root / "store").mkdir(parents=True)
    store = open_store((root / "store").as_uri())
    leader = Replica(root, 1, store, draw, None)
    replicas = [leader, *(Replica(root, number, store, draw, leader) for number in range(2, draw.choice([3, 4])))]
    if draw.random() < 0.3:
        leader.open()
    turns = Turns(draw, [str(each.number) for each in replicas])
    tasks = [each.begin(turns) for each in replicas]
    with ThreadPoolExecutor(len(replicas)) as threads:
        for working in [threads.submit(each.work, task, turns) for each, task in zip(replicas, tasks, strict=True)]:
            working.result()
    offsets = leader.log.read()[0] if any(True for _ in store.list()) else []
    next_offset, _, gaps = leader.log.archived()
    return replicas, offsets, gaps, next_offset


@pytest.mark.parametrize("first", cases(range(0, 1000, 10), quick=[0]))
def test_u45_no_order_of_agents_loses_a_record_of_a_deleted_topic_in_silence(tmp_path: Path, first: int) -> None:
    """Of the leader: what is committed is archived if its files stay, and each offset is a record or in a gap."""
    for seed in range(first, first + 10):
        check(seed, *run(tmp_path / str(seed), random.Random(seed)))


def check(
    seed: int, replicas: list[Replica], offsets: list[int], gaps: tuple[tuple[int, int], ...], next_offset: int
) -> None:
    """Check what the agents of one draw left."""
    leader = replicas[0]
    assert len(offsets) == len(set(offsets)), seed
    assert max(offsets, default=-1) < max(each.known or 0 for each in replicas), seed
    recorded = {offset for low, high in gaps for offset in range(low, high)}
    for each in replicas:
        assert each.done is not None
        if not each.done.lost:
            end = each.end if each.epochs == leader.epochs else min(each.end, leader.epochs[1][1])
            assert not set(range(max(each.start, leader.start), end)) - set(offsets) - recorded, seed
            assert next_offset >= end, seed
    if leader.was_there and leader.done is not None and not leader.done.lost:
        whole = (leader.known or 0) // BATCH * BATCH
        assert not set(range(leader.start, min(whole, leader.end))) - set(offsets), seed
