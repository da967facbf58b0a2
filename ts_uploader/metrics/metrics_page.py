"""The reference of the agent's metrics as Markdown, from their descriptions."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.metrics.counters import LABEL_VALUES, PREFIX, CountedElsewhere, Metrics
from ts_uploader.retention.topic_retention import TopicRetention

_BY_PARTITION = f"{PREFIX}_partition_"
_SUFFIXES = {"counter": "_total", "info": "_info"}


def families() -> Iterator[Metric]:
    """Yield each metric family of an agent and of its process (`process_*`) by name; values mean nothing."""
    metrics = Metrics()
    metrics.registry.register(CountedElsewhere())
    backlog = BacklogCollector(dict, lambda _: TopicRetention(), lambda: True)
    metrics.registry.register(backlog)
    yield from sorted(metrics.registry.collect(), key=lambda family: family.name)


def shown_name(family: Metric) -> str:
    """Return a family's name as its samples have it; a histogram's without `_bucket`, `_sum` and `_count`."""
    return family.name + _SUFFIXES.get(family.type, "")


def section() -> str:
    """Return a section of Markdown."""
    own = [family for family in families() if family.name.startswith(PREFIX)]
    lines = [
        "## The agent",
        "",
        "From `ts_uploader/metrics/counters.py` and `ts_uploader/metrics/backlog_metrics.py`. The agent serves them at",
        "`/metrics` in Prometheus' text format, with the metrics of its process (`process_*`), and can send them to",
        "Graphite or StatsD. The [runbook](runbook.md) describes what to do when an alert fires.",
        "[Tables](tables.md#schedulers-and-metrics) have metrics of their own.",
        "",
        "| metric | type | meaning |",
        "| --- | --- | --- |",
        *(_row(family) for family in own if not _is_by_partition(family)),
        "",
        "With `metrics.partitions=true`, for each partition that this broker leads, with the labels `topic` and",
        "`partition`:",
        "",
        "| metric | type | meaning |",
        "| --- | --- | --- |",
        *(_row(family) for family in own if _is_by_partition(family)),
        "",
        "### Labels",
        *_label_tables(),
    ]
    return "\n".join(lines) + "\n"


def _is_by_partition(family: Metric) -> bool:
    """Return whether each partition has a series of the family if that is configured; stuck ones always have one."""
    return family.name.startswith(_BY_PARTITION) and family.name not in LABEL_VALUES


def _row(family: Metric) -> str:
    labels = "".join(f" `{label}`" for label in LABEL_VALUES.get(family.name, {}))
    meaning = family.documentation + (f" Labels:{labels}." if labels else "")
    return f"| `{shown_name(family)}` | {family.type} | {meaning} |"


def _label_tables() -> Iterator[str]:
    """Yield a table of values for each label; metrics whose label has the same values share one."""
    types = {family.name: shown_name(family) for family in families()}
    shared: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for name, labels in LABEL_VALUES.items():
        for label, values in labels.items():
            if values:
                shared.setdefault((label, tuple(values.items())), []).append(f"`{types[name]}`")
    for (label, rows), names in shared.items():
        yield from ("", f"`{label}` of {', '.join(names)}:", "", "| value | meaning |", "| --- | --- |")
        yield from (f"| `{value}` | {meaning} |" for value, meaning in rows)
