"""Splits, the parts of a query that tasks read: large segments are cut, small ones packed, within the query's limits.

A task costs 0.2 s whatever it reads, and a task that reads a gigabyte delays the others. The `.index` of a segment has
the offsets of batches, so a cut at one of them lets no task read bytes of another one. A segment without an index is
read from its first byte, so it is cut only if it is small. A wrong index moves the cuts and costs time, never rows: a
cut is an offset, and both sides respect it.

The live tail of a partition is never cut, and in one split: a damaged entry ends the view before it, so what follows it
is not read either (reading rule 11).
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import accumulate, chain, starmap
from typing import Final

from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.plan import ReadRange
from ts_common.archive.sealed_ranges import Part, SealedRun, as_ranges, parts_of
from ts_common.archive.small_objects import read_index
from ts_common.log_format.index_files import AbortedTransaction, read_offset_index
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_common.store.options import BY_ENVIRONMENT, Connection
from ts_reader.query.query import STRICT, SplitLimits, Tolerance, View
from ts_reader.reading.parallel import in_threads

# As Spark's own spark.sql.files.maxPartitionBytes.
SPLIT_BYTES: Final = 128 << 20
NEAR_BYTES: Final = 1 << 20  # what a reader of a part of a segment fetches at once
_CHEAP_BYTES: Final = 4 << 20  # without an index, each piece is read from the first byte


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of one partition in the order of offsets, for one task. It can be pickled.

    Attributes:
        location: of the store, a URL.
        ranges: never empty.
        aborted: transactions whose records are left out.
        view: which records are rows; with `LATEST` a split is a whole partition.
        way_out: a sentence for the error of a corrupt object: how to read the rest.
        until: milliseconds since 1970: records with a later timestamp are left out; None for all.
        scan: identifies the query, whose tasks log some events once.
        ends_at_damage: whether a damaged entry of the live tail ends the rows before it, with a warning: the query has
            no end of its own.
        key_equals: as of `ts_reader.query.query.Query`.
        erased: offsets whose records are left out: all that the objects of the ranges can contain.
    """

    location: str
    ranges: Sequence[ReadRange]
    aborted: tuple[AbortedTransaction, ...] = ()
    tolerance: Tolerance = STRICT
    view: View = View.LOG
    connection: Connection = BY_ENVIRONMENT
    limit: BatchLimit = DEFAULT_LIMIT
    way_out: str = ""
    until: int | None = None
    scan: str = field(default="", compare=False)
    ends_at_damage: bool = False
    key_equals: frozenset[bytes] | None = None
    erased: ErasedOffsets = NOTHING_ERASED


def bytes_of(part: ReadRange) -> int:
    """Estimate the bytes of a range by its share of the offsets of its copies."""
    length, total = part.end - part.start, 0
    for copy in part.copies:
        metadata, segment = copy.metadata, copy.segment
        total += segment.size * length // max(metadata.end - segment.name.base, length, 1)
    return total


def gets_of(parts: Iterable[ReadRange]) -> dict[str | None, tuple[int, int]]:
    """Estimate the GETs of ranges and their bytes, by the storage class of the copies; None for the store's default.

    A range that begins inside of a copy needs the `.index` first. One that ends inside of it fetches bytes
    behind its end.
    """
    found: dict[str | None, tuple[int, int]] = {}
    for part in parts:
        for copy in part.copies:
            segment = copy.segment
            seeks = part.start > copy.base and ".index" in segment.suffixes
            size = bytes_of(replace(part, copies=(copy,), start=part.start if seeks else min(part.start, copy.base)))
            if part.end < copy.end:
                size = min(segment.size, size + NEAR_BYTES)
            requests, others = found.get(segment.storage_class, (0, 0))
            found[segment.storage_class] = requests + (2 if seeks else 1), others + size
    return found


@dataclass(frozen=True, slots=True)
class PartitionRanges:
    """What to read of one partition: ranges in order, and the transactions and offsets whose records are left out."""

    ranges: Sequence[ReadRange]
    aborted: tuple[AbortedTransaction, ...] = ()
    _: KW_ONLY
    erased: ErasedOffsets


def make_splits(
    store: ObjectStore,
    partitions: Sequence[PartitionRanges],
    limits: SplitLimits,
    tolerance: Tolerance = STRICT,
) -> tuple[Split, ...]:
    """Return splits, each of one partition, in the order of offsets.

    Args:
        tolerance: what corrupt batches do. A tolerant query cuts segments only if `limits` require it, because each of
            its tasks checks the whole object.

    Raises:
        StoreUnavailable, AccessDenied: from reading indexes of segments that are cut.
    """
    weighed = [[(part, _size_of(part)) for part in parts_of(partition.ranges)] for partition in partitions]
    limit = SPLIT_BYTES
    if limits.least is not None:
        limit = max(1, min(limit, sum(size for parts in weighed for _, size in parts) // limits.least))
    cut_at = limit if tolerance.fails or limits.least is not None else sys.maxsize
    packed_limit = limit if limits.packed_bytes is None else min(limit, limits.packed_bytes)
    weighed = [[*_without_runs(parts, cut_at, limits.most_offsets)] for parts in weighed]
    large = [part for parts in weighed for part, size in parts if isinstance(part, ReadRange) and size > cut_at]
    places = dict(zip(large, in_threads(lambda part: _places(store, part), large), strict=True))

    def pieces(part: Part, size: int) -> Iterator[tuple[Part, int]]:
        if isinstance(part, SealedRun) or part.is_tail:
            yield part, size
            return
        for by_bytes in _cut(part, limit, places[part]) if size > cut_at else (part,):
            for piece in _cut_evenly(by_bytes, limits.most_offsets):
                yield piece, size if piece is part else bytes_of(piece)

    return tuple(
        Split(
            store.location,
            as_ranges(packed),
            reaching(packed, partition.aborted),
            tolerance,
            erased=_erased_in(packed, partition.erased),
        )
        for partition, parts in zip(partitions, weighed, strict=True)
        for packed in _pack(chain.from_iterable(starmap(pieces, parts)), packed_limit, limits.most_offsets)
    )


def _size_of(part: Part) -> int:
    return sum(part.sizes) if isinstance(part, SealedRun) else bytes_of(part)


def _without_runs(
    parts: Iterable[tuple[Part, int]], cut_at: int, most_offsets: int | None
) -> Iterator[tuple[Part, int]]:
    """Yield parts with their bytes, each run range by range if one of its ranges can be cut."""
    for part, size in parts:
        if isinstance(part, SealedRun) and (most_offsets is not None or max(part.sizes) > cut_at):
            yield from ((each, bytes_of(each)) for each in part)
        else:
            yield part, size


def whole_partitions(
    store: ObjectStore, partitions: Iterable[PartitionRanges], tolerance: Tolerance = STRICT
) -> tuple[Split, ...]:
    """Return one split for each partition with ranges, for the newest record of each key."""
    return tuple(
        Split(store.location, partition.ranges, partition.aborted, tolerance, View.LATEST, erased=partition.erased)
        for partition in partitions
        if partition.ranges
    )


def _places(store: ObjectStore, part: ReadRange) -> tuple[tuple[int, int], ...]:
    """Return (offset, position) of places to cut at, ascending; empty if the copy has no index."""
    copy = part.copies[0]
    if ".index" not in copy.segment.suffixes:
        return ()
    data = read_index(store, copy.keys, copy.segment.name, ".index")
    if data is None:
        return ()
    return tuple(
        (copy.base + relative, position)
        for relative, position in read_offset_index(data)
        if part.start < copy.base + relative < part.end and 0 < position < copy.segment.size
    )


def _cut(part: ReadRange, limit: int, places: Sequence[tuple[int, int]]) -> Iterator[ReadRange]:
    """Yield pieces of a larger range of about `limit` bytes each."""
    count = round(bytes_of(part) / limit)
    if not places:
        small = sum(copy.segment.size for copy in part.copies) <= _CHEAP_BYTES
        yield from _cut_evenly(part, -(-(part.end - part.start) // count) if small and count else None)
        return
    copy, start = part.copies[0], part.start
    begun = places[0][1] if start > copy.base else 0
    until = places[-1][1] if part.end < copy.end else copy.segment.size
    number = 1
    for offset, position in places:
        if offset > start and position >= begun + (until - begun) * number // max(count, 1) and number < count:
            yield replace(part, start=start, end=offset)
            start, number = offset, number + 1
    yield replace(part, start=start)


def _cut_evenly(part: ReadRange, most: int | None) -> Iterator[ReadRange]:
    """Yield pieces of about equally many offsets, at most `most` each."""
    if most is None:
        yield part
        return
    length = part.end - part.start
    count = max(1, -(-length // max(most, 1)))
    for number in range(count):
        start, end = part.start + length * number // count, part.start + length * (number + 1) // count
        if start < end:
            yield replace(part, start=start, end=end)


def _pack(pieces: Iterable[tuple[Part, int]], limit: int, most_offsets: int | None) -> Iterator[tuple[Part, ...]]:
    """Pack adjacent pieces, given with their bytes, into splits; a piece above the limit is a split of its own."""
    packed: list[Part] = []
    size = offsets = 0
    for piece, weight in pieces:
        if isinstance(piece, SealedRun):
            rows, ends = piece.rows, list(accumulate(piece.sizes))
            at = done = 0
            while at < len(ends):
                stop = bisect_right(ends, done + limit - size, at)
                if stop == at and packed:
                    yield tuple(packed)
                    packed, size, offsets = [], 0, 0
                    continue
                stop = max(stop, at + 1)
                packed.append(piece.part(rows.start + at, rows.start + stop))
                size, done, at = size + ends[stop - 1] - done, ends[stop - 1], stop
            continue
        length = piece.end - piece.start
        is_full = size + weight > limit or (most_offsets is not None and offsets + length > most_offsets)
        if packed and is_full and not _is_tail(packed[-1]):
            yield tuple(packed)
            packed, size, offsets = [], 0, 0
        packed.append(piece)
        size, offsets = size + weight, offsets + length
    if packed:
        yield tuple(packed)


def _is_tail(part: Part) -> bool:
    return isinstance(part, ReadRange) and part.is_tail


def _erased_in(parts: Sequence[Part], erased: ErasedOffsets) -> ErasedOffsets:
    """Return the erased offsets that the objects of some parts can contain, also outside of the parts.

    A damaged object has a row with its raw bytes, and a damaged place can be larger than a part.
    """
    if not erased:
        return erased
    start, end = parts[0].start, parts[-1].end
    for part in parts:
        if isinstance(part, ReadRange):
            copies = (*part.copies, *(copy for spare in part.spares for copy in spare.copies))
            start, end = min(start, *(each.base for each in copies)), max(end, *(each.end for each in copies))
        else:
            rows, columns = part.rows, part.sealed.columns
            start, end = min(start, columns["base"][rows.start]), max(end, columns["end"][rows.stop - 1])
    return erased.between(start, end)


def reaching(ranges: Sequence[Part], aborted: Iterable[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that overlap adjacent ranges."""
    start, end = ranges[0].start, ranges[-1].end
    return tuple(entry for entry in aborted if entry.first_offset < end and entry.last_offset >= start)
