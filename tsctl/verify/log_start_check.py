"""Compares `log.start` with the store: lineages that do not match, and live records that it hides.

An archive from before lineages can hide records permanently. An election moved the commit back below `log.start`, and
the new leader's segments were shipped below it. If the commit's epochs were cut at `log.start`, only these segments
show it: they are below `log.start`, are live by the commit's epochs, and were shipped after `log.start` was written.
Retention moves `log.start` only over segments that were shipped before, and `writtenBy` then names its run. But another
leader's segment that contains `log.start` can be shipped later, and the commit can have the epochs below.

An agent that begins a lineage drops `writtenBy`, and its `log.start` is at most the lineage's `highest`. So where a
`log.start` without `writtenBy` is above that, or has no lineage, retention did not hide the segments that end below it.
"""

from collections.abc import Iterable, Iterator

from ts_common.archive.commit import Commit, Lineage, LogStart, epoch_of
from ts_common.archive.copies import SegmentCopy
from ts_common.wording import counted
from tsctl.verify.finding_kinds import HIDDEN_BELOW_LOG_START, LINEAGE_AHEAD, LINEAGE_BEHIND
from tsctl.verify.findings import Finding
from tsctl.verify.inventory import PartitionListing

_MILLISECONDS = 1000


def check_log_start(
    listing: PartitionListing, copies: Iterable[SegmentCopy], where: str, *, is_restored: bool = False
) -> Iterator[Finding]:
    """Yield the findings about `log.start` of a partition with an agent's commit.

    Args:
        copies: what each of its segments covers.
        where: the partition's name in findings.
        is_restored: whether readers return the records below `log.start` from a former place.
    """
    stored, commit = listing.catalog.stored_log_start, listing.catalog.commit
    if stored is None or not isinstance(commit, Commit):
        return
    yield from _lineages(listing, stored.content.lineage, commit.lineage, where)
    if not is_restored:
        yield from _hidden(listing, copies, commit, stored.content, where)


def _lineages(
    listing: PartitionListing, start: Lineage | None, commit: Lineage | None, where: str
) -> Iterator[Finding]:
    if start == commit:
        return
    detail = f"log.start has {_shown(start)}, offset.wm has {_shown(commit)}"
    kind = LINEAGE_BEHIND if epoch_of(start) < epoch_of(commit) else LINEAGE_AHEAD
    yield Finding(kind, where, detail, listing.catalog.keys.log_start)


def _shown(lineage: Lineage | None) -> str:
    return "no lineage" if lineage is None else f"the lineage {lineage.encode()}"


def _hidden(
    listing: PartitionListing, copies: Iterable[SegmentCopy], commit: Commit, stored: LogStart, where: str
) -> Iterator[Finding]:
    """Yield one finding for all live records below `log.start` that retention did not hide.

    If `log.start` is above the next offset or has another lineage, an agent corrects it. A segment whose epochs are
    unknown, as with --depth listing, proves nothing.
    """
    written, log_start = listing.log_start_written, stored.offset
    fits = listing.catalog.log_start == log_start <= commit.next_offset
    if not fits or written is None or not commit.epochs.pairs:
        return
    # Another leader's segment that contains `log.start` may begin below it. Without lineages and retention, the commit
    # has epochs there only if it went back.
    is_first = stored.lineage is None and stored.written_by is None
    listed = commit.epochs.pairs[0][1] if is_first else log_start
    by_hand = stored.written_by is None and (stored.lineage is None or log_start > stored.lineage.highest)
    hidden = [
        (start, end, copy)
        for copy in copies
        for start, end in [_below(copy, commit, log_start, listed)]
        if start < end and (_shipped(listing, copy) > written or (by_hand and copy.end <= log_start))
    ]
    if hidden:
        is_later = any(_shipped(listing, copy) > written for *_, copy in hidden)
        why = "shipped after log.start was written" if is_later else "which no run of retention moved"
        epochs = sorted({epoch for *_, copy in hidden for epoch, _ in copy.metadata.epochs or ()})
        detail = (
            f"{counted(len(hidden), 'segment')} of leader epoch {', '.join(map(str, epochs))} with live records below "
            f"{log_start}, {why}; the first is {hidden[0][2].key}"
        )
        first, last = min(start for start, _, _ in hidden), max(end for _, end, _ in hidden)
        yield Finding(HIDDEN_BELOW_LOG_START, where, detail, listing.catalog.keys.log_start, first, last)


def _below(copy: SegmentCopy, commit: Commit, log_start: int, listed: int) -> tuple[int, int]:
    """Return live offsets `[start, end)` of a segment below `log.start`; none if its epochs are unknown."""
    start = copy.base if copy.end <= log_start else max(copy.base, listed)
    end = min(commit.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end), log_start)
    return (start, end) if copy.metadata.epochs else (start, start)


def _shipped(listing: PartitionListing, copy: SegmentCopy) -> float:
    """Return when a segment was shipped, in seconds since the epoch; without that time, when it was written."""
    if copy.metadata.shipped is not None:
        return copy.metadata.shipped / _MILLISECONDS
    return listing.modified.get(copy.segment.name.stem, 0.0)
