"""Whether the bytes of an index can be those of a segment: by the CRC-32C in its metadata, else by their form."""

from collections.abc import Callable
from dataclasses import dataclass

from awscrt.checksums import crc32c

from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData, ObjectFrozen
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    read_offset_index,
    read_time_index,
)


@dataclass(frozen=True, slots=True)
class Indexed:
    """The segment of an index.

    Attributes:
        size: of its `.log`, in bytes.
        metadata: of its `.log`; None if it has none that can be read.
        read: returns some bytes of the `.log`, from a position on; fewer at its end.
    """

    base: int
    size: int
    metadata: SegmentMetadata | None
    read: Callable[[int, int], bytes]


def fits(suffix: str, data: bytes, segment: Indexed) -> bool:
    """Return whether an index can be a segment's.

    Args:
        suffix: `.index`, `.timeindex` or `.txnindex`.

    Raises:
        What `Indexed.read` raises.
    """
    metadata = segment.metadata
    if suffix == ".index":
        return _offsets_fit(data, segment)
    if suffix == ".timeindex":
        if metadata is not None and metadata.timeindex is not None:
            return metadata.timeindex == int(crc32c(data))
        entries = read_time_index(data)
        return not any(data[len(entries) * TIME_ENTRY_SIZE :]) and all(_is_within(each, segment) for _, each in entries)
    return metadata is None or (metadata.txnindex is not None and metadata.txnindex[0] == int(crc32c(data)))


def _offsets_fit(data: bytes, segment: Indexed) -> bool:
    """Return whether an `.index` ascends within the `.log`, and its last entry leads to that offset's batch."""
    entries = read_offset_index(data)
    if any(data[len(entries) * OFFSET_ENTRY_SIZE :]):
        return False
    if not entries:
        return True
    (relative, position), before = entries[-1], entries[-2][0] if len(entries) > 1 else -1
    if position >= segment.size or not _is_within(relative, segment):
        return False
    left = segment.size - position
    try:
        header = parse_header(segment.read(position, min(HEADER_SIZE, left)), 0, left, position)
    except ObjectFrozen:  # the rest is all that can be checked
        return True
    except (CorruptData, ValueError):  # damaged, or cut short
        return False
    return isinstance(header, BatchHeader) and before < header.base_offset - segment.base <= relative


def _is_within(relative: int, segment: Indexed) -> bool:
    return segment.metadata is None or segment.base + relative < segment.metadata.end
