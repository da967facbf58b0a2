"""Reading one range of a partition's offsets from the store, as columns.

A range that begins inside a segment begins at a place that the `.index` names; an index that lies costs time, never
rows. Fetching ends as soon as the range does. Each batch's CRC is checked, and the object's where all of it is read
(a batch's CRC leaves out its base offset, length and leader epoch). At the end the decoder must have come as far as the
plan promised. Coverage may end beyond the last batch, where compaction removed the tail, and a truncated object looks
the same: the object's CRC tells the two apart.

Where several copies answer for a range, none of them whole (compaction went further in one than in the other), they
are read side by side and merged by offset.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from awscrt.checksums import crc32c

from ts_common.archive.catalog import SegmentCopy
from ts_common.archive.fetch import CHUNK_BYTES, ResumableReader, explained_where_gone, one_ahead
from ts_common.archive.segment_inspection import scan_object
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.stored_indexes import read_index
from ts_common.decode.columns import BufferPool, Projection, RecordColumns
from ts_common.decode.segment_decoder import MAX_BYTES, MAX_ROWS, SegmentDecoder
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, Trailing, parse_header
from ts_common.log_format.index_files import AbortedTransaction, position_for_offset, read_offset_index
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ByteRange, ObjectStore

_PARTIAL_CHUNK_BYTES = 1 << 20  # of a range that ends before its segment: the last chunk is mostly for nothing
_LONG_BYTES = 16 << 20


class SegmentReader:
    """Reads copies of segments of one store with one projection; not for several threads.

    Args:
        store: where they lie.
        projection: the fields that are wanted.
        aborted: transactions whose records are not shown.
        max_rows: of what is handed out at once; fewer than a scan wants, where the caller may stop early.
        way_out: a sentence for whoever meets a corrupt object: what the caller offers to read the rest.
        limit: how much memory one record batch may take.
    """

    def __init__(
        self,
        store: ObjectStore,
        projection: Projection,
        aborted: Sequence[AbortedTransaction] = (),
        *,
        max_rows: int = MAX_ROWS,
        way_out: str = "",
        limit: BatchLimit = DEFAULT_LIMIT,
    ) -> None:
        self._limit = limit
        self._store = store
        self._projection = projection
        self._aborted = aborted
        self._max_rows = max_rows
        self._way_out = way_out
        self._pool = BufferPool(projection, max_rows, MAX_BYTES)

    def read(
        self, copy: SegmentCopy, start: int, end: int, *, chunk_bytes: int | None = None
    ) -> Iterator[RecordColumns]:
        """The records of a copy in `[start, end)`.

        Args:
            copy: of a segment.
            start: first offset.
            end: the offset after the last.
            chunk_bytes: how much is fetched at a time, by a caller that may stop early; None for what suits a scan.

        Raises:
            CorruptData: naming the object and the place.
            BatchTooLarge: naming the same, and the option that allows more.
            ObjectNotFound: retention took it since the query was planned.
            StoreUnavailable, AccessDenied: the store's.
        """
        try:
            with explained_where_gone(self._store, copy.key):
                yield from self._read(copy, start, end, chunk_bytes)
        except CorruptData as error:
            told = f"{copy.keys.partition}: {copy.key} in {self._store.location}: {error}"
            raise CorruptData(f"{told}. {self._way_out}" if self._way_out else told) from error
        except BatchTooLarge as error:
            raise BatchTooLarge(f"{copy.keys.partition}: {copy.key} in {self._store.location}: {error}") from error

    def _read(self, copy: SegmentCopy, start: int, end: int, chunk_bytes: int | None) -> Iterator[RecordColumns]:
        size = copy.segment.size
        position = self._position(copy, start)
        decoder = SegmentDecoder(
            self._projection,
            start,
            end,
            self._max_rows,
            size=size - position,
            first_position=position,
            pool=self._pool,
            aborted=self._aborted,
            limit=self._limit,
        )
        usual = CHUNK_BYTES if end >= copy.end else _PARTIAL_CHUNK_BYTES
        body = _Body(self._store, copy, position, chunk_bytes or usual)
        chunks_of = one_ahead(body.chunks()) if chunk_bytes is None and _is_long(copy, start, end) else body.chunks()
        with closing(chunks_of) as chunks:
            yield from decoder.decode(chunks)
            if decoder.trailing is None and not (position == 0 and end >= copy.end):
                if copy.dense and decoder.position < min(end, copy.end):  # a changed base offset looks like the end
                    raise CorruptData(
                        f"offsets {decoder.position} to {min(end, copy.end) - 1} are missing behind position "
                        f"{decoder.valid_bytes}, although every offset has its record"
                    )
                if decoder.position < min(end, copy.end):
                    self._confirm_end(copy, decoder.valid_bytes)
                return  # the end was reached, and the rest of the object is not wanted
            for _ in chunks:  # what stands behind the last batch is part of the object's CRC too
                pass
        if body.position != size:
            raise CorruptData(f"the object ends at byte {body.position}, its listing said {size}")
        if decoder.trailing is Trailing.TORN and decoder.position < end:
            raise CorruptData(f"torn batch at position {decoder.valid_bytes}, offset {decoder.position}")
        expected = known_crc32c(copy.metadata)
        if expected is not None and position == 0 and body.crc32c != expected:
            raise CorruptData(f"CRC-32C {body.crc32c:08x}, its metadata says {expected:08x}")
        if decoder.position < min(end, copy.end):
            self._explain_shortfall(copy, decoder, position)

    def _confirm_end(self, copy: SegmentCopy, position: int) -> None:
        """The batch that ended a range lies behind offsets that compaction may have removed; or its base offset, which
        its CRC leaves out, was changed. Then it ends above the coverage, or the next one does not follow it.
        """
        size = copy.segment.size
        here = self._header(copy, position)
        if here is None:
            return
        behind = self._header(copy, position + here.size_in_bytes) if position + here.size_in_bytes < size else None
        if here.last_offset >= copy.end or (behind is not None and behind.base_offset <= here.last_offset):
            raise CorruptData(
                f"the batch at position {position} says that it begins at offset {here.base_offset}, and "
                + (f"the next one at {behind.base_offset}" if behind else f"the segment ends at {copy.end}")
            )

    def _header(self, copy: SegmentCopy, position: int) -> BatchHeader | None:
        """The header at a position; None where no whole one is."""
        remaining = copy.segment.size - position
        if remaining < HEADER_SIZE:
            return None
        head, _ = self._store.get(copy.key, ByteRange(position, position + HEADER_SIZE))
        header = parse_header(head, 0, remaining, position)
        return header if isinstance(header, BatchHeader) else None

    def _explain_shortfall(self, copy: SegmentCopy, decoder: SegmentDecoder, position: int) -> None:
        """Batches ended before coverage did: compaction took the tail, or the object lost it."""
        expected = known_crc32c(copy.metadata)
        if not copy.dense and expected is not None:  # of a segment that was read from its start, it was compared
            whole = position == 0 or scan_object(self._store, copy.key, copy.segment.size).crc32c == expected
            if whole:
                return
        raise CorruptData(
            f"its batches end at offset {decoder.position}, position {decoder.valid_bytes}; it answers for offsets "
            f"up to {copy.end}"
        )

    def _position(self, copy: SegmentCopy, start: int) -> int:
        """Where to begin: a batch at or before the one that holds `start`, as far as the index can be believed."""
        if start <= copy.base or ".index" not in copy.segment.suffixes:
            return 0
        data = read_index(self._store, copy.keys, copy.segment.name, ".index")
        if data is None:
            return 0
        position = position_for_offset(read_offset_index(data), copy.base, start)
        if position <= 0:
            return 0
        try:
            header = self._header(copy, position)
        except CorruptData:
            return 0
        # A wrapper of an older magic names its last offset only, so what stands in it may begin before.
        trusted = header is not None and header.magic >= 2 and copy.base < header.base_offset <= start
        return position if trusted else 0


def _is_long(copy: SegmentCopy, start: int, end: int) -> bool:
    """Whether a thread is worth its while, and a chunk that is fetched for nothing is little beside the range."""
    share = (min(end, copy.end) - max(start, copy.base)) / max(copy.end - copy.base, 1)
    return copy.segment.size * share >= _LONG_BYTES


class _Body:
    """The bytes of an object from a position on, counted and checksummed as they pass."""

    def __init__(self, store: ObjectStore, copy: SegmentCopy, position: int, chunk_bytes: int) -> None:
        self._store = store
        self._key = copy.key
        self._chunk_bytes = chunk_bytes
        self._start = position
        self.position = position
        self.crc32c = 0

    def chunks(self) -> Generator[bytes, None, None]:
        with ResumableReader(self._store, self._key, self._start) as reader:
            while chunk := reader.read(self._chunk_bytes):
                self.position += len(chunk)
                if self._start == 0:
                    self.crc32c = crc32c(chunk, self.crc32c)
                yield chunk
