"""How far the archive came: read from the store, moved along the run. The only writer of `offset.wm`.

Nothing is kept on disk; progress is what the store says (protocol rules 4, 5, 7, 8, 10 and 12):

- `ask` finds where to go on. With no commit, `log.start` is written first, so that an archive begins where it
  first meant to; a commit without a second line, or segments without a commit, are walked (`ts_uploader.takeover`);
  a commit that is not this broker's past any more is taken back to where it is (`ts_uploader.divergence`).
- `write` moves the commit along the run; `pass_gap` beyond what exists nowhere any more; `fill_gap` says of a gap that
  was filled since whose reigns its records are of.

Every write is conditional on the commit that was read. Where the condition fails, or no answer comes, the store is
read and the facts decide: own nonce, it was written; a higher epoch, this reign is over; else look again.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from ts_common.catalog import read_catalog, read_commit, read_marks
from ts_common.commit import Commit, ForeignCommit
from ts_common.epochs import NO_EPOCH, EpochLine
from ts_common.errors import (
    CorruptData,
    DataLoss,
    LookFirstError,
    PreconditionFailed,
    SegmentChanged,
)
from ts_common.gaps import merged
from ts_common.model import TopicPartition
from ts_common.object_keys import ClusterKeys, PartitionKeys
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.divergence import WHAT_TO_DO, check_tail, living_epochs, past_end, rewound
from ts_uploader.events import (
    Asked,
    AskStore,
    Committed,
    FillGap,
    Listing,
    PassGap,
    Position,
    Reign,
    Shipped,
    Task,
    WriteCommit,
)
from ts_uploader.gaps import GONE_AGAIN, describe_loss, fillable, record_gaps, still_missing
from ts_uploader.incarnation import IncarnationLog
from ts_uploader.local_log import last_stable_offset, local_epochs
from ts_uploader.log_start import restore_log_start, write_log_start
from ts_uploader.reign import ReignOver, check_reign
from ts_uploader.takeover import first_commit, walk_run
from ts_uploader.watch.scan import whole_listing

log = structlog.get_logger()

_MILLISECONDS = 1000
_FLEET_MOVES_MILLISECONDS = 7 * 24 * 3600 * _MILLISECONDS  # how long moving a fleet over may take; see docs/upgrade.md


class CommitLog:
    """Reads and writes the commits of one cluster.

    Args:
        keys: of the cluster.
        broker: id of the broker beside which the agent runs.
        store_of: the store that holds a topic's objects.
        recorded: told of ranges `[from, to)` that were recorded as gaps by the way, while the store was asked.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        store_of: Callable[[str], ObjectStore],
        recorded: Callable[[tuple[tuple[int, int], ...]], None] = lambda _: None,
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._store_of = store_of
        self._recorded = recorded
        self._incarnations = IncarnationLog(keys)

    def ask(self, task: AskStore) -> Asked:
        """Where to go on; a reign that the store does not know yet is made known by the way.

        Raises:
            ReignOver: the store is ahead of this reign.
            SegmentChanged: the directory is not the one that was listed any more, or the broker has not begun the
                reign yet.
            PreconditionFailed: another agent commits at this moment: ask again.
            CorruptData: something in the store is not what it should be; nothing is written.
            DataLoss: the broker lost records within an epoch: nothing that could be written would tell them apart.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        listing = _look_again(task)
        check_reign(listing, task.reign)
        topic = task.partition.topic
        store = self._store_of(topic)
        keys = self._keys.partition(task.partition, self._incarnations.directory(store, topic, listing, task.reign))
        commit, etag = read_commit(store, keys)
        holes: tuple[tuple[int, int], ...] = ()
        if not isinstance(commit, Commit):
            position, holes = self._walk(store, keys, (commit, etag), task, listing)
        elif None not in (commit.topic_id, task.reign.topic_id) and commit.topic_id != task.reign.topic_id:
            raise CorruptData(
                f"{keys.commit} is of topic id {commit.topic_id}, this reign of {task.reign.topic_id}: "
                f"{self._keys.incarnations(topic)} does not tell them apart any more; put it back from a backup"
            )
        elif commit.epoch > task.reign.epoch:
            raise ReignOver(
                f"{keys.commit} is of leader epoch {commit.epoch}, this broker's reign of {task.reign.epoch}"
            )
        else:
            marks = read_marks(store, keys)
            if not marks.has_log_start:
                restore_log_start(store, keys, commit)
            gaps = fillable(marks.gaps, commit.next_offset, listing)
            if gaps:
                gaps = still_missing(store, read_catalog(store, keys, (commit, etag)), gaps, commit.epochs)
            start = commit.epochs.pairs[0][1] if commit.epochs.pairs else commit.next_offset
            position = Position(keys, start, commit.next_offset, commit.highest_base, commit.epochs, etag, commit, gaps)
        asked = self._follow(store, task, listing, position, holes)
        return replace(asked, foreign=isinstance(commit, ForeignCommit), beside_java=_was_java_here(commit))

    def write(self, task: WriteCommit) -> Committed:
        """Move the commit to the end of the run.

        Raises:
            ReignOver: a commit of a later reign stands there; this one wrote nothing.
            PreconditionFailed: another commit stands there: ask again.
            CorruptData: a segment cannot continue what is committed.
            OutcomeUnknown: no answer, and the store did not say afterwards either.
        """
        commit = next_commit(task.position, task.run, task.reign, self._broker)
        return _committed(task, self._put(task.partition, task.position, commit))

    def pass_gap(self, task: PassGap) -> Committed:
        """Record what exists nowhere from the next offset on, and move the commit beyond it.

        What stands in the store by now (shipped in an earlier reign, and never committed) is no gap.

        Raises:
            SegmentChanged: the directory does not show the gap any more, or the broker's reign is over.
            ReignOver, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = _look_again(task)
        check_reign(listing, task.reign)
        position, end = task.position, task.end
        if not position.next_offset < end <= listing.bases[0]:
            raise SegmentChanged(f"{listing.directory} begins with {listing.bases[0]}, which shows no gap up to {end}")
        store = self._store_of(task.partition.topic)
        catalog = read_catalog(store, position.keys)
        if catalog.commit_etag != position.etag:
            raise PreconditionFailed(f"{position.keys.commit} was written by somebody else")
        loss = describe_loss(store, catalog, position, listing, end)
        if loss.bases:
            log.warning(
                "taken from the store, and this broker's log cannot vouch for it any more",
                partition=str(task.partition),
                segments=loss.bases,
            )
        record_gaps(store, position.keys, loss.gaps, loss.reason, self._broker)
        commit = replace(
            next_commit(position, (), task.reign, self._broker),
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
            SegmentChanged: the directory is not the one that was listed any more, or the broker's reign is over.
            ReignOver, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = _look_again(task)
        check_reign(listing, task.reign)
        position = replace(task.position, gaps=tuple(gap for gap in task.position.gaps if gap != task.gap))
        start, end = max(task.gap[0], task.run[0].base), min(task.gap[1], task.run[-1].end, position.next_offset)
        local = local_epochs(listing.directory) or _line_of(task.run[0].epochs)
        epochs = position.epochs.continued(local, start).below(end).continued(position.epochs, end)
        # As readers will see it: by all of a segment, also where it reaches beyond the gap.
        wrong = [
            done.base for done in task.run if epochs.live_end(done.epochs, done.base, done.end) < min(end, done.end)
        ]
        if wrong:
            log.error("a gap was filled with epochs that do not fit", partition=str(task.partition), segments=wrong)
        elif epochs != position.epochs:
            commit = replace(next_commit(position, (), task.reign, self._broker), epochs=epochs)
            position = self._put(task.partition, position, commit)
        if not wrong:
            log.info("gap filled", partition=str(task.partition), start=start, end=end)
        return _committed(task, position)

    def _walk(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        commit: tuple[Commit | ForeignCommit | None, str | None],
        task: AskStore,
        listing: Listing,
    ) -> tuple[Position, tuple[tuple[int, int], ...]]:
        """The position where no commit of ours says it; one that comes meanwhile refuses the write that follows.

        Beside it, the holes in what our last commit held.
        """
        catalog = read_catalog(store, keys, commit)
        known = task.known if task.known is not None and task.known.topic_id == task.reign.topic_id else None
        log_start = catalog.log_start
        if log_start is None:
            # Where segments stand already (a Java uploader's), the archive began with the lowest of them; where it
            # says that one stood, and it is gone, the loss is to be told.
            stood = [task.first_base] if catalog.commit is None else [task.first_base, catalog.commit.highest_base]
            log_start = catalog.segments[0].name.base if catalog.segments else min(stood)
            log_start = write_log_start(store, keys, log_start)
        run = walk_run(store, catalog, log_start, known)
        if known is not None and catalog.commit is None:
            log.error("the commit is gone; does a lifecycle rule of the bucket remove it?", key=keys.commit)
        if catalog.segments:
            log.warning(
                "run walked",
                partition=str(task.partition),
                commit="a Java uploader's" if catalog.commit else "none",
                next_offset=run.next_offset,
                segments=len(catalog.segments),
            )
        for start, end in run.holes:
            log.error("a committed segment was written over", partition=str(task.partition), start=start, end=end)
        gaps = fillable(merged([*catalog.gaps, *run.holes]), run.next_offset, listing)
        gaps = still_missing(store, catalog, gaps, run.epochs)
        position = Position(
            keys, log_start, run.next_offset, run.highest_base, run.epochs, catalog.commit_etag, catalog.commit, gaps
        )
        return position, run.holes

    def _follow(
        self,
        store: ObjectStore,
        task: AskStore,
        listing: Listing,
        position: Position,
        holes: tuple[tuple[int, int], ...],
    ) -> Asked:
        """The position, taken back to where the run and this broker's log are still one (protocol rule 5)."""
        next_offset = position.next_offset
        if position.highest_base is None:
            return Asked(task.partition, task.generation, task.reign, position)  # there is no run yet
        end = past_end(store, position, listing, task.reign)
        # Before any commit that hides them: whoever asks after it finds them by their records alone. They are filled
        # as any gap is, in this reign or a later one.
        below = [(low, min(high, end)) for low, high in holes if low < end]
        self._recorded(record_gaps(store, position.keys, below, GONE_AGAIN, self._broker))
        if end >= next_offset:
            if isinstance(position.commit, Commit):
                check_tail(position.commit, listing)
            position = replace(position, epochs=living_epochs(position, listing))
            commit = next_commit(position, (), task.reign, self._broker)
            if isinstance(position.commit, ForeignCommit):
                # Not while there is a hole below what it names: readers would see less than they do.
                if (position.highest_base or 0) >= position.commit.highest_base:
                    position = self._put(task.partition, position, first_commit(commit, task.known, listing))
            elif position.commit is None:  # shipped in an earlier life, and never committed: readers wait for it
                position = self._put(task.partition, position, first_commit(commit, None, listing))
            elif position.commit.epoch < task.reign.epoch:
                # The reign is made known before anything is shipped: what a former one has under way is refused then.
                position = self._put(task.partition, position, commit)
            return Asked(task.partition, task.generation, task.reign, position)
        if isinstance(position.commit, Commit) and position.commit.epoch == task.reign.epoch:
            raise DataLoss(
                f"{listing.directory} ends at {end}, and its own reign of epoch {task.reign.epoch} committed up to "
                f"{next_offset}: {WHAT_TO_DO}"
            )
        stored = [segment.name.base for segment in read_catalog(store, position.keys).segments]
        containing = max((base for base in listing.bases if base <= end), default=end)
        commit = replace(
            next_commit(position, (), task.reign, self._broker),
            highest_base=max((base for base in stored if base < end), default=min(position.log_start, end)),
            next_offset=end,
            epochs=rewound(position.epochs, end, local_epochs(listing.directory)),
            last_stable_offset=last_stable_offset(listing.directory, containing),
            tail=None,
        )
        position = replace(position, gaps=tuple(gap for gap in position.gaps if gap[0] < end))
        position = self._put(task.partition, position, commit)
        log.error(
            "an election lost committed records; the archive follows the new leader",
            partition=str(task.partition),
            lost_from=end,
            lost_to=next_offset,
            epoch=task.reign.epoch,
        )
        return Asked(task.partition, task.generation, task.reign, position, (end, next_offset))

    def _put(self, partition: TopicPartition, position: Position, commit: Commit) -> Position:
        """Write a commit over the one that `position` was read from; the position that it describes."""
        _check_own(partition, commit.epochs.pairs, commit.epoch)
        store = self._store_of(partition.topic)
        condition = IfAbsent() if position.etag is None else IfMatch(position.etag)
        try:
            etag = store.put(position.keys.commit, commit.encode(), condition=condition).etag
        except LookFirstError as refused:
            etag = self._look(store, position.keys, commit, refused)
        return replace(
            position,
            next_offset=commit.next_offset,
            highest_base=commit.highest_base,
            epochs=commit.epochs,
            etag=etag,
            commit=commit,
        )

    def _look(self, store: ObjectStore, keys: PartitionKeys, mine: Commit, refused: LookFirstError) -> str:
        """What became of a commit that was not acknowledged: the etag where it stands, or an error."""
        theirs, etag = read_commit(store, keys)
        if isinstance(theirs, Commit):
            if theirs.nonce == mine.nonce and etag is not None:
                return etag
            if theirs.epoch > mine.epoch:
                raise ReignOver(f"{keys.commit} is of leader epoch {theirs.epoch}, this one would be of {mine.epoch}")
        raise PreconditionFailed(f"{keys.commit} was written by somebody else, or may still be: {refused}") from refused


def next_commit(position: Position, run: Sequence[Shipped], reign: Reign, broker: int) -> Commit:
    """The commit after `run` has continued the run that `position` ends. Pure but for time and nonce.

    Below the old next offset the epochs stay what they were, from there on they are those of the segments. Without a
    run it says what the last one said, anew.

    Raises:
        CorruptData: a segment cannot continue what is committed.
        ReignOver: a segment holds batches of a later reign.
    """
    epochs, next_offset, highest = position.epochs, position.next_offset, position.highest_base
    for shipped in run:
        _check_own(shipped.partition, shipped.epochs, reign.epoch)
        continued = epochs.continued(_line_of(shipped.epochs), next_offset)
        if not continued.agrees_with(shipped.epochs, shipped.base, shipped.end):
            raise CorruptData(
                f"{shipped.partition}: segment {shipped.base} has epochs {shipped.epochs}, which cannot continue "
                f"{epochs.pairs} from offset {next_offset} on; committed, readers would drop its records"
            )
        # A commit that was taken back names reigns that begin further on; where, the segments may not show any more.
        epochs = continued.with_next(epochs, shipped.end)
        next_offset = shipped.end
        highest = shipped.base if highest is None else max(highest, shipped.base)
    before = position.commit if isinstance(position.commit, Commit) else None
    stable = before.last_stable_offset if before is not None else None
    now = int(time.time() * _MILLISECONDS)
    return Commit(
        highest_base=highest if highest is not None else position.log_start,
        next_offset=next_offset,
        epoch=reign.epoch,
        epochs=epochs,
        last_stable_offset=run[-1].last_stable_offset if run else stable,
        topic_id=reign.topic_id,
        broker=broker,
        time=now,
        nonce=secrets.token_hex(8),
        tail=run[-1].tail if run else before.tail if before is not None else None,
        java=now if isinstance(position.commit, ForeignCommit) else before.java if before is not None else None,
    )


def _was_java_here(commit: Commit | ForeignCommit | None) -> bool:
    """Whether a Java uploader's commit was taken over lately: its fleet may still be on the move."""
    if not isinstance(commit, Commit) or commit.java is None:
        return False
    return time.time() * _MILLISECONDS - commit.java < _FLEET_MOVES_MILLISECONDS


def _check_own(partition: TopicPartition, epochs: Iterable[tuple[int, int]], epoch: int) -> None:
    """Nothing that a reign commits is of a later one.

    A broker that leads in an epoch holds no batch of a higher one. Where it does, it follows another leader by now, and
    may have cut its log off below the next offset for that: what is committed is for that leader's agent to weigh.
    """
    later = [pair for pair in epochs if pair[0] > epoch]
    if later:
        raise ReignOver(f"{partition}: there are records of leader epoch {later[0][0]}, this reign is of {epoch}")


def _line_of(epochs: tuple[tuple[int, int], ...]) -> EpochLine:
    """The batches' epochs as a line; batches without an epoch (old magic) between two of one epoch are part of it."""
    pairs: list[tuple[int, int]] = []
    for epoch, first in epochs:
        if epoch != NO_EPOCH and (not pairs or epoch > pairs[-1][0]):
            pairs.append((epoch, first))
    return EpochLine(tuple(pairs))


def _look_again(task: AskStore | PassGap | FillGap) -> Listing:
    """The directory as it is now: a task can have waited for long, and what is written now is written for ever."""
    now = whole_listing(task.listing)
    if now.bases[:1] != task.listing.bases[:1]:
        raise SegmentChanged(f"{now.directory} changed since it was listed")
    return now


def _committed(task: Task, position: Position) -> Committed:
    return Committed(task.partition, task.generation, task.reign, position)
