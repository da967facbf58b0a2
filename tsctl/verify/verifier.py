"""Verifies every topic of a cluster in a store against commits, metadata and batches.

`Verifier.run` checks the partitions one after another, each in these steps: the snapshot that readers use, then each of
its segments (`segment_check`) in parallel, then the whole (`partition_check`). It keeps only the small `Coverage` of a
partition. During the check it holds about half a kilobyte for each segment.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import TypeVar

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, decode_log_start
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erasures import read_obeyed
from ts_common.archive.high_watermarks import End
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
    ObjectFrozen,
    ObjectNotFound,
    SegmentChanged,
)
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from ts_common.wording import counted
from ts_reader.reading.cluster_file import STUCK_AFTER_SECONDS
from ts_reader.reading.parallel import in_threads, stream_in_threads
from tsctl.verify.assumed_ends import assume_copy, extend_to_live_bases
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import (
    CACHE_OBJECT_WRONG,
    COMMIT_DAMAGED,
    FROZEN,
    INCARNATION_UNLISTED,
    INCARNATIONS_DAMAGED,
    INDEX_MISSING,
    NEWER_FORMAT,
    SEGMENT_DAMAGED,
    SHIPPED_CORRUPT,
    UNREADABLE,
)
from tsctl.verify.findings import Finding, joined_frozen
from tsctl.verify.inventory import PartitionListing, find_partitions, list_partition
from tsctl.verify.lost_partitions import lost_partitions, read_high_watermarks
from tsctl.verify.partition_check import Ages, check_partition, foreign_objects
from tsctl.verify.segment_check import Checked, Depth, check_segment
from tsctl.verify.snapshot_check import snapshot_findings
from tsctl.verify.tail_check import CheckedTail, TailCheck

DAY_SECONDS = 86_400.0
_PARTITIONS_AT_ONCE = 4

Told = Callable[[int, int], None]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scope:
    """What to verify, and how.

    Attributes:
        wants: returns whether a partition of a topic is in scope; with None, whether any of the topic is.
        all_topics: whether everything is in scope, so that objects of no topic are reported too.
        in_flight_seconds: younger objects may belong to an upload or a commit in progress.
        stuck_seconds: how long a commit may need to cover an uploaded segment.
        requests: number of segments to check in parallel.
    """

    depth: Depth = Depth.HEADERS
    wants: Callable[[str, int | None], bool] = lambda _topic, _partition: True
    all_topics: bool = True
    in_flight_seconds: float = DAY_SECONDS
    stuck_seconds: float = STUCK_AFTER_SECONDS
    requests: int = 16


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification.

    Attributes:
        coverages: of each partition in each incarnation, by topic, incarnation and partition.
        findings: about no partition in particular.
    """

    coverages: tuple[Coverage, ...]
    findings: tuple[Finding, ...]

    @property
    def all_findings(self) -> list[Finding]:
        """The findings of partitions and the others."""
        return [*self.findings, *(finding for coverage in self.coverages for finding in coverage.findings)]


class Verifier:
    """Verifies one cluster in one store.

    Attributes:
        topics: the topics of the store, in scope or not; set by `find`.
        partitions: numbers of the partitions of topics in scope, themselves in scope or not; set by `find`.

    Args:
        keys: builds the cluster's keys.
        report_progress: called by several threads with the number of partitions and segments that were completed.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        store: ObjectStore,
        keys: ClusterKeys,
        scope: Scope,
        report_progress: Told = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._keys = keys
        self._scope = scope
        self._report_progress = report_progress
        self._clock = clock
        self.topics: frozenset[str] = frozenset()
        self.partitions: frozenset[int] = frozenset()
        self._work: list[tuple[PartitionKeys, Incarnations | None]] = []
        self._findings: list[Finding] = []
        self._recorded: dict[str, End] = {}  # by the prefix of a partition's directory
        self._obeyed = cache(partial(read_obeyed, store, keys))
        self._tailed: list[PartitionKeys] = []  # whose commits name a live tail

    def find(self) -> int:
        """Find the partitions in scope, and return the number of their directories.

        Raises:
            StoreUnavailable: the store did not answer, after all retries.
            AccessDenied, BucketMissing: a request failed.
        """
        known = OPERATION_POLICY(lambda: read_high_watermarks(self._store, self._keys))
        directories = OPERATION_POLICY(lambda: find_partitions(self._store, self._keys))
        self._findings = directories.findings if self._scope.all_topics else []
        if self._scope.all_topics:
            every = self._scope.depth is Depth.FULL
            self._findings += snapshot_findings(self._store, self._keys, self._clock(), every=every)
            self._findings += self._key_index_findings(chain.from_iterable(directories.partitions.values()))
        self._work = []
        self.topics = frozenset({*directories.partitions, *directories.topics, *(known or ())})
        old = self._clock() - self._scope.stuck_seconds
        numbers: set[int] = set()
        for topic in sorted(self.topics):
            if not self._scope.wants(topic, None):
                continue
            listed = sorted(directories.partitions.get(topic, ()), key=_by_life)
            ends = None if known is None else known.get(topic, {})
            recorded = ends and {number: end for number, end in ends.items() if self._scope.wants(topic, number)}
            numbers |= {keys.partition.partition for keys in listed} | set(recorded or ())
            incarnations = self._incarnations(topic, listed, self._findings)
            if incarnations is not None:
                for number, end in (recorded or {}).items():
                    here = self._keys.partition(TopicPartition(topic, number), incarnations.newest_directory)
                    self._recorded[here.prefix] = end
                self._findings += lost_partitions(self._keys, incarnations, listed, recorded, old)
            wanted = [keys for keys in listed if self._scope.wants(topic, keys.partition.partition)]
            self._work += [(keys, incarnations) for keys in wanted]
        self.partitions = frozenset(numbers)
        return len(self._work)

    def _key_index_findings(self, held: Iterable[PartitionKeys]) -> Iterable[Finding]:
        names = OPERATION_POLICY(lambda: [*self._store.list_directories(self._keys.finds)])
        if not names:
            return ()
        from tsctl.verify.key_index_check import key_index_findings  # noqa: PLC0415  (pyarrow, only for an index)

        return key_index_findings(self._store, self._keys, names, held, self._scope.depth, self._clock())

    def run(self) -> Verified:
        """Verify everything that `find` found.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: as `find`.
        """
        work, findings = self._work, self._findings
        threads = self._scope.requests
        if self._scope.depth is Depth.FULL:  # bound by the processor
            threads = min(threads, max(2, os.cpu_count() or 1))
        with ThreadPoolExecutor(threads, "segments") as segments:
            try:
                found = in_threads(
                    lambda item: self._partition(item[0], item[1], segments, threads), work, most=_PARTITIONS_AT_ONCE
                )
            finally:
                segments.shutdown(wait=False, cancel_futures=True)
        coverages = [coverage for coverage in found if coverage is not None]
        return Verified(tuple(self._with_tails(coverages)), tuple(findings))

    def _with_tails(self, coverages: Iterable[Coverage]) -> Iterator[Coverage]:
        """Yield the coverages with the live tails, which are read after all commits."""
        now, scope = self._clock(), self._scope
        check = TailCheck(self._store, self._keys, scope.depth, now, now - scope.in_flight_seconds, scope.stuck_seconds)
        found = check.partitions(self._tailed, self._recorded) if self._tailed else {}
        if scope.all_topics:
            named = {log for each in found.values() for log in each.logs}
            self._findings += check.logs(named if len(found) == len(self._tailed) else None)
        for coverage in coverages:
            tail = found.get(coverage.prefix, CheckedTail())
            findings = (*coverage.findings, *tail.findings)
            yield replace(coverage, tail_end=tail.end, tail_time=tail.time, findings=findings)

    def _incarnations(
        self, topic: str, listed: Sequence[PartitionKeys], findings: list[Finding]
    ) -> Incarnations | None:
        """Return a topic's list of incarnations, and report missing entries; None if the list is malformed."""
        key = self._keys.incarnations(topic)
        try:
            incarnations, _ = OPERATION_POLICY(lambda: read_incarnations(self._store, self._keys, topic))
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else INCARNATIONS_DAMAGED
            findings.append(Finding(kind, topic, str(error), key))
            return None
        named = {entry.directory for entry in incarnations.entries}
        lives = sorted({keys.incarnation for keys in listed if "~" in keys.directory} - named)
        findings += [Finding(INCARNATION_UNLISTED, topic, f"{key} does not list {life}", key) for life in lives]
        return incarnations

    def _partition(
        self, keys: PartitionKeys, incarnations: Incarnations | None, pool: ThreadPoolExecutor, threads: int
    ) -> Coverage | None:
        """Verify one partition; return None for a directory with only a topic's list."""
        where = keys.directory
        try:
            listing = OPERATION_POLICY(lambda: list_partition(self._store, keys))
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else COMMIT_DAMAGED
            # The message begins with the object's key.
            found = Finding(kind, where, str(error), str(error).partition(":")[0].partition(" ")[0])
            self._report_progress(1, 0)
            return _only(keys, (found,))
        if listing.has_incarnations and not listing.has_others:
            self._report_progress(1, 0)
            return None if not listing.foreign_keys else _only(keys, foreign_objects(where, listing))
        findings: list[Finding] = []
        copies = self._look_at_segments(listing, where, findings, pool, threads)
        findings = joined_frozen(self._without_expired(keys, findings), listing.catalog, where)
        commit = listing.catalog.commit
        if isinstance(commit, Commit) and commit.live is not None:
            self._tailed.append(keys)
        if (
            incarnations is not None
            and "~" not in keys.directory
            and isinstance(commit, Commit)
            and commit.topic_id is not None
            and incarnations.find(commit.topic_id) is None
        ):
            key = self._keys.incarnations(keys.partition.topic)
            detail = f"{key} does not list topic id {commit.topic_id} of {keys.commit}"
            findings.append(Finding(INCARNATION_UNLISTED, where, detail, key))
        now = self._clock()
        ages = Ages(now, now - self._scope.in_flight_seconds, self._scope.stuck_seconds)
        deep = self._scope.depth is Depth.FULL
        coverage = OPERATION_POLICY(
            lambda: check_partition(
                self._store, listing, copies, where, tuple(findings), ages, self._obeyed, compare=deep
            )
        )
        self._report_progress(1, 0)
        return coverage

    def _look_at_segments(
        self,
        listing: PartitionListing,
        where: str,
        findings: list[Finding],
        pool: ThreadPoolExecutor,
        threads: int,
    ) -> dict[StoredSegment, Checked]:
        """Check the segments, several in parallel; return the results in the order of the listing."""
        checked: dict[StoredSegment, Checked] = {}
        assumed: set[StoredSegment] = set()

        def look(
            item: tuple[StoredSegment, SegmentMetadata | None, int],
        ) -> tuple[StoredSegment, SegmentCopy, bool, Checked]:
            segment, noted, following = item
            guess = assume_copy(listing.catalog.keys, segment, noted, following)
            return segment, guess, bool(noted), self._look_at(segment, guess, noted, where)

        given = self._with_cache_objects(listing, where, findings)
        is_full = self._scope.depth is Depth.FULL  # checksums are computed outside of Python
        for segment, guess, noted, result in stream_in_threads(
            look, given, most=2 * threads, pool=pool, at_once=is_full
        ):
            findings.extend(result.findings)
            # An unreadable segment is not a hole.
            checked[segment] = replace(result, copy=result.copy or guess, findings=())
            if not noted and (result.copy is None or result.copy is guess):
                assumed.add(segment)
            self._report_progress(0, 1)
        commit = listing.catalog.commit
        return extend_to_live_bases(checked, assumed, commit) if isinstance(commit, Commit) else checked

    def _look_at(
        self, segment: StoredSegment, guess: SegmentCopy, noted: SegmentMetadata | None, where: str
    ) -> Checked:
        keys = guess.keys
        if self._scope.depth is Depth.LISTING:
            found_frozen = [Finding(FROZEN, where, "", guess.key, guess.base, guess.end)] if segment.is_frozen else []
            return Checked(guess, (*_listed_findings(segment, guess, noted, where), *found_frozen))
        try:
            return OPERATION_POLICY(lambda: check_segment(self._store, keys, segment, self._scope.depth, noted, where))
        except ObjectNotFound as error:
            found = Finding(UNREADABLE, where, f"removed after the listing: {error}", guess.key, guess.base, guess.end)
        except AccessDenied as error:
            with suppress(ObjectNotFound):  # denied too: this identity may no longer read anything
                OPERATION_POLICY(lambda: get_small(self._store, keys.commit, COMMIT_BYTES))
            found = Finding(UNREADABLE, where, str(error), guess.key, guess.base, guess.end)
        except BatchTooLarge as error:
            found = Finding(UNREADABLE, where, f"{guess.key}: {error}", guess.key, guess.base, guess.end)
        except (CorruptData, SegmentChanged) as error:
            found = Finding(SEGMENT_DAMAGED, where, str(error), guess.key, guess.base, guess.end)
        return Checked(None, (found,))

    def _without_expired(self, keys: PartitionKeys, findings: list[Finding]) -> list[Finding]:
        """Return the findings except those of objects that retention removed meanwhile: it moves `log.start` first."""
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
        """Yield each segment, its metadata in a cache object, and the next base; holds one cache object at a time."""
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
        except (ObjectNotFound, ObjectFrozen):
            return None
        except (CorruptData, NewerFormat) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else CACHE_OBJECT_WRONG
            findings.append(Finding(kind, where, str(error), key, first))
            return None


def _listed_findings(
    segment: StoredSegment, guess: SegmentCopy, noted: SegmentMetadata | None, where: str
) -> Iterator[Finding]:
    """Yield the findings about one segment that names and a cache object show."""
    wanted = [".index", ".timeindex"]
    if noted is not None and noted.txnindex is not None and noted.txnindex[0]:
        wanted.append(".txnindex")
    for suffix in INDEX_SUFFIXES:
        if suffix in wanted and suffix not in segment.suffixes:
            key = guess.keys.segment(segment.name, suffix)
            yield Finding(INDEX_MISSING, where, f"{key} does not exist", key, guess.base, guess.end)
    if noted is not None and noted.corruptions:
        detail = f"its metadata counts {counted(noted.corruptions, 'corrupt place')}"
        yield Finding(SHIPPED_CORRUPT, where, detail, guess.key, guess.base, guess.end)


def _by_life(keys: PartitionKeys) -> tuple[str, int]:
    """Return a sort key: the plain directory first, then later incarnations, then partitions."""
    return keys.incarnation, keys.partition.partition


def _only(keys: PartitionKeys, findings: Iterable[Finding]) -> Coverage:
    return Coverage(
        keys.directory, keys.partition.topic, keys.partition.partition, keys.prefix, 0, 0, findings=tuple(findings)
    )
