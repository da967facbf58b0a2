"""The control records of a batch, without a kernel."""

import struct

import pytest

from tests.common.log_format.build import CONTROL, TRANSACTIONAL, batch, marker, record
from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.markers import ABORT, COMMIT, encode_marker, read_markers

KEY = b"\0\0\0\0"  # version 0, type 0: an abort


def found(data: bytes) -> list[tuple[int, int]]:
    """Return the markers of a batch."""
    header = parse_header(data[:HEADER_SIZE], 0, len(data))
    assert isinstance(header, BatchHeader)
    return list(read_markers(header, data[HEADER_SIZE:]))


def control(*records: bytes, attributes: int = 0, count: int | None = None) -> bytes:
    """Return a control batch at offset 100."""
    return batch(100, records, attributes=CONTROL | TRANSACTIONAL | attributes, count=count)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_has_its_offset_and_type(kind: int) -> None:
    """A broker writes one marker in a batch of its own."""
    assert found(marker(42, 7, kind)) == [(42, kind)]


def test_each_record_of_a_batch_is_a_marker() -> None:
    """Types other than abort and commit are returned too, and end no transaction."""
    records = [record(n, b"\0\0" + kind.to_bytes(2, "big"), b"x" * 6) for n, kind in enumerate((1, 0, 5))]
    assert found(control(*records)) == [(100, COMMIT), (101, ABORT), (102, 5)]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (control(record(0, KEY), attributes=1), "compressed with codec 1"),
        (control(record(0, KEY), count=3), "3 records in"),
        (control(record(0, KEY), record(1, KEY), count=1), "bytes after the last record"),
        (control(record(0, b"\0\0\0", b"x" * 9)), "without a control key"),
        (control(record(0, None, b"x" * 9)), "without a control key"),
        (control(b"\xff" * 10 + b"\x01" + b"x" * 20), "its records are truncated"),
        (control(b"\x7e" + record(0, KEY)[1:]), "a record of 63 bytes"),
    ],
)
def test_r04_a_damaged_control_batch_is_an_error(data: bytes, problem: str) -> None:
    """Lengths and counts are bounded by the bytes of the batch, and the error names its base offset."""
    with pytest.raises(CorruptData, match=f"control batch of base offset 100: .*{problem}"):
        found(data)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_an_encoded_marker_has_the_bytes_of_a_coordinators(kind: int) -> None:
    """Those of an independent encoder, but for the coordinator's epoch."""
    made = encode_marker(7, 4000, 3, kind, 1500)
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    expected = batch(
        7,
        [record(0, key, value)],
        attributes=CONTROL | TRANSACTIONAL,
        base_timestamp=1500,
        max_timestamp=1500,
        producer_id=4000,
        producer_epoch=3,
    )
    assert (made, found(made)) == (expected, [(7, kind)])
