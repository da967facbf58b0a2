"""`python -m dev.bench.endpoint`: an endpoint next to the broker that the archive was shipped from.

A topic of two partitions for each codec, produced by a real broker, all segments closed and shipped by the agent to a
directory and to S3. One endpoint serves each, with a cache that has room for all. Each round reads the topic:

- by librdkafka (confluent-kafka), which consumes it from its beginning. By default it waits a second before it fills a
  full queue again, which a loop without work empties in 0.1 s: so it waits 5 ms here;
- by Java's `ConsumerPerformance`, whose own rate without the rebalance counts;
- by raw fetches of 1 MiB a partition, whose records the kernel drops;

from the broker, and from each endpoint. Processor seconds are those of the server for the raw fetches.

The goals: 0.9 of the broker's rate for consumers, 0.6 for raw fetches. Exits with 1 if one is missed; `--no-gate` only
prints.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dev.bench.measuring.agent_runs import CLUSTER
from dev.bench.measuring.endpoint_runs import EndpointProcess, cpu_seconds
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from dev.bench.measuring.raw_fetches import Boundaries, RawReader, boundaries_of
from dev.bench.measuring.topics import CODECS, ClosedPart
from dev.bench.spark import ARCHIVE_URL, BUCKET, fill_and_ship
from dev.local.jars import kafka_jars
from dev.local.jdk import program
from dev.local.kafka.cluster import LocalCluster

BROKER, ON_DISK, ON_S3 = "broker", "endpoint, directory", "endpoint, S3"
LIBRDKAFKA, JAVA, RAW = "librdkafka", "Java perf consumer", "raw fetches"
LEAST = {LIBRDKAFKA: 0.9, JAVA: 0.9, RAW: 0.6}
_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


@dataclass(frozen=True)
class Source:
    """A server of the topics."""

    bootstrap: str
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)


def consume(source: Source, topic: str, ends: Sequence[int]) -> float:
    """Return MB/s of values by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": source.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(len(ends))])
    left, size, began = {*range(len(ends))}, 0, 0.0
    try:
        while left:
            for message in consumer.consume(1000, 10.0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                began = began or time.perf_counter()
                value, number = message.value(), message.partition()
                size += len(value or b"")
                if message.offset() == ends[number or 0] - 1:
                    left.discard(number or 0)
        return size / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()


def perform(source: Source, topic: str, ends: Sequence[int]) -> float:
    """Return MB/s by Kafka's own tool, which excludes the rebalance.

    Raises:
        RuntimeError: it printed no rate.
    """
    arguments = ["--bootstrap-server", source.bootstrap, "--topic", topic, "--messages", str(sum(ends))]
    arguments += ["--group", token_hex(6), "--timeout", "30000"]
    command = [program("java"), "-Xmx512m", "-cp", f"{kafka_jars('4')}/*", _PERFORMANCE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line for line in done.stdout.splitlines() if re.match(r"\d{4}-\d\d-\d\d", line)]
    if not rows:
        raise RuntimeError(f"{_PERFORMANCE} printed no rate: {done.stdout} {done.stderr}")
    return float(rows[-1].split(",")[8])  # fetch.MB.sec


def fetch(source: Source, topic: str, boundaries: Mapping[int, Boundaries], used: list[float]) -> float:
    """Return MB/s of raw fetches, and add processor seconds for each GB to `used`."""
    reader = RawReader(source.address, topic, boundaries)
    before, began = cpu_seconds(source.pid), time.perf_counter()
    try:
        size = reader.read_all()
    finally:
        reader.close()
    seconds = time.perf_counter() - began
    used.append((cpu_seconds(source.pid) - before) / (size / 1e9))
    return size / 1e6 / seconds


def measure(
    topic: str, codec: str, sources: Mapping[str, Source], parts: Sequence[ClosedPart], repeat: int
) -> list[Goal]:
    """Print the rates of one topic; return the goals."""
    ends = [part.end for part in parts]
    boundaries = {part.partition: boundaries_of(part.logs) for part in parts}
    goals: list[Goal] = []
    table = []
    for way, least in LEAST.items():
        used: dict[str, list[float]] = {name: [] for name in sources}
        things: dict[str, Callable[[], float]] = {}
        for name, source in sources.items():
            if way == RAW:
                things[name] = partial(fetch, source, topic, boundaries, used[name])
            else:
                things[name] = partial(consume if way == LIBRDKAFKA else perform, source, topic, ends)
        found = rounds(things, repeat, warm_up=1)
        table.append((f"{codec}, {way}", *(statistics.median(found[name]) for name in sources)))
        if way == RAW:
            table.append((f"{codec}, CPU s/GB", *(statistics.median(used[name]) for name in sources)))
        goals += [
            Goal(f"{codec}, {way}: {name} / {BROKER}", median_ratio(found[name], found[BROKER]), least, at_least=True)
            for name in (ON_DISK, ON_S3)
        ]
    print_table(("MB/s", *sources), table)
    print()
    return goals


def main() -> int:
    """Fill, ship, read in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--records", type=int, default=1_500_000, help="number of records of each codec")
    arguments.add_argument("--repeat", type=int, default=5, help="rounds, after one that warms up")
    arguments.add_argument("--codecs", nargs="+", default=CODECS[:2], choices=CODECS)
    options = arguments.parse_args()
    goals: list[Goal] = []
    with ExitStack() as opened:
        cluster = opened.enter_context(LocalCluster(s3=True, buckets=[BUCKET], name="bench"))
        if cluster.s3 is None:
            raise RuntimeError("the cluster has no S3 server")
        os.environ.update(cluster.s3.environment())
        directory = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-endpoint.", dir=cluster.directory))
        )
        archive = directory / "archive"
        archive.mkdir()
        topics = {codec: f"bench-{codec}" for codec in options.codecs}
        parts = {
            codec: fill_and_ship(cluster, topic, codec, options.records, archive) for codec, topic in topics.items()
        }
        room = ["--cache-mib", "2048"]
        on_disk = opened.enter_context(EndpointProcess(archive.as_uri(), CLUSTER, directory / "disk.log", room))
        on_s3 = opened.enter_context(EndpointProcess(ARCHIVE_URL, CLUSTER, directory / "s3.log", room))
        broker = cluster.brokers[1]
        sources = {
            BROKER: Source(cluster.bootstrap, broker.pid),
            ON_DISK: Source(on_disk.bootstrap, on_disk.pid),
            ON_S3: Source(on_s3.bootstrap, on_s3.pid),
        }
        for codec, topic in topics.items():
            goals += measure(topic, codec, sources, parts[codec], options.repeat)
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
