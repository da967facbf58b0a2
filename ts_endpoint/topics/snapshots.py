"""A partition at one moment: its view, what to read of it, and what was looked up for it. It never changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_ranges import Part, as_ranges, number_at, parts_of
from ts_common.archive.tail_chain import Chain
from ts_common.archive.view import continued
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.store.contract import ObjectStore
from ts_reader.query.frozen import explain, frozen_of
from ts_reader.reading.transactions import find_hidden, stable_end

# Aborted transactions are looked up for so many ranges at once: a lookup plans the whole view.
_RANGES_AT_ONCE: Final = 16
_EXPLAINED: Final = 1_000  # ranges in a message about frozen segments


@dataclass(eq=False)
class Snapshot:
    """The view of a partition at one moment.

    Attributes:
        epoch: leader epoch of the last commit; -1 if unknown.
        epochs: which leader epoch wrote which offset; those of the view.
        steps: ranges and holes from the view's start to its end.
        closed: the snapshot without the live tail that this one continues; None without a tail.
        reach: positions up to here are valid. It is above the end where a part of the tail is not shown any more:
            an end that falls alone is no loss.
        is_late: whether a later leadership ships packs, which has a commit of its own by now.
        is_cut: whether a part of the tail cannot be read, so that it is unknown where the tail ends.
        serial: its number; no other snapshot has it.
    """

    view: PartitionView
    epoch: int
    steps: Sequence[ReadRange | Hole]
    closed: "Snapshot | None" = None
    reach: int = 0
    is_late: bool = False
    is_cut: bool = False
    serial: int = field(default_factory=count().__next__)
    _stable: "asyncio.Future[int] | None" = field(default=None, init=False)
    _hidden: "dict[int, asyncio.Future[tuple[AbortedTransaction, ...]]]" = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.reach = max(self.reach, self.end)

    @property
    def start(self) -> int:
        """First offset."""
        return self.view.start

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.view.end

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offset."""
        return self.view.epochs

    def number_at(self, offset: int) -> int:
        """Return the number of the step with an offset of `[start, end)`."""
        return number_at(self.steps, offset)

    def frozen_from(self, store: ObjectStore, offset: int) -> str | None:
        """Return a message about the frozen segments from an offset on; None if the listing shows none.

        Args:
            offset: of `[start, end)`.
        """
        number = self.number_at(offset)
        ranges = [step for step in self.steps[number : number + _EXPLAINED] if isinstance(step, ReadRange)]
        frozen = frozen_of(ranges)
        return explain(store, frozen, ranges) if frozen else None

    @property
    def stable_at_once(self) -> int | None:
        """What `stable` returns, if no request is needed; else None."""
        last = self.view.last_stable_offset
        return None if last is None else max(self.start, min(last, self.end))

    async def stable(self, store: ObjectStore) -> int:
        """Return the end for `read_committed`, in `[start, end]`.

        Retention can move the start beyond the beginning of an open transaction. The last stable offset is then the
        start, as in Kafka (`UnifiedLog.maybeIncrementFirstUnstableOffset`).

        Raises:
            as `ts_reader.reading.transactions.stable_end`.
        """
        known = self.stable_at_once
        if known is not None:
            return known
        if self._stable is None or _has_failed(self._stable):
            self._stable = asyncio.ensure_future(asyncio.to_thread(stable_end, store, self.view))
        return max(self.start, await asyncio.shield(self._stable))

    async def hidden(self, store: ObjectStore, number: int, stable: int) -> tuple[AbortedTransaction, ...]:
        """Return the transactions with records in a step that `read_committed` does not show, by first offset.

        Args:
            stable: the end for `read_committed`.

        Raises:
            as `ts_reader.reading.transactions.find_hidden`.
        """
        lot = self._lot(number)
        known = self._hidden.get(lot.start)
        if known is None or _has_failed(known):
            steps = self.steps[lot.start : lot.stop]
            find = partial(_hidden, store, self.view, steps[0].start, min(steps[-1].end, stable))
            known = self._hidden[lot.start] = asyncio.ensure_future(asyncio.to_thread(find))
        return await asyncio.shield(known)

    def hidden_at_once(self, number: int) -> tuple[AbortedTransaction, ...] | None:
        """Return what `hidden` returns if it is known already; else None."""
        known = self._hidden.get(self._lot(number).start)
        return None if known is None or not known.done() or _has_failed(known) else known.result()

    def shows_same(self, other: "Snapshot") -> bool:
        """Return whether clients get the same by another snapshot."""
        return self.view == other.view and self.epoch == other.epoch

    def learn(self, former: "Snapshot") -> None:
        """Take over what was looked up for the same closed segments: each pack makes a snapshot.

        A transaction with records below the last stable offset is decided, so no pack changes what is hidden there.
        """
        decided = former.stable_at_once
        if self.closed is None or self.closed is not former.closed or decided is None:
            return
        for first, found in former._hidden.items():
            last = self.steps[self._lot(first).stop - 1]
            if first < len(self.closed.steps) and last.end <= decided:
                self._hidden[first] = found

    def _lot(self, number: int) -> range:
        """Return the numbers of the steps that are looked up together with one; none has steps of both tiers."""
        count = len(self.steps) if self.closed is None else len(self.closed.steps)
        first, stop = (0, count) if number < count else (count, len(self.steps))
        first += (number - first) // _RANGES_AT_ONCE * _RANGES_AT_ONCE
        return range(first, min(first + _RANGES_AT_ONCE, stop))


def with_tail(closed: Snapshot, chain: Chain) -> Snapshot:
    """Return the snapshot of closed segments with a live tail."""
    view = continued(closed.view, chain)
    parts: list[Part | Hole] = [*parts_of(closed.steps), *view.plan(closed.end, view.end)]
    return Snapshot(view, closed.epoch, as_ranges(parts), closed, is_late=chain.is_late)


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def _hidden(store: ObjectStore, view: PartitionView, start: int, stop: int) -> tuple[AbortedTransaction, ...]:
    if start >= stop:
        return ()
    found = find_hidden(store, view, start, stop).transactions
    return tuple(sorted(found, key=lambda each: (each.first_offset, each.producer_id)))
