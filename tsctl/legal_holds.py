"""Legal holds of the store on what holds with `lock` cover: set with the hold, repeated by each run of `tsctl gc`.

A legal hold belongs to one version of one object. It has no end, and no identity can delete the version while it has
one. So `tsctl hold add --lock` sets it on each version that exists, `tsctl gc run` on those that appeared since, and
`tsctl hold rm` lifts it. A version that another hold with `lock` covers keeps it.

Covered are the archived objects of all incarnations of the topics, also those that are hidden or overwritten: segments,
their indexes and gap records. Marks and cache objects can be written again from them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.holds import Hold, read_holds
from ts_common.archive.object_keys import GAPS_DIRECTORY, ClusterKeys, PartitionKeys, SegmentName
from ts_common.errors import ObjectNotFound, OperatorError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore, ObjectVersion
from ts_common.wording import some

_AT_ONCE: Final = 16
_IN_A_ROW: Final = 1000


def check_lockable(stores: Iterable[ObjectStore]) -> None:
    """Check that each store can have legal holds.

    Raises:
        OperatorError: one of them cannot.
        AccessDenied: this identity may not read whether a bucket has Object Lock.
        StoreUnavailable, BucketMissing: the store failed.
    """
    without = [store.location for store in stores if not _has_legal_holds(store)]
    if without:
        raise OperatorError(
            f"--lock: {some(without)} is no bucket of S3 with Object Lock, so nothing was written; enable Object Lock "
            "there, or set the hold without --lock: it stops this project's retention all the same"
        )


def _has_legal_holds(store: ObjectStore) -> bool:
    return store.location.startswith("s3://") and store.protection().locks


def set_legal_holds(store: ObjectStore, keys: ClusterKeys, matches: Callable[[str], bool]) -> int:
    """Set a legal hold on each version of the archived objects of topics; return the number of versions that got one.

    Raises:
        AccessDenied: this identity may not list versions, or not read or set legal holds.
        OperatorError: the store has none.
        StoreUnavailable, BucketMissing: the store failed; the call may be repeated.
    """
    return _change(store, keys, matches, is_held=True)


def lift_legal_holds(store: ObjectStore, keys: ClusterKeys, hold: Hold) -> int:
    """Lift the legal holds of what a hold covers, and no other hold with `lock`; return the number of versions.

    Raises:
        CorruptData, NewerFormat: another hold cannot be read, and can cover the same; nothing was lifted.
        AccessDenied, OperatorError, StoreUnavailable, BucketMissing: as `set_legal_holds`.
    """
    others = [each for each in read_holds(store, keys) if each.lock and each.name != hold.name]
    return _change(
        store,
        keys,
        lambda topic: hold.matches(topic) and not any(each.matches(topic) for each in others),
        is_held=False,
    )


def repeat_legal_holds(store: ObjectStore, stores: Iterable[ObjectStore], keys: ClusterKeys, now: int) -> int:
    """Set legal holds on versions that holds with `lock` cover, and that lack one; return their number.

    Args:
        store: whose versions get them.
        stores: all stores of the archive, whose holds count.
        now: milliseconds since the epoch.

    Raises:
        CorruptData, NewerFormat: a hold cannot be read.
        AccessDenied, OperatorError, StoreUnavailable, BucketMissing: as `set_legal_holds`.
    """
    found = {hold.terms: hold for each in stores for hold in read_holds(each, keys)}
    wanted = [hold for hold in found.values() if hold.lock and not hold.is_expired(now)]
    if not wanted:
        return 0
    return set_legal_holds(store, keys, lambda topic: any(hold.matches(topic) for hold in wanted))


def _change(store: ObjectStore, keys: ClusterKeys, matches: Callable[[str], bool], *, is_held: bool) -> int:
    def change(version: ObjectVersion) -> bool:
        try:
            if store.has_legal_hold(version.info.key, version.id) is is_held:
                return False
            store.set_legal_hold(version.info.key, version.id, is_held=is_held)
        except ObjectNotFound:  # a lifecycle rule removed the version since the listing
            return False
        return True

    count = 0
    with ThreadPoolExecutor(_AT_ONCE, "legal-holds") as pool:
        for partition in _partitions(store, keys, matches):
            versions = _archived(store, partition)
            while some_of_them := list(islice(versions, _IN_A_ROW)):
                count += sum(pool.map(change, some_of_them))
    return count


def _partitions(store: ObjectStore, keys: ClusterKeys, matches: Callable[[str], bool]) -> Iterator[PartitionKeys]:
    for topic, listed in sorted(list_topics(store, keys).items()):
        if matches(topic):
            for directory in _incarnations(topic, listed):
                for number in sorted(listed.partitions):
                    yield keys.partition(TopicPartition(topic, number), directory)


def _incarnations(topic: str, listed: TopicDirectories) -> Sequence[str]:
    return (topic, *sorted(listed.later))


def _archived(store: ObjectStore, keys: PartitionKeys) -> Iterator[ObjectVersion]:
    """Yield the versions of segments, indexes and gap records of a partition."""
    for version in store.versions(keys.prefix) or ():
        name = version.info.key.removeprefix(keys.prefix)
        is_gap = name.startswith(GAPS_DIRECTORY) and parse_gap_name(name.removeprefix(GAPS_DIRECTORY)) is not None
        if not version.is_delete_marker and (is_gap or SegmentName.parse(name) is not None):
            yield version
