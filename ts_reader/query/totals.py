"""Number, offsets and timestamps of a query's rows, by partition, with as few bytes read as possible.

The metadata of a segment suffices if the agent scanned all of it, if it has no control record and no erased offset, and
if no aborted transaction reaches into it. Then `ts-records` is the number of its rows. If each offset has a record, the
first and the last offset of a range are known too, and the number of rows of a part of the segment.

Other ranges are read (`ts_reader.query.read_split.summarize_split`). What metadata has is not compared with the object.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_reader.query.query import View
from ts_reader.query.splits import Split, reaching

_BEYOND: Final = 1 << 63


class Detail(IntEnum):
    """What is wanted of some rows; each includes those before it."""

    ROWS = 0  # their number
    HEADERS = 1  # the first and the last offset, and the greatest timestamp
    ALL = 2  # the least timestamp, for which most records are decompressed


@dataclass(slots=True)
class Totals:
    """What is known of some rows of one partition.

    Attributes:
        first: the first offset.
        last: the last offset; below `first` if there is no row.
        least: the least timestamp, ms.
        greatest: the greatest timestamp, ms; below `least` if no row has a timestamp.
    """

    rows: int = 0
    first: int = _BEYOND
    last: int = -1
    least: int = _BEYOND
    greatest: int = -_BEYOND - 1

    def add(self, other: "Totals") -> None:
        """Add other rows of the partition."""
        self.rows += other.rows
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)


def known_totals(splits: Sequence[Split], detail: Detail) -> tuple[dict[TopicPartition, Totals], list[Split]]:
    """Return the totals of the partitions of a plan by metadata, and the splits to read for the rest."""
    totals: dict[TopicPartition, Totals] = {}
    unread: dict[int, list[ReadRange]] = {}
    for places, whole, aborted in _joined(splits):
        has_erased = any(splits[place].erased.meets(part.start, part.end) for place, part in places)
        if not has_erased and (found := _by_metadata(whole, aborted, detail)) is not None:
            totals.setdefault(whole.copies[0].keys.partition, Totals()).add(found)
            continue
        for place, part in places:
            unread.setdefault(place, []).append(part)
    work = [replace(splits[place], ranges=tuple(ranges)) for place, ranges in unread.items()]
    return totals, work + [split for split in splits if not _is_log(split)]


def _is_log(split: Split) -> bool:
    """Return whether the rows of a split are all its records, and damage ends the read."""
    is_whole = split.until is None and split.key_equals is None
    return is_whole and split.view is View.LOG and split.tolerance.fails


def _joined(
    splits: Sequence[Split],
) -> Iterable[tuple[list[tuple[int, ReadRange]], ReadRange, tuple[AbortedTransaction, ...]]]:
    """Yield the ranges of the splits of logs, with adjacent ranges of one copy as one: splitting has cut it.

    Yields:
        the ranges as they are, with the places of their splits; the range that they are together; the aborted
        transactions of these splits.
    """
    places: list[tuple[int, ReadRange]] = []
    for place, part in ((place, part) for place, split in enumerate(splits) if _is_log(split) for part in split.ranges):
        before = places[-1][1] if places else None
        if before is not None and not (before.end == part.start and before.copies == part.copies):
            yield _as_one(splits, places)
            places = []
        places.append((place, part))
    if places:
        yield _as_one(splits, places)


def _as_one(
    splits: Sequence[Split], places: list[tuple[int, ReadRange]]
) -> tuple[list[tuple[int, ReadRange]], ReadRange, tuple[AbortedTransaction, ...]]:
    whole = replace(places[0][1], end=places[-1][1].end)
    of_splits = {place: splits[place].aborted for place, _ in places}
    return places, whole, tuple(entry for aborted in of_splits.values() for entry in aborted)


def _by_metadata(part: ReadRange, aborted: Iterable[AbortedTransaction], detail: Detail) -> Totals | None:
    """Return the totals of a range by the metadata of its copy; None if that does not suffice."""
    if len(part.copies) > 1 or part.before is not None:
        return None
    (copy,) = part.copies
    if not _has_all_records(copy.metadata) or reaching([part], aborted):
        return None
    is_whole = part.start <= copy.base and copy.end <= part.end
    if detail is Detail.ROWS and is_whole:
        return Totals(copy.metadata.records or 0)
    if not copy.dense:
        return None
    first, end = max(part.start, copy.base), min(part.end, copy.end)
    if detail is Detail.ROWS:
        return Totals(max(end - first, 0))
    times = _times(copy.metadata, detail)
    return Totals(end - first, first, end - 1, *times) if is_whole and first != end and times is not None else None


def _has_all_records(metadata: SegmentMetadata) -> bool:
    """Return whether the agent scanned all of a segment, and each record in it is a row."""
    return metadata.records is not None and not metadata.corruptions and metadata.control == 0


def _times(metadata: SegmentMetadata, detail: Detail) -> tuple[int, int] | None:
    """Return the least and the greatest timestamp of a segment, ms; None if metadata lacks one that is wanted."""
    if detail is Detail.ALL and metadata.time_min is None:
        return None
    if metadata.time_max is None and metadata.time_min != NO_TIMESTAMP:
        return None  # no record has a timestamp above -1: all can have lower ones
    greatest = NO_TIMESTAMP if metadata.time_max is None else metadata.time_max
    return greatest if metadata.time_min is None else metadata.time_min, greatest
