"""Is everything there? Every topic of a cluster in a store, held against what commits, metadata and batches say.

`Verifier.run` takes one partition after the other, some at a time: a snapshot as readers take it, each of its segments
looked at (`segment_check`), and then the whole (`partition_check`): holes, overlaps, dead tails, and what belongs to
nothing. Of a partition that is done its `Coverage` stays, which is small; while it is looked at, what its segments
answer for is held, about half a kilobyte each.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, decode_log_start
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, CacheObject, cache_objects_for
from ts_common.archive.object_keys import INDEX_SUFFIXES, ClusterKeys, PartitionKeys
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.small_objects import COMMIT_BYTES, LOG_START_BYTES, get_small
from ts_common.errors import (
    AccessDenied,
    BatchTooLarge,
    CorruptData,
    NewerFormat,
    ObjectNotFound,
    SegmentChanged,
)
from ts_common.reading.cluster_file import STUCK_AFTER_SECONDS
from ts_common.store.contract import ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from tsctl.verify.coverage import Coverage
from tsctl.verify.findings import (
    CACHE_OBJECT_WRONG,
    COMMIT_DAMAGED,
    INCARNATION_UNLISTED,
    INCARNATIONS_DAMAGED,
    INDEX_MISSING,
    NEWER_FORMAT,
    SEGMENT_DAMAGED,
    SHIPPED_CORRUPT,
    UNREADABLE,
    Finding,
)
from tsctl.verify.inventory import PartitionListing, find_partitions, list_partition
from tsctl.verify.partition_check import Ages, check_partition, foreign_objects
from tsctl.verify.segment_check import Checked, Depth, assumed, check_segment

DAY_SECONDS = 86_400.0
_PARTITIONS_AT_ONCE = 4

Told = Callable[[int, int], None]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is verified, and how.

    Attributes:
        depth: how closely each segment is looked at.
        wants: whether a partition of a topic is looked at; the second argument is None where a topic as a whole is
            asked about.
        all_topics: whether everything is, so that what belongs to no topic is named too.
        in_flight_seconds: what is younger may belong to an upload or a commit that is under way.
        stuck_seconds: how long a commit may take to reach a segment that is uploaded.
        requests: how many segments are looked at at once.
    """

    depth: Depth = Depth.HEADERS
    wants: Callable[[str, int | None], bool] = lambda _topic, _partition: True
    all_topics: bool = True
    in_flight_seconds: float = DAY_SECONDS
    stuck_seconds: float = STUCK_AFTER_SECONDS
    requests: int = 16


@dataclass(frozen=True, slots=True)
class Verified:
    """What verify found.

    Attributes:
        coverages: of each partition in each incarnation, by topic, incarnation and partition.
        findings: about no partition in particular.
    """

    coverages: tuple[Coverage, ...]
    findings: tuple[Finding, ...]

    @property
    def all_findings(self) -> list[Finding]:
        """Of the partitions, too."""
        return [*self.findings, *(finding for coverage in self.coverages for finding in coverage.findings)]


class Verifier:
    """Verifies one cluster in one store.

    Attributes:
        topics: that the store knows, in scope or not; after `find`.

    Args:
        store: where it lies.
        keys: of the cluster.
        scope: what is looked at.
        told: called from several threads, with how many partitions and how many segments more are done.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        store: ObjectStore,
        keys: ClusterKeys,
        scope: Scope,
        told: Told = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._keys = keys
        self._scope = scope
        self._told = told
        self._clock = clock
        self.topics: frozenset[str] = frozenset()
        self._work: list[tuple[PartitionKeys, Incarnations | None]] = []
        self._findings: list[Finding] = []

    def find(self) -> int:
        """Find the partitions in scope, and say how many directories of such there are.

        Raises:
            StoreUnavailable: the store did not serve, however often it was asked.
            AccessDenied, BucketMissing: the store's.
        """
        directories = OPERATION_POLICY(lambda: find_partitions(self._store, self._keys))
        self._findings = directories.findings if self._scope.all_topics else []
        self._work = []
        self.topics = frozenset({*directories.partitions, *directories.topics})
        for topic in sorted(self.topics):
            if not self._scope.wants(topic, None):
                continue
            listed = sorted(directories.partitions.get(topic, ()), key=_by_life)
            incarnations = self._incarnations(topic, listed, self._findings)
            wanted = [keys for keys in listed if self._scope.wants(topic, keys.partition.partition)]
            self._work += [(keys, incarnations) for keys in wanted]
        return len(self._work)

    def run(self) -> Verified:
        """Look at all that was found.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: as `find`.
        """
        work, findings = self._work, self._findings
        threads = self._scope.requests
        if self._scope.depth is Depth.FULL:  # which the processor does
            threads = min(threads, max(2, os.cpu_count() or 1))
        with (
            ThreadPoolExecutor(threads, "segments") as segments,
            ThreadPoolExecutor(_PARTITIONS_AT_ONCE, "partitions") as partitions,
        ):
            try:
                found = list(partitions.map(lambda item: self._partition(item[0], item[1], segments, threads), work))
            finally:
                partitions.shutdown(wait=False, cancel_futures=True)
                segments.shutdown(wait=False, cancel_futures=True)
        return Verified(tuple(coverage for coverage in found if coverage is not None), tuple(findings))

    def _incarnations(
        self, topic: str, listed: Sequence[PartitionKeys], findings: list[Finding]
    ) -> Incarnations | None:
        """A topic's list; None where it cannot be believed. What of it is missing is found."""
        key = self._keys.incarnations(topic)
        try:
            incarnations, _ = OPERATION_POLICY(lambda: read_incarnations(self._store, self._keys, topic))
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else INCARNATIONS_DAMAGED
            findings.append(Finding(kind, topic, str(error), key))
            return None
        named = {entry.directory for entry in incarnations.entries}
        lives = sorted({keys.directory.rpartition("-")[0] for keys in listed if "~" in keys.directory} - named)
        findings += [Finding(INCARNATION_UNLISTED, topic, f"{key} does not name {life}", key) for life in lives]
        return incarnations

    def _partition(
        self, keys: PartitionKeys, incarnations: Incarnations | None, pool: ThreadPoolExecutor, threads: int
    ) -> Coverage | None:
        """One partition; None for a directory that only holds a topic's list."""
        where = keys.directory
        try:
            listing = OPERATION_POLICY(lambda: list_partition(self._store, keys))
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else COMMIT_DAMAGED
            # The message begins with the object's key.
            found = Finding(kind, where, str(error), str(error).partition(":")[0].partition(" ")[0])
            self._told(1, 0)
            return Coverage(where, keys.partition.topic, keys.partition.partition, keys.prefix, 0, 0, findings=(found,))
        if listing.has_incarnations and not listing.has_others:
            self._told(1, 0)
            return None if not listing.strangers else _only(keys, foreign_objects(where, listing))
        findings: list[Finding] = []
        copies = self._look_at_segments(listing, where, findings, pool, threads)
        findings = self._without_expired(keys, findings)
        commit = listing.catalog.commit
        if (
            incarnations is not None
            and "~" not in keys.directory
            and isinstance(commit, Commit)
            and commit.topic_id is not None
            and incarnations.find(commit.topic_id) is None
        ):
            key = self._keys.incarnations(keys.partition.topic)
            detail = f"{key} does not name topic id {commit.topic_id}, of which {keys.commit} is"
            findings.append(Finding(INCARNATION_UNLISTED, where, detail, key))
        now = self._clock()
        ages = Ages(now, now - self._scope.in_flight_seconds, self._scope.stuck_seconds)
        deep = self._scope.depth is Depth.FULL
        coverage = OPERATION_POLICY(
            lambda: check_partition(self._store, listing, copies, where, tuple(findings), ages, compare=deep)
        )
        self._told(1, 0)
        return coverage

    def _look_at_segments(
        self,
        listing: PartitionListing,
        where: str,
        findings: list[Finding],
        pool: ThreadPoolExecutor,
        threads: int,
    ) -> dict[StoredSegment, Checked]:
        """Each segment, some at a time, in the order of the listing."""
        checked: dict[StoredSegment, Checked] = {}
        waiting: deque[tuple[StoredSegment, SegmentCopy, Future[Checked]]] = deque()

        def take() -> None:
            segment, guess, answer = waiting.popleft()
            result = answer.result()
            findings.extend(result.findings)
            # What stands there is no hole, whatever it is.
            checked[segment] = Checked(result.copy or guess, (), result.foreign)
            self._told(0, 1)

        for segment, noted, following in self._with_cache_objects(listing, where, findings):
            guess = assumed(listing.catalog.keys, segment, noted, following)
            waiting.append((segment, guess, pool.submit(self._look_at, segment, guess, noted, where)))
            if len(waiting) > 2 * threads:
                take()
        while waiting:
            take()
        return checked

    def _look_at(
        self, segment: StoredSegment, guess: SegmentCopy, noted: SegmentMetadata | None, where: str
    ) -> Checked:
        keys = guess.keys
        if self._scope.depth is Depth.LISTING:
            return Checked(guess, tuple(_listed_findings(segment, guess, noted, where)))
        try:
            return OPERATION_POLICY(lambda: check_segment(self._store, keys, segment, self._scope.depth, noted, where))
        except ObjectNotFound as error:
            found = Finding(UNREADABLE, where, f"gone since it was listed: {error}", guess.key, guess.base, guess.end)
        except AccessDenied as error:
            with suppress(ObjectNotFound):  # refused too: this identity may read nothing any more
                OPERATION_POLICY(lambda: get_small(self._store, keys.commit, COMMIT_BYTES))
            found = Finding(UNREADABLE, where, str(error), guess.key, guess.base, guess.end)
        except BatchTooLarge as error:
            found = Finding(UNREADABLE, where, f"{guess.key}: {error}", guess.key, guess.base, guess.end)
        except (CorruptData, SegmentChanged) as error:
            found = Finding(SEGMENT_DAMAGED, where, str(error), guess.key, guess.base, guess.end)
        return Checked(None, (found,))

    def _without_expired(self, keys: PartitionKeys, findings: list[Finding]) -> list[Finding]:
        """The findings but for those of objects that retention took since they were listed: `log.start` moves first."""
        lost = {UNREADABLE, INDEX_MISSING}
        if not any(finding.kind in lost for finding in findings):
            return findings
        try:
            start = decode_log_start(
                OPERATION_POLICY(lambda: get_small(self._store, keys.log_start, LOG_START_BYTES)[0]), keys.log_start
            ).offset
        except (ObjectNotFound, CorruptData):
            return findings
        return [
            finding for finding in findings if finding.kind not in lost or finding.end is None or finding.end > start
        ]

    def _with_cache_objects(
        self, listing: PartitionListing, where: str, findings: list[Finding]
    ) -> Iterator[tuple[StoredSegment, SegmentMetadata | None, int]]:
        """Each segment, what a cache object says of it, and the next base; holds one cache object."""
        catalog = listing.catalog
        firsts = catalog.cache_objects
        held: tuple[int | None, CacheObject | None] = (None, None)
        end = catalog.commit.next_offset if isinstance(catalog.commit, Commit) else 0
        bases = sorted({segment.name.base for segment in catalog.segments})
        following = dict(zip(bases, (*bases, end)[1:], strict=True))
        for segment in catalog.segments:
            wanted = cache_objects_for(firsts, [segment.name.base])
            if wanted and held[0] != wanted[0]:
                held = wanted[0], self._cache_object(catalog.keys, wanted[0], where, findings)
            noted = None
            if wanted and held[1] is not None:
                noted = held[1].find(segment.name, segment.size, segment.etag)
            yield segment, noted, following[segment.name.base]

    def _cache_object(self, keys: PartitionKeys, first: int, where: str, findings: list[Finding]) -> CacheObject | None:
        key = keys.cache_object(first)
        try:
            return CacheObject(OPERATION_POLICY(lambda: get_small(self._store, key, CACHE_OBJECT_BYTES)[0]), keys, key)
        except ObjectNotFound:
            return None
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else CACHE_OBJECT_WRONG
            findings.append(Finding(kind, where, str(error), key, first))
            return None


def _listed_findings(
    segment: StoredSegment, guess: SegmentCopy, noted: SegmentMetadata | None, where: str
) -> Iterator[Finding]:
    """What names and a cache object tell of one segment."""
    wanted = [".index", ".timeindex"]
    if noted is not None and noted.txnindex is not None and noted.txnindex[0]:
        wanted.append(".txnindex")
    for suffix in INDEX_SUFFIXES:
        if suffix in wanted and suffix not in segment.suffixes:
            key = guess.keys.segment(segment.name, suffix)
            yield Finding(INDEX_MISSING, where, f"{key} is not there", key, guess.base, guess.end)
    if noted is not None and noted.corruptions:
        detail = f"{noted.corruptions} places in it are no whole batch, as a cache object says"
        yield Finding(SHIPPED_CORRUPT, where, detail, guess.key, guess.base, guess.end)


def _by_life(keys: PartitionKeys) -> tuple[str, int]:
    """In the order of a topic's directories, the plain one first, then of partitions."""
    return keys.directory.rpartition("-")[0], keys.partition.partition


def _only(keys: PartitionKeys, findings: Iterable[Finding]) -> Coverage:
    return Coverage(
        keys.directory, keys.partition.topic, keys.partition.partition, keys.prefix, 0, 0, findings=tuple(findings)
    )
