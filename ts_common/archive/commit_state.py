"""Decide what a partition is whose commit is missing or damaged: at its beginning, or lost to readers.

An agent uploads the first segment of a partition, then writes its commit. So for a short time a healthy partition has
segments and no commit. Later, a reader that returned none of its records would give half an answer.

The inputs are times of the store alone: `ObjectInfo.modified` and `ObjectStore.current_time`. Only an identity that can
write segments of the partition can make the newest one younger. No time inside of an object counts. If a segment is
newer than the store's clock allows, two clocks disagree, and the partition counts as lost.

An upload in progress is not listed, and its indexes are as old as its beginning. So the first segment of a partition
may upload for `FIRST_UPLOAD_SECONDS` after the last other one ended. Then the partition is lost until its commit.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

# The commit follows its first segment in seconds; a store that rejects requests can delay it by minutes.
FIRST_UPLOAD_SECONDS: Final = 15 * 60.0


class CommitState(StrEnum):
    """The state of a partition's commit; of the last three, the value is the code of a finding of `tsctl verify`."""

    COMMITTED = "committed"
    EMPTY = "empty"  # neither commit nor segment: readers lose nothing
    BEGINNING = "beginning"
    MISSING = "no-commit"
    DAMAGED = "commit-damaged"

    @property
    def is_loss(self) -> bool:
        """Whether each reader loses the records of the partition."""
        return self in {CommitState.MISSING, CommitState.DAMAGED}


def commit_state(*, has_commit: bool, is_damaged: bool, written: Iterable[float | None], now: float) -> CommitState:
    """Return the state of a partition's commit.

    Args:
        has_commit: whether `offset.wm` was read.
        is_damaged: whether `offset.wm` or `log.start` is malformed. A put is atomic, so no upload leaves that.
        written: when each `.log` object was written, in seconds since the epoch by the store's clock; None if unknown.
        now: the same clock.
    """
    if is_damaged:
        return CommitState.DAMAGED
    if has_commit:
        return CommitState.COMMITTED
    times = [float("-inf") if each is None else each for each in written]
    if not times:
        return CommitState.EMPTY
    is_young = abs(now - max(times)) < FIRST_UPLOAD_SECONDS
    return CommitState.BEGINNING if is_young else CommitState.MISSING
