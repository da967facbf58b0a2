"""What of a damaged segment can be believed: stretches of whole batches, and the places between them.

A walk over the batches, each with its CRC, before any row of the segment is shown. Behind a batch that is damaged the
walk goes on where its length says, if a batch that fits begins there. Otherwise it looks, byte by byte, for the next
batch with the right CRC whose offsets fit, and from which the lengths lead to the segment's end or to a place where the
`.index` knows that a batch begins: a value may hold bytes that look like batches, and those lead nowhere. Where there
is none, the rest of the segment is damaged.

A batch's CRC leaves out its base offset, its leader epoch and its length; the object's CRC has them. An object whose
own CRC is wrong is walked again with what its metadata says: leader epochs, and whether every offset has its record.
Where the walk then finds nothing that would explain the wrong CRC, and offsets may be missing, any base offset can be
the wrong one, and nothing of the segment is believed.

What remains possible in an object with a wrong CRC: a second, hidden damage in the base offset of a batch, where
offsets are missing anyhow; and bytes that are a batch in full, with fitting offsets, at the very end of a batch whose
own length is damaged, or of an object that was cut off just there.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from ts_common.decode.batch_boundaries import HIGHEST_MAGIC, Boundaries, Claim
from ts_common.decode.window import Source, Window
from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, MAGIC_POSITION, BatchHeader, Trailing, frame_size

MARK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole batches, one behind the other.

    Attributes:
        start: of the first one.
        end: behind the last one.
        marks: (base offset, position) of the first batch, and of one about every `MARK_BYTES`.
        end_offset: the offset after its last one.
    """

    start: int
    end: int
    marks: tuple[tuple[int, int], ...]
    end_offset: int

    @property
    def base_offset(self) -> int:
        """Its first offset."""
        return self.marks[0][0]

    def position_of(self, offset: int) -> int:
        """Where a batch begins at or before the one that holds an offset."""
        return self.marks[max(bisect_right(self.marks, offset, key=lambda mark: mark[0]) - 1, 0)][1]


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that is not believed: one batch or several, or what should have been some.

    Attributes:
        position: of its first byte in the segment.
        end_position: behind its last byte.
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
    """What a walk found.

    Attributes:
        stretches: in order, their offsets ascending.
        damages: likewise; each between two stretches, before the first or behind the last.
    """

    stretches: tuple[Stretch, ...]
    damages: tuple[Damage, ...]


def survey_segment(source: Source, claim: Claim) -> Salvage:
    """Walk a segment; memory is bounded whatever its bytes say.

    Raises:
        what `source` raises.
    """
    first = _Walk(source, claim, strict=False)
    first.run()
    if claim.crc32c is None or first.object_crc32c() == claim.crc32c:
        if claim.dense or claim.crc32c is None:
            first.lose_rest("")
        return first.survey()
    found = f"CRC-32C of the object {first.object_crc32c():08x}, its metadata says {claim.crc32c:08x}"
    walk = _Walk(source, claim, strict=True)
    walk.run()
    is_cut = walk.floor + 1 < claim.end and claim.records is not None and walk.records < claim.records
    if claim.dense or is_cut or (walk.damages and not claim.was_damaged):
        walk.lose_rest(f" ({found})")
        return walk.survey()
    return Salvage((), (Damage(0, claim.size, claim.base, claim.end, f"{found}, and nothing in it says where"),))


class _Walk:
    """One pass over a segment.

    Attributes:
        floor: the last offset that was passed; one below the coverage at first.
        records: in the batches that were believed.
        damages: the places that are not.
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
            reason = f"batch at position {begin}: nothing behind it confirms its base offset"
            self.lose(begin, position, self._claim.end, reason)
        self._close(position)

    def survey(self) -> Salvage:
        return Salvage(tuple(self._stretches), tuple(self.damages))

    def object_crc32c(self) -> int:
        return self._window.object_crc32c()

    def lose(self, position: int, end_position: int, end: int, reason: str) -> None:
        """Note a place that is not believed; it grows where it touches the one before."""
        self._close(position)
        if self.damages and self.damages[-1].end_position == position and self.damages[-1].start > self.floor:
            last = self.damages.pop()
            self.damages.append(Damage(last.position, end_position, last.start, end, last.reason))
        else:
            self.damages.append(Damage(position, end_position, self.floor + 1, end, reason))

    def lose_rest(self, reason: str) -> None:
        """Note the offsets that should follow the last batch, unless they are known to be lost."""
        end, size = self._claim.end, self._claim.size
        if self.floor + 1 < end and not (self.damages and self.damages[-1].end == end):
            reached = f"its batches end at offset {self.floor + 1}, position {size}"
            self.lose(size, size, end, f"{reached}; it answers for offsets up to {end}{reason}")

    def _accept(self, header: BatchHeader, position: int) -> None:
        if not self._marks:
            self._begun = position
            if self.damages:  # it was lost up to here only
                last = self.damages.pop()
                end = max(header.base_offset, last.start)
                self.damages.append(Damage(last.position, last.end_position, last.start, end, last.reason))
        expected = self._claim.dense and header.base_offset == self.floor + 1 and (bool(self._marks) or not position)
        self._doubtful = None if expected else (position, self.floor, header.record_count or 0)
        if not self._marks or position - self._marks[-1][1] >= MARK_BYTES:
            self._marks.append((header.base_offset, position))
        self.floor = header.last_offset
        self.records += header.record_count or 0

    def _is_misplaced(self, header: BatchHeader | Trailing | CorruptData) -> bool:
        """Whether offsets contradict the batch before, or, where every offset has its record, do not confirm them."""
        if not isinstance(header, BatchHeader):
            return self._claim.dense
        return header.base_offset <= self.floor or (self._claim.dense and header.base_offset != self.floor + 1)

    def _is_behind_a_gap(self, header: BatchHeader, position: int) -> bool:
        """Whether bytes are missing in front of a batch, which is otherwise what it should be.

        Every offset has its record, and what stands behind it begins where it ends: so its base offset is right.
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
        """Believe the batch before a misplaced one no longer: either may have the wrong base offset.

        Returns:
            where it begins; None where there is none, or where its base offset is certain.
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
        """End the stretch that is being walked, if any."""
        if self._marks:
            self._stretches.append(Stretch(self._begun, position, tuple(self._marks), self.floor + 1))
            self._marks = []

    def _is_tail(self, header: BatchHeader | Trailing | CorruptData, position: int) -> bool:
        """Whether a segment may end so: with zeros, or with half a batch behind all that it answers for."""
        if header is Trailing.ZEROS:
            return self._window.is_zero_from(position)
        return header is Trailing.TORN and self.floor + 1 >= self._claim.end

    def _problem(self, header: BatchHeader | Trailing | CorruptData, position: int) -> str | None:
        """What is wrong with what stands at a position; None for a batch that is whole and in its place."""
        if isinstance(header, CorruptData):
            return str(header)
        if header is Trailing.ZEROS:
            return f"zero bytes at position {position}, and others behind them"
        if isinstance(header, Trailing):
            return f"torn batch at position {position}: fewer bytes are left than its length says"
        named = f"batch of base offset {header.base_offset} at position {position}"
        crc = self._at.crc(header, position)
        if crc != header.crc:
            return f"{named}: CRC {crc:08x}, its header says {header.crc:08x}"
        if header.base_offset <= self.floor:
            return f"{named}: the batches before it reach {self.floor} already"
        if header.last_offset >= self._claim.end:
            return f"{named}: its offsets go to {header.last_offset}, the segment's end at {self._claim.end - 1}"
        if not self._strict:
            return None
        if not self._at.fits(header, self.floor):
            return f"{named}: leader epoch {header.leader_epoch} is not the one of these offsets"
        if self._claim.dense and header.base_offset != self.floor + 1 and (self._marks or not position):
            return f"{named}: offset {self.floor + 1} is expected there"
        return None

    def _go_on(self, header: BatchHeader | Trailing | CorruptData, position: int) -> int:
        """Where the walk goes on behind a damaged batch: where its length says, or where another batch is found."""
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
