"""`python -m dev.bench.gc`: retention of 100,000 segments in 100 partitions; half of them are due.

The store is a directory. One partition of 1,000 segments is written: `.log`, `.index`, `.timeindex`, `offset.wm`,
`log.start`, and the cache objects that the agent's own code writes. The other partitions are hard links to its files,
so they have the same ETags. Their cache objects are files of their own. A wrapper counts requests as S3 has them: a
LIST for each 1,000 keys, a DELETE for each object.

A fresh process runs retention three times: what is due is hidden, then deleted, and then nothing is due. The same with
a tenth of the partitions. Old reports and plans are not looked for.

The goals: no run sends more requests than the former collector, which examined each partition in its survey, in its
plan and in its deletion. Added are:

- in each run a LIST for each 1,000 copies of `log.start`, and two PUTs and a HEAD of the report;
- in a step at most three PUTs;
- in the deletion a HEAD for each segment, and a GET for each 32 objects.

Peak memory at ten times the segments is at most 1.3 times. Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dev.bench.measuring.linked_archives import CountingStore, Files, link_partitions
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.planning import CLUSTER, TOPIC, fill, write_cache_objects
from ts_common.archive.metadata_cache import CACHE_OBJECT_SEGMENTS
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import DeleteOutcome, ObjectStore
from ts_common.store.directory.objects import etag_of
from ts_common.store.factory import open_store
from tsctl.gc.archive_run import NO_FUSE, begin, work_in
from tsctl.gc.due import Rule
from tsctl.gc.incarnations import read_topic_incarnations
from tsctl.gc.objects import Outcome
from tsctl.gc.report import Report
from tsctl.gc.retention import NeededFrom, TopicIncarnation
from tsctl.gc.run import run_once

MEMORY_RATIO: Final = 1.3
_PAGE: Final = 1000  # keys of a LIST
_AT_ONCE: Final = 32  # objects that are deleted between two looks
_PUTS: Final = 3  # of a step, at most
_GRACE: Final = 3_600_000
_RUNS: Final = ("hiding", "deletion", "nothing due")
_KINDS: Final = ("LIST", "GET", "PUT", "DELETE", "HEAD")


@dataclass(frozen=True)
class Collected:
    """The cost of three runs.

    Attributes:
        requests: by run and kind.
        seconds: by run.
        deleted: number of objects.
        peak_mib: peak memory of the process.
        imports_mib: its memory before the first run.
    """

    requests: dict[str, dict[str, int]]
    seconds: dict[str, float]
    deleted: int
    peak_mib: float
    imports_mib: float


class DeletingStore(CountingStore):
    """Counts requests as S3 has them, and deletes files at once.

    Args:
        inner: a store in a directory.
    """

    def __init__(self, inner: ObjectStore, root: Path) -> None:
        super().__init__(inner)
        self._root = root

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Count a DELETE for each object. Files are deleted at once, not durably one by one: 10 times faster."""
        self._add("DELETE", len(etags))
        removed, kept = [], []
        for key, etag in etags.items():
            path = self._root / key
            if etag_of(path.stat()) == etag:
                path.unlink()
                removed.append(key)
            else:
                kept.append(key)
        return DeleteOutcome(tuple(removed), tuple(kept), {})


class Half:
    """The retention of half of the segments."""

    def __init__(self, size: int) -> None:
        self._rule = Rule(size=size)

    def rule(self, topic: str) -> Rule:
        """Return the same rule for each topic."""
        del topic
        return self._rule

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        """Return None: there are no readers."""
        del keys
        return None

    def check_holds(self, topic: str) -> None:
        """Accept each topic."""

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        """Return False."""
        del incarnation
        return False


def make(root: Path, partitions: int, segments: int) -> None:
    """Write one partition, and link the others to it."""
    fill(Files(root.parent), root.name, 1, segments + 1)
    write_cache_objects(root.as_uri(), 1, segments + 1)
    link_partitions(root, CLUSTER, TOPIC, partitions)


def collect_here(root: Path, segments: int) -> Collected:
    """Collect the archive in this process."""
    keys = ClusterKeys(CLUSTER)
    imports = _peak_mib()
    requests, seconds, outcomes = {}, {}, Counter[Outcome]()
    with open_store(root.as_uri()) as inner:
        store = DeletingStore(inner, root)
        size = inner.head(keys.partition(TopicPartition(TOPIC, 0)).prefix + "0" * 20 + ".log").size
        retention = Half(size * (segments // 2))
        for number, name in enumerate(_RUNS):
            began, done = time.perf_counter(), Report()
            with done.writing(store, keys):
                now = begin(store, keys, done) + 2 * number * _GRACE
                work = work_in(store, keys, retention, now, _GRACE, done)
                incarnations = read_topic_incarnations(store, keys, lambda _: True, done.skip)
                found = run_once(work, incarnations, NO_FUSE)
            requests[name], seconds[name] = store.counted(), time.perf_counter() - began
            outcomes += done.outcomes
            if done.skipped or done.errors or bool(found.hidden) is not (number == 0):
                raise RuntimeError(f"{name}: {done.skipped} {done.errors} {len(found.hidden)} partitions were hidden")
    if set(outcomes) != {Outcome.REMOVED}:
        raise RuntimeError(f"not everything was deleted: {outcomes}")
    return Collected(requests, seconds, outcomes[Outcome.REMOVED], _peak_mib(), imports)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def collect_apart(root: Path, segments: int) -> Collected:
    """Run `collect_here` in a fresh process."""
    command = [sys.executable, "-m", "dev.bench.gc", "--collect", str(root), "--segments", str(segments)]
    answer = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True)
    return Collected(**json.loads(answer.stdout.splitlines()[-1]))


def bounds(partitions: int, segments: int) -> dict[str, dict[str, int]]:
    """Return the most requests of each run and kind.

    The former collector's are what its benchmark counted on a directory. An examination listed a partition, and read
    commit, `log.start` and cache objects. A run deleted what was due, and then examined each partition again.
    """
    gone = segments // 2
    caches, gone_caches = math.ceil(segments / CACHE_OBJECT_SEGMENTS), gone // CACHE_OBJECT_SEGMENTS
    before, deleted = 3 * segments + caches + 2, 3 * gone + gone_caches
    lists, lists_after = (math.ceil(objects / _PAGE) * partitions for objects in (before, before - deleted))
    gets, gets_after = ((count + 2) * partitions for count in (caches, caches - gone_caches))
    pages = math.ceil(partitions / _PAGE)  # of the topics, and of the copies
    puts = _PUTS * partitions + 2  # the report twice
    return {
        "hiding": {
            "LIST": 2 * lists + 1 + 2 * pages,
            "GET": 2 * gets + 4 * partitions + 2,  # `log.start` and the commit twice, where it moved
            "PUT": puts,
            "HEAD": 1,
        },
        "deletion": {
            "LIST": lists + lists_after + 2 * pages,
            "GET": gets + gets_after + 5 + partitions * math.ceil(deleted / _AT_ONCE),
            "PUT": puts,
            "DELETE": partitions * deleted,
            "HEAD": partitions * gone + 1,
        },
        "nothing due": {"LIST": lists_after + 2 * pages, "GET": gets_after + 1, "PUT": 2, "HEAD": 1},
    }


def report(found: Mapping[int, Collected], segments: int) -> None:
    """Print a column for each size."""
    rows: list[list[object]] = []
    for name in _RUNS:
        rows.append([f"{name}, seconds", *(each.seconds[name] for each in found.values())])
        for kind in _KINDS:
            counts = [each.requests[name].get(kind, 0) for each in found.values()]
            most = [bounds(count, segments)[name].get(kind, 0) for count in found]
            rows.append([f"  {kind}", *(f"{one:,} of {bound:,}" for one, bound in zip(counts, most, strict=True))])
    rows.append(["objects deleted", *(f"{each.deleted:,}" for each in found.values())])
    rows.append(["peak RSS, MiB", *(f"{each.peak_mib:.0f}" for each in found.values())])
    rows.append(["  of the imports", *(f"{each.imports_mib:.0f}" for each in found.values())])
    print_table(("", *(f"{count * segments:,} segments" for count in found)), rows)
    print(flush=True)


def goals(found: Mapping[int, Collected], segments: int) -> list[Goal]:
    """Return the goals of all runs."""
    checked = []
    for partitions, each in found.items():
        most = bounds(partitions, segments)
        for name in _RUNS:
            for kind in _KINDS:
                count, bound = each.requests[name].get(kind, 0), most[name].get(kind, 0)
                checked.append(Goal(f"{partitions * segments:,} segments, {name}, {kind}", count, bound, False))
    few, many = (found[count].peak_mib for count in sorted(found))
    return [*checked, Goal("peak memory at ten times the segments", many / few, MEMORY_RATIO, False)]


def main() -> int:
    """Make the archives, collect, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=100)
    arguments.add_argument("--segments", type=int, default=1_000, help="of each partition")
    build = Path(__file__).parents[2] / "build"
    arguments.add_argument("--directory", type=Path, default=build, help="of the archives; default: build")
    arguments.add_argument("--collect", metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.collect is not None:
        print(json.dumps(asdict(collect_here(Path(options.collect), options.segments))))
        return 0
    options.directory.mkdir(exist_ok=True)
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-gc.", dir=options.directory) as directory:
        for count in (options.partitions // 10, options.partitions):
            root = Path(directory) / str(count)
            began = time.monotonic()
            make(root, count, options.segments)
            print(f"{count * options.segments} segments made in {time.monotonic() - began:.0f} s", flush=True)
            found[count] = collect_apart(root, options.segments)
            print(found[count], flush=True)
    report(found, options.segments)
    return exit_code(print_goals(goals(found, options.segments)), options)


if __name__ == "__main__":
    sys.exit(main())
