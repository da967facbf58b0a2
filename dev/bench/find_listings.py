"""The requests of a look-up in 30 TB: `python -m dev.bench.find --listings`.

The archive is a listing: 64 partitions of 469 segments, which are hard links to small files with the metadata of an
agent. An index of three years has these 30,016 objects, as if each were a segment of 1 GB with a million keys. Only the
list of each run is written, and the file that has the key's hash, in its whole size.

The runs are those that nightly builds leave. Each adds a day, and merges what `mergeable` names; the night of three
years counts that leaves the most files to read. 36 months that were never merged are counted too. Requests are as
S3 has them.
"""

import time
from calendar import timegm
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from dev.bench.measuring.pairs import Goal, print_table
from dev.bench.planning import CLUSTER, TOPIC, make_linked
from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.directories import list_topics
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.view import open_view
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.lookup import KeyLookup
from ts_reader.find.merging import mergeable
from ts_reader.find.rules import PARTS, Certificate, Entry, Identity, identity_of
from ts_reader.find.runs import FILES, Pairs, Run, file_of, new_name, put_file, put_objects
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Query, Subscription
from ts_reader.reading.topics import read_topics

GOAL_REQUESTS: Final = 100
_PARTITIONS: Final = 64
_SEGMENTS: Final = 469  # of a partition
_KEYS: Final = 1_000_000  # of a segment
_FROM: Final = timegm((2024, 1, 1, 3, 0, 0))
_NIGHTS: Final = 366 + 365 + 365
_NIGHT: Final = 86_400
_KEY: Final = b"user-123"


@dataclass(frozen=True)
class Asked:
    """What a look-up cost.

    Attributes:
        runs: of the index, with those that a merge has replaced a night ago.
        requests: of the look-up alone.
        fetched: bytes of these.
        planning: requests of a whole plan, the look-up's too.
    """

    runs: int
    requests: dict[str, int]
    fetched: int
    planning: dict[str, int]


@dataclass(frozen=True)
class Kept:
    """A run as a night left it: the nights whose segments it has, and the runs that it replaced."""

    name: str
    nights: range
    replaces: tuple[str, ...] = ()


def nightly() -> Iterator[list[Kept]]:
    """Yield the runs after each night: new ones, merged ones, and for one more night what was merged."""
    runs: list[Kept] = []
    for night in range(_NIGHTS):
        now = _FROM + night * _NIGHT
        replaced = {name for run in runs for name in run.replaces}
        runs = [run for run in runs if run.name not in replaced]
        runs.append(Kept(new_name(time.strftime("%Y%m%d", time.gmtime(now))), range(night, night + 1)))
        by_name = {run.name: run for run in runs}
        shown = [Run(run.name, "", {}, {}) for run in runs]  # without what the night before replaced
        for period, group in mergeable(shown, now):
            nights = [night for run in group for night in by_name[run.name].nights]
            names = tuple(run.name for run in group)
            runs.append(Kept(new_name(period), range(min(nights), max(nights) + 1), names))
        yield runs


def months() -> list[Kept]:
    """Return 36 runs, one of each month."""
    found: dict[str, list[int]] = {}
    for night in range(_NIGHTS):
        found.setdefault(time.strftime("%Y%m", time.gmtime(_FROM + night * _NIGHT)), []).append(night)
    return [Kept(new_name(month), range(nights[0], nights[-1] + 1)) for month, nights in found.items()]


def files_of(runs: Sequence[Kept]) -> int:
    """Return about how many requests runs need."""
    replaced = {name for run in runs for name in run.replaces}
    return sum(1 if run.name in replaced else 3 if len(run.nights) > 1 else 2 for run in runs)


class Index:
    """An index of all segments, put run by run.

    Args:
        store: in a directory.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._prefix = ClusterKeys(CLUSTER).find(TOPIC)
        self._generator = np.random.default_rng(7)
        self._files: dict[int, str] = {}  # by the number of nights: a file that was put
        self.catalogs = self._read()
        self.views = [open_view(store, catalog) for catalog in self.catalogs]
        copies = sorted((copy.base, view.partition.partition, copy) for view in self.views for copy in view.copies)
        self._objects = [(identity_of(copy), copy.base, copy.end) for _, _, copy in copies]

    def _read(self) -> tuple[PartitionCatalog, ...]:
        keys = ClusterKeys(CLUSTER)
        return read_topics(self._store, keys, list_topics(self._store, keys), seals=True)[TOPIC].partitions

    def put(self, run: Kept) -> None:
        """Put the list of a run, and the file that has the key's hash."""
        prefix, number = f"{self._prefix}{run.name}/", len(self._objects)
        first, last = (number * night // _NIGHTS for night in (run.nights.start, run.nights.stop))
        entries: list[tuple[Identity, Entry]] = []
        for row, (identity, base, end) in enumerate(self._objects[first:last]):
            if identity is not None:
                entries.append((identity, Entry(row, base, end, PARTS, Certificate(_PARTITIONS, 1, 1))))
        digits = file_of(hashed(_KEY).place)
        file = self._file(prefix, digits, len(run.nights), len(entries))
        put_objects(self._store, prefix, entries, dict.fromkeys(FILES, file), run.replaces)

    def _file(self, prefix: str, digits: str, nights: int, objects: int) -> tuple[int, str]:
        if (known := self._files.get(nights)) is not None:
            data, _ = self._store.get(known)
            return len(data), self._store.put(f"{prefix}{digits}.parquet", data).etag
        least = int(digits, 16) << 32
        rows = len(self._objects) * nights // _NIGHTS * _KEYS // len(FILES)
        places = np.sort(self._generator.integers(least, least + (1 << 32), rows))
        objects = min(objects, len(self._objects) * nights // _NIGHTS)
        pairs = Pairs(places, self._generator.integers(0, objects, rows), self._generator.integers(0, PARTS, rows))
        self._files[nights] = f"{prefix}{digits}.parquet"
        return put_file(self._store, prefix, digits, pairs)

    def remove(self) -> None:
        """Remove all runs."""
        self._store.delete([info.key for info in self._store.list(self._prefix)])
        self._files.clear()


def ask(location: str, index: Index, runs: Sequence[Kept]) -> Asked:
    """Put runs, look the key up, and remove them."""
    for run in runs:
        index.put(run)
    alone, whole = StoreCounts(), StoreCounts()
    query = Query(location, CLUSTER, 0, Subscription((TOPIC,)), key_equals=frozenset((_KEY,)))
    with open_store(location) as store:
        KeyLookup(CountedStore(store, alone), [each.keys for each in index.catalogs], [_KEY]).windows(index.views)
        plan_query(CountedStore(store, whole), query)
    index.remove()
    return Asked(len(runs), dict(alone.requests), alone.bytes_received, dict(whole.requests))


def count_requests() -> list[Goal]:
    """Make the archive and its index, look the key up, report; return the goals."""
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    nights = [list(runs) for runs in nightly()]
    layouts = {"36 months, not merged": months(), "the worst night": max(nights, key=files_of), "the last": nights[-1]}
    with TemporaryDirectory(prefix="bench-find.", dir=build) as directory:
        root = Path(directory) / "store"
        make_linked(root, _PARTITIONS, _SEGMENTS)
        with open_store(root.as_uri()) as store:
            index = Index(store)
            found = {what: ask(root.as_uri(), index, runs) for what, runs in layouts.items()}
    rows = [
        (
            what,
            each.runs,
            sum(each.requests.values()),
            ", ".join(f"{count} {kind}" for kind, count in sorted(each.requests.items())),
            each.fetched / 1e6,
            sum(each.planning.values()),
        )
        for what, each in found.items()
    ]
    print_table(("30 TB", "runs", "requests of the look-up", "", "MB", "with the planner's"), rows)
    print(flush=True)
    return [Goal("requests, the worst night", sum(found["the worst night"].requests.values()), GOAL_REQUESTS, False)]
