"""`python -m dev.bench.consumer`: `TieredConsumer`, `confluent_kafka.Consumer` and a broker, with the same records.

A topic of two partitions, uncompressed, produced by a real broker, all segments closed and shipped by the agent to a
directory and to S3. Broker, S3 server and consumer share two cores. Each round consumes it from its beginning:

- by the plain client from the broker, `consume(500)`;
- from each archive alone, by `consume(500)` and by `consume_arrow()`;
- from the broker by `KAFKA_PREFERRED`, which is the cost of the seam on live data;
- by a loop of `poll` from the broker, by the plain client and by `KAFKA_PREFERRED`: printed, without a goal.

A rate counts from the first record to the last whole lot: the plain client waits for the rest of an incomplete one. The
pair of the seam's cost alternates in three times the rounds.
A fresh process consumes the archive for the memory: what its peak adds to an idle consumer, with all libraries loaded.

By default librdkafka waits a second before it fills a full queue again, and loops like these empty one in 0.1 s. So the
plain client is measured twice: with the default, and without that wait. Live data are read without it by both.

The goals: 0.8 of the plain client with its default from the archive, 5 times by Arrow; 0.9 of the plain client without
the wait on live data; less than 100 MB. The archive's ratios to the client without the wait are printed. Exits with 1
if a goal is missed; `--no-gate` only prints.
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

from dev.bench.measuring.agent_runs import CLUSTER
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.spark import ARCHIVE_URL, BUCKET, fill_and_ship
from dev.local.kafka.cluster import LocalCluster
from ts_consumer import TieredConsumer, TierMode

TOPIC: Final = "bench-none"
PLAIN, FASTEST, LIVE = "plain client", "plain client, no wait", "KAFKA_PREFERRED, live"
PLAIN_POLLS, LIVE_POLLS = "plain client, poll()", "KAFKA_PREFERRED, live, poll()"
BY_MESSAGES, BY_ARROW = "consume(500)", "consume_arrow()"
LEAST_ARCHIVE, LEAST_ARROW, LEAST_LIVE, MOST_MB = 0.8, 5.0, 0.9, 100.0
_NO_WAIT: Final = {"fetch.queue.backoff.ms": 5}
_LOT: Final = 500
_MORE: Final = 3  # times the rounds, for the cost of the seam
_ROWS: Final = 100_000
_MEMORY: Final = "--memory-of"


def config_of(bootstrap: str, mode: TierMode | None, location: str = ARCHIVE_URL) -> dict[str, Any]:
    """Return a configuration; without a mode, that of the plain client."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    if mode is not None:
        config |= {
            "tiered.storage.mode": mode,
            "kafka.cluster.id": CLUSTER,
            "storage.service.endpoint.url": location,
        }
    return config


def consume(make: Callable[[], Any], ends: Sequence[int], call: Callable[[Any], int]) -> float:
    """Return millions of records a second of a new consumer.

    Args:
        make: the consumer.
        call: calls it once, and returns the number of records.
    """
    consumer = make()
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(len(ends))])
    count, began, total = 0, 0.0, sum(ends) - _LOT
    try:
        while count < total:
            got = call(consumer)
            if not began:
                began, count = time.perf_counter(), 0
                total -= got
            else:
                count += got
        return count / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()


def by_lots(consumer: Any) -> int:
    """Consume 500 messages."""
    messages: list[Any] = consumer.consume(_LOT, 30.0)
    if any(message.error() is not None for message in messages):
        raise RuntimeError(str(next(message.error() for message in messages if message.error() is not None)))
    return len(messages)


def by_polls(consumer: Any) -> int:
    """Poll 500 messages."""
    poll = consumer.poll
    for _ in range(_LOT):
        message = poll(30.0)
        if message is None or message.error() is not None:
            raise RuntimeError("no message" if message is None else str(message.error()))
    return _LOT


def by_rows(consumer: Any) -> int:
    """Consume rows."""
    rows: int = consumer.consume_arrow(_ROWS, 30.0).num_rows
    return rows


def print_memory(ends: Sequence[int]) -> None:
    """Print the MB that reading the archive adds to an idle consumer; in a process of its own.

    Another consumer reads some records first, which loads the libraries of the store and of the decoder.
    """
    with TieredConsumer(config_of("", TierMode.TIERED_STORAGE_ONLY)) as first:
        first.assign([TopicPartition(TOPIC, 0, ends[0] - 2 * _LOT)])
        by_lots(first)
    consumer = TieredConsumer(config_of("", TierMode.TIERED_STORAGE_ONLY))
    consumer.poll(0.1)
    idle = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(len(ends))])
    count = 0
    while count < sum(ends) - _LOT:
        count += by_lots(consumer)
    status = Path("/proc/self/status").read_text()
    peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) << 10
    consumer.close()
    print((peak - idle) / 1e6)


def memory(ends: Sequence[int]) -> float:
    """Return what a fresh process prints."""
    command = [sys.executable, "-m", "dev.bench.consumer", _MEMORY, *map(str, ends)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    """Fill, ship, consume in rounds, report."""
    if sys.argv[1:2] == [_MEMORY]:
        print_memory([int(end) for end in sys.argv[2:]])
        return 0
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=3_000_000)
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
        plain = partial(Consumer, config_of(bootstrap, None) | _NO_WAIT)
        preferred = partial(TieredConsumer, config_of(bootstrap, TierMode.KAFKA_PREFERRED) | _NO_WAIT)
        things: dict[str, Callable[[], float]] = {
            PLAIN: partial(consume, partial(Consumer, config_of(bootstrap, None)), ends, by_lots),
            FASTEST: partial(consume, plain, ends, by_lots),
            PLAIN_POLLS: partial(consume, plain, ends, by_polls),
            LIVE_POLLS: partial(consume, preferred, ends, by_polls),
        }
        for name, location in (("directory", directory.as_uri()), ("S3", ARCHIVE_URL)):
            alone = partial(TieredConsumer, config_of(bootstrap, TierMode.TIERED_STORAGE_ONLY, location))
            things[f"{name}, {BY_MESSAGES}"] = partial(consume, alone, ends, by_lots)
            things[f"{name}, {BY_ARROW}"] = partial(consume, alone, ends, by_rows)
        found = rounds(things, options.repeat, warm_up=1)
        # The difference is less than what the machine's speed changes from minute to minute, so these two alternate.
        pair: dict[str, Callable[[], float]] = {
            FASTEST: things[FASTEST],
            LIVE: partial(consume, preferred, ends, by_lots),
        }
        seam = rounds(pair, _MORE * options.repeat, warm_up=1)
        used = memory(ends)
    rates = {**found, LIVE: seam[LIVE]}
    print_table(("M records/s", *rates), [("", *(statistics.median(rates[name]) for name in rates))])
    print()
    archive = [f"{place}, {way}" for place in ("directory", "S3") for way in (BY_MESSAGES, BY_ARROW)]
    ratios = [(name, median_ratio(found[name], found[FASTEST])) for name in archive]
    ratios.append((LIVE_POLLS, median_ratio(found[LIVE_POLLS], found[PLAIN_POLLS])))
    print_table(("ratio to the same without the wait", ""), ratios)
    print()
    goals = [Goal(f"{LIVE} / {FASTEST}", median_ratio(seam[LIVE], seam[FASTEST]), LEAST_LIVE, at_least=True)]
    for name, bound in zip(archive, (LEAST_ARCHIVE, LEAST_ARROW) * 2, strict=True):
        goals.append(Goal(f"{name} / {PLAIN}", median_ratio(found[name], found[PLAIN]), bound, at_least=True))
    goals.append(Goal("memory above an idle consumer", used, MOST_MB, at_least=False, unit=" MB"))
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
