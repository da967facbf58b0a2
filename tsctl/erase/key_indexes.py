"""The runs of indexes of keys that still have keys of erased records (find rule 4)."""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Final

from ts_common.archive.commit import MAX_ERASED
from ts_common.archive.erased_list import greatest_listed, read_erased
from ts_common.archive.erased_offsets import ALL_ERASED
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.wording import some
from ts_reader.find.lookup import read_runs
from ts_reader.find.merging import GRACE_SECONDS, Lists, is_stale, listed
from ts_reader.find.runs import Run
from tsctl.erase.remains import Remains, Surface

_MILLISECONDS: Final = 1000
_SHOWN: Final = 3  # directories of a reason
_WRITES: Final = (
    "writes it again without them, for an older incarnation with --incarnation, for a former cluster with --cluster"
)


def remaining_in_key_indexes(
    store: ObjectStore, partitions: Collection[PartitionKeys], removed: Collection[PartitionKeys] = ()
) -> Iterator[Remains]:
    """Yield each run of an index that can have keys of records that the greatest lists hide, and why it is there.

    `tsctl find index` writes such a run again without them, and removes the old one a grace later. A run that cannot be
    read counts for all partitions of its topic.

    Args:
        partitions: directories with a list; the runs of an incarnation are read once for all of them.
        removed: directories that retention removed with their lists: all of their records count.

    Raises:
        CorruptData, NewerFormat: a list cannot be read.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """

    def incarnation(keys: PartitionKeys) -> tuple[str, str]:
        return keys.cluster.cluster_prefix, keys.incarnation

    for _, some_of in groupby(sorted((*partitions, *removed), key=incarnation), incarnation):
        yield from _remaining(store, [*some_of], removed)


def _remaining(
    store: ObjectStore, partitions: Sequence[PartitionKeys], removed: Collection[PartitionKeys]
) -> Iterator[Remains]:
    """Yield the runs of one incarnation."""
    cluster, incarnation = partitions[0].cluster, partitions[0].incarnation
    prefix = cluster.find(incarnation)
    objects = listed(store, prefix)
    if not objects or not (lists := _lists_of(store, partitions, removed)):
        return
    runs = {run.name: run for run in read_runs(store, cluster, incarnation)}
    replacing = {name: run for run in runs.values() for name in run.replaces}
    for name, infos in sorted(objects.items()):
        run = runs.get(name)
        if run is None:
            reason = "it is not finished, or cannot be read: tsctl find index removes it"
            yield Remains(Surface.KEY_INDEX, f"{prefix}{name}/", reason, _removable(infos))
        elif stale := sorted({each[0] for each in run.entries if is_stale(run, each, lists)}):
            is_removed = {*stale} <= {each.directory for each in removed}
            yield _of_run(run, stale, replacing.get(name), is_removed=is_removed)


def _of_run(run: Run, stale: Sequence[str], replacing: Run | None, *, is_removed: bool) -> Remains:
    reason = f"it can have keys of erased records of {some(stale, _SHOWN)}"
    obeys = {directory: run.erased.get(directory, 0) for directory in stale}
    if replacing is None:
        writes = "removes it with its incarnation; if that has other objects, delete it" if is_removed else _WRITES
        reason = f"{reason}: tsctl find index {writes}"
        return Remains(Surface.KEY_INDEX, run.prefix, reason, obeys=obeys)
    reason = f"{reason}; run {replacing.name} replaces it, and tsctl find index removes it"
    until = int((replacing.modified + GRACE_SECONDS) * _MILLISECONDS)
    return Remains(Surface.KEY_INDEX, run.prefix, reason, until, obeys)


def _removable(infos: Sequence[ObjectInfo]) -> int:
    return int((max(info.modified for info in infos) + GRACE_SECONDS) * _MILLISECONDS)


def _lists_of(store: ObjectStore, partitions: Sequence[PartitionKeys], removed: Collection[PartitionKeys]) -> Lists:
    found = {}
    for keys in partitions:
        if keys in removed:
            found[keys.directory] = ALL_ERASED, MAX_ERASED
        elif (listed_one := greatest_listed(keys, store.list(keys.erased))) is not None:
            found[keys.directory] = read_erased(store, keys, listed_one, None), listed_one.number
    return found
