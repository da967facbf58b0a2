"""The partitions that the source polls: each in its turn, with the facts that it has about each."""

from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Final, Generic, TypeVar

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.local_log import EpochsMark
from ts_uploader.messages.observations import Leadership

NEVER: Final = float("-inf")
T = TypeVar("T", TopicPartition, str)


class Turns(Generic[T]):
    """Selects some of many items at a time, each in its turn, however many there are."""

    def __init__(self) -> None:
        self._all: list[T] = []
        self._last: T | None = None  # the last selected; None: the first is next

    def change(self, among: Set[T]) -> None:
        """Select among other items from now on."""
        self._all = sorted(among)

    def take(self, most: int, size: Callable[[T], int] = lambda _: 1) -> Sequence[T]:
        """Return the next items, none that was returned in this turn.

        Args:
            most: of all sizes together; only the last item can exceed it. For 0 or less, no item is returned.
            size: of an item.
        """
        at = 0 if self._last is None else bisect_right(self._all, self._last)
        taken: list[T] = []
        for item in islice(self._all, at, None):
            if most <= 0:
                break
            taken.append(item)
            most -= size(item)
        if taken:
            self._last = taken[-1] if at + len(taken) < len(self._all) else None
        return taken


class KnownPartition:
    """The state of one partition.

    Attributes:
        directory: the live one; None until one is found. If there are several, the one that is being confirmed.
        mark: of its checkpoint, as last read.
        confirmed: the mark for which `leadership` was confirmed; None if it is not confirmed.
        requested_at: when, by the monotonic clock.
        leadership: this broker's; None unless it is confirmed to lead.
        unconfirmed_since: when the broker began to lead by its metadata without confirming it; monotonic clock.
        reported: the leadership that was last reported; None for another leader, or none.
        reported_at: when, by the monotonic clock; `NEVER` also to have it repeated.
    """

    __slots__ = (
        "confirmed",
        "directory",
        "leadership",
        "mark",
        "reported",
        "reported_at",
        "requested_at",
        "unconfirmed_since",
    )

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.mark: EpochsMark | None = None
        self.confirmed: EpochsMark | None = None
        self.requested_at = 0.0
        self.leadership: Leadership | None = None
        self.unconfirmed_since: float | None = None
        self.reported: Leadership | None = None
        self.reported_at = NEVER
