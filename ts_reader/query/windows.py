"""Windows of offsets: the parts of a partition's plan that have them, in one pass over both.

The plan is made once for all windows. Which copies have an offset does not depend on the window that it is in, so the
rows of a window are those that a read of the whole partition returns there.

Windows in one range that are near each other are read together: a request costs more than the bytes between them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_ranges import Part, SealedRun
from ts_reader.query.filters import Ranges
from ts_reader.query.splits import NEAR_BYTES, bytes_of

MOST_WINDOWS: Final = 10_000  # of a partition; each has up to three requests, and a range in memory


def union(ranges: Iterable[tuple[int, int]], most: int = MOST_WINDOWS) -> Ranges:
    """Return the ranges that have each offset of the given ones, ascending and disjoint.

    Args:
        ranges: `[from, to)`, in any order; empty ones are left out.
        most: the maximum number of ranges. With more, the narrowest gaps between them are closed.
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted((low, high) for low, high in ranges if low < high):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    if len(found) <= most:
        return tuple(found)
    gaps = [found[at + 1][0] - found[at][1] for at in range(len(found) - 1)]
    widest = sorted(sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: most - 1])
    starts = [found[0][0], *(found[at + 1][0] for at in widest)]
    ends = [*(found[at][1] for at in widest), found[-1][1]]
    return tuple(zip(starts, ends, strict=True))


def clipped(parts: Iterable[Part | Hole], windows: Ranges) -> Iterator[Part | Hole]:
    """Yield the parts of a plan that have offsets of windows, and at most what is near these offsets.

    Args:
        parts: of one partition, in order.
        windows: ascending and disjoint.
    """
    at = 0
    for part in parts:
        while at < len(windows) and windows[at][1] <= part.start:
            at += 1
        if at == len(windows):
            return
        if isinstance(part, SealedRun):
            yield from _of_run(part, windows, at)
            continue
        pieces = _pieces(part.start, part.end, windows, at)
        for low, high in pieces if isinstance(part, Hole) else _near(part, pieces):
            yield part if (low, high) == (part.start, part.end) else replace(part, start=low, end=high)


def _pieces(start: int, end: int, windows: Ranges, at: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of `[start, end)` in the windows from number `at` on."""
    while at < len(windows) and windows[at][0] < end:
        low, high = max(windows[at][0], start), min(windows[at][1], end)
        if low < high:
            yield low, high
        at += 1


def _near(part: ReadRange, pieces: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Return pieces of a range, with those near each other as one."""
    bytes_of_offset = bytes_of(part) / (part.end - part.start)
    found: list[tuple[int, int]] = []
    for low, high in pieces:
        if found and (low - found[-1][1]) * bytes_of_offset <= NEAR_BYTES:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def _of_run(run: SealedRun, windows: Ranges, at: int) -> Iterator[Part]:
    """Yield the rows of a run in the windows from number `at` on; those that a window has as a whole are runs."""
    rows, ends = run.rows, run.sealed.columns["end"]
    number = rows.start
    while number < rows.stop and at < len(windows):
        low, high = windows[at]
        if high <= max(run.sealed.columns["base"][number], run.start):
            at += 1
            continue
        if low >= ends[number]:
            number = bisect_right(ends, low, number, rows.stop)
            continue
        row = run.of_row(number)
        if low <= row.start and row.end <= high:
            stop = rows.stop if high >= run.end else bisect_right(ends, high, number, rows.stop)
            yield run.part(number, stop)
            number = stop
            continue
        for start, end in _near(row, _pieces(row.start, row.end, windows, at)):
            yield replace(row, start=start, end=end)
        number += 1
