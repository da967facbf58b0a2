"""Segments as the agent and `tsctl` walk them: `scan_segment`, with transactions' markers, and `salvage_segment`.

An input is a line, `scan` or `salvage` with a number that chooses what is claimed, and the segment. Where lengths lead
to them, the CRCs of batches are put right first.
"""

import io
import random

from awscrt.checksums import crc32c

from tests.common.log_format import build
from tests.fuzz.logs import with_crcs
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.errors import TieredStorageError
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment
from ts_reader.decode.batch_boundaries import Claim
from ts_reader.decode.salvage import salvage_segment


class Segments(Target):
    """Both walks."""

    def draw(self, chance: random.Random) -> bytes:
        """A few batches, some of them transactions' markers, with changes."""
        data, offset = b"", chance.choice((0, 0, 100, (1 << 63) - 40))
        for _ in range(chance.choice((1, 2, 4))):
            if chance.random() < 0.4:
                data += build.marker(offset, chance.choice((5, -1, (1 << 63) - 1)), chance.choice((0, 1, 2, -1)))
                offset += 1
            elif chance.random() < 0.2:
                data += build.message(chance.choice((0, 1)), offset, b"v")
                offset += 1
            else:
                count = chance.choice((1, 3))
                attributes = chance.choice((0, build.TRANSACTIONAL, build.LOG_APPEND_TIME))
                records = [build.record(at) for at in range(count)]
                data += build.batch(offset, records, attributes=attributes, producer_id=chance.choice((-1, 5)))
                offset += count
        if chance.random() < 0.9:
            data = mutate_bytes(chance, data)
        if chance.random() < 0.1:
            data += bytes(chance.choice((1, 30, 100)))
        line = chance.choice(("scan", f"salvage {chance.randrange(1 << 16)}"))
        return line.encode() + b"\n" + data

    def run(self, data: bytes) -> None:
        """Walk it."""
        words, segment = split_input(data)
        segment = with_crcs(segment)
        try:
            if words[0] == "salvage":
                _salvage(segment, int(words[1]) & 0xFFFF if len(words) > 1 and words[1].isdecimal() else 0)
            else:
                _scan(segment)
        except TieredStorageError as error:
            str(error).encode()


def _scan(segment: bytes) -> None:
    found = scan_segment(io.BytesIO(segment), len(segment), TimeIndex(0, segment[:36]))
    if found.crc32c != crc32c(segment):
        raise Mismatch("the CRC of another segment")
    if len(found.abort_markers) > len(segment):
        raise Mismatch("more markers than bytes")


def _salvage(segment: bytes, chosen: int) -> None:
    claim = Claim(
        len(segment),
        0,
        (chosen & 7) * 300,
        crc32c(segment) if chosen & 8 else 7,
        ((0, 0),) if chosen & 16 else None,
        chosen >> 8 if chosen & 32 else None,
        bool(chosen & 64),
        bool(chosen & 128),
        frozenset({chosen >> 8}),
    )
    found = salvage_segment(_Source(segment), claim)
    ends = 0
    for stretch in found.stretches:
        if stretch.start < ends or stretch.end > len(segment):
            raise Mismatch("stretches that overlap, or beyond the segment")
        ends = stretch.end


class _Source:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, position: int, count: int) -> bytes:
        return self._data[position : position + count]
