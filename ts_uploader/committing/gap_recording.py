"""What exists nowhere any more, found out and recorded (protocol rule 10).

A gap is what lies between the next offset and the first offset that this broker holds, less what stands in the store by
now: segments of an earlier leader epoch that were shipped and never committed. The records go up before the commit that
passes them, so that no hole below the next offset is ever without its reason.

What was committed, and is in the store no more (a Java uploader wrote over it), is recorded likewise, though brokers
may hold it still: only the store can tell every later asker that it is to be filled.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory, epoch_borne
from ts_common.archive.gap_records import Gap, merged
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole, unite
from ts_common.archive.view import living_line
from ts_common.errors import PreconditionFailed
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_uploader.events import Listing
from ts_uploader.log_dirs.hanging import goes_on_with
from ts_uploader.log_dirs.local_log import local_epochs, log_start_by_request
from ts_uploader.tasks import Position

GONE_AGAIN = (
    "what was committed here is in the store no more: a Java uploader wrote a shorter segment over it, or it was "
    "removed; a broker that still holds it ships it again"
)
ENDED = (
    "what the archive held here is of another leader, whose records an election lost; a broker that has the right ones "
    "ships them"
)
_BY_REQUEST = "DeleteRecords moved the log start to {} before the segments were shipped"
_BY_RETENTION = "retention or DeleteRecords took the segments before they were shipped"
_MILLISECONDS = 1000
_NEAREST = 8  # two leaders' segments and their variants

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Loss:
    """What a commit passes that the run did not reach.

    Attributes:
        gaps: ranges `[from, to)` that exist nowhere.
        bases: base offsets of stored segments that hold what lies between them.
        epochs: the run's, up to where the commit goes, as far as they are known.
        reason: one line.
        by_request: DeleteRecords took them.
    """

    gaps: tuple[tuple[int, int], ...]
    bases: tuple[int, ...]
    epochs: EpochHistory
    reason: str
    by_request: bool


def describe_loss(
    store: ObjectStore, catalog: PartitionCatalog, position: Position, listing: Listing, end: int
) -> Loss:
    """What of `[next offset, end)` exists nowhere.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that stand there.
    """
    start = position.next_offset
    below = [segment for segment in catalog.segments if segment.name.base < end]
    copies = [copy for copy in describe_readable(store, catalog, below) if copy.end > start]
    local = local_epochs(listing.directory) or EpochHistory()
    # Epochs never fall as offsets rise: below what this log holds nothing of a higher one lives. Compaction may have
    # emptied its first segments, and a follower's list names an epoch from the first batch that was left.
    found, named = goes_on_with(listing, end), local.at(end)
    # No CRC covers a batch's epoch, so a higher one in the broker's list overrides it. If the list begins inside the
    # lowest live segment, that segment may begin with a dead tail.
    listed = named if named is not None else local.pairs[0][0] if local.pairs else None
    is_cut_off = named is None and end < listing.bases[0]
    most, epochs = listed, position.epochs
    if found is not None and found != NO_EPOCH and (listed is None or found >= listed or is_cut_off):
        # What a commit that was taken back names above that was lost, too.
        most = found
        epochs = EpochHistory(tuple(pair for pair in epochs if pair[1] < start or pair[0] <= found or pair[1] >= end))
    line = living_line(copies, most=most)
    if epochs.pairs and epochs.pairs[0][1] > start:
        # Where a commit that was taken back names none, the copies do, as where no commit has a list.
        first, begin = epochs.pairs[0]
        lower = living_line(copies, most=first if most is None else min(first, most))
        epochs = lower.from_offset(start).below(begin).continued(epochs, begin)
    if epochs.pairs and epochs.pairs[-1][1] >= start:
        # A commit that was taken back names the leaderships that follow its next offset, up to the one that took it
        # back: what an election lost stays lost.
        epoch, begin = epochs.pairs[-1]
        epochs = EpochHistory((*epochs.pairs, *(pair for pair in line if pair[0] > epoch and pair[1] > begin)))
    else:
        epochs = epochs.continued(line, start)
    if local.pairs:  # retention cut it off below what the log still holds
        epochs = epochs.continued(local, max(start, local.pairs[0][1]))
    # The epoch that begins right where the commit will end stays: another leader's log is compared by it.
    epochs = epochs.with_next(position.epochs, end + 1)
    epochs = _vouched(epochs, copies, local, start, end)
    steps = unite(copies, epochs, start, end)
    asked_for = log_start_by_request(listing.log_dir, listing.partition)
    # Retention moves the log start too, to where a segment begins, and a checkpoint of before they went may name that.
    by_request = asked_for is not None and asked_for > listing.bases[0]
    return Loss(
        gaps=merged((step.start, step.end) for step in steps if isinstance(step, Hole)),
        bases=tuple(copy.base for step in steps if not isinstance(step, Hole) for copy in step.copies),
        epochs=epochs,
        reason=_BY_REQUEST.format(asked_for) if by_request else _BY_RETENTION,
        by_request=by_request,
    )


def _vouched(
    epochs: EpochHistory, copies: Iterable[SegmentCopy], local: EpochHistory, start: int, end: int
) -> EpochHistory:
    """The list, with what it gives offsets of `[start, end)` by the copies that go on as this log does.

    What a commit that was taken back names there is of a line that another election may have ended. Such a copy lives
    all the same, by the epoch further up. A list that says otherwise would hide it from where a later leader parts.

    Args:
        epochs: the list.
        copies: what stands in the range.
        local: the epochs of this log.
        start: the next offset; what the list says below it stays.
        end: where the commit goes.
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
    """Write a record for each gap; one that stands there already says the same. Those that are new are told.

    Args:
        store: where the partition lies.
        keys: of the partition.
        gaps: ranges `[from, to)`.
        reason: one line.
        broker: id of the broker beside which the agent runs.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied: the store's.
    """
    new = []
    for start, end in gaps:
        gap = Gap(start, end, reason, int(time.time() * _MILLISECONDS), broker)
        with suppress(PreconditionFailed):
            store.put(keys.gap(start, end), gap.encode(), condition=IfAbsent())
            new.append((start, end))
    return tuple(new)


def fillable(
    gaps: Sequence[tuple[int, int]], next_offset: int, lowest: int, log_start: int = 0
) -> tuple[tuple[int, int], ...]:
    """The recorded gaps below the next offset that reach above the lowest offset of a log: it may hold some of them.

    Below `log.start` nothing is filled: readers never show it, and retention would delete it again.
    """
    shown = ((max(start, log_start), end) for start, end in gaps if end > log_start)
    return tuple(gap for gap in shown if gap[0] < next_offset and gap[1] > lowest)


def still_missing(
    store: ObjectStore, catalog: PartitionCatalog, gaps: Sequence[tuple[int, int]], epochs: EpochHistory
) -> tuple[tuple[int, int], ...]:
    """What of recorded gaps no living copy covers. Records stay for ever, also of gaps that were filled since.

    Of the segments that begin below a gap only the nearest are looked at: what others may cover is shipped once more,
    and found there.

    Args:
        store: where they lie.
        catalog: taken after the records were read.
        gaps: recorded ranges `[from, to)`.
        epochs: the run's.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that stand there.
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
    """The ranges of `[start, end)` that no copy and no gap record answers for by a list of epochs.

    Args:
        store: where the segments lie.
        catalog: what lies there.
        epochs: the list.
        start: of what is asked about.
        end: likewise.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: of the segments that stand there.
    """
    below = [segment for segment in catalog.segments if segment.name.base < end]
    copies = [copy for copy in describe_readable(store, catalog, below) if copy.end > start]
    holes = merged((step.start, step.end) for step in unite(copies, epochs, start, end) if isinstance(step, Hole))
    return tuple(hole for hole in holes if not any(low <= hole[0] and hole[1] <= high for low, high in catalog.gaps))


def describe_readable(
    store: ObjectStore, catalog: PartitionCatalog, segments: Sequence[StoredSegment]
) -> tuple[SegmentCopy, ...]:
    """What stored segments answer for. A damaged object is left out and logged: it bears on nothing but itself.

    Raises:
        ObjectNotFound, StoreUnavailable, AccessDenied: the store's.
    """
    damaged: list[str] = []
    copies = describe(store, catalog.keys, segments, catalog.cache_objects, damaged=damaged)
    for sentence in damaged:
        log.warning("stored_segment_unreadable", reason=sentence)
    return copies
