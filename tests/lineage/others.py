"""The others that read and write: the collector (remote retention), a reader, a Java uploader, and loss."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.lineage.clauses import Clause, Property, Violation
from tests.lineage.kafka import Log
from tests.lineage.state import (
    Collect,
    Collector,
    Commit,
    JavaCommit,
    LogStart,
    Read,
    Reader,
    Segment,
    Store,
    first_hole,
    lineage_epoch,
    lives,
)


class Collected(NamedTuple):
    """What the collector did, what the store holds then, and what the collector does next."""

    label: str
    store: Store
    collector: Collector


def collector_steps(collector: Collector, store: Store, passes: int, clauses: frozenset[Clause]) -> Iterator[Collected]:
    """What the collector can do next.

    Args:
        passes: how many times it works on one plan.
        clauses: that hold.
    """
    idle = Collector(Collect.READ_LOG_START, collector.runs - 1)
    match collector.do:
        case Collect.READ_LOG_START:
            if collector.runs and store.log_start is not None:
                read = collector._replace(do=Collect.READ_COMMIT, log_start=store.log_start)
                yield Collected(f"GET log.start: {store.log_start}", store, read)
        case Collect.READ_COMMIT:
            assert collector.log_start is not None
            commit = store.commit
            if not isinstance(commit, Commit) or commit.lineage != collector.log_start.lineage:
                yield Collected("GET offset.wm: not of this lineage, ends", store, idle)
                return
            for target in range(collector.log_start.offset + 1, commit.next + 1):
                if target == commit.next or lives(store.segments, commit.epochs, target):
                    read = collector._replace(do=Collect.MOVE, commit=commit, target=target)
                    yield Collected(f"GET offset.wm: {commit}; policy: up to {target}", store, read)
        case Collect.MOVE:
            yield _moved(collector, store, idle)
        case Collect.PLAN:
            plan = frozenset(segment for segment in store.segments if _goes(segment, collector, clauses))
            waiting = collector._replace(do=Collect.WAIT, commit=None, plan=plan, passes=passes)
            names = ", ".join(sorted(map(str, plan))) or "nothing"
            yield Collected(f"list; plan of {collector.log_start}: {names}", store, waiting)
        case Collect.WAIT:
            planned, now = collector.log_start, store.log_start
            assert planned is not None
            if now is None or now.lineage != planned.lineage or now.offset < planned.offset:
                yield Collected(f"GET log.start: {now}, the plan is void", store, idle)
            else:
                yield Collected(f"GET log.start: {now}, the plan holds", store, collector._replace(do=Collect.DELETE))
        case Collect.DELETE:
            for segment in sorted(collector.plan & store.segments, key=str)[:1]:
                yield Collected(f"DELETE {segment}", store._replace(segments=store.segments - {segment}), collector)
            again = collector._replace(do=Collect.WAIT, passes=collector.passes - 1)
            yield Collected("ends, or is killed", store, again if again.passes else idle)


def _moved(collector: Collector, store: Store, idle: Collector) -> Collected:
    """`log.start` up, on the ETag read first."""
    read, target = collector.log_start, collector.target
    assert read is not None
    if store.log_start != read:
        return Collected("PUT log.start: refused", store, idle)
    moved = LogStart(target, read.lineage)
    rightly = target
    if isinstance(store.commit, Commit) and store.commit.lineage not in {None, read.lineage}:
        rightly = min(target, store.commit.lineage.offset)  # the line that the policy was computed for ended there
    written = store._replace(log_start=moved, reclaimed=max(store.reclaimed, rightly))
    return Collected(f"PUT log.start: {moved}", written, collector._replace(do=Collect.PLAN, log_start=moved, target=0))


def _goes(segment: Segment, collector: Collector, clauses: frozenset[Clause]) -> bool:
    """Whether a plan names an object; the segment of the last committed batch stays."""
    assert collector.log_start is not None
    assert collector.commit is not None
    commit = collector.commit
    below = segment.end <= collector.log_start.offset and segment.end < commit.next
    later = segment.epoch > commit.epoch
    return below and not (later and Clause.PLAN_EPOCH in clauses)


class Looked(NamedTuple):
    """What a reader did, and what it does next; None: it has ended."""

    label: str
    reader: Reader | None


def reader_step(reader: Reader, store: Store, clauses: frozenset[Clause]) -> Looked | None:
    """Reading rule 1, and what the reader then finds; None where there is nothing to read yet.

    Raises:
        Violation: the view has a hole.
    """
    match reader.do:
        case Read.COMMIT:
            if store.commit is None:
                return None
            return Looked(f"GET offset.wm: {store.commit}", Reader(Read.LOG_START, reader.again, store.commit))
        case Read.LOG_START:
            looked = _view(reader, store, clauses)
            begins = looked.reader.begins if looked.reader and looked.reader.do == Read.LIST else 0
            commit = store.commit
            if isinstance(commit, Commit) and commit == reader.commit:
                shown = range(store.reclaimed, min(begins, commit.next))
                hidden = [o for o in shown if lives(store.segments, commit.epochs, o)]
                if hidden:
                    what = f"a reader begins at {begins}, {hidden} live: {commit}, log.start {store.log_start}"
                    raise Violation(Property.S2, what)
            return looked
        case Read.LIST:
            if isinstance(reader.commit, Commit):
                commit = reader.commit
                hole = first_hole(store, commit.epochs, reader.begins, commit.next)
                if hole is not None:
                    what = f"a reader of [{reader.begins}, {commit.next}) finds nothing at {hole}: {commit}"
                    raise Violation(Property.S1, what)
            return Looked("list, read", None)


def _view(reader: Reader, store: Store, clauses: frozenset[Clause]) -> Looked:
    log_start = store.log_start
    number, lineage = log_start or (0, None)
    own = reader.commit.lineage if isinstance(reader.commit, Commit) else None
    if own == lineage:
        return Looked(f"GET log.start: {log_start}", reader._replace(do=Read.LIST, begins=number))
    other = lineage_epoch(lineage) == lineage_epoch(own) and Clause.SAME_LINEAGE in clauses
    if lineage_epoch(lineage) > lineage_epoch(own) or other:
        if reader.again:
            return Looked(f"GET log.start: {log_start}; reads the commit again", Reader(Read.COMMIT, reader.again - 1))
        return Looked(f"GET log.start: {log_start}; error", None)
    assert own is not None
    begins = min(number, own.offset)
    return Looked(f"GET log.start: {log_start}; begins at {begins}", reader._replace(do=Read.LIST, begins=begins))


def shipped_by_java(log: Log) -> Store:
    """What a Java uploader leaves: plain names, the base of the last, no `log.start`."""
    closed = list(log.closed())
    segments = (Segment(base, None, log.records[base - log.start : end - log.start]) for base, end in closed)
    return Store(commit=JavaCommit(closed[-1][0]), segments=frozenset(segments))


def lost(store: Store) -> Iterator[tuple[str, Store]]:
    """The commit is lost."""
    if store.commit is not None:
        yield "offset.wm is LOST", store._replace(commit=None)


def overwritten(store: Store) -> Iterator[tuple[str, Store]]:
    """Java writes its first line over a commit: the highest plain name below the next offset."""
    commit = store.commit
    if isinstance(commit, Commit):
        plain = [segment.base for segment in store.segments if segment.variant is None and segment.base < commit.next]
        if plain:
            yield f"Java PUTs offset.wm: base {max(plain)}", store._replace(commit=JavaCommit(max(plain)))
