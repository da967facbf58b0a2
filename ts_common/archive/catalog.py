"""The catalog: the objects of a partition, as one consistent snapshot.

A listing is the catalog; there is no manifest. The order of the reads makes it consistent (reading rule 1). The commit
is read first, so the listing that follows contains every segment of its run: the store only grows. `log.start` is read
last, so whatever retention removed in between is below it.

The two objects must have the same lineage, or `log.start` an older one. Any other pair was read between two writes of
an agent, and is read again.

`ts_common.archive.copies` reads what the listed segments cover, and `ts_common.archive.former_places` finds where the
older records of a restored partition are.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from ts_common.archive.commit import Commit, ForeignCommit, LogStart, decode_commit, decode_log_start
from ts_common.archive.commit_state import CommitState, commit_state
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_list import ListedErased, greater, read_erased
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.gap_records import merged, parse_gap_name
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, parse_cache_object_name
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    ERASED_DIRECTORY,
    GAPS_DIRECTORY,
    INDEX_SUFFIXES,
    LOG_START_NAME,
    LOG_SUFFIX,
    PartitionKeys,
    SegmentName,
)
from ts_common.archive.restored import Ended
from ts_common.archive.sealed_listing import list_unsealed
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.small_objects import COMMIT_BYTES, LOG_START_BYTES, get_small
from ts_common.errors import CorruptData, LineageUnsettled, ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.retry import snapshot_policy

_INDEX_WORDS: Final = frozenset(suffix.removeprefix(".") for suffix in INDEX_SUFFIXES)
# An agent writes `log.start` right after the commit that went back.
_POLICY: Final = snapshot_policy(lambda catalog: not catalog.settled)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A `.log` object as a listing shows it.

    Attributes:
        size: bytes.
        suffixes: suffixes of the indexes that are stored with it.
        etag: ETag of the object; None if it was not listed.
        modified: when the object was written, ms since the epoch by the store's clock; None if it was not listed.
        storage_class: as `ObjectInfo.storage_class`.
        is_frozen: as `ObjectInfo.is_frozen`.
    """

    name: SegmentName
    size: int
    suffixes: frozenset[str]
    etag: str | None = field(default=None, compare=False)
    modified: int | None = field(default=None, compare=False)
    storage_class: str | None = field(default=None, compare=False)
    is_frozen: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class StoredLogStart:
    """The object `log.start`.

    Attributes:
        etag: its ETag, for a conditional write.
        modified: when it was written, ms since the epoch by the store's clock.
    """

    content: LogStart
    etag: str
    modified: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionCatalog:
    """One partition in the store.

    Attributes:
        commit: content of `offset.wm`; None if it does not exist.
        commit_etag: ETag of that object.
        stored_log_start: the object `log.start`; None if it does not exist.
        segments: every `.log` object, ordered by base offset, the plain name before variants.
        gaps: recorded gaps, as ranges `[from, to)`, ascending; adjoining ranges are joined.
        cache_objects: the first bases of the cache objects, ascending.
        damage: what is wrong with `offset.wm` or `log.start`, if one of them is malformed; there is no `commit` then.
        listed_erased: the greatest list of erased offsets that the listing has; None without one.
        former: the places of the records below the start, oldest first; empty unless a restore put them back.
        sealed: sealed objects, ascending: they have the segments that begin in their ranges, and `segments` has the
            others. Empty unless the caller of `read_catalog` uses them.
    """

    keys: PartitionKeys
    commit: Commit | ForeignCommit | None
    commit_etag: str | None
    stored_log_start: StoredLogStart | None
    segments: tuple[StoredSegment, ...]
    gaps: tuple[tuple[int, int], ...]
    cache_objects: tuple[int, ...] = ()
    damage: str | None = None
    listed_erased: ListedErased | None = None
    former: tuple["FormerPlace", ...] = ()
    sealed: tuple[SealedObject, ...] = ()

    def commit_state(self, now: float) -> CommitState:
        """Return the state of the commit; `now` is `ObjectStore.current_time`."""
        written = [None if each.modified is None else each.modified / 1000 for each in self.segments]
        has_commit, is_damaged = self.commit is not None, self.damage is not None
        return commit_state(has_commit=has_commit, is_damaged=is_damaged, written=written, now=now)

    @property
    def proven_commit(self) -> Commit | None:
        """The commit, if its ETag is the MD5 of its fields that are known here: a later listing can then prove it."""
        is_proven = isinstance(self.commit, Commit) and _is_digest(self.commit_etag or "", self.commit.encode())
        return self.commit if is_proven else None  # type: ignore[return-value]

    @property
    def log_start(self) -> int | None:
        """First offset that readers return, by `log.start` and the commit's lineage; None without a `log.start`."""
        if self.stored_log_start is None:
            return None
        content = self.stored_log_start.content
        return content.shown_from(self.commit.lineage) if isinstance(self.commit, Commit) else content.offset

    @property
    def settled(self) -> bool:
        """Whether readers can combine the lineages of commit and `log.start`."""
        if self.stored_log_start is None or not isinstance(self.commit, Commit):
            return True
        return self.stored_log_start.content.fits(self.commit.lineage)

    @property
    def start(self) -> int | None:
        """First offset that readers return: `log.start`, else the first segment's base; None without both."""
        if self.log_start is not None:
            return self.log_start
        return self.segments[0].name.base if self.segments else None

    @property
    def committed(self) -> tuple[StoredSegment, ...]:
        """The segments that can cover offsets of the view; empty without a commit."""
        match self.commit:
            case Commit(next_offset=end):
                return tuple(segment for segment in self.segments if segment.name.base < end)
            case ForeignCommit(highest_base=highest):
                return tuple(segment for segment in self.segments if segment.name.base <= highest)
            case None:
                return ()

    @property
    def totals(self) -> tuple[int, int]:
        """The number of segments that can cover offsets of the view, and their bytes, in former places too."""
        # Retention deletes what ends at or below the floor, and a sealed object with its last row.
        floor = None if self.stored_log_start is None else self.stored_log_start.content.floor
        sizes = [
            size
            for each in self.sealed
            for size in each.columns["size"][bisect_right(each.columns["end"], floor or 0) :]
        ]
        listed = [segment.size for segment in self.shown]
        return len(listed) + len(sizes), sum(listed) + sum(sizes)

    @property
    def erased_number(self) -> int:
        """The number of a list that `read_erased` has all offsets of; 0 without one."""
        return max(self._least_erased or 0, 0 if self.listed_erased is None else self.listed_erased.number)

    @property
    def _least_erased(self) -> int | None:
        return None if self.stored_log_start is None else self.stored_log_start.content.erased

    def read_erased(self, store: ObjectStore) -> ErasedOffsets:
        """Return the erased offsets; raise as `ts_common.archive.erased_list.read_erased`."""
        least = self._least_erased
        return read_erased(store, self.keys, self.listed_erased, least)

    @property
    def shown(self) -> tuple[StoredSegment, ...]:
        """The segments that can cover offsets of the view, in former places too."""
        former = (each for place in self.former for each in place.catalog.segments if each.name.base < place.end)
        return (*former, *self.committed)


@dataclass(frozen=True, slots=True)
class FormerPlace:
    """A directory that has older records of a restored partition.

    Attributes:
        catalog: its listing and `log.start`, without its commit: that can have changed since the restore.
        start: first offset that readers return of it.
        end: the offset after the last; the next place begins there.
        epochs: the leader epochs of the records that were restored; empty if they have none.
        ended: transactions that are open at the end, and that a restore ended.
        url: of another store that has it, and that is not read; None for the same store.
    """

    catalog: PartitionCatalog
    start: int
    end: int
    epochs: EpochHistory
    ended: tuple[Ended, ...]
    url: str | None = None


def read_catalog(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None = None,
    *,
    seals: bool = False,
    known: Sequence[SealedObject] = (),
    expected: Commit | None = None,
) -> PartitionCatalog:
    """Return a snapshot of one partition for a reader; a malformed commit or `log.start` is its `damage`.

    Args:
        commit: what `read_commit` has just returned; None to read it here.
        seals: whether sealed objects can replace a part of the listing.
        known: sealed objects of an earlier snapshot, which are not read again.
        expected: a commit that the partition had at some time before this call. If it still has it, the listing proves
            that, and the commit is not read; else all is read, with a second listing.

    Raises:
        LineageUnsettled: the lineages of commit and `log.start` did not fit in six reads.
        NewerFormat: a later release wrote the commit or `log.start`.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if expected is not None and (found := _read_expected(store, keys, expected, seals=seals, known=known)) is not None:
        return found
    commits = iter([commit])  # of the first attempt; later ones read it
    catalog: PartitionCatalog = _POLICY(
        lambda: _read(store, keys, next(commits, None), None, is_tolerant=True, seals=seals, known=known)
    )
    if not catalog.settled and catalog.stored_log_start is not None and isinstance(catalog.commit, Commit):
        raise LineageUnsettled(
            f"{keys.log_start} has the lineage {catalog.stored_log_start.content.lineage}, and {keys.commit} has "
            f"{catalog.commit.lineage}; the agent on the leader's broker must write one of them again: check its log, "
            "then repeat the query"
        )
    return catalog


def _read_expected(
    store: ObjectStore, keys: PartitionKeys, expected: Commit, *, seals: bool, known: Sequence[SealedObject]
) -> PartitionCatalog | None:
    """Return a snapshot by a commit that was read earlier; None unless the listing has the ETag of its content.

    It was the commit before this listing began, so the listing contains every segment of its run.
    """
    etags = list[str]()

    def seen(info: ObjectInfo) -> None:
        if info.key == keys.commit:
            etags.append(info.etag)

    catalog = _read(store, keys, (expected, None), seen, is_tolerant=True, seals=seals, known=known)
    if len(etags) != 1 or not _is_digest(etags[0], expected.encode()) or catalog.commit is None or not catalog.settled:
        return None
    return replace(catalog, commit_etag=etags[0])


def read_snapshot(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None = None,
    seen: Callable[[ObjectInfo], None] | None = None,
) -> PartitionCatalog:
    """Return a snapshot of one partition, also if commit and `log.start` are not `settled`.

    Args:
        commit: what `read_commit` has just returned; None to read it here.
        seen: is called with every object of the listing.

    Raises:
        CorruptData: the commit or `log.start` is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return _read(store, keys, commit, seen, is_tolerant=False)


def _read(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None,
    seen: Callable[[ObjectInfo], None] | None,
    *,
    is_tolerant: bool,
    seals: bool = False,
    known: Sequence[SealedObject] = (),
) -> PartitionCatalog:
    found, commit_etag, damage = None, None, None
    try:
        found, commit_etag = read_commit(store, keys) if commit is None else commit
    except CorruptData as error:
        if not is_tolerant:
            raise
        damage = str(error)
    log_start, sealed = None, list[SealedObject]()
    # Below a Java uploader, segments can be written over.
    if seals and isinstance(found, Commit) and found.java is None:
        listing = list_unsealed(store, keys, found, sealed, known)
    else:
        listing = store.list(keys.prefix)

    def listed() -> Iterator[ObjectInfo]:
        nonlocal found, commit_etag, damage, log_start
        for info in listing:
            if seen is not None:
                seen(info)
            if info.key == keys.log_start:
                try:
                    log_start = _log_start_of(store, keys, info, found)
                except CorruptData as error:
                    if not is_tolerant:
                        raise
                    found, commit_etag, damage = None, None, damage or str(error)
            yield info

    catalog = catalog_of(keys, listed())
    if sealed and log_start is None:  # retention may have removed the lowest rows
        return _read(store, keys, commit, seen, is_tolerant=is_tolerant)
    return replace(
        catalog, commit=found, commit_etag=commit_etag, stored_log_start=log_start, damage=damage, sealed=tuple(sealed)
    )


def catalog_of(keys: PartitionKeys, listed: Iterable[ObjectInfo]) -> PartitionCatalog:
    """Return what a listing of a partition shows, without commit and `log.start`."""
    logs: list[tuple[SegmentName, str, ObjectInfo]] = []
    suffixes: dict[str, str] = {}  # by stem: the suffixes of its indexes, joined
    gaps: list[tuple[int, int]] = []
    cache_objects: list[int] = []
    listed_erased: ListedErased | None = None
    start = len(keys.prefix)
    for info in listed:
        name = info.key[start:]
        stem, dot, suffix = name.rpartition(".")
        if suffix in _INDEX_WORDS:
            suffixes[stem] = suffixes.get(stem, "") + dot + suffix
        elif (parsed := SegmentName.parse(name)) is not None:
            logs.append((parsed[0], stem, info))
        elif name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            gaps.append(gap)
        elif name.startswith(CACHE_DIRECTORY):
            cache_object = parse_cache_object_name(name.removeprefix(CACHE_DIRECTORY))
            if cache_object is not None and info.size <= CACHE_OBJECT_BYTES:
                cache_objects.append(cache_object)
        elif name.startswith(ERASED_DIRECTORY):
            listed_erased = greater(listed_erased, name.removeprefix(ERASED_DIRECTORY), info.etag)
    segments = tuple(_stored(name, suffixes.get(stem, ""), info) for name, stem, info in sorted(logs, key=_plain_first))
    return PartitionCatalog(
        keys, None, None, None, segments, merged(gaps), tuple(cache_objects), listed_erased=listed_erased
    )


def _stored(name: SegmentName, suffixes: str, info: ObjectInfo) -> StoredSegment:
    return StoredSegment(
        name, info.size, _suffixes(suffixes), info.etag, _milliseconds(info), info.storage_class, info.is_frozen
    )


def _log_start_of(
    store: ObjectStore, keys: PartitionKeys, listed: ObjectInfo, commit: Commit | ForeignCommit | None
) -> StoredLogStart | None:
    """Return `log.start`, without a request if its ETag is the MD5 of the content that the commit implies.

    Most stores use the MD5 as ETag. An ETag that equals the MD5 of another content does not occur by accident. The
    name is listed after the segments, so the listing is as late as a request would be.
    """
    if isinstance(commit, Commit) and commit.epochs.pairs:
        expected = LogStart(commit.epochs.pairs[0][1], commit.lineage)
        if _is_digest(listed.etag, expected.encode()):
            return StoredLogStart(expected, listed.etag, _milliseconds(listed))
    return read_log_start(store, keys.log_start)


def _is_digest(etag: str, content: bytes) -> bool:
    return etag.strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()


def read_log_start(store: ObjectStore, key: str) -> StoredLogStart | None:
    """Return a `log.start`, or its copy; None if it does not exist.

    Args:
        key: `PartitionKeys.log_start`, or `ClusterKeys.log_start_copy`.

    Raises:
        CorruptData: it is malformed.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        data, info = get_small(store, key, LOG_START_BYTES)
    except ObjectNotFound:  # it may have been removed after a listing
        return None
    return StoredLogStart(decode_log_start(data, key), info.etag, _milliseconds(info))


def _milliseconds(info: ObjectInfo) -> int:
    return int(info.modified * 1000)


@lru_cache(maxsize=64)
def _suffixes(joined: str) -> frozenset[str]:
    """Return the suffixes in `.index.timeindex`; segments with the same suffixes share one object."""
    return frozenset(f".{word}" for word in joined.split(".") if word)


@dataclass(frozen=True, slots=True)
class Marks:
    """The gap records and `log.start` of a partition.

    Attributes:
        gaps: as in `PartitionCatalog`.
        log_start: the object `log.start`; None if it does not exist.
    """

    gaps: tuple[tuple[int, int], ...]
    log_start: StoredLogStart | None


def read_marks(store: ObjectStore, keys: PartitionKeys, commit: Commit) -> Marks:
    """Return gap records and `log.start`, by a listing that begins after the segments.

    Args:
        commit: the commit, read just before.

    Raises:
        CorruptData: `log.start` is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    gaps, log_start = [], None
    for info in store.list(keys.prefix, start_after=keys.marks):
        name = info.key.removeprefix(keys.prefix)
        if name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            gaps.append(gap)
        elif name == LOG_START_NAME:
            log_start = _log_start_of(store, keys, info, commit)
        elif name > LOG_START_NAME:
            break
    return Marks(merged(gaps), log_start)


def check_log_start(store: ObjectStore, keys: PartitionKeys) -> None:
    """Check that `log.start` is not malformed, by one request; it may be missing.

    Raises:
        CorruptData: it is malformed.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    read_log_start(store, keys.log_start)


def lowest_base(store: ObjectStore, keys: PartitionKeys) -> int | None:
    """Return the lowest base of a stored `.log`; None without one. Only the begin of the listing is read.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names = (SegmentName.parse(info.key.removeprefix(keys.prefix)) for info in store.list(keys.prefix))
    return next((parsed[0].base for parsed in names if parsed is not None and parsed[1] == LOG_SUFFIX), None)


def stored_bases(store: ObjectStore, keys: PartitionKeys) -> tuple[int, int] | None:
    """Return the lowest and the highest base of the stored `.log` objects, by a listing alone; None without one.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names = (SegmentName.parse(info.key.removeprefix(keys.prefix)) for info in store.list(keys.prefix))
    bases = [parsed[0].base for parsed in names if parsed is not None and parsed[1] == LOG_SUFFIX]
    return (min(bases), max(bases)) if bases else None


def read_commit(store: ObjectStore, keys: PartitionKeys) -> tuple[Commit | ForeignCommit | None, str | None]:
    """Return the commit of a partition and its ETag; two times None if the object does not exist.

    Raises:
        CorruptData: the object is not a commit.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        data, info = get_small(store, keys.commit, COMMIT_BYTES)
    except ObjectNotFound:
        return None, None
    return decode_commit(data, keys.commit), info.etag


def _plain_first(listed: tuple[SegmentName, str, ObjectInfo]) -> tuple[int, int, int, int]:
    name = listed[0]
    return name.base, -2 if name.epoch is None else name.epoch, name.crc32c or 0, name.repair or 0
