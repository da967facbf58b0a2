"""What the agent counts and measures, for Prometheus. The descriptions here are the metrics page's text."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_common.model import TopicPartition
from ts_uploader.backlog import Backlog, age_seconds, bytes_from, retention_left
from ts_uploader.retention import TopicRetention

_PREFIX = "ts_uploader"
_UPLOAD_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters of one agent, in a registry of their own.

    Attributes:
        registry: what `/metrics` shows.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.bytes = Counter(f"{_PREFIX}_bytes", "Bytes sent to the store.", registry=self.registry)
        self.segments = Counter(
            f"{_PREFIX}_segments",
            "Segments that are whole in the store: sent now, or found there with the same bytes.",
            ["outcome"],
            registry=self.registry,
        )
        self.upload_seconds = Histogram(
            f"{_PREFIX}_upload_seconds",
            "Seconds from taking a segment to its upload's end.",
            buckets=_UPLOAD_BUCKETS,
            registry=self.registry,
        )
        self.commits = Counter(f"{_PREFIX}_commits", "Commits written.", registry=self.registry)
        self.errors = Counter(
            f"{_PREFIX}_errors",
            "Operations that failed and will be tried again. `AskStore` is the question where to go on.",
            ["operation"],
            registry=self.registry,
        )
        self.fenced = Counter(
            f"{_PREFIX}_fenced", "Reigns given up because the store shows a later one.", registry=self.registry
        )
        self.lost_offsets = Counter(
            f"{_PREFIX}_lost_offsets",
            "Offsets that were committed and that an election lost: the commit went back to the new leader's log.",
            registry=self.registry,
        )
        self.gaps = Counter(
            f"{_PREFIX}_gaps",
            "Ranges of offsets recorded to exist nowhere: deleted before they were shipped.",
            registry=self.registry,
        )
        self.gap_offsets = Counter(f"{_PREFIX}_gap_offsets", "Offsets in those ranges.", registry=self.registry)
        self.corrupt_segments = Counter(
            f"{_PREFIX}_corrupt_segments",
            "Segments shipped as they are although part of them is no whole batch.",
            registry=self.registry,
        )
        self.throttled = Gauge(
            f"{_PREFIX}_throttled_requests",
            "Requests that a store refused since the start because it was asked too fast (SlowDown).",
            registry=self.registry,
        )
        self.request_limit = Gauge(
            f"{_PREFIX}_request_limit",
            "Requests per second that the agent allows itself since then; +Inf while no store refuses any.",
            registry=self.registry,
        )
        self.upload_limit = Gauge(
            f"{_PREFIX}_upload_limit_bytes_per_second",
            "The most that the agent sends, as its configuration says; +Inf without a limit.",
            registry=self.registry,
        )
        self.upload_waited = Gauge(
            f"{_PREFIX}_upload_waited_seconds",
            "Seconds that uploads waited since the start because of that limit, all threads together.",
            registry=self.registry,
        )
        self.late_segments = Counter(
            f"{_PREFIX}_late_segments",
            "Segments of compacted topics shipped after delete.retention.ms: tombstones or transaction markers may be "
            "missing in them.",
            registry=self.registry,
        )
        self.leadership_connected = Gauge(
            f"{_PREFIX}_leadership_connected",
            "1 while the source of leadership is being watched, 0 while leadership is unknown.",
            registry=self.registry,
        )


class BacklogCollector(Collector):
    """Per partition what waits; computed when somebody asks.

    Args:
        backlog: answers with the tracker's backlog.
        retention: of a topic.
    """

    def __init__(
        self,
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        retention: Callable[[str], TopicRetention],
    ) -> None:
        self._backlog = backlog
        self._retention = retention

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without samples, so that registering asks nobody."""
        return [_Family(name, text, ()) for name, text, _ in _BACKLOG_GAUGES]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The families, each with a sample for each partition that is led here, told one after the other: there may be
        many, and nobody needs them all at once.
        """
        backlog = self._backlog()
        for name, text, value_of in _BACKLOG_GAUGES:
            yield _Family(name, text, self._samples(name, value_of, backlog))

    def _samples(self, name: str, value_of: "_ValueOf", backlog: Mapping[TopicPartition, Backlog]) -> Iterator[Sample]:
        for partition, waiting in backlog.items():
            value = value_of(waiting, self._retention(partition.topic))
            if value is not None:
                labels = {"topic": partition.topic, "partition": str(partition.partition)}
                yield Sample(f"{_PREFIX}_{name}", labels, value)


class _Family(GaugeMetricFamily):
    """A family whose samples are told once, and never stand in a list."""

    def __init__(self, name: str, text: str, samples: Iterable[Sample]) -> None:
        super().__init__(f"{_PREFIX}_{name}", text, labels=["topic", "partition"])
        self.samples = samples  # type: ignore[assignment]  # whoever renders it only iterates


def _age(waiting: Backlog, _: TopicRetention) -> float:
    return 0.0 if waiting.base is None else age_seconds(waiting.listing, waiting.base) or 0.0


def _retention_left(waiting: Backlog, retention: TopicRetention) -> float:
    return 1.0 if waiting.base is None else retention_left(waiting.listing, waiting.base, retention)


def _unshipped_bytes(waiting: Backlog, _: TopicRetention) -> float:
    if waiting.base is None:
        return 0.0
    return bytes_from(waiting.listing, waiting.base) - bytes_from(waiting.listing, waiting.listing.bases[-1])


_ValueOf = Callable[[Backlog, TopicRetention], float | None]
# Name, what it means, and how it is told; None where there is nothing to tell.
_BACKLOG_GAUGES: tuple[tuple[str, str, _ValueOf], ...] = (
    (
        "oldest_unshipped_age_seconds",
        "Age of the oldest closed segment that is not yet below the next offset. While that is not known (just after a "
        "start, or without an answer from the store) all that is closed counts: it may be that nothing was shipped.",
        _age,
    ),
    (
        "retention_left_ratio",
        "Share of its retention that the oldest such segment has left: 1 new, 0 due to be deleted. While the next "
        "offset is not known: that the oldest closed segment has left.",
        _retention_left,
    ),
    ("unshipped_bytes", "Bytes of the closed segments that are not yet below the next offset.", _unshipped_bytes),
    (
        "unshipped_segments",
        "Closed segments that are not yet below the next offset.",
        lambda waiting, _: waiting.segments,
    ),
    ("lag_offsets", "Offsets from the next offset to the high watermark.", lambda waiting, _: waiting.lag),
    ("next_offset", "The end of the run: readers see offsets below it.", lambda waiting, _: waiting.next_offset),
    ("hole", "1 where nothing that this broker still holds continues the run.", lambda waiting, _: waiting.hole),
    (
        "waiting",
        "1 where nothing can go before something is known: the right topic id, a high watermark written in this reign, "
        "the end of the log cleaner's renames, where to go on (after the second attempt in a row that failed), or that "
        "the broker still leads where the store shows a later reign. The log says which.",
        lambda waiting, _: waiting.waits_for is not None,
    ),
)


def reference_page() -> str:
    """The metrics reference as Markdown, from the descriptions above."""
    registry = Metrics().registry
    registry.register(BacklogCollector(dict, lambda _: TopicRetention()))
    lines = [
        "# Metrics of the agent",
        "",
        "Generated from `ts_uploader/metrics.py`; `make docs` writes it anew.",
        "",
        "Served at `/metrics` in Prometheus' text format; beside these, the process's own (`process_*`). Those",
        "with the labels `topic` and `partition` exist for each partition that this agent's broker leads, by what the",
        "leadership source says.",
        "",
        "| metric | type | meaning |",
        "| --- | --- | --- |",
    ]
    for family in sorted(registry.collect(), key=lambda family: family.name):
        if family.name.startswith(_PREFIX):
            suffix = "_total" if family.type == "counter" else ""
            lines.append(f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
