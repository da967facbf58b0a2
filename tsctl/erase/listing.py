"""The writes of an erasure in one partition: the next list, then its number in `log.start` (erase rule 2).

Readers obey a list from its put on. An eraser that is killed has hidden too much, or nothing; the same request repeated
completes it. The model in `tests/lineage` searches every order of these operations.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ts_common.archive.catalog import StoredLogStart, read_log_start
from ts_common.archive.commit import MAX_ERASED, new_writer
from ts_common.archive.erased_list import (
    ERASED_LIST_BYTES,
    ErasedList,
    ListedErased,
    decode_erased_list,
    encode_erased_list,
    erased_key,
    greatest_listed,
    parse_erased_name,
)
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import (
    CorruptData,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StaleStateError,
)
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore

_ATTEMPTS: Final = 20  # each is lost to a write of another process
_MILLISECONDS: Final = 1000
WRITER: Final = "erase"  # `writtenBy` begins with it


def add_to_list(store: ObjectStore, keys: PartitionKeys, found: ErasedOffsets) -> int:
    """Hide offsets of a partition from all readers; return the number of a list that has them.

    Args:
        found: the offsets, each with the leader epoch of its record's batch.

    Raises:
        CorruptData: the greatest list is damaged, or a list was lost, or the next one would be too large.
        NewerFormat: a later release wrote the list or `log.start`.
        OperatorError: the partition has no `log.start`.
        StaleStateError: other processes wrote in each attempt.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; repeat it.
    """
    for _ in range(_ATTEMPTS):
        try:
            number = _attempt(store, keys, found)
        except (PreconditionFailed, OutcomeUnknown):
            continue  # another process wrote, or the answer was lost: what was put is found then
        if number is not None:
            return number
    raise StaleStateError(f"{keys.erased}: other processes wrote in each of {_ATTEMPTS} attempts; repeat the command")


def _attempt(store: ObjectStore, keys: PartitionKeys, found: ErasedOffsets) -> int | None:
    """Return the number of a list that has the offsets, and that `log.start` names; None to begin again."""
    log_start = read_log_start(store, keys.log_start)
    if log_start is None:
        raise OperatorError(
            f"{keys.log_start} is missing, so nothing shows whether a list was lost; the leader's agent writes it when "
            "it next starts: restart it, then repeat the command"
        )
    listed, named = greatest_listed(keys, store.list(keys.erased)), log_start.content.erased or 0
    if (0 if listed is None else listed.number) < named:
        raise CorruptData(
            f"{keys.log_start} names list {named}, and {keys.erased} has none from there on: it was lost; put it back "
            "from the versions of the bucket or a backup"
        )
    former = NOTHING_ERASED if listed is None else _get(store, keys, listed)
    if former is None:
        return None
    if listed is not None and former.contains(found):
        number = listed.number
    else:
        put = _put_next(store, keys, 0 if listed is None else listed.number, former.union(found))
        number = put.number
        greatest = greatest_listed(keys, store.list(keys.erased))
        if greatest is None:
            return None
        if greatest != put:  # the number was free because a later list replaced it
            other = _get(store, keys, greatest)
            if other is None or not other.contains(found):
                return None
            number = greatest.number
    if number > named:
        _name(store, keys, log_start, number)
    return number


def _put_next(store: ObjectStore, keys: PartitionKeys, last: int, offsets: ErasedOffsets) -> ListedErased:
    if last >= MAX_ERASED:
        raise CorruptData(f"{erased_key(keys, last)} has the greatest number that a list can have")
    following = ErasedList(last + 1, int(store.current_time() * _MILLISECONDS), offsets)
    content = encode_erased_list(keys, following)
    etag = store.put(erased_key(keys, following.number), content, condition=IfAbsent()).etag
    return ListedErased(following.number, etag)


def _name(store: ObjectStore, keys: PartitionKeys, read: StoredLogStart, number: int) -> None:
    """Write the number of a list to `log.start`, on its ETag, with all that others wrote there."""
    content = replace(read.content, erased=number, written_by=new_writer(WRITER, store.current_time()))
    store.put(keys.log_start, content.encode(), condition=IfMatch(read.etag))


def _get(store: ObjectStore, keys: PartitionKeys, listed: ListedErased) -> ErasedOffsets | None:
    """Return the offsets of a list; None if its key has no object with the listed ETag any more."""
    key = erased_key(keys, listed.number)
    try:
        data, info = get_small(store, key, ERASED_LIST_BYTES)
    except ObjectNotFound:
        return None
    return decode_erased_list(data, keys, listed.number).offsets if info.etag == listed.etag else None


def remove_former_lists(store: ObjectStore, keys: PartitionKeys, grace: float) -> list[int]:
    """Delete the lists below the last two that no reader can still read; return their numbers.

    Args:
        grace: seconds since the put of the next list.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    removed = dict(_removable(store, keys, store.current_time() - grace))
    if removed:
        store.delete_matching({erased_key(keys, number): etag for number, etag in removed.items()})
    return list(removed)


def _removable(store: ObjectStore, keys: PartitionKeys, before: float) -> Iterator[tuple[int, str]]:
    """Yield the number and ETag of each list below the last two whose successor was put before a time."""
    listed = [(parse_erased_name(info.key.removeprefix(keys.erased)), info) for info in store.list(keys.erased)]
    ascending = sorted(((number, info) for number, info in listed if number is not None), key=lambda pair: pair[0])
    for (number, info), (_, following) in pairwise(ascending):
        if number < ascending[-1][0] - 1 and following.modified < before:
            yield number, info.etag
