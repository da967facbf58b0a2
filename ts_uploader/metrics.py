"""What the agent counts and measures, for Prometheus. The descriptions here are the metrics page's text."""

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ts_common.model import TopicPartition
from ts_common.object_keys import LOG_SUFFIX
from ts_uploader.tracker import Backlog

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
            "Operations that failed and will be tried again.",
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
        self.leadership_connected = Gauge(
            f"{_PREFIX}_leadership_connected",
            "1 while the source of leadership is being watched, 0 while leadership is unknown.",
            registry=self.registry,
        )


class BacklogCollector(Collector):
    """Per partition what waits; computed when somebody asks.

    Args:
        backlog: answers with the tracker's backlog.
    """

    def __init__(self, backlog: Callable[[], Mapping[TopicPartition, Backlog]]) -> None:
        self._backlog = backlog

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without samples, so that registering asks nobody."""
        return self._families()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families with a sample for each partition that is led here."""
        age, segments, lag, next_offset, hole = families = self._families()
        for partition, waiting in self._backlog().items():
            labels = [partition.topic, str(partition.partition)]
            age.add_metric(labels, oldest_age_seconds(waiting))
            segments.add_metric(labels, waiting.segments if waiting.base is not None else 0)
            hole.add_metric(labels, int(waiting.hole))
            if waiting.lag is not None:
                lag.add_metric(labels, waiting.lag)
            if waiting.next_offset is not None:
                next_offset.add_metric(labels, waiting.next_offset)
        return families

    def _families(self) -> list[GaugeMetricFamily]:
        labels = ["topic", "partition"]
        return [
            GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
            for name, text in (
                (
                    "oldest_unshipped_age_seconds",
                    "Age of the oldest closed segment that is not yet below the next offset.",
                ),
                ("unshipped_segments", "Closed segments that are not yet below the next offset."),
                ("lag_offsets", "Offsets from the next offset to the high watermark."),
                ("next_offset", "The end of the run: readers see offsets below it."),
                ("hole", "1 where the next offset lies below every segment that this broker still holds."),
            )
        ]


def oldest_age_seconds(waiting: Backlog) -> float:
    """Seconds since the oldest waiting segment was written last; 0 where none waits or it is gone by now."""
    if waiting.base is None:
        return 0.0
    try:
        written = (waiting.listing.directory / f"{waiting.base:020d}{LOG_SUFFIX}").stat().st_mtime
    except OSError:
        return 0.0
    return max(0.0, time.time() - written)


def reference_page() -> str:
    """The metrics reference as Markdown, from the descriptions above."""
    registry = Metrics().registry
    registry.register(BacklogCollector(dict))
    lines = [
        "# Metrics of the agent",
        "",
        "Generated from `ts_uploader/metrics.py`; `make docs` writes it anew.",
        "",
        "Served at `/metrics` in Prometheus' text format; beside these, the process's own (`process_*`). Those",
        "with the labels `topic` and `partition` exist for each partition that this agent's broker leads.",
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
