"""`python -m dev.bench.rate`: the accuracy of `upload.max.bytes.per.second`.

An agent ships closed segments of a real broker to a real S3 server through a TCP link that counts bytes. For each limit
it starts again. Five seconds after the first segment, the bytes of the next `--seconds` are compared with the limit.
Both directions count, with headers and responses, so a limit below some hundred KB/s would seem exceeded. The goal:
within 5 % of each limit. Exits with 1 if it is missed; `--no-gate` only prints.
"""

import sys
import time
from dataclasses import dataclass
from itertools import pairwise

from dev.bench.measuring.agent_runs import AgentLog, bench_agent
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.shipping import BUCKET, TOPIC, fill
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.link import LinkProxy

WITHIN = 0.05
LIMITS = (2_000_000, 6_000_000)
_SETTLE_SECONDS = 5.0
_SECONDS = 120.0
_KEY = "ts.segment.uploader.upload.max.bytes.per.second"


@dataclass(frozen=True)
class Kept:
    """The result for one limit.

    Attributes:
        limit: bytes per second.
        found: bytes per second on the link.
        least, most: of all seconds.
    """

    limit: int
    found: float
    least: float
    most: float


def measure(cluster: LocalCluster, limit: int, seconds: int, threads: int) -> Kept:
    """Run the agent once with a limit."""
    if cluster.s3 is None:
        raise ValueError("a cluster without an S3 server")
    name = f"rate-{limit}"
    with LinkProxy(name, cluster.s3.port) as link:
        endpoint = f"http://{link.address}"
        environment = {
            **cluster.s3.environment(),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_S3": endpoint,
        }
        agent = bench_agent(
            cluster,
            f"s3://{BUCKET}/{name}",
            TOPIC,
            name=name,
            threads=threads,
            environment=environment,
            properties={_KEY: str(limit)},
        )
        log = AgentLog(agent.log)
        agent.launch()
        try:
            agent.wait_ready()
            start = link.counters().moved
            # Reading positions moves some KB; a first second's worth is segments.
            wait_for(
                lambda: link.counters().moved - start > limit, "the first bytes to pass", _SECONDS, state=agent.tail
            )
            time.sleep(_SETTLE_SECONDS)
            samples = [(time.monotonic(), link.counters().moved)]
            for _ in range(seconds):
                time.sleep(max(0.0, samples[0][0] + len(samples) - time.monotonic()))
                samples.append((time.monotonic(), link.counters().moved))
            if not agent.alive or log.events("task_failed"):
                raise SystemExit(f"an upload failed meanwhile\n{agent.tail()}")
        finally:
            agent.kill()
    rates = [(moved - before) / (at - since) for (since, before), (at, moved) in pairwise(samples)]
    (began, first), (ended, last) = samples[0], samples[-1]
    return Kept(limit, (last - first) / (ended - began), min(rates), max(rates))


def main() -> int:
    """Fill, ship under each limit, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--seconds", type=int, default=30, help="time of measurement of each limit")
    arguments.add_argument("--threads", type=int, default=3, help="upload threads")
    options = arguments.parse_args()
    megabytes = int(max(LIMITS) * (options.seconds + 3 * _SETTLE_SECONDS) / 1e6)
    with LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster:
        fill(cluster, max(250, int(megabytes * 1.5)))
        found = [measure(cluster, limit, options.seconds, options.threads) for limit in LIMITS]
    rows = [(f"{kept.limit / 1e6:g}", kept.found / 1e6, kept.least / 1e6, kept.most / 1e6) for kept in found]
    print_table(("MB/s limit", "found", "least second", "most"), rows)
    print()
    missed = print_goals(
        [
            Goal(f"off by, at {kept.limit / 1e6:g} MB/s", abs(kept.found / kept.limit - 1), WITHIN, at_least=False)
            for kept in found
        ]
    )
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
