"""Kafka's index files."""

import struct


def index_of(log: bytes, every: int = 4) -> bytes:
    """An offset index with an entry for each so many batches, as the broker writes it: last offset and position."""
    entries, position, number = b"", 0, 0
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        (delta,) = struct.unpack_from(">i", log, position + 23)
        if number and number % every == 0:
            entries += struct.pack(">ii", base + delta, position)
        position += 12 + length
        number += 1
    return entries
