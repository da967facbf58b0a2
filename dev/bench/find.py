"""`python -m dev.bench.find`: finding the records of a key, with and without an index, in cold processes.

Topics on S3, made without a broker, with values of 300 bytes in batches of 16 KiB:

- `orders`: 10 GB of lz4 in 64 partitions, a million distinct keys, which Java's partitioner distributed. In each
  partition the frequencies of keys follow Zipf's law, and each key is there at least once;
- `hot` and `bare`: each a tenth of that, uncompressed, with the same records in eight partitions. A producer chose
  partitions by itself. One key has 1 % of the records, so it is in each part of each segment. `bare` has no index.

Each look-up is a new process of `tsctl find`, as an installation has it, with the compiled code cached. It looks for
another key each time, which has five records. The seconds are those of the whole command; `start` is a look-up in a
topic of one small segment, and `no index` reads all of `orders`, once. The requests are counted by a proxy, in
processes of their own.

The goals: a rare key in under 3 s with certificates alone; under 1 s and with under 80 GETs with the index; a hot key
with the index at most as long as a scan of all records. Size of the index and CPU of the build are printed next to the
design's. `--listings` counts the requests of a look-up in 30 TB instead (`dev.bench.find_listings`). Exits with 1 if a
goal is missed; `--no-gate` only prints.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from dev.bench.find_listings import count_requests
from dev.bench.measuring.installation import as_installed
from dev.bench.measuring.keyed_archives import KeyedSegments, Numbers, key_of, partitions_of, put_partition
from dev.bench.measuring.made_archives import CLUSTER, RECORDS_A_BATCH
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.s3_server import s3_server
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import S3Server
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.factory import open_store
from ts_reader.decode.codecs import Codec

BUCKET: Final = "bench"
URL: Final = f"s3://{BUCKET}/base"
ORDERS, HOT, BARE, TINY = "orders", "hot", "bare", "tiny"
PARTITIONS: Final = 64
SEGMENTS: Final = 6  # of a partition
RARE: Final = 5  # records of a rare key
NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})
CERTIFICATES_SECONDS, INDEX_SECONDS, INDEX_GETS, HOT_RATIO = 3.0, 1.0, 80, 1.05
PAIR_BYTES, LZ4_SECONDS, NONE_SECONDS = 2.9, 2.1, 0.5  # of the design: a pair; a GB
_PRODUCERS: Final = 3  # of partitions: one compresses while others wait for the server
_HOT_PARTITIONS: Final = 8
_HOT_SHARE: Final = 0.01
_HOT_NUMBER: Final = 99_999_999


@dataclass(frozen=True)
class Cost:
    """What a process cost.

    Attributes:
        seconds: from its start to its end.
        cpu: its CPU seconds, with those of its workers.
        lines: the number of lines that it printed.
    """

    seconds: float
    cpu: float
    lines: int


@dataclass(frozen=True)
class Built:
    """An index that was built.

    Attributes:
        cpu: CPU seconds a GB, without those of a build that finds nothing to do.
        pairs: of keys and parts of segments.
        size: of its objects, bytes.
    """

    cpu: float
    pairs: int
    size: int


class Tsctl:
    """Runs `tsctl` on the bucket, each time in a new process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def run(self, *arguments: str, through: Mapping[str, str] = NO_VARIABLES) -> tuple[Cost, str]:
        """Run a command; return its cost and what it printed.

        Args:
            through: more variables.

        Raises:
            RuntimeError: it failed.
        """
        command = [str(Path(sys.executable).with_name("tsctl")), *arguments, "--url", URL, "--cluster", CLUSTER]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**self._environment, **through}
        )
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr[-2000:]}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(seconds, cpu, ended.stdout.count("\n")), ended.stdout

    def find(self, topic: str, number: int, expected: int, through: Mapping[str, str] = NO_VARIABLES) -> Cost:
        """Look a key up.

        Raises:
            RuntimeError: it did not find as many records as there are.
        """
        key = key_of(number).decode()
        cost, _ = self.run("find", "--topic", topic, "--key", key, "--offsets", through=through)
        if cost.lines != expected:
            raise RuntimeError(f"{topic}, key {number}: {cost.lines} records; {expected} were put")
        return cost

    def requests(self, server: S3Server, number: int) -> Counter[str]:
        """Return the requests of a look-up in `orders`, as a proxy counts them."""
        with S3FaultProxy(server) as proxy:
            self.find(ORDERS, number, RARE, proxy.environment())
            return Counter("LIST" if "list-type" in each.query else each.method for each in proxy.requests())

    def build(self, topic: str, *options: str) -> Built:
        """Build the index of a topic, after its former one is removed."""
        prefix = ClusterKeys(CLUSTER).find(topic)
        with open_store(URL) as store:
            store.delete([info.key for info in store.list(prefix)])
            cost, text = self.run("find", "index", topic, "--json", *options)
            (found,) = json.loads(text)["topics"]
            size = sum(info.size for info in store.list(prefix))
        idle, _ = self.run("find", "index", topic, "--json", *options)
        return Built((cost.cpu - idle.cpu) / (found["bytes"] / 1e9), found["pairs"], size)


def drawn(generator: np.random.Generator, keys: Numbers, records: int) -> Numbers:
    """Return the keys of records: the last one a few times, the others by Zipf's law and at least once."""
    rare, often = keys[-1:], generator.permutation(keys[:-1])
    shares = np.cumsum(1 / np.arange(1, len(often) + 1))
    more = generator.random(records - len(often) - RARE) * shares[-1]
    return generator.permutation(np.concatenate((np.repeat(rare, RARE), often, often[np.searchsorted(shares, more)])))


def fill(gigabytes: float, keys: int) -> tuple[int, int, list[int]]:
    """Put the topics; return the bytes of `orders`, the records of the hot key, and the rare keys of `orders`."""
    generator, numbers = np.random.default_rng(7), np.arange(keys)
    lz4, plain = KeyedSegments(Codec.LZ4), KeyedSegments(Codec.NONE)
    whole = SEGMENTS * RECORDS_A_BATCH

    def records_of(made: KeyedSegments, size: float) -> int:
        sample = generator.integers(0, keys, 100 * RECORDS_A_BATCH)
        return max(1, int(size / (len(made.make(0, sample)[0]) / len(sample) * whole))) * whole

    hot = 0
    with open_store(URL) as store, ThreadPoolExecutor(_PRODUCERS) as pool:
        partitions = partitions_of(numbers, PARTITIONS)
        own = [numbers[partitions == partition] for partition in range(PARTITIONS)]
        each = records_of(lz4, gigabytes * 1e9 / PARTITIONS)

        def put(partition: int) -> int:
            chosen = drawn(np.random.default_rng((7, partition)), own[partition], each)
            return put_partition(store, ORDERS, partition, lz4, chosen, SEGMENTS)

        size = sum(pool.map(put, range(PARTITIONS)))
        records = records_of(plain, gigabytes * 1e8 / _HOT_PARTITIONS)
        for partition in range(_HOT_PARTITIONS):
            chosen = generator.integers(0, keys, records)
            chosen[generator.random(records) < _HOT_SHARE] = _HOT_NUMBER
            hot += int(np.count_nonzero(chosen == _HOT_NUMBER))
            for topic in (HOT, BARE):
                put_partition(store, topic, partition, plain, chosen, SEGMENTS)
        put_partition(store, TINY, 0, plain, numbers[:RECORDS_A_BATCH], 1)
    return size, hot, [int(found[-1]) for found in own]


def measure(server: S3Server, tsctl: Tsctl, gigabytes: float, keys: int, repeat: int) -> list[Goal]:
    """Fill, build, look up; print, and return the goals."""
    began = time.monotonic()
    size, hot, rare = fill(gigabytes, keys)
    print(f"{size / 1e9:.2f} GB of {ORDERS} put in {time.monotonic() - began:.0f} s", flush=True)
    rare = rare[: repeat + 1]
    costs: dict[str, list[Cost]] = {"start": [tsctl.find(TINY, 7, 1) for _ in range(repeat + 1)][1:]}
    costs["no index"] = [tsctl.find(ORDERS, rare[0], RARE)]
    requests: dict[str, Counter[str]] = {}
    builds: dict[str, Built] = {}
    for what, options in (("certificates", ("--most-share", "0")), ("index", ())):
        builds[what] = tsctl.build(ORDERS, *options)
        costs[what] = [tsctl.find(ORDERS, number, RARE) for number in rare][1:]
        requests[what] = max((tsctl.requests(server, number) for number in rare), key=lambda each: each["GET"])
    builds["index, uncompressed"] = tsctl.build(HOT)
    things = {topic: partial(tsctl.find, topic, _HOT_NUMBER, hot) for topic in (HOT, BARE)}
    found = rounds(things, repeat, warm_up=1)
    costs |= {"hot key, index": found[HOT], "hot key, all records": found[BARE]}
    _print(costs, requests, builds)
    seconds = {what: statistics.median(cost.seconds for cost in each) for what, each in costs.items()}
    ratio = median_ratio(*([cost.seconds for cost in found[topic]] for topic in (HOT, BARE)))
    return [
        Goal("rare key, certificates", seconds["certificates"], CERTIFICATES_SECONDS, False, " s"),
        Goal("rare key, index", seconds["index"], INDEX_SECONDS, False, " s"),
        Goal("rare key, index, GETs", requests["index"]["GET"], INDEX_GETS, False),
        Goal("hot key, index / all records", ratio, HOT_RATIO, False),
    ]


def _print(
    costs: Mapping[str, Sequence[Cost]], requests: Mapping[str, Counter[str]], builds: Mapping[str, Built]
) -> None:
    rows = [
        (
            what,
            statistics.median(cost.seconds for cost in each),
            f"{min(cost.seconds for cost in each):.2f} to {max(cost.seconds for cost in each):.2f}",
            statistics.median(cost.cpu for cost in each),
            ", ".join(f"{count} {kind}" for kind, count in sorted(requests.get(what, {}).items())),
        )
        for what, each in costs.items()
    ]
    print_table(("look-up", "seconds", "range", "CPU s", "requests"), rows)
    print()
    design = {
        "certificates": ("", ""),
        "index": (LZ4_SECONDS, PAIR_BYTES),
        "index, uncompressed": (NONE_SECONDS, PAIR_BYTES),
    }
    rows_of_builds = []
    for what, each in builds.items():
        seconds, pair_bytes = design[what]
        a_pair = each.size / each.pairs if each.pairs else 0.0
        rows_of_builds.append((what, each.cpu, f"{seconds}", each.pairs, each.size, a_pair, f"{pair_bytes}"))
    print_table(
        ("build", "CPU s/GB", "of the design", "pairs", "bytes", "bytes a pair", "of the design"), rows_of_builds
    )
    print(flush=True)


def main() -> int:
    """Measure one of the two, and report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--gb", type=float, default=10.0, help="of `orders`")
    arguments.add_argument("--keys", type=int, help="distinct ones of `orders`; default: 100,000 a GB")
    arguments.add_argument("--repeat", type=int, default=5, help="look-ups of each kind, after one that warms up")
    arguments.add_argument("--listings", action="store_true", help="count requests in 30 TB instead")
    options = arguments.parse_args()
    if options.listings:
        return exit_code(print_goals(count_requests()), options)
    with s3_server("find", BUCKET) as (server, directory):
        tsctl = Tsctl(as_installed(directory / "site"))
        goals = measure(server, tsctl, options.gb, options.keys or int(options.gb * 100_000), options.repeat)
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
