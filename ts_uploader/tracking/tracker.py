"""What is to be done next for each partition. Pure: an observation or a result in, tasks out; no clock, no I/O.

A partition is worked on while four things are known, each from its own source:

- a leadership (leadership): this broker leads, in this epoch, this topic id;
- a listing (scan): the live directory has that topic id, and these segments are closed;
- a high watermark (checkpoint): collected by the broker in this leadership, of this directory (`high_watermarks`);
- a position (store): where the archive's run ends.

Then the segments from the one that contains the next offset on go up, several at once, up to the high watermark; the
commit moves along the run only, whatever later segments did (protocol rules 1 to 4 and 8).

A segment that retention took still goes up, as long as its files are there under their `.deleted` names, if it was
seen live in this leadership or hangs on what lives (`ts_uploader.log_dirs.hanging`). What is gone for good becomes a
gap, once two whole listings a checkpoint interval apart agree on it; a recorded gap that this log holds after all is
filled (protocol rule 10).

Whatever goes wrong, the position is forgotten and read from the store again; what was shipped in the same leadership
stays shipped. The one thread that calls `observe` and `conclude` owns all state here.
"""

import itertools

from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.events import (
    DirectoryGone,
    HighWatermarks,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
    SeveralDirectories,
)
from ts_uploader.tasks import (
    AnyTask,
    Changed,
    Committed,
    Failed,
    Fenced,
    FillGap,
    LookBelow,
    LookDue,
    LookedBelow,
    PassGap,
    Position,
    PositionRead,
    ReadPosition,
    Rescan,
    Result,
    Ship,
    Shipped,
    WriteCommit,
)
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.high_watermarks import Checkpoints, Counting
from ts_uploader.tracking.live_directories import Rivals
from ts_uploader.tracking.partition_state import PartitionState, overlapping
from ts_uploader.tracking.reasons import why

# Enough that a partition that is behind keeps the upload threads busy, few enough that thousands of partitions that
# are behind share them and the memory.
SEGMENTS_IN_FLIGHT = 4
# Kafka's own default of replica.high.watermark.checkpoint.interval.ms.
CHECKPOINT_SECONDS = 5.0
_NANOSECONDS = 1_000_000_000


class Tracker:
    """The state of all partitions that have a directory here.

    Args:
        offset_reset: where an archive without a commit begins.
        segments_in_flight: of one partition at once.
        checkpoint_seconds: between two of the broker's high watermark checkpoints; two listings that far apart must
            agree that a gap is one.
    """

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._offset_reset = offset_reset
        self._window = segments_in_flight
        self._checkpoint_seconds = checkpoint_seconds
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._checkpoints = Checkpoints()
        # One count for all, so that a partition that was forgotten and comes back never meets its old results.
        self._generations = itertools.count()
        self._absent: set[TopicPartition] = set()  # without a directory at the last `forget_absent`

    def observe(self, event: Observation) -> list[AnyTask]:
        """Take one observation in; what is to be done now that was not before."""
        match event:
            case HighWatermarks():
                return self._on_high_watermarks(event)
            case Listing():
                state = self._state(event.partition)
                state.rival_directories = None
                self._on_listing(state, event)
            case SeveralDirectories():
                state = self._state(event.partition)
                if state.rival_directories is None or not state.rival_directories.take_listings(event):
                    state.rival_directories = Rivals(event)
                self._on_rivals(state, state.rival_directories)
            case DirectoryGone():
                state = self._state(event.partition)
                state.rival_directories = None
                self._on_no_directory(state)
            case Led():
                state = self._state(event.partition)
                state.leadership_reported = True
                state.reported_leadership = event.leadership
                self._on_led(state, event.leadership)
            case NotLed():
                state = self._state(event.partition)
                state.leadership_reported = True
                state.reported_leadership = None
                if state.leadership is not None:
                    state.leadership = None
                    self._start_over(state)
        if isinstance(event, Led | NotLed) and state.listing is not None:
            self._count(state, state.listing, None)
        if state.leadership is None and not state.is_here:
            del self._partitions[event.partition]
        return self._advance(state)

    def conclude(self, result: Result) -> list[AnyTask]:
        """Take a worker's result in; what is to be done next."""
        state = self._partitions.get(result.partition)
        if state is None or state.generation != result.generation:
            return []
        match result:
            case PositionRead():
                begins = state.last_next_offset is None
                state.reading_position = False
                state.failed_reads = 0
                if result.foreign or (begins and result.beside_java):
                    state.take_java()
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
            case Fenced():
                state.fenced = result.leadership
                state.leadership = None
                self._start_over(state)
            case Failed():
                self._on_failed(state, result)
            case Changed():
                state.in_flight -= {result.base}
                state.look_again_below()
                # The listing is known to be old: nothing more is taken from it until a new one comes.
                state.listing = None
                if not state.retries.changed(result.base, result.reason):
                    return []
                return [Rescan(state.partition, state.generation, state.retries.failures, reason=result.reason)]
            case LookDue():
                state.retries.look_pending = False
                return []
        return self._advance(state)

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """What waits, of every partition that is led here, or that the source still says is."""
        waiting = {state.partition: self._backlog_of(state) for state in list(self._partitions.values())}
        return {partition: backlog for partition, backlog in waiting.items() if backlog is not None}

    def untold(self, before: int) -> list[TopicPartition]:
        """The partitions here of which the source has never said who leads them: nothing of them can go.

        Args:
            before: nanoseconds of the monotonic clock; those that came later are left out.
        """
        return [
            partition
            for partition, state in self._partitions.items()
            if not state.leadership_reported and state.directory is not None and state.appeared_at < before
        ]

    def forget_absent(self) -> None:
        """Forget the partitions that had no directory at the last call either; to be called now and then.

        The source is not asked about them any more, so it never says that they are not led. A partition that only moves
        to another disk is back before that, and its leadership goes on.
        """
        absent = {partition for partition, state in self._partitions.items() if not state.is_here}
        for partition in absent & self._absent:
            del self._partitions[partition]
        self._absent = absent - self._absent

    def _backlog_of(self, state: PartitionState) -> Backlog | None:
        undecided = state.waits_for_directory()
        if undecided is not None and state.rival_directories is not None and state.reported_leadership is not None:
            # What waits is in one of the directories, and not known: the listing only says where one of them is.
            return Backlog(state.rival_directories.listings[0], None, 0, None, None, hole=False, wait=undecided)
        # A listing that is known to be old still says more than nothing.
        listing = state.listing or state.last_listing
        if listing is None or state.reported_leadership is None:
            return None
        next_offset = state.last_next_offset
        # While the next offset is not known everything here may be waiting, and is shown to.
        unshipped = [] if not listing.bases else list(state.segments_from(listing, next_offset or 0))
        base = unshipped[0][0] if unshipped else None
        # A segment that is shipped and does not reach the next offset lost its tail: nothing here fills it.
        hole = state.gap_seen_at is not None or (base is not None and state.has_lost_its_tail(base, next_offset or 0))
        lag = None
        if next_offset is not None and state.high_watermark is not None:
            lag = max(0, state.high_watermark - next_offset)
        return Backlog(
            listing=listing,
            base=base,
            segments=len(unshipped),
            lag=lag,
            next_offset=next_offset,
            hole=hole,
            wait=why(state, listing, unshipped),
            high_watermark=None if state.leadership is None else state.high_watermark,
            counted_at=None if state.leadership is None else state.counted_at,
        )

    def _state(self, partition: TopicPartition) -> PartitionState:
        if partition not in self._partitions:
            self._partitions[partition] = PartitionState(partition, next(self._generations))
        return self._partitions[partition]

    def _start_over(self, state: PartitionState) -> None:
        state.start_over(next(self._generations))

    def _on_listing(self, state: PartitionState, listing: Listing) -> None:
        if state.directory != (listing.identity, listing.log_dir):
            self._start_over(state)
            state.directory = (listing.identity, listing.log_dir)
            state.appeared_at = listing.taken_at
        self._count(state, listing, self._checkpoints.count_at(listing))
        state.take_listing(listing)
        if state.looks_again(listing.taken_at):
            state.position = None

    def _count(self, state: PartitionState, listing: Listing, before: int | None) -> None:
        """Count checkpoint files from here on where directory or leader epoch are others than before."""
        if state.counting.begin(listing, state.leadership, before):
            state.high_watermark = None

    def _on_no_directory(self, state: PartitionState) -> None:
        state.listing = state.directory = None
        state.counting = Counting()
        self._start_over(state)

    def _on_rivals(self, state: PartitionState, rivals: Rivals) -> None:
        """Several directories are live: go on with the one that counts, or with none."""
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

    def _on_failed(self, state: PartitionState, failed: Failed) -> None:
        """Have the store asked where to go on, after a delay that grows while nothing moves."""
        if failed.base is not None:
            state.in_flight -= {failed.base}
            state.retries.upload_failed(failed.base, failed.reason)
        elif failed.operation == ReadPosition.__name__:
            state.reading_position = False
            state.take_failed_question(failed.reason)
        elif failed.operation == LookBelow.__name__:
            state.reading_deleted = False
            state.retries.look_below_failed(failed.reason)
        else:
            state.committing = False
            state.gap_being_filled = None
            state.retries.commit_failed(failed.reason)
        state.forget_position()

    def _on_high_watermarks(self, event: HighWatermarks) -> list[AnyTask]:
        self._checkpoints.take(event)
        return [task for state in list(self._partitions.values()) for task in self._take_high_watermarks(state, event)]

    def _take_high_watermarks(self, state: PartitionState, event: HighWatermarks) -> list[AnyTask]:
        if state.rival_directories is not None:
            chosen = state.rival_directories.chosen
            state.rival_directories.take_reading(event, self._checkpoints)
            if state.rival_directories.chosen is not chosen:
                self._on_rivals(state, state.rival_directories)
        listing, leadership = state.listing, state.leadership
        if state.directory is None or state.directory[1] != event.log_dir:
            return []
        counts = state.counting.counts(event.log_dir, self._checkpoints)
        if listing is None or leadership is None or not counts or event.offsets is None:
            return []
        state.high_watermark = event.offsets.get((state.partition.topic, state.partition.partition))
        state.take_checkpoint()
        state.counted_at = None if event.file is None else event.file[0][1]
        self._doubt(state)
        return self._advance(state)

    def _doubt(self, state: PartitionState) -> None:
        """Ask again whether the run is this log's past: what is committed here ends below it (protocol rule 5)."""
        here, position = state.high_watermark, state.position
        below = here is not None and position is not None and here < position.next_offset
        if below and here != state.rechecked_high_watermark and not (state.reading_position or state.committing):
            state.rechecked_high_watermark = here
            state.position = None

    def _advance(self, state: PartitionState) -> list[AnyTask]:
        """Everything that can be begun now, marked as begun."""
        leadership, listing = state.leadership, state.listing
        if leadership is None or listing is None:
            return []
        if listing.swapping:
            state.gap_seen_at = None
        if state.waits_for(leadership, listing) is not None:
            return []
        if state.position is None:
            if state.reading_position or state.committing:
                return []
            state.reading_position = True
            latest = self._offset_reset is OffsetReset.LATEST
            first = listing.bases[-1 if latest else 0]
            attempt = state.retries.failures
            return [
                ReadPosition(
                    state.partition,
                    state.generation,
                    leadership,
                    listing,
                    first,
                    state.last_own_commit,
                    attempt,
                    latest,
                )
            ]
        tasks: list[AnyTask] = []
        run = state.run(state.position.next_offset)
        if run and not state.committing:
            state.committing = True
            tasks.append(WriteCommit(state.partition, state.generation, leadership, state.position, run))
        tasks += self._look_below(state, leadership, listing, state.position)
        tasks += self._gap(state, leadership, listing, state.position)
        tasks += self._fill(state, leadership, listing, state.position)
        return tasks + self._ships(state, leadership, listing, state.position)

    def _ships(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        tasks: list[AnyTask] = []
        lowest = min((position.next_offset, *(low for low, _ in position.gaps)))
        for base, next_base in state.segments_from(listing, lowest):
            ahead = next_base > position.next_offset
            gaps = () if ahead else tuple(gap for gap in position.gaps if overlapping((gap,), base, next_base))
            if not ahead and not gaps:
                continue
            # The last batch of a closed segment ends at most where the next one begins, so this bounds its coverage.
            if state.high_watermark is None or next_base > state.high_watermark:
                break
            if len(state.in_flight) >= self._window:
                break
            # Far ahead of one that keeps failing there is nothing to gain; that one itself is always tried again.
            if base > position.next_offset and len(state.shipped) + len(state.retries.held_back) >= 2 * self._window:
                break
            if base in state.retries.held_back:
                continue
            if base not in state.in_flight and base not in (state.shipped if ahead else state.shipped_into_gaps):
                state.in_flight |= {base}
                tasks.append(
                    Ship(
                        state.partition,
                        state.generation,
                        leadership,
                        position.keys,
                        listing,
                        base,
                        next_base,
                        position.epochs,
                        position.next_offset,
                        seen=state.saw(base, next_base),
                        hangs=state.hangs(base, listing),
                        variants_below=position.lineage.highest if position.lineage is not None else 0,
                        gaps=gaps,
                    )
                )
        return tasks

    def _look_below(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        """Find out whether `.deleted` files of before this leadership hold what is missing in the store."""
        wanted = min((position.next_offset, *(low for low, _ in position.gaps)))
        if wanted >= listing.bases[0]:
            state.retries.looked_below()  # no offset is missing there, so the agent needs no look
            return []
        known = not state.unknown_below(listing) and (wanted >= state.deleted_below_wanted or not state.deleted_below)
        if state.reading_deleted or known:
            return []
        state.reading_deleted = True
        seen = frozenset(state.renamed_by_retention)
        return [
            LookBelow(
                state.partition,
                state.generation,
                leadership,
                listing,
                position.epochs,
                position.next_offset,
                wanted,
                seen,
            )
        ]

    def _gap(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        """Pass what this broker does not hold any more, once two whole listings agree on that."""
        if state.covers(listing, position.next_offset):
            state.gap_seen_at = None
            return []
        patience = self._checkpoint_seconds * _NANOSECONDS
        end, _ = next(state.segments_from(listing, position.next_offset), (listing.bases[0], 0))
        if listing.whole and (state.gap_seen_at is None or state.gap_end <= position.next_offset):
            state.gap_seen_at, state.gap_end = listing.taken_at, end
        if not listing.whole or state.gap_seen_at is None or listing.taken_at - state.gap_seen_at < patience:
            return self._second_look(state)
        if state.reading_deleted or state.unknown_below(listing):
            return []
        end = min(end, state.gap_end)  # two listings must lack an offset, and one does above that
        # What is still being read from an open file may yet be shipped, though its names are gone.
        if state.committing or any(base < end for base in state.in_flight):
            return []
        if state.high_watermark is None or end > state.high_watermark:
            return []
        state.committing = True
        return [PassGap(state.partition, state.generation, leadership, position, listing, end)]

    def _second_look(self, state: PartitionState) -> list[AnyTask]:
        """Another look a checkpoint interval later, if none is pending."""
        if state.retries.look_pending:
            return []
        state.retries.look_pending = True
        return [Rescan(state.partition, state.generation, 0, self._checkpoint_seconds)]

    def _fill(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        """Commit a recorded gap as filled, once every segment of it that this broker holds stands in the store."""
        if state.committing or state.reading_deleted:
            return []
        for gap in position.gaps:
            inside = [base for base, end in state.segments_from(listing, gap[0]) if overlapping((gap,), base, end)]
            if inside and all(base in state.shipped_into_gaps for base in inside):
                state.committing = True
                state.gap_being_filled = gap
                run = tuple(state.shipped_into_gaps[base] for base in inside)
                return [FillGap(state.partition, state.generation, leadership, position, listing, gap, run)]
        return []
