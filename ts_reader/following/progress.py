"""The next offset of a stream, from its position and a snapshot of the commits, and the losses in between. Pure.

A new partition, a new topic that matches a pattern, and a topic that was created again start at their beginning. What
is missing keeps its position, so that nothing is read twice if it returns. Losses are sentences: the caller fails for
them, or warns.
"""

from collections.abc import Callable

from ts_common.archive.read_log import ReadLog, kept_end
from ts_common.model import TopicPartition
from ts_reader.following.commit_snapshot import CommitSnapshot, TopicSnapshot
from ts_reader.following.ends import PartitionEnd
from ts_reader.following.offset import StreamOffset


def advance(
    position: StreamOffset,
    look: CommitSnapshot,
    earliest: Callable[[PartitionEnd], tuple[int, int]],
    continues: Callable[[str, TopicSnapshot, str | None], bool] = lambda *_: False,
) -> tuple[StreamOffset, list[str]]:
    """Return the furthest offset of the stream, and one sentence for each loss that only a snapshot shows.

    A topic that a restore put back under another id continues at the position, once each partition has a commit.

    Args:
        earliest: returns the first offset of a new partition, and the first one of its own directory.
        continues: returns whether a topic was restored from the incarnation with an id.
    """
    losses: list[str] = []
    positions: dict[TopicPartition, int] = {}
    began: dict[TopicPartition, int] = {}
    ids = dict(position.topic_ids)
    for name in sorted({*look.topics, *(partition.topic for partition in position.positions)}):
        topic, stood = look.topics.get(name), position.of_topic(name)
        if topic is None:
            losses.append(
                f"topic {name} is missing from the store, or the subscription no longer names it; "
                f"the stream is at {_places(stood)}"
            )
            positions |= stood
            continue
        if topic.topic_id is None and name in ids:
            losses.append(
                f"topic {name}: its list of incarnations is missing from the store: its offsets may be of another one"
            )
            positions |= stood
            continue
        restored = dict[TopicPartition, int]()
        if not _is_same(position, name, topic):
            if continues(name, topic, ids.get(name)):
                if stood.keys() - topic.ends.keys():
                    positions |= stood
                    continue
                restored = stood
            stood = {}
        if topic.topic_id is not None:
            ids[name] = topic.topic_id
        for partition, at in stood.items():
            end = topic.ends.get(partition)
            positions[partition] = at if end is None else _next(at, position.logs.get(partition), end)
            if end is None:
                loss = topic.losses.get(partition)
                losses.append(
                    f"{partition}: the stream is at offset {at}, and its commit is missing from the store, or the "
                    "subscription no longer names it"
                    if loss is None
                    else f"{loss}; the stream is at offset {at}"
                )
        for partition in sorted(topic.ends.keys() - stood.keys()):
            first, own = earliest(topic.ends[partition])
            began[partition] = max(first, min(own, restored.get(partition, first)))
            positions[partition] = max(began[partition], topic.ends[partition].shown)
        losses += [str(loss) for partition, loss in sorted(topic.losses.items()) if partition not in stood]
    return StreamOffset(positions, ids, began=began), losses


def begins(position: StreamOffset, furthest: StreamOffset) -> dict[TopicPartition, int]:
    """Return where each partition of `furthest` starts: at its position, or at the beginning of a new one."""
    return {**position.positions, **furthest.began}


def lag(position: StreamOffset, furthest: StreamOffset) -> int:
    """Return the number of offsets from a position to the furthest one."""
    starts = begins(position, furthest)
    return sum(max(0, at - starts[partition]) for partition, at in furthest.positions.items())


def logs_of(position: StreamOffset, offset: StreamOffset, look: CommitSnapshot) -> dict[TopicPartition, ReadLog]:
    """Return the logs below the positions of `offset`: from the commits, or unchanged ones.

    The first offset of a log has nothing below it.
    """
    ends, logs = look.ends, {}
    for partition, at in offset.positions.items():
        known = position.logs.get(partition) if position.positions.get(partition) == at else None
        log = ends[partition].log.below(at) if known is None and partition in ends else known
        if log is not None and at:
            logs[partition] = log
    return logs


def waiting(offset: StreamOffset, look: CommitSnapshot) -> list[str]:
    """Return one sentence for each position above the end of the archive's log: the stream waits there."""
    return [
        f"{partition}: the stream is at offset {at}, above the end of the archive; it waits until segments up to there "
        "are shipped"
        for partition, at in sorted(offset.positions.items())
        if (end := look.ends.get(partition)) is not None and at > end.next_offset
    ]


def losses_between(start: StreamOffset, end: StreamOffset) -> list[str]:
    """Return one sentence for each loss that the two offsets show."""
    losses = []
    for name in sorted({partition.topic for partition in start.positions}):
        stood = start.of_topic(name)
        if was_created_again(start, end, name):
            stood = {each: at for each, at in stood.items() if not at or end.began.get(each) != at}
            if not stood:
                continue  # a restore put the records back, and the stream continues there
            before, after = start.topic_ids.get(name, "none"), end.topic_ids.get(name, "none")
            losses.append(
                f"topic {name} was deleted and created again (topic id {before}, now {after}): records of the "
                f"former one from {_places(stood)} on are not read"
            )
            continue
        for partition, at in stood.items():
            goes_on = end.positions.get(partition)
            if goes_on is None:
                losses.append(f"{partition} is missing; the stream is at offset {at}")
            elif goes_on < at:
                lost = f"{partition}: offsets {goes_on} to {at - 1} are lost"
                losses.append(f"{lost}: an election removed them after they were read")
    return losses


def was_created_again(start: StreamOffset, end: StreamOffset, topic: str) -> bool:
    """Return whether a topic is another incarnation at the end than at the start."""
    before, after = start.topic_ids.get(topic), end.topic_ids.get(topic)
    if before is not None or after is None:
        return before != after
    # No id was known before. The first id belongs to the same incarnation; a later one starts at its beginning.
    return any(partition in end.began or partition not in end.positions for partition in start.of_topic(topic))


def _is_same(position: StreamOffset, name: str, topic: TopicSnapshot) -> bool:
    """Return whether the positions belong to the incarnation of the snapshot. One without an id is the first."""
    known = position.topic_ids.get(name)
    return topic.is_first if known is None else known == topic.topic_id


def _next(at: int, read: ReadLog | None, end: PartitionEnd) -> int:
    """Return the next position: forward, or to the place where an election truncated the log, for this batch."""
    kept = kept_end(at, read, end.log, end.next_offset)
    return kept if kept < at else max(at, end.shown)


def _places(positions: dict[TopicPartition, int]) -> str:
    return ", ".join(f"offset {at} of {partition}" for partition, at in sorted(positions.items()))
