"""What the store holds of a partition, as one consistent snapshot.

No manifest: a listing is the catalog. The order of reads makes it consistent. The commit comes first, so that every
segment of its run is in the listing that follows (the store only grows), and `log.start` comes last, so that what
retention took in the meantime lies below it. The two bear the same lineage, or `log.start` an older one; any other
pair is caught between two writes of an agent, and is read again (reading rule 1).

What the listed segments say of themselves comes from cache objects (`ts_common.archive.metadata_cache`) as far as those
know them, and from the segments' own metadata otherwise.
"""

import hashlib
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

import structlog

from ts_common.archive.commit import Commit, ForeignCommit, LogStart, decode_commit, decode_log_start
from ts_common.archive.fetch import explained_where_gone
from ts_common.archive.gap_records import merged, parse_gap_name
from ts_common.archive.incarnations import Incarnations, decode_incarnations
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, CacheObject, cache_objects_for, parse_cache_object_name
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    INDEX_SUFFIXES,
    LOG_START_NAME,
    ClusterKeys,
    PartitionKeys,
    SegmentName,
)
from ts_common.archive.segment_inspection import describe_segment
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.small_objects import COMMIT_BYTES, INCARNATIONS_BYTES, LOG_START_BYTES, get_small
from ts_common.errors import CorruptData, LineageUnsettled, NewerFormat, ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore

log = structlog.get_logger()

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_INDEX_WORDS = frozenset(suffix.removeprefix(".") for suffix in INDEX_SUFFIXES)
_HEAD_THREADS = 8  # a HEAD waits for the network, not for the processor
# An agent writes `log.start` right after the commit that went back.
_LINEAGE_WAITS_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6)
_FEW = 4  # requests, made one after the other: whoever asks for many partitions asks for several at once


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A `.log` object as a listing shows it.

    Attributes:
        name: its name.
        size: bytes.
        suffixes: of the indexes that stand beside it.
        etag: of the object; None where nobody listed it.
    """

    name: SegmentName
    size: int
    suffixes: frozenset[str]
    etag: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A stored segment and what it answers for; several copies may answer for the same offsets."""

    keys: PartitionKeys
    segment: StoredSegment
    metadata: SegmentMetadata

    @property
    def base(self) -> int:
        """First offset of its coverage."""
        return self.segment.name.base

    @property
    def end(self) -> int:
        """End of its coverage."""
        return self.metadata.end

    @property
    def dense(self) -> bool:
        """Whether every offset of its coverage has its record, so that no other copy can hold one that it lacks."""
        return self.metadata.records == self.end - self.base and not self.metadata.corruptions

    @property
    def key(self) -> str:
        """Key of the `.log` object."""
        return self.keys.segment(self.segment.name)


NOTHING_KNOWN: Mapping[StoredSegment, SegmentCopy] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredLogStart:
    """The object `log.start`.

    Attributes:
        content: of the object.
        etag: of the object, for a conditional write over it.
    """

    content: LogStart
    etag: str


@dataclass(frozen=True, slots=True)
class PartitionCatalog:
    """One partition in the store.

    Attributes:
        keys: where it lies.
        commit: what `offset.wm` says; None where there is none.
        commit_etag: of that object.
        stored_log_start: the object `log.start`; None where there is none.
        segments: every `.log` object, by base offset, variants after the plain name.
        gaps: ranges `[from, to)` that are recorded to exist nowhere, ascending, joined where they touch.
        cache_objects: the first bases of the cache objects, ascending.
    """

    keys: PartitionKeys
    commit: Commit | ForeignCommit | None
    commit_etag: str | None
    stored_log_start: StoredLogStart | None
    segments: tuple[StoredSegment, ...]
    gaps: tuple[tuple[int, int], ...]
    cache_objects: tuple[int, ...] = ()

    @property
    def log_start(self) -> int | None:
        """First offset that readers show, by `log.start` and the commit's lineage; None without a `log.start`."""
        if self.stored_log_start is None:
            return None
        content = self.stored_log_start.content
        return content.shown_from(self.commit.lineage) if isinstance(self.commit, Commit) else content.offset

    @property
    def settled(self) -> bool:
        """Whether commit and `log.start` are of lineages that readers can join."""
        if self.stored_log_start is None or not isinstance(self.commit, Commit):
            return True
        return self.stored_log_start.content.fits(self.commit.lineage)

    @property
    def start(self) -> int | None:
        """First offset that readers show: `log.start`, or where the archive begins; None where nothing says."""
        if self.log_start is not None:
            return self.log_start
        return self.segments[0].name.base if self.segments else None

    @property
    def committed(self) -> tuple[StoredSegment, ...]:
        """The segments that may answer for offsets that readers are shown; none where there is no commit."""
        match self.commit:
            case Commit(next_offset=end):
                return tuple(segment for segment in self.segments if segment.name.base < end)
            case ForeignCommit(highest_base=highest):
                return tuple(segment for segment in self.segments if segment.name.base <= highest)
            case None:
                return ()


def read_catalog(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None = None,
) -> PartitionCatalog:
    """Take a snapshot of one partition for a reader.

    Args:
        store: where it lies.
        keys: of the partition.
        commit: what `read_commit` said just now; None to read it here.

    Raises:
        LineageUnsettled: commit and `log.start` cannot be joined, five times in a row.
        CorruptData: a commit or `log.start` that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    catalog = read_snapshot(store, keys, commit)
    for seconds in _LINEAGE_WAITS_SECONDS:
        if catalog.settled:
            return catalog
        time.sleep(seconds)
        catalog = read_snapshot(store, keys)
    if not catalog.settled and catalog.stored_log_start is not None and isinstance(catalog.commit, Commit):
        raise LineageUnsettled(
            f"{keys.log_start} has the lineage {catalog.stored_log_start.content.lineage}, and {keys.commit} has "
            f"{catalog.commit.lineage}: the agent beside the partition's leader writes one of them again; look at its "
            "log, then repeat the query"
        )
    return catalog


def read_snapshot(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None = None,
) -> PartitionCatalog:
    """Take a snapshot of one partition as it is, also where commit and `log.start` are not `settled`.

    Args:
        store: where it lies.
        keys: of the partition.
        commit: what `read_commit` said just now; None to read it here.

    Raises:
        CorruptData: a commit or `log.start` that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    found, commit_etag = read_commit(store, keys) if commit is None else commit
    logs: list[tuple[SegmentName, str, ObjectInfo]] = []
    suffixes: dict[str, str] = {}  # of what stands beside them, by stem, joined
    gaps: list[tuple[int, int]] = []
    cache_objects: list[int] = []
    log_start = None
    start = len(keys.prefix)
    for info in store.list(keys.prefix):
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
        elif name == LOG_START_NAME:
            log_start = _read_log_start(store, keys, info, found)
    segments = tuple(
        StoredSegment(name, info.size, _suffixes(suffixes.get(stem, "")), info.etag)
        for name, stem, info in sorted(logs, key=_plain_first)
    )
    return PartitionCatalog(keys, found, commit_etag, log_start, segments, merged(gaps), tuple(cache_objects))


def _read_log_start(
    store: ObjectStore, keys: PartitionKeys, listed: ObjectInfo, commit: Commit | ForeignCommit | None
) -> StoredLogStart | None:
    """The object `log.start`, without a request where its ETag is the MD5 of what the commit lets expect.

    Most stores' ETags are, and one that is another text's by accident does not occur. It was listed behind the
    segments, so that this is as late as a request would be, for whom retention waits anyhow.
    """
    if isinstance(commit, Commit) and commit.epochs.pairs:
        expected = LogStart(commit.epochs.pairs[0][1], commit.lineage)
        digest = hashlib.md5(expected.encode(), usedforsecurity=False).hexdigest()
        if listed.etag.strip('"') == digest:
            return StoredLogStart(expected, listed.etag)
    try:
        data, info = get_small(store, keys.log_start, LOG_START_BYTES)
    except ObjectNotFound:  # gone since it was listed
        return None
    return StoredLogStart(decode_log_start(data, keys.log_start), info.etag)


@lru_cache(maxsize=64)
def _suffixes(joined: str) -> frozenset[str]:
    """The suffixes in `.index.timeindex`; one object for all segments that have the same."""
    return frozenset(f".{word}" for word in joined.split(".") if word)


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands beside a partition's segments and its commit.

    Attributes:
        gaps: as in `PartitionCatalog`.
        log_start: the object `log.start`; None where there is none.
    """

    gaps: tuple[tuple[int, int], ...]
    log_start: StoredLogStart | None


def read_marks(store: ObjectStore, keys: PartitionKeys, commit: Commit) -> Marks:
    """Gap records and `log.start`, by one listing that passes over the segments.

    Args:
        store: where the partition lies.
        keys: of the partition.
        commit: read just before.

    Raises:
        CorruptData: a `log.start` that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    gaps, log_start = [], None
    for info in store.list(keys.prefix, start_after=keys.marks):
        name = info.key.removeprefix(keys.prefix)
        if name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            gaps.append(gap)
        elif name == LOG_START_NAME:
            log_start = _read_log_start(store, keys, info, commit)
        elif name > LOG_START_NAME:
            break
    return Marks(merged(gaps), log_start)


def read_commit(store: ObjectStore, keys: PartitionKeys) -> tuple[Commit | ForeignCommit | None, str | None]:
    """The commit of a partition and its etag, or None twice where there is no such key.

    Raises:
        CorruptData: the object is no commit.
        NewerFormat: it is a later release's.
    """
    try:
        data, info = get_small(store, keys.commit, COMMIT_BYTES)
    except ObjectNotFound:
        return None, None
    return decode_commit(data, keys.commit), info.etag


def describe(
    store: ObjectStore,
    keys: PartitionKeys,
    segments: Sequence[StoredSegment],
    cache_objects: Sequence[int] = (),
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
    gone: list[StoredSegment] | None = None,
) -> tuple[SegmentCopy, ...]:
    """What each segment answers for: from cache objects, else from its metadata, or a look inside where it has none.

    Args:
        store: where they lie.
        keys: of their partition.
        segments: of a snapshot.
        cache_objects: of that snapshot; of these only those are read that the segments belong to.
        known: what was described before; a `.log` never changes, so the store is not asked again.
        damaged: takes a sentence for each segment that nothing can be said of, and it is left out; None to raise.
        gone: takes each segment whose object is not there any more, and it is left out; None to raise.

    Raises:
        CorruptData: a segment that begins with no batch, or metadata that is none.
        ObjectNotFound: one that retention took since the snapshot.
    """
    described = _read_cache_objects(
        store, keys, [segment for segment in segments if segment not in known], cache_objects
    )
    copies: list[SegmentCopy | None] = []
    for segment in segments:
        copy = known.get(segment) if known else None
        if copy is None and (metadata := described(segment)) is not None:
            copy = SegmentCopy(keys, segment, metadata)
        copies.append(copy)

    def ask(segment: StoredSegment) -> SegmentCopy | None:
        try:
            with explained_where_gone(store, keys.segment(segment.name)):
                metadata = describe_segment(
                    store, keys, segment.name, segment.size, has_index=".index" in segment.suffixes
                )
        except ObjectNotFound:
            if gone is None:
                raise
            gone.append(segment)
            return None
        except CorruptData as error:
            if damaged is None:
                raise
            damaged.append(f"{keys.partition}: {error}; the segment is left out")
            return None
        return SegmentCopy(keys, segment, metadata)

    asked = iter(_each(ask, [segment for segment, copy in zip(segments, copies, strict=True) if copy is None]))
    return tuple(copy for copy in (copy or next(asked) for copy in copies) if copy is not None)


def _read_cache_objects(
    store: ObjectStore, keys: PartitionKeys, segments: Sequence[StoredSegment], cache_objects: Sequence[int]
) -> Callable[[StoredSegment], SegmentMetadata | None]:
    """What the cache objects of these segments say of each; nothing for one that they do not know."""
    wanted = cache_objects_for(cache_objects, {segment.name.base for segment in segments}) if cache_objects else []
    read = _each(lambda first: _read_cache_object(store, keys, first), wanted)

    def find(segment: StoredSegment) -> SegmentMetadata | None:
        at = bisect_right(wanted, segment.name.base) - 1
        cache_object = read[at] if at >= 0 else None
        return None if cache_object is None else cache_object.find(segment.name, segment.size, segment.etag)

    return find


def _read_cache_object(store: ObjectStore, keys: PartitionKeys, first: int) -> CacheObject | None:
    """A cache object; one that is gone, or cannot be believed, is none."""
    key = keys.cache_object(first)
    try:
        return CacheObject(get_small(store, key, CACHE_OBJECT_BYTES)[0], keys, key)
    except (ObjectNotFound, CorruptData, NewerFormat) as error:
        log.warning("metadata_cache_unusable", key=key, reason=str(error))
        return None


def _each(function: Callable[[_In], _Out], inputs: Sequence[_In]) -> list[_Out]:
    if len(inputs) <= _FEW:
        return [function(one) for one in inputs]
    with ThreadPoolExecutor(min(_HEAD_THREADS, len(inputs)), "catalog") as pool:
        return list(pool.map(function, inputs))


def read_incarnations(store: ObjectStore, keys: ClusterKeys, topic: str) -> tuple[Incarnations, str | None]:
    """A topic's incarnations and the etag of their object (None where it is absent).

    Raises:
        CorruptData: the object is no such list.
        NewerFormat: it is a later release's.
    """
    key = keys.incarnations(topic)
    try:
        data, info = get_small(store, key, INCARNATIONS_BYTES)
    except ObjectNotFound:
        return Incarnations(topic), None
    return decode_incarnations(data, topic, key), info.etag


def _plain_first(listed: tuple[SegmentName, str, ObjectInfo]) -> tuple[int, int, int]:
    name = listed[0]
    return name.base, -2 if name.epoch is None else name.epoch, name.crc32c or 0
