"""Ships the tail of a deleted topic: the protocol of a `-delete` directory on one page (protocol rule 14).

The broker keeps the directory for `file.delete.delay.ms`, and removes its files at any moment. So every step can fail,
and is repeated while the directory is there. Segments below the last known high watermark are shipped, each with its
commit, the active one up to the high watermark. Then the last leader's agent records the rest as a gap, and moves the
commit to the log's end. Any other agent does that only once the directory no longer exists: the leader's may have more.
An agent that has records of a recorded gap ships them into it.

Records are stored in the incarnation of the directory's topic id, never in that of a successor. A replica that only
moved is not shipped: the cluster still has its topic id.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import structlog

from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import SegmentChanged, TransientError
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.log_start import write_log_start
from ts_uploader.log_dirs.directory_scan import whole_listing
from ts_uploader.log_dirs.local_batches import first_batch
from ts_uploader.log_dirs.local_log import local_epochs, log_end
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.results import Committed, DeletedPending, DeletedShipped, FencedLeaderEpoch
from ts_uploader.messages.tasks import (
    UNKNOWN_EPOCH,
    FillGap,
    PassGap,
    Position,
    ReadPosition,
    Ship,
    ShipDeleted,
    Shipped,
    WriteCommit,
)
from ts_uploader.shipping.deleted_task import bases_of, begin_of, done, is_there, lost, pending, why_not_shipped
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.shipped_segments import overlapping

log = structlog.get_logger()

# The leader's agent commits within a second or two. `file.delete.delay.ms` is a minute.
_PATIENCE_SECONDS: Final = 15.0
_GONE = "the topic was deleted, and the broker removed the files before they were shipped"
_LOOK_SECONDS: Final = 2.0  # between two questions whether the topic was deleted


class NotAnswered(TransientError):
    """Whether a topic was deleted is unknown."""


class DeletedShipper:
    """Ships deleted directories; thread-safe.

    Args:
        store_of: returns the store of a topic.
        is_deleted: returns whether the cluster no longer has a topic id of a topic; None if that is unknown now.
        reported: returns the high watermark of a directory that an earlier process of this agent wrote to the store.
    """

    def __init__(
        self,
        broker: int,
        store_of: Callable[[str], ObjectStore],
        uploader: Uploader,
        commits: CommitLog,
        is_deleted: Callable[[str, str], bool | None],
        reported: Callable[[Listing], int | None] = lambda _: None,
    ) -> None:
        self._broker = broker
        self._store_of = store_of
        self._uploader = uploader
        self._commits = commits
        self._is_deleted = is_deleted
        self._reported = reported

    def ship(self, task: ShipDeleted, committed: Callable[[Committed], object]) -> DeletedShipped | DeletedPending:
        """Ship what the archive lacks, and record the rest; or return the task to run next.

        Args:
            task: the directory; `note_log` returned it.
            committed: called with each commit.

        Raises:
            SegmentChanged: a file changed or vanished: repeat it.
            NotAnswered: as `confirm`.
            CorruptData, DataLoss: a segment, or an object of the store, is damaged.
            PreconditionFailed, StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        confirmed = task if task.confirmed else self.confirm(task)
        if not isinstance(confirmed, ShipDeleted):
            return confirmed
        task = confirmed
        if task.leadership.epoch == UNKNOWN_EPOCH:
            return self._without_epoch(task)
        keys = self._commits.keys_of(task.partition, task.leadership.topic_id or "")
        try:
            if is_there(task.listing):
                return self._ship_files(task, keys, committed)
            return self._record_rest(task, keys, committed)
        except FencedLeaderEpoch as later:
            return self._fenced(task, str(later))

    def _fenced(self, task: ShipDeleted, later: str) -> DeletedShipped | DeletedPending:
        """Return what an agent does that may not commit; `later` is the commit that forbids it, one line.

        If that commit has records of a later leader epoch, or reaches the log's end, it decides what was lost. Else the
        agent of that epoch may have more to ship, or may never start again.
        """
        commit = self._commit(task)
        if commit is not None and task.log is not None:
            epochs = commit.epochs.pairs
            if commit.next_offset >= task.log[0] or (epochs and epochs[-1][0] > task.leadership.epoch):
                return done(task, later, commit.next_offset)
        if is_there(task.listing):
            return pending(task, later, _PATIENCE_SECONDS)
        return lost(task, f"{later}; that commit ends below the log, and has no record of that leader epoch")

    def _without_epoch(self, task: ShipDeleted) -> DeletedShipped | DeletedPending:
        """Return whether the archive has all of a log whose last leader epoch no file has, once others can be done."""
        if task.log is not None and task.log[0] <= task.listing.bases[0]:
            return done(task, "it has no record")
        if is_there(task.listing):
            return pending(task, "the agent of the last leader ships it", _PATIENCE_SECONDS)
        commit = self._commit(task)
        if commit is not None and task.log is not None and commit.next_offset >= task.log[0]:
            return done(task, "all offsets are in the archive, or recorded as a gap", commit.next_offset)
        return lost(task, "no file has its last leader epoch (magic 0 or 1), and its broker did not lead")

    def _commit(self, task: ShipDeleted) -> Commit | None:
        """Return the agent's commit of a directory's incarnation; None without one."""
        keys = self._commits.keys_of(task.partition, task.leadership.topic_id or "")
        commit = None if keys is None else read_commit(self._store_of(task.partition.topic), keys)[0]
        return commit if isinstance(commit, Commit) else None

    def confirm(self, task: ShipDeleted) -> ShipDeleted | DeletedShipped | DeletedPending:
        """Return the task to ship if the topic was deleted; else what to do now.

        If an operator let another topic id continue the incarnation, that one must have been deleted as well: else the
        topic is live, and this is a directory of a replica that moved.

        Raises:
            NotAnswered: whether the topic was deleted is unknown: repeat it.
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list of incarnations, and the store's.
        """
        topic, topic_id = task.partition.topic, task.leadership.topic_id or ""
        deleted = self._is_deleted(topic, topic_id)
        if deleted:
            topic_id = self._commits.last_id_of(topic, topic_id)
            deleted = topic_id == task.leadership.topic_id or self._is_deleted(topic, topic_id)
        if deleted is None:
            raise NotAnswered(f"the leadership source did not answer whether topic id {topic_id} was deleted")
        if deleted:
            known = task.high_watermark
            high_watermark = self._reported(task.listing) if known is None else known
            return replace(task, confirmed=True, attempt=0, after_seconds=0.0, high_watermark=high_watermark)
        # A replica moved, or the broker's metadata is late.
        if is_there(task.listing):
            return pending(task, "the topic exists", _LOOK_SECONDS)
        return done(task, "the topic exists")

    def note_log(self, task: ShipDeleted) -> ShipDeleted:
        """Return the task with the end and the epochs of its log, which are needed when the directory no longer exists.

        Raises:
            SegmentChanged, OSError, CorruptData: a file vanished or is damaged.
        """
        if task.log is not None or not is_there(task.listing):
            return task
        end = log_end(task.listing.directory, bases_of(task.listing)[-1])
        return replace(task, log=(end, local_epochs(task.listing.directory) or EpochHistory()))

    def _ship_files(
        self, task: ShipDeleted, keys: PartitionKeys | None, committed: Callable[[Committed], object]
    ) -> DeletedShipped | DeletedPending:
        if task.log is None:
            raise SegmentChanged(f"{task.listing.directory}: the end of its log is not read yet")
        listing, (end, _) = whole_listing(task.listing), task.log
        bases, known = bases_of(listing), min(task.high_watermark or 0, end)
        waiting = None if task.led else self._waiting(task, keys, known, end)
        if waiting is not None:
            return waiting
        position = self._continue(task, listing, known, committed)
        position = self._ship_segments(task, listing, position, (*bases, end), known, committed)
        if not task.led and position.next_offset < end:
            return pending(task, "the agent of the last leader may have the rest", _PATIENCE_SECONDS)
        return self._end(task, position, committed, why_not_shipped(task))

    def _continue(
        self, task: ShipDeleted, listing: Listing, known: int, committed: Callable[[Committed], object]
    ) -> Position:
        """Return where the archive ends; a gap below the directory's first segment is recorded."""
        bases = listing.bases
        lowest = bases[-1] if task.latest else begin_of(task)
        read = ReadPosition(
            task.partition, -1, task.leadership, listing, lowest, None, task.attempt, latest=task.latest, over=True
        )
        position = self._commits.read(read).position
        if position.next_offset < bases[0] <= known:
            gap = PassGap(task.partition, -1, task.leadership, position, listing, bases[0])
            self._uploader.ship_tail(gap)
            passed = self._commits.pass_gap(gap)
            committed(passed)
            position = passed.position
        return position

    def _ship_segments(
        self,
        task: ShipDeleted,
        listing: Listing,
        position: Position,
        bounds: Sequence[int],
        known: int,
        committed: Callable[[Committed], object],
    ) -> Position:
        """Ship the segments between the bounds that have offsets below the high watermark `known`; return the end."""
        filling: list[Shipped] = []
        for base, following in pairwise(bounds):
            gaps = tuple(gap for gap in position.gaps if overlapping((gap,), base, following))
            ahead = following > position.next_offset
            if not ahead and not gaps:
                continue
            cut = None
            if following > known or base == listing.bases[-1]:
                lacking = [low for low, _ in gaps] + ([position.next_offset] if ahead else [])
                if not _ends_below(listing, base, max(base, min(lacking)), known):
                    break
                cut = known
            shipped = self._ship_segment(task, listing, position, (base, following), cut, () if ahead else gaps)
            if gaps:
                filling.append(shipped)
            if shipped.end > position.next_offset:
                written = self._commits.write(WriteCommit(task.partition, -1, task.leadership, position, (shipped,)))
                committed(written)
                position = written.position
        return self._fill(task, listing, position, filling, committed)

    def _waiting(
        self, task: ShipDeleted, keys: PartitionKeys | None, known: int, end: int
    ) -> DeletedShipped | DeletedPending | None:
        """Return what an agent that did not lead does now; None if it ships.

        The agent of the last leader is first. After a restart its own commit of the epoch shows that agent its part.
        """
        commit = self._commit(task)
        if keys is not None and commit is not None and commit.epoch == task.leadership.epoch:
            gaps = read_catalog(self._store_of(task.partition.topic), keys).gaps if commit.next_offset >= end else ()
            if commit.next_offset >= end and not overlapping(gaps, task.listing.bases[0], known):
                return done(task, "another agent shipped it", commit.next_offset)
            if commit.broker == self._broker:
                return None
        if task.patient:
            return None
        return pending(replace(task, patient=True), "the agent of the last leader is first", _PATIENCE_SECONDS)

    def _fill(
        self,
        task: ShipDeleted,
        listing: Listing,
        position: Position,
        filling: Sequence[Shipped],
        committed: Callable[[Committed], object],
    ) -> Position:
        """Commit the recorded gaps that were filled; return the position."""
        for gap in position.gaps:
            run = tuple(each for each in filling if overlapping((gap,), each.base, each.end))
            if run:
                fill = FillGap(task.partition, -1, task.leadership, position, listing, gap, run)
                filled = self._commits.fill_gap(fill)
                committed(filled)
                position = filled.position
        return position

    def _ship_segment(
        self,
        task: ShipDeleted,
        listing: Listing,
        position: Position,
        segment: tuple[int, int],
        cut: int | None,
        gaps: tuple[tuple[int, int], ...],
    ) -> Shipped:
        """Ship one segment; the arguments are of `Ship`."""
        below = position.lineage.highest if position.lineage is not None else 0
        keys, epochs, following = position.keys, position.epochs, position.next_offset
        ship = Ship(task.partition, -1, task.leadership, keys, listing, *segment, epochs, following, seen=True)
        ship = replace(ship, variants_below=below, lineage=position.lineage, gaps=gaps, cut=cut)
        shipped = self._uploader.ship(ship)
        log.info("deleted_segment_shipped", partition=str(task.partition), base=shipped.base, end=shipped.end)
        return shipped

    def _record_rest(
        self, task: ShipDeleted, keys: PartitionKeys | None, committed: Callable[[Committed], object]
    ) -> DeletedShipped:
        """Record what is missing of a directory that no longer exists."""
        if task.log is None or keys is None:
            return lost(task, "its files vanished before the agent read them, and no agent opened its incarnation")
        end, local = task.log
        position = _last_position(self._store_of(task.partition.topic), keys, begin_of(task))
        commit = position.commit
        if isinstance(commit, Commit) and commit.epoch > task.leadership.epoch:
            raise FencedLeaderEpoch(f"{keys.commit} is of leader epoch {commit.epoch}")
        if position.next_offset < end and _parts(position, local, end):
            return lost(task, "its files vanished, and an election lost records that were committed before")
        reason = _GONE if position.next_offset < (task.high_watermark or 0) else why_not_shipped(task)
        return self._end(task, position, committed, reason)

    def _end(
        self, task: ShipDeleted, position: Position, committed: Callable[[Committed], object], reason: str
    ) -> DeletedShipped:
        if task.log is not None and position.next_offset < task.log[0]:
            gap = PassGap(task.partition, -1, task.leadership, position, task.listing, task.log[0])
            self._uploader.ship_tail(gap)
            written = self._commits.end_deleted(task, position, task.log, reason)
            committed(written)
            position = written.position
        return done(task, "all offsets are in the archive, or recorded as a gap", position.next_offset)


def _ends_below(listing: Listing, base: int, offset: int, known: int) -> bool:
    """Return whether the first batch from an offset of a segment on ends below the high watermark `known`."""
    first = first_batch(listing, offset, known) if base < known else None
    return first is not None and first.last_offset < known


def _last_position(store: ObjectStore, keys: PartitionKeys, begin: int) -> Position:
    """Return where an archive ends, without a log to compare it with.

    Args:
        begin: where it begins if it does not exist yet.

    Raises:
        SegmentChanged: segments exist without a commit, so the end is unknown.
    """
    catalog = read_catalog(store, keys)
    commit = catalog.commit
    if isinstance(commit, Commit) and catalog.log_start is not None:
        return Position(
            keys,
            catalog.log_start,
            commit.next_offset,
            commit.highest_base,
            commit.epochs,
            catalog.commit_etag,
            commit,
            lineage=commit.lineage,
        )
    if commit is not None or catalog.segments:
        raise SegmentChanged(f"{keys.commit} is missing, or not an agent's, and segments exist")
    start = catalog.log_start
    if start is None:
        listed = catalog.listed_erased
        begun = LogStart.begun(begin, erased=None if listed is None else listed.number)
        start = write_log_start(store, keys, begun).content.offset
    return Position(keys, start, start, None, EpochHistory(), None, None)


def _parts(position: Position, local: EpochHistory, end: int) -> bool:
    """Return whether a run is not the past of a log with these epochs (KIP-279)."""
    try:
        return position.epochs.shared_end(position.next_offset, local, end) < position.next_offset
    except ValueError:
        return True
