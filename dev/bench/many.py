"""`python -m dev.bench.many`: the agent of a broker that leads 10,000 partitions at replication 3.

No broker runs: the log dirs are made (30,000 directories of ten topics, 10,000 of them led), a source of its own
reports leaderships, and the high watermark checkpoints are written every five seconds. The S3 server is real.

The agent runs four times:

- `fresh`: nothing is stored, and some partitions have a closed segment to ship. Each position is read by then, and the
  agent's share of a core while nothing changes is measured;
- `restart`: each partition has a closed segment that is committed. When every position is known, the agent is left
  alone: its share of a core while nothing changes but that it reads a deferred position a second, for three hours;
  and while each high watermark changes too. Then `/metrics` is read ten
  times. Then half of the led partitions move away, and as many arrive, with commits of another broker (`storm`);
- `delayed`: the same restart, over a link that adds 30 ms to each request;
- `alone`: the same restart, with the 10,000 directories of led partitions and no others.

A run is ready when the agent leads every partition, has read every position, and has nothing to ship. `/metrics` shows
that, and is read every three seconds. RSS is the kernel's `VmHWM`, start-up included.

The goals: ready in 30 s and 15 CPU seconds after a restart, delayed or not; 20 CPU seconds for the storm; 2 % of a core
while nothing changes; 150 MiB with 10,000 directories, 200 MiB with 30,000. Exits with 1 if one is missed; `--no-gate`
only prints.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from dev.bench.measuring.made_archives import CLUSTER
from dev.bench.measuring.made_broker import MadeBroker, put_commits, put_positions
from dev.bench.measuring.made_leadership import SOURCE, VARIABLE
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.measuring.raw_puts import RawPuts
from dev.bench.measuring.s3_server import s3_server
from dev.local.agent import AgentProcess, write_config
from dev.local.process import ServerDiedError
from dev.local.proxy.link import LinkProxy
from dev.local.stores.s3 import S3Server
from dev.local.waiting import wait_for

BUCKET, PREFIX = "bench", "many"
READY_SECONDS, READY_CPU_SECONDS, STORM_CPU_SECONDS, IDLE_PERCENT = 30.0, 15.0, 20.0, 2.0
ALONE_MIB, TOGETHER_MIB = 150.0, 200.0
_ROOT = Path(__file__).parents[2]
_SECONDS = 900.0
_LOOK_SECONDS = 3.0  # a look at `/metrics` itself costs up to 0.1 s of CPU
_SETTLE_SECONDS = 40.0  # after a start; a directory is listed twice before its listing is whole
_SCRAPES = 10
_REQUESTS = "ts_uploader_store_requests_total"


@dataclass
class Run:
    """The cost of one run of the agent.

    Attributes:
        ready_seconds: from its start until it is ready.
        ready_cpu: CPU seconds until then.
        requests: until then, by kind.
        peak_mib: peak memory at the end of the run.
        idle_percent: of a core, while nothing changes.
        busy_percent: of a core, while each high watermark changes every five seconds, and no segment closes.
        scrape_seconds: the longest read of `/metrics`.
        storm_seconds: from the change of leaders until the agent is ready again.
        storm_cpu: CPU seconds until then.
        storm_requests: until then, by kind.
    """

    ready_seconds: float = 0.0
    ready_cpu: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)
    peak_mib: float = 0.0
    idle_percent: float = 0.0
    busy_percent: float = 0.0
    scrape_seconds: float = 0.0
    storm_seconds: float = 0.0
    storm_cpu: float = 0.0
    storm_requests: Mapping[str, int] = field(default_factory=dict)


class MeasuredAgent:
    """A context manager that runs the agent, and keeps its cost until it was ready.

    Args:
        directory: for its configuration and log.
        endpoint: of the S3 server.
        alone: only the log dir of the led partitions.
        each: metrics of each partition.
    """

    def __init__(
        self, directory: Path, name: str, broker: MadeBroker, s3: S3Server, *, endpoint: str, alone: bool, each: bool
    ) -> None:
        self._directory = directory / name
        properties = {
            "storage.service.endpoint.url": f"s3://{BUCKET}/{PREFIX}",
            "ts.segment.uploader.kafka.topics.include": ".*",
            "ts.segment.uploader.upload.thread.count": "3",
            "ts.segment.uploader.leadership.watcher.class": SOURCE,
            "metrics.partitions": str(each).lower(),
        }
        write_config(self._directory / "conf", CLUSTER, properties)
        environment = s3.environment() | {
            "AWS_ENDPOINT_URL": endpoint,
            VARIABLE: str(broker.leaderships),
            "PYTHONPATH": str(_ROOT),
        }
        self._agent = AgentProcess(
            self._directory,
            self._directory,
            self._directory / "conf",
            broker.properties(alone=alone),
            CLUSTER,
            environment=environment,
            name=name,
        )
        self._led = len(broker.led)
        self.run = Run()
        self._slowest = 0.0

    def __enter__(self) -> "MeasuredAgent":
        began = time.monotonic()
        self._agent.launch()
        self._process = psutil.Process(self._agent.pid)
        self.wait_ready()
        self.run.ready_seconds, self.run.ready_cpu = time.monotonic() - began, self.cpu_seconds
        self.run.requests = self.requests()
        return self

    def __exit__(self, *_: object) -> None:
        self.run.scrape_seconds = self._slowest
        if self._agent.alive:
            lines = Path(f"/proc/{self._agent.pid}/status").read_text().splitlines()
            self.run.peak_mib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
        self._agent.stop()

    @property
    def cpu_seconds(self) -> float:
        """User and system seconds of all threads."""
        used = self._process.cpu_times()
        return used.user + used.system

    def percent(self, seconds: float) -> float:
        """Wait, and return the share of a core that the agent used meanwhile."""
        began, used = time.monotonic(), self.cpu_seconds
        time.sleep(seconds)
        return (self.cpu_seconds - used) / (time.monotonic() - began) * 100

    def requests(self) -> dict[str, int]:
        """Return the requests so far, by kind."""
        return {
            name.split('"')[1]: int(value)
            for name, value in self.samples().items()
            if name.startswith(_REQUESTS) and value
        }

    def samples(self) -> dict[str, float]:
        """Read `/metrics`; empty while the agent does not answer."""
        if not self._agent.alive:
            raise ServerDiedError(f"{self._agent.name} ended.\n{self._agent.tail()}")
        began = time.monotonic()
        try:
            return self._agent.metrics()
        except OSError:  # it still starts
            return {}
        finally:
            self._slowest = max(self._slowest, time.monotonic() - began)

    def wait_ready(self, puts: int = 0) -> None:
        """Wait until every position is known and nothing waits to be shipped.

        Args:
            puts: at least so many since the start.
        """

        def ready() -> bool:
            samples = self.samples()
            led, unknown, unshipped = (
                samples.get(f"ts_uploader_{name}")
                for name in ("led_partitions", "position_unknown_partitions", "unshipped_segments")
            )
            put = sum(value for name, value in samples.items() if name.startswith(_REQUESTS) and '"put' in name)
            return led == self._led and unknown == 0 and unshipped == 0 and put >= puts

        wait_for(ready, f"{self._led} positions", _SECONDS, every=_LOOK_SECONDS, state=self._agent.tail)


def storm(agent: MeasuredAgent, broker: MadeBroker, moved: int) -> None:
    """Move as many led partitions to another broker as arrive from there, and wait until the agent is ready again."""
    began, used, before = time.monotonic(), agent.cpu_seconds, agent.requests()
    broker.lead([*broker.led[moved:], *broker.followed[:moved]], 1)
    broker.begin_epoch(broker.followed[:moved], 1)
    agent.wait_ready(puts=before.get("put", 0) + moved)  # each commit gets the new leader
    agent.run.storm_seconds, agent.run.storm_cpu = time.monotonic() - began, agent.cpu_seconds - used
    after = agent.requests()
    agent.run.storm_requests = {name: after[name] - before.get(name, 0) for name in after}


def measure(directory: Path, s3: S3Server, options: argparse.Namespace) -> dict[str, Run]:
    """Run the agent four times; return the cost of each run by its name."""
    began = time.monotonic()
    with MadeBroker(directory, options.partitions, 2 * options.partitions) as broker:
        broker.close_segments(broker.led[: options.closed])
        print(f"{3 * options.partitions} directories made in {time.monotonic() - began:.0f} s", flush=True)
        found: dict[str, Run] = {}
        start: Callable[..., MeasuredAgent] = partial(
            MeasuredAgent, directory, broker=broker, s3=s3, endpoint=s3.endpoint, alone=False, each=options.each
        )
        with start("fresh") as agent:
            found["fresh"] = agent.run
            time.sleep(_SETTLE_SECONDS)
            agent.run.idle_percent = agent.percent(options.idle_seconds)
        print(f"fresh start: {found['fresh']}", flush=True)
        arriving = broker.followed[: options.moved]
        broker.close_segments([*broker.led, *arriving])

        def put_rows() -> None:
            """Put the positions; over another connection each time, because the server closes idle ones."""
            put_positions(RawPuts(s3.endpoint, s3.admin, BUCKET), PREFIX, broker.led)

        put_commits(RawPuts(s3.endpoint, s3.admin, BUCKET), PREFIX, broker.led[options.closed :], arriving)
        put_rows()
        with start("restart") as agent:
            found["restart"] = agent.run
            time.sleep(_SETTLE_SECONDS)
            agent.run.idle_percent = agent.percent(options.idle_seconds)
            broker.moves = True
            agent.run.busy_percent = agent.percent(options.idle_seconds)
            broker.moves = False
            for _ in range(_SCRAPES):
                agent.samples()
            storm(agent, broker, options.moved)
        print(f"restart: {found['restart']}", flush=True)
        broker.lead(broker.led, 0)  # partitions that moved away are led again in their old epoch
        put_rows()  # as before the first restart: its agent may have written others
        if options.delay_ms:
            with LinkProxy("s3", s3.port) as link:
                link.delay(options.delay_ms / 2000)  # there, and back
                with start("delayed", endpoint=f"http://{link.address}") as agent:
                    found["delayed"] = agent.run
        put_rows()
        with start("alone", alone=True) as agent:
            found["alone"] = agent.run
    return found


def report(found: Mapping[str, Run], options: argparse.Namespace) -> int:
    """Print the table and the goals; return how many were missed."""
    runs, restart = found.values(), found["restart"]
    rows: list[Sequence[object]] = [
        ("seconds from start to ready", *(run.ready_seconds for run in runs)),
        ("CPU seconds until then", *(run.ready_cpu for run in runs)),
        ("peak RSS, MiB", *(f"{run.peak_mib:.0f}" for run in runs)),
        ("slowest read of /metrics, s", *(run.scrape_seconds for run in runs)),
    ]
    kinds = sorted({kind for run in runs for kind in run.requests})
    rows += [(f"requests: {kind}", *(run.requests.get(kind, 0) for run in runs)) for kind in kinds]
    print_table(("", *found), rows)
    print()
    fresh = found["fresh"]
    print_table(
        ("restart, then", ""),
        [
            (f"% of a core for {options.idle_seconds:g} s: nothing changes", restart.idle_percent),
            ("  after the fresh start: no position is deferred", fresh.idle_percent),
            ("  each high watermark changes", restart.busy_percent),
            (f"storm of {options.moved}: seconds", restart.storm_seconds),
            ("  CPU seconds", restart.storm_cpu),
            *((f"  requests: {kind}", count) for kind, count in restart.storm_requests.items() if count),
        ],
    )
    print(f"\nload of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())} (1, 5, 15 minutes)\n")
    starts = [name for name in ("restart", "delayed") if name in found]
    together = max(run.peak_mib for name, run in found.items() if name != "alone")
    goals = [Goal(f"{name}: ready", found[name].ready_seconds, READY_SECONDS, False, " s") for name in starts]
    goals += [Goal(f"{name}: CPU", found[name].ready_cpu, READY_CPU_SECONDS, False, " s") for name in starts]
    goals += [
        Goal("storm: CPU", restart.storm_cpu, STORM_CPU_SECONDS, False, " s"),
        Goal("idle: of a core", restart.idle_percent, IDLE_PERCENT, False, " %"),
        Goal("idle, no position deferred", fresh.idle_percent, IDLE_PERCENT, False, " %"),
        Goal(f"{options.partitions} directories: peak RSS", found["alone"].peak_mib, ALONE_MIB, False, " MiB"),
        Goal(f"{3 * options.partitions} directories: peak RSS", together, TOGETHER_MIB, False, " MiB"),
    ]
    return print_goals(goals)


def main() -> int:
    """Make the files, run the agents, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--partitions", type=int, default=10_000, help="led ones; twice as many are followed")
    arguments.add_argument("--closed", type=int, default=1_000, help="of these, to ship at the fresh start")
    arguments.add_argument("--moved", type=int, default=5_000, help="partitions that leave, and that arrive")
    arguments.add_argument("--idle-seconds", type=float, default=60.0, help="for each share of a core")
    arguments.add_argument(
        "--delay-ms", type=float, default=30.0, help="of a request of the delayed run; 0: no such run"
    )
    arguments.add_argument("--each", action="store_true", help="metrics of each partition (metrics.partitions=true)")
    options = arguments.parse_args()
    with s3_server("many", BUCKET) as (s3, directory):
        found = measure(directory, s3, options)
    return exit_code(report(found, options), options)


if __name__ == "__main__":
    sys.exit(main())
