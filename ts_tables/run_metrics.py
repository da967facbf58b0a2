"""Metrics of runs, in a file for the textfile collector of Prometheus' node_exporter.

Each run of a table changes the series of its table. Counters continue from the former file. The series of other tables
stay.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from ts_common.errors import OperatorError
from ts_common.metrics_file import MetricsTextFile
from ts_tables.run import RunSummary

PREFIX: Final = "ts_tables"
_TABLE: Final = "table"
_TOPIC: Final = "topic"
# Each has the name of an attribute of RunSummary.
_COUNTERS: Final = {
    "records": "Records added.",
    "refused": "Records that the parser refused; they are in the table of refused records.",
    "late": "Rows of hours or days that were marked before.",
    "files": "Files added.",
    "bytes": "Bytes of these files.",
    "commits": "Commits.",
    "conflicts": "Attempts to commit that the commit of another run or program refused.",
}
_LAG: Final = "lag_offsets"
_HOLES: Final = "waiting_holes"
_VALID_THROUGH: Final = "valid_through_timestamp_seconds"
_MARKED: Final = "marked_through_timestamp_seconds"
_SUCCESS: Final = "last_success_timestamp_seconds"
_FAILURE: Final = "last_failure_timestamp_seconds"
_GAUGES: Final = {
    _LAG: "Offsets of a topic that are shipped and that the table lacks, after the last run without an error.",
    _HOLES: "Holes that the table waits at, after the last run without an error.",
    _VALID_THROUGH: "The least, over the partitions of the last commit with rows, of their greatest timestamp.",
    _MARKED: "End of the hours or days that all Kafka partitions have passed, after the last run without an error.",
    _SUCCESS: "End of the last run without an error; 0 before the first. A run that waits at a hole is one.",
    _FAILURE: "End of the last run with an error; 0 before the first.",
}

_Series = tuple[str, str, str]  # name of the metric without the prefix, table, topic or ""


class MetricsFile:
    """The metrics of the runs of tables.

    Args:
        path: of the file. The collector reads names that end in `.prom`.
        warn: called with a sentence if the former file is replaced, or the file cannot be written.

    Raises:
        OperatorError: as `MetricsTextFile`.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._file = MetricsTextFile(path, PREFIX)
        self._warn = warn

    @contextmanager
    def recording(self, table: str) -> Iterator[RunSummary]:
        """Yield a summary for one run of a table; write its metrics after the run, also after an error."""
        summary, outcome = RunSummary(), ""
        try:
            yield summary
            outcome = _SUCCESS
        except Exception:
            outcome = _FAILURE
            raise
        finally:  # an interrupted run has neither outcome, but it can have made commits
            try:
                self._write(table, summary, outcome)
            except (OSError, OperatorError) as error:
                self._warn(f"{self._file.path}: metrics of {table} were not written: {error}")

    def _write(self, table: str, summary: RunSummary, outcome: str) -> None:
        series: defaultdict[_Series, float] = defaultdict(float)
        known = {_sample(name): name for name in (*_COUNTERS, *_GAUGES)}

        def former(samples: Sequence[Sample]) -> None:
            series.update(
                {
                    (known[each.name], each.labels[_TABLE], each.labels.get(_TOPIC, "")): each.value
                    for each in samples
                    if each.name in known
                }
            )

        def changed() -> Iterator[Metric]:
            _add(series, table, summary, outcome)
            return _collected(series)

        self._file.update(former, changed, self._warn)


def _collected(series: Mapping[_Series, float]) -> Iterator[Metric]:
    """Yield each family with its samples.

    Args:
        series: values by name, table and topic.
    """
    by_name = {family.name.removeprefix(f"{PREFIX}_"): family for family in families()}
    for (name, table, topic), value in sorted(series.items()):
        by_name[name].add_metric([table, topic] if name == _LAG else [table], value)
    yield from by_name.values()


def families() -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    """Yield each family, without samples."""
    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[_TABLE])
    for name, text in _GAUGES.items():
        yield GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[_TABLE, _TOPIC] if name == _LAG else [_TABLE])


def _sample(name: str) -> str:
    return f"{PREFIX}_{name}_total" if name in _COUNTERS else f"{PREFIX}_{name}"


def _add(series: defaultdict[_Series, float], table: str, summary: RunSummary, outcome: str) -> None:
    """Change the series of a table by one run."""
    for name in _COUNTERS:
        series[name, table, ""] += getattr(summary, name)
    for name in (_SUCCESS, _FAILURE):
        series[name, table, ""] = time.time() if name == outcome else series[name, table, ""]
    if summary.valid_through is not None:
        series[_VALID_THROUGH, table, ""] = summary.valid_through / 1000
    if summary.marked_through is not None:
        series[_MARKED, table, ""] = summary.marked_through
    if outcome == _SUCCESS:
        series[_HOLES, table, ""] = len(summary.waits)
        for one in [one for one in series if one[:2] == (_LAG, table)]:
            del series[one]
        for topic, offsets in summary.lag.items():
            series[_LAG, table, topic] = offsets
