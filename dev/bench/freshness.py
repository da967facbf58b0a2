"""`python -m dev.bench.freshness`: the time from a record's acknowledgement until a following reader can see it.

One broker in KRaft mode, partitions that a process of its own writes to at a fixed rate, and optionally many more that
no producer writes to. The agent ships a live tail. A reader follows the log of packs: it requests the name of the next
pack each 0.1 s, and reads its index. One in twenty records counts, from its acknowledgement to the end of that request.
With the default linger a batch has some 16 records; the CPU of broker and agent grows with the number of batches.

    python -m dev.bench.freshness                      300 partitions, all written to
    python -m dev.bench.freshness --led 10000          and 9,700 that no producer writes to
    python -m dev.bench.freshness --put-delay-ms 100   the store answers each PUT that much later
    python -m dev.bench.freshness --tls                the store serves https, as those of production do

The goals are those of 300 written partitions: p88 and p99 of that time; the agent's CPU, and its memory above that of
an agent without a tail; the broker's CPU above its own without a tail. With more partitions, or a store that answers
each PUT later, the goals of the time are wider. Exits with 1 if one is missed; `--no-gate` only prints.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from dev.bench.measuring.agent_runs import CLUSTER, bench_agent
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table, quantile
from dev.bench.measuring.processes import ProcessWatch
from dev.bench.measuring.records import json_value, key
from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import Delay
from dev.local.proxy.rules import Rule
from dev.local.proxy.s3 import S3FaultProxy
from ts_common.archive.object_keys import ClusterKeys, pack_name, pack_number
from ts_common.archive.tail_logs import Index, newest_pack
from ts_common.archive.tail_pack import HEAD_BYTES, decode_head
from ts_common.errors import ObjectNotFound
from ts_common.store.contract import ByteRange, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Connection, StorageOptions

TOPIC, QUIET = "bench", "quiet"
BUCKET = "bench"
_URL = f"s3://{BUCKET}/archive"  # of all runs: the first with a tail writes a commit for each partition
_ONE_IN = 20
_POLL_SECONDS = 0.1
_VALUE_BYTES = 300
_WARM_SECONDS = 15.0
_PREFIX = "ts.segment.uploader."
# For 10,000 partitions two cores need 40 s, then two minutes until each has `log.start`, and two for a commit. Next to
# much other work these are 80 s and twice 10 minutes.
_CREATION_SECONDS = 600.0
_READY_SECONDS = 1800.0
_HEAP_MB = 2000
_PROPERTIES = {
    "replica.high.watermark.checkpoint.interval.ms": "5000",  # as in production
    "log.index.size.max.bytes": "1048576",  # 10,000 partitions then have 20 GB of sparse files, not 200
}


@dataclass
class Run:
    """What one run of an agent needed.

    Attributes:
        delays: seconds of each record that counts, if the agent ships a tail.
        agent: share of a core.
        broker: share of a core.
        peak_mib: the agent's resident memory.
        packs: number of packs.
        seconds: of the run.
    """

    delays: list[float]
    agent: float
    broker: float
    peak_mib: float
    packs: int
    seconds: float


def produce(bootstrap: str, partitions: int, rate: int, linger: int, acknowledged: Path) -> None:
    """Produce until standard input ends; write time, partition and offset of some acknowledged records."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": linger})
    generator = random.Random(7)
    values = [json_value(generator, number) for number in range(1_000)]
    with acknowledged.open("w") as file:

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                file.write(f"{time.time():.4f} {message.partition()} {message.offset()}\n")

        ended = threading.Event()

        def wait_for_end() -> None:
            sys.stdin.read()
            ended.set()

        threading.Thread(target=wait_for_end, daemon=True).start()
        began, sent = time.monotonic(), 0
        while not ended.is_set():
            due = int((time.monotonic() - began) * rate)
            for number in range(sent, due):
                note = delivered if number % _ONE_IN == 0 else None
                value, partition = values[number % 1000], number % partitions
                while True:
                    try:
                        producer.produce(TOPIC, value, key(number), partition=partition, on_delivery=note)
                        break
                    except BufferError:  # a broker that is late; the rate is made up for
                        producer.poll(0.1)
                if number % 200 == 0:
                    producer.poll(0)
            sent = due
            producer.poll(0.005)
        producer.flush(30)


@contextmanager
def producing(cluster: LocalCluster, options: argparse.Namespace, acknowledged: Path) -> Iterator[None]:
    """Produce in a process of its own during the block."""
    rate = options.megabytes * 1_000_000 // _VALUE_BYTES
    arguments = [cluster.bootstrap, str(options.partitions), str(int(rate)), str(options.linger_ms), str(acknowledged)]
    command = [sys.executable, "-m", "dev.bench.freshness", "--produce", json.dumps(arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate()


def follow(store: ObjectStore, keys: ClusterKeys, until: float) -> tuple[dict[int, list[tuple[int, float]]], int]:
    """Return when each end of a partition became visible, and the number of packs."""
    seen: dict[int, list[tuple[int, float]]] = defaultdict(list)
    prefix, packs = keys.tail("1"), 0
    newest = newest_pack(store, keys, "1")
    number = 1 if newest is None else pack_number(newest.key.removeprefix(prefix)) or 1
    while time.time() < until:
        name = pack_name(number)
        try:
            data, _ = store.get(prefix + name, ByteRange(0, HEAD_BYTES))
        except ObjectNotFound:
            time.sleep(_POLL_SECONDS)
            continue
        visible = time.time()
        for entry in Index(name, prefix + name, decode_head(data, name), data).entries():
            topic, _, partition = entry.directory.rpartition("-")
            if entry.object == name and topic == TOPIC:
                seen[int(partition)].append((entry.end, visible))
        number, packs = number + 1, packs + 1
    return seen, packs


def delays(
    acknowledged: Path, seen: Mapping[int, Sequence[tuple[int, float]]], since: float, until: float
) -> list[float]:
    """Return the seconds from acknowledgement to visibility of the records of a time.

    Raises:
        LookupError: a record never became visible.
    """
    found = []
    for line in acknowledged.read_text().splitlines():
        at, partition, offset = line.split()
        if since <= float(at) < until:
            ends = seen[int(partition)]
            place = bisect_right(ends, int(offset), key=lambda end: end[0])
            if place == len(ends):
                raise LookupError(f"offset {offset} of partition {partition} never became visible")
            found.append(max(0.0, ends[place][1] - float(at)))
    return found


def environment_of(cluster: LocalCluster) -> Mapping[str, str]:
    """Return the variables that clients of the S3 server need."""
    if cluster.s3 is None:
        raise ValueError("a cluster without an S3 server")
    return cluster.s3.environment()


def tls_properties(cluster: LocalCluster) -> dict[str, str]:
    """Return the agent's settings for a store with TLS; none for one without."""
    if (files := cluster.certificates) is None:
        return {}
    named = {"ca.bundle": files.authority, "client.certificate": files.client, "client.key": files.client_key}
    return {f"storage.service.endpoint.s3.{name}": str(path) for name, path in named.items()}


def open_bucket(cluster: LocalCluster) -> ObjectStore:
    """Return the store that the agents write to."""
    options = StorageOptions()
    if (files := cluster.certificates) is not None:
        authority, client, key = map(str, (files.authority, files.client, files.client_key))
        options = StorageOptions(Connection(ca_bundle=authority, client_certificate=client, client_key=key))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment_of(cluster).items():
            patched.setenv(name, value)
        return open_store(_URL, options)


def measure(cluster: LocalCluster, options: argparse.Namespace, interval: int) -> Run:
    """Run an agent for some seconds while records are produced."""
    environment = environment_of(cluster)
    name = f"agent-{interval}"
    acknowledged = cluster.directory / f"{name}.acknowledged"
    with ExitStack() as opened:
        if options.put_delay_ms and cluster.s3 is not None:
            proxy = opened.enter_context(S3FaultProxy(cluster.s3))
            proxy.script(Rule(Delay(options.put_delay_ms / 1000), frozenset({"PUT"}), times=None))
            environment = proxy.environment()
        agent = bench_agent(
            cluster,
            _URL,
            f"{TOPIC},{QUIET}",
            name=name,
            environment=environment,
            properties={_PREFIX + "tail.interval.ms": str(interval), **tls_properties(cluster)},
        )
        agent.start()
        wait_ready(agent, options, interval)
        with producing(cluster, options, acknowledged):
            time.sleep(_WARM_SECONDS)
            return watched(cluster, agent, options, acknowledged, interval)


def wait_ready(agent: AgentProcess, options: argparse.Namespace, interval: int) -> None:
    """Wait until the agent has a commit of each partition, and ships its tail."""

    def ships() -> bool:
        samples = agent.metrics()  # the status page costs ten times as much
        if samples.get("ts_uploader_led_partitions", 0) < options.led:
            return False
        if samples["ts_uploader_position_unknown_partitions"]:
            return False
        tail = [samples.get(f"ts_uploader_tail_{name}partitions") for name in ("", "beginning_")]
        return not interval or tail == [options.led, 0]

    wait_for(ships, "the agent to ship all tails", _READY_SECONDS, every=2.0, state=agent.tail)


def watched(
    cluster: LocalCluster, agent: AgentProcess, options: argparse.Namespace, acknowledged: Path, interval: int
) -> Run:
    """Follow the log for the time of the run."""
    broker = cluster.brokers[1]
    with ProcessWatch(agent.pid) as of_agent, ProcessWatch(broker.pid) as of_broker:
        began = time.time()
        until, seen, packs = began + options.seconds, dict[int, list[tuple[int, float]]](), 0
        if interval:
            with open_bucket(cluster) as store:
                seen, packs = follow(store, ClusterKeys(CLUSTER), until + 10)
        else:
            time.sleep(options.seconds)
        agent.stop()
    found = delays(acknowledged, seen, began + 2, until) if interval else []
    used = of_agent.cpu_seconds(began, until), of_broker.cpu_seconds(began, until)
    return Run(
        found, used[0] / options.seconds, used[1] / options.seconds, of_agent.peak_mib, packs, options.seconds + 10
    )


def report(without: Run, runs: Mapping[int, Run], options: argparse.Namespace) -> int:
    """Print the table and the goals; return the number of missed ones."""
    head = ("interval", "p50 s", "p88 s", "p99 s", "agent %", "broker %", "RSS MiB", "packs/s")
    rows: list[tuple[object, ...]] = [
        ("no tail", "", "", "", 100 * without.agent, 100 * without.broker, without.peak_mib, 0.0)
    ]
    rows += [
        (
            f"{interval} ms",
            *(quantile(run.delays, share) for share in (0.5, 0.88, 0.99)),
            100 * run.agent,
            100 * run.broker,
            run.peak_mib,
            run.packs / run.seconds,
        )
        for interval, run in runs.items()
    ]
    print_table(head, rows)
    print()
    run = runs[min(runs)]
    p88, p99 = quantile(run.delays, 0.88), quantile(run.delays, 0.99)
    is_wide = options.led > options.partitions or options.put_delay_ms
    return print_goals(
        [
            Goal(
                "p88 of acknowledged to visible",
                p88,
                1.2 if is_wide else 1.0,
                at_least=False,
                unit=" s",
            ),
            Goal(
                "p99 of acknowledged to visible",
                p99,
                5 if is_wide else 2,
                at_least=False,
                unit=" s",
            ),
            Goal("agent's CPU", 100 * run.agent, 5, at_least=False, unit=" % of a core"),
            Goal("broker's further CPU", 100 * (run.broker - without.broker), 4, at_least=False, unit=" % of a core"),
            Goal("agent's further memory", run.peak_mib - without.peak_mib, 30, at_least=False, unit=" MiB"),
        ]
    )


def main() -> int:
    """Run and report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=300, help="that records are produced to")
    arguments.add_argument("--led", type=int, default=300, help="partitions in all")
    arguments.add_argument("--megabytes", type=float, default=3.0, help="a second")
    arguments.add_argument("--intervals", type=int, nargs="+", default=[700, 1000, 5000], help="ms between packs")
    arguments.add_argument("--linger-ms", type=int, default=500, help="of the producer: it decides the size of batches")
    arguments.add_argument("--put-delay-ms", type=int, default=0, help="that each PUT needs more")
    arguments.add_argument("--tls", action="store_true", help="the store serves https; without --put-delay-ms")
    arguments.add_argument("--seconds", type=int, default=60, help="of each run")
    arguments.add_argument("--produce", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.produce:
        bootstrap, partitions, rate, linger, acknowledged = json.loads(options.produce)
        produce(bootstrap, int(partitions), int(rate), int(linger), Path(acknowledged))
        return 0
    options.led = max(options.led, options.partitions)
    if options.tls and options.put_delay_ms:
        arguments.error("--tls: the proxy that delays each PUT has no certificates")
    cluster = LocalCluster(
        mode="kraft", s3=True, tls=options.tls, buckets=[BUCKET], properties=_PROPERTIES, name="bench"
    )
    cluster.brokers[1].heap_mb = _HEAP_MB
    with cluster:
        cluster.create_topic(TOPIC, partitions=options.partitions)
        if options.led > options.partitions:
            cluster.create_topic(QUIET, partitions=options.led - options.partitions, seconds=_CREATION_SECONDS)
        without = measure(cluster, options, 0)
        runs = {interval: measure(cluster, options, interval) for interval in options.intervals}
        missed = report(without, runs, options)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
