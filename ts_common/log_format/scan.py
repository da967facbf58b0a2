"""One pass over a segment: a summary of its batch headers, its damage, and its CRC-32C.

The agent scans every closed segment, so a scan costs little more than reading: one buffer, no decompression. Damage is
reported, not raised: a segment with a corrupt batch in the middle is shipped as it is, and marked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.framing import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Trailing,
    batch_crc,
    crc_start,
    follows,
    frame_size,
    parse_header,
)
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.markers import ABORT, read_markers
from ts_common.log_format.record_offsets import RecordOffsets, can_contradict, contradicts
from ts_common.wording import counted

WINDOW_BYTES: Final = 1 << 20  # large enough for few system calls, small enough for the processor's cache
CORRUPTION_LIMIT: Final = 64  # reported places; a segment of garbage could have a million


class Readable(Protocol):
    """A binary file, preferably unbuffered; never a memory map, because the broker can truncate the file."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read the next bytes into the buffer, and return their number; 0 at the end of the file."""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The result of a scan; corrupt batches count only in `size`, `crc32c` and the fields of corruption.

    Attributes:
        size: bytes read, all of them in `crc32c`.
        crc32c: CRC-32C of those bytes.
        valid_bytes: position of the end of the last good batch.
        base_offset: base offset of the first batch (its last offset for a compressed wrapper of magic 0 or 1).
        last_offset: last offset of the last batch.
        end_offset: the offset after `last_offset`.
        tail: (last offset, stored CRC) of the last batch; None if compaction can have changed that batch.
        epochs: (leader epoch, base offset) of the first batch, and of each batch with another epoch than the batch
            before it. The epoch of magic 0 and 1 is -1.
        epoch_lasts: for each of `epochs`, the base offset of the last batch with that epoch before the next pair.
        record_count: number of records, control records included; None after a compressed wrapper of magic 0 or 1, or
            if a producer's mistake is seen: a header that counts more records than it has offsets, or a record of a
            batch without compression that has another offset (`record_offsets`). Consumers show only some of these.
        max_timestamp: ms, the highest of the headers; None if it is -1 in every batch.
        min_timestamp: ms, the smallest of all records, -1 included, if each batch has one record or LogAppendTime.
            Otherwise None: only decompression yields it, because a batch's base timestamp is no minimum.
        abort_markers: (producer id, offset of the marker) of each aborted transaction that ends in this segment.
        has_transactions: whether any batch is transactional.
        corruption: (position, reason) of the first `CORRUPTION_LIMIT` places that fail their CRC, are not a batch, or
            repeat offsets.
        trailing: the bytes after the last batch.
        timeindex_crc32c: CRC-32C of the given `.timeindex`, if it has entries and no header contradicts them. None also
            if headers could not be compared (damage, magic 0 and 1).
    """

    size: int
    crc32c: int
    valid_bytes: int
    base_offset: int | None
    last_offset: int | None
    end_offset: int | None
    tail: tuple[int, int] | None
    epochs: tuple[tuple[int, int], ...]
    epoch_lasts: tuple[int, ...]
    record_count: int | None
    control_count: int
    max_timestamp: int | None
    min_timestamp: int | None
    abort_markers: tuple[tuple[int, int], ...]
    has_transactions: bool
    corruption: tuple[tuple[int, str], ...]
    corrupt_batches: int
    trailing: Trailing
    timeindex_crc32c: int | None = None


def scan_segment(reader: Readable, size: int, timeindex: TimeIndex | None = None) -> SegmentScan:
    """Scan the next `size` bytes of `reader`: check the CRC of each batch, and compute the CRC-32C of all bytes.

    Args:
        size: size of the segment in bytes.
        timeindex: index to compare with the batches' greatest timestamps.

    Raises:
        SegmentChanged: the file ends before `size` bytes.
    """
    window = _Window(reader, size)
    facts = _Facts(timeindex)
    trailing = Trailing.NONE
    while True:
        window.need(HEADER_SIZE)
        try:
            header = parse_header(window.view, window.start, window.remaining, window.position)
        except CorruptData as error:
            facts.corrupt(window.position, str(error))
            skip = frame_size(window.view, window.start, window.remaining)
            if skip is None:
                break
            window.skip(skip)
            continue
        if isinstance(header, Trailing):
            trailing = header
            break
        position = window.position
        try:
            facts.add(header, *_check(window, header))
        except CorruptData as error:
            facts.corrupt(position, str(error))
        else:
            facts.valid_bytes = window.position
    position = window.position
    if trailing is Trailing.ZEROS and not window.rest_is_zero():
        facts.corrupt(position, "zero bytes in place of a batch, and other bytes after them")
        trailing = Trailing.NONE
    window.skip(window.remaining)
    return facts.result(window, trailing)


def _check(window: "_Window", header: BatchHeader) -> tuple[bytes, bool]:
    """Skip the batch at the window's start, and check its CRC.

    Returns:
        (the records of a control batch, whether records contradict the header).
    """
    begin, size, magic = crc_start(header.magic), header.size_in_bytes, header.magic
    records, is_wrong = b"", False
    if window.need(size):
        batch = window.view[window.start : window.start + size]
        crc = batch_crc(magic, batch[begin:])
        if header.is_control:
            records = bytes(batch[HEADER_SIZE:])
        elif crc == header.crc and can_contradict(header):
            is_wrong = contradicts(header, batch)
        window.skip(size)
    else:
        crc, offsets = 0, RecordOffsets(header) if can_contradict(header) else None
        window.skip(begin)
        for piece in window.pieces(HEADER_SIZE - begin):
            crc = batch_crc(magic, piece, crc)
        for piece in window.pieces(size - HEADER_SIZE):
            crc = batch_crc(magic, piece, crc)
            if offsets is not None:
                offsets.add(piece)
        is_wrong = offsets is not None and offsets.contradict()
    if crc != header.crc:
        raise CorruptData(f"batch of base offset {header.base_offset}: CRC {crc:08x}; {header.crc:08x} in its header")
    return records, is_wrong


class _Facts:
    """The summary of the batches so far."""

    def __init__(self, timeindex: TimeIndex | None) -> None:
        self.valid_bytes = 0
        self._timeindex = timeindex
        self._base = timeindex.base if timeindex else 0
        self._claims = timeindex.claims if timeindex else ()
        self._claim = 0  # index of the first claim that reaches the next batch
        self._claims_hold = bool(self._claims)
        self._base_offset: int | None = None
        self._last_offset = -1
        self._tail: tuple[int, int] | None = None
        self._epochs: list[tuple[int, int]] = []
        self._epoch_lasts: list[int] = []
        self._count = 0
        self._count_known = True
        self._control_count = 0
        self._max_timestamp = NO_TIMESTAMP
        self._min_timestamp: int | None = None
        self._min_known = True
        self._abort_markers: list[tuple[int, int]] = []
        self._has_transactions = False
        self._corruption: list[tuple[int, str]] = []
        self._corrupt_batches = 0

    def corrupt(self, position: int, reason: str) -> None:
        self._claims_hold = False
        self._corrupt_batches += 1
        if len(self._corruption) < CORRUPTION_LIMIT:
            self._corruption.append((position, reason))

    def add(self, header: BatchHeader, markers: bytes, contradicted: bool) -> None:
        if self._base_offset is None and header.base_offset < self._base and follows(header, self._base - 1):
            self._last_offset = self._base - 1  # the first batch of the segment has a base offset that is too low
        if not follows(header, self._last_offset):
            raise CorruptData(
                f"batch of base offset {header.base_offset}: the batches before it reach {self._last_offset} already"
            )
        if header.is_control:
            found = list(read_markers(header, markers))
            self._control_count += len(found)
            self._abort_markers += [(header.producer_id, offset) for offset, kind in found if kind == ABORT]
        first = max(header.base_offset, self._last_offset + 1)  # see `follows`: a wrong base offset can be lower
        if self._base_offset is None:
            self._base_offset = first
        self._last_offset = max(header.last_offset, self._last_offset)
        self._tail = (header.last_offset, header.crc) if header.is_as_written else None
        if not self._epochs or self._epochs[-1][0] != header.leader_epoch:
            self._epochs.append((header.leader_epoch, first))
            self._epoch_lasts.append(first)
        self._epoch_lasts[-1] = first
        self._has_transactions |= header.is_transactional
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        if self._claims_hold:
            self._compare(header)
        count = header.record_count
        if count is None or contradicted or header.contradicts_itself or first > header.base_offset:
            self._count_known = False
        else:
            self._count += count
        if count == 0:
            return
        if header.is_log_append_time or count == 1:  # a batch of one record: the highest timestamp is the only one
            smallest = header.max_timestamp
            self._min_timestamp = smallest if self._min_timestamp is None else min(smallest, self._min_timestamp)
        else:
            self._min_known = False

    def _compare(self, header: BatchHeader) -> None:
        """Compare a batch with the `.timeindex`.

        The claims ascend, so the first claim that reaches the batch is the strictest. A claim that ends inside the
        batch must hold for all of it.
        """
        while self._claim < len(self._claims) and self._claims[self._claim][1] < header.base_offset:
            self._claim += 1
        reaches = self._claim < len(self._claims)
        if header.magic < 2 or (reaches and header.max_timestamp > self._claims[self._claim][0]):
            self._claims_hold = False  # a wrapper of magic 0 or 1 lacks the offset of its first record

    def result(self, window: "_Window", trailing: Trailing) -> SegmentScan:
        found = self._base_offset is not None
        return SegmentScan(
            size=window.position,
            crc32c=window.crc32c,
            valid_bytes=self.valid_bytes,
            base_offset=self._base_offset,
            last_offset=self._last_offset if found else None,
            end_offset=self._last_offset + 1 if found else None,
            tail=self._tail,
            epochs=tuple(self._epochs),
            epoch_lasts=tuple(self._epoch_lasts),
            record_count=self._count if self._count_known else None,
            control_count=self._control_count,
            max_timestamp=self._max_timestamp if self._max_timestamp != NO_TIMESTAMP else None,
            min_timestamp=self._min_timestamp if self._min_known else None,
            abort_markers=tuple(self._abort_markers),
            has_transactions=self._has_transactions,
            corruption=tuple(self._corruption),
            corrupt_batches=self._corrupt_batches,
            trailing=trailing,
            timeindex_crc32c=crc32c(self._timeindex.data) if self._timeindex and self._claims_hold else None,
        )


class _Window:
    """A buffer that moves over the file; each byte is checksummed once, when it is read."""

    def __init__(self, reader: Readable, size: int) -> None:
        self._reader = reader
        self._size = size
        self._unread = size
        self.view = memoryview(bytearray(max(min(WINDOW_BYTES, size), HEADER_SIZE)))
        self.start = 0
        self._end = 0
        self.position = 0  # of `start` in the file
        self.crc32c = 0

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def need(self, count: int) -> bool:
        """Read until the buffer has `count` bytes from `start` on; return False if it cannot have so many."""
        held = self._end - self.start
        if held >= count or not self._unread:
            return held >= count
        if count > len(self.view):
            return False
        if self.start:
            self.view[:held] = bytes(self.view[self.start : self._end])
            self.start, self._end = 0, held
        self._fill()
        return self._end >= count

    def skip(self, count: int) -> None:
        if self.start + count <= self._end:
            self.start += count
            self.position += count
            return
        for _ in self.pieces(count):
            pass

    def pieces(self, count: int) -> Iterator[memoryview]:
        """Skip `count` bytes, and yield them as views; each is valid until the next."""
        while count:
            if self.start == self._end:
                self.start = self._end = 0
                self._fill()
            piece = self.view[self.start : min(self._end, self.start + count)]
            yield piece
            self.start += len(piece)
            self.position += len(piece)
            count -= len(piece)

    def rest_is_zero(self) -> bool:
        """Skip the remaining bytes up to the first that is not zero; return whether all are zero."""
        return all(not bytes(piece).strip(b"\0") for piece in self.pieces(self.remaining))

    def _fill(self) -> None:
        while self._unread and self._end < len(self.view):
            free = self.view[self._end : self._end + self._unread]
            count = self._reader.readinto(free)
            if not count:
                raise SegmentChanged(f"the file ends {counted(self._unread, 'byte')} before its size of {self._size}")
            self.crc32c = crc32c(free[:count], self.crc32c)
            self._end += count
            self._unread -= count
