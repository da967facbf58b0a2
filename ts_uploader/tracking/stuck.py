"""Which partitions are stuck: they wait, and committed nothing for `ts.segment.uploader.stuck.after.ms`.

The time counts from the first look that showed the partition waiting. It begins again with each commit that moves the
next offset. File times are no measure: the log cleaner writes a partition's files again at each cleaning. One thread
calls `look`, with the monotonic clock. The returned values never change.
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
        seconds: how long it has been waiting without progress.
    """

    wait: Wait
    seconds: float


@dataclass(frozen=True, slots=True)
class StuckPartitions:
    """All partitions that were stuck at one look."""

    by_partition: Mapping[TopicPartition, Stuck] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_partition)

    def find(self, partition: TopicPartition) -> Stuck | None:
        """Return what the partition is stuck in; None if it is not stuck."""
        return self.by_partition.get(partition)

    def longest(self, most: int = SERIES) -> list[tuple[TopicPartition, Stuck]]:
        """Return the partitions that have been stuck longest, the longest first."""
        ordered = sorted(self.by_partition.items(), key=lambda item: (-item[1].seconds, str(item[0])))
        return ordered[:most]

    def longest_by_reason(self) -> Mapping[WaitReason, tuple[TopicPartition, Stuck]]:
        """Return, for each reason in use, the partition that has been stuck longest."""
        return {item[1].wait.reason: item for item in reversed(self.longest(len(self)))}

    def counts(self) -> Mapping[WaitReason, int]:
        """Return the number of stuck partitions for every reason, 0 included."""
        found = Counter(stuck.wait.reason for stuck in self.by_partition.values())
        return {reason: found[reason] for reason in WaitReason}


@dataclass(frozen=True, slots=True)
class Waiting:
    """What has waited longest.

    Attributes:
        partition: that has waited longest.
        wait: what it waits for.
        seconds: since it began to wait, or since its last commit.
        quiet_seconds: since any partition committed, or since the first began to wait.
    """

    partition: TopicPartition
    wait: Wait
    seconds: float
    quiet_seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """What changed with one look.

    Attributes:
        stuck: what is stuck now.
        begun: partitions that are stuck for a reason that was not logged yet.
        ended: (partition, seconds) of those that are no longer stuck.
        waiting: what has waited longest; None if nothing waits.
    """

    stuck: StuckPartitions
    begun: Sequence[tuple[TopicPartition, Stuck]]
    ended: Sequence[tuple[TopicPartition, float]]
    waiting: Waiting | None = None

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

    since: float  # of the first look or the last progress, monotonic clock
    next_offset: int | None
    logged: set[WaitReason] = field(default_factory=set)  # since then


class StuckWatch:
    """Measures how long each partition waits. Used by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._moved_at = float("-inf")  # the last commit of any partition

    def look(
        self,
        backlog: Mapping[TopicPartition, Backlog],
        unreported: Mapping[TopicPartition, Wait],
        after_seconds: float,
        now: float,
    ) -> Look:
        """Return which partitions are stuck, and what changed since the last call.

        Args:
            backlog: of the partitions that this broker leads and that wait; others have no effect.
            unreported: partitions whose leader the leadership source never reported.
            after_seconds: without progress for this long, a partition is stuck.
            now: seconds of the monotonic clock.
        """
        waits = {partition: (one.next_offset, wait) for partition, one in backlog.items() if (wait := _wait(one))}
        waits |= {partition: (None, wait) for partition, wait in unreported.items()}
        stuck: dict[TopicPartition, Stuck] = {}
        begun: list[tuple[TopicPartition, Stuck]] = []
        ended: list[tuple[TopicPartition, float]] = []
        for partition in self._waiting.keys() - waits.keys():
            waiting, self._moved_at = self._waiting.pop(partition), now
            if waiting.logged:
                ended.append((partition, now - waiting.since))
        for partition, (next_offset, wait) in waits.items():
            waiting = self._waiting.setdefault(partition, _Waiting(now, next_offset))
            if next_offset is not None:
                if waiting.next_offset is not None and next_offset > waiting.next_offset:
                    if waiting.logged:
                        ended.append((partition, now - waiting.since))
                    waiting = self._waiting[partition] = _Waiting(now, next_offset)
                    self._moved_at = now
                waiting.next_offset = next_offset
            if now - waiting.since < after_seconds:
                continue
            stuck[partition] = Stuck(wait, now - waiting.since)
            if wait.reason not in waiting.logged:
                waiting.logged.add(wait.reason)
                begun.append((partition, stuck[partition]))
        return Look(StuckPartitions(stuck), begun, ended, self._longest(waits, now))

    def _longest(self, waits: Mapping[TopicPartition, tuple[int | None, Wait]], now: float) -> Waiting | None:
        if not self._waiting:
            return None
        partition = min(self._waiting, key=lambda each: self._waiting[each].since)
        since = self._waiting[partition].since
        return Waiting(partition, waits[partition][1], now - since, now - max(since, self._moved_at))


def _wait(backlog: Backlog) -> Wait | None:
    """Return what a partition waits for, if it can be stuck in that."""
    wait = backlog.wait
    return wait if wait is not None and (backlog.segments or backlog.hole or not wait.ordinary) else None
