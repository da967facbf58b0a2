"""The next offset of a stream, from its position and a snapshot of the commits, and the losses in between. Pure.

A new partition, a new topic that matches a pattern, and a topic that was created again start at their beginning. What
is missing keeps its position, so that nothing is read twice if it returns. Losses are sentences: the caller fails for
them, or warns.
"""

from collections.abc import Callable

from ts_common.archive.epoch_history import EpochHistory
from ts_common.following.commit_snapshot import CommitSnapshot, PartitionEnd, TopicSnapshot
from ts_common.following.offset import StreamOffset
from ts_common.model import TopicPartition


def advance(
    position: StreamOffset, look: CommitSnapshot, earliest: Callable[[PartitionEnd], int]
) -> tuple[StreamOffset, list[str]]:
    """Return the furthest offset of the stream, and one sentence for each loss that only a snapshot shows.

    Args:
        position: of the stream.
        look: the snapshot.
        earliest: returns the first offset of a new partition.
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
        if topic.topic_id is not None:
            ids[name] = topic.topic_id
        if not _is_same(position, name, topic):
            stood = {}
        for partition, at in stood.items():
            end = topic.ends.get(partition)
            positions[partition] = at if end is None else _next(at, position.epochs.get(partition), end)
            if end is None:
                losses.append(
                    f"{partition}: the stream is at offset {at}, and its commit is missing from the store, or the "
                    "subscription no longer names it"
                )
        for partition in sorted(topic.ends.keys() - stood.keys()):
            began[partition] = earliest(topic.ends[partition])
            positions[partition] = max(began[partition], topic.ends[partition].shown)
    return StreamOffset(positions, ids, began=began), losses


def begins(position: StreamOffset, furthest: StreamOffset) -> dict[TopicPartition, int]:
    """Return where each partition of `furthest` starts: at its position, or at the beginning of a new one."""
    return {**position.positions, **furthest.began}


def lag(position: StreamOffset, furthest: StreamOffset) -> int:
    """Return the number of offsets from a position to the furthest one."""
    starts = begins(position, furthest)
    return sum(max(0, at - starts[partition]) for partition, at in furthest.positions.items())


def epochs_of(position: StreamOffset, offset: StreamOffset, look: CommitSnapshot) -> dict[TopicPartition, int]:
    """Return the epochs that wrote the offsets before those of `offset`: from the commits, or unchanged ones."""
    ends, epochs = look.ends, {}
    for partition, at in offset.positions.items():
        known = position.epochs.get(partition) if position.positions.get(partition) == at else None
        epoch = known if known is not None or partition not in ends else ends[partition].epochs.at(at - 1)
        if epoch is not None:
            epochs[partition] = epoch
    return epochs


def living_until(at: int, epoch: int | None, line: EpochHistory, end: int) -> int:
    """Return the end of the log that was read: `at`, or where an election truncated it.

    A Kafka consumer validates its position in the same way (KIP-320). A commit that was lost and rebuilt may end below
    the position for some time. If its epochs still have the same epoch before the position, the leader holds what was
    read.

    Args:
        at: the position.
        epoch: that wrote the offset before it when it was read; None if unknown.
        line: which epoch wrote which offset now.
        end: of the log now.
    """
    now = line.at(at - 1)
    if epoch is not None and now == epoch:
        return at
    if epoch is not None and now is not None and now != epoch <= line.pairs[-1][0]:
        at = min(at, line.end_of(epoch, end)[1])
    return min(at, end)


def losses_between(start: StreamOffset, end: StreamOffset) -> list[str]:
    """Return one sentence for each loss that the two offsets show."""
    losses = []
    for name in sorted({partition.topic for partition in start.positions}):
        stood = start.of_topic(name)
        if was_created_again(start, end, name):
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


def _next(at: int, epoch: int | None, end: PartitionEnd) -> int:
    """Return the next position: forward, or to the place where an election truncated the log, for this batch."""
    living = living_until(at, epoch, end.epochs, end.next_offset)
    return living if living < at else max(at, end.shown)


def _places(positions: dict[TopicPartition, int]) -> str:
    return ", ".join(f"offset {at} of {partition}" for partition, at in sorted(positions.items()))
