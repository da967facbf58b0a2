"""What the phases of a run need of the policy, of holds and of readers; and why a partition is left out."""

from dataclasses import dataclass
from typing import Protocol

from ts_common.archive.object_keys import PartitionKeys
from tsctl.gc.due import Rule


class LeftOut(Exception):
    """A partition is left out of a run, with everything that it has.

    Args:
        reason: for the operator.
        is_expected: whether the operator configured it, as a hold or a reader that the run waits for.
    """

    def __init__(self, reason: str, *, is_expected: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_expected = is_expected


@dataclass(frozen=True, slots=True)
class NeededFrom:
    """What a reader still needs of a partition.

    Attributes:
        offset: the first offset.
        reader: its name.
        overdue: whether it has not moved for the longest wait.
    """

    offset: int
    reader: str
    overdue: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A partition or topic that a run left out.

    Attributes:
        where: the directory of the partition, or a name.
        reason: for the operator.
        is_expected: as in `LeftOut`.
    """

    where: str
    reason: str
    is_expected: bool


@dataclass(frozen=True, slots=True)
class TopicIncarnation:
    """One incarnation of a topic.

    Attributes:
        topic: its name.
        directory: as `Incarnation.directory`.
        topic_ids: all its topic ids; empty if the topic has no list of incarnations.
        over_since: when the next incarnation was first seen, ms since the epoch; None for the newest incarnation.
        partitions: keys of each partition that can have objects.
    """

    topic: str
    directory: str
    topic_ids: frozenset[str]
    over_since: int | None
    partitions: tuple[PartitionKeys, ...]


class Retention(Protocol):
    """Answers for one topic or partition; each raises `LeftOut` to leave it out."""

    def rule(self, topic: str) -> Rule | None:
        """Return the rule of a topic; None if nothing of it is ever due."""

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        """Return the first offset that a reader still needs; None if no reader needs any."""

    def check_holds(self, topic: str) -> None:
        """Raise `LeftOut` if a hold stops deletions of a topic; holds are read again for each call."""

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        """Return whether everything of an incarnation is due, because it was over long ago."""
