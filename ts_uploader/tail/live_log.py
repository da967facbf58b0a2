"""Reads whole batches of a live log, below a high watermark (tail rule 1).

The broker appends to the newest file meanwhile, rolls, truncates and deletes. A reading ends without a result at any
doubt: a batch that does not continue the one before, a wrong CRC, a later leader epoch, or another
`leader-epoch-checkpoint` than before. Then the partition has no entry in this interval.

The last stable offset and the aborted transactions follow from the batches alone, beginning with the producer snapshot
of the file that has the first offset. An answer of the broker would be of a later moment.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from awscrt.checksums import crc32c

from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import MOST_ABORTED
from ts_common.errors import CorruptData, DataLoss, SegmentChanged
from ts_common.log_format.framing import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LENGTH_END,
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    follows,
    parse_header,
)
from ts_common.log_format.markers import ABORT, COMMIT, read_markers
from ts_uploader.log_dirs.leader_epoch import last_epoch_of
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark
from ts_uploader.log_dirs.page_cache import SMALL_BYTES
from ts_uploader.log_dirs.producer_snapshot import open_transactions
from ts_uploader.log_dirs.segment_file import OpenLog, open_log, read_file, read_part
from ts_uploader.messages.observations import NO_EPOCH_FILE
from ts_uploader.tail.merged_body import LogPlace

_MAGIC: Final = 2
_WINDOW_BYTES: Final = 1 << 20  # that are read at once
_LARGE_BYTES: Final = 8 << 20  # of a batch that is not kept in memory before its CRC is right
_LOG: Final = ".log"


class _Place(NamedTuple):
    """Where a reading ended.

    Attributes:
        end: the offset after the last batch.
        base: of the file.
        position: in it, of the next batch.
        open: first offset of each open transaction, by producer id.
    """

    end: int
    base: int
    position: int
    open: Mapping[int, int]


class Piece(NamedTuple):
    """Batches that one reading found.

    Attributes:
        start: first offset.
        end: the offset after the last.
        data: the batches, in order; each item has some of them.
        length: bytes of the batches.
        crc32c: of all of them.
        epochs: (epoch, first offset) wherever the epoch of the batches changes.
        stable: the last stable offset of a log that ends at `end`.
        aborted: the aborted transactions whose marker is in it; None if the log does not show where one of them began,
            or there are more than `MOST_ABORTED`.
        records: with control records, by the headers of the batches.
        time_max: greatest timestamp, ms since the epoch; None if no batch has one.
        after: where the next reading begins.
    """

    start: int
    end: int
    data: tuple[bytes, ...]
    length: int
    crc32c: int
    epochs: tuple[tuple[int, int], ...]
    stable: int
    aborted: tuple[Aborted, ...] | None
    records: int
    time_max: int | None
    after: _Place


class _Reading:
    """What a reading has found until now.

    Attributes:
        end, base, position, open: where it is, as in `_Place`.
        is_complete: whether the next batch is above the high watermark, or would be too much.
        size: of the batches, in bytes.
        data, crc, epochs, records, time_max, aborted: of the batches, as in `Piece`.
    """

    __slots__ = (
        *("end", "base", "position", "open", "is_complete", "size"),
        *("data", "crc", "epochs", "records", "time_max", "aborted"),
    )

    def __init__(self, place: _Place) -> None:
        self.end, self.base, self.position, still_open = place
        self.open = dict(still_open)
        self.is_complete = False
        self.size = self.crc = self.records = 0
        self.data: list[bytes] = []
        self.epochs: list[tuple[int, int]] = []
        self.time_max = NO_TIMESTAMP
        self.aborted: list[Aborted] | None = []

    def take_transaction(self, header: BatchHeader, data: bytes) -> None:
        """Note the transactions that a batch begins or ends."""
        for producer, kind, offset in _transactions(header, data):
            first = self.open.pop(producer, None)
            if kind == ABORT and first is None:
                self.aborted = None  # it had no record here, or the log cleaner removed its records
            elif kind == ABORT and first is not None and self.aborted is not None:
                self.aborted.append(Aborted(producer, first, offset))
        _begin(self.open, header, header.base_offset)

    def finished(self, start: int) -> Piece | None:
        """Return the piece; None without a batch."""
        if not self.size:
            return None
        end, aborted = self.end, self.aborted
        return Piece(
            start,
            end,
            tuple(self.data),
            self.size,
            self.crc,
            tuple(self.epochs),
            min(self.open.values()) if self.open else end,
            None if aborted is None or len(aborted) > MOST_ABORTED else tuple(aborted),
            self.records,
            None if self.time_max < 0 else self.time_max,
            _Place(end, self.base, self.position, self.open),
        )


class LiveLog:
    """The log of one partition, from an offset on, in one leadership.

    Args:
        directory: its live name.
        identity: device and inode of the directory. If a topic is created again, another one has the name, and can have
            the epoch.
        epoch: leader epoch of the leadership.
        start: where the first piece begins.
        unproved: the entry of this leadership that ends there, if another process shipped it; None without one.

    Attributes:
        unproved: as above, until a reading has found its batches in the log.
    """

    def __init__(
        self, directory: Path, identity: tuple[int, int], epoch: int, start: int, unproved: TailEntry | None = None
    ) -> None:
        self._directory = str(directory)  # a path object takes longer, and more memory
        self._identity = identity
        self._epoch = epoch
        self._start = start
        self.unproved = unproved
        self._place: _Place | None = None
        self._read_to: _Place | None = None  # by the last piece
        self._checked: EpochsMark | None = None  # of the leader epoch checkpoint that was read

    @property
    def end(self) -> int:
        """Where the next piece begins."""
        return self._start if self._place is None else self._place.end

    @property
    def place(self) -> LogPlace | None:
        """Where that is in the log; None before the first reading, and after one that found a change."""
        if self._place is None or self._checked is None:
            return None
        _, base, position, _ = self._place
        return LogPlace(self._directory, base, self._epoch, self.end, position, self._checked)

    def take(self, piece: Piece) -> None:
        """Continue after a piece, which the store has."""
        self._place = piece.after

    def moves_to(self, end: int) -> bool:
        """Continue at an offset; return False if it is neither the beginning nor the end of the last piece.

        To find another place, the headers of up to a whole file are read.
        """
        place = next((each for each in (self._place, self._read_to) if each is not None and each.end == end), None)
        if place is not None:
            self._place = place
        return place is not None

    def read(self, high_watermark: int, most: int) -> Piece | None:
        """Return the batches from `end` on; None if no whole one is below the high watermark.

        Args:
            high_watermark: as the broker answered in this leadership.
            most: bytes; a first batch can be larger.

        Raises:
            SegmentChanged: the leadership has ended, or a file changed; nothing is known of the log.
            CorruptData: a batch is damaged, of magic 0 or 1, or does not continue the one before.
            DataLoss: the log has not the batches that were shipped before `start`.
            OSError: a file cannot be read.
        """
        if self._checked is None:
            self._check_leadership()
        if self.unproved is not None:
            self._prove(self.unproved)
        place = self._place or self._found(self._start)
        reading = _Reading(place)
        try:
            while reading.size < most and self._read_file(reading, high_watermark, most):
                pass
        except CorruptData:
            self._check_again()
            raise
        self._check_again()
        self._place, piece = place, reading.finished(place.end)
        if piece is not None:
            self._read_to = piece.after
        return piece

    def _prove(self, entry: TailEntry) -> None:
        """Check that the log has the batches of an entry, and find the place after it.

        Within one epoch a lone broker, or all at once, can return with a shorter log; no controller begins another
        epoch. In an older file the log cleaner can have removed records of them.

        Raises:
            SegmentChanged, CorruptData, DataLoss, OSError: as `read`.
        """
        if entry.start >= self._bases()[-1] and entry.length <= _LARGE_BYTES:
            reading = _Reading(self._found(entry.start))
            while reading.size < entry.length and self._read_file(reading, entry.end, entry.length):
                pass
            self._check_again()
            if (reading.end, reading.size, reading.crc) != (entry.end, entry.length, entry.crc32c):
                raise DataLoss(
                    f"{self._directory}: its batches from offset {entry.start} on are not those that were shipped in "
                    f"the same leader epoch, up to {entry.end}: the broker lost records that it had acknowledged"
                )
            self._place = _Place(reading.end, reading.base, reading.position, reading.open)
        self.unproved = None

    def _check_leadership(self) -> None:
        """Check directory and epoch, and note the checkpoint: the same file has the same epochs, and never moves."""
        mark = epochs_mark(self._directory)
        self._check_epoch()
        status = Path(self._directory).stat()
        if (status.st_dev, status.st_ino) != self._identity:
            raise SegmentChanged(f"{self._directory}: another directory has this name now; the topic was created again")
        self._checked = mark

    def _check_again(self) -> None:
        """Check that the live name leads to the same checkpoint still; call it after a reading."""
        if self._checked is None or epochs_mark(self._directory) != self._checked:
            self._checked = None
            raise SegmentChanged(f"{self._directory}: its leader epoch checkpoint changed before the reading ended")

    def _check_epoch(self) -> None:
        last = last_epoch_of(self._directory)
        if last is NO_EPOCH_FILE or last.epoch != self._epoch:
            raise SegmentChanged(
                f"{self._directory}: its leader epoch checkpoint ends with {last.epoch}, the leader epoch is "
                f"{self._epoch}"
            )

    def _read_file(self, reading: _Reading, high_watermark: int, most: int) -> bool:
        """Read one file to its end; return whether another one continues it."""
        name = self._file(reading.base)
        wanted = SMALL_BYTES  # a round finds a few batches in most logs
        while wanted:
            window, size = read_part(name, reading.position, wanted)
            try:
                wanted = self._take(reading, window, size - reading.position, high_watermark, most)
                if wanted > _LARGE_BYTES:
                    _check_large(name, reading.position, wanted)
            except CorruptData as error:
                raise CorruptData(f"{name}: {error}") from error
        # Only where more is acknowledged another file is looked for.
        end = reading.end
        if reading.is_complete or end >= high_watermark or end == reading.base or not Path(self._file(end)).exists():
            return False
        reading.base, reading.position = end, 0
        return True

    def _take(self, reading: _Reading, window: bytes, remaining: int, high_watermark: int, most: int) -> int:
        """Add the whole batches of a part of the file; return the size of the next part, 0 without one.

        This runs for each partition in each interval, so a batch has one loop, without a call that can be spared.

        Args:
            window: the bytes from `reading.position` on.
            remaining: bytes of the file from there on.

        Raises:
            CorruptData: a batch does not continue the log, as this leader has it.
        """
        at, length, checked = 0, len(window), memoryview(window)
        end, epochs, time_max = reading.end, reading.epochs, reading.time_max
        wanted = _WINDOW_BYTES if length < remaining else 0
        is_newest = False  # known after the first gap: each batch of a compacted log can begin after one
        while at + HEADER_SIZE <= length or at < length == remaining:
            header = parse_header(window, at, remaining - at, reading.position + at)
            if not isinstance(header, BatchHeader):  # zeros, or a torn batch
                wanted = 0
                break
            base_offset, body, epoch, magic, crc, attributes, last_offset, _, time, _, count, _, _ = header
            following = at + LENGTH_END + body
            if last_offset >= high_watermark or (reading.size + at and reading.size + following > most):
                reading.is_complete, wanted = True, 0
                break
            if following > length:
                wanted = max(following - at, _WINDOW_BYTES)
                break
            what = None
            if magic != _MAGIC:
                what = f"magic {magic}"
            elif epoch > self._epoch:
                what = f"leader epoch {epoch}, above {self._epoch}"
            elif epoch < NO_EPOCH:
                what = f"leader epoch {epoch}, below {NO_EPOCH}"
            elif base_offset < end or header.contradicts_itself:
                what = f"it begins below {end}"
            elif last_offset < base_offset:
                what = f"its last offset is {last_offset}"
            elif base_offset > end and not (is_newest := is_newest or reading.base == self._bases()[-1]):
                what = f"it begins above {end}, in a file that is not the newest"
            elif crc32c(checked[at + ATTRIBUTES_POSITION : following]) != crc:
                what = "wrong CRC"
            if what is not None:
                raise CorruptData(f"batch of base offset {base_offset}: {what}")
            if attributes & TRANSACTIONAL_MASK:
                reading.take_transaction(header, window[at:following])
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, base_offset))
            time_max = max(time_max, time)
            reading.records += count or 0
            end = last_offset + 1
            at = following
        if at:
            data = window[:at]
            reading.data.append(data)
            reading.crc = crc32c(data, reading.crc)
            reading.end, reading.time_max = end, time_max
            reading.size += at
            reading.position += at
        return wanted

    def _found(self, start: int) -> _Place:
        """Return the place of an offset, with the transactions that are open there."""
        bases = [base for base in self._bases() if base <= start]
        if not bases:
            raise SegmentChanged(f"{self._directory}: no file has offset {start}")
        base = bases[-1]
        place = _Place(base, base, 0, self._open_at(base))
        still_open, last = dict(place.open), base - 1
        with open_log(self._directory, base) as log:
            for header, position in _headers(log):
                if not follows(header, last) or header.last_offset <= last:
                    raise CorruptData(f"{log.path}: a batch of base offset {header.base_offset} after offset {last}")
                # A broker of 0.11 to 1.1 let a producer decide the base offset (`follows`).
                first, last = max(min(header.base_offset, header.last_offset), last + 1), header.last_offset
                if last >= start:
                    if header.base_offset < start:
                        raise CorruptData(f"{log.path}: offset {start} is inside a batch")
                    break
                if header.is_control:
                    if header.size_in_bytes > _LARGE_BYTES:
                        raise CorruptData(f"{log.path}: a control batch of {header.size_in_bytes} bytes at {position}")
                    data = log.read_at(position, header.size_in_bytes)
                    for producer, _, _ in _transactions(header, data):
                        still_open.pop(producer, None)
                _begin(still_open, header, first)
                place = place._replace(position=position + header.size_in_bytes)
        return place._replace(end=start, open=still_open)

    def _open_at(self, base: int) -> Mapping[int, int]:
        path = f"{self._directory}/{base:020d}.snapshot"
        try:
            still_open = open_transactions(read_file(path))
        except FileNotFoundError:
            if base == self._bases()[0]:  # a follower that began there has none, and Kafka's own offset none of these
                return {}
            raise SegmentChanged(f"{path}: missing, so it is unknown which transactions are open there") from None
        if (latest := max(still_open.values(), default=base)) > base:
            raise CorruptData(f"{path}: an open transaction begins at offset {latest}")
        return still_open

    def _bases(self) -> list[int]:
        names = (name for name in os.listdir(self._directory) if name.endswith(_LOG))
        return sorted(int(name.removesuffix(_LOG)) for name in names if name.removesuffix(_LOG).isdecimal())

    def _file(self, base: int) -> str:
        return f"{self._directory}/{base:020d}{_LOG}"


def _check_large(name: str, position: int, size: int) -> None:
    """Check the CRC of a batch without keeping its bytes: a damaged length can be that of the whole file."""
    checksum, end = 0, position + size
    for start in range(position + ATTRIBUTES_POSITION, end, _WINDOW_BYTES):
        checksum = crc32c(read_part(name, start, min(_WINDOW_BYTES, end - start))[0], checksum)
    header = parse_header(read_part(name, position, HEADER_SIZE)[0], 0, size, position)
    if isinstance(header, BatchHeader) and header.crc != checksum:
        raise CorruptData(f"batch of base offset {header.base_offset}: wrong CRC")


def _headers(log: OpenLog) -> Iterator[tuple[BatchHeader, int]]:
    """Yield the headers of a file with their positions: of small batches many with one read, of large ones alone."""
    position = begin = size = 0
    window = b""
    while True:
        if position + HEADER_SIZE > begin + len(window) < log.size:
            most = SMALL_BYTES if size < SMALL_BYTES // 4 else HEADER_SIZE
            begin, window = position, log.read_at(position, min(most, log.size - position))
        if (header := _header(log, window, position - begin, position)) is None:
            return
        yield header, position
        size = header.size_in_bytes
        position += size


def _header(log: OpenLog, data: bytes, at: int, position: int) -> BatchHeader | None:
    """Return the header at a position; None where no whole batch follows: at the end, in zeros, or a torn one."""
    try:
        found = parse_header(data, at, log.size - position, position)
    except ValueError as error:
        raise SegmentChanged(f"{log.path}: shorter than it was: {error}") from error
    except CorruptData as error:
        raise CorruptData(f"{log.path}: {error}") from error
    return found if isinstance(found, BatchHeader) else None


def _begin(still_open: dict[int, int], header: BatchHeader, first: int) -> None:
    if header.is_transactional and not header.is_control and header.producer_id != NO_PRODUCER and header.record_count:
        still_open.setdefault(header.producer_id, first)


def _transactions(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield producer id, `ABORT` or `COMMIT`, and offset of each marker in a batch."""
    if header.is_control and header.is_transactional:
        for offset, kind in read_markers(header, data[HEADER_SIZE:]):
            if not header.base_offset <= offset <= header.last_offset:
                raise CorruptData(f"control batch of base offset {header.base_offset}: a record of offset {offset}")
            if kind in {ABORT, COMMIT}:
                yield header.producer_id, kind, offset
