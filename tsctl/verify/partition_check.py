"""A partition as a whole: what its view lacks, what lies twice or is dead in it, and what belongs to nothing."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gap_records import decode_gap
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.archive.plan import Hole
from ts_common.archive.small_objects import GAP_BYTES, get_small
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from tsctl.verify.copies import Overlap, first_difference, overlaps_of
from tsctl.verify.coverage import Coverage, coverage_of, live_end
from tsctl.verify.findings import (
    COMMIT_NAMES_MISSING,
    COMMIT_STUCK,
    DEAD_TAIL,
    FOREIGN_OBJECT,
    GAP,
    GAP_RECORD_DAMAGED,
    HOLE,
    JAVA_SEGMENTS,
    LOG_START_WRONG,
    METADATA_MISSING,
    NO_COMMIT,
    ORPHAN_CACHE_OBJECT,
    ORPHAN_GAP,
    ORPHAN_INDEX,
    ORPHAN_SEGMENT,
    OVERLAP,
    OVERLAP_DIFFERS,
    UNREADABLE,
    Finding,
    Kind,
)
from tsctl.verify.inventory import PartitionListing
from tsctl.verify.log_start_check import check_log_start
from tsctl.verify.segment_check import Checked
from tsctl.verify.uncommitted import stuck_commit, uncommitted


@dataclass(frozen=True, slots=True)
class Ages:
    """What age means.

    Attributes:
        now: seconds since the epoch.
        old: likewise; what was written before is nothing that an agent has in flight.
        stuck_seconds: how long a commit may take to reach a segment that is uploaded.
    """

    now: float
    old: float
    stuck_seconds: float


def check_partition(
    store: ObjectStore,
    listing: PartitionListing,
    checked: Mapping[StoredSegment, Checked],
    where: str,
    findings: tuple[Finding, ...],
    ages: Ages,
    *,
    compare: bool,
) -> Coverage:
    """Hold a partition's snapshot against what its segments turned out to be.

    Args:
        store: where it lies.
        listing: its snapshot.
        checked: each of its segments, with a copy.
        where: names the partition in findings.
        findings: about its segments.
        ages: what age means.
        compare: whether the records of overlapping copies are compared.

    Raises:
        StoreUnavailable, AccessDenied: the store's.
    """
    catalog = listing.catalog
    copies = {segment: result.copy for segment, result in checked.items() if result.copy is not None}
    view = open_view(store, replace(catalog, segments=tuple(copies)), copies)
    overlaps = list(overlaps_of(view))
    found = [
        *findings,
        *_commit(listing, view, where, ages.old),
        *check_log_start(listing, copies.values(), where),
        *_stuck(listing, where, ages),
        *_missing(store, listing, view, where),
        *_dead(view, where),
        *_twice(store, overlaps, where, compare=compare),
        *_orphans(listing, where, ages.old),
        *_without_metadata(listing, checked, where),
        *foreign_objects(where, listing),
    ]
    ranges = [(overlap.start, overlap.end) for overlap in overlaps]
    return coverage_of(where, catalog, view, listing.modified, ranges, found)


def _commit(listing: PartitionListing, view: PartitionView, where: str, old: float) -> Iterator[Finding]:
    """`offset.wm` and `log.start` are there, and name what is there."""
    catalog = listing.catalog
    keys, commit = catalog.keys, catalog.commit
    if commit is None:
        written = min(listing.modified.values(), default=old)
        if catalog.segments and written < old:
            count = counted(len(catalog.segments), "segment")
            detail = f"{count}, the oldest object written {_ago(old, written)}, and no commit"
            yield Finding(NO_COMMIT, where, detail, keys.commit, catalog.segments[0].name.base)
        return
    if isinstance(commit, ForeignCommit):
        return
    if catalog.log_start is None:
        yield Finding(LOG_START_WRONG, where, "there is a commit, and no log.start", keys.log_start)
    elif catalog.log_start > commit.next_offset:
        detail = f"it names {catalog.log_start}, and the next offset is {commit.next_offset}"
        yield Finding(LOG_START_WRONG, where, detail, keys.log_start, commit.next_offset, catalog.log_start)
    named = commit.highest_base
    if not view.start < named < view.end or any(segment.name.base == named for segment in catalog.segments):
        return
    if not any(isinstance(step, Hole) and step.start <= named < step.end for step in view.plan(named, view.end)):
        detail = f"{keys.commit} names the segment of base offset {named}, and no {named:020d}{LOG_SUFFIX} is there"
        yield Finding(COMMIT_NAMES_MISSING, where, detail, keys.commit, named)


def _stuck(listing: PartitionListing, where: str, ages: Ages) -> Iterator[Finding]:
    """Segments that the commit does not reach, all of them young; old ones are named one by one, or with the commit."""
    written = [listing.modified.get(segment.name.stem, 0.0) for segment in uncommitted(listing.catalog)]
    found = stuck_commit(listing.catalog, written, listing.committed_at, ages.now, ages.stuck_seconds)
    if found is not None and min(written) >= ages.old:
        yield Finding(COMMIT_STUCK, where, str(found), listing.catalog.keys.commit, found.first)


def _missing(store: ObjectStore, listing: PartitionListing, view: PartitionView, where: str) -> Iterator[Finding]:
    """Holes, and gaps that a record explains."""
    for step in view.plan(view.start, view.end):
        if not isinstance(step, Hole):
            continue
        count = counted(step.end - step.start, "offset")
        if step.recorded:
            kind, key, reason = _recorded(store, listing, step)
            yield Finding(kind, where, f"{count}: {reason}", key, step.start, step.end)
        else:
            detail = f"{count} below the next offset {view.end} that no object answers for"
            yield Finding(HOLE, where, detail, listing.catalog.keys.prefix, step.start, step.end)


def _recorded(store: ObjectStore, listing: PartitionListing, hole: Hole) -> tuple[Kind, str | None, str]:
    """What a recorded hole is, the key of a record over it, and the reason that it gives."""
    for start, end, _ in listing.gap_records:
        if start <= hole.start < end:
            key = listing.catalog.keys.gap(start, end)
            try:
                return GAP, key, decode_gap(get_small(store, key, GAP_BYTES)[0], key).reason
            except (CorruptData, NewerFormat) as error:
                return GAP_RECORD_DAMAGED, key, str(error)
            except AccessDenied as error:
                return UNREADABLE, key, str(error)
            except ObjectNotFound:
                return GAP, key, "recorded; the record is gone since it was listed"
    return GAP, None, "recorded"


def _dead(view: PartitionView, where: str) -> Iterator[Finding]:
    for copy in view.copies:
        alive = max(live_end(view, copy), copy.base)
        if alive < copy.end and alive < view.end:
            epoch, lived = _epoch_at(copy, alive), view.epochs.at(alive)
            detail = f"its records from offset {alive} on are of leader epoch {epoch}, and epoch {lived} is what lives"
            yield Finding(DEAD_TAIL, where, detail, copy.key, alive, copy.end)


def _epoch_at(copy: SegmentCopy, offset: int) -> int | None:
    pairs = [epoch for epoch, first in copy.metadata.epochs or () if first <= offset]
    return pairs[-1] if pairs else None


def _twice(store: ObjectStore, overlaps: list[Overlap], where: str, *, compare: bool) -> Iterator[Finding]:
    for overlap in overlaps:
        detail = f"also in {overlap.second.key}"
        yield Finding(OVERLAP, where, detail, overlap.first.key, overlap.start, overlap.end)
        if not compare:
            continue
        try:
            difference = first_difference(store, overlap)
        except (AccessDenied, CorruptData, ObjectNotFound):
            continue  # which the segment's own finding says
        if difference is not None:
            offset, detail = difference
            yield Finding(OVERLAP_DIFFERS, where, detail, overlap.first.key, offset, overlap.end)


def _orphans(listing: PartitionListing, where: str, old: float) -> Iterator[Finding]:
    """What belongs to nothing, and is too old to be about to."""
    catalog, keys = listing.catalog, listing.catalog.keys
    commit = catalog.commit
    if commit is not None:
        limit = commit.next_offset if isinstance(commit, Commit) else commit.highest_base + 1
        for segment in catalog.segments:
            written = listing.modified.get(segment.name.stem, 0.0)
            if segment.name.base >= limit and written < old:
                detail = f"the commit ends at {limit}, and this was written {_ago(old, written)}"
                yield Finding(ORPHAN_SEGMENT, where, detail, keys.segment(segment.name), segment.name.base)
        for start, end, written in listing.gap_records:
            if start >= limit and written < old:
                detail = f"the commit ends at {limit}, and this was written {_ago(old, written)}"
                yield Finding(ORPHAN_GAP, where, detail, keys.gap(start, end), start, end)
    for key in listing.lonely:
        stem = key.removeprefix(keys.prefix).rpartition(".")[0]
        written = listing.modified.get(stem, 0.0)
        if written < old:
            base = int(stem[:20])
            detail = f"no {stem}{LOG_SUFFIX} is there, and this was written {_ago(old, written)}"
            yield Finding(ORPHAN_INDEX, where, detail, key, base)
    bases = [segment.name.base for segment in catalog.segments]
    for cache_object, following in zip(catalog.cache_objects, (*catalog.cache_objects, None)[1:], strict=True):
        told = bisect_left(bases, cache_object)
        if told < len(bases) and (following is None or bases[told] < following):
            continue
        if cache_object >= (catalog.log_start or 0):
            yield Finding(
                ORPHAN_CACHE_OBJECT,
                where,
                "no segment that it may tell of is there",
                keys.cache_object(cache_object),
                cache_object,
            )


def _without_metadata(
    listing: PartitionListing, checked: Mapping[StoredSegment, Checked], where: str
) -> Iterator[Finding]:
    """One finding for all segments without metadata: a Java uploader leaves a bucket full of them."""
    found = [result.copy for result in checked.values() if result.foreign and result.copy is not None]
    if not found:
        return
    commit = listing.catalog.commit
    is_java = not isinstance(commit, Commit) or commit.java is not None
    detail = f"{counted(len(found), 'segment')}, the first of them {found[0].key}"
    end = max(copy.end for copy in found)
    yield Finding(JAVA_SEGMENTS if is_java else METADATA_MISSING, where, detail, found[0].key, found[0].base, end)


def foreign_objects(where: str, listing: PartitionListing) -> Iterator[Finding]:
    """Objects that are none of ours; of many the first ones."""
    left = listing.stranger_count - len(listing.strangers)
    for number, key in enumerate(listing.strangers, 1):
        more = f", as are {left} more here" if left and number == len(listing.strangers) else ""
        yield Finding(FOREIGN_OBJECT, where, f"its name is none of ours{more}", key)


def _ago(old: float, written: float) -> str:
    return f"at least {max(0.0, old - written) / 3600:.1f} h longer ago than what may be under way"
