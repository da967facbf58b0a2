"""Finds batches of the local log by offset; reads only headers, except for the batch that it returns."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import position_for_offset
from ts_uploader.log_dirs.local_log import last_index_entries
from ts_uploader.log_dirs.segment_file import OpenLog, open_log
from ts_uploader.messages.observations import Listing


def batch_ending_at(listing: Listing, last_offset: int) -> bytes | None:
    """Return the local batch that ends with an offset; None without one.

    Raises:
        SegmentChanged: the segment no longer exists.
        CorruptData: a position that should have a batch has none.
    """
    with open_at(listing, last_offset) as (log, position):
        found = find_batch(log, position, last_offset)
        if found is None or found[0].last_offset != last_offset:
            return None
        header, begin = found
        return log.read_at(begin, header.size_in_bytes)


def first_batch(listing: Listing, offset: int, below: float = inf) -> BatchHeader | None:
    """Return the first batch that ends at or above an offset, of all segments that begin below another.

    A damaged segment is skipped: it is shipped as it is, and marked.
    """
    followings = (*listing.bases[1:], inf)
    for base, following in zip(listing.bases, followings, strict=True):
        if base < below and following > offset:
            with suppress(CorruptData), open_at(listing, max(offset, base)) as (log, position):
                found = find_batch(log, position, offset)
                if found is not None:
                    return found[0]
    return None


@contextmanager
def open_at(listing: Listing, offset: int) -> Iterator[tuple[OpenLog, int]]:
    """Open the segment that can contain an offset; yield it with the position of its index for that offset."""
    base = max(base for base in listing.bases if base <= offset)
    with open_log(listing.directory, base) as log:
        yield log, position_for_offset(last_index_entries(listing.directory, base), base, offset)


def find_batch(log: OpenLog, position: int, offset: int) -> tuple[BatchHeader, int] | None:
    """Return the first batch that ends at or above an offset, and its position; reads headers only.

    Raises:
        CorruptData: a position that should have a batch has none.
    """
    try:
        return _first_ending_at(log, position, offset)
    except CorruptData:
        if not position:
            raise
        return _first_ending_at(log, 0, offset)  # a wrong index costs a scan


def _first_ending_at(log: OpenLog, position: int, offset: int) -> tuple[BatchHeader, int] | None:
    while True:
        if position > log.size:
            raise CorruptData(f"{log.path}: ends at {log.size}, but the next batch should begin at {position}")
        head = log.read_at(position, min(HEADER_SIZE, log.size - position))
        header = batch_header(head, log.size - position, position, str(log.path))
        if header is None:
            return None
        if header.last_offset >= offset:
            return header, position
        position += header.size_in_bytes


def batch_header(data: bytes, remaining: int, position: int, where: str) -> BatchHeader | None:
    """Return the header that `data` begins with; None at the end of the segment."""
    try:
        header = parse_header(data, 0, remaining, position)
    except (CorruptData, ValueError) as error:  # ValueError: the file is shorter than it was
        raise CorruptData(f"{where}: {error}") from error
    return header if isinstance(header, BatchHeader) else None
