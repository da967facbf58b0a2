"""Whether the records of a batch have the offsets that its header gives them, read without a compiled kernel.

Each broker from 0.11 to 4.1 compares the offset deltas of compressed records with their places (`LogValidator`). It
writes such a batch again or refuses it. It does not read the deltas of records that are not compressed, so these are
stored as a producer wrote them. Kafka's consumer skips each record whose offset is not above those before it.

Compaction removes records, and then a header has more offsets than records: the others keep theirs, which ascend.
"""

from typing import Final

from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, Buffer
from ts_common.log_format.varints import read_varint

# Bytes of a record up to its offset delta: length, attributes and timestamp delta; each varint has at most ten.
_HEAD_BYTES: Final = 10 + 1 + 10 + 10
# The offset deltas of most batches as they are stored: zigzag varints of one and of two bytes.
_DELTAS: Final = tuple(
    bytes((delta << 1,)) if delta < 0x40 else bytes((delta << 1 & 0x7F | 0x80, delta >> 6)) for delta in range(0x2000)
)


def can_contradict(header: BatchHeader) -> bool:
    """Return whether a broker stores a batch of this kind whatever the offsets of its records are."""
    return header.magic >= 2 and not header.codec and not header.is_control and bool(header.record_count)


def contradicts(header: BatchHeader, batch: memoryview) -> bool:
    """Return whether records of a whole batch have other offsets than its header, or are no records.

    Args:
        header: for which `can_contradict` is true.
        batch: its bytes, with the header.
    """
    count = header.record_count or 0
    is_full = count == header.last_offset - header.base_offset + 1
    if is_full and count <= len(_DELTAS):
        needed = _HEAD_BYTES if count == 1 else len(batch)
        if _are_ascending(bytes(batch[HEADER_SIZE : HEADER_SIZE + needed]), count, len(batch) - HEADER_SIZE):
            return False
    records = RecordOffsets(header)
    records.add(batch[HEADER_SIZE:])
    return records.contradict()


def _are_ascending(records: bytes, count: int, size: int) -> bool:
    """Return whether the offset deltas are 0, 1, 2 to `count` - 1 in the shortest form.

    The agent reads each record of a topic without compression here, so the loop avoids calls.
    """
    at = 0
    try:
        for delta in _DELTAS[:count]:
            first = records[at]
            if first & 1:  # below 0
                return False
            if first < 0x80:
                body, length = at + 1, first >> 1
            elif (second := records[at + 1]) < 0x80:
                body, length = at + 2, (first & 0x7F | second << 7) >> 1
            else:
                length, body = read_varint(records, at)
            timestamp_end = body + 1
            while records[timestamp_end] >= 0x80:
                timestamp_end += 1
            if not records.startswith(delta, timestamp_end + 1):
                return False
            at = body + length
    except IndexError:
        return False
    return at == size


class RecordOffsets:
    """Compares the records of one batch, whose bytes arrive in pieces.

    Args:
        header: for which `can_contradict` is true.
    """

    def __init__(self, header: BatchHeader) -> None:
        self._count = header.record_count or 0
        self._last = header.last_offset - header.base_offset
        self._is_full = self._count == self._last + 1
        self._number = 0
        self._before = -1
        self._held = b""  # the beginning of a record
        self._skip = 0  # bytes of the record before that the next piece has
        self._is_wrong = False

    def add(self, piece: Buffer) -> None:
        """Read the next bytes of the records."""
        if self._is_wrong or self._skip >= len(piece):
            self._skip -= min(len(piece), self._skip)
            return
        data, at = self._held + bytes(piece[self._skip :]), 0
        while 0 <= at <= len(data) - _HEAD_BYTES:
            at = self._next(data, at)
        self._is_wrong = at < 0
        self._held, self._skip = data[at:], max(at - len(data), 0)

    def contradict(self) -> bool:
        """Return whether a record has another offset than the header; called after the last piece."""
        at = 0
        while 0 <= at < len(self._held):
            at = self._next(self._held, at)
        return self._is_wrong or at != len(self._held) or self._skip > 0 or self._number < self._count

    def _next(self, data: bytes, at: int) -> int:
        """Compare the record at a position; return the position of the next one, -1 if its offset is wrong."""
        try:
            length, body = read_varint(data, at)
            _, delta_at = read_varint(data, body + 1)
            delta, end = read_varint(data, delta_at)
        except IndexError:
            return -1
        is_expected = delta == self._number if self._is_full else self._before < delta <= self._last
        if not is_expected or self._number >= self._count or body + length < end:
            return -1
        self._number += 1
        self._before = delta
        return body + length
