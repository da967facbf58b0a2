"""What is to be done next for each partition. Pure: an observation or a result in, tasks out; no clock, no I/O.

A partition is worked on while four things are known, each from its own source:

- a reign (leadership): this broker leads, in this epoch, this topic id;
- a listing (scan): the live directory has that topic id, and these segments are closed;
- a high watermark (checkpoint): written by the broker after the reign and the directory were first seen;
- a position (store): where the archive's run ends.

Then the segments from the one that contains the next offset on go up, several at once, up to the high watermark; the
commit moves along the run only, whatever later segments did (protocol rules 1 to 4 and 8 of the design).

Whatever goes wrong, the position is forgotten and read from the store again; what was shipped in the same reign stays
shipped. The one thread that calls `observe` and `conclude` owns all state here.
"""

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ts_common.config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.events import (
    AnyTask,
    Asked,
    AskStore,
    Changed,
    Committed,
    DirectoryGone,
    Failed,
    Fenced,
    HighWatermarks,
    Led,
    Listing,
    NotLed,
    Observation,
    Position,
    Reign,
    Rescan,
    Result,
    Ship,
    Shipped,
    WriteCommit,
)

# Enough that a partition that is behind keeps the upload threads busy, few enough that thousands of partitions that
# are behind share them and the memory.
SEGMENTS_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a partition is closed and not yet below the next offset.

    Attributes:
        listing: where its files are.
        base: of the oldest such segment; None where there is none, or the position is not known.
        segments: how many.
        lag: offsets from the next offset to the high watermark.
        next_offset: as last read or committed.
        hole: nothing that this broker holds continues the run: the next offset lies below every live segment, or in
            the tail of one that lost it.
    """

    listing: Listing
    base: int | None
    segments: int
    lag: int | None
    next_offset: int | None
    hole: bool


@dataclass(slots=True)
class _Partition:
    partition: TopicPartition
    generation: int
    reign: Reign | None = None
    fenced: Reign | None = None  # reigns of its topic id up to this one are over, whatever the source still says
    listing: Listing | None = None  # None: no directory, or what was known of it is known to be old
    directory: tuple[tuple[int, int], Path] | None = None
    appeared_at: int = 0  # of that directory; nanoseconds since the epoch
    high_watermark: int | None = None
    position: Position | None = None
    asking: bool = False
    committing: bool = False
    failures: int = 0
    in_flight: set[int] = field(default_factory=set)
    shipped: dict[int, Shipped] = field(default_factory=dict)

    def start_over(self, generation: int) -> None:
        """Forget everything that was true of the reign or directory before; results under way no longer count."""
        self.generation = generation
        self.high_watermark = None
        self.position = None
        self.asking = self.committing = False
        self.failures = 0
        self.in_flight.clear()
        self.shipped.clear()

    def forget_position(self) -> None:
        self.position = None
        self.failures += 1


class Tracker:
    """The state of all partitions that have a directory here.

    Args:
        offset_reset: where an archive without a commit begins.
        segments_in_flight: of one partition at once.
    """

    def __init__(self, offset_reset: OffsetReset, segments_in_flight: int = SEGMENTS_IN_FLIGHT) -> None:
        self._offset_reset = offset_reset
        self._window = segments_in_flight
        self._partitions: dict[TopicPartition, _Partition] = {}
        # One count for all, so that a partition that was forgotten and comes back never meets its old results.
        self._generations = itertools.count()

    def observe(self, event: Observation) -> list[AnyTask]:
        """Take one observation in; what is to be done now that was not before."""
        match event:
            case HighWatermarks():
                return self._on_high_watermarks(event)
            case Listing():
                state = self._state(event.partition)
                self._on_listing(state, event)
            case DirectoryGone():
                state = self._state(event.partition)
                state.listing = state.directory = None
                self._start_over(state)
            case Led():
                state = self._state(event.partition)
                self._on_led(state, event.reign)
            case NotLed():
                state = self._state(event.partition)
                if state.reign is not None:
                    state.reign = None
                    self._start_over(state)
        if state.reign is None and state.directory is None:
            del self._partitions[event.partition]
        return self._advance(state)

    def conclude(self, result: Result) -> list[AnyTask]:
        """Take a worker's result in; what is to be done next."""
        state = self._partitions.get(result.partition)
        if state is None or state.generation != result.generation:
            return []
        match result:
            case Asked():
                state.asking = False
                self._adopt(state, result.position)
            case Shipped():
                state.in_flight.discard(result.base)
                state.shipped[result.base] = result
                state.failures = 0
            case Committed():
                state.committing = False
                state.failures = 0
                self._adopt(state, result.position)
            case Fenced():
                state.fenced = result.reign
                state.reign = None
                self._start_over(state)
            case Failed():
                if result.base is not None:
                    state.in_flight.discard(result.base)
                else:
                    state.asking = state.committing = False
                state.forget_position()
            case Changed():
                state.in_flight.discard(result.base)
                state.failures += 1
                # The listing is known to be old: nothing more is taken from it until a new one comes.
                state.listing = None
                return [Rescan(state.partition, state.failures)]
        return self._advance(state)

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """What waits, of every partition that is led here."""
        waiting = {}
        for partition, state in self._partitions.items():
            if state.reign is None or state.listing is None:
                continue
            next_offset = state.position.next_offset if state.position else None
            closed = state.listing.bases[:-1]
            index = _containing(state.listing.bases, next_offset) if next_offset is not None else 0
            base = closed[index] if next_offset is not None and 0 <= index < len(closed) else None
            lag = None
            if next_offset is not None and state.high_watermark is not None:
                lag = max(0, state.high_watermark - next_offset)
            waiting[partition] = Backlog(
                listing=state.listing,
                base=base,
                segments=max(0, len(closed) - max(index, 0)),
                lag=lag,
                next_offset=next_offset,
                # A segment that is shipped and does not reach the next offset lost its tail: nothing here fills it.
                hole=index < 0
                or (
                    base is not None
                    and base in state.shipped
                    and base not in state.in_flight
                    and state.shipped[base].end <= (next_offset or 0)
                ),
            )
        return waiting

    def _state(self, partition: TopicPartition) -> _Partition:
        if partition not in self._partitions:
            self._partitions[partition] = _Partition(partition, next(self._generations))
        return self._partitions[partition]

    def _start_over(self, state: _Partition) -> None:
        state.start_over(next(self._generations))

    def _on_listing(self, state: _Partition, listing: Listing) -> None:
        if state.directory != (listing.identity, listing.log_dir):
            self._start_over(state)
            state.directory = (listing.identity, listing.log_dir)
            state.appeared_at = listing.taken_at
        state.listing = listing
        # A segment that was merged, or whose neighbour was, is another one now: what was shipped of it stands in the
        # store, and is weighed anew.
        neighbours = dict(pairwise(listing.bases))
        for base in [base for base, done in state.shipped.items() if neighbours.get(base) != done.next_base]:
            del state.shipped[base]

    def _on_led(self, state: _Partition, reign: Reign) -> None:
        fenced = state.fenced
        if fenced is not None and fenced.topic_id == reign.topic_id and reign.epoch <= fenced.epoch:
            return
        known = state.reign
        if known is None or (known.epoch, known.topic_id) != (reign.epoch, reign.topic_id):
            state.reign = reign
            self._start_over(state)

    def _on_high_watermarks(self, event: HighWatermarks) -> list[AnyTask]:
        tasks: list[AnyTask] = []
        for state in self._partitions.values():
            listing, reign = state.listing, state.reign
            if listing is None or reign is None or listing.log_dir != event.log_dir:
                continue
            if event.written_at <= max(reign.seen_at, state.appeared_at):
                continue
            state.high_watermark = event.offsets.get((state.partition.topic, state.partition.partition))
            tasks += self._advance(state)
        return tasks

    def _adopt(self, state: _Partition, position: Position) -> None:
        state.position = position
        for base in [base for base, done in state.shipped.items() if done.end <= position.next_offset]:
            del state.shipped[base]

    def _advance(self, state: _Partition) -> list[AnyTask]:
        """Everything that can be begun now, marked as begun."""
        reign, listing = state.reign, state.listing
        if reign is None or listing is None or state.high_watermark is None or not listing.bases:
            return []
        if reign.topic_id is not None and listing.topic_id != reign.topic_id:
            return []
        if listing.swapping:  # what is lowest, or whose neighbour, cannot be told before the cleaner is done
            return []
        if state.position is None:
            if state.asking or state.committing:
                return []
            state.asking = True
            first = listing.bases[0 if self._offset_reset is OffsetReset.EARLIEST else -1]
            return [AskStore(state.partition, state.generation, reign, listing, first, state.failures)]
        tasks: list[AnyTask] = []
        run = _run(state.shipped, state.position.next_offset)
        if run and not state.committing:
            state.committing = True
            tasks.append(WriteCommit(state.partition, state.generation, reign, state.position, run))
        return tasks + self._ships(state, reign, listing, state.position)

    def _ships(self, state: _Partition, reign: Reign, listing: Listing, position: Position) -> list[AnyTask]:
        tasks: list[AnyTask] = []
        first = _containing(listing.bases, position.next_offset)
        for base, next_base in pairwise(listing.bases[max(first, 0) :]):
            # The last batch of a closed segment ends at most where the next one begins, so this bounds its coverage.
            if state.high_watermark is None or next_base > state.high_watermark:
                break
            if len(state.in_flight) >= self._window:
                break
            # Far ahead of one that keeps failing there is nothing to gain; that one itself is always tried again.
            if base > position.next_offset and len(state.shipped) >= 2 * self._window:
                break
            if base not in state.in_flight and base not in state.shipped:
                state.in_flight.add(base)
                tasks.append(Ship(state.partition, state.generation, reign, position.keys, listing, base, next_base))
        return tasks


def _containing(bases: tuple[int, ...], offset: int) -> int:
    """Index of the segment that would hold `offset`; -1 where all begin above it."""
    return bisect_right(bases, offset) - 1


def _run(shipped: dict[int, Shipped], next_offset: int) -> tuple[Shipped, ...]:
    """The shipped segments that continue the run from `next_offset` on without a hole."""
    run = []
    for base in sorted(shipped):
        done = shipped[base]
        if done.base > next_offset:
            break
        if done.end > next_offset:
            run.append(done)
            next_offset = done.end
    return tuple(run)
