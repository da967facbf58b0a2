"""Finds offsets that several live copies contain, and compares the records there."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import fetch
from ts_common.archive.partition_view import PartitionView
from ts_common.store.contract import ObjectStore
from tsctl.scan_options import batch_limit
from tsctl.verify.coverage import live_end

if TYPE_CHECKING:  # what decodes, only if records are compared
    from ts_reader.decode.columns import BinaryColumn, RecordColumns

_FIXED = struct.Struct(">qi")  # timestamp in ms and its type
_LENGTH = struct.Struct(">i")  # of the bytes that follow; -1 for null
DIGEST_BYTES = 16
_AFTER_ALL = (1 << 63, b"")  # no offset is as high

Header = tuple[str, bytes | None]
Digests = Iterator[tuple[int, bytes]]  # (offset, digest) by offset


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets `[start, end)` that two live copies contain."""

    start: int
    end: int
    first: SegmentCopy
    second: SegmentCopy


def overlaps_of(view: PartitionView) -> Iterator[Overlap]:
    """Yield, in order, the live overlap of each copy with the previous copy that has the highest end."""
    furthest: tuple[SegmentCopy, int] | None = None
    for copy in sorted(view.copies, key=lambda copy: copy.base):
        alive = live_end(view, copy)
        if alive <= copy.base:
            continue
        if furthest is not None and max(copy.base, view.start) < min(furthest[1], alive, view.end):
            start, end = max(copy.base, view.start), min(furthest[1], alive, view.end)
            yield Overlap(start, end, furthest[0], copy)
        if furthest is None or alive > furthest[1]:
            furthest = copy, alive


def first_difference(store: ObjectStore, overlap: Overlap) -> tuple[int, str] | None:
    """Return the first offset with different records, and a sentence about it; None if all are equal.

    If only one copy has a record at an offset, that is a difference unless one of them was compacted.

    Raises:
        CorruptData: a copy cannot be read.
        ObjectNotFound, StoreUnavailable, AccessDenied: a request failed.
    """
    first, second = overlap.first, overlap.second
    both_dense = first.dense and second.dense
    compared = (digests(store, copy, overlap.start, overlap.end) for copy in (first, second))
    for offset, one, other in side_by_side(*compared):
        if one is None or other is None:
            if both_dense:
                return offset, f"offset {offset} is not in {first.key if one is None else second.key}"
        elif one != other:
            return offset, f"offset {offset} has different records in {first.key} and {second.key}"
    return None


def side_by_side(first: Digests, second: Digests) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield each offset of two ascending iterators with both digests; None from one without a record there."""
    one, other = next(first, _AFTER_ALL), next(second, _AFTER_ALL)
    while (offset := min(one[0], other[0])) < _AFTER_ALL[0]:
        in_first, in_second = one[0] == offset, other[0] == offset
        yield offset, one[1] if in_first else None, other[1] if in_second else None
        if in_first:
            one = next(first, _AFTER_ALL)
        if in_second:
            other = next(second, _AFTER_ALL)


def digests(store: ObjectStore, copy: SegmentCopy, start: int, end: int) -> Digests:
    """Yield (offset, digest) of each record of a copy in `[start, end)`, without control records.

    Raises:
        CorruptData: a batch cannot be read.
        BatchTooLarge: a batch needs more memory than --max-batch-bytes allows.
        ObjectNotFound, StoreUnavailable, AccessDenied: a request failed.
    """
    return digests_of(fetch(store, copy.key), copy.segment.size, start, end)


def digests_of(chunks: Iterator[bytes], size: int, start: int, end: int) -> Digests:
    """Yield as `digests` for the bytes of a segment, whose number is `size`."""
    from ts_reader.decode.segment_decoder import SegmentDecoder  # noqa: PLC0415  (as above)

    decoder = SegmentDecoder(start_offset=start, end_offset=end, size=size, limit=batch_limit())
    for columns in decoder.decode(chunks):
        yield from _digests(columns)


def _digests(columns: "RecordColumns") -> Digests:
    keys, values = _strings(columns.keys), _strings(columns.values)
    if columns.headers is None:
        raise ValueError("headers were not decoded")
    bounds = columns.headers.offsets.tolist()
    names, header_values = _strings(columns.headers.names), _strings(columns.headers.values)
    rows = zip(columns.offsets.tolist(), columns.timestamps.tolist(), columns.timestamp_types.tolist(), strict=True)
    for row, (offset, timestamp, timestamp_type) in enumerate(rows):
        headers = [
            ((names[number] or b"").decode(), header_values[number]) for number in range(bounds[row], bounds[row + 1])
        ]
        yield offset, record_digest(timestamp, timestamp_type, keys[row], values[row], headers)


def record_digest(
    timestamp: int, timestamp_type: int, key: bytes | None, value: bytes | None, headers: list[Header]
) -> bytes:
    """Return a digest of all fields of a record that a consumer receives, except its position.

    Args:
        timestamp: ms; -1 for no timestamp.
        timestamp_type: 0 CreateTime, 1 LogAppendTime, -1 no timestamp.
        key: None for null.
        value: None for null.
        headers: in their order.
    """
    hashed = blake2b(_FIXED.pack(timestamp, timestamp_type), digest_size=DIGEST_BYTES)
    hashed.update(_LENGTH.pack(len(headers)))
    for part in (key, value, *(part for name, header in headers for part in (name.encode(), header))):
        hashed.update(_LENGTH.pack(-1 if part is None else len(part)))
        hashed.update(part or b"")
    return hashed.digest()


def _strings(column: "BinaryColumn | None") -> list[bytes | None]:
    if column is None:
        return []
    data, bounds = column.data.tobytes(), column.offsets.tolist()
    strings: list[bytes | None] = [data[start:end] for start, end in pairwise(bounds)]
    if column.null_count:
        for number in range(len(strings)):
            if not column.validity[number >> 3] >> (number & 7) & 1:
                strings[number] = None
    return strings
