"""Encoded batches: byte for byte those of Kafka's format, and the same records in every decoder."""

from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.common.log_format import build
from tests.endpoint.records.decoding import DECODERS, dump_log_segments, headers_of
from tests.matrix import examples
from tests.reader.decode.decoded_rows import Row as Decoded
from ts_common.log_format.varints import varint
from ts_endpoint.records.encoding import MOST_DELTA, Batch, Row, empty_batch

TIME = 1_700_000_000_000
WIDE = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]

maybe_bytes = st.none() | st.binary(max_size=40)
header_pairs = st.lists(st.tuples(st.text("ab\u00e9\U0001f600", max_size=4).map(str.encode), maybe_bytes), max_size=4)
times = st.sampled_from([-1, 0, TIME, TIME - 5000, 2**53]) | st.integers(-(2**40), 2**55)


@st.composite
def rows(draw: Callable[..., object]) -> list[Row]:
    """Return records in the order of offsets, with gaps."""
    steps: list[int] = draw(st.lists(st.integers(1, 3) | st.just(200_000), min_size=1, max_size=20))  # type: ignore[assignment]
    one = st.builds(Row, st.just(0), times, st.sampled_from([0, 0, 1]), maybe_bytes, maybe_bytes, header_pairs)
    return [draw(one)._replace(offset=offset) for offset in accumulate(steps)]  # type: ignore[attr-defined]


def encoded(records: Iterable[Row], most_bytes: int = 1 << 20) -> bytes:
    """Return records as contiguous batches from the offset 0 on."""
    done, batch, end = [], Batch(0, 3, most_bytes), 0
    for row in records:
        if not batch.add(row):
            done.append(batch.encode(row.offset))
            batch = Batch(row.offset, 3, most_bytes)
            assert batch.add(row)
        end = row.offset + 1
    return b"".join((*done, batch.encode(end)))


def expected(records: Iterable[Row]) -> list[Decoded]:
    """Return records as decoders return them."""
    return [(*row[:5], tuple((name.decode(), value) for name, value in row.headers)) for row in records]


@pytest.mark.parametrize("value", WIDE)
def test_a_varint_has_the_bytes_of_an_independent_encoder(value: int) -> None:
    """Of one to ten bytes."""
    assert varint(value) == build.varint(value)


def test_a_batch_has_the_bytes_of_an_independent_encoder() -> None:
    """Header and records; nulls, empty keys and values, a header twice and one without a value."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"h", b"1"), (b"h", None), ("\u00e9".encode(), b"")]
    batch = Batch(100, 7, 1 << 20)
    assert batch.add(Row(101, TIME, 0, None, b"v" * 300, pairs))
    assert batch.add(Row(105, TIME - 5, 0, b"", None))
    assert batch.add(Row(106, TIME + 70, 0, b"k", b""))
    assert batch.add(Row(107, TIME, 0, b"k", b""))
    records = [
        build.record(1, None, b"v" * 300, pairs),
        build.record(5, b"", None, timestamp_delta=-5),
        build.record(6, b"k", b"", timestamp_delta=70),
        build.record(7, b"k", b""),
    ]
    assert batch.encode(120) == build.batch(
        100, records, last_offset_delta=19, epoch=7, base_timestamp=TIME, max_timestamp=TIME + 70
    )


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@settings(max_examples=examples(300, quick=40), deadline=None)
@given(records=rows(), most_bytes=st.sampled_from([70, 150, 1 << 20]))
@example(records=[Row(0, -1, -1, b"k", b"v")], most_bytes=100)
def test_each_decoder_returns_the_encoded_records(
    decoder: Callable[[bytes], list[Decoded]], records: list[Row], most_bytes: int
) -> None:
    """Field by field; a record without a timestamp has the create time -1."""
    data = encoded(records, most_bytes)
    shown = [row._replace(timestamp_type=max(row.timestamp_type, 0)) for row in records]
    assert decoder(data) == expected(shown)
    found = headers_of(data)
    assert sum(header.record_count or 0 for header in found) == len(records)
    assert all(header.size_in_bytes <= most_bytes or header.record_count == 1 for header in found)
    assert {(header.leader_epoch, header.producer_id, header.base_sequence) for header in found} == {(3, -1, -1)}


def test_records_of_two_append_times_are_in_two_batches() -> None:
    """A batch has one append time, its greatest timestamp; a record of a create time is in no such batch."""
    records = [Row(0, TIME, 1, b"a", None), Row(1, TIME, 1, b"b", None), Row(2, TIME + 1, 1, None, None)]
    records.append(Row(3, TIME + 1, 0, None, b"c"))
    found = headers_of(encoded(records))
    assert [(header.record_count, header.is_log_append_time, header.max_timestamp) for header in found] == [
        (2, True, TIME),
        (1, True, TIME + 1),
        (1, False, TIME + 1),
    ]


def test_timestamps_that_are_too_far_apart_are_in_two_batches() -> None:
    """Their difference is no int64, so a decoder without overflow could not return them."""
    records = [Row(0, -(2**62), 0, None, None), Row(1, 2**62, 0, None, None), Row(2, 2**63 - 1, 0, None, None)]
    for decode in DECODERS.values():
        assert decode(encoded(records)) == expected(records)
    assert [header.record_count for header in headers_of(encoded(records))] == [1, 2]


def test_offsets_of_one_batch_are_an_int32_apart_at_most() -> None:
    """An offset beyond is refused, and an empty batch covers as many offsets."""
    batch = Batch(5, 0, 1 << 20)
    assert batch.add(Row(5, TIME, 0, None, None))
    assert not batch.add(Row(5 + MOST_DELTA + 1, TIME, 0, None, None))
    assert batch.add(Row(5 + MOST_DELTA, TIME, 0, None, None))
    data = empty_batch(5, 5 + MOST_DELTA + 1, 2)
    (header,) = headers_of(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (5, 5 + MOST_DELTA, 0)
    assert (header.leader_epoch, header.max_timestamp) == (2, -1)
    assert data == build.batch(5, [], last_offset_delta=MOST_DELTA, epoch=2, base_timestamp=-1, max_timestamp=-1)


def test_kafka_reads_a_segment_of_encoded_batches(tmp_path: Path) -> None:
    """DumpLogSegments finds each batch valid, with its offsets, and each record with its fields."""
    records = [
        Row(
            offset=2 * number,
            milliseconds=-1 if number % 7 == 0 else TIME + number % 5,
            timestamp_type=1 if number > 300 else 0,
            key=None if number % 3 == 0 else b"k" * (number % 4),
            value=None if number % 11 == 0 else b"v" * number,
            headers=[(b"h", None)] * (number % 3),
        )
        for number in range(400)
    ]
    data = encoded(records, 20_000)
    end = headers_of(data)[-1].last_offset + 1
    data += empty_batch(end, end + 1000, 3)
    found, shown = dump_log_segments(tmp_path, data)
    assert found == [(one.base_offset, one.last_offset, one.record_count) for one in headers_of(data)]
    assert shown == [
        (*row[:3], *(-1 if field is None else len(field) for field in (row.key, row.value))) for row in records
    ]
