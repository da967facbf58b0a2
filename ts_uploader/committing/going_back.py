"""Moves a commit back, and `log.start` after it (protocol rule 5).

Two objects change in order: first the commit, under a new lineage, then `log.start` with the same lineage. Readers join
the two by their lineages. So an agent that is killed in between leaves a correct view, and the next agent that reads
the position writes `log.start`. The model in `tests/lineage` searches every order of single store operations.
"""

from collections.abc import Iterable
from dataclasses import replace

import structlog

from ts_common.archive.catalog import StoredLogStart
from ts_common.archive.commit import Commit, Lineage, LogStart, epoch_of
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import IfMatch, ObjectStore
from ts_uploader.committing.divergence import first_disagreement, log_epochs, past_end, rewound
from ts_uploader.committing.next_commit import next_commit
from ts_uploader.committing.restored_log import RestoredLog
from ts_uploader.log_dirs.local_log import last_stable_offset, log_end
from ts_uploader.messages.observations import Leadership, Listing
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Position

log = structlog.get_logger()


def check_lineage(start: StoredLogStart, keys: PartitionKeys, leadership: Leadership) -> None:
    """Check that an agent's leader epoch is not below that of the lineage of `log.start`.

    Raises:
        FencedLeaderEpoch: a later leader's agent moved the commit back.
    """
    epoch = epoch_of(start.content.lineage)
    if epoch > leadership.epoch:
        raise FencedLeaderEpoch(
            f"{keys.log_start} has a lineage of leader epoch {epoch}, this broker leads in {leadership.epoch}"
        )


def check_later_segments(latest_epoch: int, keys: PartitionKeys, leadership: Leadership) -> None:
    """Check that an agent's leader epoch is not below that of any stored segment, before it rebuilds a commit.

    A late agent would use a later leader's segment as its own: a deletion in progress may still name it.

    Raises:
        FencedLeaderEpoch: a later leader's agent shipped here.
    """
    if latest_epoch > leadership.epoch:
        raise FencedLeaderEpoch(
            f"{keys.prefix} has a segment of leader epoch {latest_epoch}, and no commit to continue; this broker leads "
            f"in {leadership.epoch}"
        )


def must_go_back(commit: Commit, start: LogStart) -> bool:
    """Return whether a commit goes back though the log agrees with all of it.

    - A late agent wrote it again, under an older lineage than that of `log.start`.
    - `log.start` of its own lineage is above its next offset, which only a lost commit leaves behind.
    - `log.start` of an older lineage is above its third element: retention moved it there while the commit was lost,
      and may delete segments below it that are shipped now under plain names.
    """
    if epoch_of(start.lineage) > epoch_of(commit.lineage):
        return True
    if start.lineage == commit.lineage:
        return start.offset > commit.next_offset
    return commit.lineage is not None and start.offset > commit.lineage.highest


def rebuilt_end(
    store: ObjectStore,
    position: Position,
    start: LogStart,
    listing: Listing,
    leadership: Leadership,
    stored: Iterable[int] = (),
    restored: RestoredLog | None = None,
    *,
    latest: bool = False,
) -> int:
    """Return where a commit goes back to that is rebuilt from the segments: the lowest offset of any doubt.

    KIP-279 compares the ends of lists of one line. A walk can have mixed two lines, so the lists are compared at each
    offset too. If `log.start` is above the offset where the archive would begin now, an earlier lineage may have moved
    it there. With LATEST it is usually above the log's own start; it was moved only if segments below it were shipped.

    Args:
        position: the result of the walk over the segments.
        start: the stored `log.start`.
        listing: of the leader's log.
        stored: the bases of all segments in the store.
        restored: what a restore put into the log; None if the partition began without one.
        latest: the archive began with the active segment, not with the lowest one.

    Raises:
        SegmentChanged, CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: as `past_end`.
    """
    end = position.next_offset
    if position.highest_base is not None:
        end = min(end, past_end(store, position, listing, leadership))
    differing = first_disagreement(position.epochs, end, listing)
    if differing is not None:
        end = min(end, differing)
    if latest and restored is None:
        shipped = (base for base in stored if listing.bases[0] <= base < start.offset)
        end = min((end, *shipped))
    below = begins_below(start, listing, restored, latest=latest)
    return end if below is None else min(end, below)


def begins_below(start: LogStart, listing: Listing, restored: RestoredLog | None, *, latest: bool) -> int | None:
    """Return where an archive without commit and segments has to begin if its `log.start` is too high; else None.

    Args:
        start: written before any segment was shipped.
        listing: of the leader's log.
        restored: as of `rebuilt_end`; the archive begins where what is left of it ends.
        latest: the archive begins with the active segment, not with the lowest one.

    Raises:
        SegmentChanged: the active segment no longer exists: list again.
    """
    if restored is not None:
        lowest = max(listing.bases[0], restored.held_end)
        return lowest if start.offset > lowest else None
    if not latest:
        return listing.bases[0] if start.offset > listing.bases[0] else None
    active = listing.bases[-1]
    if start.offset > active and log_end(listing.directory, active) < start.offset:
        return active
    return None


def gone_back(
    position: Position,
    end: int,
    listing: Listing,
    leadership: Leadership,
    broker: int,
    bases: Iterable[int],
    start: LogStart,
    ends: Iterable[int] = (),
) -> Commit:
    """Return the commit that goes back to `end`, under a new lineage.

    Args:
        position: the commit that it replaces, or the run that was walked.
        end: the new next offset, not above the old one.
        listing: of the leader's log.
        bases: base offsets of the stored segments.
        start: the content of `log.start`.
        ends: ends of the stored segments, if the commit is rebuilt.
    """
    carried = (lineage.highest for lineage in (position.lineage, start.lineage) if lineage is not None)
    highest = max((position.next_offset, start.offset, *carried, *ends))
    highest_base = position.highest_base
    if end < position.next_offset or highest_base is None:
        highest_base = max((base for base in bases if base < end), default=min(position.log_start, end))
    containing = max((base for base in listing.bases if base <= end), default=end)
    return replace(
        next_commit(position, (), leadership, broker),
        highest_base=highest_base,
        next_offset=end,
        epochs=rewound(position.epochs, end, log_epochs(position, listing)),
        last_stable_offset=last_stable_offset(listing.directory, containing),
        tail=None,
        lineage=Lineage(leadership.epoch, end, highest),
    )


def settle_log_start(
    store: ObjectStore, keys: PartitionKeys, start: StoredLogStart, lineage: Lineage, held: int
) -> LogStart:
    """Write `log.start` with the commit's lineage, on the ETag that was read; return its content.

    Readers then begin at the lowest offset of this leader at or above the one where the commit went back, or lower if
    `log.start` was lower before. It is written even if the number stays: its lineage fences late writers.

    Args:
        start: as it was read.
        held: the lowest offset of this leader from there on, live or in a `.deleted` file that hangs.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent may have written it: read commit and `log.start` again.
        StoreUnavailable, AccessDenied: the store's.
    """
    settled = start.content.in_lineage(lineage, min(start.content.offset, held))
    store.put(keys.log_start, settled.encode(), condition=IfMatch(start.etag))
    log.warning(
        "log_start_rewritten",
        key=keys.log_start,
        before=start.content.offset,
        log_start=settled.offset,
        lineage=lineage.encode(),
    )
    return settled
