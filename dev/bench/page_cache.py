"""`python -m dev.bench.page_cache`: the effect of shipping cold segments on the broker's page cache.

Three partitions of a real broker have closed segments of 64 MiB, which are dropped from the page cache. The second half
of every `--kept`th segment is read back, as consumers would. A file of 512 MiB next to them is fully cached, and no
shipper opens it. Then three things run: an agent ships everything to an empty prefix; as many bytes are sent from
memory, without opening a file; bare boto3 ships the files. After each, `mincore` reports which pages are cached. The
second is the reference, because the store writes on this host too, and a host short of memory evicts pages itself. The
files are below `build/`, which must be on a disk, not on a tmpfs.

The goals: of cached pages, at least 0.97 of the reference's share stay cached, both in the segments and in the file
next to them; of other pages, at most 0.01 become cached. Exits with 1 if one is missed; `--no-gate` only prints.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.shipping import BUCKET, Shipping, fill
from dev.local.cached_pages import PAGE_BYTES, cache, cached_pages, uncache
from dev.local.kafka.cluster import LocalCluster

KEPT = 0.97
LEFT = 0.01
_BESIDE_MIB = 512
_MIB = 1 << 20


@dataclass(frozen=True)
class Left:
    """The page cache after a shipper.

    Attributes:
        kept: share of the cached pages that are still cached.
        pulled_in: share of the other pages that are cached now.
        other: as `kept`, for the file that no shipper opens.
        seconds: time of shipping.
    """

    kept: float
    pulled_in: float
    other: float
    seconds: float


def prepare(logs: Sequence[Path], other: Path, every: int) -> None:
    """Drop the segments from the cache, read back half of every `every`th, and cache the file next to them."""
    for number, log in enumerate(logs):
        uncache(log)
        if number % every == 0:
            size = log.stat().st_size
            cache(log, size // 2 // PAGE_BYTES * PAGE_BYTES, size)
    cache(other, 0, other.stat().st_size)


def measure(ship: Callable[[], float], logs: Sequence[Path], other: Path, every: int) -> Left:
    """Prepare, ship, and return the state of the cache."""
    prepare(logs, other, every)
    before, before_other = [cached_pages(log) for log in logs], cached_pages(other)
    seconds = ship()
    pages = [pair for log, was in zip(logs, before, strict=True) for pair in zip(was, cached_pages(log), strict=True)]
    kept = [now for was, now in pages if was]
    pulled = [now for was, now in pages if not was]
    stays = sum(was & now for was, now in zip(before_other, cached_pages(other), strict=True))
    return Left(
        sum(kept) / max(1, len(kept)),
        sum(pulled) / max(1, len(pulled)),
        stays / max(1, sum(before_other)),
        seconds,
    )


def main() -> int:
    """Fill, ship with each, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=2300, help="approximate size of the closed segments")
    arguments.add_argument("--kept", type=int, default=3, help="every KEPT-th segment is half cached before")
    arguments.add_argument("--threads", type=int, default=3, help="threads of each shipper")
    options = arguments.parse_args()
    with LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster:
        parts = fill(cluster, options.megabytes)
        logs = [log for part in parts for log in part.logs]
        if not logs:
            raise SystemExit(f"--megabytes {options.megabytes} closes no segment; give 250 or more")
        other = cluster.directory / "other"
        with other.open("wb") as file:
            for _ in range(_BESIDE_MIB):
                file.write(bytes(_MIB))
        size = sum(log.stat().st_size for log in logs) / _MIB
        print(
            f"{len(logs)} closed segments, {size:.0f} MiB; another file of {_BESIDE_MIB} MiB is opened by no shipper\n"
        )
        shipping = Shipping(cluster, parts, options.threads)
        agent = measure(lambda: shipping.agent(settled=False).seconds, logs, other, options.kept)
        closed = measure(lambda: shipping.bare(settled=False, source="memory").seconds, logs, other, options.kept)
        bare = measure(lambda: shipping.bare(settled=False).seconds, logs, other, options.kept)
    rows = [
        (name, left.kept, f"{left.pulled_in:.4f}", left.other, left.seconds)
        for name, left in (("agent", agent), ("from memory", closed), ("bare boto3", bare))
    ]
    print_table(("share of pages", "cached, still cached", "not cached, now cached", "other file", "seconds"), rows)
    print()
    missed = print_goals(
        [
            Goal("still cached, agent / from memory", agent.kept / closed.kept, KEPT, at_least=True),
            Goal("not cached before, cached now", agent.pulled_in, LEFT, at_least=False),
            Goal("the other file, agent / from memory", agent.other / closed.other, KEPT, at_least=True),
        ]
    )
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
