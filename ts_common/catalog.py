"""What the store holds of a partition, as one consistent snapshot.

No manifest: a listing is the catalog. The order of reads makes it consistent. The commit comes first, so that every
segment of its run is in the listing that follows (the store only grows), and `log.start` comes last, so that what
retention took in the meantime lies below it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from ts_common.commit import Commit, ForeignCommit, decode_commit, decode_log_start
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.gaps import merged, parse_gap_name
from ts_common.incarnations import Incarnations, decode_incarnations
from ts_common.model import TopicPartition
from ts_common.object_keys import GAPS_DIRECTORY, LOG_START_NAME, LOG_SUFFIX, ClusterKeys, PartitionKeys, SegmentName
from ts_common.probe import describe_segment
from ts_common.segment_metadata import SegmentMetadata
from ts_common.store.contract import ObjectStore

_ENTROPY = re.compile(r"[01]+")
_HEAD_THREADS = 16  # a HEAD waits for the network, not for the processor


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A `.log` object as a listing shows it.

    Attributes:
        name: its name.
        size: bytes.
        suffixes: of the indexes that stand beside it.
    """

    name: SegmentName
    size: int
    suffixes: frozenset[str]


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
class PartitionCatalog:
    """One partition in the store.

    Attributes:
        keys: where it lies.
        commit: what `offset.wm` says; None where there is none.
        commit_etag: of that object.
        log_start: what `log.start` says; None where there is none.
        segments: every `.log` object, by base offset, variants after the plain name.
        gaps: ranges `[from, to)` that are recorded to exist nowhere, ascending, joined where they touch.
    """

    keys: PartitionKeys
    commit: Commit | ForeignCommit | None
    commit_etag: str | None
    log_start: int | None
    segments: tuple[StoredSegment, ...]
    gaps: tuple[tuple[int, int], ...]

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
    """Take a snapshot of one partition.

    Args:
        store: where it lies.
        keys: of the partition.
        commit: what `read_commit` said just now; None to read it here.

    Raises:
        CorruptData: a commit or `log.start` that is none.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    found, commit_etag = read_commit(store, keys) if commit is None else commit
    logs: dict[SegmentName, int] = {}
    suffixes: dict[SegmentName, set[str]] = {}
    gaps: list[tuple[int, int]] = []
    log_start = None
    for info in store.list(keys.prefix):
        name = info.key.removeprefix(keys.prefix)
        if (parsed := SegmentName.parse(name)) is not None:
            if parsed[1] == LOG_SUFFIX:
                logs[parsed[0]] = info.size
            else:
                suffixes.setdefault(parsed[0], set()).add(parsed[1])
        elif name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            gaps.append(gap)
        elif name == LOG_START_NAME:
            log_start = decode_log_start(store.get(keys.log_start)[0], keys.log_start)
    segments = tuple(
        StoredSegment(name, logs[name], frozenset(suffixes.get(name, ()))) for name in sorted(logs, key=_plain_first)
    )
    return PartitionCatalog(keys, found, commit_etag, log_start, segments, merged(gaps))


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands beside a partition's segments and its commit.

    Attributes:
        gaps: as in `PartitionCatalog`.
        has_log_start: whether `log.start` is there.
    """

    gaps: tuple[tuple[int, int], ...]
    has_log_start: bool


def read_marks(store: ObjectStore, keys: PartitionKeys) -> Marks:
    """Gap records and `log.start`, by one listing that passes over the segments.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    gaps, has_log_start = [], False
    for info in store.list(keys.prefix, start_after=keys.marks):
        name = info.key.removeprefix(keys.prefix)
        if name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            gaps.append(gap)
        has_log_start = has_log_start or name == LOG_START_NAME
    return Marks(merged(gaps), has_log_start)


def read_commit(store: ObjectStore, keys: PartitionKeys) -> tuple[Commit | ForeignCommit | None, str | None]:
    """The commit of a partition and its etag, or None twice where there is no such key.

    Raises:
        CorruptData: the object is no commit.
    """
    try:
        data, info = store.get(keys.commit)
    except ObjectNotFound:
        return None, None
    return decode_commit(data, keys.commit), info.etag


def describe(
    store: ObjectStore,
    keys: PartitionKeys,
    segments: Sequence[StoredSegment],
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
) -> tuple[SegmentCopy, ...]:
    """What each segment answers for, from its metadata, or from a look inside where it has none.

    Args:
        store: where they lie.
        keys: of their partition.
        segments: of a snapshot.
        known: what was described before; a `.log` never changes, so the store is not asked again.
        damaged: takes a sentence for each segment that nothing can be said of, and it is left out; None to raise.

    Raises:
        CorruptData: a segment that begins with no batch, or metadata that is none.
        ObjectNotFound: one that retention took since the snapshot.
    """

    def one(segment: StoredSegment) -> SegmentCopy | None:
        if segment in known:
            return known[segment]
        try:
            metadata = describe_segment(store, keys, segment.name, segment.size, has_index=".index" in segment.suffixes)
        except CorruptData as error:
            if damaged is None:
                raise
            damaged.append(f"{keys.partition}: {error}; the segment is left out")
            return None
        return SegmentCopy(keys, segment, metadata)

    if len(segments) < 2:
        copies = [one(segment) for segment in segments]
    else:
        with ThreadPoolExecutor(_HEAD_THREADS, "catalog") as pool:
            copies = list(pool.map(one, segments))
    return tuple(copy for copy in copies if copy is not None)


def read_incarnations(store: ObjectStore, keys: ClusterKeys, topic: str) -> tuple[Incarnations, str | None]:
    """A topic's incarnations and the etag of their object (None where it is absent).

    Raises:
        CorruptData: the object is no such list.
    """
    key = keys.incarnations(topic)
    try:
        data, info = store.get(key)
    except ObjectNotFound:
        return Incarnations(topic), None
    return decode_incarnations(data, topic, key), info.etag


def list_topics(store: ObjectStore, keys: ClusterKeys) -> dict[str, frozenset[int]]:
    """Every topic of a cluster that the store knows under this entropy width, with its partitions.

    Later incarnations count for their topic; one that has only its incarnations object has no partitions. Where such a
    topic is called `t-1`, its directory cannot be told from partition 1 of `t` by name: read both before believing it.
    """
    topics: dict[str, set[int]] = {}
    for prefix in _cluster_prefixes(store, keys.cluster, keys.entropy_bits):
        for directory in store.list_directories(prefix):
            name = directory.rstrip("/")
            topic, tilde, later = name.partition("~")
            partition = TopicPartition.parse(f"{topic}-{later.rpartition('-')[2]}" if tilde else name)
            if partition is not None and keys.partition(partition).prefix.startswith(prefix):
                topics.setdefault(partition.topic, set()).add(partition.partition)
            elif not tilde and keys.incarnations(name).startswith(prefix):
                topics.setdefault(name, set())
    return {topic: frozenset(partitions) for topic, partitions in topics.items()}


def entropy_widths(store: ObjectStore, cluster: str) -> frozenset[int]:
    """The entropy widths under which the store holds anything of a cluster; 0 means no entropy part."""
    first = [directory.rstrip("/") for directory in store.list_directories("")]
    widths = {0} if cluster in first else set()
    for name in first:
        if _ENTROPY.fullmatch(name) and len(name) not in widths:
            held = (directory.rstrip("/") for directory in store.list_directories(f"{name}/"))
            if cluster in held:
                widths.add(len(name))
    return frozenset(widths)


def _cluster_prefixes(store: ObjectStore, cluster: str, bits: int) -> Iterator[str]:
    if bits < 1:
        yield f"{cluster}/"
        return
    for directory in store.list_directories(""):
        if len(directory) == bits + 1 and _ENTROPY.fullmatch(directory.rstrip("/")):
            yield f"{directory}{cluster}/"


def _plain_first(name: SegmentName) -> tuple[int, int, int]:
    return name.base, -2 if name.epoch is None else name.epoch, name.crc32c or 0
