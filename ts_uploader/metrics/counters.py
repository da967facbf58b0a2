"""The agent's counters and histograms, for Prometheus; the metrics page contains the descriptions here.

`ts_uploader.metrics.backlog_metrics` has the gauges of the backlog. Labels have few and fixed values (`LABEL_VALUES`),
so an agent has the same hundred series however many partitions its broker leads. Series whose increase is an alert
begin with 0 at the start: a counter that begins with 1 has no increase.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ts_common.archive.repair_requests import OUTCOMES
from ts_common.installed import version
from ts_common.store.wrappers.counted import OPERATIONS
from ts_uploader.health.conditions import CONDITIONS
from ts_uploader.health.store_health import FAILURE_REASONS
from ts_uploader.messages.tasks import (
    FillGap,
    ForgetFormer,
    LookBelow,
    PassGap,
    ReadPosition,
    Repair,
    Ship,
    ShipDeleted,
    WriteCommit,
)
from ts_uploader.tracking.blocked import WAIT_REASONS

PREFIX = "ts_uploader"
# A segment of 1 GiB at 10 MB/s needs two minutes; a tiny one needs a round trip.
_UPLOAD_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# A commit waits for the broker's next checkpoint, 5 s apart; hours are those of an outage.
_COMMIT_LAG_BUCKETS = (1, 2.5, 5, 7.5, 10, 15, 30, 60, 300, 900, 3_600, 6 * 3_600, 24 * 3_600)
_SCAN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TAIL_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

UPLOADS, COMMITS, LOOKUPS = "uploads", "commits", "lookups"
GAP_DELETED, GAP_BY_REQUEST, GAP_WRITTEN_OVER = "deleted", "delete_records", "written_over"
GAP_TOPIC_DELETED, GAP_UNRECORDED = "topic_deleted", "unrecorded"

CHECK_STORES, WRITE_ENDS, LIST_REPAIRS = "CheckStores", "WriteEnds", "ListRepairs"
WRITE_SNAPSHOT = "WriteSnapshot"
SHIP_TAIL, MERGE_TAIL, DELETE_TAIL = "ShipTail", "MergeTail", "DeleteTail"

_OPERATIONS = {
    ReadPosition.__name__: "read from the store where to continue",
    Ship.__name__: "upload a segment",
    WriteCommit.__name__: "move the commit along the run",
    PassGap.__name__: "record a gap and commit beyond it",
    FillGap.__name__: "commit a gap as filled",
    ForgetFormer.__name__: "commit that the live tail needs no former leadership",
    LookBelow.__name__: "find `.deleted` files of this log",
    CHECK_STORES: "check at the start whether a store admits the agent",
    WRITE_ENDS: "write the high watermarks of the partitions that the broker leads",
    ShipDeleted.__name__: "ship the tail of a deleted topic",
    Repair.__name__: "repair what a request names",
    LIST_REPAIRS: "list the requests to repair",
    WRITE_SNAPSHOT: "write a metadata snapshot, unless another agent did",
    SHIP_TAIL: "ship a pack of the live tail, or read a partition for it",
    MERGE_TAIL: "merge packs of the live tail",
    DELETE_TAIL: "delete packs of the live tail that nothing leads to",
}
_GAP_REASONS = {
    GAP_DELETED: "retention (or DeleteRecords) removed the segments before they were shipped",
    GAP_BY_REQUEST: "DeleteRecords moved the log start beyond them",
    GAP_WRITTEN_OVER: "a Java uploader wrote a shorter segment over a committed one",
    GAP_TOPIC_DELETED: "the topic was deleted before they were shipped, or above its last known high watermark",
    GAP_UNRECORDED: "a deleted topic may lose records of unknown offsets: its directory has no topic id, can lack a "
    "part of the topic's name, or vanished before the agent read it. There is no gap record",
}
_WAIT_REASONS = {reason.value: text for reason, text in WAIT_REASONS.items()}
# The possible values of each label; for the metrics page.
LABEL_VALUES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    f"{PREFIX}_segments": {"outcome": {"sent": "it was sent", "found": "the store had it, with the same bytes"}},
    f"{PREFIX}_errors": {"operation": _OPERATIONS, "reason": FAILURE_REASONS},
    f"{PREFIX}_gaps": {"reason": _GAP_REASONS},
    f"{PREFIX}_gap_offsets": {"reason": _GAP_REASONS},
    f"{PREFIX}_repairs": {"outcome": {outcome.value: text for outcome, text in OUTCOMES.items()}},
    f"{PREFIX}_queue_length": {
        "queue": {
            UPLOADS: "segments and gaps",
            COMMITS: "commits",
            LOOKUPS: "reads of positions, rescans of directories, and checks whether a topic was deleted",
        }
    },
    f"{PREFIX}_waiting_partitions": {"reason": _WAIT_REASONS},
    f"{PREFIX}_stuck_partitions": {"reason": _WAIT_REASONS},
    f"{PREFIX}_partition_stuck_seconds": {"topic": {}, "partition": {}, "reason": _WAIT_REASONS},
    f"{PREFIX}_store_requests": {"operation": OPERATIONS},
    f"{PREFIX}_condition": {"condition": {name.value: text for name, text in CONDITIONS.items()}},
    f"{PREFIX}_build": {"version": {}, "python": {}},
    f"{PREFIX}_broker": {"cluster_id": {}, "broker_id": {}},
}


class Metrics:
    """The counters of one agent, in their own registry.

    Attributes:
        registry: the metrics of `/metrics`.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter; no rule uses it
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.broker = Info(f"{PREFIX}_broker", "The cluster and the broker of the agent.", registry=self.registry)
        build = Info(f"{PREFIX}_build", "The versions of the agent and of Python.", registry=self.registry)
        build.info({"version": version(), "python": platform.python_version()})
        self.bytes = self._counter("bytes", "Bytes sent to the store, indexes included.")
        self.files = self._counter("files", "Files sent to the store: `.log` files and their indexes.")
        self.segments = self._counter(
            "segments", "Segments complete in the store: sent by the agent, or found there.", "outcome"
        )
        for outcome in ("sent", "found"):
            self.segments.labels(outcome)
        self.upload_seconds = self._histogram(
            "upload_seconds", "Seconds from the start of a segment's task to the end of its upload.", _UPLOAD_BUCKETS
        )
        self.uploads_in_progress = self._gauge("uploads_in_progress", "Segments that threads are reading or sending.")
        self.commit_lag_seconds = self._histogram(
            "commit_lag_seconds",
            "Seconds from the close of a segment to the commit that covers it, when readers see it.",
            _COMMIT_LAG_BUCKETS,
        )
        self.commits = self._counter("commits", "Commits written.")
        self.commit_conflicts = self._counter(
            "commit_conflicts",
            "Conflicts with another agent's commit: the store rejected a commit, or held one of a "
            "later leader epoch. A few are normal at each change of leader.",
        )
        self.errors = self._counter(
            "errors",
            "Operations that failed; the agent retries them.",
            "operation",
            "reason",
        )
        self.changed_segments = self._counter(
            "changed_segments",
            "Uploads cancelled because the segment was renamed, rewritten or deleted meanwhile. The "
            "agent lists its directory again; this is normal.",
        )
        self.fenced = self._counter(
            "fenced", "Leaderships that the agent ended because the store holds a later leader epoch."
        )
        self.lost_offsets = self._counter(
            "lost_offsets",
            "Committed offsets that an election lost: the agent moved the commit back to the new leader's log.",
        )
        self.legacy_rewinds = self._counter(
            "legacy_rewinds",
            "Commits moved back over records of magic 0 or 1, which have no leader epoch: readers may "
            "return lost records and hide the new leader's.",
        )
        self.gaps = self._counter(
            "gaps", "Gap records: ranges of offsets that no broker and no object holds.", "reason"
        )
        self.gap_offsets = self._counter(
            "gap_offsets", "Offsets in gap records: no broker and no object holds them.", "reason"
        )
        for reason in _GAP_REASONS:
            self.gaps.labels(reason)
            self.gap_offsets.labels(reason)
        self.repairs = self._counter("repairs", "Requests to repair that the agent answered.", "outcome")
        for outcome in OUTCOMES:
            self.repairs.labels(outcome.value)
        self.corrupt_segments = self._counter(
            "corrupt_segments", "Segments shipped unchanged although a part of them is not a valid batch."
        )
        self.late_segments = self._counter(
            "late_segments",
            "Segments of compacted topics shipped after delete.retention.ms: they may lack tombstones "
            "or transaction markers.",
        )
        self.queue_length = self._gauge("queue_length", "Tasks that wait for a thread or for their time.", "queue")
        self.request_limit = self._gauge(
            "request_limit",
            "Limit of the agent's requests per second after a store answered SlowDown; +Inf without a limit.",
        )
        self.upload_limit = self._gauge(
            "upload_limit_bytes_per_second",
            "Configured limit of the agent's uploads; +Inf without a limit.",
        )
        self.leadership_connected = self._gauge(
            "leadership_connected",
            "1 while the agent is connected to the source of leadership, 0 while leadership is unknown.",
        )
        self.leadership_age = self._gauge(
            "leadership_age_seconds",
            "Seconds since the agent lost the source of leadership, or since its start; 0 while connected.",
        )
        self.watched_partitions = self._gauge(
            "watched_partitions", "Partitions of included topics with a directory here, led here or not."
        )
        self.snapshot_time = self._gauge(
            "snapshot_timestamp_seconds",
            "Time of the last metadata snapshot that the agent wrote, or found, in seconds since the epoch; 0 before "
            "the first, and if snapshots are off.",
        )
        self.tail_packs = self._counter("tail_packs", "Packs of the live tail that the agent put.")
        self.tail_bytes = self._counter("tail_bytes", "Bytes of batches in packs of the live tail.")
        self.tail_merged_bytes = self._counter(
            "tail_merged_bytes", "Bytes of batches that merges of packs of the live tail sent again."
        )
        self.tail_deleted = self._counter(
            "tail_deleted_objects", "Objects of the live tail that the agent deleted, because merges replaced them."
        )
        self.tail_seconds = self._histogram(
            "tail_seconds",
            "Seconds from the request for high watermarks to the answer of the pack's put, when readers see its "
            "records. A record waits up to an interval before.",
            _TAIL_BUCKETS,
        )
        self.scan_seconds = self._histogram(
            "scan_seconds", "Seconds of one scan of all log dirs; the agent scans every half minute.", _SCAN_BUCKETS
        )

    def gap(self, reason: str, gaps: Iterable[tuple[int, int]]) -> None:
        """Count ranges `[from, to)` that were recorded as gaps."""
        for start, end in gaps:
            self.gaps.labels(reason).inc()
            self.gap_offsets.labels(reason).inc(end - start)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, buckets=buckets, registry=self.registry)


_COUNTED_ELSEWHERE = {
    "throttled_requests": "Requests that a store rejected with SlowDown; the agent repeats each.",
    "upload_waited_seconds": "Seconds that uploads waited for the configured limit, summed over all threads.",
    "inotify_overflows": "Overflows of the kernel's inotify queue. A scan finds the missed changes.",
}
_TAIL = {
    "tail_lag_seconds": "Seconds since the oldest record was acknowledged that no pack of the live tail has; 0 without "
    "one. Partitions that are still at the beginning do not count. While rounds fail or hang, seconds since then.",
    "tail_beginning_partitions": "Partitions whose live tail has not reached their high watermark in this leadership.",
    "tail_partitions": "Partitions whose live tail the agent ships.",
}
_STORE_REQUESTS = "Requests to stores, those too that a store rejected or did not answer."
_CONDITION = "1 for the condition of the agent as a whole, as its page shows it; 0 for the others."


class CountedElsewhere(Collector):
    """Counters that other parts of the agent keep, read at each scrape.

    Args:
        throttled_requests: returns their number since the start.
        upload_waited_seconds: returns their sum since the start.
        inotify_overflows: returns their number since the start.
        store_requests: returns their numbers since the start, by operation.
        tail: returns the numbers of the live tail, by their names.
        condition: returns the condition of the agent.
    """

    def __init__(
        self,
        *,
        throttled_requests: Callable[[], float] = float,
        upload_waited_seconds: Callable[[], float] = float,
        inotify_overflows: Callable[[], float] = float,
        store_requests: Callable[[], Mapping[str, float]] = dict,
        tail: Callable[[], Mapping[str, float]] = dict,
        condition: Callable[[], str] = str,
    ) -> None:
        self._values = {
            "throttled_requests": throttled_requests,
            "upload_waited_seconds": upload_waited_seconds,
            "inotify_overflows": inotify_overflows,
        }
        self._store_requests = store_requests
        self._tail = tail
        self._condition = condition

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each counter, and the condition of the agent."""
        for name, value in self._values.items():
            yield CounterMetricFamily(f"{PREFIX}_{name}", _COUNTED_ELSEWHERE[name], value=value())
        tail = self._tail()
        for name, text in _TAIL.items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=tail.get(name, 0))
        requests = CounterMetricFamily(f"{PREFIX}_store_requests", _STORE_REQUESTS, labels=("operation",))
        counted = dict(self._store_requests())  # a copy, while other threads count
        for operation in OPERATIONS:
            requests.add_metric((operation,), counted.get(operation, 0))
        yield requests
        condition = GaugeMetricFamily(f"{PREFIX}_condition", _CONDITION, labels=("condition",))
        now = self._condition()
        for name in CONDITIONS:
            condition.add_metric((name.value,), float(name.value == now))
        yield condition
