"""A segment's rows, decoded."""

from itertools import pairwise
from typing import Any

import numpy as np

from ts_common.errors import CorruptData
from ts_reader.decode.columns import RecordColumns
from ts_reader.decode.segment_decoder import SegmentDecoder

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def strings(column: Any) -> list[bytes | None]:
    data, bounds = column.data.tobytes(), column.offsets.tolist()
    valid = np.unpackbits(column.validity, bitorder="little")[: len(bounds) - 1].tolist()
    assert valid.count(0) == column.null_count
    assert (bounds[0], bounds[-1]) == (0, len(data))
    return [data[a:b] if ok else None for a, b, ok in zip(bounds, bounds[1:], valid, strict=False)]


def rows_of(columns: RecordColumns) -> list[Row]:
    count = columns.row_count
    keys = strings(columns.keys) if columns.keys else [None] * count
    values = strings(columns.values) if columns.values else [None] * count
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * count
    if columns.headers:
        names, data = strings(columns.headers.names), strings(columns.headers.values)
        pairs = [((name or b"").decode(), value) for name, value in zip(names, data, strict=True)]
        bounds = columns.headers.offsets.tolist()
        headers = [tuple(pairs[a:b]) for a, b in pairwise(bounds)]
    plain = (columns.offsets.tolist(), columns.timestamps.tolist(), columns.timestamp_types.tolist())
    return list(zip(*plain, keys, values, headers, strict=True))


def decoded(data: bytes, chunk: int = 1 << 30, **options: Any) -> list[Row]:
    decoder = SegmentDecoder(**options)
    chunks = (data[start : start + chunk] for start in range(0, len(data), chunk))
    return [row for columns in decoder.decode(chunks) for row in rows_of(columns)]


def decoded_to_the_damage(data: bytes) -> tuple[list[Row], bool]:
    """The rows before the first damage, and whether there is any."""
    found: list[Row] = []
    try:
        for columns in SegmentDecoder(size=len(data)).decode([data]):
            found += rows_of(columns)
    except CorruptData:
        return found, True
    return found, False
