"""Which partitions are stuck: something waits, and nothing was committed for `ts.segment.uploader.stuck.after.ms`.

The time counts from the first look that showed a partition to wait, and begins again with each commit that moves its
next offset. The files' times say nothing about it: the log cleaner makes a partition's files new at each cleaning. One
thread takes the looks, with the monotonic clock; what a look returns is not changed any more.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from ts_common.model import TopicPartition
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason

log = structlog.get_logger()

SERIES: Final = 100  # partitions that metrics and `/status.json` name


@dataclass(frozen=True, slots=True)
class Stuck:
    """A stuck partition.

    Attributes:
        wait: what it waits for.
        seconds: since when.
    """

    wait: Wait
    seconds: float


@dataclass(frozen=True, slots=True)
class StuckPartitions:
    """All that one look showed to be stuck, by partition."""

    by_partition: Mapping[TopicPartition, Stuck] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_partition)

    def find(self, partition: TopicPartition) -> Stuck | None:
        """What it is stuck in; None where it is not."""
        return self.by_partition.get(partition)

    def longest(self, most: int = SERIES) -> list[tuple[TopicPartition, Stuck]]:
        """Those that have been stuck for the longest time, the longest first."""
        ordered = sorted(self.by_partition.items(), key=lambda item: (-item[1].seconds, str(item[0])))
        return ordered[:most]

    def longest_by_reason(self) -> Mapping[WaitReason, tuple[TopicPartition, Stuck]]:
        """Of each reason that there is, the partition that has been stuck for the longest time."""
        return {item[1].wait.reason: item for item in reversed(self.longest(len(self)))}

    def counts(self) -> Mapping[WaitReason, int]:
        """How many are stuck, by reason; each reason is there."""
        found = Counter(stuck.wait.reason for stuck in self.by_partition.values())
        return {reason: found[reason] for reason in WaitReason}


@dataclass(frozen=True, slots=True)
class Look:
    """What changed with one look.

    Attributes:
        stuck: what is stuck now.
        begun: what is stuck for a reason that was not logged yet.
        ended: (partition, seconds) of what is stuck no more.
    """

    stuck: StuckPartitions
    begun: Sequence[tuple[TopicPartition, Stuck]]
    ended: Sequence[tuple[TopicPartition, float]]

    def log(self) -> None:
        """Log what changed."""
        for partition, stuck in self.begun:
            log.error(
                "partition_stuck",
                partition=str(partition),
                reason=stuck.wait.reason.value,
                waits_for=stuck.wait.text,
                seconds=round(stuck.seconds),
            )
        for partition, seconds in self.ended:
            log.info("partition_unstuck", partition=str(partition), seconds=round(seconds))


@dataclass(slots=True)
class _Waiting:
    """A partition that waits."""

    since: float  # by the monotonic clock, as of the first look or the last progress
    next_offset: int | None
    told: set[WaitReason] = field(default_factory=set)  # logged since


class StuckWatch:
    """Takes looks; the property of one thread."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, _Waiting] = {}

    def look(
        self,
        backlog: Mapping[TopicPartition, Backlog],
        unheard: Mapping[TopicPartition, Wait],
        after_seconds: float,
        now: float,
    ) -> Look:
        """Take one look.

        Args:
            backlog: of all partitions that are led here.
            unheard: partitions that may be led here, and of which the leadership source has said nothing.
            after_seconds: how long nothing has to move before a partition is stuck.
            now: by the monotonic clock, in seconds.
        """
        waits = {partition: (one.next_offset, wait) for partition, one in backlog.items() if (wait := _wait(one))}
        waits |= {partition: (None, wait) for partition, wait in unheard.items()}
        stuck: dict[TopicPartition, Stuck] = {}
        begun: list[tuple[TopicPartition, Stuck]] = []
        ended: list[tuple[TopicPartition, float]] = []
        for partition in self._waiting.keys() - waits.keys():
            waiting = self._waiting.pop(partition)
            if waiting.told:
                ended.append((partition, now - waiting.since))
        for partition, (next_offset, wait) in waits.items():
            waiting = self._waiting.setdefault(partition, _Waiting(now, next_offset))
            if next_offset is not None:
                if waiting.next_offset is not None and next_offset > waiting.next_offset:
                    if waiting.told:
                        ended.append((partition, now - waiting.since))
                    waiting = self._waiting[partition] = _Waiting(now, next_offset)
                waiting.next_offset = next_offset
            if now - waiting.since < after_seconds:
                continue
            stuck[partition] = Stuck(wait, now - waiting.since)
            if wait.reason not in waiting.told:
                waiting.told.add(wait.reason)
                begun.append((partition, stuck[partition]))
        return Look(StuckPartitions(stuck), begun, ended)


def _wait(backlog: Backlog) -> Wait | None:
    """What a partition waits for, if it may be stuck in that."""
    wait = backlog.wait
    return wait if wait is not None and (backlog.segments or backlog.hole or not wait.ordinary) else None
