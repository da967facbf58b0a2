"""Walks a stored run whose end no agent's commit has (protocol rules 8 and 12).

Two cases: a Java uploader wrote the commit, which names a segment and no end; or segments exist without a commit, since
the agent that shipped them was killed before its first one. The end is never guessed: it is the end of the last segment
that continues the run without a hole, by each segment's metadata or content.

A Java uploader writes without conditions. On a broker that has just lost its leadership it continues with its queue,
and may overwrite a committed segment with its own, shorter one. Then a hole opens below the next offset. It is reported
and recorded, and the broker that has these offsets ships them again, as it fills any recorded gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart
from ts_common.archive.commit import Commit, ForeignCommit, epoch_of
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.gap_records import merged
from ts_common.archive.plan import Hole, unite
from ts_common.archive.view import living_line
from ts_common.store.contract import ObjectStore
from ts_uploader.log_dirs.local_log import last_stable_offset
from ts_uploader.messages.observations import Leadership, Listing

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Run:
    """The stored segments that follow each other without a hole.

    Attributes:
        next_offset: the end of the last.
        highest_base: greatest base offset among them; None without segments.
        holes: ranges `[from, to)` below it that this agent's last commit covered, and that no segment covers any more.
        ends: of all stored segments that can be described.
        latest_epoch: the highest leader epoch of any of these, in its name or in a batch; -1 without one.
    """

    next_offset: int
    highest_base: int | None
    epochs: EpochHistory
    holes: tuple[tuple[int, int], ...] = ()
    ends: tuple[int, ...] = ()
    latest_epoch: int = NO_EPOCH


def walk_run(store: ObjectStore, catalog: PartitionCatalog, start: int, known: Commit | None = None) -> Run:
    """Return the run from `start` on.

    With a foreign commit the run ends at most with the segment that the commit names: segments above were not
    committed, and may be incomplete. Without a commit, a `.log` object marks its segment as complete. The last commit
    of this agent stays true up to its next offset, whatever overwrote its segments.

    A hole ends the run, unless a gap record has the same range.

    Raises:
        StoreUnavailable, AccessDenied, ObjectNotFound: the store's.
    """
    damaged: list[str] = []
    copies = describe(store, catalog.keys, catalog.segments, catalog.cache_objects, damaged=damaged)
    for told in damaged:
        _log.error("stored_segment_skipped", message="it is damaged", reason=told)
    ends = tuple(copy.end for copy in copies)
    latest = _latest_epoch(catalog, copies)
    if isinstance(catalog.commit, ForeignCommit):
        highest = max(catalog.commit.highest_base, -1 if known is None else known.highest_base)
        copies = tuple(copy for copy in copies if copy.base <= highest)
    line = living_line(copies)
    position, highest_base = start, -1
    holes: list[tuple[int, int]] = []
    if known is not None:
        line = known.epochs.below(known.next_offset).continued(line, known.next_offset)
        position, highest_base = known.next_offset, known.highest_base
        holes = [(step.start, step.end) for step in unite(copies, line, start, position, catalog.gaps) if _is_new(step)]
    end = max((copy.end for copy in copies), default=position)
    for step in unite(copies, line, position, end, catalog.gaps):
        if _is_new(step):
            break
        position = step.end
        if not isinstance(step, Hole):
            highest_base = max([highest_base, *(copy.base for copy in step.copies)])
    return Run(position, highest_base if highest_base >= 0 else None, line.below(position), merged(holes), ends, latest)


def _is_new(step: object) -> bool:
    """Return whether a step is a hole without a gap record."""
    return isinstance(step, Hole) and not step.recorded


def _latest_epoch(catalog: PartitionCatalog, copies: Iterable[SegmentCopy]) -> int:
    named = (segment.name.epoch for segment in catalog.segments if segment.name.epoch is not None)
    return max((*named, *(epoch for copy in copies for epoch, _ in copy.metadata.epochs or ())), default=NO_EPOCH)


def still_true(known: Commit | None, leadership: Leadership, log_start: StoredLogStart | None) -> Commit | None:
    """Return the agent's last commit, unless another leader moved the commit back since.

    `log.start` shows that: no commit moves on under a lineage before `log.start` has it.

    Args:
        known: the last commit that the agent wrote or read, in any leadership.
    """
    if known is None or known.topic_id != leadership.topic_id:
        return None
    lineage = log_start.content.lineage if log_start is not None else None
    return known if lineage == known.lineage or epoch_of(lineage) < epoch_of(known.lineage) else None


def first_commit(commit: Commit, known: Commit | None, listing: Listing) -> Commit:
    """Return the first commit of a run that was walked, with its last stable offset.

    Args:
        commit: complete but for that.
        known: the agent's last commit; its tail and last stable offset stay true if the run still ends there.
    """
    if known is not None and ends_alike(known, commit):
        return replace(commit, last_stable_offset=known.last_stable_offset, tail=known.tail)
    return replace(commit, last_stable_offset=last_stable_offset(listing.directory, commit.next_offset))


def ends_alike(known: Commit, commit: Commit) -> bool:
    """Return whether the end of the run in `known` (tail, last stable offset) is also that of `commit`."""
    return (known.next_offset, known.topic_id) == (commit.next_offset, commit.topic_id)
