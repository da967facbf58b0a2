"""Requests a month by operation: from the metrics of agents and endpoints, or estimated by the age of objects. Pure.

The estimate has the requests of docs/sizing.md: those of a segment, and the ends that each agent writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tsctl.cost.prices import DAYS
from tsctl.cost.usage import SEGMENT, Kind, Usage

OPERATIONS: Final = ("put", "copy", "list", "get", "head", "delete")
WRITES: Final = frozenset({"put", "copy", "list"})  # at the price of writes; get and head at that of reads
COUNTERS: Final = ("ts_uploader_store_requests_total", "ts_endpoint_store_requests_total")
START: Final = "process_start_time_seconds"

# Of a segment in addition to the PUTs of its objects, as in docs/sizing.md: the commit, and half a cache object.
PUTS_BESIDE: Final = 1.5
PER_SEGMENT: Final = MappingProxyType({"head": 2.0, "get": 0.5, "list": 0.5})
ENDS_SECONDS: Final = 300  # each agent puts its ends so often
MONTH_SECONDS: Final = DAYS * 86_400


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of a month.

    Attributes:
        monthly: number by operation.
        source: where the numbers are from, in a few words.
        estimated: whether they are an estimate by the age of objects.
    """

    monthly: Mapping[str, float]
    source: str
    estimated: bool = False

    def of(self, operation: str) -> float:
        """Return the number of an operation."""
        return self.monthly.get(operation, 0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one process has counted.

    Attributes:
        address: as it was given.
        at: seconds since the epoch when it was read.
        started: seconds since the epoch when the process began, by its own clock.
        counts: requests by operation since then.
    """

    address: str
    at: float
    started: float
    counts: Mapping[str, float]


def estimate(usage: Usage) -> Requests:
    """Return the requests by the segments that are at most a month old.

    Per month: PUTs are the new objects of segments, 1.5 for each new `.log`, and the ends; HEAD, GET and LIST are 2,
    0.5 and 0.5 for each new `.log`. A younger archive is projected to a month.
    """
    new = [part for part in usage.parts if usage.is_new(part)]
    objects = usage.total(lambda part: part.objects, (part for part in new if part.kind in SEGMENT))
    logs = usage.total(lambda part: part.objects, (part for part in new if part.kind is Kind.LOG))
    scale = usage.to_month
    monthly = {"put": scale * (objects + PUTS_BESIDE * logs) + puts_of_ends(usage)}
    monthly |= {operation: scale * logs * times for operation, times in PER_SEGMENT.items()}
    return Requests(monthly, "estimate by segments of the last 30 days", estimated=True)


def puts_of_ends(usage: Usage) -> float:
    """Return the PUTs a month of all agents' ends."""
    return usage.brokers * MONTH_SECONDS / ENDS_SECONDS


def since_start(readings: Sequence[Reading]) -> Requests:
    """Return the requests by the rates since each process began."""
    return _projected([(each.counts, each.at - each.started) for each in readings], "since the processes began")


def between(first: Sequence[Reading], second: Sequence[Reading]) -> Requests:
    """Return the requests by the rates between two readings of the same processes, in the same order."""
    rates = [
        ({name: each.counts[name] - earlier.counts.get(name, 0.0) for name in each.counts}, each.at - earlier.at)
        for earlier, each in zip(first, second, strict=True)
    ]
    return _projected(rates, f"over {max((seconds for _, seconds in rates), default=0):.0f} s")


def _projected(rates: Sequence[tuple[Mapping[str, float], float]], how: str) -> Requests:
    """Return the sum of rates; a process counts for at least a second, as its clock can differ."""
    monthly: dict[str, float] = {}
    for counts, seconds in rates:
        for name, number in counts.items():
            monthly[name] = monthly.get(name, 0.0) + number / max(1.0, seconds) * MONTH_SECONDS
    return Requests(monthly, f"metrics of {len(rates)} process{'es' if len(rates) != 1 else ''}, {how}")


def scaled(requests: Requests, usage: Usage, ratio: float) -> Requests:
    """Return the requests if agents shipped `ratio` times as many segments.

    Only the requests of segments change, by docs/sizing.md; at most all that there are.
    """
    if ratio == 1:
        return requests
    base = estimate(usage).monthly
    base = {**base, "put": base["put"] - puts_of_ends(usage)}
    monthly = {
        name: number + (ratio - 1) * min(number, base.get(name, 0.0)) for name, number in requests.monthly.items()
    }
    return Requests(monthly, requests.source, requests.estimated)
