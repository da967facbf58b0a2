"""The differences between the rows of a table and those of the archive. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from ts_reader.decode.digest import DigestSum
from ts_tables.verify.sums import Block, Row, Sums


class DifferenceKind(StrEnum):
    """A difference."""

    MISSING = "missing"
    TWICE = "twice"
    CHANGED = "changed"
    FOREIGN = "foreign"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that differ, of consecutive offsets.

    Attributes:
        start: first offset.
        end: the offset after the last.
    """

    kind: DifferenceKind
    block: Block
    start: int
    end: int

    def __str__(self) -> str:
        where = f"{self.block.topic}-{self.block.partition}"
        offsets = f"offset {self.start}" if self.end == self.start + 1 else f"offsets {self.start} to {self.end - 1}"
        return f"{where}: {offsets}: {_SENTENCES[self.kind]}"


_SENTENCES: Mapping[DifferenceKind, str] = {
    DifferenceKind.MISSING: "the archive has the record, the table has no row",
    DifferenceKind.TWICE: "the table has the row more than once",
    DifferenceKind.CHANGED: "the row differs from the record",
    DifferenceKind.FOREIGN: "the table has a row, the archive has no such record",
    DifferenceKind.KEPT: "the rows that an election removed, or the later leader's, differ; which of them is unknown",
}


def different_blocks(table: Sums, archive: Sums, kept: Mapping[Block, DigestSum]) -> list[Block]:
    """Return the blocks whose sums differ, sorted.

    Args:
        table: sums of the table.
        archive: sums of the archive.
        kept: sums of rows that an election removed from the archive, and that stay in the table.
    """
    nothing = DigestSum()
    blocks = {*table, *archive, *kept}
    return sorted(
        (
            block
            for block in blocks
            if table.get(block, nothing) - kept.get(block, nothing) != archive.get(block, nothing)
        ),
        key=lambda block: block.order,
    )


def differences(
    block: Block, table: "Counter[Row]", archive: "Counter[Row]", kept: Sequence[tuple[int, int]] = ()
) -> Iterator[Difference]:
    """Yield the differences of a block, by kind and offset; consecutive offsets are one.

    Args:
        table: how often the table has each row.
        archive: how often the archive has each record.
        kept: ranges with rows that an election removed, and that the table keeps; only their sum is known.
    """
    ours, theirs = _by_offset(table), _by_offset(archive)
    found: dict[DifferenceKind, list[int]] = {kind: [] for kind in DifferenceKind}
    for offset in sorted({*ours, *theirs}):
        if any(start <= offset < end for start, end in kept):
            continue
        mine, expected = ours.get(offset, Counter()), theirs.get(offset, Counter())
        if mine == expected:
            continue
        if not mine:
            found[DifferenceKind.MISSING].append(offset)
        elif not expected:
            found[DifferenceKind.FOREIGN].append(offset)
        elif {*mine} == {*expected}:
            found[DifferenceKind.TWICE].append(offset)
        else:
            found[DifferenceKind.CHANGED].append(offset)
    if not any(found.values()):
        for start, end in kept:
            yield Difference(DifferenceKind.KEPT, block, start, end)
    for kind, offsets in found.items():
        for start, end in _runs(offsets):
            yield Difference(kind, block, start, end)


def _by_offset(rows: "Counter[Row]") -> "dict[int, Counter[tuple[int, int]]]":
    found: dict[int, Counter[tuple[int, int]]] = {}
    for row, count in rows.items():
        found.setdefault(row.offset, Counter())[row.first, row.second] += count
    return found


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges `[from, to)` of consecutive offsets."""
    for _, group in groupby(enumerate(offsets), key=lambda each: each[1] - each[0]):
        run = [offset for _, offset in group]
        yield run[0], run[-1] + 1
