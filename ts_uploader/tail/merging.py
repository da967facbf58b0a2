"""Merges: the entries of many packs become few, so that an index stays small (tail rule 5).

A merge moves the packs, or a level of merged objects, to the next level. It joins the entries of a partition that
follow each other in one leadership, up to `_JOINED_BYTES`. Entries of `_LARGE_BYTES` stay where they are. Those that no
reader needs any more are left out (`ts_uploader.tail.needed`).

Small entries are read object after object, and written to their place in a file without a name: the object of a merge
is larger than the agent's memory may be.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from awscrt.checksums import combine_crc32c, crc32c

from ts_common.archive.object_keys import ClusterKeys, pack_number
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import HEAD_BYTES, MOST_ABORTED, PackHead, encode_pack
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ByteRange, IfAbsent, ObjectStore
from ts_uploader.tail.pack_log import Level, PackLog, nonce

PACKS: Final = 64  # are merged at once: one more put for so many
_ROWS: Final = 10_000  # of the packs, or of a level: half of what an index has room for
_GENERATIONS: Final = 32  # objects of a level
_LEVELS: Final = 4
_OBJECT_BYTES: Final = 256 << 20
_JOINED_BYTES: Final = 8 << 20  # a reader begins at the first byte of an entry
_LARGE_BYTES: Final = 4 << 20
_MOVED_BYTES: Final = 512 << 20  # of a level in one merge: meanwhile packs wait for theirs
_PIECE: Final = 1 << 20
_MILLISECONDS: Final = 1000
Needs = Callable[[TailEntry], bool]
_Group = tuple[TailEntry, ...]  # entries that become one


class DamagedEntries(CorruptData):
    """An object lacks batches that an index names, or has others there.

    Attributes:
        entries: all that were found.
    """

    def __init__(self, prefix: str, entries: Sequence[TailEntry]) -> None:
        first = entries[0]
        super().__init__(
            f"{prefix}{first.object}: the batches of {first.directory} [{first.start},{first.end}) are not those of "
            f"its index, and neither are {len(entries) - 1} others"
        )
        self.entries = tuple(entries)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge does.

    Attributes:
        reads: of the log, when the plan was made.
        number: of the newest pack then.
        packs: names of the packs that it moves; none for a merge of a level.
        level: the number of the level that receives; 0 follows the packs.
        moved: the entries that it moves.
        levels: all levels, without the entries that it moves.
        changed: the numbers of the levels that lost entries.
    """

    reads: int
    number: int
    packs: tuple[str, ...]
    level: int
    moved: tuple[TailEntry, ...]
    levels: tuple[Level, ...]
    changed: frozenset[int]


@dataclass(slots=True)
class Merged:
    """What a merge put; one that failed can have put objects too.

    Attributes:
        made: names of the objects.
        levels: all levels of the log with them.
        copied: bytes of batches.
    """

    made: list[str] = field(default_factory=list)
    levels: tuple[Level, ...] = ()
    copied: int = 0


def plan_merge(log: PackLog, needs: Needs) -> MergePlan | None:
    """Return the merge that is due; None without one.

    Args:
        needs: whether a reader can still need an entry.
    """
    due = _due(log)
    if due is None:
        return None
    source, target = due
    levels = [*log.levels, *[Level()] * (target + 1 - len(log.levels))]
    changed = {target}
    if source is None:
        packs, moved = tuple(pack.name for pack in log.packs), [row for pack in log.packs for row in pack.rows]
    else:
        packs, moved = (), _oldest(levels[source].rows)
        gone = {*moved}
        levels[source] = replace(levels[source], rows=tuple(row for row in levels[source].rows if row not in gone))
        changed.add(source)
    levels[target] = replace(levels[target], rows=tuple(filter(needs, levels[target].rows)))
    kept = tuple(filter(needs, moved))
    return MergePlan(log.reads, log.number, packs, target, kept, tuple(levels), frozenset(changed))


def plan_sweep(log: PackLog, needs: Needs) -> MergePlan | None:
    """Return a merge that only leaves entries out; None if a reader can need each entry of the levels."""
    levels = [replace(level, rows=tuple(filter(needs, level.rows))) for level in log.levels]
    changed = [at for at, level in enumerate(levels) if level.rows != log.levels[at].rows]
    if not changed:
        return None
    return MergePlan(log.reads, log.number, (), changed[-1], (), tuple(levels), frozenset(changed))


def _due(log: PackLog) -> tuple[int | None, int] | None:
    """Return the level that a merge empties, None for the packs, and the one that receives.

    The packs are first: while they wait, no pack has room for more. The deepest level receives its own small entries.
    """
    size, count = sum(pack.size for pack in log.packs), sum(len(pack.rows) for pack in log.packs)
    if len(log.packs) >= PACKS or size >= _OBJECT_BYTES or count >= _ROWS:
        return None, 0
    for number in reversed(range(min(len(log.levels), _LEVELS))):
        rows = log.levels[number].rows
        if number == _LEVELS - 1:
            if sum(row.length < _LARGE_BYTES for row in rows) >= _ROWS:
                return number, number
        elif len(rows) >= _ROWS or len({row.object for row in rows}) >= _GENERATIONS:
            return number, number + 1
    return None


def _oldest(rows: Iterable[TailEntry]) -> list[TailEntry]:
    """Return the entries of the oldest objects of a level: so many that a merge of them is soon done."""
    of_object: dict[str, list[TailEntry]] = {}
    for row in rows:
        of_object.setdefault(row.object, []).append(row)
    found: list[TailEntry] = []
    size = 0
    for name in sorted(of_object, key=_age):
        if found and size >= _MOVED_BYTES:
            break
        found += of_object[name]
        size += sum(row.length for row in of_object[name] if row.length < _LARGE_BYTES)
    return found


def _age(name: str) -> tuple[int, str]:
    """Return what orders the objects of a log by their age: a merged one has the number of a pack."""
    number = pack_number(name)
    if number is None:
        digits = name.partition("/")[2].partition("-")[0]
        number = int(digits) if digits.isdecimal() else 0
    return number, name


class Merger:
    """Runs the merges of one log; `run` needs a thread of its own.

    Args:
        directory: for files without a name; None for that of the host.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys, log: str, directory: str | None = None) -> None:
        self._store = store
        self._prefix = keys.tail(log)
        self._log = log
        self._directory = directory

    def run(self, plan: MergePlan, merged: Merged) -> None:
        """Put what a plan needs.

        Args:
            merged: receives what was put, also before an error.

        Raises:
            DamagedEntries: objects have other bytes than their entries name, or are missing.
            CorruptData: an index has no room for one entry.
            StoreUnavailable, AccessDenied, BucketMissing, PreconditionFailed, OutcomeUnknown: as the store.
            OSError: the file cannot be written.
        """
        levels, is_changed = list(plan.levels), False
        for number in reversed(range(len(levels))):  # each level names the next one, so the deepest is first
            before = next((level.heads[0] for level in levels[number + 1 :] if level.rows), None)
            rows = levels[number].rows
            is_changed |= number in plan.changed
            if number == plan.level and plan.moved:
                levels[number] = self._receive(plan, merged, rows, before)
            elif is_changed and rows:
                levels[number] = Level(rows, self._put_index(plan, merged, rows, before))
            elif not rows:
                levels[number] = Level()
        merged.levels = tuple(levels)

    def _receive(self, plan: MergePlan, merged: Merged, kept: Iterable[TailEntry], before: str | None) -> Level:
        """Put what a plan moves; the last object has the index of the level."""
        rows = [*kept, *(row for row in plan.moved if row.length >= _LARGE_BYTES)]
        heads: tuple[str, ...] = ()
        objects = [*_divided(_joinable(row for row in plan.moved if row.length < _LARGE_BYTES))]
        for number, groups in enumerate(objects, start=1):
            with closing(_Spool(self._directory)) as spool:
                joined = self._copy(groups, spool)
                merged.copied += spool.size
                if number < len(objects):
                    rows += self._put(plan, merged, None, None, joined, spool)
                    continue
                try:
                    rows += self._put(plan, merged, rows, before, joined, spool)
                except CorruptData:  # the index has no room for all
                    heads = self._put_index(plan, merged, rows, before)
                    rows += self._put(plan, merged, (), heads[0], joined, spool)
                heads = (merged.made[-1], *heads)
        return Level(tuple(rows), heads or self._put_index(plan, merged, rows, before))

    def _put_index(
        self, plan: MergePlan, merged: Merged, rows: Sequence[TailEntry], before: str | None
    ) -> tuple[str, ...]:
        """Put objects that only have an index; return their names; each leads to the next."""
        try:
            self._put(plan, merged, rows, before, (), None)
        except CorruptData:
            if len(rows) == 1:
                raise
            rows = sorted(rows, key=attrgetter("directory", "start"))  # a directory is named in few of them
            half = len(rows) // 2
            rest = self._put_index(plan, merged, rows[half:], before)
            return *self._put_index(plan, merged, rows[:half], rest[0]), *rest
        return (merged.made[-1],)

    def _put(
        self,
        plan: MergePlan,
        merged: Merged,
        rows: Sequence[TailEntry] | None,
        before: str | None,
        own: Sequence[TailEntry],
        spool: "_Spool | None",
    ) -> list[TailEntry]:
        """Put an object, with an index of `rows` and its own unless `rows` is absent; return its own rows.

        Raises:
            CorruptData: the index is too large; nothing was put.
        """
        mark = nonce()
        name = f"merged/{plan.number}-{mark}"
        made_at = int(time.time() * _MILLISECONDS)
        listed = [] if rows is None else [*rows, *own]
        begin = encode_pack(PackHead(self._log, plan.number, mark, made_at, before), listed, ())
        merged.made.append(name)
        if spool is None:
            self._store.put(self._prefix + name, begin, condition=IfAbsent())
        else:
            spool.begin(begin)
            checksum = crc32c(begin)
            for row in own:
                checksum = combine_crc32c(checksum, row.crc32c, row.length)
            size = len(begin) + spool.size
            self._store.put(self._prefix + name, spool, size=size, condition=IfAbsent(), crc32c=checksum)
        return [row._replace(object=name, position=row.position + len(begin)) for row in own]

    def _copy(self, groups: Sequence[_Group], spool: "_Spool") -> list[TailEntry]:
        """Write the batches of entries into a file; return what each group becomes, at its place in the file."""
        of_object: dict[str, list[tuple[TailEntry, int]]] = {}
        starts, at = [], 0
        for group in groups:
            starts.append(at)
            for row in group:
                of_object.setdefault(row.object, []).append((row, at))
                at += row.length
        damaged: list[TailEntry] = []
        for name, rows in of_object.items():
            for near in _near(sorted(rows, key=lambda each: each[0].position)):
                damaged += self._copy_range(name, near, spool)
        if damaged:
            raise DamagedEntries(self._prefix, damaged)
        spool.size = at
        return [_joined(group, start) for group, start in zip(groups, starts, strict=True)]

    def _copy_range(self, name: str, rows: Sequence[tuple[TailEntry, int]], spool: "_Spool") -> list[TailEntry]:
        """Copy entries that are near each other in an object, with one request; return those that are damaged."""
        first, last = rows[0][0], rows[-1][0]
        position, end, piece = first.position, last.position + last.length, memoryview(b"")
        damaged: list[TailEntry] = []
        with (
            suppress(_Short, ObjectNotFound),
            self._store.open(self._prefix + name, ByteRange(position, end)) as stream,
        ):

            def read(until: int) -> memoryview:
                """Return some of the bytes before a position."""
                nonlocal position, piece
                if not piece:
                    piece = memoryview(stream.read(min(end - position, _PIECE)))
                    if not piece:
                        raise _Short
                found, piece = piece[: until - position], piece[until - position :]
                position += len(found)
                return found

            for row, place in rows:
                while position < row.position:
                    read(row.position)
                checksum = 0
                while position < row.position + row.length:
                    at = place + position - row.position
                    some = read(row.position + row.length)
                    checksum = crc32c(some, checksum)
                    spool.write(at, some)
                if checksum != row.crc32c:
                    damaged.append(row)
        return damaged + [row for row, _ in rows if row.position + row.length > position]


class _Short(Exception):
    """An object ends below an entry that its index has."""


class _Spool:
    """A file without a name: the batches of an object, with room for its beginning.

    Attributes:
        size: of the batches, in bytes.
    """

    def __init__(self, directory: str | None) -> None:
        self.size = 0
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  (`close` closes it)
        self._first = HEAD_BYTES
        self._position = 0

    def write(self, place: int, piece: memoryview) -> None:
        """Write bytes to a place, counted from the first batch on."""
        while piece:
            done = os.pwrite(self._file.fileno(), piece, HEAD_BYTES + place)
            piece, place = piece[done:], place + done

    def begin(self, data: bytes) -> None:
        """Write the bytes before the first batch: reads begin with these."""
        self._first = HEAD_BYTES - len(data)
        os.pwrite(self._file.fileno(), data, self._first)

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes from the position on."""
        left = HEAD_BYTES + self.size - self._first - self._position
        data = os.pread(self._file.fileno(), left if size < 0 else min(size, left), self._first + self._position)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, as `io.IOBase.seek`."""
        self._position = (0, self._position, HEAD_BYTES + self.size - self._first)[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def close(self) -> None:
        """Free its bytes."""
        self._file.close()


def _joinable(rows: Iterable[TailEntry]) -> Iterator[_Group]:
    """Yield the groups of entries that can become one, ascending by directory."""
    group: list[TailEntry] = []
    size = 0
    for row in sorted(rows, key=attrgetter("directory", "start", "end")):
        last = group[-1] if group else None
        continues = last is not None and (last.directory, last.epoch, last.end) == (row.directory, row.epoch, row.start)
        if group and not (continues and size + row.length <= _JOINED_BYTES):
            yield tuple(group)
            group, size = [], 0
        group.append(row)
        size += row.length
    if group:
        yield tuple(group)


def _divided(groups: Iterable[_Group]) -> Iterator[list[_Group]]:
    """Yield the groups of each object."""
    some: list[_Group] = []
    size = 0
    for group in groups:
        length = sum(row.length for row in group)
        if some and size + length > _OBJECT_BYTES:
            yield some
            some, size = [], 0
        some.append(group)
        size += length
    if some:
        yield some


def _near(rows: Sequence[tuple[TailEntry, int]]) -> Iterator[list[tuple[TailEntry, int]]]:
    """Yield the entries that one request reads, by their positions."""
    some = [rows[0]]
    for row in rows[1:]:
        last = some[-1][0]
        if row[0].position > last.position + last.length + _PIECE:
            yield some
            some = []
        some.append(row)
    yield some


def _joined(group: _Group, place: int) -> TailEntry:
    """Return the entry that has the batches of a group, at a place from the first batch on."""
    epochs: list[tuple[int, int]] = []
    aborted: list[Aborted] | None = []
    checksum = 0
    for row in group:
        epochs += row.epochs[1:] if epochs and row.epochs and epochs[-1][0] == row.epochs[0][0] else row.epochs
        checksum = combine_crc32c(checksum, row.crc32c, row.length)
        aborted = None if aborted is None or row.aborted is None else [*aborted, *row.aborted]
        if aborted is not None and len(aborted) > MOST_ABORTED:
            aborted = None
    records = [row.records for row in group]
    return group[-1]._replace(
        start=group[0].start,
        object="",
        position=place,
        length=sum(row.length for row in group),
        crc32c=checksum,
        epochs=tuple(epochs),
        aborted=None if aborted is None else tuple(aborted),
        records=None if None in records else sum(each or 0 for each in records),
        time_max=max((row.time_max for row in group if row.time_max is not None), default=None),
    )
