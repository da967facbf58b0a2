"""Counts what an archive holds, by listings of its directories; no list of objects is in memory.

Each directory of a partition has a listing of its own: a store that walks directories returns the keys of one directory
out of order, and the driver sorts them in memory. The commit and `log.start` of a partition limit its living bytes. Its
segments are listed by base offset, so a segment ends where the next one begins.
"""

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, ForeignCommit, decode_log_start
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    COMMIT_NAME,
    FORMER_CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    INCARNATIONS_NAME,
    LOG_START_NAME,
    LOG_SUFFIX,
    ClusterKeys,
    PartitionKeys,
    SegmentName,
    partition_of,
)
from ts_common.archive.small_objects import LOG_START_BYTES, get_small
from ts_common.errors import NewerFormat, ObjectNotFound, PermanentError
from ts_common.model import TopicPartition, is_topic_name
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_reader.reading.parallel import in_threads
from tsctl.cost.usage import OWN, SEGMENT, Kind, Part, Usage

_ENTROPY: Final = re.compile(r"[01]+")
_MARKS: Final = frozenset({COMMIT_NAME, LOG_START_NAME, INCARNATIONS_NAME})
_DAY: Final = 86_400.0  # seconds


@dataclass(frozen=True, slots=True)
class Measure:
    """How objects are counted.

    Attributes:
        edges: as in `Usage`.
        thresholds: as in `Usage`.
        default_class: of objects that the store lists without one.
        now: seconds since the epoch.
    """

    edges: tuple[float, ...]
    thresholds: tuple[int, ...]
    default_class: str
    now: float


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory of a cluster in a store.

    Attributes:
        store: of the directory.
        prefix: of its keys, with the final slash.
        topic: whose partition it is; `OWN` for none.
        partition: its number; None if it is no partition's.
    """

    store: ObjectStore
    prefix: str
    topic: str
    partition: int | None

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.prefix.rstrip("/").rpartition("/")[2]


def find_directories(store: ObjectStore, keys: ClusterKeys) -> Iterator[Directory]:
    """Yield every directory of a cluster, under any number of entropy bits, with that of the cluster's own objects.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    yield Directory(store, keys.cluster_prefix, OWN, None)
    for directory in store.list_directories(""):
        name = directory.rstrip("/")
        below = []  # directories of the cluster, if this one is entropy
        if _ENTROPY.fullmatch(name):
            prefix = f"{directory}{keys.cluster}/"
            below = [prefix + found for found in store.list_directories(prefix)]
        if name == keys.cluster:  # a name such as `1` can be both; a topic `1` has no directories below its own
            own = (directory + found for found in store.list_directories(directory))
            below += [found for found in own if not (below and found == f"{directory}{keys.cluster}/")]
        yield from (_directory(store, each) for each in below)


def count(
    directories: Sequence[Directory],
    keys: ClusterKeys,
    measure: Measure,
    *,
    warn: Callable[[str], None],
    advance: Callable[[], object] = lambda: None,
) -> Usage:
    """Return what directories hold.

    Args:
        directories: from `find_directories`.
        keys: of the cluster.
        measure: how to count.
        warn: called with each commit or `log.start` that cannot be read; all bytes of its partition then count as
            living.
        advance: called after each directory.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    counter = _Counter(keys, measure, warn)

    def one(directory: Directory) -> None:
        counter.count(directory)
        advance()

    in_threads(one, directories)
    return counter.usage()


def kind_of(name: str, prefix: str, keys: ClusterKeys) -> Kind:
    """Return what an object is.

    Args:
        name: the part of its key after the directory.
        prefix: of the directory.
        keys: of the cluster.
    """
    if prefix == keys.cluster_prefix:
        return Kind.CLUSTER
    if (parsed := SegmentName.parse(name)) is not None:
        return Kind.LOG if parsed[1] == LOG_SUFFIX else Kind.INDEX
    if name.startswith((CACHE_DIRECTORY, FORMER_CACHE_DIRECTORY)):
        return Kind.CACHE
    return Kind.MARK if name in _MARKS or name.startswith(GAPS_DIRECTORY) else Kind.OTHER


_Key = tuple[str, str, Kind, int]  # topic, storage class, kind, range of ages


class _Sums:
    """The numbers of one part while objects are counted."""

    __slots__ = ("byte_days", "living", "objects", "size", "small")

    def __init__(self, thresholds: int) -> None:
        self.objects = self.size = self.living = 0
        self.byte_days = 0.0
        self.small = [[0, 0] for _ in range(thresholds)]

    def add(self, other: "_Sums") -> None:
        self.objects += other.objects
        self.size += other.size
        self.living += other.living
        self.byte_days += other.byte_days
        for own, further in zip(self.small, other.small, strict=True):
            own[0] += further[0]
            own[1] += further[1]


class _Counter:
    """Sums of all directories, which threads count."""

    def __init__(self, keys: ClusterKeys, measure: Measure, warn: Callable[[str], None]) -> None:
        self._keys = keys
        self._measure = measure
        self._warn = warn
        self._lock = threading.Lock()  # guards the rest
        self._sums: dict[_Key, _Sums] = {}
        self._oldest = 0.0
        self._oldest_segment: float | None = None
        self._brokers = self._partitions = 0

    def count(self, directory: Directory) -> None:
        """Count the objects of a directory."""
        start, end = self._living(directory)
        sums: dict[_Key, _Sums] = {}
        waiting: dict[_Key, int] = {}  # bytes at `base` whose end is the next base
        base, oldest, brokers = -1, 0.0, 0
        oldest_segment: float | None = None
        for info in directory.store.list(directory.prefix):
            name = info.key[len(directory.prefix) :]
            key, age = self._key(directory, name, info)
            found = sums.get(key)
            if found is None:
                found = sums[key] = _Sums(len(self._measure.thresholds))
            self._add(found, info.size, age)
            oldest = max(oldest, age)
            brokers += info.key.startswith(self._keys.ends)
            if key[2] in SEGMENT and (parsed := SegmentName.parse(name)) is not None:
                oldest_segment = max(oldest_segment or 0.0, age)
                if parsed[0].base != base:
                    _settle(sums, waiting, parsed[0].base > start)
                    base = parsed[0].base
                if base < end:
                    waiting[key] = waiting.get(key, 0) + info.size
        _settle(sums, waiting, True)
        with self._lock:
            for key, found in sums.items():
                self._sums.setdefault(key, _Sums(len(self._measure.thresholds))).add(found)
            self._oldest = max(self._oldest, oldest)
            if oldest_segment is not None:
                self._oldest_segment = max(self._oldest_segment or 0.0, oldest_segment)
            self._brokers += brokers
            self._partitions += any(kind in SEGMENT for _, _, kind, _ in sums)

    def usage(self) -> Usage:
        """Return what was counted."""
        parts = tuple(
            Part(*key, found.objects, found.size, found.living, found.byte_days, tuple((a, b) for a, b in found.small))
            for key, found in sorted(self._sums.items())
        )
        measure = self._measure
        bits = max(0, self._keys.entropy_bits)
        ages = (self._oldest, self._oldest_segment)
        return Usage(parts, measure.edges, measure.thresholds, *ages, self._brokers, bits, self._partitions)

    def _key(self, directory: Directory, name: str, info: ObjectInfo) -> tuple[_Key, float]:
        """Return the part of an object, and its age in days."""
        kind = kind_of(name, directory.prefix, self._keys)
        # `t-0/incarnations.json` is the list of a topic `t-0`.
        topic = directory.name if name == INCARNATIONS_NAME else directory.topic
        age = max(0.0, self._measure.now - info.modified) / _DAY
        edge = bisect_right(self._measure.edges, age) - 1
        return (topic, info.storage_class or self._measure.default_class, kind, edge), age

    def _add(self, sums: _Sums, size: int, age: float) -> None:
        sums.objects += 1
        sums.size += size
        sums.byte_days += size * age
        for place, threshold in enumerate(self._measure.thresholds):
            if size < threshold:
                sums.small[place][0] += 1
                sums.small[place][1] += size

    def _living(self, directory: Directory) -> tuple[float, float]:
        """Return the offsets `[start, end)` of a partition whose segments are living."""
        if directory.partition is None:
            return inf, -inf
        keys = PartitionKeys(TopicPartition(directory.topic, directory.partition), directory.prefix)
        try:
            commit, _ = read_commit(directory.store, keys)
            match commit:
                case Commit(next_offset=end):
                    return _log_start(directory.store, keys, commit), end
                case ForeignCommit(highest_base=highest):
                    return _log_start(directory.store, keys, None), highest + 1
                case None:
                    return inf, -inf
        except (PermanentError, NewerFormat) as error:
            self._warn(f"{error}; all bytes of {keys.partition} count as living")
            return -inf, inf


def _settle(sums: dict[_Key, _Sums], waiting: dict[_Key, int], living: bool) -> None:
    """Count bytes as living, or drop them, once their end is read."""
    if living:
        for key, size in waiting.items():
            sums[key].living += size
    waiting.clear()


def _log_start(store: ObjectStore, keys: PartitionKeys, commit: Commit | None) -> float:
    try:
        data, _ = get_small(store, keys.log_start, LOG_START_BYTES)
    except ObjectNotFound:
        return -inf
    found = decode_log_start(data, keys.log_start)
    return found.offset if commit is None else found.shown_from(commit.lineage)


def _directory(store: ObjectStore, prefix: str) -> Directory:
    name = prefix.rstrip("/").rpartition("/")[2]
    partition = partition_of(name)
    if partition is not None:
        return Directory(store, prefix, partition.topic, partition.partition)
    return Directory(store, prefix, name if is_topic_name(name) else OWN, None)


def topics_in(directories: Iterable[Directory]) -> set[str]:
    """Return the topics of directories."""
    return {directory.topic for directory in directories} - {OWN}
