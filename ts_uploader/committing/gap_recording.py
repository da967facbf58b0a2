"""Finds and records gaps: offsets that no broker holds any more (protocol rule 10).

A gap is the range from the next offset to the first offset of this broker, without the segments that the store has by
now: those of an earlier leader epoch that were shipped and never committed. The records are written before the commit
that passes them, so that each hole below the next offset has its reason.

Offsets that were committed and are no longer in the store (a Java uploader overwrote them) are recorded in the same
way, though brokers may still have them: only the store can notify each later agent that they have to be filled.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory, epoch_borne
from ts_common.archive.gap_records import Gap, merged
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole, unite
from ts_common.archive.view import living_line
from ts_common.errors import PreconditionFailed
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_uploader.log_dirs.hanging import goes_on_with
from ts_uploader.log_dirs.local_log import local_epochs, log_start_by_request
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.tasks import Position

GONE_AGAIN = (
    "these offsets were committed and are no longer in the store: a Java uploader overwrote them with a shorter "
    "segment, or an object was removed; a broker that still has them ships them again"
)
ENDED = (
    "the archive had these offsets of another leader, whose records an election lost; a broker that has the right ones "
    "ships them"
)
_BY_REQUEST = "DeleteRecords moved the log start to {} before the segments were shipped"
_BY_RETENTION = "retention or DeleteRecords removed the segments before they were shipped"
_MILLISECONDS = 1000
_NEAREST = 8  # two leaders' segments and their variants

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Loss:
    """A range that a commit passes although the run does not contain it.

    Attributes:
        gaps: ranges `[from, to)` that exist nowhere.
        bases: base offsets of stored segments that contain the offsets between them.
        epochs: the run's, up to the new next offset, as far as they are known.
        reason: one line.
        by_request: DeleteRecords removed the records.
    """

    gaps: tuple[tuple[int, int], ...]
    bases: tuple[int, ...]
    epochs: EpochHistory
    reason: str
    by_request: bool


def describe_loss(
    store: ObjectStore, catalog: PartitionCatalog, position: Position, listing: Listing, end: int
) -> Loss:
    """Return which offsets of `[next offset, end)` exist nowhere.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that are stored there.
    """
    start = position.next_offset
    below = [segment for segment in catalog.segments if segment.name.base < end]
    copies = [copy for copy in describe_readable(store, catalog, below) if copy.end > start]
    local = line_of(position, local_epochs(listing.directory) or EpochHistory())
    epochs = _vouched(_epochs_across(position, copies, local, listing, end), copies, local, start, end)
    steps = unite(copies, epochs, start, end)
    asked_for = log_start_by_request(listing.log_dir, listing.partition)
    # Retention moves the log start too, to the base of a segment, and an older checkpoint may have that offset.
    by_request = asked_for is not None and asked_for > listing.bases[0]
    return Loss(
        gaps=merged((step.start, step.end) for step in steps if isinstance(step, Hole)),
        bases=tuple(copy.base for step in steps if not isinstance(step, Hole) for copy in step.copies),
        epochs=epochs,
        reason=_BY_REQUEST.format(asked_for) if by_request else _BY_RETENTION,
        by_request=by_request,
    )


def line_of(position: Position, local: EpochHistory) -> EpochHistory:
    """Return the epochs of a log, with those that its list has lost since the commit: retention cuts it."""
    live = position.commit.live if isinstance(position.commit, Commit) else None
    if live is None or not local.pairs:
        return local
    return live.ahead.continued(local, local.pairs[0][1])


def _epochs_across(
    position: Position, copies: Sequence[SegmentCopy], local: EpochHistory, listing: Listing, end: int
) -> EpochHistory:
    """Return the run's epochs, continued by those of the copies above its end, and by the broker's list up to `end`."""
    start = position.next_offset
    most, epochs = _highest_living(position, local, listing, end)
    line = living_line(copies, most=most)
    if epochs.pairs and epochs.pairs[0][1] > start:
        # If a commit that went back has no epoch there, the copies have, as in a run without a list.
        first, begin = epochs.pairs[0]
        lower = living_line(copies, most=first if most is None else min(first, most))
        epochs = lower.from_offset(start).below(begin).continued(epochs, begin)
    if epochs.pairs and epochs.pairs[-1][1] >= start:
        # A commit that went back names the leaderships that follow its next offset, up to the one that
        # moved it back. Records that an election lost stay lost.
        epoch, begin = epochs.pairs[-1]
        epochs = EpochHistory((*epochs.pairs, *(pair for pair in line if pair[0] > epoch and pair[1] > begin)))
    else:
        epochs = epochs.continued(line, start)
    if local.pairs:  # retention cut the list; the log may begin below it
        epochs = epochs.continued(local, max(start, local.pairs[0][1]))
    # The epoch that begins right at the end of the commit stays: another leader's log is compared by it.
    return epochs.with_next(position.epochs, end + 1)


def _highest_living(
    position: Position, local: EpochHistory, listing: Listing, end: int
) -> tuple[int | None, EpochHistory]:
    """Return the highest epoch that live records below `end` can have, and the run's epochs up to it.

    None means that the epoch is unknown.
    """
    start, epochs = position.next_offset, position.epochs
    # Epochs never fall as offsets rise: below this log no record of a higher epoch is live. Compaction may have
    # emptied its first segments, and a follower's list names an epoch from the first batch that was left.
    found, named = goes_on_with(listing, end), local.at(end)
    # No CRC covers a batch's epoch, so a higher one in the broker's list overrides it. If the list begins inside the
    # lowest live segment, that segment may begin with a dead tail.
    listed = named if named is not None else local.pairs[0][0] if local.pairs else None
    is_cut_off = named is None and end < listing.bases[0]
    if found is not None and found != NO_EPOCH and (listed is None or found >= listed or is_cut_off):
        # Epochs above that, which a commit that went back names, were lost too.
        kept = tuple(pair for pair in epochs if pair[1] < start or pair[0] <= found or pair[1] >= end)
        return found, EpochHistory(kept)
    return listed, epochs


def _vouched(
    epochs: EpochHistory, copies: Iterable[SegmentCopy], local: EpochHistory, start: int, end: int
) -> EpochHistory:
    """Return the list, corrected in `[start, end)` by the copies that continue as this log does.

    The epochs that a commit that went back names there are of a line that another election may have ended. Such a
    copy is live all the same, by the epoch further up. A list that contradicts it would hide it from the offset where a
    later leader parts.

    Args:
        copies: the stored copies in the range.
        local: the epochs of this log.
        start: the next offset; the list is unchanged below it.
        end: the new next offset.
    """
    if not local.pairs:
        return epochs
    here = max(end, local.pairs[0][1])
    before = max((epoch for epoch, _ in epochs.below(start)), default=NO_EPOCH)
    for copy in copies:
        theirs = copy.metadata.epochs or ()
        if copy.end <= here or epoch_borne(theirs, here) != local.at(here):
            continue
        for epoch, first in theirs:
            if start <= first < end and epoch >= max(before, 0) and epochs.at(first) not in {None, epoch}:
                epochs = epochs.with_evidence(epoch, first)
    return epochs


def record_gaps(
    store: ObjectStore, keys: PartitionKeys, gaps: Iterable[tuple[int, int]], reason: str, broker: int
) -> tuple[tuple[int, int], ...]:
    """Write a record for each gap, except for recorded ones; return the ranges that are new.

    Args:
        gaps: ranges `[from, to)`.
        reason: one line.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied: the store's.
    """
    new = []
    for start, end in gaps:
        gap = Gap(start, end, reason, int(time.time() * _MILLISECONDS), broker)
        with suppress(PreconditionFailed):
            store.put(keys.gap(start, end), gap.encode(), condition=IfAbsent(), archived=True)
            new.append((start, end))
    return tuple(new)


def fillable(
    gaps: Sequence[tuple[int, int]], next_offset: int, lowest: int, log_start: int = 0
) -> tuple[tuple[int, int], ...]:
    """Return the recorded gaps below the next offset that a log reaches: it may contain some of their offsets.

    Below `log.start` no gap is filled: readers never return it, and retention would delete it again.
    """
    shown = ((max(start, log_start), end) for start, end in gaps if end > log_start)
    return tuple(gap for gap in shown if gap[0] < next_offset and gap[1] > lowest)


def still_missing(
    store: ObjectStore, catalog: PartitionCatalog, gaps: Sequence[tuple[int, int]], epochs: EpochHistory
) -> tuple[tuple[int, int], ...]:
    """Return the parts of recorded gaps that no live copy covers; records are permanent, also of filled gaps.

    Of the segments that begin below a gap only the nearest are read: offsets that others may cover are shipped again,
    and found in the store then.

    Args:
        catalog: read after the records.
        gaps: recorded ranges `[from, to)`.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that are stored there.
    """
    missing: list[tuple[int, int]] = []
    for start, end in gaps:
        first = bisect_right(catalog.segments, start, key=lambda segment: segment.name.base)
        last = bisect_left(catalog.segments, end, key=lambda segment: segment.name.base)
        copies = describe_readable(store, catalog, catalog.segments[max(0, first - _NEAREST) : last])
        missing += [(step.start, step.end) for step in unite(copies, epochs, start, end) if isinstance(step, Hole)]
    return merged(missing)


def unanswered(
    store: ObjectStore, catalog: PartitionCatalog, epochs: EpochHistory, start: int, end: int
) -> tuple[tuple[int, int], ...]:
    """Return the ranges of `[start, end)` without a gap record that no copy covers, by a list of epochs.

    Args:
        start: begin of the range.
        end: end of the range.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that are stored there.
    """
    below = [segment for segment in catalog.segments if segment.name.base < end]
    copies = [copy for copy in describe_readable(store, catalog, below) if copy.end > start]
    holes = merged((step.start, step.end) for step in unite(copies, epochs, start, end) if isinstance(step, Hole))
    return tuple(hole for hole in holes if not any(low <= hole[0] and hole[1] <= high for low, high in catalog.gaps))


def describe_readable(
    store: ObjectStore, catalog: PartitionCatalog, segments: Sequence[StoredSegment]
) -> tuple[SegmentCopy, ...]:
    """Return what stored segments cover; a damaged object is left out and logged, since it bears on no other object.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: the store's.
    """
    damaged: list[str] = []
    copies = describe(store, catalog.keys, segments, catalog.cache_objects, damaged=damaged)
    for sentence in damaged:
        log.warning("stored_segment_unreadable", reason=sentence)
    return copies
