"""Why a partition cannot go on, and for how long already.

`WaitReason` is the small fixed set that metrics count by; the text beside it, which the log shows, says more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ts_common.model import TopicPartition


class WaitReason(StrEnum):
    """What would have to be known or be there, before anything of a partition can go."""

    SEGMENT = "segment"
    TOPIC_ID = "topic_id"
    RENAMES = "renames"
    DIRECTORIES = "directories"
    EPOCH = "epoch"
    HIGH_WATERMARK = "high_watermark"
    STORE = "store"
    LEADERSHIP = "leadership"
    LEADER = "leader"
    HOLE = "hole"


WAIT_REASONS: Mapping[WaitReason, str] = {
    WaitReason.SEGMENT: "its directory holds no segment",
    WaitReason.TOPIC_ID: "the directory is not of the topic id that the cluster names",
    WaitReason.RENAMES: "the log cleaner's renames have not ended",
    WaitReason.DIRECTORIES: "several log dirs hold a live directory of it, and no checkpoint shows which one is used",
    WaitReason.EPOCH: "the broker's leader-epoch-checkpoint is unreadable, or does not end with this leader epoch",
    WaitReason.HIGH_WATERMARK: "the broker has not written its second high watermark checkpoint as the leader",
    WaitReason.STORE: "the store did not say where to go on, twice in a row or more",
    WaitReason.LEADERSHIP: "the store shows a later reign than the leadership source",
    WaitReason.LEADER: "the leadership source has never said who leads it, so it may be led here",
    WaitReason.HOLE: "nothing that this broker holds continues the run",
}


class Wait(NamedTuple):
    """What a partition waits for: one of few reasons, and a line for the log."""

    reason: WaitReason
    text: str


@dataclass(frozen=True, slots=True)
class _Since:
    wait: Wait
    seconds: float  # by the monotonic clock
    told: bool = False


class Waits:
    """Since when partitions wait, as far as looks at them show; the property of one thread."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, _Since] = {}

    def look(self, waiting: Mapping[TopicPartition, Wait], now: float) -> dict[TopicPartition, str]:
        """Take one look.

        Args:
            waiting: what each partition waits for; those that do not wait are not among them.
            now: by the monotonic clock, in seconds.

        Returns:
            what is to be logged: what waits for the same at two looks and was not told yet. What is so at one look
            only is the ordinary course of things.
        """
        told = {}
        since: dict[TopicPartition, _Since] = {}
        for partition, wait in waiting.items():
            before = self._since.get(partition)
            if before is None or before.wait.reason is not wait.reason:
                since[partition] = _Since(wait, now)
            elif before.wait == wait and not before.told:
                since[partition] = _Since(wait, before.seconds, told=True)
                told[partition] = wait.text
            else:
                since[partition] = _Since(wait, before.seconds, told=before.told and before.wait == wait)
        self._since = since
        return told

    def longest(self, now: float) -> dict[WaitReason, float]:
        """Of each reason the longest that a partition has waited for it without a break, in seconds; 0 for none."""
        longest = dict.fromkeys(WaitReason, 0.0)
        for since in self._since.values():
            longest[since.wait.reason] = max(longest[since.wait.reason], now - since.seconds)
        return longest
