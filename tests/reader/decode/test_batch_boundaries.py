"""Where batches begin in a damaged segment: which headers fit, and which bytes only look like a batch."""

import pytest

from tests.common.log_format.build import batch, record
from tests.reader.decode.sources import Bytes
from ts_common.errors import CorruptData
from ts_common.log_format.framing import BatchHeader, Trailing
from ts_reader.decode.batch_boundaries import Boundaries, Claim
from ts_reader.decode.window import Window


def batches_of(*ranges: tuple[int, int], epoch: int = 0, value: bytes = b"v") -> bytes:
    return b"".join(
        batch(start, [record(n, b"k", value) for n in range(end - start)], epoch=epoch) for start, end in ranges
    )


def boundaries(data: bytes, end: int, *, dense: bool = True, anchors: frozenset[int] = frozenset()) -> Boundaries:
    epochs = ((0, 0), (2, 10))
    claim = Claim(len(data), 0, end, None, epochs, None, dense=dense, was_damaged=False, anchors=anchors)
    return Boundaries(Window(Bytes(data), len(data)), claim)


@pytest.mark.parametrize(
    ("start", "end", "epoch", "floor", "fits"),
    [
        (0, 5, 0, -1, True),
        (5, 10, 0, 4, True),
        (10, 20, 2, 9, True),
        (4, 9, 0, 4, False),  # at the floor
        (15, 21, 2, 9, False),  # above the end
        (10, 20, 0, 9, False),  # the epoch of lower offsets
        (5, 10, 2, 4, False),  # the epoch of higher offsets
        (5, 10, -1, 4, True),  # a batch without an epoch
    ],
)
def test_a_batch_fits_by_offsets_and_leader_epoch(start: int, end: int, epoch: int, floor: int, fits: bool) -> None:
    """Offsets are above the floor and below the end of the coverage; the epoch is the one of its first offset."""
    data = batches_of((start, end), epoch=epoch)
    at = boundaries(data, 20)
    header = at.look(0)
    assert isinstance(header, BatchHeader)
    assert at.fits(header, floor) is fits
    assert at.crc(header, 0) == header.crc


def test_more_records_than_offsets_do_not_fit() -> None:
    """The count of a header is not covered if the header is damaged."""
    data = batch(0, [record(0)], count=7, last_offset_delta=5)
    at = boundaries(data, 20)
    header = at.look(0)
    assert isinstance(header, BatchHeader)
    assert not at.fits(header, -1)


def test_a_search_passes_over_a_value_that_contains_a_batch() -> None:
    """The lengths behind the copy in the value lead nowhere; the real batch leads to the segment's end."""
    copy = batches_of((6, 9))
    first, second = batches_of((0, 5), value=b"-" + copy + b"-"), batches_of((5, 10))
    data = first + second
    assert boundaries(data, 10).search(1, len(data), -1) == len(first)
    assert boundaries(data, 10).search(1, len(first), -1) is None  # nothing before the stop
    anchor = frozenset({data.index(copy)})
    assert boundaries(data, 10, anchors=anchor).search(1, len(data), -1) == data.index(copy)


def test_a_boundary_is_a_batch_the_end_or_what_may_end_a_segment() -> None:
    """Zeros to the end, and a batch that the end of the object cuts off."""
    first, second = batches_of((0, 5)), batches_of((5, 10))
    whole = boundaries(first + second, 10)
    assert [whole.boundary(position, 4) for position in (len(first), len(first + second), 7)] == [5, 10, None]
    padded = boundaries(first + bytes(300), 10)
    assert padded.look(len(first)) is Trailing.ZEROS
    assert padded.boundary(len(first), 4) == 10
    assert boundaries(first + bytes(300) + b"x", 10).boundary(len(first), 4) is None
    torn = boundaries(first + second[:-3], 10)
    assert torn.look(len(first)) is Trailing.TORN
    assert (torn.boundary(len(first), 4), torn.boundary(len(first), 7)) == (5, None)


def test_a_header_that_cannot_be_one_is_damage() -> None:
    """`look` returns the error instead of raising it."""
    data = bytearray(batches_of((0, 5)))
    data[16] = 9
    assert isinstance(boundaries(bytes(data), 5).look(0), CorruptData)
