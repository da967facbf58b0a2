"""Compares an earlier version with the live copies of its offsets: with other records, it is of another log."""

from collections.abc import Iterator
from io import FileIO
from typing import Final

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import replaced_by
from ts_common.errors import CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectStore
from tsctl.repair.version_reading import Good
from tsctl.verify.copy_comparison import digests, digests_of

_CHUNK: Final = 1 << 20
_NEAREST: Final = 8  # segments below a version: two leaders' and their variants


class LiveCopies:
    """The copies that readers get a partition's offsets from.

    Args:
        catalog: a snapshot of the partition.
    """

    def __init__(self, store: ObjectStore, catalog: PartitionCatalog, commit: Commit) -> None:
        self._store = store
        self._catalog = catalog
        self._commit = commit
        self._segments = list(catalog.segments)

    def add(self, name: SegmentName, size: int) -> None:
        """Add a segment that was put since the snapshot; `size` in bytes."""
        self._segments.append(StoredSegment(name, size, frozenset()))

    def contradict(self, good: Good, live: tuple[int, int], damaged: str | None) -> bool:
        """Return whether a live copy has other records than a version, or cannot be read now.

        Offsets that only one of them has are no contradiction: compaction removes records.

        Args:
            good: the version.
            live: its live offsets `[start, end)`.
            damaged: key of the object that is to be repaired, which is not compared; None without one.

        Raises:
            BatchTooLarge: as `digests`.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        return any(self._differs(good, live, copy) for copy in self._near(live) if copy.key != damaged)

    def _near(self, live: tuple[int, int]) -> list[SegmentCopy]:
        """Return the readable copies that can have these offsets, without those that another one replaces."""
        start, end = live
        segments = sorted(self._segments, key=lambda segment: segment.name.base)
        below = [segment for segment in segments if segment.name.base <= start][-_NEAREST:]
        inside = [segment for segment in segments if start < segment.name.base < end]
        catalog = self._catalog
        copies = describe(self._store, catalog.keys, (*below, *inside), catalog.cache_objects, damaged=[], removed=[])
        replaced = replaced_by(copies)
        return [copy for copy in copies if copy.segment.name.stem not in replaced]

    def _differs(self, good: Good, live: tuple[int, int], copy: SegmentCopy) -> bool:
        alive = self._commit.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)
        start, end = max(live[0], copy.base), min(live[1], alive)
        if start >= end:
            return False
        ours, theirs = digests_of(_chunks(good.file), good.size, start, end), digests(self._store, copy, start, end)
        try:
            return any(one != other for one, other in _at_equal_offsets(ours, theirs))
        except (CorruptData, ObjectNotFound):
            return False  # what precedes the damage is equal
        except ObjectFrozen:
            return True


def _at_equal_offsets(
    first: Iterator[tuple[int, bytes]], second: Iterator[tuple[int, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        if one[0] == other[0]:
            yield one[1], other[1]
        lower, upper = one[0] <= other[0], other[0] <= one[0]
        one, other = next(first, None) if lower else one, next(second, None) if upper else other


def _chunks(file: FileIO) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK):
        yield chunk
