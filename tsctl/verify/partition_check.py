"""Checks a partition as a whole: holes, overlaps, dead tails, orphans, and its commit."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erasures import Obeyed
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.archive.small_objects import GAP_BYTES, get_small
from ts_common.archive.view import open_view
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.json_objects import MAX_INT64
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from tsctl.verify.copy_comparison import Overlap, first_difference, overlaps_of
from tsctl.verify.coverage import Coverage, coverage_of, live_end
from tsctl.verify.finding_kinds import (
    BEGINNING,
    COMMIT_NAMES_MISSING,
    COMMIT_STUCK,
    DEAD_TAIL,
    ERASED_STORED,
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
    REPLACED,
    UNREADABLE,
    FindingKind,
)
from tsctl.verify.findings import Finding
from tsctl.verify.former_check import check_former_places
from tsctl.verify.inventory import PartitionListing
from tsctl.verify.log_start_check import check_log_start
from tsctl.verify.sealed_check import check_sealed_ranges
from tsctl.verify.segment_check import Checked
from tsctl.verify.uncommitted import stuck_commit, uncommitted


@dataclass(frozen=True, slots=True)
class Ages:
    """The ages that matter to the check.

    Attributes:
        now: seconds since the epoch.
        old: seconds since the epoch; an object written before is not part of an upload in progress.
        stuck_seconds: how long a commit may need to cover an uploaded segment.
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
    obeyed: Callable[[], Obeyed],
    *,
    compare: bool,
) -> Coverage:
    """Compare a partition's snapshot with what its segments contain.

    Args:
        checked: the result for each of its segments, with a copy.
        where: the partition's name in findings.
        findings: the findings about its segments.
        ages: the ages that matter.
        obeyed: returns what the evidence of erasures has; it is not called for a partition without erased offsets.
        compare: whether to compare the records of overlapping copies.

    Raises:
        StoreUnavailable, AccessDenied: a request failed.
    """
    catalog = listing.catalog
    copies = {segment: result.copy for segment, result in checked.items() if result.copy is not None}
    view = open_view(store, replace(catalog, segments=tuple(copies)), copies, shows_records=False)
    former_start, former_findings = check_former_places(store, catalog, copies, where)
    overlaps = list(overlaps_of(view))
    replaced = _replaced(view)
    found = [
        *_repaired(findings, replaced, listing),
        *_commit(listing, view, where, ages.old),
        *check_log_start(listing, copies.values(), where, is_restored=former_start is not None),
        *_stuck(listing, where, ages),
        *_missing(store, listing, view, where),
        *former_findings,
        *_dead(view, where),
        *_twice(store, overlaps, where, replaced, compare=compare),
        *_orphans(listing, where, ages.old),
        *_without_metadata(store, listing, checked, where, replaced),
        *_erased(listing, checked, where, replaced, obeyed),
        *(check_sealed_ranges(store, catalog, where, ages.now, ages.old) if listing.has_seals else ()),
        *foreign_objects(where, listing),
    ]
    ranges = [(overlap.start, overlap.end) for overlap in overlaps]
    coverage = coverage_of(where, catalog, view, listing.modified, ranges, found)
    coverage = replace(coverage, erased=listing.erased.count)
    return coverage if former_start is None else replace(coverage, start=former_start)


def _commit(listing: PartitionListing, view: PartitionView, where: str, old: float) -> Iterator[Finding]:
    """Check that `offset.wm` and `log.start` exist, and that the segment of the commit does."""
    catalog = listing.catalog
    keys, commit = catalog.keys, catalog.commit
    if commit is None:
        if catalog.segments:
            newest = max(segment.modified or 0 for segment in catalog.segments) / 1000
            begins = view.state is CommitState.BEGINNING and newest >= old
            kind = BEGINNING if begins else NO_COMMIT
            base = catalog.segments[0].name.base
            yield Finding(kind, where, f"{counted(len(catalog.segments), 'segment')} and no commit", keys.commit, base)
        return
    if isinstance(commit, ForeignCommit):
        return
    yield from _log_start(catalog.log_start, commit, keys.log_start, where)
    named = commit.highest_base
    if not view.start < named < view.end or any(segment.name.base == named for segment in catalog.segments):
        return
    if not any(isinstance(step, Hole) and step.start <= named < step.end for step in view.plan(named, view.end)):
        detail = f"{keys.commit} names base offset {named}, but {named:020d}{LOG_SUFFIX} does not exist"
        yield Finding(COMMIT_NAMES_MISSING, where, detail, keys.commit, named)


def _log_start(stored: int | None, commit: Commit, key: str, where: str) -> Iterator[Finding]:
    if stored is None:
        yield Finding(LOG_START_WRONG, where, "there is a commit, but no log.start", key)
    elif stored > commit.next_offset:
        detail = f"log.start is {stored}; the next offset is {commit.next_offset}"
        yield Finding(LOG_START_WRONG, where, detail, key, commit.next_offset, stored)


def _stuck(listing: PartitionListing, where: str, ages: Ages) -> Iterator[Finding]:
    """Report segments above the commit, if all of them are young; old ones have findings of their own."""
    written = [listing.modified.get(segment.name.stem, 0.0) for segment in uncommitted(listing.catalog)]
    found = stuck_commit(listing.catalog, written, listing.committed_at, ages.now, ages.stuck_seconds)
    if found is not None and min(written) >= ages.old:
        yield Finding(COMMIT_STUCK, where, str(found), listing.catalog.keys.commit, found.first)


def _missing(store: ObjectStore, listing: PartitionListing, view: PartitionView, where: str) -> Iterator[Finding]:
    """Yield holes, and gaps with a record."""
    for step in view.plan(view.start, view.end):
        if not isinstance(step, Hole):
            continue
        count = counted(step.end - step.start, "offset")
        if step.recorded:
            kind, key, reason = _recorded(store, listing, step)
            yield Finding(kind, where, f"{count}: {reason}", key, step.start, step.end)
        else:
            detail = f"{count} below the next offset {view.end} without an object"
            yield Finding(HOLE, where, detail, listing.catalog.keys.prefix, step.start, step.end)


def _recorded(store: ObjectStore, listing: PartitionListing, hole: Hole) -> tuple[FindingKind, str | None, str]:
    """Return the kind of a recorded hole, the key of its record, and the reason."""
    for start, end, _ in listing.gap_records:
        if start <= hole.start < end:
            key = listing.catalog.keys.gap(start, end)
            try:
                return GAP, key, Gap.decode(get_small(store, key, GAP_BYTES)[0], key).reason
            except (CorruptData, NewerFormat) as error:
                return GAP_RECORD_DAMAGED, key, str(error)
            except (AccessDenied, ObjectFrozen) as error:
                return UNREADABLE, key, str(error)
            except ObjectNotFound:
                return GAP, key, "recorded; the record was removed after the listing"
    return GAP, None, "recorded"


def _dead(view: PartitionView, where: str) -> Iterator[Finding]:
    for copy in view.copies:
        alive = max(live_end(view, copy), copy.base)
        if alive < copy.end and alive < view.end:
            epoch, lived = _epoch_at(copy, alive), view.epochs.at(alive)
            detail = f"its records from offset {alive} on have leader epoch {epoch}; epoch {lived} is live there"
            yield Finding(DEAD_TAIL, where, detail, copy.key, alive, copy.end)


def _epoch_at(copy: SegmentCopy, offset: int) -> int | None:
    pairs = [epoch for epoch, first in copy.metadata.epochs or () if first <= offset]
    return pairs[-1] if pairs else None


def _replaced(view: PartitionView) -> frozenset[str]:
    """Return the stems of damaged objects that a repair made unnecessary: readers read them nowhere."""
    named = view.own.replaced
    if not named:
        return named
    read = (step.copies for step in view.plan(view.start, view.end) if not isinstance(step, Hole))
    return named - {copy.segment.name.stem for copies in read for copy in copies}


def _repaired(findings: Iterable[Finding], replaced: frozenset[str], listing: PartitionListing) -> Iterator[Finding]:
    """Yield the findings; one about a replaced object has that kind instead."""
    prefix = listing.catalog.keys.prefix
    for finding in findings:
        stem = (finding.key or "").removeprefix(prefix).rpartition(".")[0]
        if stem in replaced:
            yield replace(finding, kind=REPLACED, detail=f"{finding.kind.code}: {finding.detail}")
        else:
            yield finding


def _twice(
    store: ObjectStore, overlaps: list[Overlap], where: str, replaced: frozenset[str], *, compare: bool
) -> Iterator[Finding]:
    for overlap in overlaps:
        detail = f"also in {overlap.second.key}"
        yield Finding(OVERLAP, where, detail, overlap.first.key, overlap.start, overlap.end)
        if not compare or replaced & {overlap.first.segment.name.stem, overlap.second.segment.name.stem}:
            continue
        try:
            difference = first_difference(store, overlap)
        except (AccessDenied, CorruptData, ObjectFrozen, ObjectNotFound):
            continue  # the segment's own finding reports it
        if difference is not None:
            offset, detail = difference
            yield Finding(OVERLAP_DIFFERS, where, detail, overlap.first.key, offset, overlap.end)


def _erased(
    listing: PartitionListing,
    checked: Mapping[StoredSegment, Checked],
    where: str,
    replaced: frozenset[str],
    obeyed: Callable[[], Obeyed],
) -> Iterator[Finding]:
    """Yield one finding for the copies that can have erased records: an eraser rewrites or removes them.

    Agents can write any `ts-erased`, so the evidence of runs alone shows which copies lack them.
    """
    meeting = [
        (result.copy, result.etag)
        for segment, result in checked.items()
        if result.copy is not None
        and result.etag is not None
        and listing.erased.meets(segment.name.base, MAX_INT64 if result.copy.may_overrun else result.copy.end)
    ]
    noted = obeyed() if meeting else {}
    found = [copy for copy, etag in meeting if noted.get((copy.key, etag), 0) < listing.catalog.erased_number]
    if found:
        count = sum(copy.segment.name.stem in replaced for copy in found)
        rewritten = f"; others replace {count:,} of them" if count else ""
        detail = f"{counted(len(found), 'segment')} can have erased records{rewritten}; the first is {found[0].key}"
        yield Finding(ERASED_STORED, where, detail, found[0].key, found[0].base, found[0].end)


def _orphans(listing: PartitionListing, where: str, old: float) -> Iterator[Finding]:
    """Yield the objects that nothing refers to, if they are too old for an upload in progress."""
    keys, commit = listing.catalog.keys, listing.catalog.commit
    if commit is not None:
        limit = commit.next_offset if isinstance(commit, Commit) else commit.highest_base + 1
        yield from _above_commit(listing, where, old, limit)
    for key in listing.lonely:
        stem = key.removeprefix(keys.prefix).rpartition(".")[0]
        written = listing.modified.get(stem, 0.0)
        if written < old:
            base = int(stem[:20])
            detail = f"{stem}{LOG_SUFFIX} does not exist; this was written {_ago(old, written)}"
            yield Finding(ORPHAN_INDEX, where, detail, key, base)
    yield from _orphan_cache_objects(listing.catalog, where)


def _above_commit(listing: PartitionListing, where: str, old: float, limit: int) -> Iterator[Finding]:
    """Yield old segments and gap records that begin at the end of the commit or above it."""
    keys = listing.catalog.keys
    for segment in listing.catalog.segments:
        written = listing.modified.get(segment.name.stem, 0.0)
        if segment.name.base >= limit and written < old:
            detail = f"the commit ends at {limit}; this was written {_ago(old, written)}"
            yield Finding(ORPHAN_SEGMENT, where, detail, keys.segment(segment.name), segment.name.base)
    for start, end, written in listing.gap_records:
        if start >= limit and written < old:
            detail = f"the commit ends at {limit}; this was written {_ago(old, written)}"
            yield Finding(ORPHAN_GAP, where, detail, keys.gap(start, end), start, end)


def _orphan_cache_objects(catalog: PartitionCatalog, where: str) -> Iterator[Finding]:
    bases = [segment.name.base for segment in catalog.segments]
    for cache_object, following in zip(catalog.cache_objects, (*catalog.cache_objects, None)[1:], strict=True):
        told = bisect_left(bases, cache_object)
        if told < len(bases) and (following is None or bases[told] < following):
            continue
        if cache_object >= (catalog.log_start or 0):
            yield Finding(
                ORPHAN_CACHE_OBJECT,
                where,
                "no segment exists that it can describe",
                catalog.keys.cache_object(cache_object),
                cache_object,
            )


def _without_metadata(
    store: ObjectStore,
    listing: PartitionListing,
    checked: Mapping[StoredSegment, Checked],
    where: str,
    replaced: frozenset[str],
) -> Iterator[Finding]:
    """Yield the segments without metadata; one finding for all of a Java uploader, which writes many of them."""
    found = [
        result.copy
        for segment, result in checked.items()
        if result.foreign and result.copy is not None and segment.name.stem not in replaced
    ]
    if not found:
        return
    commit = listing.catalog.commit
    if not isinstance(commit, Commit) or commit.java is not None:
        detail = f"{counted(len(found), 'segment')}; the first is {found[0].key}"
        end = max(copy.end for copy in found)
        yield Finding(JAVA_SEGMENTS, where, detail, found[0].key, found[0].base, end)
        return
    unbound = store.unbound_metadata(listing.catalog.keys.prefix)
    for copy in found:
        detail = "the directory was copied: its metadata has another inode" if copy.key in unbound else "it has none"
        yield Finding(METADATA_MISSING, where, detail, copy.key, copy.base, copy.end)


def foreign_objects(where: str, listing: PartitionListing) -> Iterator[Finding]:
    """Yield the foreign objects; of many only the first ones."""
    left = listing.foreign_count - len(listing.foreign_keys)
    for number, key in enumerate(listing.foreign_keys, 1):
        more = f"; {left} more are here" if left and number == len(listing.foreign_keys) else ""
        yield Finding(FOREIGN_OBJECT, where, f"no agent writes this name{more}", key)


def _ago(old: float, written: float) -> str:
    return f"at least {max(0.0, old - written) / 3600:.1f} h before any upload in progress"
