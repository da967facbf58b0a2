"""`python -m dev.bench.verify`: verifying 100,000 segments of 100 partitions by their names, and a bare listing.

The store is a directory, filled as `dev.bench.planning` fills S3: a `.log` of one batch with the agent's metadata,
`.index`, `.timeindex`, commits, `log.start` and cache objects. In each round a fresh process lists every key and drops
it, and another one does what `tsctl verify --depth listing` does.

It measures seconds and CPU seconds of the work alone, without loading the process; requests by kind; peak memory.

The goals: at most five times the CPU seconds of a bare listing, and under 300 MiB. Exits with 1 if one is missed;
`--no-gate` only prints. CPU, because a directory has no latency, and the clock also measures other work of the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dev.bench.measuring.linked_archives import Files
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.processes import ProcessWatch
from dev.bench.planning import CLUSTER, fill, write_cache_objects
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore

GOAL_RATIO = 5.0
GOAL_MIB = 300.0
LISTING, VERIFY = "bare listing", "verify --depth listing"


@dataclass(frozen=True)
class Looked:
    """The cost of one run.

    Attributes:
        seconds: of the work.
        cpu: its CPU seconds, all threads.
        segments: that were verified; 0 for a bare listing.
        findings: their number; 0 for a bare listing.
        requests: requests to the store, by kind.
        peak_mib: peak memory of the process.
    """

    seconds: float
    cpu: float
    keys: int
    segments: int
    findings: int
    requests: dict[str, int]
    peak_mib: float


class Counting(WrappedStore):
    """Counts the requests to a store, and the keys that it lists."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.requests: Counter[str] = Counter()
        self.keys = 0

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List as the inner store."""
        self.requests["listings"] += 1
        for info in super().list(prefix, start_after=start_after):
            self.keys += 1
            yield info

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """List as the inner store."""
        self.requests["listings of directories"] += 1
        return super().list_directories(prefix)

    def head(self, key: str) -> ObjectInfo:
        """Read as the inner store."""
        self.requests["heads"] += 1
        return super().head(key)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open as the inner store."""
        self.requests["reads of " + ("cache objects" if "/segment-metadata/" in key else key.rpartition("/")[2])] += 1
        return super().open(key, byte_range)


def look_here(url: str, what: str) -> Looked:
    """Run once, in this fresh process."""
    # Loading does not count, and a bare listing needs less of it.
    from ts_common.archive.object_keys import ClusterKeys  # noqa: PLC0415
    from ts_common.store.factory import open_store  # noqa: PLC0415

    segments = findings = 0
    with Counting(open_store(url)) as store, ProcessWatch(os.getpid()) as watch:
        if what == LISTING:
            cpu, began = time.process_time(), time.perf_counter()
            for _ in store.list():
                pass
        else:
            from tsctl.verify.segment_check import Depth  # noqa: PLC0415
            from tsctl.verify.verifier import Scope, Verifier  # noqa: PLC0415

            cpu, began = time.process_time(), time.perf_counter()
            verifier = Verifier(store, ClusterKeys(CLUSTER), Scope(Depth.LISTING, in_flight_seconds=0))
            verifier.find()
            found = verifier.run()
            segments = sum(coverage.segments for coverage in found.coverages)
            findings = len(found.all_findings)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Looked(seconds, cpu, store.keys, segments, findings, dict(store.requests), watch.peak_mib)


def look_apart(url: str, what: str) -> Looked:
    """Run `look_here` in a fresh process."""
    answer = subprocess.run(
        [sys.executable, "-m", "dev.bench.verify", "--look", url, "--what", what],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )
    return Looked(**json.loads(answer.stdout.splitlines()[-1]))


def report(found: Mapping[str, Sequence[Looked]]) -> None:
    """Print a column for each kind of run."""
    last = {name: looks[-1] for name, looks in found.items()}
    kinds = sorted({kind for look in last.values() for kind in look.requests})
    rows: list[Sequence[object]] = [
        ("seconds, median", *(statistics.median(look.seconds for look in looks) for looks in found.values())),
        ("CPU seconds, median", *(statistics.median(look.cpu for look in looks) for looks in found.values())),
        ("peak RSS, MiB", *(f"{max(look.peak_mib for look in looks):.0f}" for looks in found.values())),
        ("keys", *(look.keys for look in last.values())),
        ("segments", *(look.segments for look in last.values())),
        *((kind, *(look.requests.get(kind, 0) for look in last.values())) for kind in kinds),
    ]
    print_table(("", *found), rows)
    print(flush=True)


def main() -> int:
    """Fill, run, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=100)
    arguments.add_argument("--segments", type=int, default=1_000, help="approximate segments of each partition")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--look", metavar="URL", help=argparse.SUPPRESS)
    arguments.add_argument("--what", choices=(LISTING, VERIFY), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.look is not None:
        print(json.dumps(asdict(look_here(options.look, options.what))))
        return 0
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-verify.", dir=build) as directory:
        root = Path(directory) / "all"
        began = time.monotonic()
        count = fill(Files(root.parent), root.name, options.partitions, options.segments)
        write_cache_objects(root.as_uri(), options.partitions, options.segments)
        print(f"{count} segments and their cache objects written in {time.monotonic() - began:.0f} s", flush=True)
        things = {what: partial(look_apart, root.as_uri(), what) for what in (LISTING, VERIFY)}
        found = rounds(things, options.repeat)
    if any((look.segments, look.findings) != (count, 0) for look in found[VERIFY]):
        raise RuntimeError(f"{count} segments without a fault were put; verify reports {found[VERIFY]}")
    report(found)
    listing, verify = found[LISTING], found[VERIFY]
    ratio = median_ratio([look.cpu for look in verify], [look.cpu for look in listing])
    goals = [
        Goal(f"CPU: verify of {count} segments / a bare listing", ratio, GOAL_RATIO, at_least=False),
        Goal("memory", max(look.peak_mib for look in verify), GOAL_MIB, at_least=False, unit=" MiB"),
    ]
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
