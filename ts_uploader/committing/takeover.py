"""Walking a run in the store, where no commit of ours says where it ends (protocol rules 8 and 12).

Two cases: a Java uploader wrote the commit, which names a segment and no end; or segments stand without a commit, since
the agent that shipped them was killed before its first one. Either way the end is never guessed: it is the end of the
last segment that joins on without a hole, by what each segment says or holds.

A Java uploader knows no conditions. On a broker that has just lost its leadership it goes on with what it had queued,
and may write its own, shorter, segment over one that is committed here. Then a hole opens below the next offset: it
is told and recorded, and the broker that holds these offsets ships them once more, as it fills any recorded gap.
"""

from dataclasses import dataclass, replace

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.copies import describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.gap_records import merged
from ts_common.archive.lineage import epoch_of
from ts_common.archive.plan import Hole, unite
from ts_common.archive.view import living_line
from ts_common.store.contract import ObjectStore
from ts_uploader.events import Leadership, Listing
from ts_uploader.log_dirs.local_log import last_stable_offset

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Run:
    """The segments of a store that follow each other without a hole.

    Attributes:
        next_offset: the end of the last.
        highest_base: greatest base offset among them; None where there is none.
        epochs: of their batches.
        holes: ranges `[from, to)` below it that our last commit held, and that no segment covers any more.
        ends: of all stored segments that can be described.
        latest_epoch: the highest leader epoch that any of these bears, in its name or in a batch; -1 without one.
    """

    next_offset: int
    highest_base: int | None
    epochs: EpochHistory
    holes: tuple[tuple[int, int], ...] = ()
    ends: tuple[int, ...] = ()
    latest_epoch: int = NO_EPOCH


def walk_run(store: ObjectStore, catalog: PartitionCatalog, start: int, known: Commit | None = None) -> Run:
    """The run from `start` on.

    With a foreign commit it goes no further than the segment that this names: what stands above was not committed,
    and a segment is only whole when its uploader says so. Without a commit a `.log` object is the sign that its segment
    is whole. What our own last commit said stays true up to its next offset, whoever wrote over it.

    A hole ends the run, unless a gap record says that it exists nowhere.

    Raises:
        StoreUnavailable, AccessDenied, ObjectNotFound: the store's.
    """
    damaged: list[str] = []
    copies = describe(store, catalog.keys, catalog.segments, catalog.cache_objects, damaged=damaged)
    for told in damaged:
        _log.error("stored_segment_skipped", message="it is damaged", reason=told)
    ends = tuple(copy.end for copy in copies)
    named = (segment.name.epoch for segment in catalog.segments if segment.name.epoch is not None)
    latest = max((*named, *(epoch for copy in copies for epoch, _ in copy.metadata.epochs or ())), default=NO_EPOCH)
    if isinstance(catalog.commit, ForeignCommit):
        highest = catalog.commit.highest_base
        if known is not None:
            highest = max(highest, known.highest_base)
        copies = tuple(copy for copy in copies if copy.base <= highest)
    line = living_line(copies)
    position, highest_base = start, None
    holes: list[tuple[int, int]] = []
    if known is not None:
        line = known.epochs.below(known.next_offset).continued(line, known.next_offset)
        position, highest_base = known.next_offset, known.highest_base
        below = unite(copies, line, start, position, catalog.gaps)
        holes = [(step.start, step.end) for step in below if isinstance(step, Hole) and not step.recorded]
    end = max((copy.end for copy in copies), default=position)
    for step in unite(copies, line, position, end, catalog.gaps):
        if isinstance(step, Hole):
            if not step.recorded:
                break
            bases = []
        else:
            bases = [copy.base for copy in step.copies]
        position = step.end
        highest_base = max((base for base in (highest_base, *bases) if base is not None), default=None)
    return Run(position, highest_base, line.below(position), merged(holes), ends, latest)


def still_true(known: Commit | None, leadership: Leadership, log_start: StoredLogStart | None) -> Commit | None:
    """The last commit that this agent knew, where no other leader took the commit back since.

    `log.start` shows that: no commit moves on under a lineage before `log.start` has it.

    Args:
        known: as the agent remembers it, over leaderships.
        leadership: the present one.
        log_start: as it is in the store.
    """
    if known is None or known.topic_id != leadership.topic_id:
        return None
    lineage = log_start.content.lineage if log_start is not None else None
    return known if lineage == known.lineage or epoch_of(lineage) < epoch_of(known.lineage) else None


def first_commit(commit: Commit, known: Commit | None, listing: Listing) -> Commit:
    """The first commit of a run that was walked, with its last stable offset.

    Args:
        commit: with everything else.
        known: our last one; what it says of the run's end stays true where the run still ends there.
        listing: of the broker's log.
    """
    if known is not None and ends_alike(known, commit):
        return replace(commit, last_stable_offset=known.last_stable_offset, tail=known.tail)
    return replace(commit, last_stable_offset=last_stable_offset(listing.directory, commit.next_offset))


def ends_alike(known: Commit, commit: Commit) -> bool:
    """Whether what a commit that this agent knew says of its run's end is true of another commit's."""
    return (known.next_offset, known.topic_id) == (commit.next_offset, commit.topic_id)
