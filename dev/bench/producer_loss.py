"""`python -m dev.bench.producer_loss`: the cost of shipping for a producer of the same broker.

One topic has cold segments, closed and in the page cache; a producer writes to another topic (values of 300 bytes,
acks=all). First the producer's maximum rate is measured alone. Then, at half of it, each round measures the producer
alone, with an agent that ships the cold segments, and with bare boto3 (`dev.bench.bare_boto3`). Both shippers use the
same files, as many threads, and an empty prefix of an S3 server on the same machine. Time counts from the first file
to the last object. A producer's loss is the difference to the requested rate.

The goal: with the agent it loses less than 5 percentage points more than with bare boto3, in the median of the rounds.
Exits with 1 if it is missed; `--no-gate` only prints.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dev.bench.measuring.agent_runs import Cost
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table, quantile, rounds
from dev.bench.paced_producer import PacedProducer, Produced
from dev.bench.shipping import BUCKET, Shipping, fill
from dev.local.kafka.cluster import LocalCluster

HOT = "hot"
HOT_PARTITIONS = 3
GOAL_POINTS = 5.0
ALONE, AGENT, BARE = "alone", "with the agent", "with bare boto3"


@dataclass(frozen=True)
class ProducerWindow:
    """The producer's results in one window.

    Attributes:
        rate: acknowledged records a second.
        p99: seconds from a record's handover to the producer to its acknowledgement.
        seconds: length of the window, which is the time of shipping.
    """

    rate: float
    p99: float
    seconds: float


def window(produced: Produced, began: float, ended: float) -> ProducerWindow:
    """Return the results between two instants."""
    p99 = quantile(produced.latencies_between(began, ended), 0.99)
    return ProducerWindow(produced.rate_between(began, ended), p99, ended - began)


class Producing:
    """Producers of the hot topic, one after another.

    Args:
        cluster: with the topic.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._bootstrap = cluster.bootstrap

    def alone(self, rate: float, seconds: float) -> ProducerWindow:
        """Measure the producer without shipping."""
        with PacedProducer(self._bootstrap, HOT, HOT_PARTITIONS, rate) as producer:
            producer.wait_under_way()
            began = time.time()
            time.sleep(seconds)  # the window
            ended = time.time()
            return window(producer.finish(), began, ended)

    def during(self, rate: float, ship: Callable[[], Cost]) -> ProducerWindow:
        """Measure the producer during shipping, without the shipper's start-up."""
        with PacedProducer(self._bootstrap, HOT, HOT_PARTITIONS, rate) as producer:
            producer.wait_under_way()
            cost = ship()
            return window(producer.finish(), cost.began, cost.ended)


def losses(found: Sequence[ProducerWindow], asked: float) -> list[float]:
    """Return how far each rate is below the requested one, in percent; 0 if it is not."""
    return [max(0.0, 100 * (1 - one.rate / asked)) for one in found]


def report(found: Mapping[str, Sequence[ProducerWindow]], asked: float) -> int:
    """Print the table and the goal; return 1 if it was missed."""
    rows = []
    for name, windows in found.items():
        lost, seconds = losses(windows, asked), [one.seconds for one in windows]
        latencies = [1000 * one.p99 for one in windows]
        rows.append(
            (
                name,
                f"{statistics.median(one.rate for one in windows) / 1000:.1f}",
                f"{statistics.median(lost):.1f} ({min(lost):.1f} to {max(lost):.1f})",
                f"{statistics.median(latencies):.0f} ({min(latencies):.0f} to {max(latencies):.0f})",
                f"{statistics.median(seconds):.1f}",
            )
        )
    print_table(("median (range)", "1000 records/s", "loss, %", "p99 to ack, ms", "window, s"), rows)
    print()
    more = [agent - bare for agent, bare in zip(losses(found[AGENT], asked), losses(found[BARE], asked), strict=True)]
    print(f"points that the agent cost more, round by round: {', '.join(f'{points:.1f}' for points in more)}")
    return print_goals(
        [
            Goal(
                "loss with the agent minus loss with bare boto3",
                statistics.median(more),
                GOAL_POINTS,
                at_least=False,
                unit=" points",
            )
        ]
    )


def main() -> int:
    """Fill, measure the maximum, produce at half of it in rounds, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=800, help="approximate size of the cold segments")
    arguments.add_argument("--threads", type=int, default=3, help="threads of each shipper")
    arguments.add_argument("--seconds", type=int, default=10, help="length of a window without shipping")
    arguments.add_argument("--repeat", type=int, default=4, help="number of rounds, after a warm-up")
    options = arguments.parse_args()
    with LocalCluster(s3=True, buckets=[BUCKET], name="bench") as cluster:
        parts = fill(cluster, options.megabytes)
        if not any(part.logs for part in parts):
            raise SystemExit(f"--megabytes {options.megabytes} closes no segment; give 250 or more")
        # It must not fill the disk.
        settings = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "1000"}
        cluster.create_topic(HOT, partitions=HOT_PARTITIONS, config=settings)
        producing, shipping = Producing(cluster), Shipping(cluster, parts, options.threads)
        most = rounds({"most": lambda: producing.alone(0, options.seconds)}, 3, warm_up=1)["most"]
        asked = statistics.median(one.rate for one in most) / 2
        reached = ", ".join(f"{one.rate / 1000:.1f}" for one in most)
        print(f"alone, without a limit: {reached} thousand records/s; requested from now on: {asked / 1000:.1f}\n")
        things: dict[str, Callable[[], ProducerWindow]] = {
            ALONE: lambda: producing.alone(asked, options.seconds),
            AGENT: lambda: producing.during(asked, shipping.agent),
            BARE: lambda: producing.during(asked, shipping.bare),
        }
        missed = report(rounds(things, options.repeat, warm_up=1), asked)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
