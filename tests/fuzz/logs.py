"""Logs that no broker would store, and some that it would: what the differential fuzz draws.

Every magic, alone and mixed; wrappers with any magic inside, also wrapped twice; each codec with each kind of end that
a stream can have (`streams`); lengths below -1, counts and deltas that contradict headers, unknown attributes, control
batches and transactions; and batches of real segments with other bytes. CRCs are mostly right, because a wrong one ends
every reading at its batch.
"""

import random
import struct
from collections.abc import Sequence
from typing import Final

from awscrt.checksums import crc32, crc32c

from tests.common.log_format import build
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.streams import compressed

_LONG: Final = (1 << 63) - 1
_INT: Final = (1 << 31) - 1
_VARINTS: Final = (-1, -2, -7, -_INT - 1, _INT, _INT + 1, 1 << 62, _LONG, -_LONG - 1, 127, 128)
_LENGTHS: Final = (-2, -7, -_INT - 1, _INT, 1000, -1, 0)
_TIMES: Final = (1000, 0, -1, -5, 1 << 40, _LONG, -_LONG - 1)
_NAMES: Final = (
    b"",
    b"h",
    b"h",
    b"\xed\xa0\x80",
    b"\xff",
    b"\xc3",
    b"\xf0\x9f\x99\x82",
    b"\xe2\x82",
    b"\xc0\x80",
    b"\0",
)
_PRODUCERS: Final = (5, 5, 7, 0, -1)
_CRC_FROM, _CRC_AT, _LENGTH_AT, _MAGIC_AT, _HEADER = 21, 17, 8, 16, 61
_SMALLEST: Final = (14, 22, _HEADER)


def draw_log(chance: random.Random, real: Sequence[bytes]) -> bytes:
    """Return the bytes of a log of a few batches.

    Args:
        chance: that decides.
        real: batches of real segments.
    """
    log, base = b"", _LONG - 40 if chance.random() < 0.05 else chance.choice((0, 100))
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        try:
            match chance.choice("222222222mmmmtttr"):
                case "2":
                    piece, following = _batch(chance, base)
                case "m":
                    piece, following = _messages(chance, base)
                case "t":
                    piece, following = _transaction(chance, base)
                case _:
                    piece, following = _real(chance, base, chance.choice(real))
        except struct.error:
            continue  # a number that its field cannot hold
        if following > _LONG:
            break
        log, base = log + piece, following
        if chance.random() < 0.03:
            base = chance.choice((0, max(base - 2, 0), base + 5))
    if chance.random() < 0.05:
        log = mutate_bytes(chance, log)
        log = with_crcs(log) if chance.random() < 0.7 else log
    if chance.random() < 0.05:
        log += chance.choice((bytes(5), bytes(30), bytes(100), log[:30], b"\xff" * 40))
    return log


def with_crcs(log: bytes) -> bytes:
    """The same log with right CRCs, as far as its lengths lead."""
    fixed, at = bytearray(log), 0
    while at + _MAGIC_AT < len(fixed):
        (length,) = struct.unpack_from(">i", fixed, at + _LENGTH_AT)
        end, magic = at + 12 + length, fixed[at + _MAGIC_AT]
        if magic > 2 or length + 12 < _SMALLEST[magic] or end > len(fixed):
            break
        if magic == 2:
            struct.pack_into(">I", fixed, at + _CRC_AT, crc32c(bytes(fixed[at + _CRC_FROM : end])))
        else:
            struct.pack_into(">I", fixed, at + 12, crc32(bytes(fixed[at + _MAGIC_AT : end])))
        at = end
    return bytes(fixed)


def _batch(chance: random.Random, base: int) -> tuple[bytes, int]:
    """Of magic 2."""
    count = chance.choice((0, 1, 1, 2, 3, 5, 20))
    deltas = _deltas(chance, count)
    last = max(deltas, default=0) + chance.choice((0, 0, 0, 0, 2))
    said = count
    body = b"".join(_record(chance, delta) for delta in deltas)
    if chance.random() < 0.1:
        said = chance.choice((count + 1, max(count - 1, 0), _INT, 0, -1, -_INT - 1))
    if chance.random() < 0.1:
        last = chance.choice((0, 0, -1, _INT, max(last - 1, 0), last + 3))
    if chance.random() < 0.08:
        body += chance.choice((b"\0", bytes(7), _record(chance, last + 1), b"\xff" * 3))
    if chance.random() < 0.1:
        body = _with_wrong_varint(chance, body)
    codec = chance.choice((0, 0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 7))
    attributes = codec | chance.choice((0, 0, 0, 0, 8, 8, 0x40, 0x80, 0x100, 0xFF00))
    if chance.random() < 0.04:
        attributes |= build.CONTROL
    return (
        build.batch(
            base,
            body=compressed(chance, codec, body),
            count=said,
            last_offset_delta=last,
            epoch=chance.choice((0, 3, -1)),
            attributes=attributes - (1 << 16 if attributes >= 1 << 15 else 0),
            base_timestamp=chance.choice(_TIMES),
            max_timestamp=chance.choice((2000, -1, _LONG)),
            producer_id=chance.choice((-1, -1, 5)),
            sequence=chance.choice((-1, 0, _INT)),
        ),
        base + max(last, *deltas, 0) + 1,
    )


def _deltas(chance: random.Random, count: int) -> list[int]:
    """Offset deltas, mostly one after the other."""
    ascending, delta = [], 0
    for _ in range(count):
        ascending.append(delta)
        delta += chance.choice((1, 1, 1, 1, 3))
    match chance.randrange(20):
        case 0:
            return [0] * count
        case 1:
            return ascending[::-1]
        case 2:
            return [chance.randrange(-2, count + 2) for _ in range(count)]
        case 3:
            return [delta + 1 for delta in ascending]
    return ascending


def _record(chance: random.Random, delta: int) -> bytes:
    headers = [_sized(chance, chance.choice(_NAMES)) + _sized(chance, _bytes(chance, 9)) for _ in range(_few(chance))]
    said = len(headers)
    if chance.random() < 0.01:
        said = chance.choice((said + 1, -1, _INT, 0))
    body = bytes((chance.choice((0, 0, 0, 0xFF)),))
    body += _number(chance, chance.choice((0, 1, -5, 1 << 40, _LONG, -_LONG - 1)))
    body += _number(chance, delta)
    value = _bytes(chance, 300) if chance.random() < 0.99 else _large(chance)
    body += _sized(chance, _bytes(chance, 20)) + _sized(chance, value)
    body += _number(chance, said) + b"".join(headers)
    if chance.random() < 0.01:
        body += b"\0"
    length = len(body)
    if chance.random() < 0.01:
        length = chance.choice((0, -1, length + 1, length - 1, _INT))
    return _number(chance, length) + body


def _sized(chance: random.Random, data: bytes | None) -> bytes:
    """Bytes behind their length, which sometimes contradicts them."""
    if chance.random() < 0.015:
        return _number(chance, chance.choice(_LENGTHS)) + (data or b"")
    return _number(chance, -1 if data is None else len(data)) + (data or b"")


def _number(chance: random.Random, value: int) -> bytes:
    """A varint, sometimes of more bytes than it needs."""
    if chance.random() < 0.985:
        return build.varint(value)
    zigzag = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1)
    count = chance.choice((5, 10, 11))
    return bytes((zigzag >> 7 * at & 0x7F) | (0x80 if at < count - 1 else 0) for at in range(count))


def _bytes(chance: random.Random, most: int) -> bytes | None:
    return chance.choice((None, b"", chance.randbytes(chance.randrange(20)), b"x" * chance.randrange(most)))


def _large(chance: random.Random) -> bytes:
    """More than one block of most codecs."""
    size = chance.choice((1000, 70_000, 200_000))
    match chance.randrange(3):
        case 0:
            return bytes(size)
        case 1:
            return chance.randbytes(size)
    return b"".join(b"line %d\n" % chance.randrange(1000) for _ in range(100)) * (size // 800)


def _few(chance: random.Random) -> int:
    return chance.choice((0, 0, 0, 1, 3))


def _with_wrong_varint(chance: random.Random, body: bytes) -> bytes:
    if not body or chance.random() < 0.3:
        return mutate_bytes(chance, body)
    at = chance.randrange(len(body))
    wrong = (*_VARINTS, len(body) - at, len(body) - at - 1, len(body) - at + 1, len(body))
    return body[:at] + build.varint(chance.choice(wrong)) + body[at + 1 :]


def _transaction(chance: random.Random, base: int) -> tuple[bytes, int]:
    """Batches of one to three producers, and mostly their markers."""
    log = b""
    producers = [chance.choice(_PRODUCERS) for _ in range(chance.choice((1, 2, 3)))]
    for producer in producers:
        count = chance.choice((1, 2))
        log += build.batch(
            base,
            [build.record(at) for at in range(count)],
            attributes=chance.choice((build.TRANSACTIONAL, build.TRANSACTIONAL, build.TRANSACTIONAL | 8, 0)),
            producer_id=producer,
        )
        base += count
    for producer in sorted(set(producers), key=lambda _: chance.random()):
        if chance.random() < 0.1:
            continue
        if chance.random() < 0.93:
            log += build.marker(base, producer, chance.choice((0, 0, 1, 1, 1, 2, 5, -1)))
        else:
            log += build.batch(
                base,
                [build.record(0, chance.choice((None, b"", b"\0\0", b"\0\1\0\0", bytes(6))), b"")],
                attributes=build.CONTROL | chance.choice((0, build.TRANSACTIONAL)),
                producer_id=producer,
            )
        base += 1
    return log, base


def _messages(chance: random.Random, base: int) -> tuple[bytes, int]:
    """For magic 0 or 1, alone or in a wrapper."""
    if chance.random() < 0.4:
        count = chance.choice((1, 2, 5))
        return b"".join(_message(chance, chance.choice((0, 1)), base + at) for at in range(count)), base + count
    return _wrapper(chance, base, depth=1)


def _wrapper(chance: random.Random, base: int, depth: int) -> tuple[bytes, int]:
    magic, count = chance.choice((0, 1)), chance.choice((1, 2, 3, 5, 0))
    offset = base + max(count - 1, 0)
    inner_magic = magic if chance.random() < 0.7 else chance.choice((0, 1, 2))
    first = 0 if magic else base
    match chance.randrange(12):
        case 0:
            offsets = [first] * count
        case 1:
            offsets = [first + at for at in range(count)][::-1]
        case 2:
            offsets = [base + at for at in range(count)]
        case 3:
            offsets = [first + chance.randrange(-1, 5) for _ in range(count)]
        case 4:
            offsets = [first + 2 * at for at in range(count)]
            offset = base + 2 * count
        case _:
            offsets = [first + at for at in range(count)]
    pieces = []
    for at in offsets:
        if inner_magic == 2:
            pieces.append(build.batch(at, [build.record(0)]))
        elif depth < 3 and chance.random() < 0.04:
            pieces.append(_wrapper(chance, at, depth + 1)[0])
        else:
            pieces.append(_message(chance, inner_magic if chance.random() < 0.95 else chance.choice((0, 1)), at))
    body = b"".join(pieces)
    if chance.random() < 0.1:
        body += chance.choice((bytes(3), bytes(30), body[: len(body) // 2], b"\xff" * 20, b"\0" * 12))
    if chance.random() < 0.07:
        body = with_crcs(mutate_bytes(chance, body))
    if chance.random() < 0.1:
        offset = chance.choice((0, base, offset + 7, max(offset - 1, 0)))
    codec = chance.choice((1, 2, 3, 1, 2, 3, 4, 5))
    value = compressed(chance, codec, body, magic=magic) if chance.random() < 0.99 else None
    wrapper = build.message(
        magic,
        offset,
        value,
        chance.choice((None, None, b"", b"a key")),
        attributes=codec | chance.choice((0, 0, 8, 0x10, 0x40)),
        timestamp=chance.choice(_TIMES),
    )
    return wrapper, max(base, offset) + 1


def _message(chance: random.Random, magic: int, offset: int) -> bytes:
    """One that is not compressed."""
    attributes = chance.choice((0, 0, 0, 8, 0x10, 0x70, 1 if chance.random() < 0.1 else 0))
    message = build.message(
        magic, offset, _bytes(chance, 60), _bytes(chance, 20), attributes=attributes, timestamp=chance.choice(_TIMES)
    )
    if chance.random() < 0.06:  # a length of key or value, or bytes after the value
        wrong = bytearray(message)
        key_at = 26 if magic else 18
        (key_length,) = struct.unpack_from(">i", wrong, key_at)
        at = chance.choice((key_at, key_at + 4 + max(key_length, 0)))
        if chance.random() < 0.7:
            struct.pack_into(">i", wrong, at, chance.choice((*_LENGTHS, 3, 5)))
        else:
            wrong += chance.choice((b"\0", bytes(9)))
            struct.pack_into(">i", wrong, _LENGTH_AT, len(wrong) - 12)
        message = with_crcs(bytes(wrong))
    if chance.random() < 0.01:
        message = message[:-1] + bytes((message[-1] ^ 1,))
    return message


def _real(chance: random.Random, base: int, batch: bytes) -> tuple[bytes, int]:
    """A batch of a real segment at another offset, with other bytes or without."""
    (delta,) = struct.unpack_from(">i", batch, 23)
    batch = struct.pack(">q", base) + batch[8:]
    if chance.random() < 0.6:
        head = chance.choice((8, _CRC_FROM, _HEADER))
        batch = batch[:head] + mutate_bytes(chance, batch[head:])
        if chance.random() < 0.8 and len(batch) > _HEADER:
            batch = with_crcs(batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:])
    return batch, base + max(delta, 0) + 1


def batches_of(segment: bytes) -> list[bytes]:
    """The batches of a segment without damage."""
    found, at = [], 0
    while at + _MAGIC_AT < len(segment):
        end = at + 12 + struct.unpack_from(">i", segment, at + _LENGTH_AT)[0]
        found.append(segment[at:end])
        at = end
    return found
