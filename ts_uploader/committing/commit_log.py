"""The commits of one cluster: read a position, move it along the run, beyond a gap, or correct a filled gap.

Protocol rules 4, 5, 7, 8, 10 and 12. `position_recovery` reads where to continue, `commit_writer` writes.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from ts_common.archive.catalog import read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import PreconditionFailed, SegmentChanged
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_writer import CommitWriter
from ts_uploader.committing.empty_archives import EmptyArchives
from ts_uploader.committing.gap_recording import ENDED, describe_loss, line_of, record_gaps, unanswered
from ts_uploader.committing.next_commit import line_of_log, next_commit
from ts_uploader.committing.position_recovery import PositionRecovery
from ts_uploader.log_dirs.directory_scan import unchanged_listing
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.log_dirs.local_log import last_stable_offset, local_epochs
from ts_uploader.messages.results import Committed, PositionRead
from ts_uploader.messages.tasks import (
    FillGap,
    ForgetFormer,
    PassGap,
    Position,
    ReadPosition,
    ShipDeleted,
    Task,
    WriteCommit,
)

log = structlog.get_logger()


class CommitLog:
    """Reads and writes the commits of one cluster.

    Args:
        store_of: returns the store of a topic.
        recorded: called with ranges `[from, to)` that were recorded as gaps while a position was read.
        lost: called with offsets `[from, to)` that an election lost, and whether their magic is 0 or 1. Called once the
            commit went back, or may have: a retry finds a commit that lost nothing.
        tail_log: returns the name of this agent's log of packs for a topic; None if the topic's tail is off.
        keep_tail: ships the records of a gap that the live tail has, by the commit of the position.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        store_of: Callable[[str], ObjectStore],
        recorded: Callable[[tuple[tuple[int, int], ...]], None] = lambda _: None,
        lost: Callable[[TopicPartition, tuple[int, int], bool], None] = lambda *_: None,
        tail_log: Callable[[str], str | None] = lambda _: None,
        keep_tail: Callable[[PassGap], None] = lambda _: None,
    ) -> None:
        self._broker = broker
        self._store_of = store_of
        self._recorded = recorded
        empty_archives = EmptyArchives()
        self._writer = CommitWriter(store_of, empty_archives, tail_log)
        self._recovery = PositionRecovery(
            keys, broker, store_of, self._writer, empty_archives, recorded, lost, keep_tail
        )

    def read(self, task: ReadPosition) -> PositionRead:
        """Return where to continue, as `PositionRecovery.read`."""
        found = self._recovery.read(task)
        return replace(found, position=_shared(found.position))

    def keys_of(self, partition: TopicPartition, topic_id: str) -> PartitionKeys | None:
        """Return the keys of a partition in a topic id's incarnation, as `PositionRecovery.keys_of`."""
        return self._recovery.keys_of(partition, topic_id)

    def last_id_of(self, topic: str, topic_id: str) -> str:
        """Return the newest topic id of a topic id's incarnation, as `PositionRecovery.last_id_of`."""
        return self._recovery.last_id_of(topic, topic_id)

    def write(self, task: WriteCommit) -> Committed:
        """Move the commit to the end of the run.

        Raises:
            FencedLeaderEpoch: a commit of a later leader epoch exists; this agent wrote nothing.
            PreconditionFailed: another commit exists: read the position again.
            CorruptData: a segment cannot continue the committed run.
            OutcomeUnknown: no answer arrived, and the commit could not be read afterwards.
        """
        commit = next_commit(task.position, task.run, task.leadership, self._broker)
        return _committed(task, self._writer.write(task.partition, task.position, commit))

    def forget_former(self, task: ForgetFormer) -> Committed:
        """Write a commit that names no former leadership: own entries cover what they shipped (tail rule 4).

        Raises:
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        commit = next_commit(task.position, (), task.leadership, self._broker)
        return _committed(task, self._writer.write(task.partition, task.position, commit, forgets_former=True))

    def pass_gap(self, task: PassGap) -> Committed:
        """Record the offsets from the next offset on that exist nowhere, and move the commit beyond them.

        Segments that the store has by now (shipped in an earlier leader epoch, and never committed) are no gap.

        Raises:
            SegmentChanged: the directory does not show the gap any more, or the broker's leadership has ended.
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = unchanged_listing(task.listing)
        check_leader_epoch(listing, task.leadership)
        position, end = task.position, task.end
        if not position.next_offset < end <= listing.bases[0]:
            raise SegmentChanged(f"{listing.directory} begins with {listing.bases[0]}, which shows no gap up to {end}")
        store = self._store_of(task.partition.topic)
        catalog = read_snapshot(store, position.keys)
        if catalog.commit_etag != position.etag:
            raise PreconditionFailed(f"{position.keys.commit} was written by another agent")
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
        position = self._writer.write(task.partition, position, commit)
        return replace(_committed(task, position), gaps=loss.gaps, reason=loss.reason, by_request=loss.by_request)

    def end_deleted(
        self, task: ShipDeleted, position: Position, log: tuple[int, EpochHistory], reason: str
    ) -> Committed:
        """Record the end of a deleted topic's log that is not stored, and move the commit to the log's end.

        No election follows, so no later leader can have other records there (protocol rule 14).

        Args:
            log: the end and the epochs of the log.
            reason: why the rest was not shipped, one line.

        Raises:
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        start, (end, local) = position.next_offset, log
        store = self._store_of(task.partition.topic)
        catalog = read_snapshot(store, position.keys)
        if catalog.commit_etag != position.etag:
            raise PreconditionFailed(f"{position.keys.commit} was written by another agent")
        commit = next_commit(position, (), task.leadership, self._broker)
        epochs = position.epochs.continued(line_of(position, local), start)
        gaps = unanswered(store, replace(catalog, gaps=()), epochs, start, end)
        record_gaps(store, position.keys, gaps, reason, self._broker)
        stable, highest = commit.last_stable_offset, commit.highest_base
        if gaps != ((start, end),):  # segments of the live tail: their markers show what is open
            stable = None
            bases = (segment.name.base for segment in catalog.segments if segment.name.base < end)
            highest = max(highest, *bases, 0)
        elif stable == start:  # no transaction that is open ever ends
            stable = end
        commit = replace(
            commit, highest_base=highest, next_offset=end, epochs=epochs, last_stable_offset=stable, tail=None
        )
        position = self._writer.write(task.partition, position, commit)
        return replace(_committed(task, position), gaps=gaps, reason=reason, with_topic=True)

    def fill_gap(self, task: FillGap) -> Committed:
        """Correct the epochs of a gap whose offsets the store has by now; the next offset stays.

        Raises:
            SegmentChanged: the directory differs from its listing, or the broker's leadership has ended.
            FencedLeaderEpoch, PreconditionFailed, OutcomeUnknown: as `write`.
        """
        listing = unchanged_listing(task.listing)
        check_leader_epoch(listing, task.leadership)
        position = replace(task.position, gaps=tuple(gap for gap in task.position.gaps if gap != task.gap))
        start, end = max(task.gap[0], task.run[0].base), min(task.gap[1], task.run[-1].end, position.next_offset)
        line = line_of_log(local_epochs(listing.directory), task.run)
        begin, line = _begun_in_gap(position.epochs, line, task.gap[0], start)
        # If the list begins above the gap, it has no epoch up to there, and the gap's last epoch would continue.
        until = end
        if position.epochs.pairs and position.epochs.at(end) is None:
            until = position.epochs.pairs[0][1]
        epochs = position.epochs.continued(line, begin).below(until).continued(position.epochs, until)
        # As readers will see it: by all of a segment, also if it reaches beyond the gap.
        wrong = [
            done.base for done in task.run if epochs.live_end(done.epochs, done.base, done.end) < min(end, done.end)
        ]
        if wrong:
            log.error("gap_epochs_conflict", partition=str(task.partition), segments=wrong)
        elif epochs != position.epochs:
            # Above the gap the list had no epoch, so readers used any copy there; now the list has one.
            store, keys = self._store_of(task.partition.topic), position.keys
            ended = unanswered(store, read_snapshot(store, keys), epochs, end, until) if until > end else ()
            self._recorded(record_gaps(store, keys, ended, ENDED, self._broker))
            position = replace(position, gaps=(*position.gaps, *ended))
            commit = replace(next_commit(position, (), task.leadership, self._broker), epochs=epochs)
            position = self._writer.write(task.partition, position, commit)
        if not wrong:
            log.info("gap_filled", partition=str(task.partition), start=start, end=end)
        return _committed(task, position)


def _begun_in_gap(epochs: EpochHistory, line: EpochHistory, gap: int, start: int) -> tuple[int, EpochHistory]:
    """Return where the segments that fill a gap begin for a list, and their line from there on.

    Epochs never fall. If the list has an epoch in the gap above that of the first record that fills it, it is dead.

    Args:
        line: of the segments that fill the gap.
        gap: where the gap begins.
        start: the first offset that is filled.
    """
    lowest = line.from_offset(start).pairs[:1]
    higher = [first for epoch, first in epochs.below(start) if first >= gap and lowest and epoch > lowest[0][0]]
    if not higher:
        return start, line
    return higher[0], EpochHistory(((lowest[0][0], higher[0]), *(pair for pair in line if pair[1] > lowest[0][1])))


def _committed(task: Task, position: Position) -> Committed:
    return Committed(task.partition, task.generation, task.leadership, _shared(position))


def _shared(position: Position) -> Position:
    """Return an equal position, whose commit has `Commit.shared`."""
    commit = position.commit
    return replace(position, commit=commit.shared) if isinstance(commit, Commit) else position
