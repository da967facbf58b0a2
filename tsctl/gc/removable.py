"""Which objects of a partition retention can delete, by a listing. Pure.

Only objects whose whole coverage is below the start are listed, and only under names that agents write. A segment with
a later leader epoch than the commit's stays: a leader that has not committed yet shipped it. So does a good copy while
the damaged object that it replaces stays: that one can reach further up.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.gc_plans import PlannedObject
from ts_common.archive.metadata_cache import parse_cache_object_name
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    FORMER_CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    LOG_SUFFIX,
    PartitionKeys,
    SegmentName,
)
from ts_common.store.contract import ObjectInfo

# An index without a `.log` can be part of an upload: the agent retries it as long as the broker has the file.
UNFINISHED_MS: Final = 7 * 86_400_000


def removable(
    keys: PartitionKeys,
    listed: Iterable[ObjectInfo],
    copies: Sequence[SegmentCopy],
    commit: Commit,
    start: int,
    now: int,
) -> list[PlannedObject]:
    """Return the objects that retention can delete, in the order of their names.

    Args:
        keys: of the partition.
        listed: every object in its directory.
        copies: its committed segments.
        commit: that the listing follows.
        start: the view begins there or above, and the policy needs nothing below.
        now: milliseconds since the epoch, by the clock of the store.
    """
    objects = {info.key.removeprefix(keys.prefix): info for info in listed}
    due = {copy.segment.name for copy in copies if copy.end <= start and not _is_of_later_leader(copy, commit)}
    segments = due - _still_named(objects, copies, due)
    names = [
        *_segment_objects(objects, segments, commit, start, now),
        *(name for name in objects if (gap := _gap(name)) is not None and gap[1] <= start),
        *_cache_objects(objects, copies, segments, start),
        *(name for name in objects if name.startswith(FORMER_CACHE_DIRECTORY)),
    ]
    return [PlannedObject(name, objects[name].size, objects[name].etag) for name in sorted(names)]


def _still_named(
    objects: Collection[str], copies: Sequence[SegmentCopy], due: set[SegmentName]
) -> frozenset[SegmentName]:
    """Return the due segments that name a damaged object that stays: without them, readers would choose that one."""
    carriers = {
        copy.segment.name: copy.metadata.replaces
        for copy in copies
        if copy.metadata.replaces is not None and copy.segment.name in due
    }
    leaving = {name.stem for name in due}
    kept: set[SegmentName] = set()
    while more := {
        name
        for name, stem in carriers.items()
        if name not in kept and stem not in leaving and stem + LOG_SUFFIX in objects
    }:  # one that stays can be damaged itself, and named by another
        kept |= more
        leaving -= {name.stem for name in more}
    return frozenset(kept)


def _is_of_later_leader(copy: SegmentCopy, commit: Commit) -> bool:
    metadata = copy.metadata
    epochs = [epoch for epoch, _ in metadata.epochs or ()]
    epochs += [] if metadata.last_epoch is None else [metadata.last_epoch[0]]
    epochs += [] if copy.segment.name.epoch is None else [copy.segment.name.epoch]
    return max(epochs, default=-1) > commit.epoch


def _segment_objects(
    objects: dict[str, ObjectInfo], segments: set[SegmentName], commit: Commit, start: int, now: int
) -> Iterator[str]:
    for name, info in objects.items():
        parsed = SegmentName.parse(name)
        if parsed is None:
            continue
        segment, suffix = parsed
        if segment in segments:
            yield name
        elif suffix != LOG_SUFFIX and segment.stem + LOG_SUFFIX not in objects:
            is_old = now - info.modified * 1000 >= UNFINISHED_MS
            is_later = segment.epoch is not None and segment.epoch > commit.epoch
            if is_old and not is_later and segment.base < max(start, commit.next_offset):
                yield name


def _gap(name: str) -> tuple[int, int] | None:
    return parse_gap_name(name.removeprefix(GAPS_DIRECTORY)) if name.startswith(GAPS_DIRECTORY) else None


def _cache_objects(
    objects: dict[str, ObjectInfo], copies: Sequence[SegmentCopy], segments: set[SegmentName], start: int
) -> Iterator[str]:
    """Yield the cache objects whose segments are all deleted; the newest stays, because agents add to it."""
    listed = (name.removeprefix(CACHE_DIRECTORY) for name in objects if name.startswith(CACHE_DIRECTORY))
    firsts = sorted(first for name in listed if (first := parse_cache_object_name(name)) is not None)
    lowest_left = min((copy.base for copy in copies if copy.segment.name not in segments), default=start)
    for first, following in pairwise(firsts):
        if following <= min(start, lowest_left):
            yield f"{CACHE_DIRECTORY}{first:020d}.json"
