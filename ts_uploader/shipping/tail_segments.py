"""The segments that the live tail makes of a gap: records that no broker's log has any more (protocol rule 10).

Packs can have records whose closed segment was lost before its upload: the agent did not run while retention removed
it, or its file is damaged. The chain of the commit is what readers return of them. Its batches become segments, as a
leader of an earlier epoch that was not committed leaves them. So the commit that passes the gap has them in its run,
and merges can then drop the entries.
"""

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Final

import structlog
from awscrt.checksums import crc32c

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.tail_chain import Link, TailEntry
from ts_common.archive.tail_logs import TailLogs
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.json_objects import MAX_INT32
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import IndexBuilder
from ts_common.store.contract import ByteRange, ObjectStore
from ts_uploader.log_dirs.page_cache import PulledPages
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.messages.tasks import Position
from ts_uploader.process.progress import beat

log = structlog.get_logger()

_SEGMENT_BYTES: Final = 64 << 20  # of the host's directory for temporary files
_SEGMENT_OFFSETS: Final = 1 << 30  # half of what an index has room for
_PIECE: Final = 1 << 20


@dataclass(slots=True)
class TailSegment:
    """A segment that is made.

    Attributes:
        base: its base offset.
        end: of its coverage.
        index: of its batches.
        size: bytes of its batches.
    """

    base: int
    end: int
    file: IO[bytes]
    index: IndexBuilder = field(init=False)
    size: int = 0

    def __post_init__(self) -> None:
        self.index = IndexBuilder(self.base)

    @property
    def log(self) -> OpenLog:
        """Its batches; open as long as its file is."""
        descriptor = self.file.fileno()
        inode = os.fstat(descriptor).st_ino
        return OpenLog("the live tail", descriptor, inode, self.size, 0.0, PulledPages(descriptor, self.size))

    @property
    def indexes(self) -> dict[str, bytes]:
        """Its indexes, by suffix; without that of transactions, whose markers in the log decide."""
        offsets, times = self.index.finish()
        return {".index": offsets, ".timeindex": times}


def tail_segments(store: ObjectStore, position: Position, start: int, end: int) -> Iterator[TailSegment]:
    """Yield the segments that the live tail has of `[start, end)`; the next one uses its file again.

    Entries that are damaged are left out: their offsets are a gap.

    Raises:
        NewerFormat: a later release wrote a pack.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        OSError: a file cannot be written.
    """
    links = _links(store, position, start, end)
    if not links:
        return
    made: TailSegment | None = None
    failed = set[TailEntry]()
    with tempfile.TemporaryFile() as entry, tempfile.TemporaryFile() as file:
        while links:
            link = links.popleft()
            stop = min(link.end, end)
            is_full = made is not None and (
                made.end != link.start
                or made.size + link.entry.length > _SEGMENT_BYTES
                or stop - made.base > _SEGMENT_OFFSETS
            )
            if made is not None and is_full:
                yield made
                made = None
            if made is None:
                file.truncate(0)
                made = TailSegment(link.start, link.start, file)
            try:
                _fetch(store, position.keys, link, entry)
                _add(made, entry, link, stop)
            except (CorruptData, ObjectNotFound) as error:
                if not made.size:
                    made = None
                if link.entry not in failed:  # a merge can have moved it meanwhile
                    failed.add(link.entry)
                    links = _links(store, position, link.start, end)
                else:
                    _log_damage(position, error)
        if made is not None and made.size:
            yield made


def _links(store: ObjectStore, position: Position, start: int, end: int) -> deque[Link]:
    """Return what readers see of `[start, end)` above the next offset; nothing if they see no tail."""
    keys, commit = position.keys, position.commit
    chain, damage = TailLogs(store, keys.cluster).continuing(keys, commit, lambda: commit)
    if damage is not None:
        _log_damage(position, damage)
    links = () if chain is None else chain.links
    return deque(link._replace(start=max(link.start, start)) for link in links if link.end > start and link.start < end)


def _log_damage(position: Position, error: object) -> None:
    log.error("tail_damaged", message="a gap", partition=str(position.keys.partition), error=str(error))


def _fetch(store: ObjectStore, keys: PartitionKeys, link: Link, file: IO[bytes]) -> None:
    """Write the batches of an entry to a file, and check them."""
    entry, checksum, size = link.entry, 0, 0
    key = keys.cluster.tail(link.log) + entry.object
    buffer = memoryview(bytearray(min(_PIECE, entry.length)))
    file.truncate(0)
    with store.open(key, ByteRange(entry.position, entry.position + entry.length)) as stream:
        while count := stream.readinto(buffer):
            beat()
            checksum = crc32c(buffer[:count], checksum)
            _write(file, buffer[:count], size)
            size += count
    if (size, checksum) != (entry.length, entry.crc32c):
        raise CorruptData(f"{key}: the batches of [{entry.start},{entry.end}) are not those of its index")


def _add(made: TailSegment, file: IO[bytes], link: Link, stop: int) -> None:
    """Append the batches of an entry in `[link.start, stop)` to a segment.

    Raises:
        CorruptData: they are no batches of the entry; nothing was appended.
    """
    if stop - made.base > MAX_INT32:
        raise CorruptData(f"[{link.start},{stop}) needs more offsets than a segment has")
    first, last, end = 0, 0, stop
    for at, header in _headers(file, link, stop):
        if header.last_offset < link.start:
            first = at + header.size_in_bytes
        elif header.last_offset >= stop:
            end = min(end, header.base_offset)
        else:
            last = at + header.size_in_bytes
    if first >= last:
        raise CorruptData(f"no batch in [{link.start},{stop})")
    for at, header in _headers(file, link, stop):  # they are checked; a list of them would need much memory
        if first <= at < last:
            made.index.add(header.last_offset, header.max_timestamp, header.size_in_bytes)
    while first < last and (piece := os.pread(file.fileno(), min(_PIECE, last - first), first)):
        _write(made.file, memoryview(piece), made.size)
        first, made.size = first + len(piece), made.size + len(piece)
    made.end = end


def _headers(file: IO[bytes], link: Link, stop: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers of the batches of an entry with their positions, up to the first that reaches `stop`.

    Raises:
        CorruptData: bytes are no batch, or a batch contradicts the entry.
    """
    at, size, last = 0, link.entry.length, link.entry.start - 1
    while at < size and last < stop:
        header = parse_header(os.pread(file.fileno(), HEADER_SIZE, at), 0, size - at, at)
        if not isinstance(header, BatchHeader) or not last < header.base_offset <= header.last_offset:
            raise CorruptData(f"no batch after offset {last} of an entry from {link.entry.start} on")
        if header.base_offset < link.start <= header.last_offset:
            raise CorruptData(f"offset {link.start} is inside of a batch")
        yield at, header
        at, last = at + header.size_in_bytes, header.last_offset


def _write(file: IO[bytes], piece: memoryview, position: int) -> None:
    while piece:
        done = os.pwrite(file.fileno(), piece, position)
        piece, position = piece[done:], position + done
