"""Which objects of a partition retention can delete, by a listing; their order, and their deletion.

Only objects whose whole coverage is below the start are listed, and only under names that agents write. A segment with
a later leader epoch than the commit's stays: a leader that has not committed yet shipped it. So does a good copy while
the damaged object that it replaces stays: that one can reach further up.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.metadata_cache import parse_cache_object_name
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    COMMIT_NAME,
    ERASED_DIRECTORY,
    FORMER_CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    LOG_START_NAME,
    LOG_SUFFIX,
    PartitionKeys,
    SegmentName,
)
from ts_common.archive.sealed_objects import parse_sealed_name
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.protection import Lock

# An index without a `.log` can be part of an upload: the agent retries it as long as the broker has the file.
UNFINISHED_MS: Final = 7 * 86_400_000
_AT_ONCE: Final = 32
_MARKS: Final = (COMMIT_NAME, LOG_START_NAME)

Locked = Callable[[Sequence[str]], Mapping[str, Lock]]


class Outcome(StrEnum):
    """What became of an object."""

    REMOVED = "removed"
    KEPT = "kept"  # it has another ETag than the listing
    LOCKED = "locked"  # the store keeps it until a time
    FAILED = "failed"


def removable(
    keys: PartitionKeys,
    listed: Iterable[ObjectInfo],
    copies: Sequence[SegmentCopy],
    commit: Commit,
    below: int,
    now: int,
    released: float = 0.0,
) -> list[ObjectInfo]:
    """Return the objects that retention can delete, in the order of their deletion.

    Args:
        listed: every object in its directory.
        copies: its committed segments.
        below: an offset that neither readers nor the policy need anything below.
        now: milliseconds since the epoch, by the clock of the store.
        released: seconds since the epoch: what is older and below can be what a killed deletion left.
    """
    objects = {info.key.removeprefix(keys.prefix): info for info in listed}
    due = {copy.segment.name for copy in copies if copy.end <= below and not is_of_later_leader(copy, commit)}
    segments = due - _still_named(objects, copies, due)
    names = [
        *_segment_objects(objects, segments, commit, below, now, released),
        *(name for name in objects if (gap := _gap(name)) is not None and gap[1] <= below),
        *_cache_objects(objects, copies, segments, below),
        *(name for name in objects if name.startswith(FORMER_CACHE_DIRECTORY)),
    ]
    return [objects[name] for name in sorted(names, key=_order)]


def of_agents(keys: PartitionKeys, listed: Iterable[ObjectInfo]) -> tuple[list[ObjectInfo], ...]:
    """Return the objects under names that agents write, for an incarnation that is over.

    Returns:
        Groups in the order of their deletion: `offset.wm`, `log.start` and lists of erased offsets are last.
    """
    own, erased, marks = [], [], dict[str, ObjectInfo]()
    for info in listed:
        name = info.key.removeprefix(keys.prefix)
        if name in _MARKS:
            marks[name] = info
        elif name.startswith(ERASED_DIRECTORY):
            erased.append(info)
        elif SegmentName.parse(name) or name.startswith((GAPS_DIRECTORY, CACHE_DIRECTORY, FORMER_CACHE_DIRECTORY)):
            own.append(info)
    own.sort(key=lambda info: _order(info.key.removeprefix(keys.prefix)))
    return own, *([marks[name]] for name in _MARKS if name in marks), erased


def delete(
    store: ObjectStore, objects: Sequence[ObjectInfo], *, locked: Locked, look: Callable[[], None]
) -> Iterator[tuple[ObjectInfo, Outcome, Exception | None]]:
    """Delete objects in their order, each on its ETag and each `.log` before its indexes; yield what became of each.

    The indexes of a `.log` that stays do too, and have its outcome.

    Args:
        objects: as a listing showed them.
        locked: returns, by key, the lock of each object that the store keeps.
        look: is called before each 32 objects; what it raises ends the deletion.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    staying: dict[str, Outcome] = {}  # by stem
    for batch in (objects[at : at + _AT_ONCE] for at in range(0, len(objects), _AT_ONCE)):
        look()
        held = locked([info.key for info in batch])
        for are_logs in (True, False):  # of one call the order is not defined
            group = {info.key: info for info in batch if info.key.endswith(LOG_SUFFIX) is are_logs}
            stays = {key: staying[stem] for key in group if (stem := _stem(key)) in staying}
            stays |= {key: Outcome.LOCKED for key in group if key in held}
            done = [*_delete_group(store, group, stays)]
            if are_logs:
                staying |= {_stem(info.key): each for info, each, _ in done if each is not Outcome.REMOVED}
            yield from done


def _delete_group(
    store: ObjectStore, group: Mapping[str, ObjectInfo], stays: Mapping[str, Outcome]
) -> Iterator[tuple[ObjectInfo, Outcome, Exception | None]]:
    etags = {key: info.etag for key, info in group.items() if key not in stays}
    outcome = store.delete_matching(etags) if etags else DeleteOutcome((), (), {})
    of_key = {**stays, **dict.fromkeys(outcome.removed, Outcome.REMOVED)}
    of_key |= dict.fromkeys(outcome.kept, Outcome.KEPT) | dict.fromkeys(outcome.failed, Outcome.FAILED)
    yield from ((info, of_key[key], outcome.failed.get(key)) for key, info in group.items())


def _stem(key: str) -> str:
    return key.rpartition(".")[0]


def _order(name: str) -> tuple[str, bool, str]:
    """Return a key to sort names by: ascending by base, each `.log` before its indexes."""
    stem, _, suffix = name.rpartition(".")
    return stem, f".{suffix}" != LOG_SUFFIX, suffix


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


def is_of_later_leader(copy: SegmentCopy, commit: Commit) -> bool:
    """Return whether a leader that has not committed yet shipped a segment, by its name and its epochs."""
    metadata = copy.metadata
    epochs = [epoch for epoch, _ in metadata.epochs or ()]
    epochs += [] if metadata.last_epoch is None else [metadata.last_epoch[0]]
    epochs += [] if copy.segment.name.epoch is None else [copy.segment.name.epoch]
    return max(epochs, default=-1) > commit.epoch


def _segment_objects(
    objects: Mapping[str, ObjectInfo],
    segments: set[SegmentName],
    commit: Commit,
    below: int,
    now: int,
    released: float,
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
            is_old |= segment.base < below and info.modified < released
            is_later = segment.epoch is not None and segment.epoch > commit.epoch
            if is_old and not is_later and segment.base < max(below, commit.next_offset):
                yield name


def _gap(name: str) -> tuple[int, int] | None:
    return parse_gap_name(name.removeprefix(GAPS_DIRECTORY)) if name.startswith(GAPS_DIRECTORY) else None


def _cache_objects(
    objects: Iterable[str], copies: Sequence[SegmentCopy], segments: set[SegmentName], below: int
) -> Iterator[str]:
    """Yield the cache objects whose segments are all deleted; the newest stays, because agents add to it.

    `seal.json` keeps the names of sealed ones that are deleted: readers list their ranges, which are empty.
    """
    listed = [name.removeprefix(CACHE_DIRECTORY) for name in objects if name.startswith(CACHE_DIRECTORY)]
    firsts = sorted(first for name in listed if (first := parse_cache_object_name(name)) is not None)
    lowest_left = min((copy.base for copy in copies if copy.segment.name not in segments), default=below)
    for first, following in pairwise(firsts):
        if following <= min(below, lowest_left):
            yield f"{CACHE_DIRECTORY}{first:020d}.json"
    for name in listed:
        if (sealed := parse_sealed_name(name)) is not None and sealed[1] <= min(below, lowest_left):
            yield CACHE_DIRECTORY + name
