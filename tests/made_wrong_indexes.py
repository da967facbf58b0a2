"""Segments of ten offsets, each with its index and a wrong one that metadata can name as right."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from awscrt.checksums import crc32c

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import BytesReader, batches
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore

PRODUCER = 7


@dataclass(frozen=True, slots=True)
class IndexCase:
    """A segment, and two contents of one of its indexes.

    Attributes:
        base: its base offset.
        log: content of the `.log`.
        suffix: of the index.
        right: what the agent ships.
        wrong: readers with this one omit records, or return aborted ones.
    """

    base: int
    log: bytes
    suffix: str
    right: bytes
    wrong: bytes

    def metadata(self, index: bytes) -> dict[str, str]:
        """Return the metadata of the segment that names an index as right."""
        proven = metadata_of(scan_segment(BytesReader(self.log), len(self.log)), self.base, "hand-made")
        state = ":complete" if self.suffix == ".txnindex" else ""
        return {**proven.encode(), f"ts-{self.suffix[1:]}": f"{crc32c(index):08x}{state}"}

    def put(self, store: ObjectStore, keys: PartitionKeys, index: bytes) -> None:
        """Put the segment with an index that its metadata names as right."""
        name = SegmentName(self.base)
        for suffix, data in {".index": b"", ".timeindex": b"", self.suffix: index}.items():
            store.put(keys.segment(name, suffix), data)
        store.put(keys.segment(name), self.log, metadata=self.metadata(index))


def times_too_early(base: int, epoch: int) -> IndexCase:
    """The wrong index has the first record's timestamp as the greatest of all ten."""
    log = batches((base, base + 5), (base + 5, base + 10), epoch=epoch)
    right = struct.pack(">qi", 1000 + base + 4, 4) + struct.pack(">qi", 1000 + base + 9, 9)
    return IndexCase(base, log, ".timeindex", right, struct.pack(">qi", 1000 + base, 9))


def no_abort(base: int, epoch: int) -> IndexCase:
    """The wrong index has no entry for the only abort marker."""
    return _aborted(base, epoch, b"")


def another_abort(base: int, epoch: int) -> IndexCase:
    """The wrong index has an entry at another offset than the abort marker."""
    return _aborted(base, epoch, _entry(base, base + 7))


def an_abort_too_many(base: int, epoch: int) -> IndexCase:
    """The wrong index has the entry of the abort marker, and one without a marker."""
    return _aborted(base, epoch, _entry(base, base + 5) + _entry(base + 6, base + 8))


CASES: Sequence[Callable[[int, int], IndexCase]] = (times_too_early, no_abort, another_abort, an_abort_too_many)


def _aborted(base: int, epoch: int, wrong: bytes) -> IndexCase:
    """Five records of a transaction, its abort marker, and four records without a transaction."""
    aborted = batch(
        base,
        [record(delta) for delta in range(5)],
        attributes=TRANSACTIONAL,
        producer_id=PRODUCER,
        producer_epoch=0,
        sequence=0,
        epoch=epoch,
    )
    log = aborted + marker(base + 5, PRODUCER, 0, epoch, producer_epoch=0) + batches((base + 6, base + 10), epoch=epoch)
    return IndexCase(base, log, ".txnindex", _entry(base, base + 5), wrong)


def _entry(first: int, last: int) -> bytes:
    return struct.pack(">hqqqq", 0, PRODUCER, first, last, last + 1)
