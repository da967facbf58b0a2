"""Damage of copies of segments, and the copies to read instead.

A `DamageMap` makes a reader tolerate damage. It checks each object once before any row of it is returned
(`ts_reader.decode.salvage`). Where a copy is damaged, other copies of the same offsets are read instead, including the
plan's spares. Offsets that no copy holds intact are a `Corruption`.

A batch with a correct CRC can still be undecodable. The reader finds that out when it decodes the batch, and adds it.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

import structlog

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import CHUNK_BYTES, ResumableReader, translate_not_found
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.small_objects import read_index
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import read_offset_index
from ts_common.store.contract import ObjectStore
from ts_reader.decode.batch_boundaries import Claim
from ts_reader.decode.salvage import Damage, Salvage, Stretch, salvage_segment

_MAX_SALVAGES: Final = 64  # kept in memory; a task reads its segments in order

log = structlog.get_logger("ts_reader")


@dataclass(frozen=True, slots=True)
class Corruption:
    """Offsets of a query that no copy holds intact.

    Attributes:
        copy: a copy that covers them.
        position: of the first damaged byte in its object.
        end_position: the position after the last damaged byte.
        start: the first offset that may be lost.
        end: the offset after the last one that may be lost.
        reason: a sentence without its subject.
    """

    copy: SegmentCopy
    position: int
    end_position: int
    start: int
    end: int
    reason: str


class DamageMap:
    """The damage of the copies that one reader reads; not thread-safe.

    Args:
        silent: whether another read of the same ranges has logged the damage already.
    """

    def __init__(self, store: ObjectStore, *, silent: bool = False) -> None:
        self._store = store
        self._silent = silent
        self._salvages: dict[str, Salvage] = {}
        self._undecodable: dict[str, list[Damage]] = {}
        self._logged: set[tuple[str, int, int]] = set()

    def steps(self, part: ReadRange) -> Iterator[ReadRange | Corruption]:
        """Cut a range at damage: yield ranges with the copies to read, and offsets that no copy holds.

        Raises:
            ObjectNotFound: retention deleted an object since the query was planned.
            CorruptData: an object was replaced while it was read.
            StoreUnavailable, AccessDenied: from the store.
        """
        if not any(self._damages(copy, part.start, part.end) for copy in part.copies):
            yield part
            return
        copies = [*(ReadRange(part.start, part.end, (copy,)) for copy in part.copies), *part.spares]
        steps: list[ReadRange | Corruption] = []
        for start, end in pairwise(self._cuts(part, copies)):
            step = self._step(part, copies, start, end)
            last = steps[-1] if steps else None
            if last is not None and replace(last, start=start, end=end) == step:
                steps[-1] = replace(last, end=end)
            else:
                steps.append(step)
        for each in steps:
            if isinstance(each, Corruption):
                self._warn(each, "corrupt_batches_skipped", key=each.copy.key)
            elif each.copies != part.copies:
                missing = self._corruption(part, each.start, each.end)
                stand_in = ", ".join(copy.key for copy in each.copies)
                self._warn(missing, "corrupt_batches_replaced", key=missing.copy.key, read_instead=stand_in)
            yield each

    def _cuts(self, part: ReadRange, copies: Sequence[ReadRange]) -> list[int]:
        """Return the offsets of a range where copies or damage begin or end, ascending."""
        cuts = {part.start, part.end}
        for one in copies:
            cuts |= {one.start, one.end}
            for damage in self._damages(one.copies[0], part.start, part.end):
                cuts |= {damage.start, damage.end}
        return sorted(cut for cut in cuts if part.start <= cut <= part.end)

    def stretches(self, copy: SegmentCopy, start: int, end: int) -> Iterator[Stretch]:
        """Yield the intact stretches of a copy that may hold offsets in `[start, end)`.

        Raises:
            ObjectNotFound, CorruptData, StoreUnavailable, AccessDenied: as `steps`.
        """
        before = copy.base  # a wrapper of magic 0 or 1 has its last offset only: the stretch before shows its first
        for stretch in self._salvage(copy).stretches:
            if before < end and stretch.end_offset > start:
                yield from self._decodable(copy, stretch)
            before = stretch.end_offset

    def _decodable(self, copy: SegmentCopy, stretch: Stretch) -> Iterator[Stretch]:
        """Yield the parts of a stretch between batches that cannot be decoded."""
        for damage in sorted(self._undecodable.get(copy.key, ()), key=lambda damage: damage.position):
            if stretch.start <= damage.position < stretch.end:
                marks = tuple(mark for mark in stretch.marks if mark[1] < damage.position)
                if marks:
                    yield replace(stretch, end=damage.position, marks=marks, end_offset=damage.start)
                behind = tuple(mark for mark in stretch.marks if mark[1] >= damage.end_position)
                start = (damage.end, damage.end_position)
                stretch = replace(stretch, start=damage.end_position, marks=(start, *behind))
        if stretch.start < stretch.end:
            yield stretch

    def add(self, copy: SegmentCopy, damage: Damage) -> None:
        """Record a batch with a correct CRC that cannot be decoded.

        Raises:
            CorruptData: the map contains it already, so another attempt would fail in the same way.
        """
        known = self._undecodable.setdefault(copy.key, [])
        if damage in known:
            raise CorruptData(f"{copy.key} in {self._store.location}: {damage.reason}")
        known.append(damage)

    def _step(self, part: ReadRange, copies: Sequence[ReadRange], start: int, end: int) -> ReadRange | Corruption:
        """Return what to read of a range where each copy is either all intact or all damaged."""
        if not any(self._damages(copy, start, end) for copy in part.copies):
            return ReadRange(start, end, part.copies, before=part.before)
        covering = [one.copies[0] for one in copies if one.start <= start and end <= one.end]
        intact = tuple(copy for copy in covering if not self._damages(copy, start, end))
        return ReadRange(start, end, intact, before=part.before) if intact else self._corruption(part, start, end)

    def _corruption(self, part: ReadRange, start: int, end: int) -> Corruption:
        """Return the damage of the first of a range's copies that is damaged there."""
        copy, damage = next((copy, damages[0]) for copy in part.copies if (damages := self._damages(copy, start, end)))
        return Corruption(copy, damage.position, damage.end_position, start, end, damage.reason)

    def _damages(self, copy: SegmentCopy, start: int, end: int) -> list[Damage]:
        known = (*self._salvage(copy).damages, *self._undecodable.get(copy.key, ()))
        return [damage for damage in known if damage.start < end and damage.end > start]

    def _salvage(self, copy: SegmentCopy) -> Salvage:
        if copy.key not in self._salvages:
            with (
                translate_not_found(self._store, copy.key),
                ObjectSource(self._store, copy, copy.segment.size) as source,
            ):
                salvage = salvage_segment(source, self._claim(copy))
            self._salvages[copy.key] = salvage
            if len(self._salvages) > _MAX_SALVAGES:
                self._salvages.pop(next(iter(self._salvages)))
            return salvage
        return self._salvages[copy.key]

    def _claim(self, copy: SegmentCopy) -> Claim:
        metadata = copy.metadata
        anchors: frozenset[int] = frozenset()
        if ".index" in copy.segment.suffixes:
            data = read_index(self._store, copy.keys, copy.segment.name, ".index")
            if data is not None:
                anchors = frozenset(position for _, position in read_offset_index(data))
        return Claim(
            size=copy.segment.size,
            base=copy.base,
            end=copy.end,
            crc32c=None if metadata.rebuilt else known_crc32c(metadata),
            epochs=None if metadata.rebuilt else metadata.epochs,
            records=metadata.records,
            dense=copy.dense and not metadata.rebuilt,
            was_damaged=bool(metadata.corruptions),
            anchors=anchors,
        )

    def _warn(self, missing: Corruption, event: str, **facts: str) -> None:
        """Log a damaged place once."""
        place = (missing.copy.key, missing.position, missing.start)
        if self._silent or place in self._logged:
            return
        self._logged.add(place)
        log.warning(
            event,
            **facts,
            location=self._store.location,
            partition=str(missing.copy.keys.partition),
            position=missing.position,
            end_position=missing.end_position,
            first_offset=missing.start,
            last_offset=missing.end - 1,
            reason=missing.reason,
        )


class ObjectSource:
    """A copy's bytes up to an end; the connection stays open while reads are sequential.

    Attributes:
        was_replaced: whether the object was replaced while it was read.
    """

    def __init__(self, store: ObjectStore, copy: SegmentCopy, end: int) -> None:
        self._store = store
        self._copy = copy
        self._end = end
        self._open = ExitStack()
        self._reader: ResumableReader | None = None
        self._position = -1
        self.was_replaced = False

    def read(self, position: int, count: int) -> bytes:
        """Return at most `count` bytes from a position on.

        Raises:
            CorruptData: the object was replaced, or is shorter than its end.
            ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        if self._reader is None or position != self._position:
            self._open.close()
            self._reader = self._open.enter_context(self._copy.reader(self._store, position, self._end))
            self._position = position
        try:
            data = self._reader.read(count)
        except CorruptData:
            self.was_replaced = True
            raise
        if not data:
            self.was_replaced = True
            raise CorruptData(f"{self._copy.key}: ends at byte {position}; its listed size is {self._end}")
        self._position += len(data)
        return data

    def chunks(self, position: int) -> Generator[bytes, None, None]:
        """Yield all bytes from a position on."""
        while position < self._end:
            data = self.read(position, CHUNK_BYTES)
            position += len(data)
            yield data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
