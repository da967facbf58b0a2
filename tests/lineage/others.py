"""The others that read and write: a reader, a Java uploader, an intruder with an agent's rights, and loss.

A reader of a scenario with erasers lists `erased/` before it reads `log.start`. Then it reads the greatest list.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.lineage.clauses import Clause, Described, Property, Violation
from tests.lineage.collector import FRESH
from tests.lineage.erase_rules import EraseRule
from tests.lineage.eraser import check_shown
from tests.lineage.kafka import Log
from tests.lineage.state import (
    Commit,
    JavaCommit,
    LogStart,
    Read,
    Reader,
    Records,
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


def reader_step(reader: Reader, store: Store, clauses: frozenset[Described], requests: Records) -> Looked | None:
    """Reading rule 1, and what the reader then finds; None where there is nothing to read yet.

    Args:
        requests: what is erased at any time; empty without erasers.

    Raises:
        Violation: the view has a hole, it shows what was erased, or the reader fails.
    """
    match reader.do:
        case Read.COMMIT:
            if store.commit is None:
                return None
            following = Read.LIST_ERASED if requests and not reader.is_old else Read.LOG_START
            return Looked(f"GET offset.wm: {store.commit}", reader._replace(do=following, commit=store.commit))
        case Read.LIST_ERASED:
            listed = reader._replace(list=store.greatest)
            label = f"list erased/: {store.greatest or 'none'}"
            if reader.named < 0:
                return Looked(label, listed._replace(do=Read.LOG_START))
            return Looked(label, _with_named(listed, clauses))
        case Read.GET_ERASED:
            return _get_erased(reader, store, clauses)
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
            if requests and looked.reader is not None and looked.reader.do == Read.LIST:
                return _with_erased(looked.label, looked.reader, store.log_start, clauses)
            return looked
        case Read.LIST:
            if isinstance(reader.commit, Commit):
                commit = reader.commit
                hole = first_hole(store, commit.epochs, reader.begins, commit.next)
                if hole is not None:
                    what = f"a reader of [{reader.begins}, {commit.next}) finds nothing at {hole}: {commit}"
                    raise Violation(Property.S1, what)
                if requests:
                    check_shown(reader, commit, store, requests, clauses)
            return Looked("list, read", None)


def _with_erased(label: str, reader: Reader, log_start: LogStart | None, clauses: frozenset[Described]) -> Looked:
    """What a reader does next that has read `log.start`."""
    named = log_start.erased if log_start is not None else 0
    if not reader.is_old:
        return Looked(label, _with_named(reader._replace(named=named), clauses))
    if log_start is None or (named and EraseRule.VERSION_3 in clauses):
        return Looked(f"{label}; error", None)  # without `log.start` nothing stops an older release
    return Looked(label, reader)


def _with_named(reader: Reader, clauses: frozenset[Described]) -> Reader:
    """A reader that has listed, and has read which list `log.start` names."""
    listed = reader.list.number if reader.list else 0
    if reader.named > listed and EraseRule.NAMED_EXISTS in clauses:
        return _lists_again(reader, clauses)
    return reader._replace(do=Read.GET_ERASED if reader.list else Read.LIST)


def _lists_again(reader: Reader, clauses: frozenset[Described]) -> Reader:
    if not reader.tries or EraseRule.READS_AGAIN not in clauses:
        raise Violation(Property.E3, f"a reader fails: log.start names {reader.named}, it listed {reader.list}")
    return reader._replace(do=Read.LIST_ERASED, list=None, tries=reader.tries - 1)


def _get_erased(reader: Reader, store: Store, clauses: frozenset[Described]) -> Looked:
    """Read the list: the listed one; without a clause the one that `log.start` names, or another of its number."""
    wanted = reader.list
    assert wanted is not None
    number = wanted.number if EraseRule.GREATEST in clauses else reader.named
    others = (each for each in store.lists if each.number == number)
    if EraseRule.LISTED_ETAG in clauses and EraseRule.GREATEST in clauses:
        others = (each for each in store.lists if each == wanted)
    if not number:
        return Looked("reads no list", reader._replace(do=Read.LIST, list=None))
    found = next(others, None)
    if found is None:
        return Looked(f"GET {number}.bin: 404 or another ETag", _lists_again(reader, clauses))
    return Looked(f"GET {found}", reader._replace(do=Read.LIST, list=found))


def _view(reader: Reader, store: Store, clauses: frozenset[Described]) -> Looked:
    log_start = store.log_start
    number, lineage = (log_start.offset, log_start.lineage) if log_start else (0, None)
    own = reader.commit.lineage if isinstance(reader.commit, Commit) else None
    if own == lineage:
        return Looked(f"GET log.start: {log_start}", reader._replace(do=Read.LIST, begins=number))
    other = lineage_epoch(lineage) == lineage_epoch(own) and Clause.SAME_LINEAGE in clauses
    if lineage_epoch(lineage) > lineage_epoch(own) or other:
        if reader.again:
            again = reader._replace(do=Read.COMMIT, again=reader.again - 1, commit=None, list=None, named=-1)
            return Looked(f"GET log.start: {log_start}; reads the commit again", again)
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


def list_lost(store: Store) -> Iterator[tuple[str, Store]]:
    """A list of erased offsets is lost."""
    for each in sorted(store.lists):
        yield f"{each} is LOST", store._replace(lists=store.lists - {each})


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
