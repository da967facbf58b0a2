"""Finds offsets that several live copies contain, and compares the records there."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import fetch
from ts_common.archive.view import PartitionView
from ts_common.store.contract import ObjectStore
from tsctl.scan_options import batch_limit
from tsctl.verify.coverage import live_end

if TYPE_CHECKING:  # what decodes, only if records are compared
    from ts_reader.decode.columns import BinaryColumn, RecordColumns

_FIXED = struct.Struct(">qi")  # timestamp in ms and its type
_LENGTH = struct.Struct(">i")  # of the bytes that follow; -1 for null
DIGEST_BYTES = 16

Header = tuple[str, bytes | None]


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
    both_dense = overlap.first.dense and overlap.second.dense
    first, second = (digests(store, copy, overlap.start, overlap.end) for copy in (overlap.first, overlap.second))
    one, other = next(first, None), next(second, None)
    while one is not None or other is not None:
        if one is not None and other is not None and one[0] == other[0]:
            if one[1] != other[1]:
                return one[0], f"offset {one[0]} has different records in {overlap.first.key} and {overlap.second.key}"
            one, other = next(first, None), next(second, None)
            continue
        lower = one is not None and (other is None or one[0] < other[0])
        if both_dense:
            lacking = overlap.second.key if lower else overlap.first.key
            offset = (one if lower and one is not None else other or (0, b""))[0]
            return offset, f"offset {offset} is not in {lacking}"
        if lower:
            one = next(first, None)
        else:
            other = next(second, None)
    return None


def digests(store: ObjectStore, copy: SegmentCopy, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, digest) of each record of a copy in `[start, end)`, without control records.

    Raises:
        CorruptData: a batch cannot be read.
        BatchTooLarge: a batch needs more memory than --max-batch-bytes allows.
        ObjectNotFound, StoreUnavailable, AccessDenied: a request failed.
    """
    return digests_of(fetch(store, copy.key), copy.segment.size, start, end)


def digests_of(chunks: Iterator[bytes], size: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield as `digests` for the bytes of a segment, whose number is `size`."""
    from ts_reader.decode.segment_decoder import SegmentDecoder  # noqa: PLC0415  (as above)

    decoder = SegmentDecoder(start_offset=start, end_offset=end, size=size, limit=batch_limit())
    for columns in decoder.decode(chunks):
        yield from _digests(columns)


def _digests(columns: "RecordColumns") -> Iterator[tuple[int, bytes]]:
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
