"""Track every partition on this broker, and return what the agent does next. Pure: no clock, no I/O.

Callers pass observations and results, and receive tasks. A partition has tasks while four inputs are present, each
from its own source:

- a leadership (leadership source): this broker leads, in this epoch, this topic id;
- a listing (directory scan): the live directory has that topic id, and these segments are closed;
- a high watermark (checkpoint): collected by the broker in this leadership, of this directory (`high_watermarks`);
- a position (store): where the archive's run ends.

`task_selection` selects the tasks then. After any failure the agent drops the position and reads it from the store
again. Segments that it shipped in the same leadership stay shipped. The one thread that calls `observe` and `conclude`
owns all state.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Set

from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import (
    Answered,
    DirectoryDeleted,
    DirectoryGone,
    EpochFile,
    FormerCovered,
    HighWatermarks,
    LastEpoch,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
    PartitionEvent,
    RepairWanted,
    SeveralDirectories,
)
from ts_uploader.messages.results import (
    Changed,
    Committed,
    DeletedPending,
    DeletedShipped,
    Failed,
    Fenced,
    LookDue,
    LookedBelow,
    PositionRead,
    Repaired,
    Result,
)
from ts_uploader.messages.tasks import AnyTask, LookBelow, ReadPosition, Repair, Rescan, Shipped
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.high_watermarks import OTHER_FILES, Checkpoints, Counted, Counting, ship_deleted
from ts_uploader.tracking.live_directories import Rivals
from ts_uploader.tracking.partition_state import PartitionState
from ts_uploader.tracking.reasons import undecided_directory, why
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS, SEGMENTS_IN_FLIGHT, TaskSelection


class Tracker:
    """The state of all partitions that have a directory on this broker.

    Args:
        offset_reset: where an archive without a commit begins.
        segments_in_flight: how many segments of one partition are shipped at once.
        checkpoint_seconds: the interval of the broker's high watermark checkpoints. Two listings that far apart must
            agree before offsets count as a gap.
        has_tail: returns whether this agent ships the live tail of a topic.
    """

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        has_tail: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._selection = TaskSelection(offset_reset, segments_in_flight, checkpoint_seconds, has_tail)
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._checkpoints = Checkpoints()
        # All partitions share one counter. A partition that was forgotten and returns then never matches old results.
        self._generations = itertools.count()
        self._absent: set[TopicPartition] = set()  # without a directory at the last `forget_absent`
        self._touched: set[TopicPartition] = set()  # since the last `take_touched`
        # That the next checkpoint can change whatever it contains; all without a directory or a reported leader.
        self._unsettled: set[TopicPartition] = set()
        self._behind_java: set[TopicPartition] = set()  # where a Java uploader can write late

    def observe(self, event: Observation) -> list[AnyTask]:
        """Apply one observation, and return the tasks that can begin now."""
        if isinstance(event, HighWatermarks):
            return [task for each in self.note_checkpoint(event) for task in self.take_high_watermark(each, event)]
        if isinstance(event, DirectoryDeleted):
            known = self._partitions.get(event.partition)
            return ship_deleted(event, None if known is None else known.counted, latest=self._selection.latest)
        state = self._state(event.partition)
        if isinstance(event, Led | NotLed) and _repeats(state, event):
            return []
        self._touch(event.partition)
        self._apply(state, event)
        if isinstance(event, Led | NotLed) and state.listing is not None:
            self._count(state, state.listing, None)
        if state.leadership is None and not state.is_here:
            self.forget(event.partition)
        return self._selection.select(state)

    def _apply(self, state: PartitionState, event: PartitionEvent) -> None:
        match event:
            case Listing():
                state.rival_directories = None
                self._on_listing(state, event)
            case SeveralDirectories():
                if state.rival_directories is None or not state.rival_directories.take_listings(event):
                    state.rival_directories = Rivals(event)
                self._on_rivals(state, state.rival_directories)
            case DirectoryGone():
                state.rival_directories = None
                self._on_no_directory(state)
            case Led():
                state.leadership_reported = True
                state.reported_leadership = event.leadership
                self._on_led(state, event.leadership)
            case NotLed():
                state.leadership_reported = True
                state.reported_leadership = None
                if state.leadership is not None:
                    state.leadership = None
                    self._start_over(state)
            case Answered():
                self._on_answer(state, event)
            case FormerCovered():
                if state.leadership is not None and state.leadership.epoch == event.epoch:
                    state.covered_from = event.start
            case RepairWanted():
                if state.leadership is not None:
                    state.want_repair(event.request)

    def conclude(self, result: Result) -> list[AnyTask]:
        """Apply a worker's result, and return the tasks that can begin now."""
        if isinstance(result, DeletedPending | DeletedShipped):
            return [result.task] if isinstance(result, DeletedPending) else []
        state = self._partitions.get(result.partition)
        if state is None or state.generation != result.generation:
            return []
        self._touch(result.partition)
        if isinstance(result, LookDue):
            state.retries.look_pending = False
            return []
        if isinstance(result, Changed):
            return self._on_changed(state, result)
        self._on_result(state, result)
        return self._selection.select(state)

    def _on_result(
        self,
        state: PartitionState,
        result: PositionRead | Shipped | Committed | LookedBelow | Repaired | Fenced | Failed,
    ) -> None:
        match result:
            case PositionRead():
                begins = state.last_next_offset is None
                state.reading_position = False
                state.failed_reads = 0
                if result.foreign or (begins and result.beside_java):
                    state.expect_java_commits()
                    self._behind_java.add(state.partition)
                state.take_position(result.position)
            case Shipped():
                state.in_flight -= {result.base}
                state.retries.shipped(result.base)
                state.take_shipped(result)
            case Committed():
                state.committing = False
                state.take_committed(result.position)
            case LookedBelow():
                state.reading_deleted = False
                state.retries.looked_below()
                state.hanging = {file.base: file for file in result.hanging}
                state.deleted_below, state.deleted_below_wanted = result.below, result.wanted
            case Repaired():
                state.take_repaired(result.request, changed=bool(result.objects))
            case Fenced():
                state.fenced = result.leadership
                state.leadership = None
                self._start_over(state)
            case Failed():
                self._on_failed(state, result)

    def defer(self, idle: Mapping[TopicPartition, Idle]) -> None:
        """Read the position of these partitions later, while their rows count; call it before all others."""
        self._selection.idle.update(idle)

    def deferred(self, most: int) -> list[TopicPartition]:
        """Return some partitions whose position is read later; first those that are led: a forged object names any."""
        idle = self._selection.idle
        led = (partition for partition in idle if partition in self._partitions)
        return list(itertools.islice(led, most)) or list(itertools.islice(idle, most))

    def end_deferral(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Drop the rows of partitions, and return those with a state: `select` reads their positions."""
        ended = [partition for partition in partitions if partition in self._selection.idle]
        for partition in ended:
            del self._selection.idle[partition]
        with_state = [partition for partition in ended if partition in self._partitions]
        for partition in with_state:
            self._touch(partition)
        return with_state

    def select(self, partition: TopicPartition) -> list[AnyTask]:
        """Return the tasks of one partition that can begin now."""
        return self._selection.select(self._partitions[partition])

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """Return the backlog of every partition that the leadership source reports as led here."""
        waiting = {partition: self.backlog_of(partition) for partition in self._partitions}
        return {partition: backlog for partition, backlog in waiting.items() if backlog is not None}

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the tracker has a state of."""
        return list(self._partitions)

    @property
    def unsettled(self) -> Set[TopicPartition]:
        """The partitions that a checkpoint can change with equal entries, as of this call."""
        return frozenset(self._unsettled)

    def take_touched(self) -> Set[TopicPartition]:
        """Return the partitions whose backlog may differ since the last call, but for `counted_at`."""
        touched, self._touched = self._touched, set()
        return touched

    def behind_java(self) -> list[TopicPartition]:
        """Return the partitions where a Java uploader can write late."""
        return list(self._behind_java)

    def check_java(self, partition: TopicPartition, now: int) -> list[AnyTask]:
        """Return the task to read a position again if that is due, in case a Java uploader wrote; call it now and then.

        Args:
            now: nanoseconds of the monotonic clock.
        """
        state = self._partitions.get(partition)
        if state is None or not state.java_recheck_seconds:
            self._behind_java.discard(partition)
            return []
        if not state.is_java_check_due(now):
            return []
        self._touch(partition)
        state.position = None
        return self._selection.select(state)

    def unreported(self, before: int) -> list[TopicPartition]:
        """Return the partitions with a directory whose leader the leadership source never reported.

        Args:
            before: leave out directories that appeared at or after this time, in ns of the monotonic clock.
        """
        return [
            partition
            for partition in self._unsettled
            if not (state := self._partitions[partition]).leadership_reported
            and state.directory is not None
            and state.appeared_at < before
        ]

    def forget_absent(self) -> None:
        """Forget the partitions that had no directory at this call and at the one before; call it now and then.

        The agent no longer requests their leadership, so no report would remove them. A partition that only moves to
        another disk has a directory again before the second call, and its leadership continues.
        """
        absent = {partition for partition in self._unsettled if not self._partitions[partition].is_here}
        for partition in absent & self._absent:
            self.forget(partition)
        self._absent = absent - self._absent

    def forget(self, partition: TopicPartition) -> tuple[Listing | None, Leadership | None]:
        """Forget a partition; return its last listing, and its leadership as last reported, each None if unknown."""
        state = self._partitions.pop(partition, None)
        self._touched.add(partition)
        self._unsettled.discard(partition)
        return (None, None) if state is None else (state.listing or state.last_listing, state.reported_leadership)

    def backlog_of(self, partition: TopicPartition) -> Backlog | None:
        """Return the backlog of one partition; None if it is not reported as led here."""
        state = self._partitions.get(partition)
        if state is None:
            return None
        undecided = undecided_directory(state)
        if undecided is not None and state.rival_directories is not None and state.reported_leadership is not None:
            # Only one of the directories has the backlog, and which one is unknown. The listing only names a path.
            return Backlog(state.rival_directories.listings[0], None, 0, None, None, hole=False, wait=undecided)
        listing = state.listing or state.last_listing  # an outdated listing is better than none
        if listing is None or state.reported_leadership is None:
            return None
        deferred = self._selection.deferred(state) if state.last_next_offset is None else None
        next_offset = state.last_next_offset if deferred is None else deferred.next_offset
        # While the next offset is unknown, every closed segment counts as unshipped.
        unshipped = [] if not listing.bases else list(state.segments_from(listing, next_offset or 0))
        base = unshipped[0][0] if unshipped else None
        # If a shipped segment does not reach the next offset, it lost its tail, and no file here fills that.
        hole = state.gap_seen_at is not None or (base is not None and state.has_lost_its_tail(base, next_offset or 0))
        high_watermark = None if state.leadership is None else state.high_watermark
        counted_in = None if high_watermark is None or state.directory is None else state.directory[1]
        return Backlog(
            listing=listing,
            base=base,
            segments=len(unshipped),
            lag=_lag(state.high_watermark, next_offset),
            next_offset=next_offset,
            hole=hole,
            wait=why(state, listing, unshipped),
            high_watermark=high_watermark,
            counted_at=None if counted_in is None else self._checkpoints.written_at(counted_in),
            position=state.position,
            is_deferred=deferred is not None,
        )

    def note_checkpoint(self, event: HighWatermarks) -> list[TopicPartition]:
        """Count a reading of a checkpoint; return the partitions that it can change, for `take_high_watermark`."""
        self._checkpoints.take(event)
        if event.changed is None:
            return self.partitions
        changed = {TopicPartition(topic, number) for topic, number in event.changed}
        return [*self._unsettled, *((changed - self._unsettled) & self._partitions.keys())]

    def take_high_watermark(self, partition: TopicPartition, event: HighWatermarks) -> list[AnyTask]:
        """Apply a reading of a checkpoint to one partition, and return the tasks that can begin now."""
        state = self._partitions.get(partition)
        if state is None:
            return []
        self._touch(partition)
        tasks = self._take_high_watermark(state, event)
        live = event.offsets is not None and state.directory is not None and state.directory[0][1] in event.live
        counted = live and state.counting.counts(event.log_dir, self._checkpoints)
        is_deferred = state.position is None and self._selection.deferred(state) is not None
        if not tasks and state.is_settled(event.log_dir, counted=counted, is_deferred=is_deferred):
            self._unsettled.discard(partition)
        return tasks

    def _take_high_watermark(self, state: PartitionState, event: HighWatermarks) -> list[AnyTask]:
        if state.rival_directories is not None:
            chosen = state.rival_directories.chosen
            state.rival_directories.take_reading(event, self._checkpoints)
            if state.rival_directories.chosen is not chosen:
                self._on_rivals(state, state.rival_directories)
        listing, leadership = state.listing, state.leadership
        if state.directory is None or state.directory[1] != event.log_dir:
            return []
        counts = state.counting.counts(event.log_dir, self._checkpoints)
        if listing is None or not counts or event.offsets is None:
            return []
        high_watermark = event.offsets.get((state.partition.topic, state.partition.partition))
        if high_watermark is not None and state.directory[0][1] in event.live:
            state.counted = Counted(state.directory[0], listing.last_epoch.epoch, high_watermark, leadership)
        if leadership is None:
            return []
        # The broker can have collected these files before its answer: until then none lowers it.
        if state.answer is not None and (self._checkpoints.count(event.log_dir) or 0) < state.answer[1]:
            high_watermark = max(high_watermark or 0, state.answer[0])
        state.high_watermark = high_watermark
        state.take_checkpoint()
        self._recheck_position(state)
        return self._selection.select(state)

    def _state(self, partition: TopicPartition) -> PartitionState:
        if partition not in self._partitions:
            self._partitions[partition] = PartitionState(partition, next(self._generations))
        return self._partitions[partition]

    def _touch(self, partition: TopicPartition) -> None:
        self._touched.add(partition)
        self._unsettled.add(partition)

    def _start_over(self, state: PartitionState) -> None:
        state.start_over(next(self._generations))

    def _on_listing(self, state: PartitionState, listing: Listing) -> None:
        if state.directory != (listing.identity, listing.log_dir):
            self._start_over(state)
            state.directory = (listing.identity, listing.log_dir)
            state.appeared_at = listing.taken_at
        self._count(state, listing, self._checkpoints.count_at(listing))
        state.take_listing(listing)

    def _count(self, state: PartitionState, listing: Listing, before: int | None) -> None:
        """Restart the count of checkpoint files if the directory or the leader epoch changed."""
        if state.counting.begin(listing, state.leadership, before):
            state.high_watermark = state.answer = None

    def _on_answer(self, state: PartitionState, event: Answered) -> None:
        """Use a high watermark that the broker answered with, if it is of this directory in this leadership."""
        listing, leadership = state.listing, state.leadership
        if listing is None or leadership is None or leadership.epoch != event.epoch:
            return
        if listing.identity != event.identity or listing.last_epoch != LastEpoch(EpochFile.READ, event.epoch):
            return
        unread = (self._checkpoints.count(listing.log_dir) or 0) + 1
        state.answer = event.high_watermark, unread + OTHER_FILES
        state.high_watermark = max(event.high_watermark, state.high_watermark or 0)
        self._recheck_position(state)

    def _on_no_directory(self, state: PartitionState) -> None:
        state.listing = state.directory = None
        state.counting = Counting()
        self._start_over(state)

    def _on_rivals(self, state: PartitionState, rivals: Rivals) -> None:
        """Continue with the directory that the broker uses, or with no directory while that is unknown."""
        if rivals.chosen is not None:
            self._on_listing(state, rivals.chosen)
        elif state.directory is not None or state.listing is not None:
            self._on_no_directory(state)

    def _on_led(self, state: PartitionState, leadership: Leadership) -> None:
        fenced = state.fenced
        if fenced is not None and fenced.topic_id == leadership.topic_id and leadership.epoch <= fenced.epoch:
            return
        known = state.leadership
        if known is None or (known.epoch, known.topic_id) != (leadership.epoch, leadership.topic_id):
            state.leadership = leadership
            self._start_over(state)

    def _on_changed(self, state: PartitionState, changed: Changed) -> list[AnyTask]:
        state.in_flight -= {changed.base}
        state.forget_deleted()
        state.listing = None  # it is out of date: nothing is selected until the next listing
        if not state.retries.changed(changed.base, changed.reason):
            return []
        return [Rescan(state.partition, state.generation, state.retries.failures, reason=changed.reason)]

    def _on_failed(self, state: PartitionState, failed: Failed) -> None:
        """Note the failure, and drop the position: the agent reads it again after a delay that grows."""
        if failed.base is not None:
            state.in_flight -= {failed.base}
            state.retries.upload_failed(failed.base, failed.reason)
        elif failed.operation == ReadPosition.__name__:
            state.reading_position = False
            state.note_failed_read(failed.reason)
        elif failed.operation == Repair.__name__:
            state.fail_repair()
            return
        elif failed.operation == LookBelow.__name__:
            state.reading_deleted = False
            state.retries.look_below_failed(failed.reason)
        else:
            state.committing = False
            state.gap_being_filled = None
            state.retries.commit_failed(failed.reason)
        state.forget_position()

    def _recheck_position(self, state: PartitionState) -> None:
        """Drop the position if the local high watermark is below the next offset (protocol rule 5).

        The archive may then no longer be this log's past. The agent checks that once for each high watermark.
        """
        here, position = state.high_watermark, state.position
        below = here is not None and position is not None and here < position.next_offset
        if below and here != state.rechecked_high_watermark and not (state.reading_position or state.committing):
            state.rechecked_high_watermark = here
            state.position = None


def _repeats(state: PartitionState, event: Led | NotLed) -> bool:
    """Whether a report is equal to the last one, and that is in effect."""
    leadership = event.leadership if isinstance(event, Led) else None
    return state.leadership_reported and state.reported_leadership == state.leadership == leadership


def _lag(high_watermark: int | None, next_offset: int | None) -> int | None:
    return None if high_watermark is None or next_offset is None else max(0, high_watermark - next_offset)
