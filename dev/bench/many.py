"""`python -m dev.bench.many`: the agent's memory with 3 partitions and with 10,000.

One broker in ZooKeeper mode, or with `--mode kraft` of Kafka 4 in KRaft mode, with a larger heap than usual. A topic of
three partitions has closed segments of 64 MiB (`few`). Ten topics have 10,000 partitions in all (`many-0` to `many-9`),
some of them with a small closed segment. The agent runs twice from a fresh start with an empty prefix: first with
`few`, while the log dir has nothing else, then with everything, where it reads the position of each partition. When all
closed segments are committed, `/metrics` is read ten times, as by a Prometheus server. RSS is the kernel's `VmHWM`,
start-up included. Threads and descriptors are the maximum of samples every 20 ms.

The goals: under 120 MiB with 3 partitions, under 160 MiB with 10,000. Exits with 1 if one is missed; `--no-gate` only
prints.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dev.bench.measuring.agent_runs import AgentLog, bench_agent, wait_committed
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.measuring.processes import ProcessWatch
from dev.bench.measuring.topics import CODECS, SEGMENT_BYTES, closed_parts, produce
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.process import ServerDiedError

BUCKET = "bench"
FEW, MANY = "few", "many"
TOPICS = 10
GOALS_MIB = {FEW: 120.0, MANY: 160.0}
HEAP_MB = 1_500
START_SECONDS = 180.0
_SMALL_SEGMENT = 500  # bytes: two batches of one record do not fit
_VALUE = b"v" * 300
_RECORDS_PER_MIB = 3_200
_SCRAPES = 10
_SECONDS = 900.0


@dataclass(frozen=True)
class Run:
    """The cost of one run of the agent.

    Attributes:
        partitions: that it led.
        segments: that it shipped.
        first_seconds: from its start to the first commit.
        all_seconds: from its start to the last commit.
        asked_seconds: from its start until it had read the position of every partition.
        cpu_seconds: of the process until then.
        shipped_mib: peak memory until then.
        scraped_mib: peak memory after `/metrics` was read too.
        scrape_seconds: the longest of these reads.
        threads: maximum.
        descriptors: maximum.
    """

    partitions: int
    segments: int
    first_seconds: float
    all_seconds: float
    asked_seconds: float
    cpu_seconds: float
    shipped_mib: float
    scraped_mib: float
    scrape_seconds: float
    threads: int
    descriptors: int


def fill_few(cluster: LocalCluster, megabytes: int) -> dict[str, int]:
    """Fill three partitions with closed segments of 64 MiB; return the end of each one's closed part."""
    settings = {"segment.bytes": str(SEGMENT_BYTES), "segment.ms": "604800000"}
    cluster.create_topic(FEW, partitions=len(CODECS), config=settings)
    for number in range(len(CODECS)):
        produce(cluster, FEW, number, "none", megabytes * _RECORDS_PER_MIB)
    return {f"{FEW}-{part.partition}": part.end for part in closed_parts(cluster, FEW, range(len(CODECS)))}


def fill_many(cluster: LocalCluster, partitions: int, closed: int) -> dict[str, int]:
    """Fill partitions with a record each, and the first `closed` with two, so that a segment closes; as `fill_few`."""
    each = partitions // TOPICS
    for number in range(TOPICS):
        settings = {"segment.bytes": str(_SMALL_SEGMENT), "segment.index.bytes": "128"}
        cluster.create_topic(f"{MANY}-{number}", partitions=each, config=settings)
    places = [(f"{MANY}-{number % TOPICS}", number // TOPICS) for number in range(each * TOPICS)]
    producer = cluster.producer({"linger.ms": 0})
    for some in (places, places[:closed]):
        for topic, partition in some:
            producer.produce(topic, _VALUE, b"key", partition=partition)
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("some records were not acknowledged")
    wanted = {f"{topic}-{partition}": 1 for topic, partition in places[:closed]}
    wait_for(
        lambda: all((cluster.brokers[1].log_dirs[0] / name / f"{1:020d}.log").exists() for name in wanted),
        f"{closed} partitions to roll",
    )
    return wanted


def ship(
    cluster: LocalCluster, name: str, topics: str, partitions: int, wanted: Mapping[str, int], *, each: bool = False
) -> Run:
    """Run the agent from a fresh start; with `each`, it reports metrics of each partition."""
    if cluster.s3 is None:
        raise ValueError("a cluster without an S3 server")
    environment = cluster.s3.environment()
    agent = bench_agent(
        cluster,
        f"s3://{BUCKET}/{name}",
        topics,
        name=f"agent-{name}",
        environment=environment,
        properties={"metrics.partitions": str(each).lower()},
    )
    log = AgentLog(agent.log)
    began = time.time()
    agent.launch()
    try:
        with ProcessWatch(agent.pid) as watch:
            wait_committed(agent, log, wanted, seconds=_SECONDS, every=0.25)
            committed = [event["at"] for event in log.events("committed")]
            before_scrapes = watch.peak_mib
            slowest = 0.0

            def asked() -> bool:
                nonlocal slowest
                if not agent.alive:
                    raise ServerDiedError(f"{agent.name} ended.\n{agent.tail()}")
                started = time.monotonic()
                samples = agent.metrics()
                slowest = max(slowest, time.monotonic() - started)
                led, unknown = (samples[f"ts_uploader_{name}_partitions"] for name in ("led", "position_unknown"))
                return led >= partitions and not unknown

            wait_for(asked, f"the positions of {partitions} partitions", _SECONDS, every=1.0, state=agent.tail)
            all_asked = time.time()
            for _ in range(_SCRAPES):
                asked()
        return Run(
            partitions,
            len(log.events("segment_shipped")),
            min(committed) - began,
            max(committed) - began,
            all_asked - began,
            watch.cpu_seconds(began, all_asked),
            before_scrapes,
            watch.peak_mib,
            slowest,
            watch.peak_threads,
            watch.peak_descriptors,
        )
    finally:
        agent.stop()


def report(found: Mapping[str, Run]) -> int:
    """Print the table and the goals; return how many were missed."""
    rows: list[Sequence[object]] = [
        ("partitions led", *(run.partitions for run in found.values())),
        ("segments shipped", *(run.segments for run in found.values())),
        ("seconds from start to first commit", *(f"{run.first_seconds:.1f}" for run in found.values())),
        ("  to the last commit", *(f"{run.all_seconds:.1f}" for run in found.values())),
        ("  to every position read, at most", *(f"{run.asked_seconds:.1f}" for run in found.values())),
        ("CPU seconds until then", *(f"{run.cpu_seconds:.1f}" for run in found.values())),
        ("peak RSS until then, MiB", *(f"{run.shipped_mib:.0f}" for run in found.values())),
        (f"peak RSS after {_SCRAPES} reads of /metrics, MiB", *(f"{run.scraped_mib:.0f}" for run in found.values())),
        ("slowest read of /metrics, s", *(run.scrape_seconds for run in found.values())),
        ("threads", *(run.threads for run in found.values())),
        ("descriptors", *(run.descriptors for run in found.values())),
    ]
    print_table(("", *found), rows)
    print()
    return print_goals(
        [
            Goal(f"{run.partitions} partitions: peak RSS", run.scraped_mib, GOALS_MIB[name], False, " MiB")
            for name, run in found.items()
        ]
    )


def main() -> int:
    """Fill, ship twice, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=10_000, help="number of partitions, a multiple of ten")
    arguments.add_argument("--closed", type=int, default=1_000, help="partitions with a closed segment")
    arguments.add_argument("--megabytes", type=int, default=140, help="approximate size of each partition of `few`")
    arguments.add_argument("--mode", choices=["zookeeper", "kraft"], default="zookeeper", help="mode of the cluster")
    arguments.add_argument("--each", action="store_true", help="metrics of each partition (metrics.partitions=true)")
    options = arguments.parse_args()
    cluster = LocalCluster(mode=options.mode, s3=True, buckets=[BUCKET], name="bench")
    broker = cluster.brokers[1]
    broker.heap_mb, broker.start_seconds = HEAP_MB, START_SECONDS  # for ten thousand partitions
    with cluster:
        few = fill_few(cluster, options.megabytes)
        found = {FEW: ship(cluster, FEW, FEW, len(CODECS), few)}
        began = time.monotonic()
        many = fill_many(cluster, options.partitions, options.closed)
        print(f"{options.partitions} partitions made in {time.monotonic() - began:.0f} s", flush=True)
        partitions = options.partitions // TOPICS * TOPICS + len(CODECS)
        found[MANY] = ship(cluster, MANY, ".*", partitions, {**few, **many}, each=options.each)
        missed = report(found)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
