"""The others that read and write: a reader, a Java uploader, an intruder with an agent's rights, and loss."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.lineage.clauses import Clause, Property, Violation
from tests.lineage.collector import FRESH
from tests.lineage.kafka import Log
from tests.lineage.state import (
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
    number, lineage = (log_start.offset, log_start.lineage) if log_start else (0, None)
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


def begins_at(store: Store) -> int | None:
    """Where readers begin (reading rule 1); None where they fail, or have no `log.start`."""
    commit, log_start = store.commit, store.log_start
    if not isinstance(commit, Commit) or log_start is None:
        return None
    if log_start.lineage == commit.lineage:
        return log_start.offset
    if lineage_epoch(log_start.lineage) >= lineage_epoch(commit.lineage):
        return None
    assert commit.lineage is not None
    return min(log_start.offset, commit.lineage.offset)


def forged(store: Store) -> Iterator[tuple[str, Store]]:
    """A `log.start` by an agent's identity: it hides more, claims that all was deleted, and has read the copy."""
    log_start, commit = store.log_start, store.commit
    if log_start is None or not isinstance(commit, Commit):
        return
    since = store.copy.since if store.copy else 0
    for offset in range(log_start.offset, commit.next):
        put = LogStart(offset, log_start.lineage, offset, since, FRESH)
        yield f"forged log.start: {put}", store._replace(log_start=put, is_old=False, reclaimed=offset)


def repaired(store: Store, log: Log) -> Iterator[tuple[str, Store]]:
    """A repairer that is late puts a segment again that retention deleted."""
    for base, end in log.closed():
        segment = Segment(base, None, log.records[base - log.start : end - log.start])
        if not any(each.base == base for each in store.segments):
            yield f"repair PUTs {segment}", store._replace(segments=store.segments | {segment})


def start_lost(store: Store) -> Iterator[tuple[str, Store]]:
    """`log.start` is lost."""
    if store.log_start is not None:
        yield "log.start is LOST", store._replace(log_start=None, is_old=False)


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
