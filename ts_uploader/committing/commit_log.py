"""How far the archive came: read from the store, moved along the run. The only writer of `offset.wm`.

Nothing is kept on disk; progress is what the store says (protocol rules 4, 5, 7, 8, 10 and 12):

- `ask` finds where to go on. With no commit, `log.start` is written first, so that an archive begins where it
  first meant to; a commit without a second line, or segments without a commit, are walked
  (`ts_uploader.committing.takeover`); a commit that is not this broker's past any more is taken back to where it is
  (`ts_uploader.committing.divergence`), under a lineage of its own, which `log.start` follows
  (`ts_uploader.committing.going_back`).
- `write` moves the commit along the run; `pass_gap` beyond what exists nowhere any more; `fill_gap` says of a gap that
  was filled since whose leaderships its records are of.

Every write is conditional on the commit that was read. Where the condition fails, or no answer comes, the store is
read and the facts decide: own nonce, it was written; a higher epoch, this leadership is over; else look again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart, read_commit, read_marks, read_snapshot
from ts_common.archive.commit import Commit, ForeignCommit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gap_records import merged
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import COMMIT_BYTES, checked
from ts_common.errors import (
    CorruptData,
    DataLoss,
    PreconditionFailed,
    SegmentChanged,
    StaleStateError,
)
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.committing.beginnings import Beginnings
from ts_uploader.committing.divergence import WHAT_TO_DO, check_tail, is_legacy, living_epochs, past_end
from ts_uploader.committing.gap_recording import (
    ENDED,
    GONE_AGAIN,
    describe_loss,
    fillable,
    record_gaps,
    still_missing,
    unanswered,
)
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
from ts_uploader.committing.log_start import restore_log_start, write_log_start
from ts_uploader.committing.losses import Losses
from ts_uploader.committing.next_commit import MILLISECONDS, check_own, line_of_log, next_commit
from ts_uploader.committing.takeover import Run, ends_alike, first_commit, still_true, walk_run
from ts_uploader.events import (
    Committed,
    FillGap,
    Listing,
    PassGap,
    Position,
    PositionRead,
    ReadPosition,
    Task,
    WriteCommit,
)
from ts_uploader.log_dirs.directory_scan import whole_listing
from ts_uploader.log_dirs.hanging import lowest_held
from ts_uploader.log_dirs.leader_epoch import FencedLeaderEpoch, check_leader_epoch
from ts_uploader.log_dirs.local_log import last_stable_offset, local_epochs

log = structlog.get_logger()

_FLEET_MOVES_MILLISECONDS = 7 * 24 * 3600 * MILLISECONDS  # how long moving a fleet over may take; see docs/upgrade.md


class CommitLog:
    """Reads and writes the commits of one cluster.

    Args:
        keys: of the cluster.
        broker: id of the broker beside which the agent runs.
        store_of: the store that holds a topic's objects.
        recorded: told of ranges `[from, to)` that were recorded as gaps by the way, while the store was asked.
        lost: told of offsets `[from, to)` that an election lost, and whether their magic is 0 or 1, once the commit
            went back, or may have: what fails after that is tried again, and finds a commit that lost nothing.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        store_of: Callable[[str], ObjectStore],
        recorded: Callable[[tuple[tuple[int, int], ...]], None] = lambda _: None,
        lost: Callable[[TopicPartition, tuple[int, int], bool], None] = lambda *_: None,
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._store_of = store_of
        self._recorded = recorded
        self._losses = Losses(lost)
        self._beginnings = Beginnings()
        self._incarnations = IncarnationLog(keys)

    def ask(self, task: ReadPosition) -> PositionRead:
        """Where to go on; a leadership that the store does not know yet is made known by the way.

        Raises:
            FencedLeaderEpoch: the store is ahead of this leadership.
            SegmentChanged: the directory is not the one that was listed any more, or the broker has not begun the
                leadership yet.
            TopicIdChanged: the log goes on under a topic id that the archive does not know.
            PreconditionFailed: another agent commits at this moment: ask again.
            CorruptData: something in the store is not what it should be; nothing is written.
            DataLoss: the broker lost records within an epoch: nothing that could be written would tell them apart.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        listing = _look_again(task)
        check_leader_epoch(listing, task.leadership)
        topic = task.partition.topic
        store = self._store_of(topic)
        keys = self._keys.partition(
            task.partition, self._incarnations.directory(store, topic, listing, task.leadership)
        )
        commit, etag = read_commit(store, keys)
        if isinstance(commit, Commit):
            self._beginnings.over(task.partition)
            asked = self._go_on(store, keys, commit, etag, task, listing)
        else:
            asked = self._begin(store, read_snapshot(store, keys, (commit, etag)), task, listing)
        return replace(asked, foreign=isinstance(commit, ForeignCommit), beside_java=_was_java_here(commit))

    def write(self, task: WriteCommit) -> Committed:
        """Move the commit to the end of the run.

        Raises:
            FencedLeaderEpoch: a commit of a later leader epoch stands there; this one wrote nothing.
            PreconditionFailed: another commit stands there: ask again.
            CorruptData: a segment cannot continue what is committed.
            OutcomeUnknown: no answer, and the store did not say afterwards either.
        """
        commit = next_commit(task.position, task.run, task.leadership, self._broker)
        return _committed(task, self._put(task.partition, task.position, commit))

    def pass_gap(self, task: PassGap) -> Committed:
        """Record what exists nowhere from the next offset on, and move the commit beyond it.

        What stands in the store by now (shipped in an earlier leader epoch, and never committed) is no gap.

        Raises:
            SegmentChanged: the directory does not show the gap any more, or the broker's leadership is over.
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = _look_again(task)
        check_leader_epoch(listing, task.leadership)
        position, end = task.position, task.end
        if not position.next_offset < end <= listing.bases[0]:
            raise SegmentChanged(f"{listing.directory} begins with {listing.bases[0]}, which shows no gap up to {end}")
        store = self._store_of(task.partition.topic)
        catalog = read_snapshot(store, position.keys)
        if catalog.commit_etag != position.etag:
            raise PreconditionFailed(f"{position.keys.commit} was written by somebody else")
        loss = describe_loss(store, catalog, position, listing, end)
        if loss.bases:
            log.warning(
                "stored_segments_unverified",
                message="this broker's log begins above these segments; an unclean election may have removed them",
                partition=str(task.partition),
                segments=loss.bases,
            )
        record_gaps(store, position.keys, loss.gaps, loss.reason, self._broker)
        commit = replace(
            next_commit(position, (), task.leadership, self._broker),
            next_offset=end,
            epochs=loss.epochs,
            last_stable_offset=last_stable_offset(listing.directory, end),
            tail=None,
        )
        commit = replace(commit, highest_base=max(commit.highest_base, *loss.bases, 0))
        position = self._put(task.partition, position, commit)
        return replace(_committed(task, position), gaps=loss.gaps, reason=loss.reason, by_request=loss.by_request)

    def fill_gap(self, task: FillGap) -> Committed:
        """Correct the epochs of a gap whose offsets stand in the store by now; the next offset stays.

        Raises:
            SegmentChanged: the directory is not the one that was listed any more, or the broker's leadership is over.
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = _look_again(task)
        check_leader_epoch(listing, task.leadership)
        position = replace(task.position, gaps=tuple(gap for gap in task.position.gaps if gap != task.gap))
        start, end = max(task.gap[0], task.run[0].base), min(task.gap[1], task.run[-1].end, position.next_offset)
        line = line_of_log(local_epochs(listing.directory), task.run)
        begin, line = _begun_in_gap(position.epochs, line, task.gap[0], start)
        # Where the list begins above the gap it is silent up to there, and the gap's last epoch would seem to go on.
        until = end
        if position.epochs.pairs and position.epochs.at(end) is None:
            until = position.epochs.pairs[0][1]
        epochs = position.epochs.continued(line, begin).below(until).continued(position.epochs, until)
        # As readers will see it: by all of a segment, also where it reaches beyond the gap.
        wrong = [
            done.base for done in task.run if epochs.live_end(done.epochs, done.base, done.end) < min(end, done.end)
        ]
        if wrong:
            log.error("gap_epochs_conflict", partition=str(task.partition), segments=wrong)
        elif epochs != position.epochs:
            # Above the gap the list was silent, and whatever copy stands there was shown; now it names an epoch.
            store, keys = self._store_of(task.partition.topic), position.keys
            ended = unanswered(store, read_snapshot(store, keys), epochs, end, until) if until > end else ()
            self._recorded(record_gaps(store, keys, ended, ENDED, self._broker))
            position = replace(position, gaps=(*position.gaps, *ended))
            commit = replace(next_commit(position, (), task.leadership, self._broker), epochs=epochs)
            position = self._put(task.partition, position, commit)
        if not wrong:
            log.info("gap_filled", partition=str(task.partition), start=start, end=end)
        return _committed(task, position)

    def _go_on(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        commit: Commit,
        etag: str | None,
        task: ReadPosition,
        listing: Listing,
    ) -> PositionRead:
        """The position of a commit of ours, taken back to where it and this broker's log agree (protocol rule 5)."""
        if self._is_of_another_life(store, commit, task):
            raise CorruptData(
                f"{keys.commit} is of topic id {commit.topic_id}, this leadership is of {task.leadership.topic_id}: "
                f"{self._keys.incarnations(task.partition.topic)} does not tell them apart any more; put it back from "
                "a backup"
            )
        if commit.epoch > task.leadership.epoch:
            raise FencedLeaderEpoch(
                f"{keys.commit} is of leader epoch {commit.epoch}, this broker leads in {task.leadership.epoch}"
            )
        marks = read_marks(store, keys, commit)
        start = marks.log_start or restore_log_start(store, keys, commit, listing)
        check_lineage(start, keys, task.leadership)
        shown = start.content.shown_from(commit.lineage)
        position = Position(
            keys,
            shown,
            commit.next_offset,
            commit.highest_base,
            commit.epochs if shown >= commit.next_offset else commit.epochs.from_offset(shown),
            etag,
            commit,
            fillable(marks.gaps, commit.next_offset, _lowest(listing), shown),
            commit.lineage,
        )
        if position.gaps:
            catalog = read_snapshot(store, keys, (commit, etag))
            position = replace(position, gaps=still_missing(store, catalog, position.gaps, position.epochs))
        end = past_end(store, position, listing, task.leadership)
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
        if commit.epoch < task.leadership.epoch:
            # The leadership is made known before anything is shipped: what a former one has under way is refused then.
            following = next_commit(position, (), task.leadership, self._broker)
            if is_lost:  # the last stable offset was that leadership's too, in whose log other transactions were open
                stable = last_stable_offset(listing.directory, commit.next_offset)
                following = replace(following, last_stable_offset=stable)
            position = self._put(task.partition, position, following)
        return PositionRead(task.partition, task.generation, task.leadership, position)

    def _is_of_another_life(self, store: ObjectStore, commit: Commit, task: ReadPosition) -> bool:
        """Whether a commit's topic id is not the leadership's, nor another one of the same incarnation."""
        ours, theirs = task.leadership.topic_id, commit.topic_id
        if ours is None or theirs is None or ours == theirs:
            return False
        return not self._incarnations.are_of_one_life(store, task.partition.topic, ours, theirs)

    def _begin(
        self, store: ObjectStore, catalog: PartitionCatalog, task: ReadPosition, listing: Listing
    ) -> PositionRead:
        """The position where no commit of ours says it; one that comes meanwhile refuses the write that follows."""
        keys, stood = catalog.keys, catalog.stored_log_start
        if stood is not None:
            check_lineage(stood, keys, task.leadership)
        is_empty = catalog.commit is None and not catalog.segments
        start = stood or write_log_start(store, keys, LogStart(_first_log_start(catalog, task)))
        if is_empty:
            self._beginnings.saw_empty(task.partition, task.leadership, start)
        if stood is not None and is_empty:
            return self._begin_empty(store, keys, stood, task, listing)
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
        )
        if run.highest_base is None and stood is None:
            return PositionRead(task.partition, task.generation, task.leadership, position)  # there is no run yet
        if stood is not None:
            shipped = [segment.name.base for segment in catalog.segments]
            end = rebuilt_end(store, position, start.content, listing, task.leadership, shipped, latest=task.latest)
        else:
            end = past_end(store, position, listing, task.leadership)
        # Before any commit that hides them: whoever asks after it finds them by their records alone. They are filled
        # as any gap is, in this leadership or a later one.
        below = [(low, min(high, end)) for low, high in run.holes if low < end]
        self._recorded(record_gaps(store, keys, below, GONE_AGAIN, self._broker))
        is_rebuilt = stood is not None and not self._beginnings.never_had_a_commit(
            task.partition, task.leadership, catalog
        )
        if is_rebuilt or end < run.next_offset:
            return self._go_back(store, task, listing, position, end, start, run.ends)
        if run.highest_base is None:
            return PositionRead(task.partition, task.generation, task.leadership, position)
        commit = next_commit(
            replace(position, epochs=living_epochs(position, listing)), (), task.leadership, self._broker
        )
        # Not while there is a hole below what a foreign one names: readers would see less than they do.
        named = catalog.commit.highest_base if isinstance(catalog.commit, ForeignCommit) else 0
        if (run.highest_base or 0) >= named:
            position = self._put(task.partition, position, first_commit(commit, known, listing))
        return PositionRead(task.partition, task.generation, task.leadership, position)

    def _begin_empty(
        self, store: ObjectStore, keys: PartitionKeys, start: StoredLogStart, task: ReadPosition, listing: Listing
    ) -> PositionRead:
        """The position where `log.start` is all that stands: an agent was killed before it shipped anything."""
        offset, lineage = start.content.offset, start.content.lineage
        position = Position(keys, offset, offset, None, EpochHistory(), None, None, (), lineage)
        below = begins_below(start.content, listing, latest=task.latest)
        if below is None:
            return PositionRead(task.partition, task.generation, task.leadership, position)
        return self._go_back(store, task, listing, position, below, start)

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
        """Take the commit back to `end` under a new lineage, then `log.start`; `ends` as in `gone_back`."""
        bases = [segment.name.base for segment in read_snapshot(store, position.keys).segments]
        commit = gone_back(position, end, listing, task.leadership, self._broker, bases, start.content, ends)
        known = task.known
        if not isinstance(position.commit, Commit) and known is not None and ends_alike(known, commit):
            commit = replace(commit, last_stable_offset=known.last_stable_offset, tail=known.tail)
        lost = (end, position.next_offset) if end < position.next_offset and position.commit is not None else None
        legacy = lost is not None and is_legacy(position, end)
        position = replace(position, gaps=tuple(gap for gap in position.gaps if gap[0] < end))
        epoch = task.leadership.epoch
        if lost is not None:
            with self._losses.of(task.partition, epoch, lost, legacy=legacy):
                position = self._put(task.partition, position, commit)
        else:
            position = self._put(task.partition, position, commit)
            log.warning("lineage_started", partition=str(task.partition), next_offset=end, epoch=epoch)
        position = self._settle(store, position, start, listing)
        return PositionRead(task.partition, task.generation, task.leadership, position, lost)

    def _settle(self, store: ObjectStore, position: Position, start: StoredLogStart, listing: Listing) -> Position:
        """The position, with `log.start` of the commit's lineage: no commit moves on before that."""
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

    def _put(self, partition: TopicPartition, position: Position, commit: Commit) -> Position:
        """Write a commit over the one that `position` was read from; the position that it describes."""
        check_own(partition, commit.epochs.pairs, commit.epoch)
        self._beginnings.over(partition)
        store = self._store_of(partition.topic)
        condition = IfAbsent() if position.etag is None else IfMatch(position.etag)
        data = checked(commit.encode(), position.keys.commit, COMMIT_BYTES)
        try:
            etag = store.put(position.keys.commit, data, condition=condition).etag
        except StaleStateError as refused:
            etag = self._look(store, position.keys, commit, refused)
        return replace(
            position,
            next_offset=commit.next_offset,
            highest_base=commit.highest_base,
            epochs=commit.epochs,
            etag=etag,
            commit=commit,
            lineage=commit.lineage,
        )

    def _look(self, store: ObjectStore, keys: PartitionKeys, mine: Commit, refused: StaleStateError) -> str:
        """What became of a commit that was not acknowledged: the etag where it stands, or an error."""
        theirs, etag = read_commit(store, keys)
        if isinstance(theirs, Commit):
            if theirs.nonce == mine.nonce and etag is not None:
                return etag
            if theirs.epoch > mine.epoch:
                raise FencedLeaderEpoch(
                    f"{keys.commit} is of leader epoch {theirs.epoch}, this one would be of {mine.epoch}"
                )
        raise PreconditionFailed(f"{keys.commit} was written by somebody else, or may still be: {refused}") from refused


def _first_log_start(catalog: PartitionCatalog, task: ReadPosition) -> int:
    """Where an archive without `log.start` begins.

    Where segments stand already (a Java uploader's), it began with the lowest of them; where a commit says that one
    stood, and it is gone, the loss is to be told.
    """
    if catalog.segments:
        return catalog.segments[0].name.base
    named = [catalog.commit.highest_base] if isinstance(catalog.commit, ForeignCommit) else []
    return min([task.first_base, *named])


def _was_java_here(commit: Commit | ForeignCommit | None) -> bool:
    """Whether a Java uploader's commit was taken over lately: its fleet may still be on the move."""
    if not isinstance(commit, Commit) or commit.java is None:
        return False
    return time.time() * MILLISECONDS - commit.java < _FLEET_MOVES_MILLISECONDS


def _look_again(task: ReadPosition | PassGap | FillGap) -> Listing:
    """The directory as it is now: a task can have waited for long, and what is written now is written for ever."""
    now = whole_listing(task.listing)
    if now.bases[:1] != task.listing.bases[:1]:
        raise SegmentChanged(f"{now.directory} changed since it was listed")
    return now


def _lowest(listing: Listing) -> int:
    """The lowest offset that may be a log's; what bears `.deleted` may be part of it."""
    return min((*listing.bases[:1], *listing.deleted[:1]))


def _begun_in_gap(epochs: EpochHistory, line: EpochHistory, gap: int, start: int) -> tuple[int, EpochHistory]:
    """Where what fills a gap begins for a list, and its line from there on.

    Epochs never fall. What a list names in a gap above the epoch of the first record that fills it lives there no more.

    Args:
        epochs: the list.
        line: of what fills the gap.
        gap: where the gap begins.
        start: the first offset that is filled.
    """
    lowest = line.from_offset(start).pairs[:1]
    higher = [first for epoch, first in epochs.below(start) if first >= gap and lowest and epoch > lowest[0][0]]
    if not higher:
        return start, line
    return higher[0], EpochHistory(((lowest[0][0], higher[0]), *(pair for pair in line if pair[1] > lowest[0][1])))


def _committed(task: Task, position: Position) -> Committed:
    return Committed(task.partition, task.generation, task.leadership, position)
