"""Kafka's index files of a segment that a test makes."""

import struct


def index_of(log: bytes, every: int = 4) -> bytes:
    """Return an offset index with an entry for each `every` batches, as the broker writes it: offset, position."""
    entries, position, number = b"", 0, 0
    (segment,) = struct.unpack_from(">q", log)
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        (delta,) = struct.unpack_from(">i", log, position + 23)
        if number and number % every == 0:
            entries += struct.pack(">ii", base + delta - segment, position)
        position += 12 + length
        number += 1
    return entries


def timeindex_of(log: bytes, every: int = 4) -> bytes:
    """Return a time index with an entry for each `every` batches, as the broker writes it: time, offset."""
    entries, position, number, latest = b"", 0, 0, (-1, 0)
    (segment,) = struct.unpack_from(">q", log)
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        (delta,) = struct.unpack_from(">i", log, position + 23)
        (greatest,) = struct.unpack_from(">q", log, position + 35)
        latest = max(latest, (greatest, base + delta - segment))
        if number and number % every == 0 and entries[-12:-4] != struct.pack(">q", latest[0]):
            entries += struct.pack(">qi", *latest)
        position += 12 + length
        number += 1
    return entries
