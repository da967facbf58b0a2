"""Earlier versions of indexes of keys, in a bucket with versions: they have hashes of keys, which name a person.

A finder deletes objects of runs that later ones replace, and an eraser those with hashes of erased records. In a bucket
with versions both stay there. An index is a cache: a look-up reads what no index covers. So its versions are needed for
nothing, and the identity that deletes versions of segments deletes them without a grace.
"""

from collections.abc import Iterator
from math import inf

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectStore, ObjectVersion
from ts_common.store.protection import Protection
from ts_common.wording import counted
from tsctl.erase.erased_copies import Did, Outcome, end_of
from tsctl.erase.remains import UNLISTED, Remains, Surface
from tsctl.erase.versions import COMMAND, lock_now


def remaining_index_versions(
    store: ObjectStore, keys: ClusterKeys, incarnation: str, *, protection: Protection, before: float = inf
) -> Iterator[Remains]:
    """Yield the index of an incarnation, if the bucket has earlier versions of its objects from before a time.

    Args:
        incarnation: its directory, as `PartitionKeys.incarnation`.
        protection: of the store's bucket. Without versions there, no request is sent.
        before: seconds since the epoch by the store's clock: when each run of `tsctl find index` obeys the list.

    Raises:
        StoreUnavailable, BucketMissing: the store failed.
    """
    prefix = keys.find(incarnation)
    if not protection.versioned:
        return
    try:
        found = _earlier(store, prefix)
        if found is None:
            yield Remains(Surface.VERSION, prefix, UNLISTED)
        elif count := sum(each.info.modified < before for each in found):
            yield Remains(Surface.VERSION, prefix, f"{counted(count, 'version')} with hashes of keys: {COMMAND}")
    except AccessDenied as error:  # doubt remains
        yield Remains(Surface.VERSION, prefix, f"its earlier versions are unknown: {error}")


def remove_index_versions(
    store: ObjectStore, keys: ClusterKeys, incarnation: str, *, protection: Protection, writes: bool = True
) -> Iterator[Outcome]:
    """Delete the earlier versions of the indexes of an incarnation; yield what became of each.

    Args:
        incarnation: as of `remaining_index_versions`.
        protection: the same.
        writes: False for a dry run.

    Raises:
        AccessDenied: this identity may not list or delete versions, or not read their locks.
        StoreUnavailable, BucketMissing: the store failed; the next run continues.
    """
    if not protection.versioned or (found := _earlier(store, keys.find(incarnation))) is None:
        return
    for version in found:
        lock = lock_now(store, version, protection)
        if lock is not None:
            yield Outcome(version.info.key, Did.WAITS, lock.reason, until=end_of(lock), version=version.id)
            continue
        if writes:
            store.delete_version(version)
        yield Outcome(version.info.key, Did.REMOVED if writes else Did.TO_REMOVE, version=version.id)


def _earlier(store: ObjectStore, prefix: str) -> Iterator[ObjectVersion] | None:
    listed = store.versions(prefix)
    return None if listed is None else (each for each in listed if not each.is_latest and not each.is_delete_marker)
