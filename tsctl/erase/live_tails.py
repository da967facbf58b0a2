"""Live packs with erased records: nothing rewrites them, and a request is `hidden` until no object has any.

An agent deletes the objects of its own log of packs: twenty minutes after a merge copied their entries, or after
segments have these records and commits have passed them. No agent deletes those of a broker that was removed.

All objects below `tail/` are read, and not only those that an index leads to: the others are stored too. An election
can lose records that only a pack has. Once no commit names their leadership, no search reads them, and no list has
them.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import MappingProxyType
from typing import Final

from ts_common.archive.commit import Commit
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import ClusterKeys, is_tail_object
from ts_common.archive.tail_chain import TailEntry
from ts_common.archive.tail_pack import HEAD_BYTES, decode_block, decode_head
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.json_objects import MAX_INT64
from ts_common.log_format.framing import NO_EPOCH
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore
from ts_common.store.protection import Protection
from ts_common.wording import counted
from tsctl.erase.remains import UNLISTED, Remains, Surface

NO_COMMITS: Final[Mapping[str, Commit]] = MappingProxyType({})
_READ_AT_ONCE: Final = 16
_IN_A_ROW: Final = 256
_DELETED: Final = (
    "the agent of this log deletes it, about two hours after committed segments have these records; if its broker was "
    "removed, delete it when no commit names the log (tsctl verify: tail-left)"
)
_UNSEARCHED: Final = f"it has batches of a leadership that lost them, which no search has read; {_DELETED}"
_VERSIONS: Final = (
    "of its packs: the bucket's rule deleted-packs-of-the-live-tail removes them after a day "
    "(deploy/bucket/lifecycle.json)"
)


def remaining_in_tails(
    store: ObjectStore,
    keys: ClusterKeys,
    erased: Mapping[str, ErasedOffsets],
    commits: Mapping[str, Commit] = NO_COMMITS,
) -> Iterator[Remains]:
    """Yield the objects of all live tails with a record of a list, in the order of their keys, or damaged ones.

    It is one pass over all logs of packs, with a request for each object.

    Args:
        erased: the offsets of each partition's list, by the partition's directory.
        commits: of these partitions, by directory; without one all of its leaderships count as searched.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if not any(erased.values()):
        return

    def read(info: ObjectInfo) -> Remains | None:
        try:
            name = _own_name(keys, info.key)
            entries = _own_entries(store, info, name, erased)
            log, unsearched = info.key.removeprefix(keys.tails).partition("/")[0], False
            hits = list[tuple[str, int]]()
            for entry in entries:
                if (at := _first(entry, erased)) is not None:
                    hits.append((entry.directory, at))
                elif _is_unsearched(log, entry, commits.get(entry.directory)):
                    hits.append((entry.directory, entry.start))
                    unsearched = True
        except ObjectNotFound:  # the agent deleted it meanwhile
            return None
        except (CorruptData, NewerFormat, ObjectFrozen) as error:
            return Remains(Surface.TAIL, info.key, f"what it has is unknown: {error}")
        if not hits:
            return None
        obeys, base = {directory: 0 for directory, _ in hits}, min(at for _, at in hits)
        return Remains(Surface.TAIL, info.key, _UNSEARCHED if unsearched else _DELETED, obeys=obeys, base=base)

    listed = store.list(keys.tails)
    with ThreadPoolExecutor(_READ_AT_ONCE, "live-tails") as pool:
        while some_of_them := list(islice(listed, _IN_A_ROW)):
            yield from (each for each in pool.map(read, some_of_them) if each is not None)


def remaining_tail_versions(
    store: ObjectStore, keys: ClusterKeys, before: float, *, protection: Protection
) -> Iterator[Remains]:
    """Yield each log of packs with versions of deleted objects from before a time, in a bucket with versions.

    Args:
        before: seconds since the epoch by the store's clock: when the commits had passed all offsets of the request.
            Later packs have none of them.
        protection: of the store's bucket. Without versions there, no request is sent.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if not protection.versioned:
        return
    versions = store.versions(keys.tails)
    if versions is None:
        yield Remains(Surface.VERSION, keys.tails, UNLISTED)
        return
    counts = dict[str, int]()
    for version in versions:
        if version.is_latest or version.is_delete_marker or version.info.modified >= before:
            continue
        log = keys.tail(version.info.key.removeprefix(keys.tails).partition("/")[0])
        counts[log] = counts.get(log, 0) + 1
    for log in counts:
        yield Remains(Surface.VERSION, log, f"{counted(counts[log], 'earlier version')} {_VERSIONS}")


def _own_name(keys: ClusterKeys, key: str) -> str:
    """Return the name of an object below its log.

    Raises:
        CorruptData: no agent gives an object this name.
    """
    name = key.removeprefix(keys.tails).partition("/")[2]
    if not is_tail_object(name):
        raise CorruptData(f"{key}: it is below {keys.tails}, and no agent put it there")
    return name


def _own_entries(
    store: ObjectStore, info: ObjectInfo, name: str, directories: Mapping[str, ErasedOffsets]
) -> Iterator[TailEntry]:
    """Yield the entries of some directories whose batches an object has.

    Raises:
        CorruptData: its index is damaged, or is empty though the object has batches.
    """
    key = info.key
    data, _ = store.get(key, ByteRange(0, HEAD_BYTES))
    head = decode_head(data, key)
    if not head.blocks and info.size > head.data_start:  # a merge put it, whose last object alone has the index
        raise CorruptData(f"{key}: its index has none of its batches")
    wanted = {position: block for each in directories for position, block in head.blocks_of(each)}
    for position, block in sorted(wanted.items()):
        for entry in decode_block(data[position : position + block.length], head, block, name, key):
            if entry.object == name and entry.directory in directories:
                yield entry


def _is_unsearched(log: str, entry: TailEntry, commit: Commit | None) -> bool:
    """Return whether no search reads an entry, and segments need not have its records."""
    if commit is None:
        return False
    live = commit.live
    if live is not None and (log, entry.epoch) in {(live.log, commit.epoch), *live.former}:
        return False
    return entry.end > commit.next_offset or not commit.epochs.agrees_with(entry.epochs, entry.start, entry.end)


def _first(entry: TailEntry, erased: Mapping[str, ErasedOffsets]) -> int | None:
    """Return the first offset of an entry with a record of its partition's list, by the epochs of its batches."""
    found = erased[entry.directory]
    epochs = entry.epochs or ((NO_EPOCH, entry.start),)  # the least one: a list hides it whatever epoch it names
    ends = [*(first for _, first in epochs[1:]), MAX_INT64]
    hits = (
        found.in_batch(max(first, entry.start), min(end, entry.end), epoch)
        for (epoch, first), end in zip(epochs, ends, strict=True)
    )
    return next((start for ranges in hits for start, _ in ranges), None)
