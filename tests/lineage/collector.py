"""The collector (`tsctl/gc/partition.py`): a write of `log.start` each step, its copy, deletions by an earlier listing.

A run reads in the order listing, `log.start`, commit, copy. Then it does one thing: show, delete, begin the grace,
hide, delete what a killed run left, or write the copy. A policy is any target. Holds count as they are when the run
decides. The looks at holds and `log.start` before each few deletes are left out: nothing relies on them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.lineage.clauses import Clause, Described, Property, Violation
from tests.lineage.erase_rules import EraseRule
from tests.lineage.state import Collect, Collector, Commit, Lineage, LogStart, Segment, Store, lives

FRESH = 99
"""The number of the write that a step does; the model numbers all writes again after each step."""


class Collected(NamedTuple):
    """What the collector did, what the store holds then, and what the collector does next."""

    label: str
    store: Store
    collector: Collector


class Collecting(NamedTuple):
    """The rules of a collector."""

    clauses: frozenset[Described]

    def steps(self, collector: Collector, store: Store, *, held: bool) -> Iterator[Collected]:
        """What a collector can do next.

        Raises:
            Violation: it deletes what was hidden for less than a grace, or a hold cannot show what is stored.
        """
        match collector.do:
            case Collect.LIST:
                if collector.runs:
                    knows = store.copy is not None
                    read = Collector(Collect.READ_LOG_START, collector.runs, store.segments, store.gaps, knows)
                    yield Collected("list", store, read)
            case Collect.READ_LOG_START:
                if store.log_start is None:
                    yield Collected("GET log.start: absent, ends", store, ended(collector))
                else:
                    read = collector._replace(do=Collect.READ_COMMIT, log_start=store.log_start, was_old=store.is_old)
                    yield Collected(f"GET log.start: {store.log_start}", store, read)
            case Collect.READ_COMMIT:
                commit, log_start = store.commit, collector.log_start
                assert log_start is not None
                if not isinstance(commit, Commit) or commit.lineage != log_start.lineage:
                    yield Collected("GET offset.wm: not of this lineage, ends", store, ended(collector))
                elif log_start.offset > commit.next:
                    yield Collected("GET offset.wm: log.start is above the next offset, ends", store, ended(collector))
                else:
                    read = collector._replace(do=Collect.READ_COPY, commit=commit._replace(nonce=0))
                    yield Collected("GET offset.wm", store, read)
            case Collect.READ_COPY:
                log_start = collector.log_start
                assert log_start is not None
                is_collectors = log_start.floor is not None or log_start.since > 0
                knows = collector.knows_copy or (is_collectors and Clause.COPY_IS_READ in self.clauses)
                copy = store.copy if knows else None
                yield from self._decide(collector._replace(copy=copy), store, held=held)
            case Collect.PUT_COPY_FIRST | Collect.PUT_COPY:
                yield self._put_copy(collector, store)
            case Collect.PUT_LOG_START:
                yield self._put_log_start(collector, store)
            case Collect.LIST_LATE:
                late = _deleting(collector.runs, self._goes(collector, store.segments))
                yield Collected("list", store, late)
            case Collect.DELETE:
                yield self._delete(collector, store)

    def _decide(self, read: Collector, store: Store, *, held: bool) -> Iterator[Collected]:
        """The table of retention: what a run does with what it read."""
        log_start, commit, copy = read.log_start, read.commit, read.copy
        assert log_start is not None
        assert commit is not None
        start, lineage, erased = log_start.offset, commit.lineage, self._erased(log_start)
        floor = self._floor(read)
        known = self._known_floor(read, floor)
        label = f"GET the copy: {copy or 'absent'}; floor {floor}, "
        # What follows needs neither the listing nor the commit, but for what a run deletes.
        writes = Collector(read.do, read.runs, log_start=log_start, copy=copy)
        steps = []
        if start > floor:
            matches = bool(copy and log_start.since and (copy.since, copy.offset) == (log_start.since, start))
            over = (matches or Clause.SAME_WRITE not in self.clauses) and store.is_copy_old
            over |= Clause.STORE_TIME not in self.clauses
            for target in [floor] if held else range(floor, start):
                shown = LogStart(target, lineage, known, 0 if target == floor else log_start.since, 0, erased)
                steps.append(self._shows(writes, store, f"{label}shows from {target}", shown))
            if not held and over:
                goes = self._goes(read._replace(below=start), read.listed)
                releases = writes._replace(listed=goes, commit=self._kept(commit), below=start)
                steps.append(self._releases(releases, store, f"{label}deletes below {start}", lineage))
            if not held and not matches:
                hidden = LogStart(start, lineage, known, FRESH, 0, erased)
                steps.append(self._hides(writes, store, f"{label}its grace begins here, hides up to {start}", hidden))
        else:
            is_own_copy = copy is not None and copy.lineage == lineage
            left = self._goes(read._replace(below=floor), read.listed) if not held else frozenset()
            if held and store.log_start == log_start:
                self._check_shown(start, commit, read.listed & store.segments, store.copy)
            for target in range(start + 1, commit.next) if not held else ():
                if lives(store.segments, commit.epochs, target):
                    hidden = LogStart(target, lineage, known, FRESH, 0, erased)
                    steps.append(self._hides(writes, store, f"{label}hides up to {target}", hidden))
            if not is_own_copy and (left or copy is not None or log_start.floor is not None):
                first = writes._replace(
                    do=Collect.PUT_COPY, log_start=None, last=LogStart(start, lineage, known, 0, 0, erased)
                )
                steps.append(Collected(f"{label}the first copy of this lineage", store, first))
            waited = (store.is_copy_old and read.was_old) or Clause.LEFTOVERS_WAIT not in self.clauses
            if left and copy is not None and is_own_copy and copy.floor is not None and waited:
                deletes = Collector(Collect.DELETE, read.runs, left)
                steps.append(Collected(f"{label}deletes what was left below {floor}", store, deletes))
        yield from steps or [Collected(f"{label}nothing to do", store, ended(read))]

    def _floor(self, read: Collector) -> int:
        """The floor that counts: the least of three. Without one in the copy the stored run bounds it."""
        log_start, commit, copy = read.log_start, read.commit, read.copy
        assert log_start is not None
        assert commit is not None
        start, floor = log_start.offset, log_start.floor
        if floor is None and Clause.FLOOR_UNKNOWN not in self.clauses:
            return start
        if floor is not None and Clause.COPY_FLOOR not in self.clauses:
            return floor
        known = start if floor is None else min(start, floor)
        if copy is not None and copy.floor is not None:
            return min(known, copy.floor)
        low = start
        while low and (low - 1 in read.gaps or lives(read.listed, commit.epochs, low - 1)):
            low -= 1
        return min(max(low, min((each.base for each in read.listed), default=start)), known)

    def _known_floor(self, read: Collector, floor: int) -> int | None:
        """The floor to write: one that no copy proves stays unknown if segments are below it."""
        is_proven = read.copy is not None and read.copy.floor is not None
        if is_proven or Clause.INFERRED_UNKNOWN not in self.clauses:
            return floor
        return floor if all(each.base >= floor for each in read.listed) else None

    def _check_shown(self, start: int, commit: Commit, stored: frozenset[Segment], copy: LogStart | None) -> None:
        if start and lives(stored, commit.epochs, start - 1) and not (copy and (copy.floor or 0) >= start):
            raise Violation(Property.R3, f"{start - 1} is stored, no floor is above it, and a hold does not show it")

    def _erased(self, log_start: LogStart) -> int:
        return log_start.erased if EraseRule.COLLECTOR_CARRIES in self.clauses else 0

    def _kept(self, commit: Commit) -> Commit | None:
        """The commit, for a listing after the writes."""
        return None if Clause.LIST_FIRST in self.clauses else commit

    # ---------------------------------------------------------------- what a run does

    def _hides(self, writes: Collector, store: Store, label: str, hidden: LogStart) -> Collected:
        if Clause.LOG_START_FIRST in self.clauses:
            return Collected(label, store, writes._replace(do=Collect.PUT_LOG_START, next=hidden, last=hidden))
        return Collected(label, store, writes._replace(do=Collect.PUT_COPY_FIRST, first=hidden, next=hidden))

    def _shows(self, writes: Collector, store: Store, label: str, shown: LogStart) -> Collected:
        copy = writes.copy
        if copy is None or Clause.COPY_BEFORE_SHOW not in self.clauses:
            return Collected(label, store, writes._replace(do=Collect.PUT_LOG_START, next=shown, last=shown))
        first = copy._replace(since=0)
        return Collected(label, store, writes._replace(do=Collect.PUT_COPY_FIRST, first=first, next=shown, last=shown))

    def _releases(self, writes: Collector, store: Store, label: str, lineage: Lineage | None) -> Collected:
        assert writes.log_start is not None
        risen = LogStart(writes.below, lineage, writes.below, 0, 0, self._erased(writes.log_start))
        if Clause.COPY_BEFORE_FLOOR not in self.clauses:
            return Collected(label, store, writes._replace(do=Collect.PUT_LOG_START, copy=None, next=risen))
        first = risen._replace(since=writes.copy.since if writes.copy else 0)
        return Collected(label, store, writes._replace(do=Collect.PUT_COPY_FIRST, first=first, next=risen))

    # ---------------------------------------------------------------- the writes

    def _put_copy(self, collector: Collector, store: Store) -> Collected:
        is_first = collector.do == Collect.PUT_COPY_FIRST
        content = collector.first if is_first else collector.last
        assert content is not None
        if store.copy != collector.copy:
            return Collected("PUT the copy: refused", store, ended(collector))
        content = content._replace(written=FRESH)
        if EraseRule.COPY_CARRIES not in self.clauses:
            content = content._replace(erased=0)
        put = store._replace(copy=content, is_copy_old=False, released=max(store.released, collector.below))
        label = f"PUT the copy: {content}"
        if not is_first:
            return Collected(label, put, ended(collector))
        copy = None if collector.last is None else content
        return Collected(label, put, collector._replace(do=Collect.PUT_LOG_START, copy=copy, first=None))

    def _put_log_start(self, collector: Collector, store: Store) -> Collected:
        content = collector.next
        assert content is not None
        shows = collector.log_start is not None and content.offset < collector.log_start.offset
        clause = Clause.SHOW_ON_ETAG if shows else Clause.FLOOR_ON_ETAG
        may_be_late = (shows or collector.below) and clause not in self.clauses
        if store.log_start != collector.log_start and not may_be_late:
            return Collected("PUT log.start: refused", store, ended(collector))
        content = content._replace(written=FRESH)
        if store.log_start != collector.log_start and not shows:
            written, label = store, "PUT log.start: refused, goes on"
        else:
            rightly = content.offset
            if isinstance(store.commit, Commit) and store.commit.lineage not in {None, content.lineage}:
                rightly = min(rightly, store.commit.lineage.offset)  # the line that the policy read ended there
            written = store._replace(log_start=content, is_old=False, reclaimed=max(store.reclaimed, rightly))
            label = f"PUT log.start: {content}"
        if collector.below:
            written = written._replace(released=max(store.released, collector.below))
            if Clause.LIST_FIRST not in self.clauses:
                late = Collector(Collect.LIST_LATE, collector.runs, commit=collector.commit, below=collector.below)
                return Collected(label, written, late)
            return Collected(label, written, _deleting(collector.runs, collector.listed))
        if collector.last is None:
            return Collected(label, written, ended(collector))
        last = content._replace(written=0)
        return Collected(label, written, collector._replace(do=Collect.PUT_COPY, log_start=None, next=None, last=last))

    def _goes(self, collector: Collector, listed: frozenset[Segment]) -> frozenset[Segment]:
        """What a run deletes of a listing; a later leader's objects stay."""
        commit = collector.commit
        assert commit is not None
        return frozenset(
            segment
            for segment in listed
            if segment.end <= collector.below
            and not (segment.epoch > commit.epoch and Clause.PLAN_EPOCH in self.clauses)
        )

    def _delete(self, collector: Collector, store: Store) -> Collected:
        segment = min(collector.listed, key=lambda each: (each.base, each.variant or 0, str(each)))
        rest = _deleting(collector.runs, collector.listed - {segment})
        commit = store.commit
        if segment in store.segments and isinstance(commit, Commit) and store.log_start is not None:
            before, after = store.segments, store.segments - {segment}
            offsets = range(segment.base, segment.end)
            gone = [o for o in offsets if lives(before, commit.epochs, o) and not lives(after, commit.epochs, o)]
            early = [o for o in gone if store.hidden[o] < 2]
            if early and commit.lineage == store.log_start.lineage:
                raise Violation(Property.R2, f"DELETE {segment}: {early} were not hidden for a grace")
        return Collected(f"DELETE {segment}", store._replace(segments=store.segments - {segment}), rest)


def _deleting(runs: int, listed: frozenset[Segment]) -> Collector:
    """A collector that deletes what it listed; it ends after the last object."""
    return Collector(Collect.DELETE, runs, listed) if listed else Collector(Collect.LIST, runs - 1)


def ended(collector: Collector) -> Collector:
    """A collector before its next run."""
    return Collector(Collect.LIST, collector.runs - 1)
