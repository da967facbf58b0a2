"""The listing of a partition without its sealed ranges (reading rule 10).

A listing of some hundred keys costs less than the requests for sealed objects, so small partitions have none, and a
reader looks for `seal.json` only after that many. Whatever is wrong with it or an object, the reader lists instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import OFFSET_DIGITS, PartitionKeys
from ts_common.archive.sealed_objects import SEALED_BYTES, SealedObject, SealJson, decode_sealed
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import KeyRange, ObjectInfo, ObjectStore

log = structlog.get_logger()

KEYS_BEFORE_SEALS: Final = 500
_MOST_UNUSABLE: Final = 64  # retention leaves a few; a forged `seal.json` can name tens of thousands


def list_unsealed(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: Commit,
    sealed: list[SealedObject],
    known: Iterable[SealedObject] = (),
) -> Iterator[ObjectInfo]:
    """Return the objects of a partition, in order, without those that begin in sealed ranges.

    Args:
        commit: read before.
        sealed: receives the sealed objects, ascending. It stays empty if everything is listed.
        known: sealed objects of an earlier listing. They never change, so they are not read again.
    """

    def skipped(begun: Sequence[ObjectInfo]) -> Sequence[KeyRange]:
        # Lifecycle rules freeze the oldest objects first, and sealed objects do not show the class.
        if not any(info.is_frozen for info in begun):
            sealed.extend(_read_sealed(store, keys, commit, known))
        ranges: list[KeyRange] = []
        for each in sealed:
            first, last = keys.prefix + _digits(each.start), keys.prefix + _digits(each.end)
            if ranges and ranges[-1][1] == first:
                first = ranges.pop()[0]
            ranges.append((first, last))
        return ranges

    return store.list_skipping(keys.prefix, KEYS_BEFORE_SEALS, skipped)


def _digits(offset: int) -> str:
    return f"{offset:0{OFFSET_DIGITS}d}"


def _read_sealed(
    store: ObjectStore, keys: PartitionKeys, commit: Commit, known: Iterable[SealedObject]
) -> list[SealedObject]:
    try:
        found = SealJson.read(store, keys.seal_json)
    except (CorruptData, NewerFormat, ObjectFrozen) as error:
        log.warning("sealed_ranges_unusable", key=keys.seal_json, reason=str(error))
        return []
    if found is None or found.lineage != commit.lineage:
        return []
    by_name = {each.name: each for each in known}
    usable: list[SealedObject] = []
    unusable = 0
    for each in found.sealed:
        sealed = by_name.get(each.name) or _read_object(store, keys, each.name)
        if sealed is not None and _is_of(sealed, commit):
            usable.append(sealed)
        elif (unusable := unusable + 1) == _MOST_UNUSABLE:
            log.warning("sealed_ranges_unusable", key=keys.seal_json, reason=f"it names {unusable} unusable objects")
            break
    return usable


def _read_object(store: ObjectStore, keys: PartitionKeys, name: str) -> SealedObject | None:
    """Return a sealed object; None if it is missing or cannot be used. Retention deletes those below the floor."""
    key = keys.cache_objects + name
    try:
        return decode_sealed(get_small(store, key, SEALED_BYTES)[0], keys, name)
    except ObjectNotFound:
        return None
    except (CorruptData, NewerFormat, ObjectFrozen) as error:
        log.warning("sealed_object_unusable", key=key, reason=str(error))
        return None


def _is_of(found: SealedObject, commit: Commit) -> bool:
    """Return whether each row is live as a whole by a commit.

    Below the commit's first pair its epochs are unknown, and a later one than that pair's is dead.
    """
    if found.lineage != commit.lineage or found.end > commit.next_offset or not commit.epochs.pairs:
        return False
    epoch, known = commit.epochs.pairs[0]
    if known >= found.end:
        return found.epochs.pairs[-1][0] <= epoch
    start = max(found.start, known)
    return found.epochs.from_offset(start) == commit.epochs.from_offset(start).below(found.end)
