"""The runs of indexes of keys that still have keys of erased records (find rule 4)."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ts_common.archive.erased_list import greatest_listed, read_erased
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.wording import some
from ts_reader.find.lookup import read_runs
from ts_reader.find.merging import GRACE_SECONDS, Lists, is_stale, listed
from ts_reader.find.runs import Run
from tsctl.erase.remains import Remains, Surface

_MILLISECONDS: Final = 1000
_SHOWN: Final = 3  # directories of a reason


def remaining_in_key_indexes(store: ObjectStore, partitions: Sequence[PartitionKeys]) -> Iterator[Remains]:
    """Yield each run of an index that can have keys of records that the greatest lists hide, and why it is there.

    `tsctl find index` writes such a run again without them, and removes the old one a grace later. A run that cannot be
    read counts for all partitions of its topic.

    Args:
        partitions: directories with a list; the runs of an incarnation are read once for all of them.

    Raises:
        CorruptData, NewerFormat: a list cannot be read.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """

    def incarnation(keys: PartitionKeys) -> tuple[str, str]:
        return keys.cluster.cluster_prefix, keys.incarnation

    for _, some_of in groupby(sorted(partitions, key=incarnation), incarnation):
        yield from _remaining(store, [*some_of])


def _remaining(store: ObjectStore, partitions: Sequence[PartitionKeys]) -> Iterator[Remains]:
    """Yield the runs of one incarnation."""
    cluster, incarnation = partitions[0].cluster, partitions[0].incarnation
    prefix = cluster.find(incarnation)
    objects = listed(store, prefix)
    if not objects or not (lists := _lists_of(store, partitions)):
        return
    runs = {run.name: run for run in read_runs(store, cluster, incarnation)}
    replacing = {name: run for run in runs.values() for name in run.replaces}
    for name, infos in sorted(objects.items()):
        run = runs.get(name)
        if run is None:
            reason = "it is not finished, or cannot be read: tsctl find index removes it"
            yield Remains(Surface.KEY_INDEX, f"{prefix}{name}/", reason, _removable(infos))
        elif stale := sorted({each[0] for each in run.entries if is_stale(run, each, lists)}):
            yield _of_run(run, stale, replacing.get(name))


def _of_run(run: Run, stale: Sequence[str], replacing: Run | None) -> Remains:
    reason = f"it can have keys of erased records of {some(stale, _SHOWN)}"
    obeys = {directory: run.erased.get(directory, 0) for directory in stale}
    if replacing is None:
        reason = f"{reason}: tsctl find index writes it again without them"
        return Remains(Surface.KEY_INDEX, run.prefix, reason, obeys=obeys)
    reason = f"{reason}; run {replacing.name} replaces it, and tsctl find index removes it"
    until = int((replacing.modified + GRACE_SECONDS) * _MILLISECONDS)
    return Remains(Surface.KEY_INDEX, run.prefix, reason, until, obeys)


def _removable(infos: Sequence[ObjectInfo]) -> int:
    return int((max(info.modified for info in infos) + GRACE_SECONDS) * _MILLISECONDS)


def _lists_of(store: ObjectStore, partitions: Sequence[PartitionKeys]) -> Lists:
    found = {}
    for keys in partitions:
        listed_one = greatest_listed(keys, store.list(keys.erased))
        if listed_one is not None:
            found[keys.directory] = read_erased(store, keys, listed_one, None), listed_one.number
    return found
