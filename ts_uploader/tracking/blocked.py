"""Why a partition does not go on.

`WaitReason` is the small fixed set that metrics count by; the text beside it, which the log shows, says more. How long
a partition has been stuck is the matter of `ts_uploader.tracking.stuck`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ts_common.model import TopicPartition


class WaitReason(StrEnum):
    """What has to be known, be there or succeed, before the commit of a partition can move."""

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
    WaitReason.SEGMENT: "its directory holds no segment",
    WaitReason.TOPIC_ID: "the directory is not of the topic id that the cluster names",
    WaitReason.RENAMES: "the log cleaner's renames have not ended",
    WaitReason.DIRECTORIES: "several log dirs hold a live directory of it, and no checkpoint shows which one is used",
    WaitReason.EPOCH: "the broker's leader-epoch-checkpoint is unreadable, or does not end with this leader epoch",
    WaitReason.HIGH_WATERMARK: "the broker has not written its second high watermark checkpoint as the leader",
    WaitReason.STORE: "the store did not say where to go on, twice in a row or more",
    WaitReason.LEADERSHIP: "the store shows a later leader epoch than the leadership source",
    WaitReason.LEADER: "the leadership source has never said who leads it, so it may be led here",
    WaitReason.HOLE: "nothing that this broker holds continues the run",
    WaitReason.GAP: "two listings have not agreed yet that the next offsets are gone",
    WaitReason.POSITION: "the store has not answered yet where to go on",
    WaitReason.BELOW_HIGH_WATERMARK: "the high watermark stays below the end of a closed segment",
    WaitReason.CHANGED: "a segment changes each time that it is read",
    WaitReason.UPLOAD: "the upload of a segment fails, or does not end",
    WaitReason.COMMIT: "the commit fails, is refused, or does not end",
    WaitReason.DEFECT: "the agent met an error that it does not expect, and left the partition alone",
}


class Wait(NamedTuple):
    """What a partition waits for: one of few reasons, and a line for the log.

    `ordinary` is what passes by itself within seconds, as a first upload that is under way does: it is counted nowhere
    and logged nowhere, unless the partition is stuck in it.
    """

    reason: WaitReason
    text: str
    ordinary: bool = False


class Waits:
    """What partitions wait for, as far as looks at them show; the property of one thread."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition, tuple[Wait, bool]] = {}

    def look(self, waiting: Mapping[TopicPartition, Wait]) -> dict[TopicPartition, str]:
        """Take one look.

        Args:
            waiting: what each partition waits for; those that do not wait are not among them.

        Returns:
            what is to be logged: what waits for the same at two looks and was not told yet. What is so at one look
            only, or is ordinary, is the ordinary course of things.
        """
        told = {}
        seen: dict[TopicPartition, tuple[Wait, bool]] = {}
        for partition, wait in waiting.items():
            if wait.ordinary:
                continue
            before, was_told = self._before.get(partition, (None, False))
            seen[partition] = (wait, before == wait)
            if before == wait and not was_told:
                told[partition] = wait.text
        self._before = seen
        return told
