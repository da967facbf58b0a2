"""The clusters that a store has, for a user whose cluster id is wrong or unknown.

An agent writes `ts-uploader~cluster~<cluster>/layout.json` before anything else. An archive of a Java uploader or of an
earlier release has none. Its mark is an object of a partition: below `<cluster>/<topic>-<partition>/`, or below
`<bits>/<cluster>/<topic>-<partition>/`, where the bits are those of this cluster and partition. A directory named `101`
can be either: a cluster with that id, or an entropy part.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ts_common.archive.object_keys import (
    CLUSTER_DIRECTORY,
    COMMIT_NAME,
    LOG_START_NAME,
    MAX_ENTROPY_BITS,
    ClusterKeys,
    SegmentName,
    partition_of,
)
from ts_common.model import is_cluster_id
from ts_common.store.contract import ObjectStore
from ts_common.wording import some

MOST_LAYOUTS: Final = 100  # that are looked for; a bucket can have thousands of clusters
MOST_LISTINGS: Final = 100  # below other directories; a bucket that other programs use can have millions
_PAGE: Final = 1000  # keys in one response of a store
_TRIED: Final = 2  # directories of partitions
_ENTROPY: Final = re.compile(rf"[01]{{1,{MAX_ENTROPY_BITS}}}")


@dataclass(frozen=True, slots=True)
class FoundClusters:
    """The clusters of a store.

    Attributes:
        ids: their ids, sorted.
        is_complete: whether every directory of the store was read; False if it has too many.
    """

    ids: tuple[str, ...]
    is_complete: bool

    def __str__(self) -> str:
        """Return the clause of a message about a wrong cluster."""
        end = "" if self.is_complete else ", as far as its directories were read"
        return f"it has {some(self.ids) or 'no cluster'}{end}"


def find_clusters(store: ObjectStore) -> FoundClusters:
    """Return the clusters of a store, with a listing of its directories and at most two hundred requests more.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names = [directory.rstrip("/") for directory in store.list_directories("")]
    own = [name.removeprefix(CLUSTER_DIRECTORY) for name in names if name.startswith(CLUSTER_DIRECTORY)]
    own = [cluster for cluster in own if is_cluster_id(cluster)]
    # A hold of a mistyped cluster is there too.
    found = {cluster for cluster in own[:MOST_LAYOUTS] if _has_layout(store, cluster)}
    search = _Search(store, found)
    search.run([name for name in names if is_cluster_id(name) and name not in found])
    return FoundClusters(tuple(sorted(found)), len(own) <= MOST_LAYOUTS and not search.is_cut_off)


def _has_layout(store: ObjectStore, cluster: str) -> bool:
    key = ClusterKeys(cluster).layout
    return next((True for info in store.list(key) if info.key == key), False)


@dataclass(slots=True)
class _Search:
    """Looks for objects of partitions, with a bounded number of listings.

    Attributes:
        is_cut_off: whether a directory was left out.
    """

    store: ObjectStore
    found: set[str]
    is_cut_off: bool = False
    _left: int = MOST_LISTINGS

    def run(self, names: Sequence[str]) -> None:
        """Read directories of the store: those that can only be clusters first, then entropy parts."""
        for name in names:
            if not _ENTROPY.fullmatch(name) and self._has_partition(ClusterKeys(name), self._listed(f"{name}/")):
                self.found.add(name)
        for bits in _in_turn(filter(_ENTROPY.fullmatch, names)):
            held = self._listed(f"{bits}/")
            if bits not in self.found and self._has_partition(ClusterKeys(bits), held):
                self.found.add(bits)
            for name in held:
                # Partitions of a cluster with this id have directories here too.
                is_own = bits in self.found and partition_of(name) is not None
                if name in self.found or is_own or not is_cluster_id(name):
                    continue
                if self._has_partition(ClusterKeys(name, len(bits)), self._listed(f"{bits}/{name}/"), f"{bits}/"):
                    self.found.add(name)

    def _has_partition(self, keys: ClusterKeys, directories: Iterable[str], above: str = "") -> bool:
        """Return whether one of the first directories of partitions below a cluster's contains an object of it."""
        prefix = f"{above}{keys.cluster}/"
        own = (name for name in directories if _is_directory_of(keys, prefix, name))
        return any(self._contains_objects(f"{prefix}{name}/") for name in islice(own, _TRIED))

    def _contains_objects(self, prefix: str) -> bool:
        listed = islice(self.store.list(prefix), _PAGE) if self._may_list() else ()
        names = (info.key.removeprefix(prefix) for info in listed)
        return any(name in {COMMIT_NAME, LOG_START_NAME} or SegmentName.parse(name) for name in names)

    def _listed(self, prefix: str) -> list[str]:
        listed = self.store.list_directories(prefix) if self._may_list() else ()
        return [directory.rstrip("/") for directory in listed]

    def _may_list(self) -> bool:
        self.is_cut_off = self.is_cut_off or self._left < 1
        self._left -= 1
        return not self.is_cut_off


def _in_turn(names: Iterable[str]) -> list[str]:
    """Return the names, one of each length in turn: a store can have thousands of one width."""
    by_width: dict[int, list[str]] = {}
    for name in names:
        by_width.setdefault(len(name), []).append(name)
    return [name for _, name in sorted(pair for held in by_width.values() for pair in enumerate(held))]


def _is_directory_of(keys: ClusterKeys, prefix: str, name: str) -> bool:
    """Return whether a directory below a prefix is that of one of the cluster's partitions, with its entropy bits."""
    partition = partition_of(name)
    return partition is not None and keys.partition(partition).prefix.startswith(prefix)


def known_clusters(store: ObjectStore) -> str:
    """Return a clause for a message about a wrong cluster: the clusters that the store has.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return str(find_clusters(store))
