"""A segment's index files: hints for the position to read from, and the list of aborted transactions.

Formats: Kafka's `OffsetIndex`, `TimeIndex`, `AbortedTxn`; big-endian entries without a header. The first two are
preallocated, so zero bytes can follow the last entry. A broker rebuilds them after a crash. No function that reads one
raises: a damaged index is used up to the damage, and a wrong one costs time, never rows.

`IndexBuilder` builds the first two as a broker does (Kafka's `LogSegment.append` and `LogSegment.recover`).
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from ts_common.errors import CorruptData

_OFFSET_ENTRY: Final = struct.Struct(">ii")  # relative offset, position
_TIME_ENTRY: Final = struct.Struct(">qi")  # timestamp, relative offset
_TXN_ENTRY: Final = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_TXN_VERSION: Final = 0
_NO_TIMESTAMP: Final = -1
INTERVAL_BYTES: Final = 4096  # Kafka's default of index.interval.bytes

OFFSET_ENTRY_SIZE: Final = _OFFSET_ENTRY.size
TIME_ENTRY_SIZE: Final = _TIME_ENTRY.size
TXN_ENTRY_SIZE: Final = _TXN_ENTRY.size

Claims = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """A segment's `.timeindex`.

    Attributes:
        base: base offset of the segment.
    """

    base: int
    data: bytes

    @property
    def claims(self) -> Claims:
        """Pairs (timestamp in ms, offset), ascending: no record up to and with the offset has a higher timestamp."""
        return tuple((timestamp, self.base + relative) for timestamp, relative in read_time_index(self.data))

    def first_offset_that_may_reach(self, milliseconds: int) -> int:
        """Return an offset; all records below it are earlier, if the file is right; else the segment's base."""
        claims = self.claims
        before = bisect_left(claims, milliseconds, key=itemgetter(0))
        return claims[before - 1][1] + 1 if before else self.base


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a `.txnindex`.

    Attributes:
        first_offset: offset of its first record, in this segment or an earlier one.
        last_offset: offset of its abort marker, in this segment.
        last_stable_offset: the partition's, when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """Return the entry's bytes."""
        fields = (self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)
        return _TXN_ENTRY.pack(_TXN_VERSION, *fields)


class IndexBuilder:
    """Builds the `.index` and `.timeindex` of a segment from its batches.

    Args:
        base: base offset of the segment.
        interval: `index.interval.bytes`: bytes of batches between two entries.
    """

    def __init__(self, base: int, interval: int = INTERVAL_BYTES) -> None:
        self._base = base
        self._interval = interval
        self._offsets = bytearray()
        self._times = bytearray()
        self._position = 0  # of the next batch in the segment
        self._indexed = 0  # position of the last batch with an entry
        self._greatest = (_NO_TIMESTAMP, 0)  # timestamp, relative last offset of the first batch with it
        self._entered = _NO_TIMESTAMP  # timestamp of the last entry

    def add(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Add the next batch: its last offset, its greatest timestamp in ms, and its size in bytes.

        Raises:
            CorruptData: as `finish`.
        """
        relative = last_offset - self._base
        if max_timestamp > self._greatest[0]:
            self._greatest = (max_timestamp, relative)
        if self._position - self._indexed > self._interval:
            self._offsets += self._packed(_OFFSET_ENTRY, relative, self._position)
            self._indexed = self._position
            self._enter_time()
        self._position += size

    def finish(self) -> tuple[bytes, bytes]:
        """Return the bytes of `.index` and `.timeindex`; the last entry has the segment's greatest timestamp.

        Raises:
            CorruptData: a batch is farther from the base of the segment than a broker's segment can reach.
        """
        self._enter_time()
        return bytes(self._offsets), bytes(self._times)

    def _enter_time(self) -> None:
        if self._greatest[0] > self._entered:
            self._times += self._packed(_TIME_ENTRY, *self._greatest)
            self._entered = self._greatest[0]

    def _packed(self, entry: struct.Struct, *numbers: int) -> bytes:
        try:
            return entry.pack(*numbers)
        except struct.error as error:
            raise CorruptData(
                f"a batch near position {self._position} is 2**31 offsets or bytes from the base {self._base}; a "
                "segment of a broker has less"
            ) from error


def read_offset_index(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return the `.index` entries: (offset relative to the segment's base, position in bytes), both ascending."""
    entries: list[tuple[int, int]] = []
    last = (-1, 0)  # no entry has position 0: the first follows after index.interval.bytes
    for entry in _whole_entries(_OFFSET_ENTRY, data):
        if entry[0] <= last[0] or entry[1] <= last[1]:
            break
        entries.append(last := (entry[0], entry[1]))
    return tuple(entries)


def read_time_index(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return the `.timeindex` entries: (timestamp in ms, offset relative to the segment's base).

    No record before that offset has a higher timestamp. Timestamps ascend; offsets do not fall.
    """
    entries: list[tuple[int, int]] = []
    last = (-1, 0)
    for entry in _whole_entries(_TIME_ENTRY, data):
        if entry[0] <= last[0] or entry[1] < last[1] or (not entries and entry == (0, 0)):
            break
        entries.append(last := (entry[0], entry[1]))
    return tuple(entries)


def greatest_below(claims: Claims, end: int) -> int | None:
    """Return a timestamp in ms that no record below an offset exceeds; None if no claim reaches so far.

    Args:
        claims: of one segment, see `TimeIndex`.
    """
    at = bisect_left(claims, end - 1, key=itemgetter(1))
    return claims[at][0] if at < len(claims) else None


def read_transaction_index(data: bytes) -> tuple[AbortedTransaction, ...]:
    """Return the `.txnindex` entries, in the order of their markers."""
    entries: list[AbortedTransaction] = []
    last_marker = -1
    for version, producer_id, first_offset, last_offset, last_stable_offset in _whole_entries(_TXN_ENTRY, data):
        ordered = 0 <= first_offset <= last_offset and last_marker < last_offset
        if version != _TXN_VERSION or producer_id < 0 or not ordered:
            break
        entries.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
        last_marker = last_offset
    return tuple(entries)


def position_for_offset(entries: Sequence[tuple[int, int]], base_offset: int, offset: int) -> int:
    """Return a position in bytes at or before the batch with `offset`, by the `.index`; 0 without a lower entry.

    With a wrong index, the position can be inside a batch, or after the batch with `offset`: callers check the batch
    there.
    """
    following = bisect_right(entries, offset - base_offset, key=itemgetter(0))
    return entries[following - 1][1] if following else 0


def txnindex_is_complete(entries: Iterable[AbortedTransaction], abort_markers: Collection[tuple[int, int]]) -> bool:
    """Return whether each abort marker of the segment (producer id, offset) has an entry.

    Kafka writes no entry for the abort of a transaction without records, so a complete index can count as incomplete.
    Readers then read the markers, and return the same rows.
    """
    return set(abort_markers) <= {(entry.producer_id, entry.last_offset) for entry in entries}


def txnindex_is_strange(entries: Iterable[AbortedTransaction], abort_markers: Collection[tuple[int, int]]) -> bool:
    """Return whether an entry has a marker that an undamaged segment lacks: the index is another segment's.

    The log cleaner writes an entry only if it keeps the marker, so the index of the segment has no such entry.
    """
    return not {(entry.producer_id, entry.last_offset) for entry in entries} <= set(abort_markers)


def _whole_entries(entry: struct.Struct, data: bytes) -> Iterable[tuple[int, ...]]:
    return entry.iter_unpack(data[: len(data) - len(data) % entry.size])
