"""Look keys up in the indexes of some views: the offsets that can have them, and what no index covers.

An index that cannot be read, or a part of it, is one that is not there: its objects are read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.decode.hashed_key import HashedKey, hashed
from ts_reader.find.rules import Certificate, Entry, Found, Window, allowed, entry_of, window_of, windows_of
from ts_reader.find.runs import Run, file_of, period_of, read_pairs, read_run
from ts_reader.reading.parallel import in_threads

_LOST: Final = (ObjectNotFound, CorruptData, NewerFormat, ObjectFrozen, AccessDenied)

_T = TypeVar("_T")

log = structlog.get_logger("ts_reader")


class Indexes:
    """The indexes of a store, each read once.

    Different indexes can be read by several threads, one index by one thread at a time.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._found: dict[tuple[ClusterKeys, str], list[Run]] = {}

    def of(self, cluster: ClusterKeys, incarnation: str) -> list[Run]:
        """Return the runs of an index; arguments, order and errors as of `read_runs`."""
        if (cluster, incarnation) not in self._found:
            self._found[cluster, incarnation] = read_runs(self._store, cluster, incarnation)
        return self._found[cluster, incarnation]

    def expected_commits(self, cluster: ClusterKeys, incarnation: str) -> dict[str, Commit]:
        """Return commits that partitions had when they were indexed, by directory.

        A wrong one costs a second listing, and a right one saves a request that costs a tenth of it. So a commit counts
        only if it was older when its run was finished than the run is now.

        Args:
            incarnation: as of `ClusterKeys.find`.

        Raises:
            StoreUnavailable, BucketMissing: from the store.
        """
        found: dict[str, Commit] = {}
        for run in reversed(self.of(cluster, incarnation)):
            for directory, text in run.commits.items():
                found.pop(directory, None)  # of an earlier run
                with suppress(CorruptData, NewerFormat):
                    commit = decode_commit(text.encode(), directory)
                    age = run.modified - commit.time / 1000 if isinstance(commit, Commit) else 0.0
                    if isinstance(commit, Commit) and self._store.current_time() - run.modified < age:
                        found[directory] = commit
        return found


class KeyLookup:
    """The keys of a query, and what the indexes of a store have.

    Args:
        places: all directories of the query's partitions, also former ones.
        keys: any of them is wanted.
        indexes: of the store, if the caller has read some; they can be older than the listings.

    Raises:
        StoreUnavailable, BucketMissing: from the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        places: Iterable[PartitionKeys],
        keys: Collection[bytes],
        indexes: Indexes | None = None,
    ) -> None:
        self._store = store
        self._wanted = [hashed(key) for key in sorted(set(keys))]
        indexes = indexes or Indexes(store)
        topics = {(each.cluster, each.incarnation) for each in places}
        self._indexes = dict(zip(topics, in_threads(lambda topic: indexes.of(*topic), topics), strict=True))
        self._left_out = 0

    def not_left_out(self, catalogs: Sequence[PartitionCatalog], *, tails: bool) -> list[PartitionCatalog]:
        """Return the partitions that `leaves_out` does not leave out; arguments and errors as of it."""
        decided = in_threads(lambda catalog: self.leaves_out(catalog, tails=tails), catalogs)
        found = list(zip(catalogs, decided, strict=True))
        self._left_out += sum(len(catalog.committed) for catalog, is_left_out in found if is_left_out)
        return [catalog for catalog, is_left_out in found if not is_left_out]

    def leaves_out(self, catalog: PartitionCatalog, *, tails: bool) -> bool:
        """Return whether a partition has none of the keys, and no hole, by its listing and certificates alone.

        Then no metadata of its segments is read. This is decided for plain segments, one after the other, of a commit
        that never went back, and has no leader epoch that begins inside of a segment. So no part of a segment can be
        dead, and each offset has one copy. The list of erased offsets is read: a damaged one is data loss.

        Args:
            tails: whether live tails are read.

        Raises:
            NewerFormat: a later release wrote the list of erased offsets.
            StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        commit, lowest = catalog.commit, catalog.log_start
        if not isinstance(commit, Commit) or commit.lineage is not None or commit.java is not None:
            return False
        if lowest is None or catalog.sealed or catalog.former:  # sealed objects were read, so nothing is saved
            return False
        if tails and commit.live is not None:
            return False
        runs = self._indexes[catalog.keys.cluster, catalog.keys.incarnation]
        following, begun = lowest, [start for _, start in commit.epochs.pairs]
        for segment in catalog.committed:
            entry = _entry_of_listed(catalog.keys, segment, runs)
            if entry is None or segment.name.epoch is not None or self._of(catalog.keys, entry):
                return False
            if any(max(entry.base, lowest) < start < entry.end for start in begun):
                return False
            if entry.end > following:
                if entry.base != following and (entry.base > following or following != lowest):
                    return False
                following = entry.end
        if following < commit.next_offset:
            return False
        try:
            catalog.read_erased(self._store)
        except CorruptData:
            return False
        return True

    def that_can_have(self, copies: Iterable[SegmentCopy]) -> tuple[SegmentCopy, ...]:
        """Return the copies that can have one of the keys: by their entries, and all that no index covers as they are.

        Args:
            copies: of the places, in any directory; also those that no reader shows.

        Raises:
            StoreUnavailable, BucketMissing: from the store.
        """
        copies, wanted, covered = [*copies], set[str](), list[_Covered]()
        for copy in copies:
            run, entry = _newest(copy, self._indexes[copy.keys.cluster, copy.keys.incarnation])
            if run is None or entry is None:
                wanted.add(copy.key)
            elif keys := self._of(copy.keys, entry):
                covered.append(_Covered(copy.keys.partition, copy, run, entry, keys))
        hits = _read_hits(self._store, covered)
        wanted |= {each.copy.key for each in covered if (parts := each.parts(hits)) is None or parts}
        return tuple(copy for copy in copies if copy.key in wanted)

    def _of(self, keys: PartitionKeys, entry: Entry) -> frozenset[HashedKey]:
        return allowed(keys.partition.partition, entry, self._wanted)

    def windows(self, views: Sequence[PartitionView]) -> tuple[Found, dict[TopicPartition, tuple[Window, ...]]]:
        """Return what the indexes cover, and by partition the offsets that can have keys, in any order.

        Args:
            views: of the catalogs that are not left out.

        Raises:
            StoreUnavailable, BucketMissing: from the store.
        """
        covered: list[_Covered] = []
        windows: dict[TopicPartition, list[Window]] = {view.partition: [] for view in views}
        unindexed = unindexed_bytes = 0
        indexed = self._left_out
        known: dict[tuple[int, Certificate], frozenset[HashedKey]] = {}
        for view in views:
            runs = {part.keys: self._indexes[part.keys.cluster, part.keys.incarnation] for part in view.parts}
            for copy in view.copies:
                run, entry = _newest(copy, runs[copy.keys])
                if run is None or entry is None:
                    windows[view.partition].append(window_of(copy))
                    unindexed += 1
                    unindexed_bytes += copy.segment.size
                    continue
                indexed += 1
                case = copy.keys.partition.partition, entry.certificate
                if case not in known:
                    known[case] = self._of(copy.keys, entry)
                if known[case]:
                    covered.append(_Covered(view.partition, copy, run, entry, known[case]))
        hits = _read_hits(self._store, covered)
        for each in covered:
            windows[each.partition] += windows_of(each.entry, each.parts(hits))
        runs_read = sum(map(len, self._indexes.values()))
        found = Found(indexed, indexed - len(covered), unindexed, unindexed_bytes, runs_read)
        return found, {partition: tuple(each) for partition, each in windows.items()}


def read_runs(store: ObjectStore, cluster: ClusterKeys, incarnation: str) -> list[Run]:
    """Return the runs of an index that can be read, newest first.

    Args:
        incarnation: as of `ClusterKeys.find`.

    Raises:
        StoreUnavailable, BucketMissing: from the store.
    """
    prefix = cluster.find(incarnation)
    listed = _unless_lost(prefix, lambda: [name.rstrip("/") for name in store.list_directories(prefix)]) or []
    names = [name for name in listed if period_of(name) is not None]
    found = in_threads(lambda name: _unless_lost(prefix + name, lambda: read_run(store, prefix, name)), names)
    return sorted((run for run in found if run is not None), key=lambda run: run.modified, reverse=True)


def _unless_lost(what: str, read: Callable[[], _T]) -> _T | None:
    """Return what a call returns; None if an index or a part of it cannot be read, which is logged."""
    try:
        return read()
    except ObjectNotFound:  # a run that is not finished, or that was merged into another one
        return None
    except _LOST as error:
        log.warning("index_of_keys_unusable", index=what, reason=str(error), message="what it covers is read instead")
        return None


def _newest(copy: SegmentCopy, runs: Iterable[Run]) -> tuple[Run | None, Entry | None]:
    """Return the run and the entry of a copy; an entry with parts before one with the certificate alone."""
    best: tuple[Run | None, Entry | None] = None, None
    for run in runs:
        entry = entry_of(copy, run.entries)
        if entry is not None and entry.parts:
            return run, entry
        if entry is not None and best[0] is None:
            best = run, entry
    return best


def _entry_of_listed(keys: PartitionKeys, segment: StoredSegment, runs: Iterable[Run]) -> Entry | None:
    """Return the entry of a listed object; an index has only objects whose agent scanned them, and found no damage.

    An object that was put after the run can have the same bytes with other metadata, so another coverage.
    """
    if segment.etag is None:
        return None
    identity = keys.directory, segment.name.stem, segment.size, segment.etag
    known = (run for run in runs if identity in run.entries and run.is_later_than(segment.modified))
    return next((run.entries[identity] for run in known), None)


_Places = Mapping[int, Sequence[int]]
_Hits = Mapping[tuple[str, str], Mapping[int, _Places] | None]


@dataclass(frozen=True, slots=True)
class _Covered:
    """A copy that an index covers, and that can have some of the keys."""

    partition: TopicPartition
    copy: SegmentCopy
    run: Run
    entry: Entry
    keys: frozenset[HashedKey]

    def parts(self, hits: _Hits) -> set[int] | None:
        """Return the parts that the index has of the keys; None if that cannot be read."""
        if not self.entry.parts:
            return None
        parts: set[int] = set()
        for key in self.keys:
            file = hits[self.run.prefix, file_of(key.place)]
            if file is None:
                return None
            parts.update(file.get(self.entry.row, {}).get(key.place, ()))
        return parts


def _read_hits(store: ObjectStore, covered: Iterable[_Covered]) -> _Hits:
    """Return the parts by file of a run, number of an object, and place; None for a file that cannot be read."""
    wanted: dict[tuple[str, str], tuple[Run, set[int]]] = {}
    for each in covered:
        for key in each.keys if each.entry.parts else ():
            digits = file_of(key.place)
            wanted.setdefault((each.run.prefix, digits), (each.run, set()))[1].add(key.place)

    def read(item: tuple[tuple[str, str], tuple[Run, set[int]]]) -> Mapping[int, _Places] | None:
        (prefix, digits), (run, places) = item
        pairs = _unless_lost(f"{prefix}{digits}", lambda: read_pairs(store, run, digits, places))
        if pairs is None:
            return None
        found: dict[int, dict[int, list[int]]] = {}
        for place, row, part in zip(pairs.place.tolist(), pairs.row.tolist(), pairs.part.tolist(), strict=True):
            found.setdefault(row, {}).setdefault(place, []).append(part)
        return found

    return dict(zip(wanted, in_threads(read, wanted.items()), strict=True))
