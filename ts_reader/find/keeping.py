"""Keep an index up to date: build what it lacks, merge its runs, and remove what is not needed, in this order.

`tsctl find index` does it in one process, and `ts_spark.find_index` on a Spark cluster: they build and merge the same
way, and differ in where these calls are made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_reader.find.building import Built, Lacking, lacking
from ts_reader.find.lookup import read_runs
from ts_reader.find.merging import Each, clear, is_whole, listed, merge, mergeable, outdated, stored_in
from ts_reader.reading.parallel import in_threads

# Adds segments to the index with a prefix of keys, as `ts_reader.find.building.build`; with commits as of `Run`.
Build = Callable[[str, Sequence[Lacking], Mapping[str, str]], Built]


@dataclass(frozen=True, slots=True)
class Kept:
    """What was done for the index of an incarnation.

    Attributes:
        merged: the number of runs that were merged.
        removed: the number of runs that were removed.
        warnings: one sentence each.
    """

    built: Built
    merged: int = 0
    removed: int = 0
    warnings: tuple[str, ...] = ()


def keep(
    store: ObjectStore,
    catalogs: Sequence[PartitionCatalog],
    build: Build,
    each: Each | None = None,
    *,
    merges_at_once: bool = False,
) -> Kept:
    """Bring the index of an incarnation of a topic up to date.

    A run that lost a file, or has another one in its place, is replaced: its segments are indexed again. So is what was
    indexed before its records were erased.

    Args:
        catalogs: of all partitions of the incarnation in the store.
        each: as of `merge`.
        merges_at_once: whether what was built is merged too; else only runs of past days.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store. What is finished stays.
    """
    if not catalogs:
        return Kept(Built())
    keys = catalogs[0].keys
    prefix, warnings = keys.cluster.find(keys.incarnation), list[str]()
    views = in_threads(lambda catalog: open_view(store, catalog, damaged=warnings), catalogs)
    runs, objects = read_runs(store, keys.cluster, keys.incarnation), listed(store, prefix)
    damaged = [run.name for run in runs if not is_whole(run, objects.get(run.name, ()))]
    runs = [run for run in runs if run.name not in damaged]
    numbers = {catalog.keys.directory: catalog.erased_number for catalog in catalogs}
    lists = {view.keys.directory: (view.erased, numbers[view.keys.directory]) for view in views if view.erased}
    commits = {each.keys.directory: found.encode().decode() for each in catalogs if (found := each.proven_commit)}
    missing = [each for view in views for each in lacking(view, runs, numbers[view.keys.directory])]
    built = build(prefix, missing, commits)
    now = store.current_time()
    stored = stored_in(views)
    runs = [run for run in read_runs(store, keys.cluster, keys.incarnation) if run.name not in damaged]
    groups = mergeable(runs, now)
    merging = {run.name for _, group in groups for run in group}
    groups += [(run.name.partition("-")[0], [run]) for run in outdated(runs, lists) if run.name not in merging]
    if merges_at_once and len(built.runs) > 1:
        groups.append((built.runs[0].partition("-")[0], [run for run in runs if run.name in built.runs]))
    merged = 0
    for period, group in groups:
        try:
            merge(store, prefix, period, group, stored, each, lists)
            merged += len(group)
        except (CorruptData, ObjectNotFound) as error:
            warnings.append(f"runs of {period} are not merged: {error}")
    runs = read_runs(store, keys.cluster, keys.incarnation)
    cleared = clear(store, prefix, runs, now, damaged=damaged)
    return Kept(built, merged, len(cleared.runs), (*warnings, *built.unread))
