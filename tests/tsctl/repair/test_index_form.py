"""Which bytes can be the index of a segment."""

import struct
from dataclasses import replace

import pytest
from awscrt.checksums import crc32c

from tests.made_archive import BytesReader, batches
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.log_format.scan import scan_segment
from tsctl.repair.index_form import Indexed, fits

LOG = batches((100, 110), (110, 120))
SECOND = len(batches((100, 110)))
PLAIN = metadata_of(scan_segment(BytesReader(LOG), len(LOG)), 100, "k")
BOUND = replace(PLAIN, timeindex=crc32c(b"right"), txnindex=(crc32c(b"right"), TxnIndexState.COMPLETE))


def _index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def _timeindex(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("suffix", "data", "metadata", "expected"),
    [
        (".index", b"", PLAIN, True),
        (".index", _index((19, SECOND)), PLAIN, True),
        (".index", _index((19, SECOND)), None, True),
        (".index", _index((19, SECOND)) + bytes(16), PLAIN, True),  # a broker that ended leaves zeros
        (".index", _index((19, SECOND), (5, SECOND)), PLAIN, False),  # it does not ascend
        (".index", _index((19, SECOND)) + b"x", PLAIN, False),
        (".index", _index((19, SECOND + 1)), PLAIN, False),  # inside a batch
        (".index", _index((5, SECOND)), PLAIN, False),  # the batch begins later
        (".index", _index((15, 1), (19, SECOND)), PLAIN, False),  # the batch is not above the entry before
        (".index", _index((19, len(LOG))), PLAIN, False),
        (".index", _index((20, SECOND)), PLAIN, False),  # beyond the end
        (".timeindex", b"right", BOUND, True),
        (".timeindex", _timeindex((1100, 5)), BOUND, False),
        (".timeindex", _timeindex((1100, 5)), PLAIN, True),
        (".timeindex", _timeindex((1100, 20)), PLAIN, False),
        (".timeindex", _timeindex((1100, 5), (1000, 6)), PLAIN, False),
        (".txnindex", b"right", BOUND, True),
        (".txnindex", b"wrong", BOUND, False),
        (".txnindex", b"any", PLAIN, False),
    ],
)
def test_an_index_fits_by_checksum_or_form(
    suffix: str, data: bytes, metadata: SegmentMetadata | None, expected: bool
) -> None:
    """A wrong one would cost readers time, or hide aborted transactions."""
    segment = Indexed(100, len(LOG), metadata, lambda position, count: LOG[position : position + count])
    assert fits(suffix, data, segment) is expected
