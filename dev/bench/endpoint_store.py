"""`python -m dev.bench.endpoint_store`: what an endpoint needs of S3 to serve readers whose segments are not in memory.

A topic of two partitions, segments of 64 MiB, uncompressed, on S3. Server, endpoint and client share two cores. The
endpoint's cache is smaller than the topic, so each pass reads the store again. Each round measures:

- one raw client that reads both partitions; and the same objects fetched on two threads and dropped;
- the same objects through a bare relay, which only receives and sends: what any endpoint can reach at most here;
- 64 raw clients of one partition that start together: the bytes that the store sent, and the seconds of each.

The goals: 0.85 of the rate of fetching alone; each object is fetched at most twice for 64 readers, and none of them is
slower than half of the median. Exits with 1 if one is missed; `--no-gate` only prints.
"""

import statistics
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from threading import Barrier

from dev.bench.measuring.endpoint_runs import EndpointProcess
from dev.bench.measuring.made_archives import CLUSTER
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.raw_fetches import Boundaries, RawReader, boundaries_of
from dev.bench.measuring.relay import RelayProcess
from dev.bench.measuring.s3_server import s3_server
from dev.bench.reader import BUCKET, PARTITIONS, SEGMENT_BYTES, fetch_all, fill, seconds
from ts_common.store.factory import open_store

TOPIC = "none"
READERS = 64
SERVED, RELAYED, FETCHING = "one raw client", "a bare relay", "fetching from S3"
LEAST_RATE, MOST_FETCHES, MOST_SECONDS = 0.85, 2.0, 2.0
_RECEIVED = "ts_endpoint_store_received_bytes_total"


def boundaries(url: str) -> dict[int, Boundaries]:
    """Return the boundaries of each partition, from its objects."""
    found = {}
    with open_store(url) as store:
        for number in range(PARTITIONS):
            keys = [info.key for info in store.list(f"{CLUSTER}/{TOPIC}-{number}/") if info.key.endswith(".log")]
            found[number] = boundaries_of(store.get(key)[0] for key in keys)
    return found


def read(address: tuple[str, int], where: Mapping[int, Boundaries], barrier: Barrier | None = None) -> float:
    """Return the seconds of one raw client that reads partitions to their ends."""
    reader = RawReader(address, TOPIC, where)
    try:
        if barrier is not None:
            barrier.wait()
        return seconds(reader.read_all)
    finally:
        reader.close()


def together(endpoint: EndpointProcess, where: Mapping[int, Boundaries], count: int) -> tuple[float, float, float]:
    """Return how often the store sent the partition for many readers, their median and their greatest seconds."""
    before, barrier = endpoint.metric(_RECEIVED), Barrier(count)
    with ThreadPoolExecutor(count) as threads:
        found = list(threads.map(lambda _: read(endpoint.address, where, barrier), range(count)))
    sent = endpoint.metric(_RECEIVED) - before
    size = sum(each.positions[-1] for each in where.values())
    return sent / size, statistics.median(found), max(found)


def main() -> int:
    """Fill, read in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--segments", type=int, default=6, help="of each partition")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after one that warms up")
    options = arguments.parse_args()
    with ExitStack() as ending:
        _, directory = ending.enter_context(s3_server("endpoint", BUCKET))
        url = f"s3://{BUCKET}/base"
        fill(url, options.segments)
        where = boundaries(url)
        cache = str(options.segments * SEGMENT_BYTES // 4 >> 20)
        endpoint = ending.enter_context(
            EndpointProcess(url, CLUSTER, directory / "endpoint.log", ["--cache-mib", cache])
        )
        prefixes = [f"{CLUSTER}/{TOPIC}-{number}/" for number in range(PARTITIONS)]
        relay = ending.enter_context(RelayProcess(url, prefixes))
        things: dict[str, Callable[[], float]] = {
            SERVED: partial(read, endpoint.address, where),
            RELAYED: partial(seconds, relay.read_all),
            FETCHING: partial(seconds, fetch_all(url, TOPIC)),
        }
        found = rounds(things, options.repeat, warm_up=1)
        size = sum(each.positions[-1] for each in where.values()) / 1e6
        print_table(("MB/s", *things), [("", *(size / statistics.median(found[name]) for name in things))])
        many = [together(endpoint, {0: where[0]}, READERS) for _ in range(options.repeat)]
    print()
    rows = [(f"{READERS} readers", *(statistics.median(column) for column in zip(*many, strict=True)))]
    print_table(("", "times fetched", "median s", "slowest s"), rows)
    print()
    goals = [
        Goal(f"{SERVED} / {FETCHING}", median_ratio(found[FETCHING], found[SERVED]), LEAST_RATE, at_least=True),
        Goal(f"{READERS} readers: objects fetched", max(each[0] for each in many), MOST_FETCHES, at_least=False),
        Goal(f"{READERS} readers: slowest / median", max(each[2] / each[1] for each in many), MOST_SECONDS, False),
    ]
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
