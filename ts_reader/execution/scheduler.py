"""Runs splits on several workers, and yields their batches: in order in each partition, with bounded memory.

A partition's splits begin in their order. The first of them that is not yielded yet is its head: only batches of heads
are yielded. A worker chooses a partition that no worker reads; then every split is a head. Without such a partition it
reads ahead in a partition, and its batches wait. Waiting batches have at most `memory` bytes. If that is reached, a
head may add one if no head has a waiting batch, so the consumer always gets one.
"""

import atexit
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Final, Protocol

import pyarrow as pa

from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_reader.query.splits import Split

Progress = Callable[[int], None]

_LAST_SECONDS: Final = 2.0  # that the end of the interpreter waits for threads
_running: "weakref.WeakSet[_Scheduler]" = weakref.WeakSet()


class ReadSplits(Protocol):
    """Reads one split; several threads call it."""

    def __call__(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a split, in order."""
        ...


@dataclass(slots=True)
class _Piece:
    """A split and its batches that wait, each with its size: Arrow gives up the GIL to compute it."""

    split: Split
    waiting: deque[tuple[pa.RecordBatch, int]] = field(default_factory=deque)
    is_finished: bool = False
    error: BaseException | None = None


@dataclass(slots=True)
class _Lane:
    """The splits of one partition."""

    pieces: list[_Piece]
    begun: int = 0
    head: int = 0

    @property
    def ahead(self) -> int:
        """The number of splits that were begun and are not yielded yet."""
        return self.begun - self.head


def run_splits(
    splits: Sequence[Split], read: ReadSplits, *, workers: int, memory: int, done: Progress
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of splits; closing the generator stops the workers.

    Args:
        splits: of each partition in the order of offsets.
        workers: the number of splits that are read at once.
        memory: bytes of batches that may wait.
        done: called with the number of splits that were yielded to their end since the last call.

    Raises:
        what `read` raises for a split, after its batches; QueryError: a forked process continues its parent's run.
    """
    scheduler = _Scheduler(splits, read, memory)
    try:
        scheduler.start(min(workers, len(splits)))
        yield from scheduler.batches(done)
    finally:
        scheduler.stop()


@atexit.register
def _end_all() -> None:
    """Stop scans that were left unread, because threads of an interpreter that ends crash it."""
    running = list(_running)
    for scheduler in running:
        scheduler.stop()
    deadline = time.monotonic() + _LAST_SECONDS
    for scheduler in running:
        scheduler.join(deadline)


def _abandon_all() -> None:
    """Forget the parent's scans in a forked process: their threads are not in it, and their locks may be held."""
    for scheduler in list(_running):
        scheduler.abandon()
    _running.clear()


os.register_at_fork(after_in_child=_abandon_all)


class _Scheduler:
    def __init__(self, splits: Sequence[Split], read: ReadSplits, memory: int) -> None:
        self._read = read
        self._memory = memory
        by_partition: dict[tuple[str, TopicPartition], list[_Piece]] = {}
        for split in splits:  # one partition's splits can be in several directories
            place = split.location, split.ranges[0].copies[0].keys.partition
            by_partition.setdefault(place, []).append(_Piece(split))
        self._changed = Condition()  # guards the next four, their lanes and pieces
        self._idle = deque(_Lane(pieces) for pieces in by_partition.values())  # no split begun that is not yielded
        self._open: list[_Lane] = []
        self._bytes = 0
        self._is_stopped = False
        self._is_abandoned = False
        self._threads: list[Thread] = []

    def start(self, workers: int) -> None:
        """Start the threads."""
        _running.add(self)
        self._threads = [Thread(target=self.work, name=f"reader-{number}", daemon=True) for number in range(workers)]
        for thread in self._threads:
            thread.start()

    def join(self, deadline: float) -> None:
        """Wait for the threads of a stopped scan until a time of the monotonic clock."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def work(self) -> None:
        """Read the splits that are left; a thread's main function."""
        while (found := self._next()) is not None:
            lane, piece = found
            try:
                with closing(self._batches_of(piece.split)) as batches:
                    for batch in batches:
                        if not self._add(lane, piece, batch):
                            break
            except BaseException as error:  # noqa: BLE001  (the consumer raises it)
                piece.error = error
            with self._changed:
                piece.is_finished = True
                self._changed.notify_all()

    def batches(self, done: Progress) -> Iterator[pa.RecordBatch]:
        """Yield the batches of heads, one partition after the other."""
        turn = 0
        while True:
            if self._is_abandoned:
                raise QueryError(
                    "a scan that was begun before a fork is continued in the forked process: begin it there instead"
                )
            with self._changed:
                while (found := self._ready(turn, done)) is None:
                    if not self._open and not self._idle:
                        return
                    self._changed.wait()
                turn, piece = found
                batch, size = piece.waiting.popleft()
                self._bytes -= size
                self._changed.notify_all()
            yield batch
            del batch, found, piece

    def stop(self) -> None:
        """End the threads at their next batch."""
        with self._changed:
            self._is_stopped = True
            for lane in self._open:
                for piece in lane.pieces[lane.head : lane.begun]:
                    piece.waiting.clear()
            self._changed.notify_all()

    def abandon(self) -> None:
        """End the scan in a process that was forked while it ran."""
        self._changed, self._threads = Condition(), []
        self._is_stopped = self._is_abandoned = True

    def _batches_of(self, split: Split) -> Generator[pa.RecordBatch, None, None]:
        yield from self._read(split)

    def _next(self) -> tuple[_Lane, _Piece] | None:
        with self._changed:
            if self._is_stopped:
                return None
            if self._idle:
                lane = self._idle.popleft()
                self._open.append(lane)
            else:
                left = [lane for lane in self._open if lane.begun < len(lane.pieces)]
                if not left:
                    return None
                lane = min(left, key=lambda each: each.ahead)
            lane.begun += 1
            return lane, lane.pieces[lane.begun - 1]

    def _add(self, lane: _Lane, piece: _Piece, batch: pa.RecordBatch) -> bool:
        """Add a batch to those that wait, as soon as memory allows it; return whether the consumer wants more."""
        size = batch.nbytes
        with self._changed:
            while not self._is_stopped and self._bytes + size > self._memory:
                if lane.pieces[lane.head] is piece and not any(each.pieces[each.head].waiting for each in self._open):
                    break
                self._changed.wait()
            if self._is_stopped:
                return False
            piece.waiting.append((batch, size))
            self._bytes += size
            self._changed.notify_all()
            return True

    def _ready(self, turn: int, done: Progress) -> tuple[int, _Piece] | None:
        """Return a head with a waiting batch, from a lane on, and the lane after it; raise the error of a head."""
        finished = 0
        for lane in list(self._open):
            while lane.ahead and lane.pieces[lane.head].is_finished and not lane.pieces[lane.head].waiting:
                error = lane.pieces[lane.head].error
                if error is not None:
                    raise error
                lane.head += 1
                finished += 1
            if not lane.ahead:
                self._open.remove(lane)
                if lane.head < len(lane.pieces):
                    self._idle.appendleft(lane)
        if finished:
            done(finished)
            self._changed.notify_all()
        count = len(self._open)
        for step in range(count):
            lane = self._open[(turn + step) % count]
            piece = lane.pieces[lane.head]
            if piece.waiting:
                return (turn + step + 1) % count, piece
        return None
