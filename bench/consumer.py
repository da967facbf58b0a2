"""`python -m bench.consumer`: `TieredConsumer` next to `confluent_kafka.Consumer` and a broker with the same records.

A topic of two partitions, uncompressed, produced by a real broker, all segments closed and shipped by the agent to a
directory and to S3. Broker, S3 server and consumer share two cores. Each round consumes it from its beginning:

- by the plain client from the broker, `consume(500)`;
- from each archive alone, by `consume(500)` and by `consume_arrow()`;
- from the broker by `KAFKA_PREFERRED`, which is the cost of the seam on live data.

A rate counts from the first record to the last whole lot: the plain client waits for the rest of an incomplete one.
A fresh process consumes the archive for the memory: what its peak adds to an idle consumer.

The goals: 0.8 of the plain client from the archive, 5 times by Arrow, 0.9 on live data; less than 100 MB. Exits with 1
if one is missed; `--no-gate` only prints.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, TopicPartition

from bench.measuring.agent_runs import CLUSTER
from bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from bench.spark import ARCHIVE_URL, BUCKET, fill_and_ship
from ts_consumer import Mode, TieredConsumer
from ts_local.kafka.cluster import LocalCluster

TOPIC: Final = "bench-none"
PLAIN, LIVE = "plain client", "KAFKA_PREFERRED, live"
BY_MESSAGES, BY_ARROW = "consume(500)", "consume_arrow()"
LEAST_ARCHIVE, LEAST_ARROW, LEAST_LIVE, MOST_MB = 0.8, 5.0, 0.9, 100.0
_LOT: Final = 500
_ROWS: Final = 100_000
_MEMORY: Final = "--memory-of"


def config_of(bootstrap: str, mode: Mode | None, location: str = ARCHIVE_URL) -> dict[str, Any]:
    """Return a configuration; without a mode, that of the plain client."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    if mode is not None:
        config |= {
            "tiered.storage.mode": mode,
            "kafka.cluster.id": CLUSTER,
            "storage.service.endpoint.url": location,
        }
    return config


def consume(make: Callable[[], Any], ends: Sequence[int], *, by_arrow: bool = False) -> float:
    """Return millions of records a second of a new consumer."""
    consumer = make()
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(len(ends))])
    count, began, total = 0, 0.0, sum(ends) - _LOT
    try:
        while count < total:
            got = consumer.consume_arrow(_ROWS, 30.0).num_rows if by_arrow else len(_lot(consumer))
            if not began:
                began, count = time.perf_counter(), 0
                total -= got
            else:
                count += got
        return count / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()


def _lot(consumer: Any) -> list[Any]:
    messages: list[Any] = consumer.consume(_LOT, 30.0)
    if any(message.error() is not None for message in messages):
        raise RuntimeError(str(next(message.error() for message in messages if message.error() is not None)))
    return messages


def print_memory(ends: Sequence[int]) -> None:
    """Print the MB that reading the archive adds to an idle consumer; in a process of its own."""
    consumer = TieredConsumer(config_of("", Mode.TIERED_STORAGE_ONLY))
    consumer.poll(0.1)
    idle = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(len(ends))])
    count = 0
    while count < sum(ends):
        count += len(_lot(consumer))
    status = Path("/proc/self/status").read_text()
    peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) << 10
    consumer.close()
    print((peak - idle) / 1e6)


def memory(ends: Sequence[int]) -> float:
    """Return what a fresh process prints."""
    command = [sys.executable, "-m", "bench.consumer", _MEMORY, *map(str, ends)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    """Fill, ship, consume in rounds, report."""
    if sys.argv[1:2] == [_MEMORY]:
        print_memory([int(end) for end in sys.argv[2:]])
        return 0
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=1_000_000)
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after one that warms up")
    options = arguments.parse_args()
    with ExitStack() as opened:
        cluster = opened.enter_context(LocalCluster(s3=True, buckets=[BUCKET], name="bench"))
        if cluster.s3 is None:
            raise RuntimeError("the cluster has no S3 server")
        os.environ.update(cluster.s3.environment())
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="bench.", dir=cluster.directory)))
        ends = [part.end for part in fill_and_ship(cluster, TOPIC, "none", options.records, directory)]
        bootstrap = cluster.bootstrap
        things: dict[str, Callable[[], float]] = {
            PLAIN: partial(consume, partial(Consumer, config_of(bootstrap, None)), ends),
            LIVE: partial(consume, partial(TieredConsumer, config_of(bootstrap, Mode.KAFKA_PREFERRED)), ends),
        }
        for name, location in (("directory", directory.as_uri()), ("S3", ARCHIVE_URL)):
            alone = partial(TieredConsumer, config_of(bootstrap, Mode.TIERED_STORAGE_ONLY, location))
            things[f"{name}, {BY_MESSAGES}"] = partial(consume, alone, ends)
            things[f"{name}, {BY_ARROW}"] = partial(consume, alone, ends, by_arrow=True)
        found = rounds(things, options.repeat, warm_up=1)
        used = memory(ends)
    print_table(("M records/s", *things), [("", *(statistics.median(found[name]) for name in things))])
    print()
    goals = [
        Goal(f"{name} / {PLAIN}", median_ratio(found[name], found[PLAIN]), least, at_least=True)
        for name, least in zip(things, (1.0, LEAST_LIVE, *(LEAST_ARCHIVE, LEAST_ARROW) * 2), strict=True)
        if name != PLAIN
    ]
    goals.append(Goal("memory above an idle consumer", used, MOST_MB, at_least=False, unit=" MB"))
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
