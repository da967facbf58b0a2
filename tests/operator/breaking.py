"""Ways to break an archive on purpose: a hole, an overlap, an orphan, a missing index, a flipped bit."""

import struct
from collections.abc import Iterator
from dataclasses import replace

from tests.uploader.beside import Archive
from ts_common.archive.catalog import StoredSegment, read_catalog
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.framing import LENGTH_END, LENGTH_POSITION, BatchHeader, parse_header
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore
from tsctl.verify.full_read import Filling


def stored(archive: Archive, partition: int) -> tuple[StoredSegment, ...]:
    return read_catalog(archive.store, archive.partition_keys(partition)).segments


def make_hole(archive: Archive, partition: int) -> None:
    """Delete the objects of a segment, as a clean-up job would."""
    keys, name = archive.partition_keys(partition), stored(archive, partition)[2].name
    archive.store.delete(keys.segment(name, suffix) for suffix in (".log", ".index", ".timeindex"))


def make_overlap(archive: Archive, partition: int) -> None:
    """Store a second copy that begins in the middle of a segment, as of a leader that rolled there."""
    segments, keys = stored(archive, partition), archive.partition_keys(partition)
    log = archive.store.get(keys.segment(segments[1].name))[0]
    second = next(header.base_offset for header in headers(log) if header.base_offset > segments[1].name.base)
    put_copy(archive.store, archive, partition, SegmentName(second), log[position_of(log, second) :])


def make_orphan(archive: Archive, partition: int) -> None:
    """Store a segment far above the run."""
    keys, segments = archive.partition_keys(partition), stored(archive, partition)
    log = bytearray(archive.store.get(keys.segment(segments[0].name))[0])
    for position, header in positions(bytes(log)):  # base offset and epoch are in no batch's CRC
        struct.pack_into(">q", log, position, header.base_offset + 900_000)
    put_copy(archive.store, archive, partition, SegmentName(segments[0].name.base + 900_000), bytes(log))


def remove_index(archive: Archive, partition: int) -> None:
    keys, name = archive.partition_keys(partition), stored(archive, partition)[1].name
    archive.store.delete([keys.segment(name, ".timeindex")])


def flip_a_bit(archive: Archive, partition: int) -> None:
    keys, name = archive.partition_keys(partition), stored(archive, partition)[1].name
    data, info = archive.store.get(keys.segment(name))
    place = len(data) // 3
    changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    archive.store.put(keys.segment(name), changed, metadata=archive.store.head(info.key).metadata)


def put_copy(store: ObjectStore, archive: Archive, partition: int, name: SegmentName, log: bytes) -> None:
    keys = archive.partition_keys(partition)
    metadata = metadata_of(scan_segment(Filling(Reading(log)), len(log)), name.base, "copy")
    for suffix in (".index", ".timeindex"):
        store.put(keys.segment(name, suffix), b"")
    store.put(keys.segment(name), log, metadata=replace(metadata, rebuilt=False).encode())


class Reading:
    """A function that reads bytes in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __call__(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece


def positions(log: bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < len(log):
        header = parse_header(log, position, len(log) - position)
        assert isinstance(header, BatchHeader)
        yield position, header
        position += LENGTH_END + int.from_bytes(log[position + LENGTH_POSITION : position + LENGTH_END], "big")


def headers(log: bytes) -> list[BatchHeader]:
    return [header for _, header in positions(log)]


def position_of(log: bytes, base: int) -> int:
    return next(position for position, header in positions(log) if header.base_offset == base)
