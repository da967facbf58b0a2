"""The memory of one record batch: it is bounded, the error names the option, and no batch is skipped."""

import struct
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import cast

import cramjam
import lz4.frame
import numpy as np
import pytest

from tests.common.log_format.build import batch, record, varint
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import BatchHeader, Trailing, parse_header
from ts_common.log_format.limits import BatchLimit
from ts_common.log_format.markers import read_markers
from ts_common.log_format.scan import scan_segment
from ts_reader.decode.codecs import Codec, Scratch
from ts_reader.decode.columns import BinaryColumn, java_utf8, valid_names
from ts_reader.decode.segment_decoder import SegmentDecoder

MIB = 1 << 20
ZSTD = 4
ONE = batch(0, [record(0, value=b"v")])


def lz4_frame(text: bytes) -> bytes:
    """A frame of blocks of 4 MiB, as some writers make it."""
    return cast("bytes", lz4.frame.compress(text, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False))


def with_headers(count: int, name: bytes) -> bytes:
    """A batch of one record with many headers without values."""
    fields = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(count)
    body = fields + (varint(len(name)) + name + varint(-1)) * count
    packed = bytes(cramjam.zstd.compress(varint(len(body)) + body, 3))
    return batch(1, body=packed, count=1, attributes=ZSTD)


def peak_of(data: bytes, limit: BatchLimit) -> tuple[int, list[str]]:
    """Return the peak memory of decoding in bytes, and the errors that ended it."""
    errors: list[str] = []
    list(SegmentDecoder().decode([ONE]))  # compiled
    tracemalloc.start()
    try:
        for _ in SegmentDecoder(limit=limit, size=len(data), max_rows=1000, max_bytes=MIB).decode([data]):
            pass
    except BatchTooLarge as error:
        errors.append(str(error))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, errors


def test_r15_a_record_with_millions_of_headers_is_refused_by_the_option() -> None:
    """4 KB of zstd can contain a record of ten million headers, and each header uses more memory than its bytes."""
    data = with_headers(2_000_000, b"\xff\xff")
    peak, errors = peak_of(ONE + data, BatchLimit(16 * MIB, "maxBatchBytes"))
    assert len(data) < 4096
    (error,) = errors
    assert error.startswith(f"batch of base offset 1 at position {len(ONE)}: one of its records needs ")
    assert error.endswith(f", and maxBatchBytes allows {16 * MIB} bytes: raise it")
    assert peak < 64 * MIB


@pytest.mark.parametrize("unit", [b"\xff", b"\xed\xa0\x80", b"\xff\xc3\xa9", b"\x80", "日".encode() + b"\xff"])
def test_one_long_name_that_is_no_utf8_costs_a_few_times_the_limit(unit: bytes) -> None:
    """Each malformed byte becomes three bytes. One Python object for each surrogate used thirty times the limit."""
    data = with_headers(1, unit * (3 * MIB // len(unit)))
    peak, errors = peak_of(data, BatchLimit(4 * MIB))
    assert errors == []
    assert peak < 8 * 4 * MIB


@pytest.mark.parametrize("cut", range(65_530, 65_542))
def test_a_long_name_is_the_same_wherever_its_slices_end(cut: int) -> None:
    """Characters of all lengths, a surrogate, and incomplete characters, at each position relative to a slice's end."""
    for tail in ("aé日😀".encode() + b"\xff", b"\xed\xa0\x80\x80\x80\x80\x80", b"\xf0\x9f\x98", b"\x80" * 9):
        name = b"a" * cut + tail + b"b" * 70_000
        found = valid_names(column(name, b"\xff"))
        shown = found.data[: found.offsets[1]].tobytes().decode()
        assert shown == java_utf8(name)


def test_header_names_that_are_no_utf8_cost_a_few_times_the_limit() -> None:
    """Python objects are made of a few thousand names at a time, and only where a name is malformed."""
    peak, errors = peak_of(with_headers(100_000, b"\xff\xff"), BatchLimit(4 * MIB))
    assert errors == []
    assert peak < 6 * 4 * MIB


def test_r15_a_batch_that_decompresses_to_more_is_refused_by_the_option() -> None:
    """31 KB can decompress to a gigabyte. Rows before it are returned."""
    bomb = batch(1, body=bytes(cramjam.zstd.compress(bytes(64 * MIB), 3)), count=1, attributes=ZSTD)
    shown = []
    with pytest.raises(
        BatchTooLarge, match=rf"^batch of base offset 1 at position {len(ONE)}: .* --max allows {4 * MIB} bytes"
    ):
        for columns in SegmentDecoder(limit=BatchLimit(4 * MIB, "--max")).decode([ONE + bomb]):
            shown += columns.offsets.tolist()
    assert shown == [0]


def in_pieces(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), MIB):
        yield data[begin : begin + MIB]


def test_r15_a_batch_that_is_longer_is_refused_without_being_held() -> None:
    """Its CRC is computed as it passes: only of a batch that is whole the option is the reason."""
    long = batch(1, [record(0, value=bytes(24 * MIB))])
    limit = BatchLimit(4 * MIB, "maxBatchBytes")
    decoder = SegmentDecoder(limit=limit, size=len(ONE) + len(long))
    with pytest.raises(
        BatchTooLarge, match=rf"position {len(ONE)}: it has {len(long)} bytes, and maxBatchBytes allows"
    ):
        list(decoder.decode(in_pieces(ONE + long)))
    assert decoder.valid_bytes == len(ONE)
    damaged = bytearray(ONE + long)
    damaged[-1] ^= 1
    decoder = SegmentDecoder(limit=limit, size=len(damaged), max_rows=1000, max_bytes=MIB)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=f"position {len(ONE)}: CRC"):
            list(decoder.decode(in_pieces(bytes(damaged))))
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB  # the test's own copy of it is 24 MiB
    finally:
        tracemalloc.stop()


def test_a_torn_batch_that_is_longer_is_torn() -> None:
    """A segment that ends inside it ends there, whatever the limit."""
    torn = (ONE + batch(1, [record(0, value=bytes(8 * MIB))]))[: 6 * MIB]
    decoder = SegmentDecoder(limit=BatchLimit(MIB), size=len(torn))
    assert sum(columns.row_count for columns in decoder.decode(in_pieces(torn))) == 1
    assert decoder.trailing is Trailing.TORN


def test_one_large_record_leaves_no_large_buffer_behind() -> None:
    """The buffers that it needed are dropped with it."""
    data = batch(0, [record(0, value=bytes(100 * MIB))]) + batch(1, [record(0, value=b"v")]) * 1
    decoder = SegmentDecoder(size=len(data))
    for columns in decoder.decode([data]):
        del columns
    decoder._pool.take()
    assert max(len(buffers.values.data) for buffers in decoder._pool._buffers) < 64 * MIB


@pytest.mark.parametrize("chunk", [70, 4096, 64 << 10, MIB])
def test_a_long_batch_is_rejected_wherever_chunks_end_and_only_if_it_is_requested(chunk: int) -> None:
    """One that lies below the start, or from the end on, is passed over with its CRC checked."""
    long = batch(1, [record(0, value=bytes(300 << 10))])
    data = ONE + long + batch(2, [record(0)])
    limit = BatchLimit(200 << 10, "maxBatchBytes")
    pieces = [data[begin : begin + chunk] for begin in range(0, len(data), chunk)]

    def offsets(content: list[bytes], start_offset: int = 0, end_offset: int = 3) -> list[int]:
        decoder = SegmentDecoder(start_offset=start_offset, end_offset=end_offset, limit=limit, size=len(data))
        return [offset for columns in decoder.decode(content) for offset in columns.offsets.tolist()]

    with pytest.raises(BatchTooLarge, match=f"position {len(ONE)}: it has {len(long)} bytes"):
        offsets(pieces)
    assert offsets(pieces, start_offset=2) == [2]
    assert offsets(pieces, end_offset=1) == [0]
    damaged = bytearray(data)
    damaged[len(ONE) + len(long) - 1] ^= 1
    with pytest.raises(CorruptData, match=f"position {len(ONE)}: CRC"):
        offsets([bytes(damaged[begin : begin + chunk]) for begin in range(0, len(data), chunk)])


def test_an_lz4_block_that_is_not_full_fits() -> None:
    """A frame of 4 MiB blocks that holds 1.5 MB passes a limit of 2 MiB, and not one of 1 MiB."""
    text = bytes(range(256)) * 6000
    packed = bytes(lz4_frame(text))
    scratch = Scratch(BatchLimit(2 * MIB))
    assert scratch.add(Codec.LZ4, memoryview(packed))
    assert scratch.array[: scratch.end].tobytes() == text
    with pytest.raises(BatchTooLarge):
        Scratch(BatchLimit(MIB)).add(Codec.LZ4, memoryview(packed))


# --- markers


def control(body: bytes, count: int) -> bytes:
    return batch(0, body=body, count=count, last_offset_delta=0, attributes=0x30, producer_id=5)


def marker_body(length: int | None = None) -> bytes:
    fields = b"\0" + varint(0) + varint(0) + varint(4) + struct.pack(">hh", 0, 0) + varint(0) + varint(0)
    return varint(len(fields) if length is None else length) + fields


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (marker_body(-1), 2**31 - 1, "2,147,483,647 records in"),
        (marker_body(-1), 1, "a record of -1 bytes"),
        (marker_body(0), 1, "a record of 0 bytes"),
        (marker_body(4), 1, "a record of 4 bytes"),
        (marker_body(500), 1, "a record of 500 bytes"),
        (marker_body() + b"\0", 1, "1 byte after the last record"),
        (marker_body() * 2, 1, "bytes after the last record"),
        (marker_body(), 2, "2 records in"),
    ],
)
def test_r15_markers_that_lie_about_their_length_or_number_end_at_once(body: bytes, count: int, reason: str) -> None:
    """72 bytes with a record of -1 bytes, repeated two billion times, kept a driver busy for seven hours."""
    data = control(body, count)
    header = parse_header(data, 0, len(data))
    assert isinstance(header, BatchHeader)
    with pytest.raises(CorruptData, match=reason):
        list(read_markers(header, data[61:]))
    scan = scan_segment(BytesIO(data), len(data))
    assert (scan.abort_markers, scan.corrupt_batches) == ((), 1)


def test_markers_that_do_not_lie_are_read() -> None:
    """Else the test above would pass for a reader that refuses all."""
    data = control(marker_body(), 1)
    header = parse_header(data, 0, len(data))
    assert isinstance(header, BatchHeader)
    assert list(read_markers(header, data[61:])) == [(0, 0)]


# --- header names


def column(*names: bytes) -> BinaryColumn:
    bounds = np.cumsum([0, *map(len, names)]).astype(np.int32)
    data = np.frombuffer(b"".join(names), np.uint8)
    return BinaryColumn(bounds, data, np.full((len(names) + 7) // 8, 0xFF, np.uint8), 0)


@pytest.mark.parametrize(
    "names",
    [
        [b"a", "é".encode(), b"", "日本".encode()],
        [b"\xc3", b"\xa9"],  # together a character, each for itself none
        [b"", b"\xa9", b""],
        [b"\xed\xa0\x80", b"ok"],
        ["é".encode()] * 40_000 + [b"\xff"] + [b"x"] * 40_000,
    ],
    ids=["valid", "split", "continuation", "surrogate", "many"],
)
def test_each_header_name_is_valid_utf8_by_itself(names: list[bytes]) -> None:
    """As Java's consumer decodes each: pieces of many names are no reason to join or to lose one."""
    found = valid_names(column(*names))
    bounds, data = found.offsets.tolist(), found.data.tobytes()
    shown = [data[start:end].decode() for start, end in pairwise(bounds)]
    assert shown == [name.replace(b"\xed\xa0\x80", b"\xff").decode("utf-8", "replace") for name in names]
