"""Repairs from earlier versions in the bucket: a deleted object is put again, a damaged one gets a good copy.

A version counts only if it has an agent's metadata, and all its bytes have the CRC-32C in there. It is put where no
object is, with its metadata, so that it keeps the time when it was shipped. The rules for names are those of an agent
(protocol rule 13), with the leader epoch of the commit: no agent that leads has a lower one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.cache_rewriting import rewrite_cache_objects
from ts_common.archive.catalog import PartitionCatalog, read_commit, read_marks
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.repair_requests import Damage
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.errors import (
    CorruptData,
    ObjectNotFound,
    PreconditionFailed,
    SegmentChanged,
)
from ts_common.store.contract import IfAbsent, ObjectStore, ObjectVersion
from tsctl.repair.needs import Need, rest_of
from tsctl.repair.other_log import LiveCopies
from tsctl.repair.version_reading import Good, VersionReader

_NEAREST: Final = 8  # deleted segments below a hole: two leaders' and their variants
_REPAIRS: Final = 99
_BASE: Final = slice(0, 20)


@dataclass(frozen=True, slots=True)
class PutBack:
    """An object that was put from a version; in a dry run, that would be.

    Attributes:
        key: of the object.
        start: first offset that readers get from it.
        end: the offset after the last.
    """

    key: str
    start: int
    end: int


class PartitionVersions:
    """The versions of one partition's objects.

    Args:
        store: the partition's.
        catalog: a snapshot of the partition.
        commit: its commit.
        dry_run: whether nothing is put; the bytes of versions are not read then either.
    """

    def __init__(self, store: ObjectStore, catalog: PartitionCatalog, commit: Commit, *, dry_run: bool) -> None:
        self._store = store
        self._keys = catalog.keys
        self._commit = commit
        self._start = catalog.start or 0
        self._log_start = None if catalog.stored_log_start is None else catalog.stored_log_start.content
        highest = commit.lineage.highest if commit.lineage is not None else 0
        self._variants_below = max(self._start, highest)
        self._dry_run = dry_run
        self._copies = LiveCopies(store, catalog, commit)
        self._versions = VersionReader(store, catalog.keys, dry_run=dry_run)
        self._deleted: dict[str, list[ObjectVersion]] | None = None

    @property
    def left_out(self) -> float | None:
        """As `VersionReader.left_out`."""
        return self._versions.left_out

    def restore(self, need: Need) -> list[PutBack]:
        """Put back what versions have of a range, or an index; empty if they have nothing of it.

        Raises:
            VersionsDenied: this identity may not list or read versions.
            SegmentChanged: as `_check_unchanged`.
            AccessDenied, StoreUnavailable, BucketMissing, OutcomeUnknown: the store's.
        """
        if need.index is not None and need.key is not None:
            return self._index(need.key, need)
        put = self._good_copy(need) if need.damage is Damage.DAMAGED else list(self._missing(need))
        if put and not self._dry_run:
            rewrite_cache_objects(self._store, self._keys, {_base(self._keys, each.key) for each in put} | {need.start})
        return put

    # --- deleted objects

    def _missing(self, need: Need) -> Iterator[PutBack]:
        """Put each deleted segment with offsets of a range again, the lowest first."""
        end = need.start + 1 if need.end is None else need.end
        left = [(need.start, end)]
        for key, versions in self._candidates(need.start, end):
            put = next((put for each in versions if (put := self._restored(key, each, left)) is not None), None)
            if put is not None:
                left = [part for low, high in left for part in rest_of(low, high, [(put.start, put.end)])]
                yield put

    def _restored(self, key: str, version: ObjectVersion, left: Sequence[tuple[int, int]]) -> PutBack | None:
        """Put a deleted segment again if the version is good, and has offsets that are still missing."""
        with self._versions.good(version) as good:
            live = None if good is None else self._live(key, good.metadata)
            if good is None or live is None or not any(live[0] < high and low < live[1] for low, high in left):
                return None
            if self._contradicted(good, live):
                return None
            name = self._put_again(key, good)
            return None if name is None else PutBack(name, *live)

    def _candidates(self, start: int, end: int) -> list[tuple[str, list[ObjectVersion]]]:
        """Return the deleted `.log` objects that can have offsets of `[start, end)`, with their versions."""
        if self._deleted is None:
            self._deleted = self._versions.deleted()
        deleted = self._deleted
        logs = sorted(
            (_base(self._keys, key), key)
            for key in deleted
            if key.endswith(LOG_SUFFIX) and SegmentName.parse(key.removeprefix(self._keys.prefix)) is not None
        )
        below = [key for base, key in logs if base <= start][-_NEAREST:]
        inside = [key for base, key in logs if start < base < end]
        return [(key, deleted[key]) for key in (*below, *inside)]

    def _put_again(self, key: str, good: Good) -> str | None:
        """Put a deleted segment under its name, or a variant's if a deletion can be in progress there."""
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        if parsed is None:
            return None
        name = parsed[0]
        if name.base < self._variants_below and name.epoch is None:
            return self._put_variant(name, good, good.fields)
        if self._dry_run:
            return key
        self._put_indexes(name, name)
        return key if self._put(key, good, good.fields) else None

    # --- damaged objects

    def _good_copy(self, need: Need) -> list[PutBack]:
        """Put the newest whole earlier version of a damaged segment as a variant that replaces it."""
        key = need.key or ""
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        if parsed is None:
            return []
        for version in self._versions.of(key):
            if version.is_latest:
                continue
            with self._versions.good(version) as good:
                live = None if good is None else self._live(key, good.metadata)
                if good is None or live is None or good.metadata.corruptions or self._contradicted(good, live, key):
                    continue
                fields = replace(good.metadata, replaces=parsed[0].stem).encode()
                name = self._put_variant(parsed[0], good, {**good.fields, **fields})
                if name is not None:
                    return [PutBack(name, *live)]
        return []

    def _put_variant(self, name: SegmentName, good: Good, fields: Mapping[str, str]) -> str | None:
        """Put a segment under the first variant's name that no object has."""
        for number in (None, *range(1, _REPAIRS + 1)):
            variant = SegmentName(name.base, self._commit.epoch, good.metadata.crc32c, number)
            key = self._keys.segment(variant)
            try:
                self._store.head(key)
            except ObjectNotFound:
                if self._dry_run:
                    return key
                self._put_indexes(name, variant)
                if self._put(key, good, fields):
                    return key
        return None

    # --- objects

    def _contradicted(self, good: Good, live: tuple[int, int], damaged: str | None = None) -> bool:
        """Return whether a version is of another log; a dry run does not read it."""
        return not self._dry_run and self._copies.contradict(good, live, damaged)

    def _index(self, key: str, need: Need) -> list[PutBack]:
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        found = bool(self._versions.of(key)) if self._dry_run else self._put_index(key, key)
        if parsed is None or not found:
            return []
        return [PutBack(key, need.start, need.start + 1 if need.end is None else need.end)]

    def _put_indexes(self, source: SegmentName, target: SegmentName) -> None:
        """Put the indexes of a segment; readers work without one that has no version either."""
        for suffix in INDEX_SUFFIXES:
            self._put_index(self._keys.segment(source, suffix), self._keys.segment(target, suffix))

    def _put_index(self, source: str, target: str) -> bool:
        """Put an index from its object, or from its newest version; return whether the object exists now."""
        data = None
        if source != target:
            try:
                data = get_small(self._store, source, INDEX_BYTES)[0]
            except (ObjectNotFound, CorruptData):
                data = None
        if data is None:
            data = self._versions.small(source)
        if data is None:
            return False
        try:
            self._store.put(target, data, condition=IfAbsent(), archived=True)
        except PreconditionFailed:
            return True
        return True

    def _put(self, key: str, good: Good, fields: Mapping[str, str]) -> bool:
        self._check_unchanged()
        good.file.seek(0)
        try:
            self._store.put(
                key,
                good.file,
                size=good.size,
                metadata=fields,
                condition=IfAbsent(),
                crc32c=good.metadata.crc32c,
                archived=True,
            )
        except PreconditionFailed:
            return False
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        if parsed is not None:
            self._copies.add(parsed[0], good.size)
        return True

    def _check_unchanged(self) -> None:
        """Check that the names are still allowed: copying a version to a file can take minutes.

        Raises:
            SegmentChanged: a collector or an agent moved `log.start`, or a new lineage began.
        """
        commit, _ = read_commit(self._store, self._keys)
        marks = None if not isinstance(commit, Commit) else read_marks(self._store, self._keys, commit)
        found = None if marks is None or marks.log_start is None else marks.log_start.content
        if not isinstance(commit, Commit) or (commit.lineage, found) != (self._commit.lineage, self._log_start):
            raise SegmentChanged(
                f"{self._keys.partition}: commit or log.start changed meanwhile; run tsctl repair again"
            )

    def _live(self, key: str, metadata: SegmentMetadata) -> tuple[int, int] | None:
        """Return the offsets that readers get from a segment; None without any above `log.start`."""
        base = _base(self._keys, key)
        end = self._commit.epochs.live_end(metadata.epochs or (), base, metadata.end)
        return (max(base, self._start), end) if end > max(base, self._start) else None


def _base(keys: PartitionKeys, key: str) -> int:
    return int(key.removeprefix(keys.prefix)[_BASE])
