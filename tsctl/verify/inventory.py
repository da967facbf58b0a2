"""Lists a cluster's directories in the store, and separates its own objects from foreign ones.

`find_partitions` lists the directories. `list_partition` reads the snapshot that readers use
(`ts_common.archive.catalog`). From the same listing it collects what readers ignore: foreign objects, indexes without a
`.log`, and the age of objects.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ts_common.archive.catalog import PartitionCatalog, read_snapshot
from ts_common.archive.erased_list import parse_erased_name
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.metadata_cache import parse_cache_object_name
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    COMMIT_NAME,
    ERASED_DIRECTORY,
    FORMER_CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    INCARNATIONS_NAME,
    LOG_START_NAME,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    SEAL_NAME,
    ClusterKeys,
    PartitionKeys,
    SegmentName,
    partition_of,
)
from ts_common.archive.sealed_objects import parse_sealed_name
from ts_common.model import is_topic_name
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.wording import counted
from tsctl.verify.finding_kinds import FOREIGN_OBJECT, WRONG_ENTROPY
from tsctl.verify.findings import Finding

_ENTROPY = re.compile(r"[01]+")
FOREIGN_KEYS_LISTED = 20  # of one directory; a bucket that another program uses too may contain millions


@dataclass(slots=True)
class Directories:
    """The directories of a cluster, by their names.

    Attributes:
        partitions: of each topic, the directories of all partitions in all incarnations.
        topics: topics with a directory for their list of incarnations.
        findings: directories in the wrong place, and foreign ones.
    """

    partitions: dict[str, list[PartitionKeys]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def find_partitions(store: ObjectStore, keys: ClusterKeys) -> Directories:
    """Return every directory of a cluster, under any number of entropy bits.

    Without entropy bits, `t-1` is partition 1 of `t`, or topic `t-1` with nothing but its list of incarnations. It
    counts as both.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    found = Directories()
    for bits in _first_parts(store, keys):
        prefix = f"{bits}/{keys.cluster}/" if bits else f"{keys.cluster}/"
        for directory in store.list_directories(prefix):
            _place(found, keys, prefix, directory.rstrip("/"))
    return found


def _first_parts(store: ObjectStore, keys: ClusterKeys) -> Iterator[str]:
    """Yield the first parts of keys, before the cluster, for every number of entropy bits; "" for none."""
    for directory in store.list_directories(""):
        name = directory.rstrip("/")
        if name == keys.cluster:
            yield ""
        elif _ENTROPY.fullmatch(name) and f"{keys.cluster}/" in store.list_directories(f"{name}/"):
            yield name


def _place(found: Directories, keys: ClusterKeys, prefix: str, name: str) -> None:
    """Classify a directory: of a partition, of a topic, foreign, or in the wrong place."""
    partition = partition_of(name)
    here = None if partition is None else keys.partition(partition, name.rpartition("-")[0])
    place, bits = f"{prefix}{name}/", counted(keys.entropy_bits, "entropy bit")
    is_topic = is_topic_name(name)
    if here is not None and here.prefix == place:
        found.partitions.setdefault(here.partition.topic, []).append(here)
    if is_topic and keys.incarnations(name) == f"{place}{INCARNATIONS_NAME}":
        found.topics.add(name)
    elif here is not None and here.prefix != place:
        detail = f"with {bits}, this directory is expected at {here.prefix}"
        found.findings.append(Finding(WRONG_ENTROPY, name, detail, place))
    elif here is None and is_topic:
        detail = f"with {bits}, this topic's list is expected at {keys.incarnations(name)}"
        found.findings.append(Finding(WRONG_ENTROPY, name, detail, place))
    elif here is None:
        detail = "the directory has no name of a topic or partition"
        found.findings.append(Finding(FOREIGN_OBJECT, name, detail, place))


@dataclass(slots=True)
class PartitionListing:
    """One partition's directory.

    Attributes:
        catalog: as readers see it.
        modified: when the newest object of each segment was written, by stem, seconds since the epoch.
        lonely: keys of indexes without a `.log`.
        gap_records: (from, to, when written) of each.
        foreign_keys: keys of foreign objects; only the first ones.
        has_incarnations: whether the directory contains the list of incarnations of a topic of its name.
        has_others: whether it contains anything but such a list, foreign objects and `log.start`.
        log_start_written: when `log.start` was written, seconds since the epoch; None if it is missing.
        committed_at: when `offset.wm` was written, seconds since the epoch; None if it is missing.
        has_seals: whether it contains `seal.json`.
    """

    catalog: PartitionCatalog
    modified: dict[str, float]
    lonely: tuple[str, ...]
    gap_records: tuple[tuple[int, int, float], ...]
    foreign_keys: tuple[str, ...]
    foreign_count: int
    has_incarnations: bool
    has_others: bool
    log_start_written: float | None = None
    committed_at: float | None = None
    has_seals: bool = False
    erased: ErasedOffsets = NOTHING_ERASED


def list_partition(store: ObjectStore, keys: PartitionKeys) -> PartitionListing:
    """Return the snapshot of one partition, with what readers ignore.

    Raises:
        CorruptData, NewerFormat: a commit, `log.start` or a list of erased offsets is malformed, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    notes = _Notes(keys)
    catalog = read_snapshot(store, keys, seen=notes.add)
    erased = catalog.read_erased(store)
    return PartitionListing(
        catalog=catalog,
        modified=notes.modified,
        lonely=tuple(notes.indexes.values()),
        gap_records=tuple(notes.gap_records),
        foreign_keys=tuple(notes.foreign_keys),
        foreign_count=notes.kinds["foreign"],
        has_incarnations=bool(notes.kinds["incarnations"]),
        has_others=any(notes.kinds[kind] for kind in ("segment", "commit", "gap", "cache object", "erased offsets")),
        log_start_written=notes.log_start_written,
        committed_at=notes.committed_at,
        has_seals=notes.has_seals,
        erased=erased,
    )


class _Notes:
    """What a listing of a partition's directory shows."""

    def __init__(self, keys: PartitionKeys) -> None:
        self._prefix = keys.prefix
        # The stems of the latest base with a `.log`: the names of a repair can be between those of another stem.
        self._base, self._logs = "", set[str]()
        self.modified: dict[str, float] = {}
        self.indexes: dict[str, str] = {}  # by stem, of stems without a `.log`
        self.gap_records: list[tuple[int, int, float]] = []
        self.foreign_keys: list[str] = []
        self.log_start_written: float | None = None
        self.committed_at: float | None = None
        self.has_seals = False
        self.kinds: Counter[str] = Counter()

    def add(self, info: ObjectInfo) -> None:
        """Add the next object of the listing."""
        name = info.key.removeprefix(self._prefix)
        kind = self._kind(name, info)
        self.kinds[kind] += 1
        if kind == "segment":
            stem, _, suffix = name.rpartition(".")
            self.modified[stem] = max(info.modified, self.modified.get(stem, 0.0))
            if name[:OFFSET_DIGITS] != self._base:
                self._base = name[:OFFSET_DIGITS]
                self._logs.clear()
            if f".{suffix}" == LOG_SUFFIX:
                self.indexes.pop(stem, None)
                self._logs.add(stem)
            elif stem not in self._logs:
                self.indexes.setdefault(stem, info.key)
        elif kind == "foreign" and len(self.foreign_keys) < FOREIGN_KEYS_LISTED:
            self.foreign_keys.append(info.key)

    def _kind(self, name: str, info: ObjectInfo) -> str:
        if SegmentName.parse(name) is not None:
            return "segment"
        if name == LOG_START_NAME:
            self.log_start_written = info.modified
            return "start"
        if name == COMMIT_NAME:
            self.committed_at = info.modified
            return "commit"
        if name == INCARNATIONS_NAME:
            return "incarnations"
        if name.startswith(GAPS_DIRECTORY) and (gap := parse_gap_name(name.removeprefix(GAPS_DIRECTORY))):
            self.gap_records.append((*gap, info.modified))
            return "gap"
        if name.startswith(ERASED_DIRECTORY):
            is_list = parse_erased_name(name.removeprefix(ERASED_DIRECTORY)) is not None
            return "erased offsets" if is_list else "foreign"
        if name.startswith(FORMER_CACHE_DIRECTORY):
            return "cache object"
        if name.startswith(CACHE_DIRECTORY):
            own = name.removeprefix(CACHE_DIRECTORY)
            self.has_seals |= own == SEAL_NAME
            is_sealed = own == SEAL_NAME or parse_sealed_name(own) is not None
            return "cache object" if is_sealed or parse_cache_object_name(own) is not None else "foreign"
        return "foreign"
