"""The collector of the next retention: one write of `log.start` a step, its copy, and deletions by an earlier listing.

A run reads in the order listing, `log.start`, commit, copy. Then it does one thing: hide, show, delete, or write the
copy again. A policy is any target; holds are as they are when the run decides. The looks at holds and `log.start`
before each few deletes are left out: nothing relies on them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.lineage.clauses import Clause, Property, Violation
from tests.lineage.state import Collect, Collector, Commit, LogStart, Segment, Store, lives

FRESH = 99
"""The number of the write that a step does; the model numbers all writes again after each step."""


class Collected(NamedTuple):
    """What the collector did, what the store holds then, and what the collector does next."""

    label: str
    store: Store
    collector: Collector


class Collecting(NamedTuple):
    """The rules of a collector."""

    clauses: frozenset[Clause]

    def steps(self, collector: Collector, store: Store, *, held: bool) -> Iterator[Collected]:
        """What a collector can do next.

        Raises:
            Violation: it deletes what was hidden for less than a grace, or a hold cannot show what is stored.
        """
        match collector.do:
            case Collect.LIST:
                if collector.runs:
                    read = collector._replace(do=Collect.READ_LOG_START, listed=store.segments)
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
                else:
                    yield Collected("GET offset.wm", store, collector._replace(do=Collect.READ_COPY, commit=commit))
            case Collect.READ_COPY:
                yield from self._decide(collector._replace(copy=store.copy), store, held=held)
            case Collect.PUT_COPY_FIRST | Collect.PUT_COPY:
                yield self._put_copy(collector, store)
            case Collect.PUT_LOG_START:
                yield self._put_log_start(collector, store)
            case Collect.LIST_LATE:
                late = collector._replace(do=Collect.DELETE, listed=self._goes(collector, store.segments))
                yield Collected("list", store, late)
            case Collect.DELETE:
                yield self._delete(collector, store)

    def _decide(self, read: Collector, store: Store, *, held: bool) -> Iterator[Collected]:
        """The table of retention: what a run does with what it read."""
        log_start, commit, copy = read.log_start, read.commit, read.copy
        assert log_start is not None
        assert commit is not None
        start, lineage = log_start.offset, commit.lineage
        floor = self._floor(log_start, copy, read.listed, commit)
        is_own_copy = copy is not None and copy.lineage == lineage
        matches = bool(copy and log_start.since and (copy.since, copy.offset) == (log_start.since, start))
        over = (matches or Clause.SAME_WRITE not in self.clauses) and store.is_copy_old
        over |= Clause.STORE_TIME not in self.clauses
        label = f"GET the copy: {copy or 'absent'}; floor {floor}, "
        acted = False
        if start == floor and not held:
            for target in range(start + 1, commit.next):
                if lives(store.segments, commit.epochs, target):
                    yield self._hides(
                        read, store, f"{label}hides up to {target}", LogStart(target, lineage, floor, FRESH)
                    )
                    acted = True
        shown = [floor] if held else [*range(floor + 1, start)]
        if start > floor:
            for target in shown:
                since = 0 if target == floor else log_start.since
                yield self._shows(read, store, f"{label}shows from {target}", LogStart(target, lineage, floor, since))
                acted = True
        elif held and store.log_start == log_start:
            self._check_shown(start, commit, store)
        if start > floor and not held and over:
            yield self._deletes(read, store, f"{label}deletes below {start}", LogStart(start, lineage, start))
            acted = True
        if start > floor and not held and not matches:
            hidden = LogStart(start, lineage, floor, FRESH)
            yield self._hides(read, store, f"{label}its grace begins here, hides up to {start} again", hidden)
            acted = True
        if start == floor and not is_own_copy:
            first = read._replace(do=Collect.PUT_COPY, last=LogStart(start, lineage, floor))
            yield Collected(f"{label}the first copy of this lineage", store, first)
            acted = True
        waited = store.is_copy_old and read.was_old
        if floor and is_own_copy and not held and (waited or Clause.LEFTOVERS_WAIT not in self.clauses):
            left = self._goes(read._replace(below=floor), read.listed)
            if left:
                yield Collected(
                    f"{label}deletes what was left below {floor}",
                    store,
                    Collector(Collect.DELETE, read.runs, left, commit=commit),
                )
                acted = True
        if not acted:
            yield Collected(f"{label}nothing to do", store, ended(read))

    def _floor(self, log_start: LogStart, copy: LogStart | None, listed: frozenset[Segment], commit: Commit) -> int:
        """The floor that counts: the least of three. Without a copy the stored run bounds it."""
        start, floor = log_start.offset, log_start.floor
        if floor is None and Clause.FLOOR_UNKNOWN not in self.clauses:
            return start
        if floor is not None and Clause.COPY_FLOOR not in self.clauses:
            return floor
        known = start if floor is None else min(start, floor)
        if copy is not None:
            assert copy.floor is not None
            return min(known, copy.floor)
        low = start
        while low and lives(listed, commit.epochs, low - 1):
            low -= 1
        return min(low, known)

    def _check_shown(self, start: int, commit: Commit, store: Store) -> None:
        copy = store.copy
        if start and lives(store.segments, commit.epochs, start - 1) and not (copy and (copy.floor or 0) >= start):
            raise Violation(Property.R3, f"{start - 1} is stored, no floor is above it, and a hold does not show it")

    # ---------------------------------------------------------------- what a run does

    def _hides(self, read: Collector, store: Store, label: str, hidden: LogStart) -> Collected:
        if Clause.LOG_START_FIRST in self.clauses:
            return Collected(label, store, read._replace(do=Collect.PUT_LOG_START, next=hidden, last=hidden))
        return Collected(label, store, read._replace(do=Collect.PUT_COPY_FIRST, first=hidden, next=hidden))

    def _shows(self, read: Collector, store: Store, label: str, shown: LogStart) -> Collected:
        copy = read.copy
        if copy is None or Clause.COPY_BEFORE_SHOW not in self.clauses:
            return Collected(label, store, read._replace(do=Collect.PUT_LOG_START, next=shown, last=shown))
        first = copy._replace(since=0)
        return Collected(label, store, read._replace(do=Collect.PUT_COPY_FIRST, first=first, next=shown, last=shown))

    def _deletes(self, read: Collector, store: Store, label: str, risen: LogStart) -> Collected:
        read = read._replace(next=risen, below=risen.offset)
        if Clause.COPY_BEFORE_FLOOR not in self.clauses:
            return Collected(label, store, read._replace(do=Collect.PUT_LOG_START))
        first = risen._replace(since=read.copy.since if read.copy else 0)
        return Collected(label, store, read._replace(do=Collect.PUT_COPY_FIRST, first=first))

    # ---------------------------------------------------------------- the writes

    def _put_copy(self, collector: Collector, store: Store) -> Collected:
        is_first = collector.do == Collect.PUT_COPY_FIRST
        content = collector.first if is_first else collector.last
        assert content is not None
        if store.copy != collector.copy:
            return Collected("PUT the copy: refused", store, ended(collector))
        content = content._replace(written=FRESH)
        put = store._replace(copy=content, is_copy_old=False)
        label = f"PUT the copy: {content}"
        if not is_first:
            return Collected(label, put, ended(collector))
        return Collected(label, put, collector._replace(do=Collect.PUT_LOG_START, copy=content, first=None))

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
            if Clause.LIST_FIRST not in self.clauses:
                late = Collector(Collect.LIST_LATE, collector.runs, commit=collector.commit, below=collector.below)
                return Collected(label, written, late)
            goes = self._goes(collector, collector.listed)
            return Collected(label, written, Collector(Collect.DELETE, collector.runs, goes, commit=collector.commit))
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
        if not collector.listed:
            return Collected("ends", store, ended(collector))
        segment = min(collector.listed, key=lambda each: (each.base, each.variant or 0))
        rest = collector._replace(listed=collector.listed - {segment})
        commit = store.commit
        if segment in store.segments and isinstance(commit, Commit) and store.log_start is not None:
            before, after = store.segments, store.segments - {segment}
            offsets = range(segment.base, segment.end)
            gone = [o for o in offsets if lives(before, commit.epochs, o) and not lives(after, commit.epochs, o)]
            early = [o for o in gone if store.hidden[o] < 2]
            if early and commit.lineage == store.log_start.lineage:
                raise Violation(Property.R2, f"DELETE {segment}: {early} were not hidden for a grace")
        return Collected(f"DELETE {segment}", store._replace(segments=store.segments - {segment}), rest)


def ended(collector: Collector) -> Collector:
    """A collector before its next run."""
    return Collector(Collect.LIST, collector.runs - 1)
