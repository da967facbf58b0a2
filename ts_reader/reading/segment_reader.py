"""The one reader of segments: records of a copy in a range of offsets, as columns.

If a range begins inside a segment, reading begins at a position from the `.index`. A wrong index costs time, never
rows. A segment whose records can have other offsets than their headers (`SegmentCopy.contradicted`) is decoded from its
first batch on, as a consumer reads it. Fetching ends with the range. The reader checks the CRC of each batch, and the
object's CRC if it reads the whole object, because a batch's CRC does not cover base offset, length and leader epoch. At
the end the decoder must have reached the offset that the plan promised. Coverage may end after the last batch, if
compaction removed the tail. A truncated object looks the same, and only the object's CRC distinguishes the two.

Damage ends the read, unless the reader has a `DamageMap`: then it reads the intact stretches of a copy.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

import structlog
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.fetch import CHUNK_BYTES, one_ahead, translate_not_found
from ts_common.archive.segment_inspection import scan_object
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.small_objects import read_index
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, Trailing, follows, parse_header
from ts_common.log_format.index_files import AbortedTransaction, position_for_offset, read_offset_index
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.logs import is_first
from ts_common.store.contract import ObjectStore
from ts_reader.decode.batch_summary import BatchObserver
from ts_reader.decode.columns import BufferPool, Projection, RecordColumns
from ts_reader.decode.memory import HEAP, Memory
from ts_reader.decode.salvage import Damage, Stretch
from ts_reader.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder
from ts_reader.reading.damage_map import DamageMap, ObjectSource

_PARTIAL_CHUNK_BYTES = 1 << 20  # of a range that ends before its segment: most of the last chunk is unused
_LONG_BYTES = 16 << 20
WRONG_OFFSETS = "producer_wrote_wrong_offsets"

log = structlog.get_logger("ts_reader")


class UndecodableBatch(Exception):
    """A batch with a correct CRC cannot be decoded; the `DamageMap` has it now."""


class SegmentReader:
    """Reads copies of segments of one store with one projection; not thread-safe.

    Args:
        aborted: transactions whose records are left out.
        erased: offsets whose records are left out, as of `PartitionView.erased`.
        max_rows: of one result; fewer than a scan wants, if the caller may stop early.
        way_out: a sentence for the error of a corrupt object: how to read the rest.
        damage_map: of the copies; None if damage ends the read.
        scan: identifies the scan, which logs a producer's mistake once for each topic.
        summary: receives the batches that headers describe; their records are not yielded.
    """

    def __init__(
        self,
        store: ObjectStore,
        projection: Projection,
        aborted: Sequence[AbortedTransaction] = (),
        *,
        erased: ErasedOffsets,
        max_rows: int = MAX_ROWS,
        way_out: str = "",
        limit: BatchLimit = DEFAULT_LIMIT,
        damage_map: DamageMap | None = None,
        memory: Memory = HEAP,
        scan: str = "",
        summary: BatchObserver | None = None,
    ) -> None:
        self._summary = summary
        self._scan = scan
        self._limit = limit
        self._store = store
        self._projection = projection
        self._aborted = aborted
        self._erased = erased
        self._max_rows = max_rows
        self._way_out = way_out
        self._damage_map = damage_map
        self._pool = BufferPool(projection, max_rows, MAX_BYTES, memory)
        self._within: set[str] = set()  # keys of copies that proved to have no record at or above their end

    def read(
        self,
        copy: SegmentCopy,
        start: int,
        end: int,
        *,
        chunk_bytes: int | None = None,
        before: SegmentCopy | None = None,
    ) -> Iterator[RecordColumns]:
        """Yield the records of a copy in `[start, end)`; with a damage map, those of its intact stretches.

        Args:
            start: first offset.
            end: the offset after the last.
            chunk_bytes: of one fetch, for a caller that may stop early; None for the size that suits a scan.
            before: the copy in front of it, if its records can be in `[start, end)` (`ReadRange.before`).

        Raises:
            CorruptData: naming the object and the place; with a damage map only if the object was replaced meanwhile.
            UndecodableBatch: only with a damage map.
            BatchTooLarge: naming the object, the place and the option that allows more. A damage map never skips it.
            ObjectNotFound: retention deleted the object since the query was planned.
            StoreUnavailable, AccessDenied: from the store.
        """
        if before is not None and before.key not in self._within:
            following = yield from self._read_copy(before, start, end, None)
            if following == start:
                self._within.add(before.key)
            start = following
        if start < end:
            following = yield from self._read_copy(copy, start, end, chunk_bytes)
            if copy.may_overrun and end >= copy.end >= following:
                self._within.add(copy.key)

    def _read_copy(
        self, copy: SegmentCopy, start: int, end: int, chunk_bytes: int | None
    ) -> Generator[RecordColumns, None, int]:
        """Yield the records of one copy; return the least offset that a record after them is shown with."""
        try:
            with translate_not_found(self._store, copy.key):
                if self._damage_map is None:
                    return (yield from self._read(copy, start, end, chunk_bytes))
                for stretch in self._damage_map.stretches(copy, copy.base if copy.contradicted else start, end):
                    start = yield from self._read_stretch(self._damage_map, copy, stretch, start, end)
                return start
        except CorruptData as error:
            if self._damage_map is not None:
                raise
            where = f"{copy.keys.partition}: {copy.key} in {self._store.location}: {error}"
            raise CorruptData(f"{where}. {self._way_out}" if self._way_out else where) from error
        except BatchTooLarge as error:
            raise BatchTooLarge(f"{copy.keys.partition}: {copy.key} in {self._store.location}: {error}") from error

    def _read_stretch(
        self, damage_map: DamageMap, copy: SegmentCopy, stretch: Stretch, start: int, end: int
    ) -> Generator[RecordColumns, None, int]:
        """Yield the records of a stretch; return the least offset that a record after it is shown with."""
        position = stretch.start if copy.contradicted else stretch.position_of(start)
        decoder = self._decoder(copy, start, end, stretch.end - position, position)
        with ObjectSource(self._store, copy, stretch.end) as source:
            try:
                with closing(source.chunks(position)) as chunks:
                    yield from decoder.decode(chunks)
            except CorruptData as error:
                if source.was_replaced:
                    raise
                place = decoder.valid_bytes
                header = self._header(copy, place, stretch.end)
                if header is None:  # the salvage found a batch there
                    raise
                first = min(decoder.position, header.last_offset)
                damage = Damage(place, place + header.size_in_bytes, first, header.last_offset + 1, str(error))
                damage_map.add(copy, damage)
                raise UndecodableBatch from error
        self._report(copy, decoder)
        return decoder.next_offset

    def _decoder(self, copy: SegmentCopy, start: int, end: int, size: int, first_position: int) -> SegmentDecoder:
        return SegmentDecoder(
            self._projection,
            start,
            end,
            self._max_rows,
            size=size,
            first_position=first_position,
            pool=self._pool,
            aborted=self._aborted,
            erased=self._erased.between(start, end),
            limit=self._limit,
            summary=self._summary,
            contradicted=copy.contradicted,
        )

    def _read(
        self, copy: SegmentCopy, start: int, end: int, chunk_bytes: int | None
    ) -> Generator[RecordColumns, None, int]:
        size = copy.segment.size
        usual = CHUNK_BYTES if end >= copy.end else _PARTIAL_CHUNK_BYTES
        body = self._body(copy, start, chunk_bytes or usual)
        position = body.position
        decoder = self._decoder(copy, start, end, size - position, position)
        chunks_of = one_ahead(body.chunks()) if chunk_bytes is None and _is_long(copy, start, end) else body.chunks()
        with closing(body), closing(chunks_of) as chunks:
            yield from decoder.decode(chunks)
            self._report(copy, decoder)
            lacks = decoder.position < min(end, copy.end)
            if decoder.trailing is None and not (position == 0 and end >= copy.end):
                if lacks:
                    self._check_early_end(copy, decoder, min(end, copy.end))
                return decoder.next_offset  # the end was reached, and the rest of the object is not wanted
            for _ in chunks:  # the object's CRC covers the bytes after the last batch too
                pass
        if body.position != size:
            raise CorruptData(f"the object ends at byte {body.position}; its listed size is {size}")
        if decoder.trailing is Trailing.TORN and lacks:
            raise CorruptData(f"torn batch at position {decoder.valid_bytes}, offset {decoder.position}")
        if position == 0:
            _check_crc(copy, body.crc32c)
        if lacks:
            self._explain_shortfall(copy, decoder, position)
        return decoder.next_offset

    def _check_early_end(self, copy: SegmentCopy, decoder: SegmentDecoder, end: int) -> None:
        """Check a range whose batches end before it does."""
        if copy.dense and not decoder.contradicted:  # a changed base offset looks like the end
            raise CorruptData(
                f"offsets {decoder.position} to {end - 1} are missing after position {decoder.valid_bytes}, although "
                "every offset has its record"
            )
        self._confirm_end(copy, decoder.valid_bytes)

    def _confirm_end(self, copy: SegmentCopy, position: int) -> None:
        """Check the base offset of the batch that ended a range.

        Compaction may have removed the offsets before it. Or its base offset, which its CRC does not cover, was
        changed: then the batch ends above the coverage, or the next batch does not follow it.
        """
        size = copy.segment.size
        here = self._header(copy, position, size)
        if here is None:
            return
        after = position + here.size_in_bytes
        behind = self._header(copy, after, size) if after < size else None
        if here.last_offset >= copy.end or (behind is not None and not follows(behind, here.last_offset)):
            raise CorruptData(
                f"the batch at position {position} has base offset {here.base_offset}, and "
                + (f"the next one has {behind.base_offset}" if behind else f"the segment ends at {copy.end}")
            )

    def _header(self, copy: SegmentCopy, position: int, end: int) -> BatchHeader | None:
        """Return the header at a position; None if no complete header is before `end`."""
        remaining = end - position
        if remaining < HEADER_SIZE and self._damage_map is None:
            return None
        head = copy.read(self._store, position, min(position + HEADER_SIZE, end))
        header = parse_header(head, 0, remaining, position)
        return header if isinstance(header, BatchHeader) else None

    def _explain_shortfall(self, copy: SegmentCopy, decoder: SegmentDecoder, position: int) -> None:
        """Raise unless compaction removed the tail: the batches end before the coverage."""
        expected = known_crc32c(copy.metadata)
        if not copy.dense and expected is not None:  # if the segment was read from its start, it was compared already
            whole = position == 0 or scan_object(self._store, copy.key, copy.segment.size).crc32c == expected
            if whole:
                return
        raise CorruptData(
            f"its batches end at offset {decoder.position}, position {decoder.valid_bytes}; it covers offsets "
            f"up to {copy.end}"
        )

    def _body(self, copy: SegmentCopy, start: int, chunk_bytes: int) -> "_Body":
        """Return the bytes from a batch at or before `start` on: by the index if its entry is valid, else all."""
        if position := self._indexed(copy, start):
            body = _Body(self._store, copy, position, chunk_bytes)
            if _may_begin(copy, start, body):
                return body
            body.close()
        return _Body(self._store, copy, 0, chunk_bytes)

    def _indexed(self, copy: SegmentCopy, start: int) -> int:
        """Return the position of a batch at or before `start` by the index; 0 without a usable one."""
        if start <= copy.base or ".index" not in copy.segment.suffixes or copy.contradicted:
            return 0
        data = read_index(self._store, copy.keys, copy.segment.name, ".index")
        position = 0 if data is None else position_for_offset(read_offset_index(data), copy.base, start)
        return position if 0 < position <= copy.segment.size - HEADER_SIZE else 0

    def _report(self, copy: SegmentCopy, decoder: SegmentDecoder) -> None:
        """Log once for each topic of a scan that a producer wrote wrong offsets into intact batches."""
        topic = copy.keys.partition.topic
        if decoder.contradicted and is_first((WRONG_OFFSETS, self._scan, topic)):
            log.warning(
                WRONG_OFFSETS,
                message="batches are intact, and their records have other offsets than their headers: "
                "the rows are those that Kafka's consumer shows",
                scan=self._scan,
                topic=topic,
                partition=copy.keys.partition.partition,
                key=copy.key,
                location=self._store.location,
            )


def _check_crc(copy: SegmentCopy, crc32c: int) -> None:
    expected = known_crc32c(copy.metadata)
    if expected is not None and crc32c != expected:
        raise CorruptData(f"CRC-32C {crc32c:08x}; its metadata has {expected:08x}")


def _may_begin(copy: SegmentCopy, start: int, body: "_Body") -> bool:
    """Return whether a read that begins at `start` can begin with the first batch of these bytes."""
    first = body.first()
    if len(first) < HEADER_SIZE:  # a truncated object
        return False
    try:
        header = parse_header(first, 0, copy.segment.size - body.position, body.position)
    except CorruptData:
        return False
    # A wrapper of magic 0 or 1 has its last offset only, so its records may begin before it. Where headers
    # contradict themselves, records of batches before can have the offsets from `start` on.
    if not isinstance(header, BatchHeader) or header.magic < 2 or header.contradicts_itself:
        return False
    return copy.base < header.base_offset <= start


def _is_long(copy: SegmentCopy, start: int, end: int) -> bool:
    """Return whether a thread pays, and one unused chunk is small against the range."""
    share = (min(end, copy.end) - max(start, copy.base)) / max(copy.end - copy.base, 1)
    return copy.segment.size * share >= _LONG_BYTES


class _Body:
    """The bytes of an object from a position on, by one request; counts them and computes their checksum.

    Attributes:
        position: of the next byte.
    """

    def __init__(self, store: ObjectStore, copy: SegmentCopy, position: int, chunk_bytes: int) -> None:
        self._reader = copy.reader(store, position)
        self._chunk_bytes = chunk_bytes
        self._start = position
        self._first = b""
        self.position = position
        self.crc32c = 0

    def first(self) -> bytes:
        """Return the first chunk, which `chunks` yields too."""
        self._first = self._first or self._reader.read(self._chunk_bytes)
        return self._first

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the chunks."""
        while chunk := self._first or self._reader.read(self._chunk_bytes):
            self._first = b""
            self.position += len(chunk)
            if self._start == 0:
                self.crc32c = crc32c(chunk, self.crc32c)
            yield chunk

    def close(self) -> None:
        """Release the connection."""
        self._reader.close()
