"""Reads the position of a partition from the store: where the agent continues (protocol rules 4, 5, 8, 10 and 12).

Nothing is stored on the host. If an agent wrote the commit, the archive is compared with this broker's log: a commit
that is not the log's past goes back (`divergence`, `going_back`), under a lineage that `log.start` follows. Without a
commit, `log.start` is written first, so that the begin of an archive never moves; after a restore it is the end of the
restored records (`restored_log`). If segments exist without a commit,
or with one of a Java uploader, the run is walked (`takeover`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from ts_common.archive.catalog import (
    PartitionCatalog,
    StoredLogStart,
    lowest_base,
    read_commit,
    read_marks,
    read_snapshot,
)
from ts_common.archive.commit import Commit, ForeignCommit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gap_records import merged
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, DataLoss
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.batch_comparison import WHAT_TO_DO, check_tail
from ts_uploader.committing.commit_writer import CommitWriter
from ts_uploader.committing.divergence import is_legacy, living_epochs, past_end
from ts_uploader.committing.empty_archives import EmptyArchives
from ts_uploader.committing.gap_recording import GONE_AGAIN, fillable, record_gaps, still_missing
from ts_uploader.committing.going_back import (
    begins_below,
    check_later_segments,
    check_lineage,
    gone_back,
    must_go_back,
    rebuilt_end,
    settle_log_start,
)
from ts_uploader.committing.incarnation import IncarnationLog
from ts_uploader.committing.log_start import restore_by_copy, restore_log_start, write_log_start
from ts_uploader.committing.losses import Losses
from ts_uploader.committing.next_commit import MILLISECONDS, next_commit
from ts_uploader.committing.restored_log import RestoredLog, RestoredRecords
from ts_uploader.committing.takeover import Run, ends_alike, first_commit, still_true, walk_run
from ts_uploader.log_dirs.directory_scan import unchanged_listing
from ts_uploader.log_dirs.hanging import lowest_held
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.log_dirs.local_log import last_stable_offset, log_end
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.results import FencedLeaderEpoch, PositionRead
from ts_uploader.messages.tasks import PassGap, Position, ReadPosition

log = structlog.get_logger()

_FLEET_MOVES_MILLISECONDS = 7 * 24 * 3600 * MILLISECONDS  # time for moving a whole fleet over; see docs/upgrade.md


class PositionRecovery:
    """Reads positions, and writes a new leadership into the commit.

    Args:
        store_of: returns the store of a topic.
        empty_archives: the partitions without a commit.
        recorded: called with ranges `[from, to)` that were recorded as gaps meanwhile.
        lost: called with offsets `[from, to)` that an election lost, and whether their magic is 0 or 1.
        keep_tail: as of `CommitLog`.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        store_of: Callable[[str], ObjectStore],
        writer: CommitWriter,
        empty_archives: EmptyArchives,
        recorded: Callable[[tuple[tuple[int, int], ...]], None],
        lost: Callable[[TopicPartition, tuple[int, int], bool], None],
        keep_tail: Callable[[PassGap], None],
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._store_of = store_of
        self._writer = writer
        self._empty_archives = empty_archives
        self._recorded = recorded
        self._losses = Losses(lost)
        self._keep_tail = keep_tail
        self._incarnations = IncarnationLog(keys)
        self._restored = RestoredRecords()

    def read(self, task: ReadPosition) -> PositionRead:
        """Return where to continue; writes a leadership that the store does not have yet into the commit.

        Raises:
            FencedLeaderEpoch: the store has a later leadership.
            SegmentChanged: the directory differs from its listing, or the broker has not begun the leadership yet.
            TopicIdChanged: the log continues under a topic id that the archive does not have.
            PreconditionFailed: another agent commits at this moment: read again.
            CorruptData: an object in the store is damaged or contradicts another; nothing is written.
            DataLoss: the broker lost records within an epoch: no write could distinguish the lost and the new ones.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        listing = unchanged_listing(task.listing)
        check_leader_epoch(listing, task.leadership)
        topic = task.partition.topic
        store = self._store_of(topic)
        directory = self._incarnations.directory(store, topic, listing, task.leadership, over=task.over)
        keys = self._keys.partition(task.partition, directory)
        commit, etag = read_commit(store, keys)
        if isinstance(commit, Commit):
            self._empty_archives.over(task.partition)
            asked = self._go_on(store, keys, commit, etag, task, listing)
        else:
            asked = self._begin(store, read_snapshot(store, keys, (commit, etag)), task, listing)
        return replace(asked, foreign=isinstance(commit, ForeignCommit), beside_java=_was_java_here(commit))

    def keys_of(self, partition: TopicPartition, topic_id: str) -> PartitionKeys | None:
        """Return the keys of a partition in a topic id's incarnation; None if no agent opened that.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list of incarnations, and the store's.
        """
        store = self._store_of(partition.topic)
        directory = self._incarnations.known_directory(store, partition.topic, topic_id)
        return None if directory is None else self._keys.partition(partition, directory)

    def last_id_of(self, topic: str, topic_id: str) -> str:
        """Return the newest topic id of a topic id's incarnation, as `IncarnationLog.last_id_of`."""
        return self._incarnations.last_id_of(self._store_of(topic), topic, topic_id)

    def _go_on(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        commit: Commit,
        etag: str | None,
        task: ReadPosition,
        listing: Listing,
    ) -> PositionRead:
        """Return the position of an agent's commit, moved back to where it and this log agree (protocol rule 5)."""
        if self._is_of_another_life(store, commit, task):
            raise CorruptData(
                f"{keys.commit} is of topic id {commit.topic_id}, this leadership is of {task.leadership.topic_id}: "
                f"{self._keys.incarnations(task.partition.topic)} does not distinguish the two any more; restore it "
                "from a backup"
            )
        if commit.epoch > task.leadership.epoch:
            raise FencedLeaderEpoch(
                f"{keys.commit} is of leader epoch {commit.epoch}, this broker leads in {task.leadership.epoch}"
            )
        marks = read_marks(store, keys, commit)
        start = marks.log_start or restore_log_start(store, self._keys, keys, commit)
        check_lineage(start, keys, task.leadership)
        shown = start.content.shown_from(commit.lineage)
        position = Position(
            keys,
            shown,
            commit.next_offset,
            commit.highest_base if commit.has_run else None,
            _stored_epochs(store, keys, commit, shown),
            etag,
            commit,
            fillable(marks.gaps, commit.next_offset, _lowest(listing), shown),
            commit.lineage,
            start,
        )
        if position.gaps:
            catalog = read_snapshot(store, keys, (commit, etag))
            position = replace(position, gaps=still_missing(store, catalog, position.gaps, position.epochs))
        end = past_end(store, position, listing, task.leadership)
        restored = None if commit.has_run else self._restored.restored_log(store, keys, listing, task.made_at)
        if restored is not None:
            end = min(end, max(listing.bases[0], restored.held_end))
        is_short = end < commit.next_offset and commit.epoch == task.leadership.epoch
        if task.over and is_short and end == log_end(listing.directory, listing.bases[-1]):
            end = commit.next_offset  # that of the last leader's log (protocol rule 14)
        if end < commit.next_offset and commit.epoch == task.leadership.epoch:
            raise DataLoss(
                f"{listing.directory} ends at {end}; in epoch {task.leadership.epoch} this broker committed up to "
                f"{commit.next_offset}: {WHAT_TO_DO}"
            )
        if end < commit.next_offset or must_go_back(commit, start.content):
            return self._go_back(store, task, listing, position, end, start)
        check_tail(commit, listing)
        position = self._settle(store, position, start, listing)
        living = living_epochs(position, listing)
        is_lost, position = living != position.epochs, replace(position, epochs=living)
        if commit.epoch < task.leadership.epoch or (not task.over and self._writer.lacks_live(task.partition, commit)):
            if listing.bases[0] > commit.next_offset and commit.broker == self._broker:
                # If the list begins above, the new commit names no leadership below, and readers see none of it. This
                # broker led before too, and no other agent has written a commit since.
                generation, leadership = task.generation, task.leadership
                self._keep_tail(PassGap(task.partition, generation, leadership, position, listing, listing.bases[0]))
            # The leadership is written before any segment is shipped: late writes of a former one are then rejected.
            following = next_commit(position, (), task.leadership, self._broker)
            if is_lost:  # the last stable offset is of the lost leadership too: its log had other open transactions
                stable = last_stable_offset(listing.directory, commit.next_offset)
                following = replace(following, last_stable_offset=stable)
            position = self._writer.write(task.partition, position, following, listing)
        return PositionRead(task.partition, task.generation, task.leadership, position)

    def _is_of_another_life(self, store: ObjectStore, commit: Commit, task: ReadPosition) -> bool:
        """Return whether a commit's topic id is neither the leadership's nor another one of its incarnation."""
        ours, theirs = task.leadership.topic_id, commit.topic_id
        if ours is None or theirs is None or ours == theirs:
            return False
        return not self._incarnations.are_of_one_life(store, task.partition.topic, ours, theirs)

    def _begin(
        self, store: ObjectStore, catalog: PartitionCatalog, task: ReadPosition, listing: Listing
    ) -> PositionRead:
        """Return the position without an agent's commit; a commit that appears meanwhile rejects the next write."""
        keys, stood = catalog.keys, self._stored_log_start(store, catalog, task)
        is_empty = catalog.commit is None and not catalog.segments
        restored = self._restored.restored_log(store, keys, listing, task.made_at)
        if stood is None and restored is not None:
            restored.check_whole(listing)
        first = _first_log_start(catalog, task) if restored is None else restored.end
        listed = catalog.listed_erased
        begun = LogStart.begun(first, erased=None if listed is None else listed.number)
        start = stood or write_log_start(store, keys, begun)
        if is_empty:
            self._empty_archives.saw_empty(task.partition, task.leadership, start)
        if stood is not None and is_empty:
            return self._begin_empty(store, keys, stood, task, listing, restored)
        known = still_true(task.known, task.leadership, stood)
        task = replace(task, known=known)
        run = walk_run(store, catalog, start.content.offset, known)
        check_later_segments(run.latest_epoch, keys, task.leadership)
        self._tell_walk(catalog, task, known, run)
        gaps = fillable(merged([*catalog.gaps, *run.holes]), run.next_offset, _lowest(listing), start.content.offset)
        position = Position(
            keys,
            start.content.offset,
            run.next_offset,
            run.highest_base,
            run.epochs,
            catalog.commit_etag,
            catalog.commit,
            still_missing(store, catalog, gaps, run.epochs),
            start.content.lineage,
            start,
        )
        if run.highest_base is None and stood is None:
            return self._begin_tail(task, listing, position)  # no run yet
        if stood is not None:
            shipped = [segment.name.base for segment in catalog.segments]
            end = rebuilt_end(
                store, position, start.content, listing, task.leadership, shipped, restored, latest=task.latest
            )
        else:
            end = past_end(store, position, listing, task.leadership)
        # Before any commit that hides these holes: a later agent finds them by their records alone. They are filled
        # as any gap is, in this leadership or a later one.
        below = [(low, min(high, end)) for low, high in run.holes if low < end]
        self._recorded(record_gaps(store, keys, below, GONE_AGAIN, self._broker))
        is_rebuilt = stood is not None and not self._empty_archives.never_had_a_commit(
            task.partition, task.leadership, catalog
        )
        if is_rebuilt or end < run.next_offset:
            return self._go_back(store, task, listing, position, end, start, run.ends)
        return self._write_first(catalog, task, listing, position)

    def _stored_log_start(
        self, store: ObjectStore, catalog: PartitionCatalog, task: ReadPosition
    ) -> StoredLogStart | None:
        """Return `log.start`, restored by its copy if it was lost with the commit; None without both."""
        stood = catalog.stored_log_start
        if stood is None and catalog.commit is None and catalog.segments:
            stood = restore_by_copy(store, self._keys, catalog.keys)
        if stood is not None:
            check_lineage(stood, catalog.keys, task.leadership)
        return stood

    def _write_first(
        self, catalog: PartitionCatalog, task: ReadPosition, listing: Listing, position: Position
    ) -> PositionRead:
        """Write the commit of a run that was walked, unless the run has no segment."""
        # Not while there is a hole below the segment of a foreign commit: readers would see less than before.
        named = catalog.commit.highest_base if isinstance(catalog.commit, ForeignCommit) else 0
        if position.highest_base is not None:
            living = replace(position, epochs=living_epochs(position, listing))
            commit = next_commit(living, (), task.leadership, self._broker)
            if position.highest_base >= named:
                position = self._writer.write(
                    task.partition, position, first_commit(commit, task.known, listing), listing
                )
        return PositionRead(task.partition, task.generation, task.leadership, position)

    def _begin_empty(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        start: StoredLogStart,
        task: ReadPosition,
        listing: Listing,
        restored: RestoredLog | None,
    ) -> PositionRead:
        """Return the position if only `log.start` exists: an agent was killed before it shipped a segment."""
        offset, lineage = start.content.offset, start.content.lineage
        position = Position(keys, offset, offset, None, EpochHistory(), None, None, (), lineage, start)
        below = begins_below(start.content, listing, restored, latest=task.latest)
        if below is None:
            return self._begin_tail(task, listing, position)
        return self._go_back(store, task, listing, position, below, start)

    def _begin_tail(self, task: ReadPosition, listing: Listing, position: Position) -> PositionRead:
        """Return the position without a run; a topic with a live tail has its first commit before (tail rule 1)."""
        if not task.over and position.commit is None and self._writer.has_tail(task.partition):
            first = next_commit(position, (), task.leadership, self._broker)
            position = self._writer.write(task.partition, position, first, listing)
        return PositionRead(task.partition, task.generation, task.leadership, position)

    def _go_back(
        self,
        store: ObjectStore,
        task: ReadPosition,
        listing: Listing,
        position: Position,
        end: int,
        start: StoredLogStart,
        ends: Sequence[int] = (),
    ) -> PositionRead:
        """Move the commit back to `end` under a new lineage, then `log.start`; `ends` as in `gone_back`."""
        bases = [segment.name.base for segment in read_snapshot(store, position.keys).segments]
        commit = gone_back(position, end, listing, task.leadership, self._broker, bases, start.content, ends)
        known = task.known
        if not isinstance(position.commit, Commit) and known is not None and ends_alike(known, commit):
            commit = replace(commit, last_stable_offset=known.last_stable_offset, tail=known.tail)
        had_run = not isinstance(position.commit, Commit) or position.commit.has_run
        is_loss = end < position.next_offset and position.commit is not None and had_run
        lost = (end, position.next_offset) if is_loss else None
        legacy = lost is not None and is_legacy(position, end)
        position = replace(position, gaps=tuple(gap for gap in position.gaps if gap[0] < end))
        epoch = task.leadership.epoch
        if lost is not None:
            with self._losses.of(task.partition, epoch, lost, legacy=legacy):
                position = self._writer.write(task.partition, position, commit, listing)
        else:
            position = self._writer.write(task.partition, position, commit, listing)
            log.warning("lineage_started", partition=str(task.partition), next_offset=end, epoch=epoch)
        position = self._settle(store, position, start, listing)
        return PositionRead(task.partition, task.generation, task.leadership, position, lost)

    def _settle(self, store: ObjectStore, position: Position, start: StoredLogStart, listing: Listing) -> Position:
        """Return the position with `log.start` of the commit's lineage: no commit moves on before that."""
        if position.lineage is None or start.content.lineage == position.lineage:
            return position
        begin = position.lineage.begin
        held = lowest_held(listing, position.epochs, position.next_offset, begin)
        settled = settle_log_start(store, position.keys, start, position.lineage, held)
        return replace(position, log_start=settled.offset)

    def _tell_walk(self, catalog: PartitionCatalog, task: ReadPosition, known: Commit | None, run: Run) -> None:
        if known is not None and catalog.commit is None:
            log.error("commit_missing", message="check the lifecycle rules of the bucket", key=catalog.keys.commit)
        if catalog.segments:
            log.warning(
                "run_walked",
                partition=str(task.partition),
                commit="a Java uploader's" if catalog.commit else "none",
                next_offset=run.next_offset,
                segments=len(catalog.segments),
            )
        for start, end in run.holes:
            log.error("segment_overwritten", partition=str(task.partition), start=start, end=end)


def _stored_epochs(store: ObjectStore, keys: PartitionKeys, commit: Commit, shown: int) -> EpochHistory:
    """Return a commit's epochs, without those below the lowest stored segment.

    Retention moves `log.start` up first. As long as the segments below are stored, an undo or a hold can show them
    again. Without their epochs, readers would return records that an election lost.

    Args:
        shown: first offset that readers return.
    """
    if not commit.epochs.pairs or commit.epochs.pairs[0][1] >= shown:
        return commit.epochs
    lowest = lowest_base(store, keys)
    start = shown if lowest is None else min(shown, lowest)
    return commit.epochs if start >= commit.next_offset else commit.epochs.from_offset(start)


def _first_log_start(catalog: PartitionCatalog, task: ReadPosition) -> int:
    """Return where an archive without `log.start` begins.

    If segments exist already (a Java uploader's), it began with the lowest of them. If a commit names a segment that no
    longer exists, the archive begins there, so that the loss is reported.
    """
    if catalog.segments:
        return catalog.segments[0].name.base
    named = [catalog.commit.highest_base] if isinstance(catalog.commit, ForeignCommit) else []
    return min([task.first_base, *named])


def _was_java_here(commit: Commit | ForeignCommit | None) -> bool:
    """Return whether a Java uploader's commit was replaced lately: its fleet may still be in the move."""
    if not isinstance(commit, Commit) or commit.java is None:
        return False
    return time.time() * MILLISECONDS - commit.java < _FLEET_MOVES_MILLISECONDS


def _lowest(listing: Listing) -> int:
    """Return the lowest offset that a log may have; `.deleted` files may be part of it."""
    return min((*listing.bases[:1], *listing.deleted[:1]))
