"""One partition as clients see it: a snapshot of its view, and what is read of it later.

There are two levels. The end is read in the commit: one request. The view needs a listing, so it is opened at the first
Fetch. A snapshot never changes; a refresh replaces it, and so does each pack of a live tail. All methods run on the
event loop, and requests on threads.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Final, NamedTuple

import structlog

from ts_common.archive.catalog import StoredSegment, read_commit, stored_bases
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.former_places import read_with_former
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.archive.read_log import ReadLog, kept_end
from ts_common.archive.sealed_ranges import listed_of
from ts_common.archive.tail_chain import join
from ts_common.archive.tail_logs import damage_of
from ts_common.archive.view import open_view, without_commit
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound, TieredStorageError
from ts_common.json_objects import MAX_INT64
from ts_common.store.contract import ObjectStore
from ts_endpoint.topics.erasures import Erasures
from ts_endpoint.topics.lost import LASTING, Lost, code_of
from ts_endpoint.topics.snapshots import Snapshot, with_tail
from ts_endpoint.topics.tails import IDLE_SECONDS, FollowedLog, Tails
from ts_reader.query.bounds import Loss, loss_of

# A listing also shows what retention removed, and holes that were filled; a commit shows new segments alone.
LISTING_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 1.0  # between two reads of a commit whose successor ships packs
_OLD: Final = 2  # refresh intervals: a partition that clients fetch is renewed once in each
# A client that fetches beyond the end has seen a later commit, or is hostile: each such request reads the commit.
_READS_AT_ONCE: Final = 10
_READS_PER_SECOND: Final = 5

log = structlog.get_logger()
_pause = asyncio.sleep


class _Opened(NamedTuple):
    """The closed segments of a partition, with the commit that they were opened by."""

    snapshot: Snapshot
    commit: Commit | ForeignCommit | None


class _Extended(NamedTuple):
    """A snapshot with the live tail.

    Attributes:
        opened: what it continues.
        read: how many packs of each log were read before.
    """

    snapshot: Snapshot
    opened: _Opened
    read: list[int]


class _Reached(NamedTuple):
    """The greatest end that clients saw of a live tail.

    Attributes:
        closed_end: the end of the closed segments then.
        log: that they read, up to the end.
    """

    closed_end: int
    end: int
    log: ReadLog


class Partition:
    """A partition that clients use.

    Args:
        refresh_seconds: a commit of this age is read again.
        erasures: the requests to erase in its store.
        tails: of its store; None to serve closed segments only.
    """

    def __init__(
        self, store: ObjectStore, keys: PartitionKeys, refresh_seconds: float, erasures: Erasures, tails: Tails | None
    ) -> None:
        self.store = store
        self.keys = keys
        self._refresh_seconds = refresh_seconds
        self._erasures = erasures
        self._tails = tails
        self._opened: _Opened | None = None
        self._logs: Sequence[FollowedLog] = ()  # that its commit names
        self._used_at = -inf
        self._reached: _Reached | None = None
        self._epoch: int | None = None
        self._epoch_read = 0.0
        self._snapshot: Snapshot | None = None
        self._renewed = 0.0
        self._listed = 0.0
        self._lists_all = False  # after a segment was missing, until a listing has no hole
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

        One that can lack a list of erased offsets is renewed before: after a request to erase, and if no client has
        used it for a while.

        Raises:
            Lost: as `renewed`.
            TieredStorageError: the first snapshot cannot be read, or none since a request to erase; other failures are
                logged.
        """
        self._erasures.look()
        is_old = self.is_old
        self._use()
        if self._snapshot is None or self._lacks_list:
            return await self._listed_again()
        if is_old and self._is_idle:
            return await self._listed_if_possible(self._snapshot)
        if is_old:
            self._begin_renewal()
        return self._snapshot

    @property
    def _lacks_list(self) -> bool:
        return self._listed < self._erasures.changed_at

    @property
    def _is_idle(self) -> bool:
        """Whether no renewal has listed it for longer than while clients use it."""
        return monotonic() - self._listed >= LISTING_SECONDS + _OLD * self._refresh_seconds

    async def _listed_again(self) -> Snapshot:
        snapshot = await self.renewed()
        return await self.renewed() if self._lacks_list else snapshot  # that renewal can have begun before

    async def _listed_if_possible(self, known: Snapshot) -> Snapshot:
        try:
            return await self._listed_again()
        except Lost:
            raise
        except TieredStorageError as error:
            self._note_failure(error)
            return known

    @property
    def is_old(self) -> bool:
        """Whether the snapshot is older than the refresh interval, or new packs do not reach it."""
        is_followed = self.is_used and all(log.is_followed for log in self._logs)
        return monotonic() - self._renewed >= self._refresh_seconds or bool(self._logs and not is_followed)

    @property
    def is_used(self) -> bool:
        """Whether a client used it lately, so that its logs are followed."""
        return monotonic() - self._used_at < IDLE_SECONDS

    def _use(self) -> None:
        self._used_at = monotonic()
        for each in self._logs:
            each.use()

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
            if self._opening is not None and not self._opening.done():
                await asyncio.wait([self._opening])  # it may have begun with sealed objects
            self._listed, self._lists_all = 0.0, True
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._renew_in_turn())
        return await asyncio.shield(self._opening)

    def _begin_renewal(self) -> None:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._renew())
            self._opening.add_done_callback(self._log_failure)

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
        opened = self._opened
        is_listed = now - self._listed < LISTING_SECONDS and not self._lacks_list
        if opened is None or self._snapshot is None or not is_same or not is_listed:
            opened = await self._open_again(found)
            self._listed, self._etag = now, etag
        elif not self._logs:
            return self._snapshot
        return self._show(await self._with_tail(opened))

    async def _open_again(self, found: tuple[Commit | ForeignCommit | None, str | None] | None) -> _Opened:
        try:
            opened, known = await asyncio.to_thread(self._open, found)
        except Lost as lost:
            self._lose(lost)
            raise
        if self._lost is not None:
            self._lost = None
            log.info("partition_readable_again", partition=str(self.keys.partition))
        self._had_commit = opened.snapshot.view.state is CommitState.COMMITTED
        self._opened, self._known = opened, known
        live = opened.commit.live if isinstance(opened.commit, Commit) else None
        for each in self._logs:
            each.watchers.discard(self)
        self._logs = () if live is None or self._tails is None else self._tails.of(live)
        for each in self._logs:
            each.watchers.add(self)
        return opened

    async def _with_tail(self, opened: _Opened) -> Snapshot:
        """Return a snapshot with the live tail; its packs are read after the commit."""
        if not self._logs:
            return opened.snapshot
        self._use()
        try:
            await asyncio.gather(*(each.look() for each in self._logs))
            return await asyncio.to_thread(self._continued, opened)
        except NewerFormat as error:
            end = opened.snapshot.end
            lost = Lost(code_of(error, "segment-damaged"), str(error), end, end + 1)
            self._lose(lost)
            raise lost from error

    def _continued(self, opened: _Opened) -> Snapshot:
        """Return a snapshot with the packs that were read; on a thread.

        Raises:
            NewerFormat: a later release wrote one.
            TieredStorageError: a log was not read before, and the store failed.
        """
        closed, commit = opened
        assert isinstance(commit, Commit) and self._tails is not None  # noqa: S101, PT018  (it names logs)
        try:
            chain = self._tails.logs.chain(self.keys, commit)
            damage = damage_of(self.keys, chain)
        except (CorruptData, ObjectNotFound) as error:
            chain = join(commit, ())
            damage = f"{self.keys.partition}: the view ends at the next offset: {error}"
        shown = with_tail(closed, chain)
        return shown if damage is None else replace(shown, view=_warned(shown.view, damage), is_cut=True)

    def extended(self) -> _Extended | None:
        """Return the snapshot with the packs that were read; None if it cannot be made. On a thread."""
        opened, read = self._opened, self._read
        if opened is None or not self._logs:
            return None
        try:
            return _Extended(self._continued(opened), opened, read)
        except TieredStorageError:
            return None  # the next renewal reports it

    def extend(self, found: _Extended | None) -> None:
        """Show what `extended` returned, unless a newer pack or commit was read meanwhile."""
        if found is None or self._snapshot is None or self._opened is not found.opened or self._read != found.read:
            return
        self._show(found.snapshot)
        if found.snapshot.is_late and monotonic() - self._renewed >= _LATE_SECONDS:
            self._begin_renewal()

    @property
    def _read(self) -> list[int]:
        return [each.changes for each in self._logs]

    def _show(self, snapshot: Snapshot) -> Snapshot:
        """Replace the snapshot unless it is equal; return the one that clients get."""
        self._warn(snapshot.view.warning)
        former = self._snapshot
        if former is not None and former.shows_same(snapshot):
            return former  # with what was looked up for it
        snapshot.reach = self._reach(snapshot)
        if former is not None:
            snapshot.learn(former)
        self._replace(snapshot)
        return snapshot

    def _reach(self, snapshot: Snapshot) -> int:
        """Return up to where positions are valid."""
        if snapshot.is_cut:
            return MAX_INT64  # what this process saw of the tail before, still counts once it can be read
        now = snapshot.view.log
        if self._reached is not None:
            closed_end, end, read = self._reached
            if closed_end <= snapshot.end < end == kept_end(end, read, now, snapshot.end):
                return end
        if snapshot.closed is None:
            self._reached = None
        else:
            self._reached = _Reached(snapshot.closed.end, snapshot.end, now.below(snapshot.end))
        return snapshot.end

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
    ) -> tuple[_Opened, dict[StoredSegment, SegmentCopy]]:
        try:
            sealed = () if self._snapshot is None else self._snapshot.view.sealed
            lists_all = self._lists_all
            catalog = read_with_former(self.store, self.keys, found, seals=not lists_all, known=sealed)
            view = open_view(self.store, catalog, self._known or NOTHING_KNOWN)
            if lists_all:
                self._lists_all = any(isinstance(step, Hole) for step in view.runs(view.start, view.end))
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
        snapshot = Snapshot(view, _epoch_of(catalog.commit), view.plan(view.start, view.end))
        return _Opened(snapshot, catalog.commit), known

    def _log_failure(self, task: "asyncio.Task[Snapshot]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TieredStorageError) and not isinstance(error, Lost):
            self._note_failure(error)

    def _note_failure(self, error: TieredStorageError) -> None:
        self._renewed = monotonic()  # the next attempt follows after the interval
        log.warning("partition_not_refreshed", partition=str(self.keys.partition), reason=str(error))


def _warned(view: PartitionView, why: str) -> PartitionView:
    return replace(view, warning="; ".join(filter(None, (view.warning, why))))


def _epoch_of(commit: Commit | ForeignCommit | None) -> int:
    return commit.epoch if isinstance(commit, Commit) else NO_EPOCH
