"""One partition as clients see it: a snapshot of its view, and what is read of it later.

There are two levels. The end is read in the commit: one request. The view needs a listing, so it is opened at the first
Fetch. A snapshot never changes; a refresh replaces it. All methods run on the event loop, and requests on threads.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Final

import structlog

from ts_common.archive.catalog import StoredSegment, read_commit, stored_bases
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.former_places import read_with_former
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_ranges import listed_of, number_at
from ts_common.archive.view import PartitionView, open_view, without_commit
from ts_common.errors import TieredStorageError
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.store.contract import ObjectStore
from ts_endpoint.topics.lost import LASTING, Lost, code_of
from ts_reader.query.bounds import Loss, loss_of
from ts_reader.query.frozen import explain, frozen_of
from ts_reader.reading.transactions import find_hidden, stable_end

# A listing also shows what retention removed, and holes that were filled; a commit shows new segments alone.
LISTING_SECONDS: Final = 60.0
# Aborted transactions are looked up for so many ranges at once: a lookup plans the whole view.
_RANGES_AT_ONCE: Final = 16
_EXPLAINED: Final = 1_000  # ranges in a message about frozen segments
_OLD: Final = 2  # refresh intervals: a partition that clients fetch is renewed once in each
# A client that fetches beyond the end has seen a later commit, or is hostile: each such request reads the commit.
_READS_AT_ONCE: Final = 10
_READS_PER_SECOND: Final = 5

log = structlog.get_logger()
_pause = asyncio.sleep


@dataclass(eq=False)
class Snapshot:
    """The view of a partition at one moment.

    Attributes:
        epoch: leader epoch of the last commit; -1 if unknown.
        epochs: which leader epoch wrote which offset; those of the view.
        steps: ranges and holes from the view's start to its end.
        serial: its number; no other snapshot has it.
    """

    view: PartitionView
    epoch: int
    steps: Sequence[ReadRange | Hole]
    serial: int = field(default_factory=count().__next__)
    _stable: "asyncio.Future[int] | None" = field(default=None, init=False)
    _hidden: "dict[int, asyncio.Future[tuple[AbortedTransaction, ...]]]" = field(default_factory=dict, init=False)

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
        lot = number // _RANGES_AT_ONCE
        known = self._hidden.get(lot)
        if known is None or _has_failed(known):
            steps = self.steps[lot * _RANGES_AT_ONCE : (lot + 1) * _RANGES_AT_ONCE]
            find = partial(_hidden, store, self.view, steps[0].start, min(steps[-1].end, stable))
            known = self._hidden[lot] = asyncio.ensure_future(asyncio.to_thread(find))
        return await asyncio.shield(known)

    def hidden_at_once(self, number: int) -> tuple[AbortedTransaction, ...] | None:
        """Return what `hidden` returns if it is known already; else None."""
        known = self._hidden.get(number // _RANGES_AT_ONCE)
        return None if known is None or not known.done() or _has_failed(known) else known.result()


class Partition:
    """A partition that clients use.

    Args:
        refresh_seconds: a commit of this age is read again.
    """

    def __init__(self, store: ObjectStore, keys: PartitionKeys, refresh_seconds: float) -> None:
        self.store = store
        self.keys = keys
        self._refresh_seconds = refresh_seconds
        self._epoch: int | None = None
        self._epoch_read = 0.0
        self._snapshot: Snapshot | None = None
        self._renewed = 0.0
        self._listed = 0.0
        self._etag: str | None = None  # of the commit of the snapshot
        # What readers lose of the partition, with the listing's monotonic time and the ETag of the commit.
        self._known: dict[StoredSegment, SegmentCopy] = {}
        self._opening: asyncio.Task[Snapshot] | None = None
        self._reads_left = float(_READS_AT_ONCE)
        self._reads_counted = 0.0
        self._reading: asyncio.Task[int] | None = None
        self._lost: Lost | None = None
        self._had_commit = False
        self._warning: str | None = None
        self._change: asyncio.Future[None] | None = None

    @property
    def known(self) -> Snapshot | None:
        """The last snapshot, however old; None before the first, and while the partition is lost."""
        return self._snapshot

    @property
    def is_lost(self) -> bool:
        """Whether the last attempt to open it failed for a reason that lasts."""
        return self._lost is not None

    @property
    def change(self) -> "asyncio.Future[None]":
        """A future that is done when `known` is replaced; do not cancel it, because others wait too."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    @property
    def known_epoch(self) -> int:
        """The leader epoch of the last commit as far as it is in memory and not old; -1 without one."""
        is_old = monotonic() - self._epoch_read > _OLD * self._refresh_seconds
        return NO_EPOCH if self._epoch is None or is_old else self._epoch

    async def epoch(self) -> int:
        """Return the leader epoch of the last commit, not older than the refresh interval; -1 if it is unknown.

        Raises:
            TieredStorageError: the commit cannot be read.
        """
        if self._epoch is not None and monotonic() - self._epoch_read < self._refresh_seconds:
            return self._epoch
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read_epoch())
        return await asyncio.shield(self._reading)

    async def snapshot(self) -> Snapshot:
        """Return a snapshot; one that is older than the refresh interval is renewed meanwhile.

        Raises:
            Lost: as `renewed`.
            TieredStorageError: the first snapshot cannot be read; later failures are logged.
        """
        if self._snapshot is None:
            return await self.renewed()
        if self.is_old and (self._opening is None or self._opening.done()):
            self._opening = asyncio.ensure_future(self._renew())
            self._opening.add_done_callback(self._log_failure)
        return self._snapshot

    @property
    def is_old(self) -> bool:
        """Whether the snapshot is older than the refresh interval."""
        return monotonic() - self._renewed >= self._refresh_seconds

    async def renewed(self, *, lists: bool = False) -> Snapshot:
        """Return a snapshot that is read now.

        Args:
            lists: whether objects are listed, even if the commit is the same.

        Raises:
            Lost: it cannot be opened for a reason that lasts, or could not within the refresh interval.
            TieredStorageError: it cannot be read.
        """
        if self._lost is not None and not self.is_old:
            raise self._lost
        if lists:
            self._listed = 0.0
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._renew_in_turn())
        return await asyncio.shield(self._opening)

    async def _read_epoch(self) -> int:
        found = await asyncio.to_thread(self._read_commit)
        self._epoch, self._epoch_read = NO_EPOCH if found is None else _epoch_of(found[0]), monotonic()
        return self._epoch

    async def _renew_in_turn(self) -> Snapshot:
        """Renew the snapshot, after a wait if it was renewed very often: all clients together cost few requests."""
        now = monotonic()
        refilled = self._reads_left + (now - self._reads_counted) * _READS_PER_SECOND
        self._reads_counted, self._reads_left = now, min(refilled, _READS_AT_ONCE) - 1
        if self._reads_left < 0 and self._refresh_seconds:
            await _pause(-self._reads_left / _READS_PER_SECOND)
        return await self._renew()

    async def _renew(self) -> Snapshot:
        found = await asyncio.to_thread(self._read_commit)
        commit, etag = found or (None, None)
        now = monotonic()
        self._epoch, self._epoch_read, self._renewed = _epoch_of(commit), now, now
        is_same = etag is not None and etag == self._etag
        if self._snapshot is not None and is_same and now - self._listed < LISTING_SECONDS:
            return self._snapshot
        try:
            snapshot, known = await asyncio.to_thread(self._open, found)
        except Lost as lost:
            self._lose(lost)
            raise
        if self._lost is not None:
            self._lost = None
            log.info("partition_readable_again", partition=str(self.keys.partition))
        self._warn(snapshot.view.warning)
        self._had_commit = snapshot.view.state is CommitState.COMMITTED
        self._known = known
        self._listed, self._etag = now, etag
        former = self._snapshot
        if former is not None and _is_equal(former, snapshot):
            return former  # with what was looked up for it
        self._replace(snapshot)
        return snapshot

    def _read_commit(self) -> tuple[Commit | ForeignCommit | None, str | None] | None:
        """Return what `read_commit` returns; None if the commit cannot be used, which the view then reports."""
        try:
            return read_commit(self.store, self.keys)
        except LASTING:
            return None

    def _lose(self, lost: Lost) -> None:
        """Remove the snapshot: clients get the error at once, not the records of a former commit."""
        if self._lost is None or self._lost.code != lost.code:
            log.warning("partition_lost", partition=str(self.keys.partition), code=lost.code, reason=str(lost))
        self._lost, self._warning, self._etag = lost, None, None
        self._replace(None)

    def _warn(self, warning: str | None) -> None:
        if warning is not None and warning != self._warning:
            log.warning("partition_view", reason=warning)
        self._warning = warning

    def _replace(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        change, self._change = self._change, None
        if change is not None:
            change.set_result(None)

    def _open(
        self, found: tuple[Commit | ForeignCommit | None, str | None] | None
    ) -> tuple[Snapshot, dict[StoredSegment, SegmentCopy]]:
        try:
            sealed = () if self._snapshot is None else self._snapshot.view.sealed
            catalog = read_with_former(self.store, self.keys, found, seals=True, known=sealed)
            view = open_view(self.store, catalog, self._known or NOTHING_KNOWN)
        except LASTING as error:
            lowest, highest = stored_bases(self.store, self.keys) or (0, 0)
            loss = Loss(self.keys.partition, lowest, highest + 1, f"are not shown: {error}", is_open=True)
            raise Lost(code_of(error, "segment-damaged"), str(loss), loss.start, loss.end) from error
        if view.state is CommitState.BEGINNING and self._had_commit:
            missing = CommitState.MISSING  # the first upload ended before
            view = replace(view, state=missing, warning=without_commit(catalog, missing))
        if (unusable := loss_of(view)) is not None:
            raise Lost(view.state, str(unusable), unusable.start, unusable.end)
        known = {copy.segment: copy for copy in (*listed_of(view.copies), *listed_of(view.retired))}
        return Snapshot(view, _epoch_of(catalog.commit), view.plan(view.start, view.end)), known

    def _log_failure(self, task: "asyncio.Task[Snapshot]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TieredStorageError) and not isinstance(error, Lost):
            self._renewed = monotonic()  # the next attempt follows after the interval
            log.warning("partition_not_refreshed", partition=str(self.keys.partition), reason=str(error))


def _epoch_of(commit: Commit | ForeignCommit | None) -> int:
    return commit.epoch if isinstance(commit, Commit) else NO_EPOCH


def _is_equal(one: Snapshot, other: Snapshot) -> bool:
    return one.view == other.view and one.epoch == other.epoch


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def _hidden(store: ObjectStore, view: PartitionView, start: int, stop: int) -> tuple[AbortedTransaction, ...]:
    if start >= stop:
        return ()
    found = find_hidden(store, view, start, stop).transactions
    return tuple(sorted(found, key=lambda each: (each.first_offset, each.producer_id)))
