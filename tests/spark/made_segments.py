"""Segments that a test makes."""

import struct


def index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def from_offset(start: int, end: int = -1) -> dict[str, str]:
    return {
        "subscribe": "t",
        "startingOffsets": f'{{"t":{{"0":{start}}}}}',
        "endingOffsets": f'{{"t":{{"0":{end}}}}}',
    }
