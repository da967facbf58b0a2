"""Which offset the view of a partition can begin at: below it, a policy needs nothing any more.

A copy is due by its age, or because the living bytes above it suffice. Its age counts from its greatest timestamp, or
from the time when it was shipped if that is earlier: a record from the future holds nothing for ever. Without a
timestamp (-1, or a Java uploader's segment) its age counts from the shipping. No copy is due that the store has had for
less than the least time, by the store's own clock too, whatever the clocks of producers and agents were.

The start moves up to the first copy that stays. It passes neither the segments that the commit names, nor its last
stable offset, nor offsets that are still needed. Nor does it pass an unrecorded hole above the last copy that is due:
that loss can be repaired, and its records are inside the policy. What a deletion left below the floor has no living
bytes, and its holes are no loss.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange


@dataclass(frozen=True, slots=True)
class Rule:
    """When segments of a topic are due.

    Attributes:
        age: milliseconds; None if age alone makes nothing due.
        size: living bytes of a partition that stay; None if size alone makes nothing due.
        least: milliseconds that the store has each segment.
        compacted: whether records of a compacted topic can be due, though they can be the only ones of their keys.
    """

    age: int | None = None
    size: int | None = None
    least: int = 0
    compacted: bool = False


class Limit(StrEnum):
    """What the new start does not pass."""

    RULE = "the rule"
    LEAST_TIME = "the least time in the store"
    COMMIT = "the segments that the commit names"
    TRANSACTION = "an open transaction"
    NEEDED = "offsets that are still needed"
    HOLE = "a hole that can be repaired"
    HELD = "a hold"
    KEPT = "the policy, which keeps everything"


@dataclass(frozen=True, slots=True)
class Due:
    """What is due in a partition.

    Attributes:
        start: where the view can begin; the view's own start if nothing is due.
        limit: what keeps the offsets from there on.
    """

    start: int
    limit: Limit


def due(
    view: PartitionView, commit: Commit, rule: Rule, now: int, needed_from: int | None = None, floor: int = 0
) -> Due:
    """Return what is due in a partition.

    Args:
        commit: that the view was opened with.
        now: milliseconds since the epoch, by the clock of the store.
        needed_from: the first offset that is still needed; None if there is no such offset.
        floor: a deletion has begun below it, by the copy of `log.start`.

    Raises:
        CorruptData: as `PartitionView.plan`.
    """
    whole = [step for step in view.plan(view.start, view.end) if step.end > floor]
    plan = [step for step in whole if isinstance(step, ReadRange)]
    limits = {
        Limit.RULE: max(_by_age(view, rule, now), _by_size(plan, rule, view.start)),
        Limit.LEAST_TIME: _first(view, (each for each in view.copies if _stored(each, now) < rule.least)),
        Limit.COMMIT: min(
            # A named segment that is missing can be shipped again, so its offsets stay too.
            commit.highest_base,
            _first(view, (each for each in view.copies if each.end >= view.end)),
        ),
        Limit.TRANSACTION: view.end if commit.last_stable_offset is None else commit.last_stable_offset,
        Limit.NEEDED: view.end if needed_from is None else needed_from,
    }
    limit = min(limits, key=lambda each: limits[each])  # of equal ones the first
    start = max(view.start, limits[limit])
    if (hole := _hole_before(whole, start)) is not None:
        return Due(max(hole, floor), Limit.HOLE)
    return Due(start, limit)


def _hole_before(plan: Sequence[ReadRange | Hole], start: int) -> int | None:
    """Return where the first unrecorded hole above the last range below an offset begins; None without one."""
    found = None
    for step in plan:
        if step.start >= start:
            break
        if isinstance(step, ReadRange):
            found = None
        elif not step.recorded and found is None:
            found = step.start
    return found


def record_time(copy: SegmentCopy) -> int | None:
    """Return the time that the age of a copy is measured from, ms since the epoch; None if it is unknown.

    The agent's clock gives the time of shipping. S3 refuses requests whose clock is a quarter of an hour off.
    """
    shipped, greatest = copy.metadata.shipped, copy.metadata.time_max
    if shipped is None:
        shipped = copy.segment.modified
    if shipped is None or greatest is None or greatest < 0:
        return shipped
    return min(shipped, greatest)


def _stored(copy: SegmentCopy, now: int) -> float:
    """Return for how long the store has had a copy at least, ms; copying a bucket begins it again."""
    known = [time for time in (copy.metadata.shipped, copy.segment.modified) if time is not None]
    return now - max(known) if known else -inf


def _first(view: PartitionView, copies: Iterable[SegmentCopy]) -> int:
    """Return the first offset of copies that stay; the view's end without copies."""
    return min((copy.base for copy in copies), default=view.end)


def _by_age(view: PartitionView, rule: Rule, now: int) -> int:
    if rule.age is None:
        return view.start
    times = [(copy, record_time(copy)) for copy in view.copies]
    return _first(view, (copy for copy, time in times if time is None or now - time < rule.age))


def _by_size(plan: Sequence[ReadRange], rule: Rule, start: int) -> int:
    """Return the greatest start that leaves at least as many bytes; a copy that is not read has no living bytes."""
    left = 0
    for step in reversed(plan if rule.size is not None else ()):
        # One copy at most, in the range with its base. Coverage is known by cache objects, which agents can forge.
        left += max((copy.segment.size for copy in step.copies if copy.base >= step.start), default=0)
        if rule.size is not None and left >= rule.size:
            return step.start
    return start
