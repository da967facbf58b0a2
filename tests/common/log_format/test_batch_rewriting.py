"""A batch without some of its records: what stays as it was, and what is rejected."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.common.log_format.build import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    message,
    record,
)
from ts_common.errors import CorruptData
from ts_common.log_format.batch_rewriting import without_records
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, batch_crc, crc_start, parse_header
from ts_reader.decode.codecs import Codec
from ts_reader.decode.compression import ReusedCodecs, compress
from ts_reader.decode.segment_decoder import SegmentDecoder

CODECS = st.sampled_from(Codec)


def packed(codec: Codec, count: int, **fields: int) -> bytes:
    """Return a batch from offset 100 on; its records have the timestamps 1000, 999, 998 and so on."""
    body = b"".join(
        record(at, b"key%d" % at, b"value%d" % at * 50, [(b"h", None)], timestamp_delta=-at) for at in range(count)
    )
    if codec:
        body = compress(codec, body)
    fields["attributes"] = fields.get("attributes", 0) | codec
    return batch(100, body=body, count=count, last_offset_delta=count - 1, **fields)  # type: ignore[arg-type]


def header_of(data: bytes) -> BatchHeader:
    header = parse_header(data, 0, len(data))
    assert isinstance(header, BatchHeader)
    assert header.size_in_bytes == len(data)
    assert batch_crc(2, data[crc_start(2) :]) == header.crc
    return header


def rows(data: bytes) -> list[tuple[int, int, bytes, bytes]]:
    found = []
    for columns in SegmentDecoder().decode([data]):
        assert columns.keys is not None
        assert columns.values is not None
        keys, values = columns.keys, columns.values
        found += [
            (
                int(columns.offsets[at]),
                int(columns.timestamps[at]),
                bytes(keys.data[keys.offsets[at] : keys.offsets[at + 1]]),
                bytes(values.data[values.offsets[at] : values.offsets[at + 1]]),
            )
            for at in range(columns.row_count)
        ]
    return found


@given(CODECS, st.integers(1, 30), st.sets(st.integers(-1, 31)), st.booleans(), st.booleans())
def test_the_other_records_and_the_header_stay(
    codec: Codec, count: int, dropped: set[int], is_transactional: bool, is_append_time: bool
) -> None:
    """Offsets, timestamps, keys, values; base and last offset, epoch, producer, sequence and codec."""
    attributes = TRANSACTIONAL * is_transactional | LOG_APPEND_TIME * is_append_time
    fields = {"epoch": 7, "attributes": attributes, "producer_id": 5, "producer_epoch": 3, "sequence": 9}
    old = packed(codec, count, **fields)
    new = without_records(old, dropped, ReusedCodecs())
    kept = [row for row in rows(old) if row[0] - 100 not in dropped]
    assert rows(new) == kept
    before, after = header_of(old), header_of(new)
    assert after.record_count == len(kept)
    changed = {"length", "crc", "record_count", "max_timestamp"}
    if len(kept) == count:
        assert new == old
    elif not kept:
        assert len(new) == HEADER_SIZE
        assert after.codec == Codec.NONE
        assert (after.base_timestamp, after.max_timestamp) == (-1, before.max_timestamp)
        changed |= {"attributes", "base_timestamp"}
        assert after.attributes == attributes
    else:
        assert after.max_timestamp == (before.max_timestamp if is_append_time else max(row[1] for row in kept))
    same = [name for name in BatchHeader._fields if name not in changed]
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


def test_a_delete_horizon_stays_unless_no_record_does() -> None:
    """The cleaner's base timestamp is then no timestamp; a header alone has none (KIP-534)."""
    old = packed(Codec.ZSTD, 3, attributes=DELETE_HORIZON, base_timestamp=5000)
    new = header_of(without_records(old, {1}, ReusedCodecs()))
    assert (new.has_delete_horizon, new.base_timestamp, new.max_timestamp) == (True, 5000, 5000)
    assert not header_of(without_records(old, range(3), ReusedCodecs())).has_delete_horizon


def test_a_control_batch_is_never_changed() -> None:
    """Without its marker, readers find no end of its transaction."""
    marker = batch(5, [record(0, b"\0\0\0\0", b"\0" * 6)], attributes=CONTROL | TRANSACTIONAL, producer_id=1)
    assert without_records(marker, {0}, ReusedCodecs()) == marker


def test_an_emptied_batch_stays_as_it_is() -> None:
    """A second run changes nothing."""
    emptied = without_records(packed(Codec.LZ4, 4), range(4), ReusedCodecs())
    assert without_records(emptied, range(4), ReusedCodecs()) == emptied


def test_all_records_with_a_dropped_offset_are_removed() -> None:
    """A producer can give several records one offset; an entry hides each of them."""
    old = batch(100, [record(0, b"a"), record(1, b"b"), record(1, b"c"), record(3, b"d")])
    assert [row[2] for row in rows(without_records(old, {1}, ReusedCodecs()))] == [b"a", b"d"]


@pytest.mark.parametrize("codec", Codec)
def test_bytes_after_the_last_record_are_not_kept(codec: Codec) -> None:
    """Consumers ignore them in a compressed batch, and they can be a part of a record."""
    body = record(0, b"a") + record(1, b"b")
    stored = body + b"PERSON"
    old = batch(0, body=compress(codec, stored) if codec else stored, count=2, attributes=codec, last_offset_delta=1)
    new = without_records(old, {0}, ReusedCodecs())
    kept = ReusedCodecs().unpack(codec, memoryview(new)[HEADER_SIZE:]) if codec else new[HEADER_SIZE:]
    assert kept == record(1, b"b")


def test_a_message_of_magic_1_is_refused() -> None:
    """The caller hides it, and names it."""
    with pytest.raises(ValueError, match="magic 1 cannot be rewritten"):
        without_records(message(1, 5, b"v"), {0}, ReusedCodecs())


@pytest.mark.parametrize("codec", Codec)
def test_damage_is_one_error(codec: Codec) -> None:
    """A wrong CRC, bytes of two batches, a cut batch, a codec that does not exist, and more records than there are."""
    old = packed(codec, 3)
    flipped = bytearray(old)
    flipped[-1] ^= 1
    more = packed(codec, 3)
    more = batch(100, body=more[HEADER_SIZE:], count=9, attributes=codec, last_offset_delta=8)
    unknown = batch(100, body=old[HEADER_SIZE:], count=3, attributes=6)
    for each in (bytes(flipped), old + old, old[:-1], more, unknown):
        with pytest.raises(CorruptData):
            without_records(each, {0}, ReusedCodecs())


@given(st.binary(max_size=60), st.integers(0, 2**31 - 1), st.sampled_from([0, 3, 8]), st.integers(-(2**63), 2**63 - 1))
def test_hostile_records_are_corrupt_or_rewritten(body: bytes, count: int, attributes: int, timestamp: int) -> None:
    """No length leads out of the batch, and no timestamp out of int64."""
    old = batch(0, body=body, count=count, attributes=attributes, base_timestamp=timestamp, last_offset_delta=0)
    with suppress(CorruptData):
        header_of(without_records(old, {0}, ReusedCodecs()))
    huge = batch(0, [record(0, timestamp_delta=2**62), record(1)], base_timestamp=struct.unpack(">q", b"\x7f" * 8)[0])
    header_of(without_records(huge, {1}, ReusedCodecs()))
