"""Read the logs of packs that commits name, and make the tails of views (reading rule 11).

A log has entries of many partitions, so a query reads each log once for all of them, after all their commits. It lists
one name, the newest pack, and reads the first bytes of it: the header and the index. An entry's batches are read as
those of any other copy.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.copies import Packed, SegmentCopy
from ts_common.archive.object_keys import (
    PACKS_DIRECTORY,
    ClusterKeys,
    PartitionKeys,
    SegmentName,
    pack_name,
    pack_number,
)
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.tail_chain import Chain, Link, TailEntry, join
from ts_common.archive.tail_pack import HEAD_BYTES, Block, PackHead, decode_block, decode_head
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore

NOTHING_READ: Final[Mapping[str, "Index"]] = MappingProxyType({})
MAX_OBJECTS: Final = 16  # whose indexes continue each other; an agent puts no more
MAX_UNPACKED: Final = 32 << 20  # bytes of a log's indexes; they need nine times as much memory at most
_MOST_LOGS: Final = 32  # of a commit: each broker that led the partition in the last hour has one, or one of each group
_MOST_BYTES: Final = 24 << 20  # of indexes that one partition makes a reader read and unpack
_ATTEMPTS: Final = 3


@dataclass
class Index:
    """The index of an object, with its header; each block is decoded when an entry of it is needed.

    Attributes:
        name: of the object below its log.
        data: its bytes up to the first batch.
    """

    name: str
    key: str
    head: PackHead
    data: bytes
    decoded: dict[int, tuple[TailEntry, ...]] = field(default_factory=dict)

    def entries(self) -> Iterator[TailEntry]:
        """Yield all entries; raise CorruptData for a damaged block."""
        for position, block in self.head.positions():
            yield from self._decoded(position, block)

    def entries_of(self, directory: str, budget: "Budget") -> Iterator[TailEntry]:
        """Yield the entries of a directory; raise CorruptData for a damaged block, and as `Budget.take`."""
        for position, block in self.head.blocks_of(directory):
            if position not in self.decoded:
                budget.take(block.size)
                self.decoded[position] = self._decoded(position, block)
            yield from (entry for entry in self.decoded[position] if entry.directory == directory)

    def _decoded(self, position: int, block: Block) -> tuple[TailEntry, ...]:
        return decode_block(self.data[position : position + block.length], self.head, block, self.name, self.key)


class Budget:
    """The bytes of indexes that one partition may make a reader read and unpack: a log can be hostile."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether too few bytes were left."""
        return self._left < 0

    def take(self, size: int) -> None:
        """Use some.

        Raises:
            CorruptData: too few bytes are left. No log of an agent needs so many.
        """
        self._left -= size
        if self._left < 0:
            raise CorruptData(f"the indexes of its live tail have more than {_MOST_BYTES} bytes")


class TailLogs:
    """The logs of packs of one cluster, each read once; thread-safe.

    Make it after the commits of all partitions that use it were read.

    Args:
        known: the logs as an earlier reader of the same cluster found them. An index is not read again while its object
            is still named; None for none.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys, known: "TailLogs | None" = None) -> None:
        self._store = store
        self._keys = keys
        self._lock = threading.Lock()  # guards the locks of the logs
        self._of_log: dict[str, threading.Lock] = {}
        self._logs: dict[str, tuple[Index, ...]] = {}
        self._damage: dict[str, str] = {}  # of logs that were read and cannot be used
        self._missing: dict[str, str] = {}  # of logs that lacked an object when they were read
        self._former = {} if known is None else known.latest()

    def latest(self) -> dict[str, tuple[Index, ...]]:
        """Return the indexes of each log as it was read last, by the log's name."""
        with self._lock:
            return {**self._former, **self._logs}

    def advance(self, log: str, *, lists: bool) -> bool:
        """Read what follows the newest pack of a log that was read, as a reader that follows it does.

        The name of the next pack is computed, so this is one request. The first call lists in any case.

        Args:
            lists: whether the newest pack is looked for by a listing.

        Returns:
            whether there is a newer pack.

        Raises:
            CorruptData, NewerFormat: as `chain`; what was read before counts.
            ObjectNotFound: an object was deleted meanwhile.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        before = self._logs.get(log)
        known = {index.name: index for index in before or ()}
        begin = None
        if before is not None and not lists:
            begin = pack_name(before[0].head.number + 1 if before else 1)
            try:
                known[begin] = _index(self._store, log, self._keys.tail(log), begin)
            except ObjectNotFound:
                return False
        found = self._logs[log] = tuple(read_indexes(self._store, self._keys, log, known, begin))
        return before is None or [index.name for index in found[:1]] != [index.name for index in before[:1]]

    def chain(self, keys: PartitionKeys, commit: Commit) -> Chain:
        """Return what continues a partition from the next offset of its commit on.

        Entries of a former leadership whose log is damaged do not count: the others are facts all the same.

        Raises:
            CorruptData: a pack of the leadership's own log is damaged, or the commit names too many logs.
            NewerFormat: a later release wrote it.
            ObjectNotFound: an object was deleted meanwhile: read the commit again, then the logs.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        if commit.live is None:
            return join(commit, ())
        budget, damage = Budget(), list[str]()
        chain = join(commit, self._entries(keys, commit, budget, damage))
        own = self._read_once(commit.live.log, budget)
        return replace(chain, time=own[0].head.time if own else None, damage="; ".join(damage) or None)

    def copies(self, keys: PartitionKeys, commit: Commit) -> tuple[SegmentCopy, ...]:
        """Return all entries of a partition in the logs that its commit names, also what no reader shows.

        Raises:
            as `chain`, also for a damaged log of a former leadership.
        """
        entries = self._entries(keys, commit, Budget())
        return tuple(_copy(keys, Link(log, entry, entry.start, entry.end)) for log, entry in entries)

    def _entries(
        self, keys: PartitionKeys, commit: Commit, budget: Budget, damage: list[str] | None = None
    ) -> list[tuple[str, TailEntry]]:
        """Return all entries of a partition, each with the name of its log.

        Args:
            damage: receives a sentence for each damaged log of a former leadership, which is left out; None to raise.
        """
        if commit.live is None:
            return []
        named = dict.fromkeys((commit.live.log, *(log for log, _ in commit.live.former)))
        if len(named) > _MOST_LOGS:
            raise CorruptData(
                f"{keys.commit} names {len(named)} logs of its live tail, and readers accept {_MOST_LOGS}"
            )
        found: list[tuple[str, TailEntry]] = []
        for log in named:
            try:
                indexes = self._read_once(log, budget)
                found += [(log, entry) for index in indexes for entry in index.entries_of(keys.directory, budget)]
            except CorruptData as error:
                if damage is None or log == commit.live.log:
                    raise
                damage.append(str(error))
                if budget.is_spent:
                    break
        return found

    def continuing(
        self,
        keys: PartitionKeys,
        commit: Commit | ForeignCommit | None,
        again: Callable[[], Commit | ForeignCommit | None],
    ) -> tuple[Chain | None, str | None]:
        """Return the chain of a partition, and the sentence about damage; neither for a commit without a tail.

        Args:
            again: reads the commit again. It is called if a merge deleted a pack meanwhile. No merge does so in each
                attempt: then the pack is lost, which is damage.

        Returns:
            no chain if the leadership's own log is damaged: then the view ends at the next offset.

        Raises:
            NewerFormat: a later release wrote a pack.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        tails = self
        for attempt in range(_ATTEMPTS):
            if not isinstance(commit, Commit) or commit.live is None:
                break
            try:
                return tails._shown(keys, commit)
            except ObjectNotFound as error:
                if attempt + 1 == _ATTEMPTS:
                    self._damage |= tails._missing  # the other partitions need not look for it too
                    tails._damage |= tails._missing
                    with suppress(ObjectNotFound):  # of another log
                        return tails._shown(keys, commit)
                    return None, _at_next_offset(keys, error)
            commit, tails = again(), TailLogs(self._store, self._keys)
        return None, None

    def _shown(self, keys: PartitionKeys, commit: Commit) -> tuple[Chain | None, str | None]:
        """Return what `continuing` returns; raise as `chain`, but no CorruptData."""
        try:
            chain = self.chain(keys, commit)
        except CorruptData as error:
            return None, _at_next_offset(keys, error)
        return chain, damage_of(keys, chain)

    def _read_once(self, log: str, budget: Budget) -> tuple[Index, ...]:
        with self._lock:
            of_log = self._of_log.setdefault(log, threading.Lock())
        with of_log:
            found = self._logs.get(log)
            if found is None and log in self._damage:
                raise CorruptData(self._damage[log])
            if found is None:
                known = {index.name: index for index in self._former.get(log, ())}
                try:
                    found = tuple(read_indexes(self._store, self._keys, log, known))
                except (CorruptData, ObjectNotFound) as error:
                    (self._damage if isinstance(error, CorruptData) else self._missing)[log] = str(error)
                    raise
                with self._lock:
                    self._logs[log] = found
                for index in found:
                    budget.take(len(index.data))
            return found


def damage_of(keys: PartitionKeys, chain: Chain) -> str | None:
    """Return a sentence about damaged logs of former leaderships; None without one."""
    return None if chain.damage is None else f"{keys.partition}: the view ends at offset {chain.end}: {chain.damage}"


def _at_next_offset(keys: PartitionKeys, error: Exception) -> str:
    return f"{keys.partition}: the view ends at the next offset: {error}"


def newest_pack(store: ObjectStore, keys: ClusterKeys, log: str) -> ObjectInfo | None:
    """Return the newest pack of a log, by a listing; None without one.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    prefix = keys.tail(log)
    listed = store.list(prefix + PACKS_DIRECTORY)
    return next((info for info in listed if pack_number(info.key.removeprefix(prefix)) is not None), None)


def read_indexes(
    store: ObjectStore, keys: ClusterKeys, log: str, known: Mapping[str, Index] = NOTHING_READ, begin: str | None = None
) -> Iterator[Index]:
    """Yield the indexes of a log: that of the newest pack, then those that continue it.

    Args:
        known: indexes that were read, by the names of their objects, which never change.
        begin: name of the newest pack; None to list.

    Raises:
        CorruptData, NewerFormat, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: as `TailLogs.chain`.
    """
    prefix, name = keys.tail(log), begin
    if name is None and (newest := newest_pack(store, keys, log)) is not None:
        name = newest.key.removeprefix(prefix)
    unpacked = 0
    for _ in range(MAX_OBJECTS):
        if name is None:
            return
        index = known.get(name) or _index(store, log, prefix, name)
        unpacked += sum(block.size for block in index.head.blocks)
        if unpacked > MAX_UNPACKED:
            raise CorruptData(f"{prefix}: its indexes have more than {MAX_UNPACKED} bytes")
        yield index
        name = index.head.before
    if name is not None:
        raise CorruptData(f"{prefix}: more than {MAX_OBJECTS} indexes continue each other")


def _index(store: ObjectStore, log: str, prefix: str, name: str) -> Index:
    key = prefix + name
    data, _ = store.get(key, ByteRange(0, HEAD_BYTES))
    head = decode_head(data, key)
    if head.log != log or pack_number(name) not in {None, head.number}:
        raise CorruptData(f"{key}: it names pack {head.number} of log {head.log}")
    return Index(name, key, head, data[: head.data_start])  # what follows are batches


def leads_to(store: ObjectStore, copy: SegmentCopy) -> bool:
    """Return whether the newest pack of a log leads to the object of an entry: if that is missing, it is lost.

    Raises:
        NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `TailLogs.chain`.
    """
    keys = copy.keys.cluster
    if copy.packed is None:
        return False
    log, _, name = copy.packed.key.removeprefix(keys.tails).partition("/")
    try:
        return any(entry.object == name for index in read_indexes(store, keys, log) for entry in index.entries())
    except (CorruptData, ObjectNotFound):
        return False  # what the log leads to is unknown


def tail_ranges(keys: PartitionKeys, chain: Chain) -> tuple[ReadRange, ...]:
    """Return what to read of a chain, in order."""
    return tuple(ReadRange(link.start, link.end, (_copy(keys, link),)) for link in chain.links)


def _copy(keys: PartitionKeys, link: Link) -> SegmentCopy:
    entry = link.entry
    metadata = SegmentMetadata(entry.end, entry.epochs, entry.records, entry.time_max, None, entry.crc32c)
    packed = Packed(keys.cluster.tail(link.log) + entry.object, entry.position, entry.aborted)
    stored = StoredSegment(SegmentName(entry.start), entry.length, frozenset())
    return SegmentCopy(keys, stored, metadata, packed)
