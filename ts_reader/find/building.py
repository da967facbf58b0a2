"""Build runs of an index: read the keys of the segments that no run has, and put what is found.

A batch job builds, never the agent: the keys of each segment are decompressed once. Memory is bounded by the pairs of a
run; a larger index is several runs, which `ts_reader.find.merging` merges later.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.partition_view import PartitionView
from ts_common.errors import BatchTooLarge, CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_reader.decode.columns import Projection
from ts_reader.decode.kernel_source import Int64s
from ts_reader.decode.key_hashes import hashes_of
from ts_reader.find.rules import (
    MOST_LISTED,
    PARTS,
    WHOLE,
    Certificate,
    Entry,
    Identity,
    identity_of,
    is_indexable,
    obeys,
)
from ts_reader.find.runs import NO_COMMITS, Pairs, Run, joined, new_name, put_files, put_objects
from ts_reader.reading.segment_reader import SegmentReader

PAIR_BYTES: Final = 5  # of the index, about
MOST_SHARE: Final = 0.1  # of a segment's bytes that its pairs may have
_RUN_PAIRS: Final = 16_000_000  # of 24 bytes
_PART_BITS: Final = 8
_PENDING: Final = 1 << 20
_NOTHING: Final[Int64s] = np.empty(0, np.int64)
_KEYS: Final = Projection(key=True, value=False, headers=False)


class Lacking(NamedTuple):
    """A copy that an index can have, and does not have as the list of erased offsets demands.

    Attributes:
        erased: the erased offsets in it, whose keys the index must not have.
        number: of the list that has them; 0 without one.
    """

    identity: Identity
    copy: SegmentCopy
    erased: ErasedOffsets
    number: int


@dataclass(slots=True)
class Built:
    """What a build did.

    Attributes:
        objects: the number of segments that it added.
        bytes: of these.
        pairs: of a key and a segment's part.
        too_many: the number of segments with more keys than the bound: the index has their certificate only.
        unread: the reason of each segment that could not be read.
        runs: names of the runs.
    """

    objects: int = 0
    bytes: int = 0
    pairs: int = 0
    too_many: int = 0
    unread: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def add(self, other: "Built") -> None:
        """Add what another build did."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def lacking(view: PartitionView, runs: Sequence[Run], number: int = 0) -> Iterator[Lacking]:
    """Yield the copies in the view's own directory that an index can have, and does not.

    A copy with erased offsets is read again if its entry is from before the list.

    Args:
        number: of the greatest list of erased offsets; 0 without one.
    """
    directory, known = view.keys.directory, set[Identity]()
    for run in runs:
        obeyed = run.erased.get(directory, 0)
        known.update(
            identity
            for identity, entry in run.entries.items()
            if identity[0] == directory and obeys(entry, obeyed, view.erased, number)
        )
    for copy in view.copies:
        identity = identity_of(copy)
        if identity is None or identity in known or copy.keys != view.keys or copy.segment.is_frozen:
            continue
        if is_indexable(copy):
            yield Lacking(identity, copy, view.erased.between(copy.base, copy.end), number)


def build(
    store: ObjectStore,
    prefix: str,
    copies: Iterable[Lacking],
    *,
    most_share: float = MOST_SHARE,
    commits: Mapping[str, str] = NO_COMMITS,
    limit: BatchLimit = DEFAULT_LIMIT,
    done: Callable[[int], None] = lambda _: None,
) -> Built:
    """Add segments to an index, and return what was done. A segment that cannot be read is left out.

    Args:
        prefix: of the keys of the index.
        copies: of partitions of the index's incarnation that it lacks, as `lacking` yields them.
        most_share: the bound: of a segment's bytes that its pairs may have.
        commits: as of `Run`, of any partitions.
        done: called with the bytes of each segment.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store. Runs that were finished stay.
    """
    built, reader = Built(), SegmentReader(store, _KEYS, erased=NOTHING_ERASED, limit=limit)
    entries: list[tuple[Identity, Entry]] = []
    pairs: list[Pairs] = []
    lists: dict[str, int] = {}

    def put() -> None:
        if entries:
            name = new_name(time.strftime("%Y%m%d", time.gmtime(store.current_time())))
            files = put_files(store, f"{prefix}{name}/", joined(pairs))
            put_objects(store, f"{prefix}{name}/", entries, files, erased=lists, commits=commits)
            built.runs.append(name)
            entries.clear()
            pairs.clear()
            lists.clear()

    for identity, copy, erased, number in copies:
        one = SegmentReader(store, _KEYS, erased=erased, limit=limit) if erased else reader
        try:
            entry, found = _read(one, copy, len(entries), most_share)
        except (CorruptData, BatchTooLarge, ObjectNotFound, ObjectFrozen) as error:
            built.unread.append(str(error))
            continue
        pairs.append(Pairs(found[0], np.full(len(found[0]), len(entries), np.int64), found[1]))
        entries.append((identity, entry))
        if number:
            lists[copy.keys.directory] = number
        built.objects += 1
        built.bytes += copy.segment.size
        built.pairs += len(found[0])
        built.too_many += not entry.parts
        done(copy.segment.size)
        if sum(map(len, pairs)) >= _RUN_PAIRS:
            put()
    put()
    return built


def _read(reader: SegmentReader, copy: SegmentCopy, row: int, most_share: float) -> tuple[Entry, tuple[Int64s, Int64s]]:
    """Return what an index has of a segment: its entry, and its places with their parts."""
    number, length = copy.keys.partition.partition, copy.end - copy.base
    certificate = [0, 0, 0]
    held = _Held(most_share * copy.segment.size)
    for columns in reader.read(copy, copy.base, copy.end):
        if columns.keys is None:
            continue
        found = hashes_of(columns.keys, columns.offsets)
        hashes = (found.murmur2, found.crc32, found.fnv1a)
        certificate = [_divisor(each - number, of) for each, of in zip(hashes, certificate, strict=True)]
        held.add((found.place << _PART_BITS) | ((found.offsets - copy.base) * PARTS // length))
    pairs = held.pairs()
    entry = Entry(row, copy.base, copy.end, 0 if pairs is None else PARTS, Certificate(*certificate))
    return entry, (_NOTHING, _NOTHING) if pairs is None else _listed(pairs)


def _divisor(numbers: Int64s, of: int) -> int:
    """Return the greatest common divisor of numbers and of another one, in most cases without computing it."""
    if of == 1 or (of and not (numbers - numbers // of * of).any()):
        return of
    return int(np.gcd.reduce(numbers, initial=of))


class _Held:
    """Distinct places with parts, as one number each, up to a bound.

    Args:
        most_bytes: of them in an index.
    """

    def __init__(self, most_bytes: float) -> None:
        self._most = int(most_bytes / PAIR_BYTES)
        self._distinct = _NOTHING
        self._pending: list[Int64s] = []
        self._count = 0

    def add(self, numbers: Int64s) -> None:
        """Add numbers; some can be there."""
        if len(self._distinct) > self._most:
            return
        self._pending.append(numbers)
        self._count += len(numbers)
        if self._count > max(_PENDING, len(self._distinct)):
            self._sort()

    def pairs(self) -> Int64s | None:
        """Return all numbers, ascending; None if they are above the bound."""
        self._sort()
        return self._distinct if len(self._distinct) <= self._most else None

    def _sort(self) -> None:
        numbers = np.concatenate([self._distinct, *self._pending])
        numbers.sort()
        self._distinct = numbers[np.diff(numbers, prepend=-1) != 0]  # np.unique needs ten times as long
        self._pending.clear()
        self._count = 0


def _listed(held: Int64s) -> tuple[Int64s, Int64s]:
    """Return places and parts, of a place in many parts only that."""
    places, parts = held >> _PART_BITS, held & (PARTS - 1)
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    counts = np.diff(firsts, append=len(places))
    whole = firsts[counts > MOST_LISTED]
    kept = np.repeat(counts <= MOST_LISTED, counts)
    kept[whole] = True
    parts[whole] = WHOLE
    return places[kept], parts[kept]
