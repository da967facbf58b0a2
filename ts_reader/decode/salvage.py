"""Salvage of a damaged segment: stretches of intact batches, and the damage between them.

It checks the CRC of each batch before any row of the segment is returned. After a damaged batch it continues at the
position that the batch's length gives, if a fitting batch begins there. Otherwise it searches, byte by byte, for the
next batch with a correct CRC and fitting offsets. From that batch the lengths must lead to the segment's end or to a
position in the `.index`, because a value may contain bytes that look like batches. If the search finds no batch, the
rest of the segment is damaged.

A batch's CRC does not cover its base offset, leader epoch and length; the object's CRC does. If the object's CRC is
wrong, the salvage is repeated, stricter: leader epochs must be those of the metadata, and offsets must be dense if the
metadata requires it. If that finds no damage that explains the wrong CRC, and offsets may be missing, any base offset
may be wrong. Then the whole segment is damaged.

Two errors stay possible in an object with a wrong CRC. A second, hidden damage may be in the base offset of a batch, if
offsets are missing. And bytes that form a whole batch with fitting offsets may be at the end of a batch whose own
length is damaged, or of an object that was truncated there.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, MAGIC_POSITION, BatchHeader, Trailing, follows, frame_size
from ts_reader.decode.batch_boundaries import HIGHEST_MAGIC, Boundaries, Claim
from ts_reader.decode.window import Source, Window

MARK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Intact batches, one after the other.

    Attributes:
        start: position of the first one.
        end: position after the last one.
        marks: (base offset, position) of the first batch, and of one about every `MARK_BYTES`.
        end_offset: the offset after its last one.
    """

    start: int
    end: int
    marks: tuple[tuple[int, int], ...]
    end_offset: int

    @property
    def base_offset(self) -> int:
        """Return its first offset."""
        return self.marks[0][0]

    def position_of(self, offset: int) -> int:
        """Return the position of a batch at or before the one that contains an offset."""
        return self.marks[max(bisect_right(self.marks, offset, key=lambda mark: mark[0]) - 1, 0)][1]


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged place: one batch or several, or bytes where batches should be.

    Attributes:
        position: of its first byte in the segment.
        end_position: position after its last byte.
        start: the first offset that may be lost.
        end: the offset after the last one that may be lost.
        reason: a sentence without its subject.
    """

    position: int
    end_position: int
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is intact and what is damaged in a segment.

    Attributes:
        stretches: in order, with ascending offsets.
        damages: in order; each is between two stretches, before the first or after the last.
    """

    stretches: tuple[Stretch, ...]
    damages: tuple[Damage, ...]


def salvage_segment(source: Source, claim: Claim) -> Salvage:
    """Return the stretches and damages of a segment; memory is bounded for any content.

    Raises:
        what `source` raises.
    """
    first = _Walk(source, claim, strict=False)
    first.run()
    if claim.crc32c is None or first.object_crc32c() == claim.crc32c:
        if claim.dense or claim.crc32c is None:
            first.lose_rest("")
        return first.salvaged()
    found = f"CRC-32C of the object {first.object_crc32c():08x}; its metadata has {claim.crc32c:08x}"
    walk = _Walk(source, claim, strict=True)
    walk.run()
    is_cut = walk.floor + 1 < claim.end and claim.records is not None and walk.records < claim.records
    if claim.dense or is_cut or (walk.damages and not claim.was_damaged):
        walk.lose_rest(f" ({found})")
        return walk.salvaged()
    return Salvage((), (Damage(0, claim.size, claim.base, claim.end, f"{found}, and no batch in it shows the place"),))


class _Walk:
    """One pass over a segment.

    Attributes:
        floor: the last offset so far; at first one below the coverage.
        records: the number of records in accepted batches.
        damages: the damaged places so far.
    """

    def __init__(self, source: Source, claim: Claim, *, strict: bool) -> None:
        self._window = Window(source, claim.size)
        self._at = Boundaries(self._window, claim)
        self._claim = claim
        self._strict = strict
        self._stretches: list[Stretch] = []
        self._marks: list[tuple[int, int]] = []
        self._begun = 0
        self._doubtful: tuple[int, int, int] | None = None  # the batch before: position, floor below it, records
        self.floor = claim.base - 1
        self.records = 0
        self.damages: list[Damage] = []

    def run(self) -> None:
        position, size = 0, self._claim.size
        while position < size:
            header = self._at.look(position)
            if self._is_tail(header, position):
                break
            problem = self._problem(header, position)
            if problem is None and isinstance(header, BatchHeader):
                self._accept(header, position)
                position += header.size_in_bytes
                continue
            if isinstance(header, BatchHeader) and self._is_behind_a_gap(header, position):
                self.lose(position, position, header.base_offset, f"{problem}")
                self._accept(header, position)
                position += header.size_in_bytes
                continue
            begin = self._withdraw() if self._is_misplaced(header) else None
            following = self._go_on(header, position)
            self.lose(position if begin is None else begin, following, self._claim.end, f"{problem}")
            position = following
        if self._claim.dense and self.floor + 1 < self._claim.end and (begin := self._withdraw()) is not None:
            reason = f"batch at position {begin}: no batch after it confirms its base offset"
            self.lose(begin, position, self._claim.end, reason)
        self._close(position)

    def salvaged(self) -> Salvage:
        return Salvage(tuple(self._stretches), tuple(self.damages))

    def object_crc32c(self) -> int:
        return self._window.object_crc32c()

    def lose(self, position: int, end_position: int, end: int, reason: str) -> None:
        """Add a damaged place; join it with the place before if they touch."""
        self._close(position)
        if self.damages and self.damages[-1].end_position == position and self.damages[-1].start > self.floor:
            last = self.damages.pop()
            self.damages.append(Damage(last.position, end_position, last.start, end, last.reason))
        else:
            self.damages.append(Damage(position, end_position, self.floor + 1, end, reason))

    def lose_rest(self, reason: str) -> None:
        """Add the offsets that should follow the last batch, unless they are in a damaged place already."""
        end, size = self._claim.end, self._claim.size
        if self.floor + 1 < end and not (self.damages and self.damages[-1].end == end):
            reached = f"its batches end at offset {self.floor + 1}, position {size}"
            self.lose(size, size, end, f"{reached}; it covers offsets up to {end}{reason}")

    def _accept(self, header: BatchHeader, position: int) -> None:
        if not self._marks:
            self._begun = position
            if self.damages:  # the damage ends here
                last = self.damages.pop()
                end = max(header.base_offset, last.start)
                self.damages.append(Damage(last.position, last.end_position, last.start, end, last.reason))
        expected = self._claim.dense and header.base_offset == self.floor + 1 and (bool(self._marks) or not position)
        self._doubtful = None if expected else (position, self.floor, header.record_count or 0)
        if not self._marks or position - self._marks[-1][1] >= MARK_BYTES:
            self._marks.append((header.base_offset, position))
        self.floor = max(header.last_offset, self.floor)
        self.records += header.record_count or 0

    def _is_misplaced(self, header: BatchHeader | Trailing | CorruptData) -> bool:
        """Return whether a header contradicts the batch before, or does not confirm it in a dense segment."""
        if not isinstance(header, BatchHeader):
            return self._claim.dense
        return header.base_offset <= self.floor or (self._claim.dense and header.base_offset != self.floor + 1)

    def _is_behind_a_gap(self, header: BatchHeader, position: int) -> bool:
        """Return whether bytes are missing before a batch that is intact otherwise.

        In a dense segment its base offset is right if the next batch begins where this one ends.
        """
        behind = position + header.size_in_bytes
        return (
            self._claim.dense
            and self._strict
            and not self._doubtful
            and self._at.fits(header, self.floor)
            and self._at.crc(header, position) == header.crc
            and self._at.boundary(behind, header.last_offset) == header.last_offset + 1
        )

    def _withdraw(self) -> int | None:
        """Reject the batch before a misplaced one, because either may have the wrong base offset.

        Returns:
            its position; None if no batch precedes, or if its base offset is certain.
        """
        if not (self._strict and self._marks and self._doubtful):
            return None
        position, self.floor, count = self._doubtful
        self.records -= count
        self._doubtful = None
        if self._marks[-1][1] == position:
            self._marks.pop()
        return position

    def _close(self, position: int) -> None:
        """End the current stretch, if any."""
        if self._marks:
            self._stretches.append(Stretch(self._begun, position, tuple(self._marks), self.floor + 1))
            self._marks = []

    def _is_tail(self, header: BatchHeader | Trailing | CorruptData, position: int) -> bool:
        """Return whether a segment may end like this: with zeros, or with a part of a batch after its coverage."""
        if header is Trailing.ZEROS:
            return self._window.is_zero_from(position)
        return header is Trailing.TORN and self.floor + 1 >= self._claim.end

    def _problem(self, header: BatchHeader | Trailing | CorruptData, position: int) -> str | None:
        """Return what is wrong at a position; None for an intact batch with a valid offset."""
        if isinstance(header, CorruptData):
            return str(header)
        if header is Trailing.ZEROS:
            return f"zero bytes at position {position}, and other bytes after them"
        if isinstance(header, Trailing):
            return f"torn batch at position {position}: its length is greater than the rest of the object"
        named = f"batch of base offset {header.base_offset} at position {position}"
        crc = self._at.crc(header, position)
        if crc != header.crc:
            return f"{named}: CRC {crc:08x}; its header has {header.crc:08x}"
        if not follows(header, self.floor):
            return f"{named}: the batches before it end at {self.floor}"
        if header.last_offset >= self._claim.end:
            return f"{named}: its last offset is {header.last_offset}, the segment's is {self._claim.end - 1}"
        if not self._strict:
            return None
        if not self._at.fits(header, self.floor):
            return f"{named}: leader epoch {header.leader_epoch} is not the one of these offsets"
        if self._claim.dense and header.base_offset != self.floor + 1 and (self._marks or not position):
            return f"{named}: offset {self.floor + 1} is expected"
        return None

    def _go_on(self, header: BatchHeader | Trailing | CorruptData, position: int) -> int:
        """Return where the pass continues after a damaged batch: after its length, or at the next batch found."""
        size = self._claim.size
        head = self._window.hold(position, HEADER_SIZE)
        frame = frame_size(head, 0, size - position)
        by_length = None
        if frame is not None and head[MAGIC_POSITION] <= HIGHEST_MAGIC:
            following = self._at.boundary(position + frame, self.floor)
            if following is not None and self._at.is_followed(position + frame, self.floor):
                by_length = position + frame
                if not (self._claim.dense and isinstance(header, BatchHeader)):
                    return by_length
                count = header.last_offset - header.base_offset + 1
                if following in {header.last_offset + 1, self.floor + 1 + count}:
                    return by_length
        found = self._at.search(position + 1, size if by_length is None else by_length, self.floor)
        if found is not None:
            return found
        return size if by_length is None else by_length
