"""Merges: the entries of many packs become few, so that an index stays small (tail rule 5).

A merge copies the small entries of all packs, or of some merged objects, into new objects. It joins the entries of a
partition that follow each other in one leadership, up to `_JOINED_BYTES`. Entries of `_LARGE_BYTES` stay where they
are. Those that no reader needs any more are left out (`ts_uploader.tail.needed`).

Merged objects are merged again with those whose entries are about as long, if that leaves few entries: so each byte is
copied a few times only. The entries alone decide that. No state is kept, and a restart changes nothing.

What it copies is in the broker's logs, or is read from the store (`ts_uploader.tail.merged_body`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final

from awscrt.checksums import combine_crc32c, crc32c

from ts_common.archive.object_keys import ClusterKeys, pack_number
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_pack import MOST_ABORTED, PackHead, encode_pack
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ByteRange, IfAbsent, ObjectStore
from ts_uploader.tail.merged_body import LogsAtHand, MergedBody
from ts_uploader.tail.pack_log import Listed, PackLog, nonce

PACKS: Final = 64  # are merged at once: one more put for so many
_PACK_ROWS: Final = 12_000
_ROWS: Final = 10_000  # of objects with entries of one length, or of one object: half of what an index has room for
_INDEX_ROWS: Final = 16_000  # that an index is made for: each costs some 10 us, and a reader an object for so many
_KEPT: Final = 5  # indexes that a merge keeps at most: it divides the others again
_ALIKE: Final = 8  # objects with entries of one length
_FEWER: Final = 4  # entries become one: less is not worth the copy
_OBJECT_BYTES: Final = 256 << 20
_JOINED_BYTES: Final = 8 << 20  # a reader begins at the first byte of an entry
_LARGE_BYTES: Final = 4 << 20
_MOVED_BYTES: Final = 512 << 20  # of merged objects in one merge: meanwhile packs wait for theirs
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
        packs: names of the packs that it moves; none for a merge of merged objects.
        moved: the entries that it moves.
        listed: other entries that its index has.
        kept: the indexes that stay, behind its own.
        logs: the broker's logs; of no partition to read all from the store.
    """

    reads: int
    number: int
    packs: tuple[str, ...]
    moved: tuple[TailEntry, ...]
    listed: tuple[TailEntry, ...]
    kept: tuple[Listed, ...]
    logs: LogsAtHand = field(default_factory=lambda: LogsAtHand({}))


@dataclass(slots=True)
class Merged:
    """What a merge put; one that failed can have put objects too.

    Attributes:
        made: names of the objects.
        indexes: all indexes of merged objects with them.
        copied: bytes of batches.
    """

    made: list[str] = field(default_factory=list)
    indexes: tuple[Listed, ...] = ()
    copied: int = 0


def plan_merge(log: PackLog, needs: Needs) -> MergePlan | None:
    """Return the merge that is due; None without one.

    The packs are first: while they wait, no pack has room for more.

    Args:
        needs: whether a reader can still need an entry.
    """
    size, count = sum(pack.size for pack in log.packs), sum(len(pack.rows) for pack in log.packs)
    if len(log.packs) >= PACKS or size >= _OBJECT_BYTES or count >= _PACK_ROWS:
        moved = tuple(row for pack in log.packs for row in pack.rows)
        return _plan(log, needs, moved, packs=tuple(pack.name for pack in log.packs))
    if log.is_tidy:
        return None
    moved = tuple(_worth_merging(row for listed in log.merged for row in listed.rows if row.length < _LARGE_BYTES))
    log.is_tidy = not moved
    return _plan(log, needs, moved) if moved else None


def plan_sweep(log: PackLog, needs: Needs) -> MergePlan | None:
    """Return a merge that leaves entries out; None if a reader can need each entry of the log.

    Packs that have such an entry are merged however few there are: on a quiet broker they would stay for months, also
    with records that a request erased.
    """
    moved = tuple(row for pack in log.packs for row in pack.rows)
    if not all(map(needs, moved)):
        return _plan(log, needs, moved, packs=tuple(pack.name for pack in log.packs))
    dropped = {row for listed in log.merged for row in listed.rows if not needs(row)}
    return _plan(log, needs, (), dropped) if dropped else None


def _plan(
    log: PackLog,
    needs: Needs,
    moved: tuple[TailEntry, ...],
    dropped: Collection[TailEntry] = (),
    *,
    packs: tuple[str, ...] = (),
) -> MergePlan:
    """Return a plan that makes the indexes again up to the last one that loses an entry."""
    gone = {*moved, *dropped} if not packs else set[TailEntry]()
    left = [[row for row in listed.rows if row not in gone] if gone else listed.rows for listed in log.merged]
    changed = [at for at, listed in enumerate(log.merged) if listed.name is None or len(left[at]) < len(listed.rows)]
    until = max(changed, default=-1) + 1
    rows = [row for some in left[:until] for row in some]
    kept = log.merged[until:]
    while kept and (len(kept) > _KEPT or len(rows) + len(moved) + len(kept[0].rows) <= _INDEX_ROWS):
        rows += kept[0].rows
        kept = kept[1:]
    return MergePlan(log.reads, log.number, packs, tuple(filter(needs, moved)), tuple(filter(needs, rows)), kept)


def _worth_merging(small: Iterable[TailEntry]) -> list[TailEntry]:
    """Return the small entries of the oldest objects whose entries are about as long; empty if they stay as they are.

    So many that a merge of them is soon done, and leaves few of them.
    """
    of_object: dict[str, list[TailEntry]] = {}
    for row in small:
        of_object.setdefault(row.object, []).append(row)
    alike: dict[int, list[str]] = {}
    for name in sorted(of_object, key=_age):
        rows = of_object[name]
        alike.setdefault((sum(row.length for row in rows) // len(rows)).bit_length() // 2, []).append(name)
    for _, names in sorted(alike.items()):
        if len(names) < _ALIKE and sum(len(of_object[name]) for name in names) < _ROWS:
            continue
        found, size = list[TailEntry](), 0
        for name in names:
            if found and size >= _MOVED_BYTES:
                break
            found += of_object[name]
            size += sum(row.length for row in of_object[name])
        if len(found) >= _FEWER * sum(1 for _ in _joinable(found)):
            return found
    return []


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
            SegmentChanged: a broker's log has not the batches any more; nothing was put.
            DamagedEntries: objects have other bytes than their entries name, or are missing.
            CorruptData: an index has no room for one entry.
            StoreUnavailable, AccessDenied, BucketMissing, PreconditionFailed, OutcomeUnknown: as the store.
            OSError: the file cannot be written.
        """
        before = plan.kept[0].name if plan.kept else None
        made = self._receive(plan, merged, before) if plan.moved else self._put_index(plan, merged, plan.listed, before)
        merged.indexes = (*made, *plan.kept)

    def _receive(self, plan: MergePlan, merged: Merged, before: str | None) -> tuple[Listed, ...]:
        """Put what a plan moves; the last object has the index. Return the new indexes."""
        rows = [*plan.listed, *(row for row in plan.moved if row.length >= _LARGE_BYTES)]
        objects = [*_divided(_joinable(row for row in plan.moved if row.length < _LARGE_BYTES))]
        for number, groups in enumerate(objects, start=1):
            with closing(MergedBody(self._directory)) as body:
                joined = self._copy(plan, groups, body)
                merged.copied += body.size
                if number < len(objects):
                    rows += self._put_first(plan, merged, joined, body)
                    continue
                try:
                    rows += self._put(plan, merged, rows, before, joined, body)
                except CorruptData:  # the index has no room for all
                    others = self._put_index(plan, merged, rows, before)
                    own = self._put(plan, merged, (), others[0].name if others else before, joined, body)
                    return Listed(merged.made[-1], tuple(own)), *others
                return (Listed(merged.made[-1], tuple(rows)),)
        return self._put_index(plan, merged, rows, before)

    def _put_first(
        self, plan: MergePlan, merged: Merged, own: Sequence[TailEntry], body: MergedBody
    ) -> list[TailEntry]:
        """Put an object that the index of a later one leads to; return its rows.

        Its own index has them too, for an eraser, which looks at objects that nothing leads to.
        """
        try:
            return self._put(plan, merged, (), None, own, body)
        except CorruptData:  # they need several indexes
            return self._put(plan, merged, None, None, own, body)

    def _put_index(
        self, plan: MergePlan, merged: Merged, rows: Sequence[TailEntry], before: str | None
    ) -> tuple[Listed, ...]:
        """Put objects that only have an index; return the indexes; each leads to the next."""
        if not rows:
            return ()
        try:
            self._put(plan, merged, rows, before, (), None)
        except CorruptData:
            if len(rows) == 1:
                raise
            rows = sorted(rows, key=attrgetter("directory", "start"))  # a directory is named in few of them
            half = len(rows) // 2
            rest = self._put_index(plan, merged, rows[half:], before)
            return *self._put_index(plan, merged, rows[:half], rest[0].name), *rest
        return (Listed(merged.made[-1], tuple(rows)),)

    def _put(
        self,
        plan: MergePlan,
        merged: Merged,
        rows: Sequence[TailEntry] | None,
        before: str | None,
        own: Sequence[TailEntry],
        body: MergedBody | None,
    ) -> list[TailEntry]:
        """Put an object, with an index of `rows` and its own, or without one if `rows` is absent; return its own rows.

        Raises:
            CorruptData: the index is too large; nothing was put.
        """
        mark = nonce()
        name = f"merged/{plan.number}-{mark}"
        made_at = int(time.time() * _MILLISECONDS)
        listed = [] if rows is None else [*rows, *own]
        begin = encode_pack(PackHead(self._log, plan.number, mark, made_at, before), listed, ())
        merged.made.append(name)
        if body is None:
            self._store.put(self._prefix + name, begin, condition=IfAbsent())
        else:
            body.beginning = begin
            checksum = crc32c(begin)
            for row in own:
                checksum = combine_crc32c(checksum, row.crc32c, row.length)
            size = len(begin) + body.size
            self._store.put(self._prefix + name, body, size=size, condition=IfAbsent(), crc32c=checksum)
        return [row._replace(object=name, position=row.position + len(begin)) for row in own]

    def _copy(self, plan: MergePlan, groups: Sequence[_Group], body: MergedBody) -> list[TailEntry]:
        """Collect the batches of entries; return what each group becomes, at its place in the object."""
        of_object: dict[str, list[tuple[TailEntry, int]]] = {}
        joined = []
        for group in groups:
            whole = _joined(group, body.size)
            joined.append(whole)
            place = plan.logs.find(whole.directory, whole.epoch, whole.end)
            count = 0 if place is None else _count_in_log(group, place.position)
            for row in group[: len(group) - count]:
                of_object.setdefault(row.object, []).append((row, body.add(row.length)))
            if place is not None and count:
                some = whole if count == len(group) else _joined(group[-count:], 0)
                body.add(some.length, place._replace(position=place.position - some.length), some.crc32c)
        damaged: list[TailEntry] = []
        buffer = memoryview(bytearray(_PIECE))
        for name, rows in of_object.items():
            for near in _near(sorted(rows, key=lambda each: each[0].position)):
                damaged += self._copy_range(name, near, body, buffer)
        if damaged:
            raise DamagedEntries(self._prefix, damaged)
        return joined

    def _copy_range(
        self,
        name: str,
        rows: Sequence[tuple[TailEntry, int]],
        body: MergedBody,
        buffer: memoryview,
    ) -> list[TailEntry]:
        """Append entries that are near each other in an object to a file; return those that are damaged.

        Args:
            rows: each with its number in the body.
            buffer: for one piece after the other.
        """
        first, last = rows[0][0], rows[-1][0]
        position, end = first.position, last.position + last.length
        held = at = begin = 0  # of the buffer: its bytes, the next one, and the first one that is not in the file
        damaged: list[TailEntry] = []
        with (
            suppress(_Short, ObjectNotFound),
            self._store.open(self._prefix + name, ByteRange(position, end)) as stream,
        ):
            for row, number in rows:
                until, checksum = row.position + row.length, 0
                while position < until:
                    if at == held:
                        body.append(buffer[begin:at])
                        begin = at = 0
                        held = stream.readinto(buffer[: end - position])
                        if not held:
                            raise _Short
                    if position < row.position:  # bytes that are of no entry
                        body.append(buffer[begin:at])
                        skipped = min(row.position - position, held - at)
                        position, at = position + skipped, at + skipped
                        begin = at
                        continue
                    if position == row.position:
                        body.begin(number, at - begin)
                    size = min(until - position, held - at)
                    checksum = crc32c(buffer[at : at + size], checksum)
                    position, at = position + size, at + size
                if checksum != row.crc32c:
                    damaged.append(row)
            body.append(buffer[begin:at])
        return damaged + [row for row, _ in rows if row.position + row.length > position]


class _Short(Exception):
    """An object ends below an entry that its index has."""


def _joinable(rows: Iterable[TailEntry]) -> Iterator[_Group]:
    """Yield the groups of entries that can become one, ascending by directory."""
    group: list[TailEntry] = []
    size, last = 0, None
    for row in sorted(rows, key=attrgetter("directory", "start", "end")):
        if last is not None:
            continues = row.start == last.end and row.directory == last.directory and row.epoch == last.epoch
            if not continues or size + row.length > _JOINED_BYTES:
                yield tuple(group)
                group, size = [], 0
        group.append(row)
        size += row.length
        last = row
    if group:
        yield tuple(group)


def _divided(groups: Iterable[_Group]) -> Iterator[list[_Group]]:
    """Yield the groups of each object."""
    some: list[_Group] = []
    size = 0
    for group in groups:
        length = sum(row.length for row in group)
        if some and (size + length > _OBJECT_BYTES or len(some) == _ROWS):
            yield some
            some, size = [], 0
        some.append(group)
        size += length
    if some:
        yield some


def _count_in_log(group: _Group, position: int) -> int:
    """Return how many of the last entries of a group are in a file where they end at a position."""
    count = 0
    for row in reversed(group):
        position -= row.length
        if position < 0:
            break
        count += 1
    return count


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
    _, _, _, _, _, _, lengths, checksums, of_rows, _, ended, counts, times = zip(*group, strict=True)
    epochs: list[tuple[int, int]] = []
    for some in of_rows:
        epochs += some[1:] if epochs and some and epochs[-1][0] == some[0][0] else some
    checksum = 0
    for own, length in zip(checksums, lengths, strict=True):
        checksum = combine_crc32c(checksum, own, length)
    aborted = None if None in ended else tuple(chain.from_iterable(ended))
    if aborted is not None and len(aborted) > MOST_ABORTED:
        aborted = None
    return group[-1]._replace(
        start=group[0].start,
        object="",
        position=place,
        length=sum(lengths),
        crc32c=checksum,
        epochs=tuple(epochs),
        aborted=aborted,
        records=None if None in counts else sum(counts),
        time_max=max((time for time in times if time is not None), default=None),
    )
