"""Merge the runs of an index: those of a past day, month or year become one, without objects that were removed.

A run with keys of erased records is written again without them, as a merge of one run.

The merged run names its inputs. They are removed once it is a grace old, `objects.parquet` first: a look-up that began
before has read what they are, and reads what it no longer finds in the segments.
"""

import time
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_reader.decode.kernel_source import Int64s
from ts_reader.find.rules import Entry, Identity, identity_of, obeys
from ts_reader.find.runs import (
    FILES,
    OBJECTS_NAME,
    Pairs,
    Run,
    joined,
    key_of_file,
    new_name,
    period_of,
    put_file,
    put_objects,
    read_pairs,
)
from ts_reader.reading.parallel import in_threads

GRACE_SECONDS: Final = 86_400.0
MOST_DAYS: Final = 7  # of the present month, each a run of its own
_DAY, _MONTH, _YEAR = 8, 6, 4
_AT_ONCE: Final = 4  # files of a merged run; the pairs of each are in memory

# The offsets of the greatest list of erased ones, and its number, by directory.
Lists = Mapping[str, tuple[ErasedOffsets, int]]
NO_LISTS: Final[Lists] = {}

# Calls a function with the store and each item, and returns the results in their order.
Each = Callable[[Callable[[ObjectStore, Any], Any], Sequence[Any]], list[Any]]


def here(store: ObjectStore) -> Each:
    """Return the calls of this process, on some threads."""
    return lambda function, items: in_threads(partial(function, store), items, most=_AT_ONCE)


def mergeable(runs: Iterable[Run], now: float) -> list[tuple[str, list[Run]]]:
    """Return the runs to merge, at least two together, each with the period of their merged run.

    A look-up reads each run. Past days of the present month become a part of the month as soon as they are many.

    Args:
        now: seconds since the epoch.
    """
    runs = list(runs)
    replaced = {name for run in runs for name in run.replaces}
    today = time.strftime("%Y%m%d", time.gmtime(now))
    groups: dict[str, list[Run]] = {}
    days = list[Run]()
    for run in runs:
        day = period_of(run.name) or ""
        lengths = [length for length in (_YEAR, _MONTH, _DAY) if day[:length] < today[:length]]
        if run.name not in replaced and lengths:
            groups.setdefault(day[: lengths[0]], []).append(run)
            if lengths[0] == _DAY and len(day) == _DAY:
                days.append(run)
    if len(days) >= MOST_DAYS:
        groups = {period: group for period, group in groups.items() if len(period) != _DAY} | {today[:_MONTH]: days}
    return [(period, group) for period, group in sorted(groups.items()) if len(group) > 1]


def outdated(runs: Iterable[Run], lists: Lists) -> list[Run]:
    """Return the runs with keys of erased records that no other run replaces: each is written again without them."""
    runs = list(runs)
    replaced = {name for run in runs for name in run.replaces}
    return [run for run in runs if run.name not in replaced and any(is_stale(run, each, lists) for each in run.entries)]


def is_stale(run: Run, identity: Identity, lists: Lists) -> bool:
    """Return whether what a run has of an object can be a key of an erased record."""
    erased, number = lists.get(identity[0], (NOTHING_ERASED, 0))
    return not obeys(run.entries[identity], run.erased.get(identity[0], 0), erased, number)


def stored_in(views: Iterable[PartitionView]) -> dict[Identity, int | None]:
    """Return the objects of some views, with the times of their puts, ms since the epoch."""
    copies = ((identity_of(copy), copy) for view in views for copy in view.copies)
    return {identity: copy.segment.modified for identity, copy in copies if identity is not None}


def merge(
    store: ObjectStore,
    prefix: str,
    period: str,
    runs: Sequence[Run],
    stored: Mapping[Identity, int | None],
    each: Each | None = None,
    lists: Lists = NO_LISTS,
) -> str:
    """Merge runs into one, and return its name.

    Args:
        prefix: of the keys of the index.
        period: of the merged run.
        runs: at least one; of an object that several have, an entry with parts counts.
        stored: as of `stored_in`. Other objects are left out, and so are those that were put again after their run: the
            time of the merged run would hide that.
        each: merges the files; None: in this process. What it calls can be pickled.
        lists: of erased offsets. Entries from before them, of objects with erased offsets, are left out too.

    Raises:
        CorruptData, ObjectNotFound: an input cannot be read.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    chosen: dict[Identity, tuple[int, Entry]] = {}
    for number, run in enumerate(runs):
        for identity, entry in run.entries.items():
            if identity not in stored or not run.is_later_than(stored[identity]) or is_stale(run, identity, lists):
                continue
            if identity not in chosen or not chosen[identity][1].parts:
                chosen[identity] = number, entry
    entries = {identity: replace(entry, row=row) for row, (identity, (_, entry)) in enumerate(chosen.items())}
    new_rows = []
    for number, run in enumerate(runs):
        table = np.full(len(run.entries), -1, np.int64)
        for identity, entry in run.entries.items():
            if identity in chosen and chosen[identity][0] == number:
                table[entry.row] = entries[identity].row
        new_rows.append(table)
    name = new_name(period)
    merged = partial(_merged, f"{prefix}{name}/", [*zip(runs, new_rows, strict=True)])
    put = (each or here(store))(merged, FILES)
    files = {digits: file for digits, file in zip(FILES, put, strict=True) if file is not None}
    obeyed = {directory: lists[directory][1] for directory, *_ in entries if directory in lists}
    commits = dict(ChainMap(*(dict(run.commits) for run in sorted(runs, key=lambda run: run.modified, reverse=True))))
    put_objects(
        store, f"{prefix}{name}/", entries.items(), files, [run.name for run in runs], erased=obeyed, commits=commits
    )
    return name


def _merged(prefix: str, runs: Iterable[tuple[Run, Int64s]], store: ObjectStore, digits: str) -> tuple[int, str] | None:
    """Put a file of a merged run, and return what `Run.files` has; None if no key begins so.

    Args:
        prefix: of the merged run.
        runs: with the rows of their objects in the merged run, -1 for those that it leaves out.
    """
    found = []
    for run, table in runs:
        pairs = read_pairs(store, run, digits)
        moved = Pairs(pairs.place, table[pairs.row], pairs.part)
        found.append(moved.where(moved.row >= 0))
    whole = joined(found)
    return put_file(store, prefix, digits, whole) if len(whole) else None


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed.

    Attributes:
        runs: names of runs.
        files: the number of their objects.
    """

    runs: tuple[str, ...]
    files: int


Listing = Mapping[str, Sequence[ObjectInfo]]


def listed(store: ObjectStore, prefix: str) -> Listing:
    """Return the objects of each run of an index by its name; raise as `clear`.

    Args:
        prefix: of the keys of the index.
    """
    return by_run(prefix, store.list(prefix))


def by_run(prefix: str, objects: Iterable[ObjectInfo]) -> Listing:
    """Return the objects of each run of an index by its name, without objects of other names."""
    found: dict[str, list[ObjectInfo]] = {}
    for info in objects:
        name, slash, _ = info.key.removeprefix(prefix).partition("/")
        if slash and period_of(name) is not None:
            found.setdefault(name, []).append(info)
    return found


def is_whole(run: Run, objects: Iterable[ObjectInfo]) -> bool:
    """Return whether a run has each of its files as it was put.

    Args:
        objects: of the run, as listed.
    """
    etags = {info.key: info.etag for info in objects}
    return all(etags.get(key_of_file(run, digits)) == etag for digits, (_, etag) in run.files.items())


def clear(
    store: ObjectStore,
    prefix: str,
    runs: Iterable[Run],
    now: float,
    grace: float = GRACE_SECONDS,
    *,
    damaged: Collection[str] = (),
) -> Cleared:
    """Remove the runs that were merged a grace ago, and what a killed build left a grace ago.

    Args:
        prefix: of the keys of the index.
        runs: all that can be read.
        now: seconds since the epoch, by the store's clock.
        grace: seconds.
        damaged: names of runs whose objects have other entries.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    objects = listed(store, prefix)
    merged = {name for run in runs if run.modified + grace <= now for name in run.replaces}
    gone = (merged | {*damaged}) & objects.keys()
    for name, infos in objects.items():
        is_finished = any(info.key.endswith(f"/{OBJECTS_NAME}") for info in infos)
        if not is_finished and all(info.modified + grace <= now for info in infos):
            gone.add(name)
    for name in sorted(gone):
        _remove(store, objects[name])
    return Cleared(tuple(sorted(gone)), sum(len(objects[name]) for name in gone))


def clear_ended(
    store: ObjectStore, keys: ClusterKeys, held: Collection[str], now: float, grace: float = GRACE_SECONDS
) -> Cleared:
    """Remove the indexes of incarnations that have no object any more, a grace after their last object was put.

    Args:
        held: the incarnations with objects, as `PartitionKeys.incarnation`.
        now: seconds since the epoch, by the store's clock.
        grace: seconds.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    gone, files = list[str](), 0
    for directory in store.list_directories(keys.finds):
        incarnation = directory.rstrip("/")
        objects = listed(store, keys.find(incarnation))
        if incarnation in held or any(info.modified + grace > now for infos in objects.values() for info in infos):
            continue
        for name, infos in sorted(objects.items()):
            _remove(store, infos)
            gone.append(f"{incarnation}/{name}")
            files += len(infos)
    return Cleared(tuple(gone), files)


def _remove(store: ObjectStore, objects: Iterable[ObjectInfo]) -> None:
    """Remove a run, the list of its objects first."""
    keys = [info.key for info in objects]
    store.delete([key for key in keys if key.endswith(f"/{OBJECTS_NAME}")])
    store.delete([key for key in keys if not key.endswith(f"/{OBJECTS_NAME}")])
