"""The segments of sealed ranges, as copies and as ranges to read; each is made when it is needed.

A plan of a million segments has a few columns of numbers. A copy and a range of each would be a gigabyte.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import TypeVar, overload

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_objects import SealedObject

_Step = TypeVar("_Step", ReadRange, ReadRange | Hole)


def copy_of(keys: PartitionKeys, sealed: SealedObject, number: int) -> SegmentCopy:
    """Return the copy of one row."""
    row = sealed.row(number)
    return SegmentCopy(keys, StoredSegment(SegmentName(row.base), row.size, row.suffixes, row.etag), row.metadata)


class Copies(Sequence[SegmentCopy]):
    """The copies of a partition in the order of offsets: listed ones, and the rows of sealed ranges.

    Args:
        listed: those that are no rows.
        rows: of each sealed object, the numbers of rows.
    """

    def __init__(
        self, keys: PartitionKeys, listed: Sequence[SegmentCopy], rows: Sequence[tuple[SealedObject, range]]
    ) -> None:
        self.listed = listed
        self._keys = keys
        self._rows = rows
        self._all: tuple[SegmentCopy, ...] | None = None

    def __len__(self) -> int:
        return len(self.listed) + sum(len(numbers) for _, numbers in self._rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Copies):
            return (self._keys, self.listed, self._rows) == (other._keys, other.listed, other._rows)
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self.listed))

    @overload
    def __getitem__(self, index: int) -> SegmentCopy: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SegmentCopy]: ...
    def __getitem__(self, index: int | slice) -> SegmentCopy | Sequence[SegmentCopy]:
        if self._all is None:
            rows = (copy_of(self._keys, sealed, number) for sealed, numbers in self._rows for number in numbers)
            self._all = tuple(sorted((*self.listed, *rows), key=lambda copy: copy.base))
        return self._all[index]


def listed_of(copies: Sequence[SegmentCopy]) -> Sequence[SegmentCopy]:
    """Return the copies that are no rows of a sealed object."""
    return copies.listed if isinstance(copies, Copies) else copies


def ending_above(sealed: Iterable[SealedObject], start: int) -> Iterator[tuple[SealedObject, int]]:
    """Yield each sealed object with the number of its first row that ends above an offset."""
    for each in sealed:
        yield each, bisect_right(each.columns["end"], start)


@dataclass(frozen=True, slots=True)
class SealedRun(Sequence[ReadRange]):
    """The ranges `[start, end)` of consecutive rows of a sealed object."""

    keys: PartitionKeys
    sealed: SealedObject
    start: int
    end: int

    @property
    def rows(self) -> range:
        """The numbers of the rows with these offsets."""
        columns = self.sealed.columns
        return range(bisect_right(columns["end"], self.start), bisect_right(columns["base"], self.end - 1))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> ReadRange: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadRange]: ...
    def __getitem__(self, index: int | slice) -> ReadRange | Sequence[ReadRange]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        return self.of_row(self.rows[index])

    def of_row(self, number: int) -> ReadRange:
        """Return the range of a row of the sealed object."""
        columns = self.sealed.columns
        start, end = max(columns["base"][number], self.start), min(columns["end"][number], self.end)
        return ReadRange(start, end, (copy_of(self.keys, self.sealed, number),))

    def part(self, first: int, stop: int) -> "SealedRun":
        """Return the run of rows from one to before another."""
        columns = self.sealed.columns
        start, end = max(columns["base"][first], self.start), min(columns["end"][stop - 1], self.end)
        return SealedRun(self.keys, self.sealed, start, end)

    def __reduce__(self) -> tuple[type["SealedRun"], tuple[object, ...]]:
        """Pickle the run with its own rows only, for one task."""
        rows = self.rows
        return SealedRun, (self.keys, self.sealed.part(rows.start, rows.stop), self.start, self.end)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each range, by its share of the offsets of its row."""
        rows, columns = self.rows, self.sealed.columns
        sizes = list(columns["size"][rows.start : rows.stop])
        for at in {0, len(sizes) - 1}:
            number = rows[at]
            base, end = columns["base"][number], columns["end"][number]
            sizes[at] = sizes[at] * (min(end, self.end) - max(base, self.start)) // (end - base)
        return sizes


Part = ReadRange | SealedRun


class Ranges(Sequence[_Step]):
    """Ranges to read in order, and holes in between, some ranges as runs; it can be pickled."""

    def __init__(self, parts: Sequence[_Step | SealedRun]) -> None:
        self.parts: tuple[_Step | SealedRun, ...] = tuple(parts)
        self._ends = list(accumulate(len(part) if isinstance(part, SealedRun) else 1 for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[_Step]:
        return chain.from_iterable(part if isinstance(part, SealedRun) else (part,) for part in self.parts)

    @overload
    def __getitem__(self, index: int) -> _Step: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_Step, ...]: ...
    def __getitem__(self, index: int | slice) -> _Step | tuple[_Step, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        at = bisect_right(self._ends, number)
        part = self.parts[at]
        return part[number - (self._ends[at - 1] if at else 0)] if isinstance(part, SealedRun) else part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def number_at(self, offset: int) -> int:
        """Return the number of the last step that begins at or below an offset; -1 if all begin above."""
        at = bisect_right(self.parts, offset, key=attrgetter("start")) - 1
        if at < 0:
            return -1
        part, number = self.parts[at], self._ends[at - 1] if at else 0
        if not isinstance(part, SealedRun):
            return number
        rows, bases = part.rows, part.sealed.columns["base"]
        return number + bisect_right(bases, offset, rows.start, rows.stop) - 1 - rows.start


def as_ranges(parts: Sequence[_Step | SealedRun]) -> Sequence[_Step]:
    """Return ranges and holes as a tuple, unless some are runs."""
    plain = tuple(part for part in parts if not isinstance(part, SealedRun))
    return plain if len(plain) == len(parts) else Ranges(parts)


def with_markers(ranges: Sequence[ReadRange], start: int) -> Iterator[int]:
    """Yield the numbers of the ranges that end above an offset and can have abort markers, ascending.

    A row of a sealed object without a `.txnindex` has none.
    """
    number = 0
    for part in parts_of(ranges):
        if isinstance(part, SealedRun):
            rows, flags = part.rows, part.sealed.columns["flags"]
            first = max(rows.start, bisect_right(part.sealed.columns["end"], start))
            yield from (
                number + row - rows.start for row in range(first, rows.stop) if flags[row] & SealedObject.STATE_BITS
            )
            number += len(rows)
        else:
            if part.end > start:
                yield number
            number += 1


def number_at(steps: Sequence[_Step], offset: int) -> int:
    """Return the number of the last step that begins at or below an offset; -1 if all begin above."""
    begun = attrgetter("start")
    return steps.number_at(offset) if isinstance(steps, Ranges) else bisect_right(steps, offset, key=begun) - 1


def parts_of(ranges: Sequence[_Step]) -> Sequence[_Step | SealedRun]:
    """Return what `as_ranges` was called with."""
    return ranges.parts if isinstance(ranges, Ranges) else ranges
