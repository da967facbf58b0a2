"""Messages of magic 0 and 1, compared with a slow, independent decoder, and damage of every kind."""

import gzip
import random
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from awscrt.checksums import crc32
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import LOG_APPEND_TIME, batch, message
from tests.common.log_format.legacy_messages import GZIP, LZ4, SNAPPY, Inner, packed, wrapper
from tests.matrix import examples
from tests.reader.decode.decoded_rows import Row, decoded, rows_of
from tests.reader.decode.odd_messages import INNER_1, LIE, NULL, ONE, SEEMS_MAGIC_1, fields
from tests.reader.decode.upgraded_segment import UPGRADED, UPGRADED_ROWS
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import Trailing
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.segment_decoder import SegmentDecoder


def slowly(data: bytes) -> Iterator[Row]:
    """The rows of messages of magic 0 and 1 as Kafka's `DeepRecordsIterator` makes them of sound bytes."""
    for offset, magic, attributes, timestamp, key, value in unpacked(data):
        codec, appended = attributes & 7, bool(magic and attributes & LOG_APPEND_TIME)
        kind = int(appended) if magic else -1
        if not codec:
            yield offset, timestamp, kind, key, value, ()
            continue
        assert value is not None
        inside = list(unpacked(unpack(codec, value)))
        base = offset - inside[-1][0] if magic else 0
        for at, _, _, own_time, k, v in inside:
            yield base + at, timestamp if appended else own_time, kind, k, v, ()


def unpacked(data: bytes) -> Iterator[tuple[int, int, int, int, bytes | None, bytes | None]]:
    position = 0
    while position < len(data):
        offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", data, position)
        end = position + 12 + size
        assert crc == crc32(data[position + 16 : end])
        position += 18
        timestamp = -1
        if magic:
            (timestamp,) = struct.unpack_from(">q", data, position)
            position += 8
        fields: list[bytes | None] = []
        for _ in range(2):
            (length,) = struct.unpack_from(">i", data, position)
            position += 4
            fields.append(None if length < 0 else data[position : position + length])
            position += max(length, 0)
        assert position == end
        yield offset, magic, attributes, timestamp, fields[0], fields[1]


def unpack(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    out, position = b"", 16 if codec == SNAPPY else 7
    while position < len(data):
        (size,) = struct.unpack_from(">I" if codec == SNAPPY else "<I", data, position)
        position += 4
        piece = data[position : position + (size & 0x7FFFFFFF)]
        if codec == SNAPPY:
            out += bytes(cramjam.snappy.decompress_raw(piece))
        elif size:
            block = bytearray(1 << 16)
            out += block[: cramjam.lz4.decompress_block_into(piece, block, len(block))]
        position += len(piece)
    return out


binary = st.none() | st.binary(max_size=30) | st.binary(min_size=100, max_size=130)


times = st.integers(-1, 1 << 41)


@st.composite
def message_sets(draw: st.DrawFn) -> list[bytes]:
    """Generate messages of both magics as logs contain them; compaction may have removed any of them."""
    last, made = draw(st.integers(-1, 1000)), []
    for _ in range(draw(st.integers(1, 6))):
        magic, codec = draw(st.integers(0, 1)), draw(st.integers(0, 3))
        attributes, time = draw(st.sampled_from((0, LOG_APPEND_TIME))) * magic, draw(times)
        if not codec:
            last += draw(st.integers(1, 3))
            made.append(message(magic, last, draw(binary), draw(binary), attributes=attributes, timestamp=time))
            continue
        inner: list[Inner] = []
        relative = draw(st.integers(0, 2)) - 1
        for _ in range(draw(st.integers(1, 12))):
            relative += draw(st.integers(1, 3))
            inner.append((relative, draw(times), draw(binary), draw(binary)))
        first = last + draw(st.integers(1, 3))
        if not magic:
            inner = [(first + at, *fields) for at, *fields in inner]  # type: ignore[misc]
        last = first + relative
        made.append(wrapper(magic, codec, inner, last, attributes=attributes, timestamp=time, key=draw(binary)))
    return made


@settings(deadline=None, max_examples=examples(200, quick=50))
@given(message_sets(), st.integers(1, 500), st.integers(1, 20), st.integers(40, 2000))
def test_r06_any_messages_in_any_chunks_are_read_back(
    messages: list[bytes], chunk: int, max_rows: int, max_bytes: int
) -> None:
    """Both magics and timestamp types, all codecs, holes, nulls: equal to the slow decoder, within every limit."""
    data = b"".join(messages)
    decoder, rows = SegmentDecoder(max_rows=max_rows, max_bytes=max_bytes), []
    for columns in decoder.decode([data[start : start + chunk] for start in range(0, len(data), chunk)]):
        found = rows_of(columns)
        assert 0 < len(found) <= max_rows
        assert len(found) == 1 or sum(len(k or b"") + len(v or b"") for *_, k, v, _ in found) <= max_bytes
        rows += found
        assert decoder.position == rows[-1][0] + 1
    assert rows == list(slowly(data))
    assert (decoder.position, decoder.valid_bytes, decoder.trailing) == (rows[-1][0] + 1, len(data), Trailing.NONE)


@settings(deadline=None, max_examples=examples(100, quick=30))
@given(message_sets(), st.integers(-5, 40), st.integers(0, 40), st.booleans(), st.booleans(), st.booleans())
def test_r06_a_range_cut_inside_a_wrapper_shows_its_offsets_only(
    messages: list[bytes], start: int, length: int, key: bool, value: bool, headers: bool
) -> None:
    """Any start, any end, any projection; progress ends where the range does."""
    data = b"".join(messages)
    every = list(slowly(data))
    start = max(every[0][0] + start, 0)
    decoder = SegmentDecoder(Projection(key=key, value=value, headers=headers), start, start + length)
    found = [row for columns in decoder.decode([data]) for row in rows_of(columns)]
    assert found == [
        (offset, time, kind, k if key else None, v if value else None, ())
        for offset, time, kind, k, v, _ in every
        if start <= offset < start + length
    ]
    if decoder.trailing is Trailing.NONE:
        assert decoder.position == max(start, min(start + length, every[-1][0] + 1))
    else:
        assert max([start, *(row[0] + 1 for row in found)]) <= decoder.position <= start + length


@settings(deadline=None, max_examples=examples(100, quick=30))
@given(message_sets())
def test_r06_decoding_continues_at_any_message(messages: list[bytes]) -> None:
    """A second decoder that starts at the first one's position returns the remaining rows."""
    data = b"".join(messages)
    for cut in range(len(messages)):
        head = b"".join(messages[:cut])
        first = SegmentDecoder()
        rows = [row for columns in first.decode([head]) for row in rows_of(columns)]
        second = SegmentDecoder(start_offset=first.position, first_position=first.valid_bytes)
        rows += [row for columns in second.decode([data[first.valid_bytes :]]) for row in rows_of(columns)]
        assert rows == list(slowly(data))


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, GZIP), (0, SNAPPY), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4)])
def test_r06_what_aiokafka_writes_is_read(magic: int, codec: int) -> None:
    """An encoder that is not ours; a broker would set the wrapper's offset."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for n in range(100):
        builder.append(n, timestamp=1000 + n, key=b"%d" % n, value=b"value" * n)
    data = bytearray(builder.build())
    if codec:
        data[:8] = (99).to_bytes(8, "big")
    kind = 0 if magic else -1
    expected = [(n, 1000 + n if magic else -1, kind, b"%d" % n, b"value" * n, ()) for n in range(100)]
    assert decoded(bytes(data)) == expected


def test_r06_neighbours_keep_their_own_magic_and_timestamp_type() -> None:
    """Plain messages are read in runs; each is decoded by its own attributes."""
    data = b"".join(
        one
        for n in range(0, 40, 4)
        for one in (
            message(1, n, b"a", timestamp=n),
            message(1, n + 1, b"b", timestamp=n, attributes=LOG_APPEND_TIME),
            message(1, n + 2, b"c", timestamp=n + 9, attributes=LOG_APPEND_TIME),
            message(0, n + 3, *SEEMS_MAGIC_1),
        )
    )
    assert decoded(data) == list(slowly(data))


def test_r06_a_wrapper_of_magic_0_shows_the_offsets_inside_it() -> None:
    """They are absolute, also where the wrapper answers for more."""
    decoder = SegmentDecoder()
    data = wrapper(0, GZIP, [(2, 0, None, b"a"), (4, 0, None, b"b")], 9)
    assert [row[0] for columns in decoder.decode([data]) for row in rows_of(columns)] == [2, 4]
    assert decoder.position == 10


# Value and key of a message of magic 0 whose lengths would also fit a message of magic 1.


def test_r06_what_kafkas_consumer_looks_over_is_looked_over() -> None:
    """Lengths below -1 are null, bytes behind a value nothing, and a part of a message ends a set."""
    odd = fields(1, struct.pack(">i", -5) + struct.pack(">i", -7), offset=0)
    longer = fields(1, NULL + struct.pack(">i", 1) + b"ab", offset=1)
    whole = b"".join((odd, longer, message(1, 2, b"c")))
    trailing = fields(1, NULL + struct.pack(">i", len(packed(SNAPPY, odd))) + packed(SNAPPY, odd) + b"more", SNAPPY)
    for data, shown in (
        (whole, [(0, None), (1, b"a"), (2, b"c")]),
        (wrapper(1, GZIP, whole, 2), [(0, None), (1, b"a"), (2, b"c")]),
        (wrapper(1, GZIP, whole[:-1], 1), [(0, None), (1, b"a")]),
        (wrapper(1, GZIP, whole + whole[:11], 2), [(0, None), (1, b"a"), (2, b"c")]),
        (trailing, [(9, None)]),
    ):
        for headers in (True, False):
            rows = decoded(data, projection=Projection(headers=headers))
            assert [(row[0], row[4]) for row in rows] == shown
            assert {row[3] for row in rows} == {None}


@pytest.mark.parametrize("chunk", [1, 7, 30, 61, 100, 1 << 20])
def test_r06_a_segment_of_an_upgraded_topic_is_one_pass(chunk: int) -> None:
    """Magics 0, 1 and 2 in any order; each kind of end is reported as for v2."""
    data = b"".join(UPGRADED)
    for tail, trailing in ((b"", Trailing.NONE), (bytes(100), Trailing.ZEROS), (bytes(20), Trailing.ZEROS),
                           (message(0, 20, b"x")[:-1], Trailing.TORN), (message(1, 20, b"x")[:20], Trailing.TORN),
                           (message(1, 20, b"x")[:9], Trailing.TORN), (batch(20)[:-1], Trailing.TORN)):  # fmt: skip
        for size in (None, len(data) + len(tail)):
            decoder, whole = SegmentDecoder(size=size), data + tail
            chunks = (whole[start : start + chunk] for start in range(0, len(whole), chunk))
            assert [row for columns in decoder.decode(chunks) for row in rows_of(columns)] == UPGRADED_ROWS
            assert (decoder.trailing, decoder.valid_bytes, decoder.position) == (trailing, len(data), 20)


def test_r06_many_wrappers_keep_their_order_beyond_a_group() -> None:
    """More messages than a table has rows, larger than the first scratch, with runs of plain messages between them."""
    data, last = b"", -1
    for n in range(400):
        inner = [(i, n, b"%d" % i, random.Random(n).randbytes(900)) for i in range(20)]
        data += wrapper(1, n % 3 + 1, inner, last + 20) + message(n % 2, last + 21, b"plain")
        last += 21
    assert decoded(data, 100_000) == list(slowly(data))


def test_r06_false_lengths_allocate_no_memory() -> None:
    """2 GB as a message's size, inside and outside, as its key's length; and a bomb."""
    huge = [
        message(0, 0, b"v") + struct.pack(">qi", 1, 2**31 - 1) + bytes(17),
        wrapper(1, GZIP, INNER_1[:8] + LIE + INNER_1[12:], 0),
        fields(1, LIE + NULL),
        message(1, 0, packed(GZIP, bytes(1 << 26)), attributes=GZIP),
    ]
    decoded(message(1, 0, b"v") + wrapper(1, GZIP, ONE, 1))  # compiled
    tracemalloc.start()
    try:
        for data in huge:
            decoder = SegmentDecoder(max_rows=10, max_bytes=1000, limit=BatchLimit(4 << 20), size=len(data))
            try:
                list(decoder.decode([data]))
                assert decoder.trailing is Trailing.TORN
            except (BatchTooLarge, CorruptData):
                assert decoder.trailing is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_r06_a_large_message_is_returned_alone() -> None:
    """3 MB with bounds of 1 KB, plain and inside a wrapper."""
    large = b"x" * 3_000_000
    data = message(1, 0, b"a") + message(1, 1, large) + wrapper(
        1, LZ4, [(0, 1, b"k", b"b"), (1, 2, large, None), (2, 3, b"k", b"c")], 4
    )  # fmt: skip
    found = [rows_of(columns) for columns in SegmentDecoder(max_rows=100, max_bytes=1000).decode([data])]
    assert [[row[0] for row in rows] for rows in found] == [[0], [1], [2], [3], [4]]
    assert [row for rows in found for row in rows] == list(slowly(data))


def test_r06_columns_that_are_held_are_never_written_to_again() -> None:
    """With shared buffers, also where full columns end inside a wrapper."""
    data = b"".join(
        wrapper(1, 1 + n % 3, [(i, n, b"%d" % i, b"%d" % n) for i in range(7)], n * 7 + 6) for n in range(99)
    )
    pool = BufferPool(Projection(), 10, 1 << 16)
    kept = list(SegmentDecoder(max_rows=10, max_bytes=1 << 16, pool=pool).decode([data]))
    assert [row for columns in kept for row in rows_of(columns)] == list(slowly(data))


def test_nothing_behind_the_wrapper_that_reaches_the_end_is_read() -> None:
    """A wrapper above the end offset may hold offsets below it, so it is opened; a plain message is not passed."""

    def chunks(last: bytes) -> Iterator[bytes]:
        yield message(0, 0, b"v") + last
        raise AssertionError("asked for more")

    over = wrapper(1, GZIP, [(0, 1, None, b"a"), (4, 1, None, b"b")], 5)
    for last, end, offsets in (
        (over, 3, [0, 1]),
        (over, 2, [0, 1]),
        (message(0, 7, b"w"), 7, [0]),
        (over, 6, [0, 1, 5]),
    ):
        decoder = SegmentDecoder(end_offset=end)
        assert [row[0] for columns in decoder.decode(chunks(last)) for row in rows_of(columns)] == offsets
        assert (decoder.position, decoder.trailing) == (end if last is over else 1, None)


def test_small_messages_across_many_seams_are_not_read_byte_by_byte() -> None:
    """Messages shorter than a v2 header: a seam costs one message, not the chunk behind it."""
    data = b"".join(message(0, n, b"%06d" % n) for n in range(20_000))
    looked = 0

    class Counting(SegmentDecoder):
        def _look(self, rest: memoryview) -> Any:
            nonlocal looked
            looked += 1
            return super()._look(rest)

    rows = [r for c in Counting().decode(data[s : s + 50_001] for s in range(0, len(data), 50_001)) for r in rows_of(c)]
    assert [row[0] for row in rows] == list(range(20_000))
    assert looked < 100
