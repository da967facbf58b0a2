"""Batch boundaries of a segment whose headers may be damaged: what is at a position, and what may follow it."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ts_common.errors import CorruptData
from ts_common.log_format.framing import (
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MINIMUM_SIZE,
    NO_EPOCH,
    BatchHeader,
    Trailing,
    batch_crc,
    crc_start,
    follows,
    parse_header,
)
from ts_reader.decode.window import WINDOW_BYTES, Window

# The bytes that all searches for batches may check, because crafted bytes can look like many batches.
_SEARCH_TIMES: Final = 8
_SEARCH_BYTES: Final = 64 << 20
_ANY_SIZE: Final = 1 << 62
HIGHEST_MAGIC: Final = max(MINIMUM_SIZE)


@dataclass(frozen=True, slots=True)
class Claim:
    """What metadata and indexes claim about a segment.

    Attributes:
        size: bytes.
        base: first offset of its coverage.
        end: end of its coverage.
        crc32c: of all its bytes; None if unknown.
        epochs: (leader epoch, first offset) of each change, by offset; None if unknown.
        records: their number; None if unknown.
        dense: whether every offset of the coverage has its record.
        was_damaged: whether the segment was damaged when it was shipped, so that `crc32c` is of damaged bytes.
        anchors: positions of batches, from the `.index`.
    """

    size: int
    base: int
    end: int
    crc32c: int | None
    epochs: tuple[tuple[int, int], ...] | None
    records: int | None
    dense: bool
    was_damaged: bool
    anchors: frozenset[int] = frozenset()


class Boundaries:
    """Checks positions of one segment.

    Args:
        window: on its bytes.
    """

    def __init__(self, window: Window, claim: Claim) -> None:
        self._window = window
        self._claim = claim
        self._left_to_search = _SEARCH_TIMES * claim.size + _SEARCH_BYTES

    def look(self, position: int) -> BatchHeader | Trailing | CorruptData:
        """Return the header at a position, how the segment ends there, or the error of parsing it."""
        remaining = self._claim.size - position
        try:
            return parse_header(self._window.hold(position, HEADER_SIZE), 0, remaining, position)
        except CorruptData as error:
            return error

    def fits(self, header: BatchHeader, floor: int) -> bool:
        """Return whether offsets, leader epoch and counts are those of a batch that may follow offset `floor`."""
        if not (follows(header, floor) and floor < header.last_offset < self._claim.end):
            return False
        count = header.record_count
        if header.contradicts_itself and header.last_offset != floor + (count or 0):
            return False
        epochs = self._claim.epochs
        if not epochs or header.leader_epoch == NO_EPOCH:
            return True
        place = bisect_right(epochs, header.base_offset, key=lambda pair: pair[1])
        return header.leader_epoch == epochs[max(place - 1, 0)][0]

    def crc(self, header: BatchHeader, position: int) -> int:
        """Return the CRC of a batch's bytes, to compare with the one in its header."""
        crc, end = 0, position + header.size_in_bytes
        for piece in self._window.pieces(position + crc_start(header.magic), end):
            crc = batch_crc(header.magic, piece, crc)
        return crc

    def boundary(self, position: int, floor: int) -> int | None:
        """Return the first offset after a position where a fitting batch begins or the segment ends; else None."""
        if position == self._claim.size:
            return self._claim.end
        header = self.look(position)
        if header is Trailing.ZEROS:
            return self._claim.end if self._window.is_zero_from(position) else None
        if header is Trailing.TORN:
            return self._torn_offset(position, floor)
        return header.base_offset if isinstance(header, BatchHeader) and self.fits(header, floor) else None

    def _torn_offset(self, position: int, floor: int) -> int | None:
        """Return the base offset of a batch that the object's end cuts off; None if it does not fit."""
        head = self._window.hold(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        try:
            header = parse_header(head, 0, _ANY_SIZE, position)
        except CorruptData:
            return None
        if not isinstance(header, BatchHeader) or header.magic < 2:  # a message's header has too few fields to check
            return None
        return header.base_offset if self.fits(header, floor) else None

    def is_followed(self, position: int, floor: int) -> bool:
        """Return whether another fitting batch, or the end, follows the batch at a boundary."""
        header = self.look(position)
        if not isinstance(header, BatchHeader) or position in self._claim.anchors:
            return True
        behind = position + header.size_in_bytes
        return behind in self._claim.anchors or self.boundary(behind, max(floor, header.last_offset)) is not None

    def search(self, position: int, stop: int, floor: int) -> int | None:
        """Return the position of the next batch before `stop` that is whole, fits, and leads to a confirmed one."""
        while position < stop:
            data = self._window.hold(position, WINDOW_BYTES)
            for place in _candidates(data, floor, self._claim.end, self._claim.size - position):
                if position + place >= stop or self._left_to_search < 0:
                    return None
                if self._is_found(position + place, floor):
                    return position + place
            position += max(len(data) - MAGIC_POSITION, 1)
        return None

    def _is_found(self, position: int, floor: int) -> bool:
        header = self.look(position)
        if not isinstance(header, BatchHeader) or not self.fits(header, floor):
            return False
        self._left_to_search -= header.size_in_bytes
        return self.crc(header, position) == header.crc and self._leads_on(header, position)

    def _leads_on(self, header: BatchHeader, position: int) -> bool:
        """Return whether lengths lead from a batch to the segment's end or to a position in the `.index`."""
        while position not in self._claim.anchors:
            floor, position = header.last_offset, position + header.size_in_bytes
            self._left_to_search -= min(header.size_in_bytes, WINDOW_BYTES)
            following = self.look(position)
            if not isinstance(following, BatchHeader):
                return self._ends(following, position, floor)
            if not self.fits(following, floor) or (self._claim.dense and following.base_offset != floor + 1):
                return False
            header = following
        return True

    def _ends(self, what: Trailing | CorruptData, position: int, floor: int) -> bool:
        """Return whether a segment may end here, after batches up to offset `floor`."""
        if what is Trailing.TORN:
            torn = self._torn_offset(position, floor)
            return torn is not None and (torn == floor + 1 or not self._claim.dense)
        if what is Trailing.ZEROS:  # a record may end with a zero byte or two as well
            is_end = self._claim.size - position >= HEADER_SIZE and self._window.is_zero_from(position)
        else:
            is_end = what is Trailing.NONE
        return is_end and floor + 1 == self._claim.end


def _candidates(data: bytes, floor: int, end: int, remaining: int) -> Iterator[int]:
    """Yield positions in `data` whose base offset, length and magic fit a batch above `floor` and below `end`."""
    count = len(data) - MAGIC_POSITION
    if count <= 0:
        return
    offsets: npt.NDArray[np.int64] = np.ndarray((count,), ">i8", data, 0, (1,))
    lengths: npt.NDArray[np.int32] = np.ndarray((count,), ">i4", data, LENGTH_POSITION, (1,))
    magics: npt.NDArray[np.uint8] = np.ndarray((count,), np.uint8, data, MAGIC_POSITION, (1,))
    likely = np.flatnonzero((magics <= HIGHEST_MAGIC) & (offsets > floor) & (offsets < end))
    for place in likely.tolist():
        size = LENGTH_END + int(lengths[place])
        if MINIMUM_SIZE[int(magics[place])] <= size <= remaining - place:
            yield place
