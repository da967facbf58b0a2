"""What a run needs of the policy, of holds and of readers; and why a partition is left out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen
from tsctl.gc.due import Rule

# Errors of one object, which leave its topic or partition out and not the whole run; as a `LeftOut` does.
UNREADABLE: Final = (CorruptData, NewerFormat, ObjectFrozen)


class Why(StrEnum):
    """Why something is left out of a run. A run with a doubt or an overdue reader ends with a finding."""

    DOUBT = "doubt"
    OVERDUE = "overdue reader"
    HELD = "hold"
    WAITS = "reader"
    FUSE = "fuse"
    CHANGED = "changed meanwhile"

    @property
    def is_finding(self) -> bool:
        """Whether the operator must act."""
        return self in {Why.DOUBT, Why.OVERDUE, Why.FUSE}


class LeftOut(Exception):
    """A partition is left out of a run, with everything that it has."""

    def __init__(self, reason: str, why: Why = Why.DOUBT) -> None:
        super().__init__(reason)
        self.why = why


LEAVES_OUT: Final = (LeftOut, *UNREADABLE)


@dataclass(frozen=True, slots=True)
class NeededFrom:
    """What a reader still needs of a partition.

    Attributes:
        overdue: whether it has not moved for the longest wait. It matters only if nothing else keeps the offsets: a
            reader at the end of an idle partition does not move either.
    """

    offset: int
    reader: str
    overdue: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A partition or topic that a run left out, or keeps more of than its rule.

    Attributes:
        where: the directory of the partition, or a name.
    """

    where: str
    reason: str
    why: Why = Why.DOUBT

    @classmethod
    def of(cls, where: str, error: Exception) -> "Skipped":
        """Return what a run left out there, by a `LeftOut` or an error of `UNREADABLE`."""
        return cls(where, str(error), error.why if isinstance(error, LeftOut) else Why.DOUBT)


@dataclass(frozen=True, slots=True)
class TopicIncarnation:
    """One incarnation of a topic, or what a topic left at its old place when it moved to another endpoint.

    Attributes:
        directory: as `Incarnation.directory`.
        topic_ids: all its topic ids; empty if the topic has no list of incarnations.
        over_since: when the next incarnation was first seen, ms since the epoch; None for the newest incarnation.
        partitions: keys of each partition that can have objects.
        is_old_place: whether the archive has the topic in another store now.
    """

    topic: str
    directory: str
    topic_ids: frozenset[str]
    over_since: int | None
    partitions: tuple[PartitionKeys, ...]
    is_old_place: bool = False


class Retention(Protocol):
    """Answers for one topic or partition; each raises `LeftOut` to leave it out."""

    def rule(self, topic: str) -> Rule | None:
        """Return the rule of a topic; None if nothing of it is ever due."""

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        """Return the first offset that a reader still needs; None if no reader needs any."""

    def check_holds(self, topic: str) -> None:
        """Raise `LeftOut` if a hold stops deletions of a topic; holds are read again after a few seconds."""

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        """Return whether everything of an incarnation is due, because it was over long ago."""
