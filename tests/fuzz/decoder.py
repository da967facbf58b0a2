"""The compiled decoder: segments with lies in them, in guarded memory, against a second reader (`reference`).

An input is a line of settings, and the segment. Settings are `rows=` and `bytes=` of one `RecordColumns`, `sized` where
the segment's size is known, and `cuts=3,9`, where chunks end.
"""

import ctypes
import gc
import gzip
import itertools
import random
import struct
from typing import Any

import lz4.frame
import pyarrow
import zstandard
from awscrt.checksums import crc32

from tests.common.log_format import build
from tests.fuzz.guard import GuardedNumpy, guarded
from tests.fuzz.independent import XERIAL
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.reference import Header, Row, judge
from tests.fuzz.segments import with_crcs
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.decode import columns
from ts_common.decode.arrow import to_arrow
from ts_common.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_common.decode.columns import BinaryColumn, Projection, RecordColumns, java_utf8
from ts_common.decode.segment_decoder import SegmentDecoder
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.limits import BatchLimit

_MOST = 8 << 20
_LATEST = ((1 << 63) - 1) // 1000
_COLLECT_EACH = 20
_LONGEST_SEED = 20_000
_SNAPPY: Any = pyarrow.Codec("snappy")
_ROOMS = ((4, 64), (3, 1000), (32_768, 1 << 16), (1, 1))
_VARINTS = (-1, -2, -(1 << 31), (1 << 31) - 1, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63), 127, 128)


class Decoder(Target):
    """One decoder after the other."""

    def open(self) -> None:
        """Compile the kernels; arrays end at a page that must not be accessed."""
        self._count = 0
        module: Any = columns
        module.np = GuardedNumpy()
        self._real = [path.read_bytes()[:_LONGEST_SEED] for path in sorted(build.DATA.glob("*.log"))]
        for segment in self._real:
            self.run(b"rows=100 bytes=1000 sized\n" + segment)
        gc.freeze()

    def draw(self, chance: random.Random) -> bytes:
        """Batches of each magic and codec, most with some lie in them, CRCs right where lengths lead to them."""
        if chance.random() < 0.15:
            segment = with_crcs(mutate_bytes(chance, chance.choice(self._real)))
        else:
            segment = _segment(chance)
        rows, room = chance.choice(_ROOMS)
        line = f"rows={rows} bytes={room}"
        if chance.random() < 0.7:
            line += " sized"
        if chance.random() < 0.4 and len(segment) > 2:
            cuts = sorted({chance.randrange(len(segment)) for _ in range(chance.randrange(1, 4))})
            line += f" cuts={','.join(map(str, cuts))}"
        return line.encode() + b"\n" + segment

    def run(self, data: bytes) -> None:
        """Decode it, and judge the rows and whether damage was seen."""
        self._count += 1
        if self._count % _COLLECT_EACH == 0:
            gc.collect()  # errors hold decoders, and these guarded memory, in circles
        words, segment = split_input(data)
        said = dict(word.partition("=")[::2] for word in words)
        decoder = SegmentDecoder(
            Projection(),
            0,
            max_rows=_number(said.get("rows"), 1, 1 << 15),
            max_bytes=_number(said.get("bytes"), 1, 1 << 20),
            size=len(segment) if "sized" in said else None,
            limit=BatchLimit(_MOST),
        )
        rows: list[Row] = []
        error: CorruptData | BatchTooLarge | None = None
        try:
            for found in decoder.decode(_chunks(segment, said.get("cuts", ""))):
                rows += _rows_of(found)
                _check_arrow(found)
        except (BatchTooLarge, CorruptData) as damage:
            error = damage
        judgement = judge(segment, _MOST)
        expected = [(*row[:5], _as_text(row[5])) for row in judgement.rows]
        if judgement.is_whole is None or isinstance(error, BatchTooLarge):
            shared = min(len(rows), len(expected))
            if rows[:shared] != expected[:shared]:
                raise Mismatch("other rows before the place where the second reader ends")
        elif judgement.is_whole and (error is not None or rows != expected):
            raise Mismatch(f"{len(rows)} rows and {error}; {len(expected)} rows of a whole segment are there")
        elif not judgement.is_whole and error is None:
            raise Mismatch("the segment is damaged, and no damage was seen")
        elif rows[: len(expected)] != expected:
            raise Mismatch("other rows before the damage")


def _check_arrow(found: RecordColumns) -> None:
    """Check that Arrow accepts the columns, and that timestamps are those of the records within the type's range."""
    batch = to_arrow(found, "t", 0, COLUMNS_WITH_HEADERS)
    batch.validate(full=True)
    times = batch.column("timestamp").cast(pyarrow.int64()).to_pylist()
    for microseconds, milliseconds in zip(times, found.timestamps.tolist(), strict=True):
        if microseconds != max(-_LATEST, min(milliseconds, _LATEST)) * 1000:
            raise Mismatch(f"the time {milliseconds} ms is {microseconds} us")


def _as_text(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """Names as Java's consumer reads them."""
    return tuple((java_utf8(name).encode(), value) for name, value in headers)


def _chunks(segment: bytes, cuts: str) -> list[Any]:
    places = sorted({min(_number(each, 0, len(segment)), len(segment)) for each in cuts.split(",") if each})
    pieces = [segment[start:end] for start, end in itertools.pairwise([0, *places, len(segment)])]
    chunks = []
    for piece in pieces:
        buffer = guarded(len(piece))
        ctypes.memmove(buffer, piece, len(piece))
        chunks.append(buffer)
    return [chunk for chunk, piece in zip(chunks, pieces, strict=True) if piece]


def _number(text: str | None, least: int, most: int) -> int:
    return max(least, min(int(text), most)) if text and text.isdecimal() and len(text) < 10 else most


def _rows_of(found: RecordColumns) -> list[Row]:
    headers = found.headers
    rows: list[Row] = []
    for at in range(found.row_count):
        of_row = range(0) if headers is None else range(headers.offsets[at], headers.offsets[at + 1])
        rows.append(
            (
                int(found.offsets[at]),
                int(found.timestamps[at]),
                int(found.timestamp_types[at]),
                _cell(found.keys, at),
                _cell(found.values, at),
                tuple((_cell(headers.names, each) or b"", _cell(headers.values, each)) for each in of_row if headers),
            )
        )
    return rows


def _cell(column: BinaryColumn | None, at: int) -> bytes | None:
    if column is None or not column.validity[at >> 3] >> (at & 7) & 1:
        return None
    return column.data[column.offsets[at] : column.offsets[at + 1]].tobytes()


def _segment(chance: random.Random) -> bytes:
    segment, base = b"", chance.choice((0, 0, 100, (1 << 63) - 40))
    for _ in range(chance.choice((1, 1, 2, 4))):
        try:
            piece, following = _batch(chance, base) if chance.random() < 0.75 else _messages(chance, base)
        except struct.error:
            continue  # a number that its field cannot hold
        if following >= 1 << 63:
            break
        segment, base = segment + piece, following
        if chance.random() < 0.02:
            segment = mutate_bytes(chance, segment)
    if chance.random() < 0.05:
        segment += chance.choice((bytes(30), bytes(100), segment[:30], b"\xff" * 40))
    return segment


def _batch(chance: random.Random, base: int) -> tuple[bytes, int]:
    count, delta = chance.choice((0, 1, 1, 2, 5, 20)), 0
    records = []
    for _ in range(count):
        records.append(_record(chance, delta))
        delta += chance.choice((1, 1, 1, 3))
    body, said = b"".join(records), count
    last = max(delta - 1, 0) + chance.choice((0, 0, 0, 2))
    if chance.random() < 0.55:
        body = _mutated(chance, body)
    if chance.random() < 0.1:
        said = chance.choice((count + 1, max(count - 1, 0), (1 << 31) - 1, 0, -1, -(1 << 31)))
    if chance.random() < 0.05:
        last = chance.choice((0, -1, (1 << 31) - 1, delta))
    codec = chance.choice((0, 0, 0, 1, 2, 3, 4, 5, 7))
    if 0 < codec < 5:
        body = _compressed(chance, codec, body)
        if chance.random() < 0.3:
            body = mutate_bytes(chance, body)
    attributes = codec | chance.choice((0, 0, 0, 8, 0x10, 0x20, 0x40, 0x80, 0x100, 0xFF00))
    batch = build.batch(
        base,
        body=body,
        count=said,
        last_offset_delta=last,
        attributes=attributes - (1 << 16 if attributes >= 1 << 15 else 0),
        base_timestamp=chance.choice((1000, 0, -1, (1 << 63) - 1, -(1 << 63))),
        max_timestamp=chance.choice((2000, -1, (1 << 63) - 1)),
        producer_id=chance.choice((-1, 5)),
    )
    return batch, base + max(last, 0) + 1


def _record(chance: random.Random, delta: int) -> bytes:
    return build.record(
        delta,
        chance.choice((None, b"", chance.randbytes(chance.randrange(20)))),
        chance.choice((None, b"", chance.randbytes(chance.randrange(60)), b"x" * chance.randrange(300))),
        [
            (
                chance.choice((b"", b"h", chance.randbytes(chance.randrange(6)), b"\xed\xa0\x80", b"\xff")),
                chance.choice((None, b"", chance.randbytes(chance.randrange(9)))),
            )
            for _ in range(chance.choice((0, 0, 1, 3)))
        ],
        chance.choice((0, 1, -5, 1 << 40, (1 << 63) - 1, -(1 << 63))),
    )


def _mutated(chance: random.Random, body: bytes) -> bytes:
    """Also with a varint that lies."""
    if chance.random() < 0.5 and body:
        at = chance.randrange(len(body))
        lies = (*_VARINTS, len(body) - at, len(body) - at - 1, len(body) - at + 1, len(body))
        return body[:at] + build.varint(chance.choice(lies)) + body[at + 1 :]
    return mutate_bytes(chance, body)


def _messages(chance: random.Random, base: int) -> tuple[bytes, int]:
    """Of magic 0 or 1, perhaps within one."""
    magic, count, codec = chance.choice((0, 1)), chance.choice((1, 2, 5)), chance.choice((0, 0, 1, 2, 3))
    first = base if magic == 0 or not codec else 0
    plain = b"".join(
        build.message(
            magic, first + at, chance.choice((None, b"", chance.randbytes(chance.randrange(40)))), attributes=0
        )
        for at in range(count)
    )
    if chance.random() < 0.5:
        plain = _with_message_crcs(mutate_bytes(chance, plain))
    if not codec:
        return plain, base + count
    body = _compressed(chance, codec, plain)
    if chance.random() < 0.2:
        body = mutate_bytes(chance, body)
    wrapper = build.message(magic, base + count - 1, body, attributes=codec | chance.choice((0, 8)))
    if chance.random() < 0.2:
        wrapper = _with_message_crcs(mutate_bytes(chance, wrapper))
    return wrapper, base + count


def _compressed(chance: random.Random, codec: int, body: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(body, 1)
        case 2:
            packed = bytes(_SNAPPY.compress(body, asbytes=True))
            framed = XERIAL + struct.pack(">iiI", 1, 1, len(packed)) + packed
            return chance.choice((packed, framed))
        case 3:
            return bytes(lz4.frame.compress(body, block_linked=chance.random() < 0.5))
        case _:
            return zstandard.ZstdCompressor().compress(body)


def _with_message_crcs(messages: bytes) -> bytes:
    """As far as sizes lead."""
    fixed, at = bytearray(messages), 0
    while at + 17 < len(fixed):
        (size,) = struct.unpack_from(">i", fixed, at + 8)
        end = at + 12 + size
        if size < 5 or end > len(fixed):
            break
        struct.pack_into(">I", fixed, at + 12, crc32(bytes(fixed[at + 16 : end])))
        at = end
    return bytes(fixed)
