"""Damage of batches of magic 2: each kind is found, named, and never a wrong row."""

import random

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format.build import (
    batch,
    record,
    varint,
)
from tests.matrix import cases, examples, sampled
from tests.reader.decode.client_builders import AiokafkaBuilder, encoded
from tests.reader.decode.decoded_rows import Row, decoded, decoded_to_the_damage, rows_of
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import Trailing
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode.segment_decoder import SegmentDecoder


def test_r04_a_wrong_crc_is_reported_with_its_batch_and_the_rows_before_it_are_read() -> None:
    """Base offset and position; rows before it are yielded first."""
    first, second = batch(7), bytearray(batch(8))
    second[-1] ^= 1
    decoder = SegmentDecoder(first_position=1000)
    rows: list[Row] = []
    with pytest.raises(CorruptData, match=rf"base offset 8 at position {1000 + len(first)}: CRC"):
        rows += [row for columns in decoder.decode([first + second + batch(9)]) for row in rows_of(columns)]
    columns_before = SegmentDecoder().decode([first + second])
    assert [row[0] for row in rows_of(next(columns_before))] == [7]
    assert decoder.position == 8


SMALL = (
    batch(3, [record(0, b"k1", b"v1", [(b"h", b"x"), (b"n", None)]), record(1, None, b"v2", timestamp_delta=-4)])
    + encoded(AiokafkaBuilder, 3, [(1000 + i, b"same key", b"same value" * 3, []) for i in range(6)], 10)
    + encoded(AiokafkaBuilder, 4, [(1000 + i, b"same key", b"same value" * 3, []) for i in range(6)], 20)
    + encoded(AiokafkaBuilder, 2, [(1000 + i, b"same key", b"same value" * 3, []) for i in range(6)], 30)
    + encoded(AiokafkaBuilder, 1, [(1000 + i, b"same key", b"same value" * 3, []) for i in range(6)], 40)
)


def test_r04_every_truncation_gives_a_prefix_of_the_rows() -> None:
    """No crash, no wrong row, and the decoder reports a torn segment."""
    rows = decoded(SMALL)
    assert len(rows) == 26
    for length in sampled(range(len(SMALL)), step=5):
        decoder = SegmentDecoder()
        found = [row for columns in decoder.decode([SMALL[:length]]) for row in rows_of(columns)]
        assert found == rows[: len(found)]
        assert len(found) < len(rows)
        assert (decoder.trailing is Trailing.NONE) == (decoder.valid_bytes == length)


def crc_fixed(data: bytearray) -> None:
    """Make each batch's CRC right again, as a hostile producer would."""
    position = 0
    while position + 61 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if size < 61 or position + size > len(data):
            return
        data[position + 17 : position + 21] = crc32c(bytes(data[position + 21 : position + size])).to_bytes(4, "big")
        position += size


def test_r04_every_flipped_bit_under_a_crc_is_found() -> None:
    """Everything but base offset, length and leader epoch (those the object's own CRC covers)."""
    rows, position = decoded(SMALL), 0
    while position < len(SMALL):
        size = 12 + int.from_bytes(SMALL[position + 8 : position + 12], "big")
        for at in sampled(range(position + 16, position + size), step=5):
            bad = bytearray(SMALL)
            bad[at] ^= 1 << at % 8
            found: list[Row] = []
            with pytest.raises(CorruptData, match=rf"position {position}\b"):
                for columns in SegmentDecoder().decode([bytes(bad)]):
                    found += rows_of(columns)
            assert found == rows[: len(found)]
        position += size


def test_r04_flips_outside_the_crc_never_crash() -> None:
    """A flipped offset or length gives other offsets or an error, but always whole records."""
    fields, errors, bits = {row[3:] for row in decoded(SMALL)}, 0, sampled(range(8), step=4)
    for at in (*range(16), *range(len(batch(3)), len(batch(3)) + 16)):
        for bit in bits:
            bad = bytearray(SMALL)
            bad[at] ^= 1 << bit
            found, damaged = decoded_to_the_damage(bytes(bad))
            errors += damaged
            assert {row[3:] for row in found} <= fields
    assert errors > 2 * len(bits)


@pytest.mark.parametrize("seed", cases(range(8), quick=[0]))
def test_r04_damage_under_a_right_crc_never_crashes(seed: int) -> None:
    """Random bytes behind a good CRC: some rows or an error; memory outside the batch is never read."""
    generator, errors, times = random.Random(seed), 0, examples(400, quick=60)
    for _ in range(times):
        bad = bytearray(SMALL)
        for _ in range(generator.randint(1, 4)):
            bad[generator.randrange(len(bad))] = generator.choice((0, 1, 2, 0x7F, 0x80, 0xFF, generator.randrange(256)))
        crc_fixed(bad)
        try:
            for columns in SegmentDecoder(size=len(bad), limit=BatchLimit(1 << 16)).decode([bytes(bad)]):
                offsets = columns.offsets.tolist()
                assert offsets == sorted(set(offsets))
                rows_of(columns)
        except (BatchTooLarge, CorruptData):
            errors += 1
    assert errors > times // 4


def damaged_record(*, length: bytes | None = None, body: bytes) -> bytes:
    return batch(0, [(varint(len(body)) if length is None else length) + body])


FIXED = b"\0" + varint(0) + varint(0)  # attributes, timestamp delta, offset delta


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (damaged_record(length=varint(500), body=FIXED), "record's length"),
        (damaged_record(length=varint(-3), body=FIXED), "record's length"),
        (damaged_record(length=varint(2**31 - 1), body=FIXED), "record's length"),
        (damaged_record(length=b"\xff" * 11, body=FIXED), "record's length"),
        (damaged_record(body=b"\0"), "field's length"),
        (damaged_record(body=FIXED), "field's length"),
        (damaged_record(body=FIXED + varint(2**31 - 1) + b"k"), "field's length"),
        (damaged_record(body=FIXED + varint(2**62) + b"k"), "field's length"),
        (damaged_record(body=FIXED + varint(-2) + b"k"), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(2**31 - 1)), "field's length"),
        (damaged_record(body=FIXED + varint(0) + varint(0)), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(0) + varint(-1)), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(0) + varint(2**31 - 1)), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(0) + varint(1) + varint(-1) + varint(0)), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(0) + varint(1) + varint(0) + varint(9)), "headers"),
        (damaged_record(body=FIXED + varint(0) + varint(0) + varint(0) + b"more"), "headers"),
        (batch(0, [record(0), b"more"], count=1, last_offset_delta=0), "bytes are left"),
        (batch(0, [record(0)], count=2), "record's length"),
        (batch(0, [record(0)], count=2**31 - 1), "record's length"),
        (batch(0, attributes=5), "codec 5"),
        (batch(0, attributes=4, body=b"no zstd"), "zstd"),
        (batch(0, attributes=3, body=b"no lz4 frame"), "lz4"),
        (batch(0, attributes=3, body=b""), "lz4"),
        (batch(0, attributes=2, body=b"\xff" * 20), "snappy"),
        (batch(0, attributes=2, body=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xff"), "snappy"),
        (batch(0, attributes=1, body=b"no gzip"), "gzip"),
    ],
)
def test_r04_damage_under_a_right_crc_is_named(data: bytes, reason: str) -> None:
    """Each check of the kernel and of the codecs, with base offset and position."""
    with pytest.raises(CorruptData, match=rf"base offset \d at position \d+: .*{reason}"):
        decoded(data)


def test_r04_a_batch_that_repeats_offsets_is_corrupt() -> None:
    """In one chunk or at a seam."""
    for chunk in (10, 1000):
        with pytest.raises(CorruptData, match=r"base offset 1 at position \d+: the batches before it end at 2"):
            decoded(batch(0, [record(0), record(1), record(2)]) + batch(1), chunk)
