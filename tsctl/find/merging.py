"""Merge the runs of an index: those of a past day, month or year become one, without objects that retention removed.

The merged run names its inputs. They are removed once it is a grace old, `objects.parquet` first: a look-up that began
before has read what they are, and reads what it no longer finds in the segments.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ts_common.store.contract import ObjectStore
from ts_reader.find.rules import Entry, Identity
from ts_reader.find.runs import FILES, OBJECTS_NAME, Pairs, Run, joined, period_of, put_file, put_objects, read_pairs
from tsctl.find.building import run_name

GRACE_SECONDS: Final = 86_400.0
MOST_DAYS: Final = 7  # of the present month, each a run of its own
_DAY, _MONTH, _YEAR = 8, 6, 4


def mergeable(runs: Iterable[Run], now: float) -> list[tuple[str, list[Run]]]:
    """Return the runs to merge, at least two together, each with the period of their merged run.

    A look-up reads each run. Past days of the present month become a part of the month as soon as they are many.

    Args:
        runs: of one index.
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


def merge(store: ObjectStore, prefix: str, period: str, runs: Sequence[Run], stored: Collection[Identity]) -> str:
    """Merge runs into one, and return its name.

    Args:
        prefix: of the keys of the index.
        period: of the merged run.
        runs: at least one; of an object that several have, an entry with parts counts.
        stored: the objects that exist; others are left out.

    Raises:
        CorruptData, ObjectNotFound: an input cannot be read.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    chosen: dict[Identity, tuple[int, Entry]] = {}
    for number, run in enumerate(runs):
        for identity, entry in run.entries.items():
            if identity in stored and (identity not in chosen or not chosen[identity][1].parts):
                chosen[identity] = number, entry
    entries = {identity: replace(entry, row=row) for row, (identity, (_, entry)) in enumerate(chosen.items())}
    new_rows = []
    for number, run in enumerate(runs):
        table = np.full(len(run.entries), -1, np.int64)
        for identity, entry in run.entries.items():
            if identity in chosen and chosen[identity][0] == number:
                table[entry.row] = entries[identity].row
        new_rows.append(table)
    name, files = run_name(period), dict[str, tuple[int, str]]()
    for digits in FILES:
        found = []
        for run, table in zip(runs, new_rows, strict=True):
            pairs = read_pairs(store, run, digits)
            moved = Pairs(pairs.place, table[pairs.row], pairs.part)
            found.append(moved.where(moved.row >= 0))
        if len(whole := joined(found)):
            files[digits] = put_file(store, f"{prefix}{name}/", digits, whole)
    put_objects(store, f"{prefix}{name}/", entries.items(), files, [run.name for run in runs])
    return name


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed.

    Attributes:
        runs: names of runs.
        files: the number of their objects.
    """

    runs: tuple[str, ...]
    files: int


def clear(store: ObjectStore, prefix: str, runs: Iterable[Run], now: float, grace: float = GRACE_SECONDS) -> Cleared:
    """Remove the runs that were merged a grace ago, and what a killed build left a grace ago.

    Args:
        prefix: of the keys of the index.
        runs: all that can be read.
        now: seconds since the epoch, by the store's clock.
        grace: seconds.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    runs = list(runs)
    merged = {name for run in runs if run.modified + grace <= now for name in run.replaces}
    left: dict[str, list[str]] = {}
    finished = set()
    young = set()
    for info in store.list(prefix):
        name, slash, file = info.key.removeprefix(prefix).partition("/")
        if not slash or period_of(name) is None:
            continue
        left.setdefault(name, []).append(info.key)
        if file == OBJECTS_NAME:
            finished.add(name)
        if info.modified + grace > now:
            young.add(name)
    gone = sorted((merged & left.keys()) | (left.keys() - finished - young))
    for name in gone:
        keys = left[name]
        store.delete([key for key in keys if key.endswith(f"/{OBJECTS_NAME}")])
        store.delete([key for key in keys if not key.endswith(f"/{OBJECTS_NAME}")])
    return Cleared(tuple(gone), sum(len(left[name]) for name in gone))
