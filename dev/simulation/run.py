"""Runs of scenarios, and their figures."""

import hashlib
import json
import logging
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import structlog

from dev.simulation.clock import Clock
from dev.simulation.cloud import CLUSTER, WIDEST_BITS, Cloud
from dev.simulation.fleet import Fleet, Partition
from dev.simulation.scenarios import Scenario
from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, SegmentName

_MINUTE = 60.0
_LAG_SECONDS = 600.0  # of a point of the lag
_LATEST_SECONDS = 4 * 3600.0  # for the last commits


@dataclass(slots=True)
class Figures:
    """What a run found; of the whole fleet, seconds since the start.

    Attributes:
        segments: that closed.
        uncommitted: of them, those that the store lacks at the end, or that no commit includes.
        recovery_seconds: from the end of the outage to the commit of the last segment that closed before it.
        takeover_seconds: from the elections to the read positions: median, 99 % and greatest.
        operations: requests per second by operation, minute by minute.
        slow_downs: throttled requests per second, minute by minute.
        busiest: (PUTs, other requests) per second under the busiest prefix in the busiest minute, by entropy bits.
        backlog: closed segments without a commit, minute by minute.
        lags: (time, median, 99 %, greatest) seconds from closing to commit, in each ten minutes.
        results: of the agents' tasks, by kind; of the simulated partitions only.
    """

    scenario: Scenario
    seed: int
    segments: int = 0
    uncommitted: int = 0
    recovery_seconds: float = 0.0
    takeover_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    operations: dict[str, list[float]] = field(default_factory=dict)
    slow_downs: list[float] = field(default_factory=list)
    busiest: list[tuple[float, float]] = field(default_factory=list)
    backlog: list[int] = field(default_factory=list)
    lags: list[tuple[float, float, float, float]] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Equal for equal figures."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def total(self, *operations: str) -> float:
        """Return the number of requests of these operations, of all without one."""
        return sum(sum(self.operations.get(name, ())) * _MINUTE for name in operations or self.operations)

    @property
    def rates(self) -> list[float]:
        """Requests per second, minute by minute."""
        return [sum(each) for each in zip(*self.operations.values(), strict=True)]


@dataclass(slots=True)
class Run:
    """A run and what it cost this machine."""

    figures: Figures
    cpu_seconds: float
    wall_seconds: float


def run_all(scenarios: Sequence[Scenario], seed: int, processes: int | None = None) -> Iterator[Run]:
    """Yield the run of each scenario, in their order; each has a process of its own, because it replaces the clock."""
    with ProcessPoolExecutor(processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(_run, scenarios, repeat(seed))


def _run(scenario: Scenario, seed: int) -> Run:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    random.seed(seed)  # of the agents' backoff
    cpu, wall = time.process_time(), time.perf_counter()
    memory = Path("/dev/shm")
    clock, draws, figures = Clock(), random.Random(seed), Figures(scenario, seed)
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if memory.is_dir() else None) as root:
        with clock.installed():
            cloud = Cloud(scenario, clock, draws)
            fleet = Fleet(scenario, clock, cloud, draws, Path(root))
            fleet.start()
            latest = scenario.seconds + _LATEST_SECONDS
            with fleet.listed():
                while clock.now < scenario.seconds or (fleet.waiting and clock.now < latest):
                    clock.run_until(clock.now + _MINUTE)
                    figures.backlog.append(round(fleet.waiting * scenario.weight))
        _fill(figures, fleet, cloud)
    return Run(figures, time.process_time() - cpu, time.perf_counter() - wall)


def _fill(figures: Figures, fleet: Fleet, cloud: Cloud) -> None:
    scenario, minutes = figures.scenario, len(figures.backlog)
    rate = scenario.weight / _MINUTE
    figures.segments = round((len(fleet.lags) + fleet.waiting) * scenario.weight)
    figures.uncommitted = round(
        sum(_missing(scenario, cloud, each) for each in fleet.partitions.values()) * scenario.weight
    )
    end = scenario.outage[1]
    figures.recovery_seconds = max((now - end for now, lag in fleet.lags if now - lag < end < now), default=0.0)
    figures.takeover_seconds = _spread(fleet.takeovers)
    for name in sorted({name for _, name in cloud.requests}):
        figures.operations[name] = [cloud.requests[minute, name] * rate for minute in range(minutes)]
    figures.slow_downs = [cloud.slow_downs[minute] * rate for minute in range(minutes)]
    figures.busiest = [_busiest(cloud, bits, rate) for bits in range(WIDEST_BITS + 1)]
    by_time: dict[float, list[float]] = {}
    for now, lag in fleet.lags:
        by_time.setdefault(now - now % _LAG_SECONDS, []).append(lag)
    figures.lags = [(begin, *_spread(lags)) for begin, lags in sorted(by_time.items())]
    figures.results = dict(sorted(fleet.results.items()))


def _missing(scenario: Scenario, cloud: Cloud, partition: Partition) -> int:
    """Return the number of closed segments that the store has no `.log` of, or that its commit does not include."""
    keys = ClusterKeys(CLUSTER, scenario.entropy_bits).partition(partition.name)
    named = (SegmentName.parse(key.removeprefix(keys.prefix)) for key in cloud.keys[keys.prefix])
    stored = {parsed[0].base for parsed in named if parsed is not None and parsed[1] == LOG_SUFFIX}
    data, _ = cloud.objects.get(keys.commit, (b"", None))
    commit = decode_commit(data, keys.commit) if data else None
    end = commit.next_offset if isinstance(commit, Commit) else 0
    return sum(base >= end or base not in stored for base in range(partition.end))


def _busiest(cloud: Cloud, bits: int, rate: float) -> tuple[float, float]:
    sums: dict[tuple[int, bool, int], int] = {}
    for (minute, is_put, place), count in cloud.by_prefix.items():
        prefix = minute, is_put, place >> WIDEST_BITS - bits
        sums[prefix] = sums.get(prefix, 0) + count
    puts, others = (
        max((count for (_, each, _), count in sums.items() if each is is_put), default=0) for is_put in (True, False)
    )
    return puts * rate, others * rate


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, 99 % and the greatest value; zeros without values."""
    ordered = sorted(values) or [0.0]
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]
