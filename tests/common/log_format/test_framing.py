import struct

import pytest

from tests.common.log_format.build import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    SEGMENTS,
    TRANSACTIONAL,
    batch,
    message,
    record,
)
from ts_common.errors import CorruptData
from ts_common.log_format.framing import (
    HEADER_SIZE,
    MINIMUM_SIZE,
    BatchHeader,
    Trailing,
    batch_crc,
    crc_start,
    follows,
    frame_size,
    parse_header,
)


def header_of(data: bytes) -> BatchHeader:
    header = parse_header(data, 0, len(data))
    assert isinstance(header, BatchHeader)
    return header


def test_a_header_of_a_real_broker_is_read_field_by_field() -> None:
    """The first batch of the golden segment has the fields of its hex dump."""
    header = header_of(SEGMENTS[0].read_bytes())
    assert header == BatchHeader(
        base_offset=0,
        length=0x1945,
        leader_epoch=0,
        magic=2,
        crc=0xD248A436,
        attributes=0x0B,
        last_offset=0x24,
        base_timestamp=0x018BCFE55478,
        max_timestamp=0x01A1FBDB438F,
        producer_id=-1,
        record_count=0x25,
    )
    assert (header.codec, header.is_log_append_time, header.size_in_bytes) == (3, True, 0x1945 + 12)
    assert [header.is_control, header.is_transactional, header.has_delete_horizon] == [False] * 3


def test_a_header_has_the_producers_epoch_and_sequence_number() -> None:
    """A message of magic 1 has neither."""
    header = header_of(batch(producer_id=7, producer_epoch=3, sequence=41))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 41)
    header = header_of(message(1, 0, b"v"))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_each_attribute_bit_has_its_own_meaning() -> None:
    """Setting one bit changes exactly one property."""
    names = ["is_log_append_time", "is_transactional", "is_control", "has_delete_horizon"]
    for bit, name in zip((LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON), names, strict=True):
        header = header_of(batch(attributes=bit))
        assert [n for n in names if getattr(header, n)] == [name]
        assert header.codec == 0
    assert [header_of(batch(attributes=codec)).codec for codec in range(5)] == list(range(5))


def test_a_segment_of_a_real_broker_is_a_chain_of_batches_with_right_crcs() -> None:
    """The batch sizes add up to the file's size, and each CRC is the stored one."""
    for path in SEGMENTS:
        data, position, next_offset = path.read_bytes(), 0, int(path.stem)
        while position < len(data):
            header = parse_header(data, position, len(data) - position)
            assert isinstance(header, BatchHeader)
            end = position + header.size_in_bytes
            assert batch_crc(2, data[position + crc_start(2) : end]) == header.crc
            assert header.base_offset == next_offset
            next_offset, position = header.last_offset + 1, end
        assert position == len(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_magic_has_no_epoch_and_one_record(magic: int) -> None:
    """A plain message has one offset, epoch -1, and a timestamp only in magic 1."""
    data = message(magic, 42, b"value", b"key", timestamp=99)
    header = header_of(data)
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.magic) == (42, 42, -1, magic)
    assert (header.record_count, header.max_timestamp, header.producer_id) == (1, 99 if magic else -1, -1)
    assert header.size_in_bytes == len(data)
    assert batch_crc(magic, data[crc_start(magic) :]) == header.crc


def test_a_compressed_wrapper_does_not_report_its_record_count() -> None:
    """Only decompression yields the messages inside; attribute bits of v2 have no meaning here."""
    header = header_of(message(1, 9, b"compressed", attributes=0x0A))
    assert (header.record_count, header.codec, header.is_log_append_time) == (None, 2, True)
    old = header_of(message(0, 9, b"compressed", attributes=0x7A))
    assert [old.is_transactional, old.is_control, old.has_delete_horizon, old.is_log_append_time] == [False] * 4


def test_the_three_ends_of_a_segment_are_distinguished() -> None:
    """The three ends are: no bytes left, any number of zeros, and a batch that is cut at any byte."""
    assert parse_header(b"", 0, 0) is Trailing.NONE
    for count in (1, 11, 12, 16, 17, 60, 61, 100):
        assert parse_header(bytes(count), 0, count) is Trailing.ZEROS
    for whole in (batch(1), message(0, 1, b"v"), message(1, 1, b"v")):
        for length in range(8, len(whole)):
            assert parse_header(whole[:length], 0, length) is Trailing.TORN


def test_r04_a_length_of_two_gigabytes_is_a_torn_tail_and_allocates_nothing() -> None:
    """A length above the remaining bytes is never used as a size."""
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, 2**31 - 1)
    assert parse_header(data, 0, len(data)) is Trailing.TORN
    assert frame_size(data, 0, len(data)) is None


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_r04_a_length_below_an_empty_batch_names_the_position(length: int) -> None:
    """No batch is that small, and the message has the position."""
    data = bytearray(b"....." + batch())
    struct.pack_into(">i", data, 5 + 8, length)
    with pytest.raises(CorruptData, match=r"position 1005\b"):
        parse_header(data, 5, len(data) - 5, file_position=1005)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_r04_an_unknown_magic_is_corrupt(magic: int) -> None:
    """A later Kafka can define magic 3; decoding it as 2 would be a guess."""
    data = bytearray(batch())
    data[16] = magic
    with pytest.raises(CorruptData, match="magic"):
        parse_header(data, 0, len(data))


def test_r04_negative_offsets_of_messages_and_counts_are_corrupt() -> None:
    """Each field is checked alone."""
    for data in (batch(count=-1), message(0, -1, b"v"), message(1, -5, b"v")):
        with pytest.raises(CorruptData, match="position 0"):
            parse_header(data, 0, len(data))


def test_a_batch_follows_where_a_broker_placed_it_by_a_wrong_last_offset_delta() -> None:
    """A broker of 0.11 counted the records, and subtracted the producer's delta from the last offset."""
    three = [record(0), record(1), record(2)]
    for base, last_delta, is_next, is_wrong in (
        (10, 2, True, False),
        (12, 0, True, True),
        (15, -3, True, True),
        (3, 9, True, False),
        (9, 2, False, False),
        (-5, 2, False, False),
    ):
        header = header_of(batch(base, three, last_offset_delta=last_delta))
        assert (follows(header, 9), header.contradicts_itself) == (is_next, is_wrong), base
    assert not follows(header_of(batch(3, [], last_offset_delta=6)), 9)


def test_an_empty_batch_is_a_batch() -> None:
    """Compaction leaves headers without records, and last offsets above the last record's."""
    header = header_of(batch(10, [], last_offset_delta=7))
    assert (header.record_count, header.last_offset, header.size_in_bytes) == (0, 17, HEADER_SIZE)
    assert header_of(batch(10, [record(2)], last_offset_delta=7)).last_offset == 17


def test_a_buffer_that_ends_inside_the_header_is_the_callers_mistake() -> None:
    """The segment continues after the buffer, so this is not a torn tail."""
    data = batch()
    with pytest.raises(ValueError, match="30 bytes"):
        parse_header(data[:30], 0, len(data))


def test_frame_size_accepts_what_could_be_a_batch() -> None:
    """Valid sizes reach from the smallest message to all remaining bytes."""
    for size, accepted in ((MINIMUM_SIZE[0] - 1, False), (MINIMUM_SIZE[0], True), (100, True), (101, False)):
        data = bytearray(100)
        struct.pack_into(">i", data, 8, size - 12)
        assert (frame_size(data, 0, 100) == size) is accepted
    assert frame_size(bytes(11), 0, 11) is None
