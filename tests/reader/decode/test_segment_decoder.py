"""Batches of magic 2, compared with Kafka's own classes and with other clients."""

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import cramjam
import numpy as np
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import (
    CONTROL,
    DATA,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    SEGMENTS,
    batch,
    marker,
    record,
)
from tests.matrix import examples
from tests.reader.decode.client_builders import AiokafkaBuilder, KafkaPythonBuilder, encoded
from tests.reader.decode.decoded_rows import Row, decoded, rows_of, strings
from ts_common.errors import BatchTooLarge
from ts_common.log_format.framing import Trailing
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode.columns import BufferPool, Projection, java_utf8
from ts_reader.decode.segment_decoder import SegmentDecoder


def expected_of_java() -> list[Row]:
    """What Kafka's own classes read from the golden batches: see data/JavaBatches.java."""

    def field(text: str) -> bytes | None:
        return None if text == "-" else bytes.fromhex(text[1:])

    rows: list[Row] = []
    for line in (DATA / "java.records").read_text().splitlines():
        offset, timestamp, kind, key, value, *headers = line.split(" ")
        names = [(field(name) or b"").decode() for name in headers[::2]]
        pairs = tuple(zip(names, map(field, headers[1::2]), strict=True))
        rows.append((int(offset), int(timestamp), int(kind), field(key), field(value), pairs))
    return rows


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("chunk", [1 << 30, 1000, 1])
def test_r06_r07_batches_of_kafkas_own_classes_read_as_they_read_them(codec: str, chunk: int) -> None:
    """Every codec: nulls, empty strings, repeated and non-ASCII header names, LogAppendTime, gaps between offsets."""
    data, expected = (DATA / f"java-{codec}.log").read_bytes(), expected_of_java()
    if chunk == 1:  # each byte alone, over the last three batches
        data, expected = data[int.from_bytes(data[8:12], "big") + 12 :], expected[400:]
    assert decoded(data, chunk) == expected


def test_a_segment_of_a_real_broker_reads_as_aiokafka_reads_it() -> None:
    """Golden segments: lz4, LogAppendTime, against an independent decoder."""
    for path in SEGMENTS:
        data, expected = path.read_bytes(), []
        reader = AiokafkaRecords(data)
        while reader.has_next():
            expected += [
                (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)) for r in reader.next_batch()
            ]
        decoder = SegmentDecoder()
        assert [row for columns in decoder.decode([data]) for row in rows_of(columns)] == expected
        assert (decoder.position, decoder.trailing) == (expected[-1][0] + 1, Trailing.NONE)
        assert decoder.valid_bytes == len(data)


binary = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=140)


contents = st.lists(
    st.tuples(
        st.integers(0, 1 << 41),
        binary,
        binary,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=examples(150, quick=40))
@given(
    st.lists(contents, min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(1, 3000),
    st.integers(1, 40),
    st.integers(60, 2000),
)
def test_any_records_in_any_chunks_are_read_back(
    batches: list[Any], codec: int, chunk: int, max_rows: int, max_bytes: int
) -> None:
    """Round trips through aiokafka's encoder, and kafka-python's where it needs no library of its own."""
    for builder in (AiokafkaBuilder, KafkaPythonBuilder) if codec < 2 else (AiokafkaBuilder,):
        data, expected, base = b"", [], 5
        for records in batches:
            data += encoded(builder, codec, records, base)
            for index, (timestamp, key, value, headers) in enumerate(records):
                expected.append((base + index, timestamp, 0, key, value, tuple(headers)))
            base += len(records) + 3
        decoder = SegmentDecoder(max_rows=max_rows, max_bytes=max_bytes)
        rows: list[Row] = []
        for columns in decoder.decode([data[start : start + chunk] for start in range(0, len(data), chunk)]):
            assert 0 < columns.row_count <= max_rows
            found = rows_of(columns)
            size = sum(len(k or b"") + len(v or b"") for _, _, _, k, v, _ in found)
            assert columns.row_count == 1 or size <= max_bytes
            rows += found
            assert decoder.position == rows[-1][0] + 1
        assert rows == expected
        assert decoder.position == base - 3


@settings(deadline=None, max_examples=examples(60, quick=20))
@given(contents, st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans(), st.booleans())
def test_ranges_and_projections_show_a_part_of_the_same_rows(
    records: list[Any], start: int, end: int, key: bool, value: bool, headers: bool
) -> None:
    """Only offsets in the range. Fields outside of the projection are absent, and the others stay the same."""
    data = encoded(AiokafkaBuilder, 3, records, 0) + encoded(AiokafkaBuilder, 0, records, len(records))
    projection = Projection(key=key, value=value, headers=headers)
    decoder = SegmentDecoder(projection, start, end)
    found = list(decoder.decode([data]))
    for columns in found:
        assert (columns.keys is not None, columns.values is not None, columns.headers is not None) == (
            key,
            value,
            headers,
        )
    expected = [
        (offset, timestamp, kind, k if key else None, v if value else None, h if headers else ())
        for offset, timestamp, kind, k, v, h in decoded(data)
        if start <= offset < end
    ]
    assert [row for columns in found for row in rows_of(columns)] == expected
    assert decoder.position == max(start, min(end, 2 * len(records)))


def test_r01_what_compaction_leaves_is_progress() -> None:
    """Missing offsets, an empty batch, and a batch whose last offset is above its last record's."""
    data = (
        batch(10, [record(2), record(5)], last_offset_delta=9)
        + batch(20, [], last_offset_delta=4)
        + batch(30, [record(0)], last_offset_delta=6)
        + batch(40, [], last_offset_delta=9)
    )
    decoder = SegmentDecoder()
    assert [row[0] for columns in decoder.decode([data]) for row in rows_of(columns)] == [12, 15, 30]
    assert decoder.position == 50
    empty = SegmentDecoder(start_offset=3)
    assert list(empty.decode([batch(20, [], last_offset_delta=4)])) == []
    assert empty.position == 25


def test_control_batches_are_progress_and_never_shown() -> None:
    """Markers in the middle and at the end; of any control type."""
    data = batch(0) + marker(1, 5, 0) + batch(2) + marker(3, 5, 1) + batch(4, attributes=CONTROL)
    decoder = SegmentDecoder()
    assert [row[0] for columns in decoder.decode([data]) for row in rows_of(columns)] == [0, 2]
    assert decoder.position == 5


def test_timestamps_keep_their_type() -> None:
    """LogAppendTime uses the batch's maximum. Deltas count from the base, which may be a delete horizon; -1 stays."""
    two = [record(0, timestamp_delta=-5), record(1, timestamp_delta=7)]
    data = (
        batch(0, two, base_timestamp=1000, max_timestamp=1007)
        + batch(2, two, base_timestamp=1000, max_timestamp=5555, attributes=LOG_APPEND_TIME)
        + batch(4, two, base_timestamp=9000, max_timestamp=9007, attributes=DELETE_HORIZON)
        + batch(6, [record(0)], base_timestamp=-1, max_timestamp=-1)
    )
    assert [row[1:3] for row in decoded(data)] == [
        (995, 0), (1007, 0), (5555, 1), (5555, 1), (8995, 0), (9007, 0), (-1, 0)
    ]  # fmt: skip


def test_nothing_behind_the_end_offset_is_read() -> None:
    """The decoder reads no further chunk, so it does not report how the segment ends."""

    def chunks() -> Iterator[bytes]:
        yield batch(0) + batch(1) + batch(2)[:70]
        raise AssertionError("asked for more")

    decoder = SegmentDecoder(end_offset=2)
    assert [row[0] for columns in decoder.decode(chunks()) for row in rows_of(columns)] == [0, 1]
    assert (decoder.position, decoder.trailing) == (2, None)
    damaged = bytearray(batch(7))
    damaged[-1] ^= 1
    assert len(decoded(batch(0) + damaged, end_offset=5)) == 1


def test_u13_the_end_of_a_segment_is_reported() -> None:
    """Zeros and a torn batch end it, whatever the chunks; where the good part ends is known."""
    good = batch(0) + batch(1)
    for tail, trailing in ((b"", Trailing.NONE), (bytes(5000), Trailing.ZEROS), (batch(2)[:-3], Trailing.TORN),
                           (batch(2)[:20], Trailing.TORN), (bytes(3), Trailing.ZEROS)):  # fmt: skip
        for chunk in (1, 50, 10_000):
            decoder, data = SegmentDecoder(), good + tail
            rows = [
                r for c in decoder.decode(data[i : i + chunk] for i in range(0, len(data), chunk)) for r in rows_of(c)
            ]
            assert [row[0] for row in rows] == [0, 1]
            assert (decoder.trailing, decoder.valid_bytes, decoder.position) == (trailing, len(good), 2)


def test_r04_memory_is_bounded_by_the_bytes_received() -> None:
    """A length of 2 GB without a known size waits for bytes, with one it is a torn tail; a bomb stops at the cap."""
    data = bytearray(batch(0) + batch(1))
    struct.pack_into(">i", data, len(batch(0)) + 8, 2**31 - 1)
    bomb = batch(0, attributes=4, body=bytes(cramjam.zstd.compress(bytes(1 << 26))), count=1)
    decoded(bytes(data))
    tracemalloc.start()
    try:
        for size in (None, len(data)):
            decoder = SegmentDecoder(size=size, max_rows=10, max_bytes=1000)
            assert sum(columns.row_count for columns in decoder.decode([bytes(data)])) == 1
            assert decoder.trailing is Trailing.TORN
        with pytest.raises(BatchTooLarge, match="more than 4194304 bytes"):
            decoded(bomb, max_rows=10, max_bytes=1000, limit=BatchLimit(4 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_with_a_known_size_a_torn_tail_is_not_waited_for() -> None:
    """A length beyond the segment ends it at once: nothing more is fetched."""
    data = bytearray(batch(0) + batch(1))
    struct.pack_into(">i", data, len(batch(0)) + 8, 1 << 20)

    def chunks() -> Iterator[bytes]:
        yield bytes(data)
        raise AssertionError("asked for more")

    decoder = SegmentDecoder(size=len(data) + 500)
    assert sum(columns.row_count for columns in decoder.decode(chunks())) == 1
    assert decoder.trailing is Trailing.TORN


@pytest.mark.parametrize(
    "fields",
    [
        {"key": b"x" * 3_000_000},
        {"key": b"k", "value": b"x" * 3_000_000},
        {"headers": [(b"h", b"x" * 3_000_000)]},
        {"headers": [(b"h", b"v")] * 100_000},
    ],
    ids=["key", "value", "header", "headers"],
)
def test_one_record_larger_than_the_bounds_is_returned_alone(fields: dict[str, Any]) -> None:
    """3 MB with bounds of 1 KB; smaller ones before and after it keep their rows."""
    data = batch(0, [record(0), record(1, **fields), record(2)])
    found = [rows_of(columns) for columns in SegmentDecoder(max_rows=100, max_bytes=1000).decode([data])]
    assert [len(rows) for rows in found] == [1, 1, 1]
    assert [row for rows in found for row in rows] == decoded(data)
    _, _, _, key, value, headers = found[1][0]
    assert len(key or b"") + len(value or b"") + sum(len(name) + len(data or b"") for name, data in headers) > 190_000


def test_columns_that_are_held_are_never_written_to_again() -> None:
    """Buffers are used again only if no caller holds a part of them: each held batch keeps its rows."""
    data = b"".join(batch(i * 3, [record(j, b"%d" % (i * 3 + j)) for j in range(3)]) for i in range(200))
    pool = BufferPool(Projection(), 10, 1 << 16)
    kept = list(SegmentDecoder(max_rows=10, max_bytes=1 << 16, pool=pool).decode([data]))
    keys_only = [c.keys for c in SegmentDecoder(max_rows=10, max_bytes=1 << 16, pool=pool).decode([data])]
    assert [row for columns in kept for row in rows_of(columns)] == decoded(data)
    assert [key for column in keys_only for key in strings(column)] == [b"%d" % i for i in range(600)]


def test_buffers_that_are_not_held_are_reused() -> None:
    """A loop that drops each batch runs in a few sets of buffers."""
    data = b"".join(batch(i * 3, [record(j) for j in range(3)]) for i in range(200))
    seen = set()
    for columns in SegmentDecoder(max_rows=10).decode([data]):
        assert columns.offsets.base is not None
        seen.add(columns.offsets.base.ctypes.data)
    assert len(seen) <= 3


def test_r07_header_names_that_are_no_utf8_read_as_java_reads_them() -> None:
    """200 byte strings and what `new String(.., UTF_8)` made of them."""
    for line in (DATA / "java-utf8.txt").read_text().splitlines():
        data, expected = (bytes.fromhex(part) for part in line.split(" "))
        assert java_utf8(data) == expected.decode("utf-16-be")
    data = batch(0, [record(0, headers=[(b"\xff\xc3", b"1"), (b"\xbc", b"2")]), record(1, headers=[(b"ok", None)])])
    assert [row[5] for row in decoded(data)] == [(("\ufffd\ufffd", b"1"), ("\ufffd", b"2")), (("ok", None),)]


def test_chunks_may_be_any_bytes_like() -> None:
    """bytes, bytearray, memoryview and NumPy arrays are the same to the kernels."""
    data = SEGMENTS[0].read_bytes()
    for convert in (bytes, bytearray, memoryview, lambda d: np.frombuffer(d, np.uint8).data):
        assert sum(c.row_count for c in SegmentDecoder().decode([convert(data[:5000]), convert(data[5000:])])) == 50
