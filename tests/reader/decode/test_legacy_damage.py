"""Damage of messages of magic 0 and 1: each kind is found, named, and never a wrong row."""

import random
import struct

import pytest
from awscrt.checksums import crc32

from tests.common.log_format.build import message
from tests.common.log_format.legacy_messages import GZIP, LZ4, SNAPPY, packed, wrapper
from tests.matrix import cases, examples, sampled
from tests.reader.decode.decoded_rows import Row, decoded, decoded_to_the_damage, rows_of
from tests.reader.decode.odd_messages import INNER_0, INNER_1, LIE, NULL, ONE, SEEMS_MAGIC_1, fields
from tests.reader.decode.upgraded_segment import UPGRADED, UPGRADED_ROWS
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import Trailing
from ts_reader.decode.segment_decoder import SegmentDecoder


def test_r06_every_truncation_gives_a_prefix_of_the_rows() -> None:
    """At each byte of a segment of three magics; in `make test` at some, and around each end of a message."""
    data, ends = b"".join(UPGRADED), {sum(map(len, UPGRADED[:n])) for n in range(len(UPGRADED) + 1)}
    around = {end + step for end in ends for step in (-1, 0, 1)}
    for length in sorted({*sampled(range(len(data)), step=7)} | around & {*range(len(data))}):
        decoder = SegmentDecoder()
        found = [row for columns in decoder.decode([data[:length]]) for row in rows_of(columns)]
        assert found == UPGRADED_ROWS[: len(found)]
        assert decoder.valid_bytes == max(end for end in ends if end <= length)
        assert (decoder.trailing is Trailing.NONE) == (length in ends)


def test_r06_every_flipped_bit_under_a_crc_is_found() -> None:
    """In each message, plain or compressed. Rows before it are yielded first, and `position` is after them."""
    position = 0
    for one in UPGRADED:
        for at in sampled(range(position + 16, position + len(one)), step=5):
            bad = bytearray(b"".join(UPGRADED))
            bad[at] ^= 1 << at % 8
            decoder, found = SegmentDecoder(), list[Row]()
            with pytest.raises(CorruptData, match=rf"position {position}\b"):
                for columns in decoder.decode([bytes(bad)]):
                    found += rows_of(columns)
            assert found == [row for row in UPGRADED_ROWS if row[0] < UPGRADED_OFFSETS[position]]
            assert decoder.position == UPGRADED_OFFSETS[position]
        position += len(one)


# By position, the lowest offset that a batch or message answers for.
UPGRADED_OFFSETS = dict(
    zip((sum(map(len, UPGRADED[:n])) for n in range(len(UPGRADED))), (0, 1, 2, 5, 6, 9, 11, 13, 19), strict=True)
)


def test_r06_flips_outside_the_crc_never_crash() -> None:
    """A flipped offset or length gives other offsets or an error, but always whole records."""
    fields, errors, bits = {row[1:] for row in UPGRADED_ROWS}, 0, sampled(range(8), step=4)
    for position in UPGRADED_OFFSETS:
        for at in range(position, position + 12):
            for bit in bits:
                bad = bytearray(b"".join(UPGRADED))
                bad[at] ^= 1 << bit
                found, damaged = decoded_to_the_damage(bytes(bad))
                errors += damaged
                assert {row[1:] for row in found} <= fields
                assert [row[0] for row in found] == sorted({row[0] for row in found})
    assert errors > 12 * len(bits)


@pytest.mark.parametrize("seed", cases(range(6), quick=[0]))
def test_r06_damage_inside_a_wrapper_under_right_crcs_never_crashes(seed: int) -> None:
    """Random bytes in a decompressed set, each message's CRC right or wrong: whole rows or an error."""
    generator, errors, times = random.Random(seed), 0, examples(300, quick=50)
    inner = b"".join(message(seed % 2, n, b"value-%d" % n, b"key") for n in range(8))
    for _ in range(times):
        bad = bytearray(inner)
        for _ in range(generator.randint(1, 3)):
            bad[generator.randrange(len(bad))] = generator.choice((0, 1, 2, 0x7F, 0x80, 0xFF, generator.randrange(256)))
        if generator.random() < 0.8:
            bad = crcs_fixed(bad)
        try:
            rows = decoded(message(0, 3, b"before") + wrapper(seed % 2, GZIP, bytes(bad), 11))
            assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        except (BatchTooLarge, CorruptData):
            errors += 1
    assert errors > times // 6


def crcs_fixed(data: bytearray) -> bytearray:
    position = 0
    while position + 26 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not 26 <= size <= len(data) - position:
            break
        data[position + 12 : position + 16] = crc32(bytes(data[position + 16 : position + size])).to_bytes(4, "big")
        position += size
    return data


def wrong_crc(data: bytes) -> bytes:
    return data[:12] + bytes([data[12] ^ 1]) + data[13:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wrong_crc(message(0, 9, b"v")), "CRC [0-9a-f]+; its header has"),
        (wrong_crc(message(1, 9, b"v")), "CRC [0-9a-f]+; its header has"),
        (wrong_crc(wrapper(0, GZIP, INNER_0, 9)), "CRC [0-9a-f]+; its header has"),
        (wrong_crc(wrapper(1, LZ4, ONE, 9)), "CRC [0-9a-f]+; its header has"),
        (fields(0, LIE + NULL), "key and value"),
        (fields(1, LIE + NULL), "key and value"),
        (fields(1, NULL + LIE), "key and value"),
        (fields(0, struct.pack(">i", 4) + NULL), "key and value"),
        (fields(0, LIE + NULL, GZIP), "key and value"),
        (fields(1, NULL + LIE, SNAPPY), "key and value"),
        (fields(1, NULL + struct.pack(">i", 5) + b"less", SNAPPY), "key and value"),
        (fields(1, NULL + struct.pack(">i", -2), SNAPPY), "without a value"),
        (fields(1, struct.pack(">i", 4) + NULL, LZ4), "key and value"),
        (fields(0, NULL + NULL, GZIP), "without a value"),
        (message(1, 9, b"any", attributes=4), "codec 4 in a message of magic 1, 0 to 3 expected"),
        (message(0, 9, b"any", attributes=7), "codec 7 in a message of magic 0, 0 to 3 expected"),
        (message(0, 9, b"no gzip", attributes=GZIP), "gzip"),
        (message(0, 9, b"\xff" * 20, attributes=SNAPPY), "snappy"),
        (message(1, 9, b"no lz4 frame", attributes=LZ4), "lz4"),
        (message(1, 9, packed(GZIP, INNER_1)[:-5], attributes=GZIP), "gzip"),
        (message(1, 9, packed(LZ4, INNER_1)[:-4], attributes=LZ4), "lz4"),
        (wrapper(1, GZIP, b"", 9), "without a message inside"),
        (wrapper(1, GZIP, wrong_crc(INNER_1), 9), "a message inside it is .* has a wrong CRC"),
        (wrapper(1, GZIP, INNER_1[:-1], 9), "without a message inside"),
        (wrapper(1, GZIP, INNER_1[:8] + LIE + INNER_1[12:], 9), "without a message inside"),
        (wrapper(1, GZIP, INNER_1 + bytes(80), 9), "inside it: the size of message 1 is below 26 bytes"),
        (wrapper(1, GZIP, INNER_1[:8] + struct.pack(">i", 3) + INNER_1[12:], 9), "inside it: the size of message 0"),
        (wrapper(1, GZIP, INNER_1[:8] + NULL + INNER_1[12:], 9), "inside it: the size of message 0"),
        (wrapper(1, GZIP, message(0, 0, *SEEMS_MAGIC_1)[:-1], 9), "without a message inside"),
        (wrapper(1, GZIP, wrapper(1, LZ4, ONE, 0), 9), "a message inside it is compressed"),
        (wrapper(0, SNAPPY, wrapper(0, SNAPPY, INNER_0, 9), 9), "a message inside it is compressed"),
        (wrapper(0, SNAPPY, fields(0, LIE + NULL), 9), "its lengths do not fit its size"),
        (wrapper(1, GZIP, [(0, 0, None, None), (10, 0, None, None)], 9), "the last offset inside is 10, above its own"),
        (message(1, 3, b"again"), "base offset 3 at position 30: the batches before it end at 3"),
        (wrapper(1, GZIP, ONE, 3), "base offset 3 at position 30: the batches before it end at 3"),
        (struct.pack(">qi", 9, 13) + bytes(80), "magic 0 at position 30: 25 bytes by its length"),
        (fields(1, b"")[:28], "magic 1 at position 30: 26 bytes by its length"),
        (fields(1, b"12", GZIP), "magic 1 at position 30: 28 bytes by its length"),
        (message(0, -9, b"v"), "position 30: offset -9"),
    ],
)
@pytest.mark.parametrize("chunk", [1 << 20, 13])
def test_r06_damage_is_named(data: bytes, reason: str, chunk: int) -> None:
    """Each check, with base offset and position; the row before it is read, whatever the chunks are."""
    before = message(0, 3, b"test")
    assert len(before) == 30
    decoder, found, whole = SegmentDecoder(), list[Row](), before + data + message(0, 99, b"after")
    with pytest.raises(CorruptData, match=reason) as raised:
        for columns in decoder.decode(whole[start : start + chunk] for start in range(0, len(whole), chunk)):
            found += rows_of(columns)
    assert "position 30: " in str(raised.value)
    assert [row[0] for row in found] == [3]
    assert decoder.position == 4


def test_r06_damage_names_the_wrapper_by_offset_and_place_in_the_segment() -> None:
    """The messages inside before it are shown, as Kafka's consumer shows them."""
    bad = wrapper(1, GZIP, INNER_1 + wrong_crc(message(1, 1, b"v")), 9)
    found = list[Row]()
    with pytest.raises(CorruptData, match=r"^batch of base offset 9 at position 1030: a message inside it "):
        for columns in SegmentDecoder(first_position=1000).decode([message(0, 3, b"test"), bad]):
            found += rows_of(columns)
    assert [row[0] for row in found] == [3, 8]
