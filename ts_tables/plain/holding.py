"""Which new files a commit shows, which are held, and which are merged first. Pure.

A file is held until its partition key has a file's worth of bytes, or its oldest file has waited long enough. Nothing
that is shown is merged later: on an object store a reader would see rows twice, or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ts_tables.plain.entries import PlainFile, total


@dataclass(frozen=True, slots=True)
class Holding:
    """When files are shown.

    Attributes:
        max_age: seconds that a file is held at most; 0: no file is held.
        is_apart: whether a file has rows of one Kafka partition only.
    """

    target_bytes: int
    max_age: int
    is_apart: bool = False

    def is_due(self, files: Sequence[PlainFile], now: float) -> bool:
        """Return whether the held files of one partition key are shown.

        Args:
            files: with the time since when they are held.
            now: seconds since 1970.
        """
        oldest = min(each.since for each in files)
        # A time in the future is of a clock that was wrong.
        return total(files) >= self.target_bytes or not oldest <= now < oldest + self.max_age


@dataclass(frozen=True, slots=True)
class Sorted:
    """Files as a commit treats them.

    Attributes:
        shown: as they are.
        held: until later.
        merges: each becomes one file.
    """

    shown: tuple[PlainFile, ...]
    held: tuple[PlainFile, ...]
    merges: tuple[tuple[PlainFile, ...], ...]


def sort_out(held: Iterable[PlainFile], new: Iterable[PlainFile], holding: Holding, now: float) -> Sorted:
    """Return what a commit does with files.

    Args:
        held: files that wait.
        new: files that tasks wrote now, with the time since when their rows are held, if they were before.
        holding: when they are shown.
        now: seconds since 1970.
    """
    waiting = list(held)
    if not holding.max_age and not waiting:
        return Sorted(tuple(new), (), ())
    by_key: dict[tuple[Any, ...], list[PlainFile]] = {}
    for each in (*waiting, *(replace(file, since=file.since or int(now)) for file in new)):
        source = each.source if holding.is_apart else None
        by_key.setdefault((each.key, source), []).append(each)
    shown: list[PlainFile] = []
    still: list[PlainFile] = []
    merges: list[tuple[PlainFile, ...]] = []
    for files in by_key.values():
        if not holding.is_due(files, now):
            still += files
            continue
        small = [each for each in files if 2 * each.size < holding.target_bytes]
        shown += [each for each in files if 2 * each.size >= holding.target_bytes]
        if len(small) > 1:
            merges.append(tuple(sorted(small, key=lambda each: each.first)) if holding.is_apart else tuple(small))
        else:
            shown += small
    return Sorted(tuple(shown), tuple(still), tuple(merges))
