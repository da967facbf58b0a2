"""Select what an agent does next for one partition, from the partition's state. Pure: no clock, no I/O.

The agent ships segments from the one that contains the next offset, several at once, up to the high watermark. The
commit moves along the run only, whatever later segments did (protocol rules 1 to 4 and 8).

If retention renamed a segment to `.deleted`, the agent still ships it while its files exist. The segment must have been
seen live in this leadership, or hang on the live log (`ts_uploader.log_dirs.hanging`). Offsets that no file contains
become a gap, once two whole listings a checkpoint interval apart agree. If this log has the offsets of a recorded gap,
the agent fills the gap (protocol rule 10). `repair_selection` selects the answers to requests to repair.
"""

from collections.abc import Callable, Mapping

from ts_common.archive.commit import Commit
from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import EpochFile, LastEpoch, Leadership, Listing
from ts_uploader.messages.tasks import (
    AnyTask,
    FillGap,
    ForgetFormer,
    LookBelow,
    PassGap,
    Position,
    ReadPosition,
    Rescan,
    Shipped,
    WriteCommit,
)
from ts_uploader.tracking.partition_state import PartitionState
from ts_uploader.tracking.reasons import missing_precondition
from ts_uploader.tracking.repair_selection import select_repair
from ts_uploader.tracking.shipped_segments import overlapping

# A partition that is behind keeps the upload threads busy. Thousands of such partitions still share threads and memory.
SEGMENTS_IN_FLIGHT = 4
# The default of Kafka's replica.high.watermark.checkpoint.interval.ms.
CHECKPOINT_SECONDS = 5.0
_NANOSECONDS = 1_000_000_000


class TaskSelection:
    """The tasks that can begin for a partition.

    Attributes:
        latest: an archive without a commit begins with the active segment, not with the lowest one.
        idle: the rows of an earlier process, of partitions whose position was not read yet.

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
        segments_in_flight: int,
        checkpoint_seconds: float,
        has_tail: Callable[[str], bool],
    ) -> None:
        self.latest = offset_reset is OffsetReset.LATEST
        self.idle: dict[TopicPartition, Idle] = {}
        self._window = segments_in_flight
        self._checkpoint_seconds = checkpoint_seconds
        self._has_tail = has_tail

    def select(self, state: PartitionState) -> list[AnyTask]:
        """Return every task that can begin now, and mark each as begun in the state."""
        leadership, listing = state.leadership, state.listing
        if leadership is None or listing is None:
            return []
        if listing.swapping:
            state.gap_seen_at = None
        if missing_precondition(state, leadership, listing) is not None:
            return []
        position = state.position
        if position is not None and self._lacks_live(state, leadership, listing, position):
            position = state.position = None
        if position is None:
            return self._position_read(state, leadership, listing)
        return [
            *self._commit(state, leadership, position),
            *self._forget_former(state, leadership, position),
            *self._look_below(state, leadership, listing, position),
            *self._gap(state, leadership, listing, position),
            *self._fill(state, leadership, listing, position),
            *select_repair(state, leadership, listing, position, self._second_listing),
            *self._ships(state, leadership, listing, position),
        ]

    def deferred(self, state: PartitionState) -> Idle | None:
        """Return the row for which the position is read later; None if it is not (protocol rule 8)."""
        row, leadership, listing = self.idle.get(state.partition), state.leadership, state.listing
        if row is None or leadership is None or listing is None or state.high_watermark is None or state.repairs:
            return None
        if (row.epoch, row.topic_id) != (leadership.epoch, leadership.topic_id):
            return None
        at_active = listing.bases[-1:] == (row.next_offset,)  # no closed segment reaches above it, and the log does
        if self._has_tail(state.partition.topic) and row.next_offset < state.high_watermark:
            return None  # there are records for the live tail
        return row if at_active and row.next_offset <= state.high_watermark else None

    def _lacks_live(self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position) -> bool:
        """Return whether the commit is older than the switch of the topic's live tail: then the position is read."""
        if state.committing or not isinstance(position.commit, Commit) or position.commit.live is not None:
            return False
        has_epochs = listing.last_epoch == LastEpoch(EpochFile.READ, leadership.epoch)
        return has_epochs and self._has_tail(state.partition.topic)  # last: it costs the most

    def _position_read(self, state: PartitionState, leadership: Leadership, listing: Listing) -> list[AnyTask]:
        if state.reading_position or state.committing or self.deferred(state) is not None:
            return []
        self.idle.pop(state.partition, None)
        state.reading_position = True
        return [
            ReadPosition(
                state.partition,
                state.generation,
                leadership,
                listing,
                first_base=listing.bases[-1 if self.latest else 0],
                known=state.last_own_commit,
                attempt=state.retries.failures,
                latest=self.latest,
            )
        ]

    def _commit(self, state: PartitionState, leadership: Leadership, position: Position) -> list[AnyTask]:
        run = state.run(position.next_offset)
        if not run or state.committing:
            return []
        state.committing = True
        return [WriteCommit(state.partition, state.generation, leadership, position, run)]

    def _forget_former(self, state: PartitionState, leadership: Leadership, position: Position) -> list[AnyTask]:
        if state.covered_from is None or position.next_offset < state.covered_from or state.committing:
            return []
        state.covered_from = None
        live = position.commit.live if isinstance(position.commit, Commit) else None
        if live is None or all(epoch == leadership.epoch for _, epoch in live.former):
            return []
        state.committing = True
        return [ForgetFormer(state.partition, state.generation, leadership, position)]

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
            # The last batch of a closed segment ends at or below the next base, so the next base bounds the coverage.
            if state.high_watermark is None or next_base > state.high_watermark:
                break
            if not self._has_room(state, position, base):
                break
            if not _is_begun(state, base, state.shipped if ahead else state.shipped_into_gaps):
                state.in_flight |= {base}
                tasks.append(state.ship(leadership, listing, position, (base, next_base), gaps))
        return tasks

    def _has_room(self, state: PartitionState, position: Position, base: int) -> bool:
        """Return whether a segment may be shipped in addition to those in flight.

        Segments far above one that keeps failing gain nothing. The failing one itself is always retried.
        """
        if len(state.in_flight) >= self._window:
            return False
        done = len(state.shipped) + len(state.retries.held_back)
        return base <= position.next_offset or done < 2 * self._window

    def _look_below(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        """Read whether `.deleted` files from before this leadership contain offsets that the store lacks."""
        repairs = (max(request.start, position.log_start) for request in state.repairs)
        wanted = min((position.next_offset, *(low for low, _ in position.gaps), *repairs))
        if wanted >= listing.bases[0]:
            state.retries.looked_below()  # no offset is missing below the live files
            return []
        read = not state.has_unread_deleted(listing) and (
            wanted >= state.deleted_below_wanted or not state.deleted_below
        )
        if state.reading_deleted or read:
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
        """Pass offsets that this broker no longer has, once two whole listings agree that they are missing."""
        if state.covers(listing, position.next_offset):
            state.gap_seen_at = None
            return []
        interval = self._checkpoint_seconds * _NANOSECONDS
        end, _ = next(state.segments_from(listing, position.next_offset), (listing.bases[0], 0))
        if listing.whole and (state.gap_seen_at is None or state.gap_end <= position.next_offset):
            state.gap_seen_at, state.gap_end = listing.taken_at, end
        if not listing.whole or state.gap_seen_at is None or listing.taken_at - state.gap_seen_at < interval:
            return self._second_listing(state)
        if state.reading_deleted or state.has_unread_deleted(listing):
            return []
        end = min(end, state.gap_end)  # both listings must lack each offset of the gap
        # An upload may still read a file whose names no longer exist.
        if state.committing or any(base < end for base in state.in_flight):
            return []
        if state.high_watermark is None or end > state.high_watermark:
            return []
        state.committing = True
        return [PassGap(state.partition, state.generation, leadership, position, listing, end)]

    def _second_listing(self, state: PartitionState) -> list[AnyTask]:
        """Schedule a listing one checkpoint interval later, unless one is pending."""
        if state.retries.look_pending:
            return []
        state.retries.look_pending = True
        return [Rescan(state.partition, state.generation, 0, self._checkpoint_seconds)]

    def _fill(
        self, state: PartitionState, leadership: Leadership, listing: Listing, position: Position
    ) -> list[AnyTask]:
        """Commit a recorded gap as filled, once the store has every segment of it that this broker has."""
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


def _is_begun(state: PartitionState, base: int, shipped: Mapping[int, Shipped]) -> bool:
    """Return whether a segment is in flight, shipped or being repaired, or waits for a listing."""
    return any(base in each for each in (state.in_flight, shipped, state.retries.held_back, state.repairing or ()))
