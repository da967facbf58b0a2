"""Offsets of the records of batches without compression, compared with the header as the kernel that decodes does."""

import io
import random
from collections.abc import Sequence

import pytest

from tests.common.log_format.build import CONTROL, batch, record, varint
from tests.matrix import examples
from ts_common.log_format import scan
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.record_offsets import RecordOffsets, can_contradict, contradicts
from ts_reader.decode.segment_decoder import SegmentDecoder


def header_of(data: bytes) -> BatchHeader:
    header = parse_header(data, 0, len(data))
    assert isinstance(header, BatchHeader)
    return header


def is_wrong(data: bytes, piece: int | None = None) -> bool:
    """By the whole batch, or by pieces of some bytes."""
    header = header_of(data)
    if piece is None:
        return contradicts(header, memoryview(data))
    records = RecordOffsets(header)
    for at in range(61, len(data), piece):
        records.add(memoryview(data)[at : at + piece])
    return records.contradict()


def of(deltas: Sequence[int], last: int | None = None, size: int = 1, times: Sequence[int] = (0,)) -> bytes:
    """A batch whose records have these offset deltas, and timestamp deltas in turn."""
    records = [
        record(delta, b"k", b"v" * size, timestamp_delta=times[at % len(times)]) for at, delta in enumerate(deltas)
    ]
    return batch(7, records, last_offset_delta=max(deltas) if last is None else last)


RIGHT = {
    "one": of([0]),
    "one-of-100-kib": of([0], size=100_000),
    "many": of(range(300)),
    "three-bytes-of-delta": of(range(8195)),
    "long-records": of(range(3), size=70_000),
    "times": of(range(200), times=(0, -1, 64, 1 << 40, -(1 << 63))),
    "compacted": of([1, 5, 6], 9),
    "compacted-one": of([4], 9),
}
WRONG = {
    "one-above": of([5], 0),
    "one-below": of([-1], 0),
    "second": of([0, 0], 1),
    "third": of([0, 1, 1], 2),
    "two-batches-in-one": of([0, 1, 2, 0, 1, 2], 5),
    "last-of-many": of([*range(299), 298], 299),
    "last-of-three-bytes": of([*range(8194), 8193], 8194),
    "compacted-descending": of([1, 6, 5], 9),
    "compacted-above": of([1, 12], 9),
    "bytes-behind": batch(7, body=record(0) + record(1) + b"\0", count=2),
    "too-few": batch(7, body=record(0), count=2),
    "negative-length": batch(7, body=varint(-7) + b"\0" * 9, count=1),
    "endless-varint": batch(7, body=b"\x80" * 40, count=1),
}


@pytest.mark.parametrize("piece", [None, 1, 7, 64, 1 << 16])
def test_right_offsets_are_right_and_wrong_ones_wrong(piece: int | None) -> None:
    """Also where a record is longer than a piece, or ends with one."""
    assert [name for name, data in RIGHT.items() if is_wrong(data, piece)] == []
    assert [name for name, data in WRONG.items() if not is_wrong(data, piece)] == []


def test_offsets_are_wrong_where_the_decoder_finds_another_offset() -> None:
    """Drawn deltas, of whole and of compacted batches."""
    chance = random.Random(44)
    for _ in range(examples(300, quick=100)):
        count = chance.randrange(1, 9)
        deltas = sorted(chance.sample(range(count + chance.choice((0, 0, 3))), count))
        if chance.random() < 0.5:
            deltas[chance.randrange(count)] = chance.randrange(-2, count + 3)
        data = of(deltas, chance.choice((None, count - 1, count + 3)), size=chance.choice((1, 80)))
        header, decoder = header_of(data), SegmentDecoder()
        offsets = [offset for columns in decoder.decode([data]) for offset in columns.offsets.tolist()]
        is_full = header.record_count == header.last_offset - header.base_offset + 1
        wrong = bool(decoder.contradicted) or (is_full and offsets != [*range(7, 7 + count)])
        if not header.contradicts_itself:
            assert {is_wrong(data), is_wrong(data, 5)} == {wrong}, deltas


def test_only_what_brokers_store_as_it_is_can_contradict() -> None:
    """They compare the offsets of compressed records; a control batch is their own."""
    assert can_contradict(header_of(of([0])))
    for data in (batch(0, attributes=1), batch(0, attributes=CONTROL), batch(0, [], last_offset_delta=3)):
        assert not can_contradict(header_of(data))


@pytest.mark.parametrize("window", [1 << 20, 64])
def test_a_scan_counts_no_records_behind_a_wrong_offset(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a batch that is larger than the scan's window, and not in a batch with a wrong CRC."""
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    right, wrong = of(range(9), size=20), of([*range(8), 7], 8, size=20)
    for data, count in ((right, 9), (wrong, None), (wrong[:-1] + b"x", 0)):
        assert scan.scan_segment(io.BytesIO(data), len(data)).record_count == count
