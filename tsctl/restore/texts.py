"""The plan as text, for the person who approves it."""

from collections.abc import Iterator

from ts_common.wording import counted
from tsctl.output import iso, size
from tsctl.restore.documents import RestorePlan, TopicPlan
from tsctl.restore.loss import due_by_retention

_MEGABYTE = 1_000_000


def plan_text(plan: RestorePlan, megabytes_per_second: int, now: int) -> Iterator[str]:
    """Yield the lines of a plan.

    Args:
        megabytes_per_second: that one host is expected to fetch.
        now: ms since the epoch.
    """
    cut = "everything that the archive has" if plan.at is None else f"as of {iso(plan.at)}"
    yield f"plan {plan.plan} of {iso(plan.time)}: cluster {plan.cluster}, {cut}"
    for note in plan.notes:
        yield f"note: {note}"
    yield ""
    for name, topic in plan.topics.items():
        yield from _topic(name, topic, now)
    for name in plan.absent:
        yield f"LOST: topic {name}: the archive has no segment of it; create it yourself if applications need it"
    yield ""
    for broker in plan.brokers:
        held = plan.of_broker(broker).values()
        total = sum(part.size for part in held)
        minutes = total / (megabytes_per_second * _MEGABYTE) / 60
        yield (
            f"broker {broker}: {counted(len(held), 'replica')}, {size(total)}, about {minutes:.0f} min to fetch at "
            f"{megabytes_per_second} MB/s; Kafka chooses the log dir of each"
        )
    yield ""
    groups = plan.groups
    yield f"groups: {len(groups.offsets)}, from {groups.source}, as of {iso(groups.time) or 'unknown'}"
    for group, offsets in groups.offsets.items():
        yield f"  {group}: " + ", ".join(f"{partition}={offset}" for partition, offset in offsets.items())
    for note in groups.notes:
        yield f"  note: {note}"
    if plan.commands:
        yield f"ACLs, quotas, users, brokers' configurations: `finish` prints {counted(len(plan.commands), 'command')}"
    yield "not restored: __transaction_state, and __consumer_offsets as files; producers get new ids"


def _topic(name: str, topic: TopicPlan, now: int) -> Iterator[str]:
    parts = topic.partitions
    total = sum(part.size for part in parts.values())
    factor = max((len(part.homes or part.replicas) for part in parts.values()), default=0)
    yield f"topic {name}: {counted(len(parts), 'partition')}, replication factor {factor}, {size(total)}"
    for number, part in parts.items():
        where = ", then ".join(",".join(map(str, each)) for each in (part.replicas, part.homes) if each)
        left = "" if part.end == part.stored_end else f"; the archive has {part.stored_end - part.end} more"
        yield f"  {name}-{number}: offsets {part.start} to {part.end}, {size(part.size)}, brokers {where}{left}"
        for hole in part.lost:
            yield f"    LOST: offsets {hole.start} to {hole.end - 1}: {hole.why}"
        for note in part.notes:
            yield f"    note: {note}"
        if (due := due_by_retention(part, topic.configurations, now)) is not None:
            below = f"offsets below {due.below} ({size(due.size)})"
            yield f"    Kafka will delete {below} once the configurations are back: {due.why}"
