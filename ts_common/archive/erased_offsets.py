"""Erased offsets as a value: runs of offsets, each with the leader epoch that they were erased up to (reading rule 12).

An entry hides the record at its offset, unless the record's batch has a strictly higher leader epoch: an election can
put another record at the offset. The epoch is that of the record's batch and not the commit's, because a rebuilt commit
can give an offset another one.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, Self

from ts_common.json_objects import MAX_INT32, MAX_INT64


class ErasedRun(NamedTuple):
    """Offsets `[start, end)` that are hidden in batches of `epoch` and below."""

    start: int
    end: int
    epoch: int


def _longs() -> "array[int]":
    return array("q")


def _ints() -> "array[int]":
    return array("i")


@dataclass(frozen=True, slots=True)
class ErasedOffsets:
    """Erased offsets of a partition, as columns: no offset has two runs, and runs ascend.

    Attributes:
        starts: first offset of each run, int64.
        ends: the offset after the last of each run, int64.
        epochs: of each run, int32: batches with a higher leader epoch are shown.
    """

    starts: "array[int]" = field(default_factory=_longs, hash=False)
    ends: "array[int]" = field(default_factory=_longs, hash=False)
    epochs: "array[int]" = field(default_factory=_ints, hash=False)

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int, int]]) -> Self:
        """Return the offsets of runs `(start, end, epoch)` in any order; the greatest epoch of an offset counts."""
        return cls.ascending(_disjoint(sorted(runs)))

    @classmethod
    def ascending(cls, runs: Iterable[tuple[int, int, int]]) -> Self:
        """Return the offsets of runs `(start, end, epoch)`, each at or above the end of the one before.

        Raises:
            OverflowError: a number has more bits than its column.
            ValueError: a run is empty, or does not follow the one before.
        """
        starts, ends, epochs = _longs(), _longs(), _ints()
        last, last_epoch = 0, None
        for start, end, epoch in runs:
            if not last <= start < end:
                raise ValueError(f"the offsets from {start} to {end - 1} do not follow those below {last}")
            if start == last and epoch == last_epoch:
                ends[-1] = end
            else:
                starts.append(start)
                ends.append(end)
                epochs.append(epoch)
            last, last_epoch = end, epoch
        return cls(starts, ends, epochs)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.starts)

    def __iter__(self) -> Iterator[ErasedRun]:
        """Yield the runs, ascending."""
        return map(ErasedRun, self.starts, self.ends, self.epochs)

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(self.ends) - sum(self.starts)

    def hides(self, offset: int, epoch: int) -> bool:
        """Return whether the record at an offset is hidden in a batch of this leader epoch."""
        at = bisect_right(self.starts, offset) - 1
        return at >= 0 and offset < self.ends[at] and epoch <= self.epochs[at]

    def meets(self, start: int, end: int) -> bool:
        """Return whether one of the offsets `[start, end)` is erased, in whatever epoch."""
        return bool(self._reaching(start, end))

    def between(self, start: int, end: int) -> "ErasedOffsets":
        """Return the erased offsets in `[start, end)`."""
        found = self._reaching(start, end)
        if not found:
            return NOTHING_ERASED
        starts, ends = self.starts[found.start : found.stop], self.ends[found.start : found.stop]
        starts[0], ends[-1] = max(starts[0], start), min(ends[-1], end)
        return ErasedOffsets(starts, ends, self.epochs[found.start : found.stop])

    def in_batch(self, start: int, end: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of `[start, end)` that are hidden in a batch of this leader epoch, ascending."""
        for at in self._reaching(start, end):
            if epoch <= self.epochs[at]:
                yield max(start, self.starts[at]), min(end, self.ends[at])

    def _reaching(self, start: int, end: int) -> range:
        """Return the numbers of the runs with offsets in `[start, end)`."""
        return range(bisect_right(self.ends, start), bisect_left(self.starts, end)) if start < end else range(0)

    def union(self, other: "ErasedOffsets") -> "ErasedOffsets":
        """Return the offsets of both; of an offset in both, the greater epoch."""
        return ErasedOffsets.of([*self, *other]) if self and other else self or other

    def contains(self, other: "ErasedOffsets") -> bool:
        """Return whether this hides whatever the other hides."""
        return all(self._covers(*run) for run in other)

    def _covers(self, start: int, end: int, epoch: int) -> bool:
        at = bisect_right(self.ends, start)
        while start < end:
            if at == len(self.starts) or self.starts[at] > start or self.epochs[at] < epoch:
                return False
            start = self.ends[at]
            at += 1
        return True


NOTHING_ERASED = ErasedOffsets()
ALL_ERASED = ErasedOffsets.ascending([(0, MAX_INT64, MAX_INT32)])


def _disjoint(ordered: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the same offsets ascending, once each: those of the run with the greatest epoch."""
    reaching: list[tuple[int, int]] = []  # a heap of (-epoch, end)
    position = following = 0
    while reaching or following < len(ordered):
        if not reaching:
            position = ordered[following][0]
        while following < len(ordered) and ordered[following][0] <= position:
            _, end, epoch = ordered[following]
            heappush(reaching, (-epoch, end))
            following += 1
        while reaching and reaching[0][1] <= position:
            heappop(reaching)
        if reaching:
            negated, end = reaching[0]
            stop = min(end, ordered[following][0]) if following < len(ordered) else end
            yield position, stop, -negated
            position = stop
