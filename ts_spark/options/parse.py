"""The options of a query, with the names of Spark's own Kafka source.

Spark passes option names in lower case, so names are compared without case; messages use the documented spelling. One
error lists all problems of a query's options.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES, BatchLimit
from ts_reader.query.policies import Mode, Tolerance, View
from ts_reader.query.query import Bound, Edge, Offsets, Query, SplitLimits, Subscription
from ts_reader.reading.incarnation_option import NEWEST, parse_incarnation
from ts_spark.options import option_values as values
from ts_spark.options.batch_limits import Rates, parse_duration
from ts_spark.options.cluster_config import Place, completed
from ts_spark.options.modes import CORRUPT_COLUMN, parse_corrupt_column, parse_mode, parse_view
from ts_spark.options.spark_query import Kind, SparkQuery
from ts_spark.options.wording import SPARK

SOURCE: Final = "options of kafka_segments"
_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_PASSED_BY_SPARK: Final = frozenset({"serialization.format"})  # of tables and views, in their options
_SEVERAL_PATHS: Final = "paths"  # what Spark makes of .load([...])
_TABLE_OPTION: Final = "option."  # before each name that CREATE TABLE hands over
_NO_TABLE: Final = "CREATE TABLE is not supported; use CREATE TEMPORARY VIEW ... USING kafka_segments OPTIONS (...)"
_ISOLATION: Final = "kafka.isolation.level"
_CLIENT: Final = "kafka."  # before each setting of Kafka's consumer
# Spark's `KafkaSourceProvider` and `KafkaOffsetReader`.
_BROKERS: Final = {
    name.lower(): name
    for name in (
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
}
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_BATCH_BYTES: Final = "maxBatchBytes"
_RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_T = TypeVar("_T")


def parse_options(given: Mapping[str, str], kind: Kind | None = Kind.BATCH) -> SparkQuery:
    """Parse and check a query's options.

    Args:
        given: as Spark passes them.
        kind: of the query; None while Spark has not decided it: options that only one kind rejects are accepted.

    Raises:
        ConfigurationError: with every problem.
    """
    if any(name.lower().startswith(_TABLE_OPTION) for name in given):
        raise ConfigurationError(SOURCE, [_NO_TABLE])
    reader = _Reader(given)
    location = reader.read("path", values.location)
    cluster = reader.read("cluster", values.cluster)
    if not reader.given("path") and not reader.given(_SEVERAL_PATHS) and not reader.given("config"):
        reader.problems.append('path: missing; name the location: .load("s3://bucket/base/prefix"), or file:///dir')
    if not reader.given("cluster") and not reader.given("config"):
        reader.problems.append("cluster: missing; it is the cluster's part of the keys in the store")
    entropy_bits = reader.read("prefixEntropyBits", values.entropy_bits)
    chosen = [name for name in _SUBSCRIPTIONS if reader.given(name)]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "nothing is given"
        reader.problems.append(f"exactly one of {', '.join(_SUBSCRIPTIONS)} is needed; {found}")
    topics = reader.read("subscribe", values.topics)
    pattern = reader.read("subscribePattern", values.pattern)
    assigned = reader.read("assign", values.assignment)
    start = _first(
        reader.read("startingTimestamp", values.timestamp),
        reader.read("startingOffsetsByTimestamp", values.timestamps),
        reader.read("startingOffsets", lambda text: values.starting_offsets(text, kind)),
    )
    if kind is Kind.STREAM:
        refused = [name for name in _ENDS if reader.given(name)]
        reader.problems += [f"{name}: a stream has no end; drop it, or use spark.read" for name in refused]
    end = _first(
        reader.read("endingTimestamp", values.timestamp),
        reader.read("endingOffsetsByTimestamp", values.timestamps),
        reader.read("endingOffsets", values.ending_offsets),
    )
    limits = SplitLimits(
        reader.read("minPartitions", values.positive), reader.read("maxRecordsPerPartition", values.positive)
    )
    rates = _rates(reader)
    strategy = reader.read("startingOffsetsByTimestampStrategy", values.strategy)
    include_headers = reader.read("includeHeaders", values.boolean)
    include_timestamp_ms = reader.read("includeTimestampMs", values.boolean)
    fail_on_data_loss = reader.read("failOnDataLoss", values.boolean)
    isolation = reader.read(_ISOLATION, values.isolation)
    incarnation = reader.read("incarnation", parse_incarnation)
    push_down = reader.read("pushDownPredicate", values.boolean)
    place = Place(location, cluster, entropy_bits)
    if (file := reader.read("config", str)) is not None:
        place = completed(place, file, topics or assigned or (None if pattern else ()), reader.problems)
    if kind is Kind.STREAM and (incarnation or NEWEST) != NEWEST:
        reader.problems.append("incarnation: a stream follows the newest one; drop it, or use spark.read")
    if kind is Kind.STREAM and place.topics_elsewhere:
        there = "; ".join(f"{', '.join(names)} in {endpoint.location}" for endpoint, names in place.topics_elsewhere)
        reader.problems.append(
            f"config: a stream reads one location, and the topics are in several ({there}): start one stream for each"
        )
    mode = reader.read("mode", parse_mode) or Mode.FAILFAST
    corrupt_column = reader.read("columnNameOfCorruptRecord", parse_corrupt_column) or CORRUPT_COLUMN
    view = reader.read("view", parse_view) or View.LOG
    most = reader.read(_BATCH_BYTES, values.batch_bytes)
    if view is View.LATEST:
        reader.problems += _latest_problems(reader, start, mode, kind)
    if reader.problems or place.location is None or place.cluster is None:
        raise ConfigurationError(SOURCE, reader.problems)
    query = Query(
        location=place.location,
        cluster=place.cluster,
        entropy_bits=place.entropy_bits,
        subscription=Subscription(topics or (), pattern, assigned),
        start=start or (Edge.LATEST if kind is Kind.STREAM else Edge.EARLIEST),
        end=end or Edge.LATEST,
        start_without_match=Edge.LATEST if strategy == "latest" else None,
        fail_on_data_loss=fail_on_data_loss is not False,
        read_committed=isolation == values.READ_COMMITTED,
        limits=limits,
        incarnation=incarnation or NEWEST,
        topics_elsewhere=place.topics_elsewhere,
        connection=place.connection,
        tolerance=Tolerance(mode, corrupt_column if mode is Mode.PERMISSIVE else None),
        view=view,
        limit=BatchLimit(MAX_BATCH_BYTES if most is None else most, _BATCH_BYTES),
        wording=SPARK,
    )
    included = (bool(include_headers), bool(include_timestamp_ms))
    return SparkQuery(query, *included, bool(push_down), rates, reader.ignored(kind))


class _Reader:
    """Reads options one by one and collects their problems."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        known = {*_DOCUMENTED, *_PASSED_BY_SPARK, _SEVERAL_PATHS}
        self.problems = [_unknown(name) for name in self._values if name not in known and not _is_for_brokers(name)]
        if _SEVERAL_PATHS in self._values:
            self.problems.append("path: a query reads one location, and several are given; union two queries")

    def ignored(self, kind: Kind | None) -> str | None:
        """Return one sentence about all options without effect; None if every option has an effect."""
        brokers = [_BROKERS.get(name, name) for name in self._values if _is_for_brokers(name)]
        reasons = [f"without a broker: {', '.join(brokers)}"] if brokers else []
        rates = [name for name in _RATES if self.given(name)] if kind is Kind.BATCH else []
        reasons += [f"in a batch query: {', '.join(rates)}"] if rates else []
        return f"options have no effect {'; '.join(reasons)}" if reasons else None

    def given(self, name: str) -> bool:
        return name.lower() in self._values

    def read(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        """Return the value of an option; None if it is absent or wrong."""
        text = self._values.get(name.lower())
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            self.problems.append(f"{name}={text}: {error}")
            return None


def _is_for_brokers(name: str) -> bool:
    """Return whether an option of Spark's Kafka source concerns brokers; the same options serve both sources."""
    return name in _BROKERS or (name.startswith(_CLIENT) and name != _ISOLATION)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _DOCUMENTED, n=1)
    known = ", ".join(_NAMES[1:])
    return f"{name}: unknown option; " + (f"did you mean {_DOCUMENTED[close[0]]}?" if close else f"known: {known}")


def _rates(reader: _Reader) -> Rates:
    most = reader.read("maxOffsetsPerTrigger", values.positive)
    least = reader.read("minOffsetsPerTrigger", values.positive)
    longest = reader.read("maxTriggerDelay", parse_duration)
    if most is not None and least is not None and least > most:
        reader.problems.append(f"minOffsetsPerTrigger={least}: it is above maxOffsetsPerTrigger={most}")
    return Rates(most, least) if longest is None else Rates(most, least, longest)


def _first(*bounds: Bound | None) -> Bound | None:
    """Return the bound with precedence, as in Spark's Kafka source; all bounds have been checked."""
    return next((bound for bound in bounds if bound is not None), None)


def _latest_problems(reader: _Reader, start: Bound | None, mode: Mode, kind: Kind | None) -> list[str]:
    """Return the options that conflict with view=latest."""
    if kind is Kind.STREAM:
        return ["view=latest: it needs an end, and a stream has no end; use spark.read"]
    problems = []
    begins = start.by_topic.values() if isinstance(start, Offsets) else ()
    is_earliest = {edge for partitions in begins for edge in partitions.values()} == {Edge.EARLIEST}
    if start is not None and start is not Edge.EARLIEST and not is_earliest:
        problems.append(
            "view=latest: it starts at earliest, because a newest record may be anywhere; drop the starting bound"
        )
    problems += [
        f"view=latest: one task reads a partition; drop {name}"
        for name in ("minPartitions", "maxRecordsPerPartition")
        if reader.given(name)
    ]
    if mode is Mode.PERMISSIVE:
        problems.append("view=latest: a corrupt batch has no newest record; use mode FAILFAST or DROPMALFORMED")
    return problems


_NAMES: Final = (
    "path",
    "cluster",
    "prefixEntropyBits",
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    *_RATES,
    "includeHeaders",
    "includeTimestampMs",
    "failOnDataLoss",
    "config",
    "incarnation",
    "pushDownPredicate",
    _ISOLATION,
    "mode",
    "columnNameOfCorruptRecord",
    "view",
    _BATCH_BYTES,
)
_DOCUMENTED: Final = {name.lower(): name for name in _NAMES}
