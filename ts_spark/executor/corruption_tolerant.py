"""Reading what is whole of damaged segments, for the modes in which a corrupt batch does not end a query.

Each object is read twice: once to see what of it can be believed (`ts_common.decode.salvage`), before any row of it
is shown, and once for its rows. Where a copy is damaged, the others that answer for the same offsets are read instead,
those too that the plan did not need; only what none of them holds whole is corrupt to the query.

A batch with the right CRC can still be undecodable. That shows when its rows are due: the place is noted, and reading
goes on from the last row that was handed on.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

import pyarrow as pa
import structlog

from ts_common.archive.catalog import SegmentCopy
from ts_common.archive.fetch import CHUNK_BYTES, ResumableReader, explained_where_gone
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.stored_indexes import read_index
from ts_common.decode.arrow import projection_of, to_arrow
from ts_common.decode.batch_boundaries import Claim
from ts_common.decode.columns import BufferPool, RecordColumns
from ts_common.decode.salvage import Damage, Salvage, Stretch, survey_segment
from ts_common.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import AbortedTransaction, read_offset_index
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.reading.rows import union
from ts_common.store.contract import ByteRange, ObjectStore

_OFFSET: Final = "offset"
_MOST_SURVEYS: Final = 64  # kept; a task goes over its segments in order


@dataclass(frozen=True, slots=True)
class Corruption:
    """Offsets of a query that no copy holds whole.

    Attributes:
        copy: one that should.
        position: in its object, of the first byte that is not believed.
        end_position: behind the last one.
        start: the first offset that may be lost.
        end: the offset after the last one that may be.
        reason: a sentence without its subject.
    """

    copy: SegmentCopy
    position: int
    end_position: int
    start: int
    end: int
    reason: str


class TolerantReader:
    """Reads ranges as far as they are whole; not for several threads.

    Args:
        store: where the segments lie.
        names: the columns that are wanted.
        aborted: transactions whose records are not shown.
        silent: whether somebody else has told of the damages already.
        limit: how much memory one record batch may take.
    """

    def __init__(
        self,
        store: ObjectStore,
        names: Sequence[str],
        aborted: Sequence[AbortedTransaction] = (),
        *,
        silent: bool = False,
        limit: BatchLimit = DEFAULT_LIMIT,
    ) -> None:
        self._limit = limit
        self._store = store
        self._names = list(names)
        self._read_names = self._names if _OFFSET in names else [*names, _OFFSET]
        self._aborted = aborted
        self._projection = projection_of(names)
        self._pool = BufferPool(self._projection, MAX_ROWS, MAX_BYTES)
        self._surveys: dict[str, Salvage] = {}
        self._undecodable: dict[str, list[Damage]] = {}
        self._told: set[tuple[str, int, int]] = set()
        self._tell: Callable[..., object] = (
            (lambda *_, **__: None) if silent else structlog.get_logger("ts_spark").warning
        )

    def read(self, part: ReadRange) -> Iterator[pa.RecordBatch | Corruption]:
        """The rows of a range, and what is missing of it, in the order of offsets.

        Raises:
            ObjectNotFound: retention took an object since the query was planned.
            CorruptData: an object was replaced while it was read.
            BatchTooLarge: a batch that is whole needs more memory than the limit allows: it is never passed over.
            StoreUnavailable, AccessDenied: the store's.
        """
        position = part.start
        while position < part.end:
            try:
                for step in self._steps(replace(part, start=position)):
                    if isinstance(step, Corruption):
                        self._say(step, "corrupt_batches_skipped", key=step.copy.key)
                        yield step
                    else:
                        self._say_who_stands_in(part, step)
                        for rows in self._rows(step):
                            position = int(rows.column(_OFFSET)[-1].as_py()) + 1
                            yield rows.select(self._names)
                    position = step.end
            except _Undecodable as found:
                known = self._undecodable.setdefault(found.copy.key, [])
                if found.damage in known:  # nothing would change from here on
                    raise CorruptData(f"{found.copy.key} in {self._store.location}: {found.damage.reason}") from found
                known.append(found.damage)

    def _steps(self, part: ReadRange) -> Iterator[ReadRange | Corruption]:
        """A range cut where copies are damaged: what to read of whom, and what nobody holds."""
        damaged = any(self._damages(copy, part.start, part.end) for copy in part.copies)
        if not damaged:
            yield part
            return
        copies = [*(ReadRange(part.start, part.end, (copy,)) for copy in part.copies), *part.spares]
        cuts = {part.start, part.end}
        for one in copies:
            cuts |= {one.start, one.end}
            for damage in self._damages(one.copies[0], part.start, part.end):
                cuts |= {damage.start, damage.end}
        inside = sorted(cut for cut in cuts if part.start <= cut <= part.end)
        steps: list[ReadRange | Corruption] = []
        for start, end in pairwise(inside):
            step = self._step(part, copies, start, end)
            last = steps[-1] if steps else None
            if last is not None and replace(last, start=start, end=end) == step:
                steps[-1] = replace(last, end=end)
            else:
                steps.append(step)
        yield from steps

    def _step(self, part: ReadRange, copies: Sequence[ReadRange], start: int, end: int) -> ReadRange | Corruption:
        """What to do for offsets in which each copy is either whole or damaged."""
        if not any(self._damages(copy, start, end) for copy in part.copies):
            return ReadRange(start, end, part.copies)
        there = [one.copies[0] for one in copies if one.start <= start and end <= one.end]
        whole = tuple(copy for copy in there if not self._damages(copy, start, end))
        return ReadRange(start, end, whole) if whole else self._corruption(part, start, end)

    def _corruption(self, part: ReadRange, start: int, end: int) -> Corruption:
        """Of the first of a range's copies that is damaged there."""
        copy, damage = next((copy, damages[0]) for copy in part.copies if (damages := self._damages(copy, start, end)))
        return Corruption(copy, damage.position, damage.end_position, start, end, damage.reason)

    def _damages(self, copy: SegmentCopy, start: int, end: int) -> list[Damage]:
        known = (*self._survey(copy).damages, *self._undecodable.get(copy.key, ()))
        return [damage for damage in known if damage.start < end and damage.end > start]

    def _rows(self, step: ReadRange) -> Iterator[pa.RecordBatch]:
        """Rows with their offsets."""
        sources = [self._rows_of(copy, step.start, step.end) for copy in step.copies]
        return sources[0] if len(sources) == 1 else union(sources, self._read_names)

    def _rows_of(self, copy: SegmentCopy, start: int, end: int) -> Iterator[pa.RecordBatch]:
        partition = copy.keys.partition
        for columns in self._decode(copy, start, end):
            yield to_arrow(columns, partition.topic, partition.partition, self._read_names)

    def _decode(self, copy: SegmentCopy, start: int, end: int) -> Iterator[RecordColumns]:
        before = copy.base  # a wrapper of an older magic names its last offset: where it begins, the one before says
        for stretch in self._survey(copy).stretches:
            if before < end and stretch.end_offset > start:
                yield from self._decode_stretch(copy, stretch, start, end)
            before = stretch.end_offset

    def _decode_stretch(self, copy: SegmentCopy, stretch: Stretch, start: int, end: int) -> Iterator[RecordColumns]:
        position = stretch.position_of(start)
        decoder = SegmentDecoder(
            self._projection,
            start,
            end,
            size=stretch.end - position,
            first_position=position,
            pool=self._pool,
            aborted=self._aborted,
            limit=self._limit,
        )
        with explained_where_gone(self._store, copy.key), _Source(self._store, copy.key, stretch.end) as source:
            try:
                with closing(source.chunks(position)) as chunks:
                    yield from decoder.decode(chunks)
            except BatchTooLarge as error:
                told = f"{copy.keys.partition}: {copy.key} in {self._store.location}: {error}"
                raise BatchTooLarge(told) from error
            except CorruptData as error:
                if source.was_replaced:
                    raise
                place = decoder.valid_bytes
                head, _ = self._store.get(copy.key, ByteRange(place, min(place + HEADER_SIZE, stretch.end)))
                header = parse_header(head, 0, stretch.end - place, place)
                if not isinstance(header, BatchHeader):  # the survey met one there
                    raise
                first = min(decoder.position, header.last_offset)
                damage = Damage(place, place + header.size_in_bytes, first, header.last_offset + 1, str(error))
                raise _Undecodable(copy, damage) from error

    def _survey(self, copy: SegmentCopy) -> Salvage:
        """What of a copy can be believed."""
        if copy.key not in self._surveys:
            with (
                explained_where_gone(self._store, copy.key),
                _Source(self._store, copy.key, copy.segment.size) as source,
            ):
                survey = survey_segment(source, self._claim(copy))
            self._surveys[copy.key] = survey
            if len(self._surveys) > _MOST_SURVEYS:
                self._surveys.pop(next(iter(self._surveys)))
            return survey
        return self._surveys[copy.key]

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

    def _say_who_stands_in(self, part: ReadRange, step: ReadRange) -> None:
        if step.copies != part.copies:
            missing = self._corruption(part, step.start, step.end)
            stand_in = ", ".join(copy.key for copy in step.copies)
            self._say(missing, "corrupt_batches_replaced", key=missing.copy.key, read_instead=stand_in)

    def _say(self, missing: Corruption, event: str, **facts: str) -> None:
        """Warn of a place, once."""
        place = (missing.copy.key, missing.position, missing.start)
        if place in self._told:
            return
        self._told.add(place)
        self._tell(
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


class _Undecodable(Exception):
    """A batch that the survey believed cannot be decoded; never leaves this module."""

    def __init__(self, copy: SegmentCopy, damage: Damage) -> None:
        self.copy = copy
        self.damage = damage
        super().__init__(damage.reason)


class _Source:
    """An object's bytes up to an end; the connection stays open for as long as they are read one after the other.

    Attributes:
        was_replaced: whether it turned out to be another object while it was read.
    """

    def __init__(self, store: ObjectStore, key: str, end: int) -> None:
        self._store = store
        self._key = key
        self._end = end
        self._open = ExitStack()
        self._reader: ResumableReader | None = None
        self._position = -1
        self.was_replaced = False

    def read(self, position: int, count: int) -> bytes:
        if self._reader is None or position != self._position:
            self._open.close()
            self._reader = self._open.enter_context(ResumableReader(self._store, self._key, position, self._end))
            self._position = position
        try:
            data = self._reader.read(count)
        except CorruptData:
            self.was_replaced = True
            raise
        if not data:
            self.was_replaced = True
            raise CorruptData(f"{self._key}: ends at byte {position}, its listing said {self._end}")
        self._position += len(data)
        return data

    def chunks(self, position: int) -> Generator[bytes, None, None]:
        """All bytes from a position on."""
        while position < self._end:
            data = self.read(position, CHUNK_BYTES)
            position += len(data)
            yield data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
