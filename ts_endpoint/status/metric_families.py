"""The metrics of an endpoint: their names and descriptions, and a collector that reads numbers of other rooms.

The rooms count in plain objects and do not import Prometheus' client. Labels have few and fixed values, so an endpoint
has the same number of series however many topics and users it serves.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ts_common.installed import version
from ts_common.store.wrappers.counted import OPERATIONS
from ts_endpoint.status.request_counts import Durations

PREFIX: Final = "ts_endpoint"

Number = Callable[[], float]
Labelled = Callable[[], Mapping[Any, float]]  # the key is a tuple of the values of labels
Reading = Number | Labelled | Durations
# Their series exist from the start with 0: a counter that begins with 1 has no increase.
_OPERATIONS: Final = tuple((name,) for name in OPERATIONS)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    Attributes:
        name: without the prefix.
        from_start: values of labels that have a series from the start.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    from_start: tuple[tuple[str, ...], ...] = ()


FAMILIES: Final = (
    Family("serving", "gauge", "1 while clients are served, 0 while the process waits for the first segment, or ends."),
    Family("connections", "gauge", "Open connections of clients."),
    Family("connections_accepted", "counter", "Connections that clients opened."),
    Family("connections_refused", "counter", "Connections that were closed at once, by the limit.", ("limit",)),
    Family("connections_ended", "counter", "Connections that the endpoint closed.", ("reason",)),
    Family("accept_pauses", "counter", "Times that the process had no file descriptor for a connection."),
    Family("failed_logins", "counter", "Logins that were refused.", ("mechanism",)),
    Family("requests", "counter", "Requests of clients, by kind.", ("kind",)),
    Family(
        "request_errors",
        "counter",
        "Errors in replies, by Kafka's names. A reply has one for each topic, partition or group that failed. Some are "
        "normal: NOT_LEADER_OR_FOLLOWER when a partition moved, REBALANCE_IN_PROGRESS in groups.",
        ("kind", "error"),
    ),
    Family(
        "failed_requests", "counter", "Requests that failed by a defect of the endpoint; the log has it.", ("kind",)
    ),
    Family("received_bytes", "counter", "Bytes of requests."),
    Family("sent_bytes", "counter", "Bytes of replies."),
    Family(
        "fetch_seconds",
        "histogram",
        "Seconds from a Fetch to its reply. A client at the end of a partition waits as long as its fetch.max.wait.ms.",
    ),
    Family("throttled_seconds", "counter", "Seconds that connections were muted by the quotas of users, in all."),
    Family("in_flight_bytes", "gauge", "Bytes of replies in memory that no client has received."),
    Family(
        "in_flight_limit_bytes", "gauge", "Limit of the bytes in flight; at the limit a reply has one record batch."
    ),
    Family("cache_bytes", "gauge", "Bytes of segments in memory."),
    Family("cache_limit_bytes", "gauge", "Limit of the bytes of segments in memory."),
    Family("cache_hits", "counter", "Reads that found their bytes in memory."),
    Family("cache_misses", "counter", "Reads that waited for the store."),
    Family("segment_reads", "counter", "Reads of segments that were begun: one long request each."),
    Family("shared_segment_reads", "counter", "Readers that joined a read of a segment that another one had begun."),
    Family("rewritten_ranges", "counter", "Ranges whose batches were decoded and written again, of several copies."),
    Family("used_partitions", "gauge", "Partitions in memory, because clients used them."),
    Family(
        "lost_partitions",
        "gauge",
        "Used partitions and topics that cannot be opened for a reason that lasts; see partition_lost in the log.",
    ),
    Family("holes_passed_over", "counter", "Holes that readers passed over, with --on-hole=skip."),
    Family("hole_offsets_passed_over", "counter", "Lost offsets in them, each time."),
    Family("store_requests", "counter", "Requests to stores.", ("operation",), _OPERATIONS),
    Family(
        "store_failures",
        "counter",
        "Requests that a store did not answer, or rejected. The endpoint repeats most of them.",
        ("operation",),
        _OPERATIONS,
    ),
    Family("store_received_bytes", "counter", "Bytes of objects that stores sent."),
    Family("store_throttled_requests", "counter", "Requests that a store rejected with SlowDown; each is repeated."),
    Family("groups", "gauge", "Groups in memory, by their state as Kafka's tools name it.", ("state",)),
    Family("group_members", "gauge", "Members of groups."),
    Family("group_rebalances", "counter", "Generations of groups that began with a member."),
    Family("offset_commits", "counter", "Offsets that groups committed."),
    Family(
        "offset_bytes",
        "gauge",
        "About how many bytes of memory committed offsets need; at the limit a commit gets INVALID_COMMIT_OFFSET_SIZE.",
    ),
    Family("offset_limit_bytes", "gauge", "Limit of the bytes of committed offsets in memory."),
    Family("offset_unwritten_groups", "gauge", "Groups with commits that the store does not have."),
    Family("offset_flush_failures", "counter", "Offsets of a group that could not be written; they are kept."),
    Family(
        "offset_read_failures", "counter", "Offsets of a group that could not be read; the client repeats its request."
    ),
    Family("offset_flush_age_seconds", "gauge", "Seconds since the store had everything that was committed before."),
    Family("peer_up", "gauge", "1 while another process of the cluster answers, 0 while it is down.", ("peer",)),
    Family("peers_differ", "gauge", "Other processes that have another --peers or --cluster than this one."),
    Family("loop_age_seconds", "gauge", "Seconds since the event loop last ran; more than a second is overload."),
)


class EndpointCollector(Collector):
    """Reads all numbers at each scrape.

    Args:
        readings: by the name of the family; a family without one has no samples.
    """

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        unknown = readings.keys() - {family.name for family in FAMILIES}
        if unknown:
            raise ValueError(f"no such metric: {sorted(unknown)}")
        self._readings = readings

    def describe(self) -> list[Metric]:
        """Return nothing: to register reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each family."""
        for family in FAMILIES:
            reading = self._readings.get(family.name)
            yield _histogram(family, reading) if family.kind == "histogram" else _numbers(family, reading)


def _histogram(family: Family, reading: Reading | None) -> Metric:
    metric = HistogramMetricFamily(f"{PREFIX}_{family.name}", family.text)
    if isinstance(reading, Durations):
        metric.add_metric([], reading.cumulative(), reading.total)
    return metric


def _numbers(family: Family, reading: Reading | None) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(f"{PREFIX}_{family.name}", family.text, labels=family.labels)
    if reading is not None and not isinstance(reading, Durations):
        value = reading()
        by_labels = {**dict.fromkeys(family.from_start, 0.0), **value} if isinstance(value, Mapping) else {(): value}
        for labels, number in by_labels.items():
            metric.add_metric(labels, number)
    return metric


def make_registry(readings: Mapping[str, Reading]) -> CollectorRegistry:
    """Return the registry of `/metrics`: the endpoint's metrics, its versions, and those of the process.

    Args:
        readings: as of `EndpointCollector`.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter; no rule uses it
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info(f"{PREFIX}_build", "The versions of the endpoint and of Python.", registry=registry)
    build.info({"version": version(), "python": platform.python_version()})
    registry.register(EndpointCollector(readings))
    return registry
