"""Why the commit of a partition does not move.

Metrics count by `WaitReason`, a small fixed set; the log shows a text with the details. `ts_uploader.tracking.stuck`
measures how long a partition has been stuck.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ts_common.model import TopicPartition


class WaitReason(StrEnum):
    """What is missing or fails before the commit of a partition can move."""

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
    GAP = "gap"
    POSITION = "position"
    BELOW_HIGH_WATERMARK = "below_high_watermark"
    CHANGED = "changed"
    UPLOAD = "upload"
    COMMIT = "commit"
    DEFECT = "defect"


WAIT_REASONS: Mapping[WaitReason, str] = {
    WaitReason.SEGMENT: "its directory contains no segment",
    WaitReason.TOPIC_ID: "the directory has another topic id than the cluster",
    WaitReason.RENAMES: "the log cleaner's renames have not ended",
    WaitReason.DIRECTORIES: "several log dirs have a live directory of it, and no checkpoint shows which one is used",
    WaitReason.EPOCH: "the broker's leader-epoch-checkpoint is unreadable, or does not end with this leader epoch",
    WaitReason.HIGH_WATERMARK: "the broker has not written its second high watermark checkpoint as the leader",
    WaitReason.STORE: "reading the position from the store failed at least twice in a row",
    WaitReason.LEADERSHIP: "the store shows a later leader epoch than the leadership source",
    WaitReason.LEADER: "the leadership source never reported its leader, so this broker may lead it",
    WaitReason.HOLE: "no segment on this broker continues the run",
    WaitReason.GAP: "two listings have not agreed yet that the next offsets are missing",
    WaitReason.POSITION: "the first read of the position from the store has not ended",
    WaitReason.BELOW_HIGH_WATERMARK: "the high watermark stays below the end of a closed segment",
    WaitReason.CHANGED: "a segment changes each time the agent reads it",
    WaitReason.UPLOAD: "the upload of a segment fails, or does not end",
    WaitReason.COMMIT: "the commit fails, is rejected, or does not end",
    WaitReason.DEFECT: "the agent met an unexpected error, and stopped the partition",
}


class Wait(NamedTuple):
    """What a partition waits for: a reason, and a line for the log.

    An ordinary wait ends by itself within seconds, as a first upload does. It is counted and logged only if the
    partition is stuck in it.
    """

    reason: WaitReason
    text: str
    ordinary: bool = False


class Waits:
    """Decides which waits are logged. Used by one thread."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition, tuple[Wait, bool]] = {}

    def look(self, waiting: Mapping[TopicPartition, Wait]) -> dict[TopicPartition, str]:
        """Return the text to log of each partition that began to wait.

        A wait is logged once, when two calls in a row show it. Ordinary waits are not logged.

        Args:
            waiting: the wait of each partition that has one.
        """
        begun = {}
        seen: dict[TopicPartition, tuple[Wait, bool]] = {}
        for partition, wait in waiting.items():
            if wait.ordinary:
                continue
            before, is_logged = self._before.get(partition, (None, False))
            seen[partition] = (wait, before == wait)
            if before == wait and not is_logged:
                begun[partition] = wait.text
        self._before = seen
        return begun
