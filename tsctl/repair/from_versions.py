"""Repairs from earlier versions in the bucket: a deleted object is put again, a damaged one gets a good copy.

A version counts only if it has an agent's metadata, and a scan of its bytes confirms that. It is put where no object
is, with its metadata, so that it keeps the time when it was shipped. The rules for names are those of an agent
(protocol rule 13), with the leader epoch of the commit: no agent that leads has a lower one. A version with erased
records is put without them, as a variant that replaces the segment under the name of the version.

In the copy of a directory, metadata that fits the bytes of an object is bound to it again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

from awscrt.checksums import crc32c

from ts_common.archive.cache_rewriting import rewrite_cache_objects
from ts_common.archive.catalog import PartitionCatalog, read_commit, read_marks
from ts_common.archive.commit import Commit
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.fetch import fetch
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.repair_requests import Damage
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.archive.unsealing import unsealed
from ts_common.errors import (
    CorruptData,
    NewerFormat,
    ObjectFrozen,
    ObjectNotFound,
    PreconditionFailed,
    SegmentChanged,
)
from ts_common.store.contract import ByteRange, IfAbsent, ObjectStore, ObjectVersion
from tsctl.repair.erased_versions import ErasedVersions
from tsctl.repair.index_form import Indexed, fits
from tsctl.repair.needs import Need, rest_of
from tsctl.repair.other_log import LiveCopies
from tsctl.repair.version_reading import Good, VersionReader

_NEAREST: Final = 8  # deleted segments below a hole: two leaders' and their variants
_REPAIRS: Final = 99
_TXNINDEX: Final = ".txnindex"
_BASE: Final = slice(0, 20)


@dataclass(frozen=True, slots=True)
class PutBack:
    """An object that was put from a version; in a dry run, that would be.

    Attributes:
        start: first offset that readers get from it.
        end: the offset after the last.
        is_new: whether it was put for this need or an earlier one of this run, and not by others.
        is_bound: whether its metadata was bound to it again instead.
        lacks_erased: whether the version has erased records, which the object lacks.
    """

    key: str
    start: int
    end: int
    is_new: bool = True
    is_bound: bool = False
    lacks_erased: bool = False


class PartitionVersions:
    """The versions of one partition's objects.

    Args:
        catalog: a snapshot of the partition.
        erased: its erased offsets, by the greatest list.
        dry_run: whether nothing is put; the bytes of versions are not read then either.
        refused: called with a sentence for each version with erased records that cannot be rewritten.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: PartitionCatalog,
        commit: Commit,
        erased: ErasedOffsets,
        *,
        dry_run: bool,
        refused: Callable[[str], None],
    ) -> None:
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
        self._rewriting = ErasedVersions(
            catalog, commit, erased, txnindex=self._txnindex, dry_run=dry_run, refused=refused
        )
        self._segments = [segment.name for segment in catalog.segments]
        self._done: list[PutBack] = []
        self._deleted: dict[str, list[ObjectVersion]] | None = None
        self._unbound: Mapping[str, Sequence[Mapping[str, str]]] | None = None

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
        if need.lacks_metadata and (bound := self._bound(need)) is not None:
            self._done.append(bound)
            return [bound]
        put = self._good_copy(need) if need.damage is Damage.DAMAGED else list(self._missing(need))
        if put and not self._dry_run:
            rewrite_cache_objects(self._store, self._keys, {_base(self._keys, each.key) for each in put} | {need.start})
        return put

    def _unsealed(self, name: SegmentName, end: int) -> AbstractContextManager[None]:
        """Unseal the offsets of a segment that is put, or counted as done (protocol rule 16)."""
        if self._dry_run:
            return nullcontext()
        token = f"{int(self._store.current_time() * 1000):013d}-tsctl-{token_hex(4)}"
        return unsealed(self._store, self._keys, token, name.base, max(end, name.base + 1))

    def _bound(self, need: Need) -> PutBack | None:
        """Bind the metadata again that a copy of a directory separated from an object; None if none fits its bytes."""
        if self._unbound is None:
            self._unbound = self._store.unbound_metadata(self._keys.prefix)
        key = need.key or ""
        for fields in self._unbound.get(key, ()):
            with suppress(CorruptData, NewerFormat, ObjectNotFound, PreconditionFailed):
                etag, metadata = self._store.head(key).etag, decode_metadata(fields, key)
                if metadata is None or (not self._dry_run and self._crc32c(key) != metadata.crc32c):
                    continue
                if not self._dry_run:
                    self._store.bind_metadata(key, etag, fields)
                end = self._commit.epochs.live_end(metadata.epochs or (), need.start, metadata.end)
                return PutBack(key, need.start, max(end, need.end or 0), is_bound=True)
        return None

    # --- deleted objects

    def _missing(self, need: Need) -> Iterator[PutBack]:
        """Put each deleted segment with offsets of a range again, the lowest first."""
        end = need.start + 1 if need.end is None else need.end
        left = [(need.start, end)]
        for each in self._done:  # one segment can be the answer to several findings
            if need.key is None or _base(self._keys, each.key) == need.start:
                if any(each.start < high and low < each.end for low, high in left):
                    yield each
                left = _without(left, each)
        for name, versions in self._candidates(need, end):
            put = next((put for each in versions if (put := self._restored(name, each, left)) is not None), None)
            if put is not None:
                left = _without(left, put)
                self._done.append(put)
                yield put

    def _restored(self, name: SegmentName, version: ObjectVersion, left: Sequence[tuple[int, int]]) -> PutBack | None:
        """Put a deleted segment again if the version is good, and has offsets that are still missing."""
        with self._live(name, version) as found:
            if found is None:
                return None
            good, live = found
            if not any(live[0] < high and low < live[1] for low, high in left) or self._contradicted(good, live):
                return None
            with self._rewriting.without_erased(name, version, good) as obeying:
                if obeying is None:
                    return None
                with self._unsealed(name, live[1]):
                    placed = self._put_again(name, obeying)
            lacks = obeying is not good
            return None if placed is None else PutBack(placed[0], *live, is_new=placed[1], lacks_erased=lacks)

    def _candidates(self, need: Need, end: int) -> list[tuple[SegmentName, list[ObjectVersion]]]:
        """Return the deleted `.log` objects that can have offsets of a need, with their versions."""
        if self._deleted is None:
            self._deleted = self._versions.deleted()
        logs = [
            (parsed[0], self._deleted[key])
            for key in sorted(self._deleted)
            if (parsed := SegmentName.parse(key.removeprefix(self._keys.prefix))) and parsed[1] == LOG_SUFFIX
        ]
        if need.key is not None:  # a segment that begins there
            return [each for each in logs if each[0].base == need.start]
        below = [each for each in logs if each[0].base <= need.start][-_NEAREST:]
        return below + [each for each in logs if need.start < each[0].base < end]

    def _put_again(self, name: SegmentName, good: Good) -> tuple[str, bool] | None:
        """Put a deleted segment under its name, or a variant's if a deletion can be in progress there."""
        # Its own name is free for the bytes that had it.
        if good.indexes is not None or (name.base < self._variants_below and name.epoch is None):
            return self._put_variant(name, good, good.fields)
        key = self._keys.segment(name)
        if self._dry_run:
            return key, True
        self._put_indexes(name, name, good)
        if self._put(name, good, good.fields):
            return key, True
        return (key, False) if self._has(key, good, good.fields) else None

    # --- damaged objects

    def _good_copy(self, need: Need) -> list[PutBack]:
        """Put the newest whole earlier version of a damaged segment as a variant that replaces it."""
        key = need.key or ""
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        if parsed is None:
            return []
        name, damaged = parsed[0], self._metadata(key)
        best: tuple[int, ObjectVersion] | None = None
        for version in self._versions.of(key):
            if version.is_latest:
                continue
            with self._live(name, version) as found:
                if found is None or found[0].metadata.corruptions or self._contradicted(*found, key):
                    continue
                good, live = found
                if self._is_whole(need, damaged, good.metadata, live):
                    return self._replacement(need, name, version, good, live, is_whole=True)
            if best is None or live[1] > best[0]:
                best = live[1], version
        if best is None or best[0] <= need.start:
            return []
        with self._live(name, best[1]) as found:  # a shorter one; the rest is requested
            return [] if found is None else self._replacement(need, name, best[1], *found, is_whole=False)

    def _is_whole(
        self, need: Need, damaged: SegmentMetadata | None, metadata: SegmentMetadata, live: tuple[int, int]
    ) -> bool:
        """Return whether a version has all live offsets of the damaged object."""
        if damaged is not None and damaged.crc32c == metadata.crc32c:  # the object itself, before the damage
            return True
        end = need.start + 1 if need.end is None else need.end
        if damaged is not None and damaged.epochs is not None:
            end = min(end, self._commit.epochs.live_end(damaged.epochs, need.start, damaged.end))
        return live[1] >= end

    def _replacement(
        self,
        need: Need,
        name: SegmentName,
        version: ObjectVersion,
        good: Good,
        live: tuple[int, int],
        *,
        is_whole: bool,
    ) -> list[PutBack]:
        with self._rewriting.without_erased(name, version, good) as obeying:
            if obeying is None:
                return []
            fields = {**obeying.fields, **replace(obeying.metadata, replaces=name.stem).encode()}
            with self._unsealed(name, max(live[1], need.end or 0)):
                placed = self._put_variant(name, obeying, fields)
        if placed is None:
            return []
        put = PutBack(placed[0], *live, is_new=placed[1], lacks_erased=obeying is not good)
        self._done.append(put)
        end = max(live[1], need.end or 0) if is_whole else live[1]
        return [replace(put, start=need.start, end=end)]

    def _put_variant(self, name: SegmentName, good: Good, fields: Mapping[str, str]) -> tuple[str, bool] | None:
        """Put a segment under the first variant's name that no object has, unless one has the same already."""
        if self._dry_run and good.indexes is not None:  # the name has the CRC-32C of bytes that a dry run does not make
            return self._keys.segment(name), True
        crc = good.metadata.crc32c
        for there in self._segments:  # also of an earlier leader epoch
            if (there.base, there.crc32c) == (name.base, crc) and self._has(self._keys.segment(there), good, fields):
                return self._keys.segment(there), False
        for number in (None, *range(1, _REPAIRS + 1)):
            variant = SegmentName(name.base, self._commit.epoch, crc, number)
            key = self._keys.segment(variant)
            if self._is_free(key):
                if self._dry_run:
                    return key, True
                self._put_indexes(name, variant, good)
                if self._put(variant, good, fields):
                    return key, True
            if self._has(key, good, fields):
                return key, False
        return None

    # --- objects

    def _is_free(self, key: str) -> bool:
        try:
            self._store.head(key)
        except ObjectNotFound:
            return True
        return False

    def _metadata(self, key: str) -> SegmentMetadata | None:
        """Return the metadata of an object; None if it has none that can be read."""
        try:
            return decode_metadata(self._store.head(key).metadata, key)
        except (ObjectNotFound, CorruptData, NewerFormat):
            return None

    def _has(self, key: str, good: Good, fields: Mapping[str, str]) -> bool:
        """Return whether an object has the bytes of a version, and such metadata; the time of shipping may differ."""
        found, wanted = self._metadata(key), decode_metadata(fields, key)
        if found is None or wanted is None or replace(found, shipped=wanted.shipped) != wanted:
            return False
        try:
            return self._dry_run or self._crc32c(key) == good.metadata.crc32c
        except (CorruptData, ObjectNotFound):
            return False
        except ObjectFrozen:  # it cannot be compared, and one more copy would be put in each run
            return True

    def _crc32c(self, key: str) -> int:
        crc = 0
        for chunk in fetch(self._store, key):
            crc = crc32c(chunk, crc)
        return crc

    def _contradicted(self, good: Good, live: tuple[int, int], damaged: str | None = None) -> bool:
        """Return whether a version is of another log; a dry run does not read it."""
        return not self._dry_run and self._copies.contradict(good, live, damaged)

    def _index(self, key: str, need: Need) -> list[PutBack]:
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        if parsed is None:
            return []
        log = self._keys.segment(parsed[0])
        try:
            size = self._store.head(log).size
        except ObjectNotFound:
            return []
        segment = Indexed(
            parsed[0].base,
            size,
            self._metadata(log),
            lambda position, count: self._store.get(log, ByteRange(position, position + count))[0],
        )
        found = self._versions.of(key) if self._dry_run else self._put_index(key, key, parsed[1], segment)
        return [PutBack(key, need.start, need.start + 1 if need.end is None else need.end)] if found else []

    def _put_indexes(self, source: SegmentName, target: SegmentName, good: Good) -> None:
        """Put the indexes of a segment; readers work without one that has no version either."""

        def read(position: int, count: int) -> bytes:
            good.file.seek(position)
            return good.file.read(count)

        if good.indexes is not None:
            for suffix, data in good.indexes.items():
                with suppress(PreconditionFailed):
                    self._store.put(self._keys.segment(target, suffix), data, condition=IfAbsent(), archived=True)
            return
        segment = Indexed(target.base, good.size, good.metadata, read)
        for suffix in INDEX_SUFFIXES:
            self._put_index(self._keys.segment(source, suffix), self._keys.segment(target, suffix), suffix, segment)

    def _put_index(self, source: str, target: str, suffix: str, segment: Indexed) -> bool:
        """Put an index from its object or the newest version that fits; return whether the object exists now."""
        data = next((each for each in self._indexes(source, target) if fits(suffix, each, segment)), None)
        if data is None:
            return False
        with suppress(PreconditionFailed):
            self._store.put(target, data, condition=IfAbsent(), archived=True)
        return True

    def _txnindex(self, name: SegmentName, metadata: SegmentMetadata) -> bytes | None:
        """Return the `.txnindex` of a version; None if nothing has the one that its metadata names."""
        if metadata.txnindex is None:
            return None
        found = self._indexes(self._keys.segment(name, _TXNINDEX), "")
        return next((data for data in found if crc32c(data) == metadata.txnindex[0]), None)

    def _indexes(self, source: str, target: str) -> Iterator[bytes]:
        """Yield what an index can be put from: its object, unless that is missing, then each version."""
        if source != target:
            with suppress(ObjectNotFound, ObjectFrozen, CorruptData):
                yield get_small(self._store, source, INDEX_BYTES)[0]
        yield from self._versions.small(source)

    def _put(self, name: SegmentName, good: Good, fields: Mapping[str, str]) -> bool:
        self._check_unchanged()
        good.file.seek(0)
        try:
            self._store.put(
                self._keys.segment(name),
                good.file,
                size=good.size,
                metadata=fields,
                condition=IfAbsent(),
                crc32c=good.metadata.crc32c,
                archived=True,
            )
        except PreconditionFailed:
            return False
        self._copies.add(name, good.size)
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

    @contextmanager
    def _live(self, name: SegmentName, version: ObjectVersion) -> Iterator[tuple[Good, tuple[int, int]] | None]:
        """Yield a good version and the offsets that readers get from it; None without any above `log.start`."""
        with self._versions.good(version) as good:
            start = max(name.base, self._start)
            end = 0 if good is None else self._commit.epochs.live_end(good.epochs, name.base, good.metadata.end)
            yield None if good is None or end <= start else (good, (start, end))


def _without(ranges: Sequence[tuple[int, int]], put: PutBack) -> list[tuple[int, int]]:
    return [part for low, high in ranges for part in rest_of(low, high, [(put.start, put.end)])]


def _base(keys: PartitionKeys, key: str) -> int:
    return int(key.removeprefix(keys.prefix)[_BASE])
