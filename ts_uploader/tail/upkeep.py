"""The upkeep of one log: merges that are due, and the deletion of what nothing leads to (tail rule 5).

A merge runs on a thread of its own, one at a time; packs are put meanwhile. The next pack leads to what it made.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_logs import MAX_OBJECTS, MAX_UNPACKED
from ts_common.archive.tail_pack import unpacked_bytes
from ts_common.errors import CorruptData, NewerFormat, SegmentChanged, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_uploader.health.store_health import failure_reason
from ts_uploader.metrics.counters import DELETE_TAIL, MERGE_TAIL, Metrics
from ts_uploader.tail.led_partitions import LedPartitions
from ts_uploader.tail.merged_body import LogsAtHand
from ts_uploader.tail.merging import DamagedEntries, Merged, MergePlan, Merger, Needs, plan_merge, plan_sweep
from ts_uploader.tail.needed import Needed
from ts_uploader.tail.pack_log import GRACE_SECONDS, IndexFull, Listed, PackLog, boot_seconds

log = structlog.get_logger()

_AGAIN_SECONDS: Final = 30.0  # after a merge that failed
_FULL_AGAIN_SECONDS: Final = 300.0  # what it copied was of no use
_DAMAGED_TWICE: Final = 2
_DELETE_AGAIN_SECONDS: Final = 300.0
_PUBLISH_SECONDS: Final = 60.0  # after a merge, if no record arrives
_NOTE_SECONDS: Final = GRACE_SECONDS / 4
_OTHERS_SECONDS: Final = 3600.0  # between two readings of the commit of a partition that is led elsewhere
_OTHERS_AT_ONCE: Final = 500
_PACK_INDEXES: Final = 3  # the newest pack's, a middle one's and a wide one's
_MOST_UNPACKED: Final = MAX_UNPACKED // 2  # the rest is for packs
_CROWDED: Final = 40_000  # entries of a log: half of what readers accept
_MOST_ENTRIES: Final = 2048  # of a partition in a crowded log: an open segment needs no more


class Upkeep:
    """Tends one log; the shipper's thread calls all methods.

    Attributes:
        undeleted: why objects are not deleted; empty while they are.
        unmerged: why the last merge failed; empty if it did not.
        held: directories that get no more entries for now, with the number of those that they have. They would fill the
            index, and the other partitions of the log would wait too.

    Args:
        packs: the log.
        store: that has it.
        metrics: counts failures, merged bytes and deleted objects.
        seconds: a clock that counts suspension.
    """

    def __init__(
        self,
        packs: PackLog,
        store: ObjectStore,
        keys: ClusterKeys,
        metrics: Metrics,
        seconds: Callable[[], float] = boot_seconds,
    ) -> None:
        self._packs = packs
        self._store = store
        self._keys = keys
        self._metrics = metrics
        self._merger = Merger(store, keys, packs.name)
        self._needed = Needed(packs.name, seconds)
        self._work = _Work()
        self._put_at = self._last_note = self._last_sweep = time.monotonic()
        self._reads_logs = True
        self._merged_at: float | None = None  # of a merge that no pack leads to yet
        self._merge_from = self._delete_from = 0.0
        self._damaged: dict[TailEntry, int] = {}  # how often a merge found other batches than those of the index
        self._left_out: set[str] = set()  # directories that a merge left damaged entries out of
        self._tried: dict[str, float] = {}  # when the commit of a directory that is led elsewhere was last requested
        self.undeleted = self.unmerged = ""
        self.held: dict[str, int] = {}

    def finish(self) -> None:
        """Use a merge that has ended."""
        self._work.finish()

    def published(self, now: float) -> set[str]:
        """Note that a pack was put; return the directories whose chains can end earlier by it."""
        self._put_at, self._merged_at = now, None
        left_out, self._left_out = self._left_out, set()
        return left_out

    def begin_again(self) -> None:
        """Forget a merge that no pack leads to: the log was read again."""
        self._merged_at = None
        self._hold()

    def must_publish(self, now: float) -> bool:
        """Whether a pack without records is due: it leads to what a merge made, or lets objects be deleted."""
        if self._merged_at is not None and now - self._merged_at > _PUBLISH_SECONDS:
            return True
        return self._packs.has_unused and now - self._put_at > GRACE_SECONDS

    def tend(self, led: LedPartitions, now: float) -> None:
        """Begin a merge that is due, and delete what nothing leads to."""
        if now >= self._delete_from:
            self._delete(now)
        if now - self._last_note > _NOTE_SECONDS:
            self._last_note = now
            self._note_commits(led)
        if self._work.is_busy or now < self._merge_from or self._merged_at is not None:
            return
        plan = plan_merge(self._packs, self._needs(led))
        if plan is None and now - self._last_sweep > GRACE_SECONDS:
            self._last_sweep = now
            plan = plan_sweep(self._packs, self._needs(led))
            if plan is None:
                self._read_others(led)
                return
        if plan is not None:
            plan, merged = self._from_logs(plan, led), Merged()
            self._work.begin(partial(self._merger.run, plan, merged), partial(self._take_merged, plan, merged))

    def _from_logs(self, plan: MergePlan, led_partitions: LedPartitions) -> MergePlan:
        """Return a plan that reads the broker's logs; after an error, the next merge reads the store alone."""
        if not self._reads_logs or not plan.moved:
            return plan
        known = ((led.own, led.place) for led in led_partitions)
        logs = {own.directory: place for own, place in known if own is not None and place is not None}
        return replace(plan, logs=LogsAtHand(logs, tuple(self._packs.rows)))

    def _needs(self, led_partitions: LedPartitions) -> Needs:
        """Return whether a merge keeps an entry; one that is damaged is of no use to any reader."""
        needs, damaged = self._needed.at_once(partial(_commits, led_partitions)), self._damaged
        return (lambda entry: damaged.get(entry, 0) < _DAMAGED_TWICE and needs(entry)) if damaged else needs

    def _delete(self, now: float) -> None:
        try:
            self._metrics.tail_deleted.inc(self._packs.delete())
            self.undeleted = ""
        except TieredStorageError as error:  # without the right, packs are shipped all the same
            self._delete_from, self.undeleted = now + _DELETE_AGAIN_SECONDS, str(error)
            self._metrics.errors.labels(DELETE_TAIL, failure_reason(error)).inc()
            log.warning("tail_not_deleted", message="repeated", log=self._packs.name, error=str(error))

    def _take_merged(self, plan: MergePlan, merged: Merged, error: Exception | None) -> None:
        if error is None and (why := _excess(merged.indexes)):
            error = IndexFull(
                f"{why}: give some topics a log of their own (`tail.group`), or let their segments close earlier "
                "(`segment.bytes`, `segment.ms`)"
            )
        self._reads_logs = error is None
        if isinstance(error, SegmentChanged):  # no fault: the topic was deleted, or another broker leads the partition
            self._packs.abandon(merged.made)
            return
        self.unmerged = "" if error is None else f"{error}"
        if error is not None or plan.reads != self._packs.reads:
            self._packs.abandon(merged.made)
            is_full = isinstance(error, IndexFull)
            self._merge_from = time.monotonic() + (_FULL_AGAIN_SECONDS if is_full else _AGAIN_SECONDS)
        if isinstance(error, DamagedEntries):  # another reading shows whether the store or the way is at fault
            self._merge_from = 0.0
            for entry in error.entries:
                self._damaged[entry] = self._damaged.get(entry, 0) + 1
        if error is not None:
            self._metrics.errors.labels(MERGE_TAIL, failure_reason(error)).inc()
            log.warning("tail_not_merged", message="repeated", log=self._packs.name, error=str(error))
        elif plan.reads == self._packs.reads:
            self._packs.take_merge(plan.packs, merged.indexes, merged.made)
            self._merged_at = time.monotonic()
            gone = self._damaged.keys() - self._packs.rows
            self._left_out |= {entry.directory for entry in gone}
            self._damaged = {entry: times for entry, times in self._damaged.items() if entry not in gone}
            self._metrics.tail_merged_bytes.inc(merged.copied)
            self._hold()

    def _hold(self) -> None:
        """Hold the partitions with the most entries while the log is crowded."""
        before, self.held = self.held, {}
        counts = Counter(row.directory for row in self._packs.rows)
        if counts.total() > _CROWDED:
            self.held = {name: count for name, count in counts.items() if count > _MOST_ENTRIES}
        for name in self.held.keys() - before.keys():
            log.warning("tail_held", message="until its segments close", directory=name, entries=self.held[name])

    def _note_commits(self, led_partitions: LedPartitions) -> None:
        """Note the commits of led partitions that have entries."""
        directories = {row.directory for row in self._packs.rows}
        self._needed.forget_others(directories)
        for led in led_partitions:
            if led.own is not None and led.own.directory in directories:
                self._needed.note(led.own.directory, led.own.commit)

    def _read_others(self, led_partitions: LedPartitions) -> None:
        """Read the commits of partitions that have entries and are led elsewhere."""
        led = {each.own.directory for each in led_partitions if each.own is not None}
        now = time.monotonic()
        directories = {row.directory for row in self._packs.rows} - led
        self._tried = {name: self._tried.get(name, -_OTHERS_SECONDS) for name in directories}
        due = (name for name in directories if now - self._tried[name] >= _OTHERS_SECONDS)
        old = sorted(due, key=self._tried.__getitem__)[:_OTHERS_AT_ONCE]
        self._tried |= dict.fromkeys(old, now)
        found: list[tuple[str, Commit | None]] = []
        if old:
            self._work.begin(partial(self._read_commits, old, found), partial(self._take_others, found))

    def _read_commits(self, directories: Sequence[str], found: list[tuple[str, Commit | None]]) -> None:
        for name in directories:
            partition = partition_of(name)
            if partition is None:
                continue
            keys = self._keys.partition(partition, name.removesuffix(f"-{partition.partition}"))
            try:
                commit, _ = read_commit(self._store, keys)
            except (CorruptData, NewerFormat) as error:
                log.warning("tail_commit_unusable", message="its entries are kept", key=keys.commit, error=str(error))
                continue
            found.append((name, commit if isinstance(commit, Commit) else None))

    def _take_others(self, found: Sequence[tuple[str, Commit | None]], error: Exception | None) -> None:
        for name, commit in found:
            self._needed.note(name, commit)
        if error is not None:
            log.warning("tail_commits_not_read", message="repeated", log=self._packs.name, error=str(error))


def _commits(led_partitions: LedPartitions) -> dict[str, Commit]:
    """Return the newest commits of led partitions, by directory."""
    return {led.own.directory: led.own.commit for led in led_partitions if led.own is not None}


def _excess(indexes: Sequence[Listed]) -> str:
    """Return why readers do not accept such indexes of merged objects, next to those of packs; empty if they do."""
    if (needed := _PACK_INDEXES + len(indexes)) > MAX_OBJECTS:
        return f"the index of its entries needs {needed} objects, and readers accept {MAX_OBJECTS}"
    if sum(len(listed.rows) for listed in indexes) > _CROWDED:
        unpacked = sum(unpacked_bytes(row) for listed in indexes for row in listed.rows)
        if unpacked > _MOST_UNPACKED:
            return f"the index of its entries has {unpacked} bytes, and {_MOST_UNPACKED} are the most"
    return ""


class _Work:
    """One piece of work at a time, on a thread of its own; `finish` reports its result on the caller's."""

    def __init__(self) -> None:
        self.is_busy = False
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def begin(self, run: Callable[[], None], take: Callable[[Exception | None], None]) -> None:
        """Begin a piece of work."""

        def work() -> None:
            error: Exception | None = None
            try:
                run()
            except Exception as failed:  # noqa: BLE001  (`take` reports it)
                error = failed
            self._done.put(partial(take, error))

        threading.Thread(target=work, name="tail-merge", daemon=True).start()
        self.is_busy = True

    def finish(self) -> None:
        """Report the result, if it is there."""
        try:
            take = self._done.get_nowait()
        except queue.Empty:
            return
        self.is_busy = False
        take()
