"""`python -m bench.page_cache`: what shipping cold segments leaves of the broker's page cache.

Three partitions of a real broker with closed segments of 64 MiB, which are dropped from the page cache; of every
`--kept`th the second half is read back, as if consumers were there. Beside them lies a file of 512 MiB, all of it
cached, which no shipper opens. Then an agent ships everything to an empty prefix, and `mincore` says of each page
whether it is cached; then as much is sent from memory, and no file is opened: the store writes on this host too, and a
host that is short of memory takes pages by itself; then bare boto3 ships the files, to show what another guest leaves.
The files lie where the local cluster does, below `build/`: that must be a disk, not a tmpfs.

The goals: of what was cached at least 0.97 as much stays beside the agent as beside who opens no file, in the segments
and in the file beside them; of what was not cached at most 0.01 is. Exits with 1 where one is missed; `--no-gate`
prints.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.pairs import Goal, print_goals, print_table
from bench.shipping import BUCKET, Shipping, fill
from ts_local.cached_pages import PAGE_BYTES, cache, cached_pages, uncache
from ts_local.cluster import LocalCluster

KEPT = 0.97
LEFT = 0.01
_BESIDE_MIB = 512
_MIB = 1 << 20


@dataclass(frozen=True)
class Left:
    """What a shipper left of the cache.

    Attributes:
        kept: of the pages that were cached before, the share that is so after.
        pulled_in: of those that were not, the share that is.
        beside: as `kept`, for the file that nobody opened.
        seconds: that shipping took.
    """

    kept: float
    pulled_in: float
    beside: float
    seconds: float


def prepare(logs: Sequence[Path], beside: Path, every: int) -> None:
    """Cold segments, of every some the second half cached, and the file beside them."""
    for number, log in enumerate(logs):
        uncache(log)
        if number % every == 0:
            size = log.stat().st_size
            cache(log, size // 2 // PAGE_BYTES * PAGE_BYTES, size)
    cache(beside, 0, beside.stat().st_size)


def measure(ship: Callable[[], float], logs: Sequence[Path], beside: Path, every: int) -> Left:
    """Prepare, ship, and look."""
    prepare(logs, beside, every)
    before, before_beside = [cached_pages(log) for log in logs], cached_pages(beside)
    seconds = ship()
    pages = [pair for log, was in zip(logs, before, strict=True) for pair in zip(was, cached_pages(log), strict=True)]
    kept = [now for was, now in pages if was]
    pulled = [now for was, now in pages if not was]
    stays = sum(was & now for was, now in zip(before_beside, cached_pages(beside), strict=True))
    return Left(
        sum(kept) / max(1, len(kept)),
        sum(pulled) / max(1, len(pulled)),
        stays / max(1, sum(before_beside)),
        seconds,
    )


def main() -> int:
    """Fill, ship with each, report."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=2300, help="of closed segments, about")
    arguments.add_argument("--kept", type=int, default=3, help="of so many segments one is half cached before")
    arguments.add_argument("--threads", type=int, default=3, help="of each shipper")
    arguments.add_argument("--no-gate", action="store_true", help="print only, never fail")
    options = arguments.parse_args()
    with LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster:
        parts = fill(cluster, options.megabytes)
        logs = [log for part in parts for log in part.logs]
        if not logs:
            raise SystemExit(f"--megabytes {options.megabytes} closes no segment; give 250 or more")
        beside = cluster.directory / "beside"
        with beside.open("wb") as file:
            for _ in range(_BESIDE_MIB):
                file.write(bytes(_MIB))
        size = sum(log.stat().st_size for log in logs) / _MIB
        print(f"{len(logs)} closed segments, {size:.0f} MiB; beside them {_BESIDE_MIB} MiB that nobody opens\n")
        shipping = Shipping(cluster, parts, options.threads)
        agent = measure(lambda: shipping.agent(settled=False).seconds, logs, beside, options.kept)
        closed = measure(lambda: shipping.bare(settled=False, source="memory").seconds, logs, beside, options.kept)
        bare = measure(lambda: shipping.bare(settled=False).seconds, logs, beside, options.kept)
    rows = [
        (name, left.kept, f"{left.pulled_in:.4f}", left.beside, left.seconds)
        for name, left in (("agent", agent), ("from memory", closed), ("bare boto3", bare))
    ]
    print_table(("share of pages", "cached, still cached", "not cached, now cached", "beside", "seconds"), rows)
    print()
    missed = print_goals(
        [
            Goal("still cached, agent / from memory", agent.kept / closed.kept, KEPT, at_least=True),
            Goal("not cached before, cached now", agent.pulled_in, LEFT, at_least=False),
            Goal("the file beside, agent / from memory", agent.beside / closed.beside, KEPT, at_least=True),
        ]
    )
    return 1 if missed and not options.no_gate else 0


if __name__ == "__main__":
    sys.exit(main())
