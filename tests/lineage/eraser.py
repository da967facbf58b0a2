"""The eraser (`tsctl/erase`): one store operation a step; readers with lists of erased offsets.

A request names records. An eraser searches every copy below E for them, puts the next list, and writes its number to
`log.start`. After a refused request it begins again with `log.start`. Between requests it can delete former lists. E is
the greater of the next offset and the leader's log end. A search is one step, as if its objects were read at once.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tests.lineage.clauses import Described, Property, Violation
from tests.lineage.collector import FRESH
from tests.lineage.erase_rules import EraseRule
from tests.lineage.kafka import Epochs
from tests.lineage.state import Commit, ErasedList, LogStart, Reader, Records, Store, epoch_at, lives


class Erase(StrEnum):
    """What an eraser does next."""

    READ_COMMIT = "GET offset.wm"
    SEARCH = "list, search"
    READ_LOG_START = "GET log.start"
    LIST = "list erased/"
    GET = "GET the greatest list"
    PUT = "PUT the next list"
    LIST_AGAIN = "list erased/ again"
    GET_AGAIN = "GET the greatest list again"
    PUT_LOG_START = "PUT log.start"
    DELETE = "DELETE a list"


class Eraser(NamedTuple):
    """An eraser.

    Attributes:
        requests: what it has to erase, the present request first.
        commit: as read, without its nonce.
        end: E.
        found: what its search found, as entries of a list.
        owed: what readers may not show once the request has ended.
        log_start: as read.
        list: the greatest, as listed or read; before a PUT the one to be put.
        removes: the lists to be deleted.
    """

    do: Erase
    requests: tuple[Records, ...]
    commit: Commit | None = None
    end: int = 0
    found: tuple[tuple[int, int], ...] = ()
    owed: Records = frozenset()
    log_start: LogStart | None = None
    list: ErasedList | None = None
    removes: tuple[ErasedList, ...] = ()


class Erased(NamedTuple):
    """What an eraser did, what the store holds then, and what the eraser does next.

    Attributes:
        owed: of a request that has ended: what readers may not show.
        listed: of that request: the entries that a list has.
    """

    label: str
    store: Store
    eraser: Eraser
    owed: Records = frozenset()
    listed: Records = frozenset()


def begins(requests: tuple[Records, ...]) -> Eraser:
    """Return an eraser before its next request."""
    return Eraser(Erase.READ_COMMIT, requests)


class Erasing(NamedTuple):
    """The rules of an eraser."""

    clauses: frozenset[Described]

    def steps(self, eraser: Eraser, store: Store, log_end: int) -> Iterator[Erased]:
        """What an eraser can do next.

        Args:
            log_end: of the leader's log.

        Raises:
            Violation: it ends in an error that stays although no list was lost (the caller excuses lost ones).
        """
        match eraser.do:
            case Erase.READ_COMMIT:
                yield from self._begin(eraser, store, log_end)
            case Erase.SEARCH:
                yield self._search(eraser, store)
            case Erase.READ_LOG_START:
                yield from self._read_log_start(eraser, store)
            case Erase.LIST:
                yield from self._list(eraser, store)
            case Erase.GET | Erase.GET_AGAIN:
                yield self._get(eraser, store)
            case Erase.PUT:
                yield self._put(eraser, store)
            case Erase.LIST_AGAIN:
                yield self._list_again(eraser, store)
            case Erase.PUT_LOG_START:
                yield from self._put_log_start(eraser, store)
            case Erase.DELETE:
                gone, *rest = eraser.removes
                after = eraser._replace(removes=tuple(rest)) if rest else begins(eraser.requests)
                yield Erased(f"DELETE {gone}", store._replace(lists=store.lists - {gone}), after)

    # ---------------------------------------------------------------- reading

    def _begin(self, eraser: Eraser, store: Store, log_end: int) -> Iterator[Erased]:
        commit = store.commit
        if eraser.requests and isinstance(commit, Commit):
            read = eraser._replace(do=Erase.SEARCH, commit=commit._replace(nonce=0), end=max(commit.next, log_end))
            yield Erased(f"GET offset.wm: {commit}; E {read.end}", store, read)
        if removes := _removable(store):
            yield Erased("list erased/, deletes former lists", store, eraser._replace(do=Erase.DELETE, removes=removes))

    def _search(self, eraser: Eraser, store: Store) -> Erased:
        commit, wanted = eraser.commit, eraser.requests[0]
        assert commit is not None
        stored = {(each.base + at, epoch) for each in store.segments for at, epoch in enumerate(each.records)}
        owed = frozenset(record for record in wanted & stored if record[0] < eraser.end)
        seen = owed
        if EraseRule.DEAD_TAILS not in self.clauses:
            seen = frozenset(record for record in seen if _is_live(commit.epochs, *record))
        if EraseRule.BELOW_START not in self.clauses and store.log_start is not None:
            seen = frozenset(record for record in seen if record[0] >= store.log_start.offset)
        if EraseRule.BATCH_EPOCH not in self.clauses:
            seen = frozenset((offset, epoch_at(commit.epochs, offset) or 0) for offset, _ in seen)
        found = _united((), sorted(seen))
        label = f"list, search: finds {' '.join(f'{offset}@{epoch}' for offset, epoch in found) or 'nothing'}"
        if not found:
            return Erased(label, store, begins(eraser.requests[1:]), owed)
        return Erased(label, store, self._again(eraser._replace(commit=None, end=0, found=found, owed=owed)))

    def _again(self, eraser: Eraser) -> Eraser:
        """Return an eraser that begins again, with what its search found."""
        first = Erase.READ_LOG_START if EraseRule.LOG_START_READ_FIRST in self.clauses else Erase.LIST
        return eraser._replace(do=first, log_start=None, list=None)

    def _read_log_start(self, eraser: Eraser, store: Store) -> Iterator[Erased]:
        if store.log_start is None:
            return  # it waits for the leader's agent
        read = eraser._replace(log_start=store.log_start)
        label = f"GET log.start: {store.log_start}"
        if EraseRule.LOG_START_READ_FIRST in self.clauses:
            yield Erased(label, store, read._replace(do=Erase.LIST))
        else:
            yield Erased(label, store, self._listed(read))

    def _list(self, eraser: Eraser, store: Store) -> Iterator[Erased]:
        listed = eraser._replace(list=store.greatest)
        label = f"list erased/: {store.greatest or 'none'}"
        if EraseRule.LOG_START_READ_FIRST in self.clauses:
            yield Erased(label, store, self._listed(listed))
        else:
            yield Erased(label, store, listed._replace(do=Erase.READ_LOG_START))

    def _listed(self, eraser: Eraser) -> Eraser:
        """Return an eraser that has read `log.start`, and listed."""
        assert eraser.log_start is not None
        if eraser.log_start.erased > _number(eraser.list) and EraseRule.STOPS in self.clauses:
            raise Violation(
                Property.E3, f"an eraser stops: log.start {eraser.log_start}, lists {eraser.list or 'none'}"
            )
        return eraser._replace(do=Erase.GET) if eraser.list else self._with_next(eraser)

    def _with_next(self, eraser: Eraser) -> Eraser:
        """Return an eraser that puts the next list, or uses the one that it has read."""
        assert eraser.log_start is not None
        former = eraser.list
        if former is not None and former.has(eraser.found):
            return eraser._replace(do=Erase.PUT_LOG_START)
        kept = former.entries if former is not None and EraseRule.CONTAINS in self.clauses else ()
        entries = _united(kept, eraser.found)
        if EraseRule.EPOCH_STAYS not in self.clauses:
            entries = tuple(sorted((dict(kept) | dict(eraser.found)).items()))
        following = ErasedList(_number(former) + 1, entries)
        first = Erase.PUT if EraseRule.LIST_FIRST in self.clauses else Erase.PUT_LOG_START
        return eraser._replace(do=first, list=following)

    def _get(self, eraser: Eraser, store: Store) -> Erased:
        """Read the greatest list: at first, or after the put."""
        assert eraser.list is not None
        if eraser.list not in store.lists:
            return Erased("GET the greatest list: 404 or another ETag", store, self._again(eraser))
        label = f"GET {eraser.list}"
        if eraser.do == Erase.GET:
            return Erased(label, store, self._with_next(eraser))
        if eraser.list.has(eraser.found) or EraseRule.TAKES_IF_THERE not in self.clauses:
            return Erased(f"{label}: uses it", store, eraser._replace(do=Erase.PUT_LOG_START))
        return Erased(f"{label}: lacks its offsets", store, self._again(eraser))

    # ---------------------------------------------------------------- writing

    def _put(self, eraser: Eraser, store: Store) -> Erased:
        draft = eraser.list
        assert draft is not None
        taken = frozenset(each for each in store.lists if each.number == draft.number)
        if taken and EraseRule.WHERE_NONE in self.clauses:
            return Erased(f"PUT {draft}: refused", store, self._again(eraser))
        put = store._replace(lists=store.lists - taken | {draft}, young=store.young | {draft.number})
        if EraseRule.LIST_FIRST not in self.clauses:
            return _ended(f"PUT {draft}", put, eraser)
        lists_again = EraseRule.LISTS_AGAIN in self.clauses
        after = eraser._replace(do=Erase.LIST_AGAIN if lists_again else Erase.PUT_LOG_START)
        return Erased(f"PUT {draft}", put, after)

    def _list_again(self, eraser: Eraser, store: Store) -> Erased:
        label = f"list erased/ again: {store.greatest or 'none'}"
        if store.greatest == eraser.list:
            return Erased(label, store, eraser._replace(do=Erase.PUT_LOG_START))
        if store.greatest is None:
            return Erased(label, store, self._again(eraser))
        return Erased(label, store, eraser._replace(do=Erase.GET_AGAIN, list=store.greatest))

    def _put_log_start(self, eraser: Eraser, store: Store) -> Iterator[Erased]:
        read, named = eraser.log_start, eraser.list
        assert read is not None
        assert named is not None
        is_last = EraseRule.LIST_FIRST in self.clauses
        if is_last and EraseRule.NAMES_THE_LIST not in self.clauses:
            yield _ended("ends without log.start", store, eraser)
        if is_last and read.erased >= named.number:
            yield _ended(f"log.start names {read.erased} already", store, eraser)
            return
        if store.log_start != read and EraseRule.ON_ETAG in self.clauses:
            yield Erased("PUT log.start: refused", store, self._again(eraser))
            return
        if store.log_start is None:
            return  # a PUT without a condition makes one of an archive that has none: no clause is about that
        content = read._replace(erased=named.number, written=FRESH)
        if EraseRule.ERASER_CARRIES not in self.clauses:
            content = LogStart(read.offset, None, None, 0, FRESH, named.number)
        put = store._replace(log_start=content, is_old=False)
        label = f"PUT log.start: {content}"
        yield _ended(label, put, eraser) if is_last else Erased(label, put, eraser._replace(do=Erase.PUT))


def _ended(label: str, store: Store, eraser: Eraser) -> Erased:
    return Erased(label, store, begins(eraser.requests[1:]), eraser.owed, frozenset(eraser.found))


def _is_live(epochs: Epochs, offset: int, epoch: int) -> bool:
    named, first = epoch_at(epochs, offset), epochs[0][0] if epochs else 0
    return epoch <= first if named is None else epoch == named


def _number(of: ErasedList | None) -> int:
    return 0 if of is None else of.number


def _united(kept: Iterable[tuple[int, int]], found: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the entries of both, each with the greater epoch."""
    entries = dict(kept)
    for offset, epoch in found:
        entries[offset] = max(epoch, entries.get(offset, -1))
    return tuple(sorted(entries.items()))


def _removable(store: Store) -> tuple[ErasedList, ...]:
    """Return the lists below the last two, ascending, whose next list was put a grace ago."""
    ascending = sorted(store.lists)
    below = (ascending[-1].number if ascending else 0) - 1
    pairs = pairwise(ascending)
    return tuple(one for one, after in pairs if one.number < below and after.number not in store.young)


def check_lists(store: Store, listed: Records) -> None:
    """Check E2 and E3 of a store that lost no list.

    Args:
        listed: the entries of the requests that have ended.
    """
    greatest = store.greatest
    if listed and (greatest is None or not greatest.has(listed)):
        raise Violation(Property.E2, f"the greatest list is {greatest or 'none'}, it had {sorted(listed)}")
    if store.log_start is not None and store.log_start.erased > _number(greatest):
        raise Violation(Property.E3, f"log.start {store.log_start}, the greatest list is {greatest or 'none'}")


def check_shown(reader: Reader, commit: Commit, store: Store, requests: Records, clauses: frozenset[Described]) -> None:
    """Check E1 and E4: what a reader shows of each offset.

    Args:
        requests: what is erased at any time.
    """
    for offset in range(reader.begins, commit.next):
        limit = -1 if reader.list is None else reader.list.epoch(offset)
        for epoch in _living(store, commit.epochs, offset):
            compared = epoch if EraseRule.BATCH_EPOCH in clauses else epoch_at(commit.epochs, offset) or 0
            hides = compared <= limit or (limit >= 0 and EraseRule.HIGHER_SHOWS not in clauses)
            owed = [other for at, other in reader.owed or () if at == offset and other >= epoch]
            if owed and not hides:
                raise Violation(Property.E1, f"a reader shows {offset} of epoch {epoch}: {commit}, {reader.list}")
            if hides and not any(at == offset and other >= epoch for at, other in requests):
                raise Violation(Property.E4, f"a reader hides {offset} of epoch {epoch}: {commit}, {reader.list}")


def _living(store: Store, epochs: Epochs, offset: int) -> frozenset[int]:
    """Return the epochs of the living copies of a record."""
    if not lives(store.segments, epochs, offset):
        return frozenset()
    copies = (each for each in store.segments if each.base <= offset < each.end)
    return frozenset(epoch for each in copies if _is_live(epochs, offset, epoch := each.records[offset - each.base]))
