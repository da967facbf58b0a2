import dataclasses
import io
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format.build import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    SEGMENTS,
    TRANSACTIONAL,
    batch,
    marker,
    message,
    record,
)
from ts_common.errors import SegmentChanged
from ts_common.log_format import scan
from ts_common.log_format.framing import Trailing
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import SegmentScan, scan_segment


def scanned(data: bytes) -> SegmentScan:
    return scan_segment(io.BytesIO(data), len(data))


class Dribble(io.RawIOBase):
    """A raw file whose reads return a few bytes each."""

    def __init__(self, data: bytes) -> None:
        self._data, self._random = io.BytesIO(data), random.Random(5)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._data.readinto(buffer[: self._random.randint(1, 700)])


def test_segments_of_a_real_broker_are_covered_up_to_the_next_ones_base() -> None:
    """Golden segments have the known coverage, counts and checksum."""
    ends = [int(path.stem) for path in SEGMENTS[1:]] + [387]
    for path, end in zip(SEGMENTS, ends, strict=True):
        data, result = path.read_bytes(), scanned(path.read_bytes())
        assert result.crc32c == crc32c(data)
        assert (result.size, result.valid_bytes, result.trailing) == (len(data), len(data), Trailing.NONE)
        assert (result.base_offset, result.end_offset) == (int(path.stem), end)
        assert result.record_count == end - int(path.stem)
        assert result.epochs == ((0, int(path.stem)),)
        assert (result.corruption, result.abort_markers, result.has_transactions) == ((), (), False)
        assert result.min_timestamp is not None
        assert result.max_timestamp is not None
        assert 1795226813000 < result.min_timestamp <= result.max_timestamp < 1795226814000


def test_a_small_window_and_short_reads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches larger than the buffer are checked piece by piece."""
    wanted = [scanned(path.read_bytes()) for path in SEGMENTS]
    for window in (61, 100, 1000, 7000):
        monkeypatch.setattr(scan, "WINDOW_BYTES", window)
        for path, result in zip(SEGMENTS, wanted, strict=True):
            data = path.read_bytes()
            assert scan_segment(Dribble(data), len(data)) == result


def test_an_empty_segment_covers_nothing() -> None:
    """Without a batch, a scan has no offsets and no timestamps."""
    assert scanned(b"") == SegmentScan(
        0, 0, 0, None, None, None, None, (), (), 0, 0, None, None, (), False, (), 0, Trailing.NONE
    )


def test_u13_what_is_no_whole_batch_is_no_coverage() -> None:
    """Preallocated zeros and a torn tail end the valid part and are distinguished; the checksum includes them."""
    good = batch(0) + batch(1, [record(0), record(1)])
    for tail, trailing in (
        (bytes(3_000_000), Trailing.ZEROS),
        (batch(3)[:-1], Trailing.TORN),
        (b"\0" * 9, Trailing.ZEROS),
    ):
        result = scanned(good + tail)
        assert (result.valid_bytes, result.end_offset, result.trailing) == (len(good), 3, trailing)
        assert (result.corruption, result.crc32c) == ((), crc32c(good + tail))


def test_u13_zero_bytes_in_the_middle_are_corruption() -> None:
    """A preallocated tail contains zeros only."""
    good = batch(0)
    result = scanned(good + bytes(2_000_000) + batch(1))
    assert (result.end_offset, result.trailing, result.corrupt_batches) == (1, Trailing.NONE, 1)
    assert result.corruption[0][0] == len(good)


def test_u13_a_corrupt_batch_in_the_middle_is_reported_and_skipped() -> None:
    """Adjacent batches count, the corrupt one does not; the last good batch ends the valid part."""
    first, second, third = batch(0), bytearray(batch(1)), batch(2)
    second[-1] ^= 1
    result = scanned(first + second + third)
    assert (result.base_offset, result.end_offset, result.record_count) == (0, 3, 2)
    assert [position for position, _ in result.corruption] == [len(first)]
    assert "CRC" in result.corruption[0][1]
    assert result.valid_bytes == len(first + second + third)
    at_end = scanned(first + second)
    assert (at_end.end_offset, at_end.valid_bytes, at_end.corrupt_batches) == (1, len(first), 1)


@pytest.mark.parametrize("window", [64, 1 << 20])
def test_u13_every_flipped_bit_under_the_crc_is_found(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CRC covers the bytes from the attributes to the end of the batch, for each magic, in one piece or many."""
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    for good, begin in ((batch(1), 21), (message(1, 1, b"value", b"key"), 16), (message(0, 1, b"value", b"key"), 17)):
        for position in range(begin, len(good)):
            bad = bytearray(good)
            bad[position] ^= 0x10
            result = scanned(batch(0) + bad + batch(2))
            assert result.corrupt_batches == 1, position
            assert (result.record_count, result.end_offset) == (2, 3)


def test_u13_an_unknown_magic_is_passed_over_by_its_length_and_garbage_ends_the_walk() -> None:
    """If a length is valid, the scan continues after it; otherwise the rest is only checksummed."""
    unknown = bytearray(batch(1))
    unknown[16] = 9
    result = scanned(batch(0) + unknown + batch(2))
    assert (result.corrupt_batches, result.end_offset) == (1, 3)
    garbage = scanned(batch(0) + b"\xff" * 200 + batch(2))
    assert (garbage.corrupt_batches, garbage.end_offset, garbage.trailing) == (1, 1, Trailing.NONE)


def test_u13_offsets_that_fall_are_corruption() -> None:
    """A batch that repeats offsets of an earlier one does not count."""
    result = scanned(batch(5) + batch(7, [record(0), record(1)]) + batch(8) + batch(9))
    assert (result.corrupt_batches, result.record_count, result.end_offset) == (1, 4, 10)
    assert "8" in result.corruption[0][1]


def test_u13_a_segment_of_garbage_reports_a_bounded_number_of_places() -> None:
    """The count is exact, and the list is not longer than its limit."""
    bad = bytearray(batch(1))
    bad[-1] ^= 1
    result = scanned(bytes(bad) * 500)
    assert (result.corrupt_batches, len(result.corruption)) == (500, scan.CORRUPTION_LIMIT)


def test_epochs_are_reported_where_they_change() -> None:
    """Each change has one pair with its first base offset; the epoch of magic 0 and 1 is -1."""
    data = message(1, 3, b"v") + batch(4, epoch=2) + batch(5, epoch=2) + batch(9, epoch=5) + batch(10, epoch=4)
    assert scanned(data).epochs == ((-1, 3), (2, 4), (5, 9), (4, 10))


def test_abort_markers_are_found_and_commits_are_not() -> None:
    """Each abort marker has producer id and offset; a commit marker only shows that transactions exist."""
    data = batch(0, producer_id=7, attributes=TRANSACTIONAL) + marker(1, 7, 0) + marker(2, 8, 1) + marker(3, 9, 0)
    result = scanned(data)
    assert result.abort_markers == ((7, 1), (9, 3))
    assert (result.has_transactions, result.record_count, result.control_count) == (True, 4, 3)
    assert scanned(marker(2, 8, 1)).abort_markers == ()
    assert scanned(marker(2, 8, 1)).has_transactions


def test_a_marker_whose_records_end_too_soon_is_corruption() -> None:
    """The CRC is right, but the content is not."""
    whole = record(0, b"\0\0\0\0", b"")
    for body in (whole[:3], b"", b"\xff" * 12, record(0, b"\0\0", b"")):
        result = scanned(batch(0, body=body, count=1, attributes=0x30))
        assert (result.corrupt_batches, result.abort_markers) == (1, ())


def test_the_smallest_timestamp_is_reported_only_where_it_is_certain() -> None:
    """A base timestamp is no minimum; single records, LogAppendTime and empty batches have a known one."""
    two = [record(0), record(1)]
    assert scanned(batch(0, max_timestamp=50) + batch(1, max_timestamp=40)).min_timestamp == 40
    assert scanned(batch(0, two, max_timestamp=50, attributes=LOG_APPEND_TIME)).min_timestamp == 50
    assert scanned(batch(0, max_timestamp=50) + batch(1, [], max_timestamp=9)).min_timestamp == 50
    assert scanned(batch(0, two) + batch(2)).min_timestamp is None
    assert scanned(batch(0, base_timestamp=9, max_timestamp=50, attributes=DELETE_HORIZON)).min_timestamp == 50
    assert scanned(message(1, 0, b"z", attributes=1, timestamp=5)).min_timestamp is None
    assert scanned(message(1, 0, b"z", attributes=9, timestamp=5)).min_timestamp == 5


def test_timestamps_of_minus_one_lower_the_minimum_and_leave_the_maximum() -> None:
    """The timestamp of a record without one is -1."""
    result = scanned(message(0, 0, b"v") + message(1, 1, b"v", timestamp=70))
    assert (result.min_timestamp, result.max_timestamp) == (-1, 70)
    assert scanned(message(0, 0, b"v")).max_timestamp is None


def test_a_compressed_wrapper_hides_the_record_count() -> None:
    """The wrapper's offset is that of its last record."""
    result = scanned(message(1, 8, b"z", attributes=2) + message(1, 9, b"v"))
    assert (result.record_count, result.last_offset) == (None, 9)


def test_a_file_that_ends_too_soon_has_changed() -> None:
    """The broker truncated the file during the read."""
    data = batch(0) + batch(1)
    with pytest.raises(SegmentChanged, match="10 bytes"):
        scan_segment(io.BytesIO(data[:-10]), len(data))


def test_only_the_requested_bytes_are_read() -> None:
    """A file that grew is scanned up to the size at the start."""
    data = batch(0)
    result = scan_segment(io.BytesIO(data + batch(1)), len(data))
    assert (result.size, result.end_offset) == (len(data), 1)


def test_r04_memory_stays_bounded_whatever_length_a_batch_declares() -> None:
    """A batch of 40 MB and one with a length of 2 GB are read through one buffer."""
    big = batch(0, [record(0, None, bytes(40_000_000))])
    claims = bytearray(batch(1))
    claims[8:12] = b"\x7f\xff\xff\xff"
    reader = io.BytesIO(big + claims)
    tracemalloc.start()
    try:
        result = scan_segment(reader, len(big) + len(claims))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.end_offset, result.trailing, result.corruption) == (1, Trailing.TORN, ())
    assert peak < 4 * scan.WINDOW_BYTES


def test_every_truncation_of_a_segment_covers_a_prefix() -> None:
    """At any cut, the whole batches count, and the rest of the next one does not."""
    pieces = [batch(0), batch(1, [record(0), record(1)]), batch(5), marker(6, 3, 0), message(1, 7, b"v"), batch(9)]
    ends_at = {sum(map(len, pieces[:n])): end for n, end in enumerate([None, 1, 3, 6, 7, 8, 10])}
    data = b"".join(pieces)
    for length in range(len(data) + 1):
        result, boundary = scanned(data[:length]), max(end for end in ends_at if end <= length)
        assert (result.valid_bytes, result.end_offset, result.corruption) == (boundary, ends_at[boundary], ())
        assert (result.trailing is Trailing.NONE) == (boundary == length)
        assert result.crc32c == crc32c(data[:length])


def test_the_agents_part_loads_no_heavy_library() -> None:
    """In a new interpreter, llvmlite, numpy, pyarrow and cramjam are not loaded."""
    code = "import sys, ts_uploader.agent, ts_common.log_format.scan, ts_common.log_format.index_files\n"
    code += "print([m for m in ('llvmlite', 'numpy', 'pyarrow', 'cramjam') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_scan_is_a_frozen_value() -> None:
    """Threads share it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        scanned(b"").size = 1  # type: ignore[misc]


def test_the_last_batch_is_named_unless_the_cleaner_may_have_been_at_it() -> None:
    """The last offset and CRC are those of a last batch with all its original records."""
    whole = batch(0, [record(n) for n in range(3)])
    assert scanned(whole).tail == (2, int.from_bytes(whole[17:21], "big"))
    assert scanned(batch(0, [record(2)], last_offset_delta=2)).tail is None
    assert scanned(whole + batch(3, [], last_offset_delta=4)).tail is None


TIMES = ((0, 100), (10, 300), (20, 200), (30, 400))  # base offset and greatest timestamp of batches of two records


def timed(claims: Sequence[tuple[int, int]], damage: int | None = None) -> int | None:
    """Return the result of a scan for a time index with these claims (timestamp, relative offset) and base offset 0."""
    data = bytearray(
        b"".join(batch(base, [record(0), record(1)], base_timestamp=time, max_timestamp=time) for base, time in TIMES)
    )
    if damage is not None:
        data[damage] ^= 1
    index = TimeIndex(0, b"".join(struct.pack(">qi", *claim) for claim in claims))
    found = scan_segment(io.BytesIO(data), len(data), index).timeindex_crc32c
    assert found in {None, crc32c(index.data)}
    return found


@pytest.mark.parametrize(
    ("claims", "holds"),
    [
        ([(300, 11), (400, 31)], True),
        ([(100, 1), (300, 21), (400, 31)], True),
        ([(100, 9)], True),  # offsets that compaction removed
        ([(999, 500)], True),
        ([(99, 1)], False),
        ([(100, 0), (299, 11), (400, 31)], False),
        ([(100, 10)], False),  # reaches into a batch with a later record
        ([(300, 30)], False),
        ([(100, 1), (200, 21)], False),
        ([], False),
        ([(0, 0)], False),  # preallocated, without an entry
    ],
)
def test_r08_a_time_index_is_held_against_every_header(claims: list[tuple[int, int]], holds: bool) -> None:
    """One wrong claim makes the whole index unusable, and so does an index without claims."""
    assert (timed(claims) is not None) == holds


def test_r08_a_time_index_of_a_damaged_segment_is_not_accepted() -> None:
    """The timestamps of a damaged batch are unknown."""
    assert timed([(400, 31)]) is not None
    assert timed([(400, 31)], damage=70) is None


def test_r08_a_time_index_of_old_messages_is_not_accepted() -> None:
    """A wrapper of magic 0 or 1 lacks the offset of its first record."""
    index = TimeIndex(0, struct.pack(">qi", 1 << 50, 1 << 30))
    for data, believed in ((batch(0), True), (message(0, 0, b"v"), False)):
        found = scan_segment(io.BytesIO(data), len(data), index).timeindex_crc32c
        assert (found is not None) == believed


def test_a_real_brokers_time_index_is_accepted() -> None:
    """Golden segments agree with the time indexes that the broker wrote."""
    for path in SEGMENTS:
        data, index = path.read_bytes(), path.with_suffix(".timeindex").read_bytes()
        assert index
        found = scan_segment(io.BytesIO(data), len(data), TimeIndex(int(path.stem), index)).timeindex_crc32c
        assert found == crc32c(index)


def test_records_that_no_consumer_shows_make_their_number_unknown() -> None:
    """By a header that counts too many, by a base offset that a wrong delta lowered, or by any record."""
    three = [record(0), record(1), record(2)]
    assert scanned(batch(0, three) + batch(3)).record_count == 4
    for wrong in (
        batch(2, three, last_offset_delta=0),
        batch(-7, three, last_offset_delta=9),
        batch(0, [record(0), record(1), record(1)]),
    ):
        found = scanned(wrong + batch(3, epoch=1))
        assert (found.record_count, found.corrupt_batches, found.end_offset) == (None, 0, 4)
        assert found.base_offset is not None
        assert found.base_offset >= 0
        assert found.epochs == ((0, found.base_offset), (1, 3))


def test_a_first_batch_with_a_wrong_delta_begins_at_the_base_of_its_segment() -> None:
    """A broker of 0.11 to 1.0 computed a base offset below it; any other such offset is left to the caller."""
    index, three = TimeIndex(10, struct.pack(">qi", 1 << 50, 1 << 30)), [record(0), record(1), record(2)]
    for log, base, count in (
        (batch(3, three, last_offset_delta=9) + batch(13), 10, None),
        (batch(3, three) + batch(13), 3, 4),
        (batch(10, three) + batch(13), 10, 4),
    ):
        found = scan_segment(io.BytesIO(log), len(log), index)
        assert (found.base_offset, found.record_count, found.end_offset, found.corrupt_batches) == (base, count, 14, 0)
