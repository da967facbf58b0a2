"""One log of packs: this agent's, in one store (tail rules 3 and 5).

The newest pack is the root: its index leads to each entry that counts, in this object or in earlier ones. So that a
pack's index stays small, it is divided::

    pack n          entries since the last middle or wide pack, and its own
    a middle pack   entries since the last wide pack
    a wide pack     all entries that are in packs
    merged objects  entries that merges copied

Each names the next as `before`. The larger the next middle or wide pack is, the more packs are put before it. An index
leads further where that needs few entries: a pack of a small log has all of them. So a fresh reader reads few objects.
A merge joins the entries of a partition (`ts_uploader.tail.merging`).

The owner's thread calls all methods. After any error the log must be read again: what the store has is unknown.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, pack_name, pack_number
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_logs import newest_pack, read_indexes
from ts_common.archive.tail_pack import PackHead, encode_pack
from ts_common.errors import CorruptData, OutcomeUnknown, PreconditionFailed, TransientError
from ts_common.store.contract import IfAbsent, ObjectStore

GRACE_SECONDS: Final = 1200.0  # a process that is suspended longer reads its log before a put counts
_WIDE_ROWS: Final = 1024  # of a wide pack that has the entries of merged objects too: each costs some 10 us
_NARROW_ROWS: Final = 128  # of any other pack that has them
_DELETED_AT_ONCE: Final = 1000
_MOST_LISTED: Final = 50_000  # objects of an agent without the right to delete: its memory stays bounded


class LogMoved(TransientError):
    """The log differs from what this process read: another put a pack, or a put has no answer, or was too slow."""


class IndexFull(TransientError):
    """An index has no room for all entries; nothing was put. A merge makes room."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Entries of merged objects that one index has.

    Attributes:
        name: of the object with that index; None while only a pack has them.
        rows: in any order.
    """

    name: str | None
    rows: tuple[TailEntry, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack whose entries are in no merged object.

    Attributes:
        name: of the object below its log.
        rows: its entries.
        size: bytes of their batches.
    """

    name: str
    rows: tuple[TailEntry, ...]
    size: int


def boot_seconds() -> float:
    """Return the seconds since the host's boot. While the host is suspended, this clock runs on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def nonce() -> str:
    """Return random text for an object."""
    return secrets.token_hex(4)


class PackLog:
    """The log of one agent in one store.

    Attributes:
        name: of the log.
        number: of the newest pack; 0 without one.
        packs: oldest first.
        merged: the indexes of merged objects; the object of each names that of the next as `before`.
        is_tidy: whether a merge of merged objects would be of no use, as far as that is known.
        reads: how often the log was read. A merge is of no use once it was read again.

    Args:
        seconds: a clock that counts suspension. It need not count a pause of a virtual machine: the store's clock does.
    """

    def __init__(
        self, store: ObjectStore, keys: ClusterKeys, name: str, seconds: Callable[[], float] = boot_seconds
    ) -> None:
        self.name = name
        self.number = 0
        self.packs: list[Pack] = []
        self.merged: tuple[Listed, ...] = ()
        self.is_tidy = False
        self.reads = 0
        self._store = store
        self._keys = keys
        self._prefix = keys.tail(name)
        self._seconds = seconds
        self._is_read = False
        self._looked = 0.0
        self._looked_at = 0.0  # by the store's clock
        # How many packs there are up to the last wide one, and up to the last middle one.
        self._wide_and_middle: tuple[int, int] | None = None
        self._objects: set[str] = set()  # that exist, and are not in the next
        self._unused: deque[tuple[float, str]] = deque(maxlen=_MOST_LISTED)  # since when nothing leads to an object

    @property
    def has_unused(self) -> bool:
        """Whether a later look at the log lets objects be deleted."""
        return bool(self._unused)

    @property
    def rows(self) -> Iterator[TailEntry]:
        """All entries that the newest pack leads to."""
        for pack in self.packs:
            yield from pack.rows
        for listed in self.merged:
            yield from listed.rows

    def read(self) -> None:
        """Read the log from the store.

        Raises:
            CorruptData, NewerFormat: an index is damaged.
            ObjectNotFound: another process changes the log at this moment.
            StoreUnavailable, AccessDenied, BucketMissing: as the store.
        """
        self._is_read = False
        self.reads += 1
        looked = self._seconds()
        listing = islice(self._store.list(self._prefix), _MOST_LISTED)
        listed = {info.key.removeprefix(self._prefix) for info in listing}
        looked_at = self._store.current_time()
        indexes = list(read_indexes(self._store, self._keys, self.name))
        self.number = max((index.head.number for index in indexes), default=0)
        packs: dict[str, list[TailEntry]] = {}
        merged, of_pack = list[Listed](), list[TailEntry]()
        for index in indexes:
            if pack_number(index.name) is None:
                merged.append(Listed(index.name, tuple(index.entries())))
                continue
            for row in index.entries():
                (of_pack if pack_number(row.object) is None else packs.setdefault(row.object, [])).append(row)
        self.merged = (Listed(None, tuple(of_pack)), *merged) if of_pack else tuple(merged)
        self.packs = [_pack(name, rows) for name, rows in sorted(packs.items(), reverse=True)]
        self._wide_and_middle, self.is_tidy = None, False
        self._objects = listed | {index.name for index in indexes}
        self._unused.clear()
        self._retire()
        self._looked, self._looked_at = looked, looked_at
        self._is_read = True

    def begin_anew(self) -> None:
        """Leave all entries out: they cannot be read. The next pack is a root without them.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: as the store.
        """
        looked, looked_at = self._seconds(), self._store.current_time()
        newest = newest_pack(self._store, self._keys, self.name)
        self.number = 0 if newest is None else pack_number(newest.key.removeprefix(self._prefix)) or 0
        self.packs, self.merged, self._wide_and_middle = [], (), None
        self._objects.clear()
        self._unused.clear()
        self._looked, self._looked_at, self._is_read = looked, looked_at, True

    def put(self, requested: int, entries: Sequence[TailEntry], batches: Sequence[bytes]) -> None:
        """Put the next pack; its entries then count.

        Args:
            requested: when the high watermarks were requested, ms since the epoch.
            entries: without an object, at positions from the first batch on.

        Raises:
            IndexFull: nothing was put, and the log need not be read again.
            LogMoved: read the log again.
            StoreUnavailable, AccessDenied, BucketMissing: as the store; read the log again.
        """
        if not self._is_read:
            raise LogMoved(f"{self._prefix}: not read yet")
        if self._seconds() - self._looked > GRACE_SECONDS / 4:
            self._look()
        count, (wide, middle) = len(self.packs), self._wide_and_middle or (0, 0)
        # With forty packs, an index has the entries of 3.5 on average. No other choice has less than those of 3.4.
        is_wide = self._wide_and_middle is None or (count - wide) ** 3 > 8 * wide**2
        is_middle = (count - middle) ** 2 > middle - wide
        room = (_WIDE_ROWS if is_wide else _NARROW_ROWS) - len(entries) - sum(len(pack.rows) for pack in self.packs)
        since = 0 if is_wide or room >= 0 else wide if is_middle else middle
        name, head = pack_name(self.number + 1), PackHead(self.name, self.number + 1, nonce(), requested)
        body = self._body(head, entries, batches, since, room)
        self._is_read = False
        try:
            self._store.put(self._prefix + name, body, condition=IfAbsent())
        except PreconditionFailed as error:
            raise LogMoved(f"{self._prefix}{name}: another process of this agent put it") from error
        except OutcomeUnknown as error:
            raise LogMoved(str(error)) from error
        # The date of this answer: a virtual machine that was paused does not count the pause.
        now, stored = self._seconds(), self._store.current_time()
        passed = max(now - self._looked, stored - self._looked_at)
        if passed > GRACE_SECONDS / 2:
            raise LogMoved(f"{self._prefix}{name}: its answer arrived {passed:.0f} s after the last look")
        size = sum(map(len, batches))
        first = len(body) - size
        # `_replace` needs thrice as long.
        own = tuple([TailEntry._make((*each[:4], name, each.position + first, *each[6:])) for each in entries])
        self.number += 1
        self.packs.append(Pack(name, own, size))
        self._objects.add(name)
        if self._wide_and_middle is None:
            self._retire()
        if since == 0:
            self._wide_and_middle = count + 1, count + 1
        elif is_middle:
            self._wide_and_middle = wide, count + 1
        self._looked, self._looked_at, self._is_read = now, stored, True

    def _body(
        self, head: PackHead, entries: Sequence[TailEntry], batches: Sequence[bytes], since: int, room: int
    ) -> bytes:
        """Return the next pack.

        Args:
            since: number of the packs whose entries its index leaves to that of the last of them.
            room: the most entries of merged objects that it has.

        Raises:
            IndexFull: its index has no room.
        """
        rows = [*chain.from_iterable(pack.rows for pack in self.packs[since:]), *entries]
        following = self.merged[0].name if self.merged else None
        try:
            if since:
                return encode_pack(replace(head, before=self.packs[since - 1].name), rows, batches)
            if following is None or sum(len(listed.rows) for listed in self.merged) <= room:
                others = (row for listed in self.merged for row in listed.rows)
                with suppress(CorruptData) if following else nullcontext():  # its entries can be long
                    return encode_pack(head, [*rows, *others], batches)
            return encode_pack(replace(head, before=following), rows, batches)
        except CorruptData as error:
            raise IndexFull(str(error)) from error

    def take_merge(self, packs: Iterable[str], merged: Sequence[Listed], made: Iterable[str]) -> None:
        """Use what a merge made; the next pack leads to it.

        Args:
            packs: names of those whose entries are in merged objects now, or do not count any more.
            merged: all indexes of merged objects.
            made: names of the objects that the merge put.
        """
        gone = {*packs}
        self.packs = [pack for pack in self.packs if pack.name not in gone]
        self.merged = tuple(merged)
        self._objects |= {*made}
        self._wide_and_middle, self.is_tidy = None, False

    def abandon(self, made: Iterable[str]) -> None:
        """Note objects of a merge that failed: nothing leads to them."""
        now = self._seconds()
        self._unused.extend((now, name) for name in made)

    def delete(self) -> int:
        """Delete the objects that nothing has led to for a grace; return their number.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: as the store; the next call repeats it.
        """
        if not self._is_read:
            return 0
        # By the last look: a second process of this agent may have put a pack since, which leads to them.
        due = self._looked - GRACE_SECONDS
        names = [name for since, name in islice(self._unused, _DELETED_AT_ONCE) if since <= due]
        if names:
            self._store.delete(self._prefix + name for name in names)
        for _ in names:
            self._unused.popleft()
        return len(names)

    def _look(self) -> None:
        """Check that the newest pack is the one that this process has read or put."""
        self._is_read = False
        looked, looked_at = self._seconds(), self._store.current_time()
        newest = newest_pack(self._store, self._keys, self.name)
        if newest is not None and pack_number(newest.key.removeprefix(self._prefix)) != self.number:
            raise LogMoved(f"{newest.key}: another process of this agent put it")
        self._looked, self._looked_at, self._is_read = looked, looked_at, True

    def _retire(self) -> None:
        """Note which objects the newest pack no longer leads to. Only a merge changes that: a wide pack follows it."""
        used = {row.object for row in self.rows} | {listed.name for listed in self.merged if listed.name}
        used |= {pack.name for pack in self.packs} | {pack_name(self.number)}
        now = self._seconds()
        self._unused.extend((now, name) for name in sorted(self._objects - used))
        self._objects &= used


def _pack(name: str, rows: list[TailEntry]) -> Pack:
    return Pack(name, tuple(rows), sum(row.length for row in rows))
