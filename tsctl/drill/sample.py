"""The sample of a drill: the newest part of each partition of a plan."""

from dataclasses import replace

from tsctl.restore.documents import RestorePlan
from tsctl.restore.partition_plan import PartitionPlan


def newest(plan: RestorePlan, milliseconds: int) -> RestorePlan:
    """Return a plan with the end of each partition: the last closed segment, and what was written shortly before it.

    The sample begins with the first of the last segments that have a record which is not older than the newest record
    of the last segment, less `milliseconds`. It has all of each transaction that is open at the end. Offsets of groups
    are raised to the new start.
    """
    topics = {
        name: replace(
            topic, partitions={number: _end_of(each, milliseconds) for number, each in topic.partitions.items()}
        )
        for name, topic in plan.topics.items()
    }
    sample = replace(plan, topics=topics)
    starts = {name: each.start for name, each in sample.partitions.items()}
    offsets = {
        group: {name: max(starts[name], offset) for name, offset in each.items()}
        for group, each in plan.groups.offsets.items()
    }
    return replace(sample, groups=replace(plan.groups, offsets=offsets))


def _end_of(part: PartitionPlan, milliseconds: int) -> PartitionPlan:
    if not part.steps:
        return part
    times = [
        max((time for source in step.sources if (time := source.time_max) is not None), default=None)
        for step in part.steps
    ]
    opened = min((each.first_offset for each in part.ended), default=part.end)
    first = max((number for number, step in enumerate(part.steps) if not step.is_tail), default=0)
    while first and (part.steps[first].start > opened or _is_within(times[first - 1], times[-1], milliseconds)):
        first -= 1
    if not first:
        return part
    start = part.steps[first].start
    return replace(
        part, start=start, steps=part.steps[first:], lost=tuple(hole for hole in part.lost if hole.end > start)
    )


def _is_within(time: int | None, newest_time: int | None, milliseconds: int) -> bool:
    return time is not None and newest_time is not None and time >= newest_time - milliseconds
