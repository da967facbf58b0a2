"""The options of a query, with the names of Spark's own Kafka source.

Spark passes option names in lower case, so names are compared without case; messages use the documented spelling. One
error lists all problems of a query's options. `ts_reader.options` describes the options that every reader has.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from ts_common.errors import ConfigurationError
from ts_reader.options.given import Given, Option, ValueType
from ts_reader.options.scan_options import (
    BOTH_EDGES,
    CLUSTER_ID,
    CONFIG,
    ENTROPY_BITS,
    INCLUDE_HEADERS,
    INCLUDE_TIMESTAMP_MS,
    LOCATION_URL,
    bound_of,
    scan_query,
    stream_problems,
    subscription_of,
)
from ts_reader.options.value_types import BOOLEAN, by_partition, whole
from ts_reader.query.query import Bound, Edge, Query, SplitLimits, Subscription, View, Wording
from ts_spark.options.batch_limits import Rates, parse_duration
from ts_spark.options.schema import COLUMNS

SOURCE: Final = "options of kafka_segments"
SPARK: Final = Wording(
    names={
        "location": "path",
        "cluster": "cluster",
        "prefix_entropy_bits": "prefixEntropyBits",
        "topic": "subscribe",
        "pattern": "subscribePattern",
        "partitions": "assign",
        "starting_offsets": "startingOffsets",
        "ending_offsets": "endingOffsets",
        "starting_timestamp": "startingTimestamp",
        "ending_timestamp": "endingTimestamp",
        "starting_timestamps": "startingOffsetsByTimestamp",
        "ending_timestamps": "endingOffsetsByTimestamp",
        "starting_without_match": "startingOffsetsByTimestampStrategy",
        "include_headers": "includeHeaders",
        "include_timestamp_ms": "includeTimestampMs",
        "fail_on_data_loss": "failOnDataLoss",
        "config": "config",
        "incarnation": "incarnation",
        "isolation_level": "kafka.isolation.level",
        "mode": "mode",
        "corrupt_column": "columnNameOfCorruptRecord",
        "view": "view",
        "tail": "tail",
        "max_batch_bytes": "maxBatchBytes",
    },
    has_texts=True,
    earliest="-2",
    latest="-1",
    by_partition='JSON like {{"topic":{{"0":{0},"1":{1}}}}}',
    without_match="startingOffsetsByTimestampStrategy=latest",
    as_pattern="subscribePattern",
    stream="a stream",
    instead_of_stream="use spark.read",
    despite_loss='To read what is there, set option("failOnDataLoss", "false")',
    exact_times='option("includeTimestampMs", "true") adds the time as stored',
    despite_corruption=(
        'To read what is whole, set option("mode", "DROPMALFORMED"), or "PERMISSIVE" to see where it is not'
    ),
)
_MIN_PARTITIONS: Final[Option[int | None]] = Option("minPartitions", whole(1), None)
_MOST_RECORDS: Final[Option[int | None]] = Option("maxRecordsPerPartition", whole(1), None)
_MOST_OFFSETS: Final[Option[int | None]] = Option("maxOffsetsPerTrigger", whole(1), None)
_LEAST_OFFSETS: Final[Option[int | None]] = Option("minOffsetsPerTrigger", whole(1), None)
_LONGEST_WAIT: Final = Option("maxTriggerDelay", ValueType(parse_duration), Rates().longest_wait_milliseconds)
_PUSH_DOWN: Final = Option("pushDownPredicate", BOOLEAN, False)
_RATES: Final = (_MOST_OFFSETS, _LEAST_OFFSETS, _LONGEST_WAIT)
_OWN: Final = (_MIN_PARTITIONS, _MOST_RECORDS, *_RATES, _PUSH_DOWN)
DOCUMENTED: Final = {**SPARK.names, **{option.name: option.name for option in _OWN}}
_BY_ALIAS: Final = {alias.lower(): name for name, alias in DOCUMENTED.items()}
_SUBSCRIPTIONS: Final = ("topic", "pattern", "partitions")
_PASSED_BY_SPARK: Final = frozenset({"serialization.format"})  # of tables and views, in their options
_SEVERAL_PATHS: Final = "paths"  # what Spark makes of .load([...])
_TABLE_OPTION: Final = "option."  # before each name that CREATE TABLE hands over
_NO_TABLE: Final = "CREATE TABLE is not supported; use CREATE TEMPORARY VIEW ... USING kafka_segments OPTIONS (...)"
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


class QueryKind(Enum):
    """Whether a query ends."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """The validated options of `kafka_segments`.

    Attributes:
        include_headers: whether the table has a column `headers`.
        include_timestamp_ms: whether it has a column `timestampMs`.
        push_down_predicate: whether filters may leave out records; see `ts_spark.options.filters`.
        rates: the size of a stream's batches.
        ignored: one sentence on given options without effect; None without such options.
    """

    query: Query
    include_headers: bool
    include_timestamp_ms: bool
    push_down_predicate: bool
    rates: Rates
    ignored: str | None = None


def parse_options(given: Mapping[str, str], kind: QueryKind | None = QueryKind.BATCH) -> SparkQuery:
    """Parse and check a query's options.

    Args:
        given: as Spark passes them.
        kind: of the query; None while Spark has not decided it: options that only one kind rejects are accepted.

    Raises:
        ConfigurationError: with every problem.
    """
    values = {name.lower(): value for name, value in given.items()}
    if any(name.startswith(_TABLE_OPTION) for name in values):
        raise ConfigurationError(SOURCE, [_NO_TABLE])
    unknown = [name for name in values if name not in {*_BY_ALIAS, *_PASSED_BY_SPARK, _SEVERAL_PATHS}]
    options = Given({_BY_ALIAS[name]: values[name] for name in values if name in _BY_ALIAS}, SOURCE, SPARK)
    options.problems += [_unknown(name) for name in unknown if not _is_for_brokers(name)]
    options.problems += _missing(options, has_several_paths=_SEVERAL_PATHS in values)
    subscription = _subscription(options)
    place = _place(options, subscription)
    start, end = _bounds(options, tuple(subscription.assigned or subscription.topics), kind)
    query = scan_query(options, place, subscription, start, end, COLUMNS)
    if kind is QueryKind.STREAM:
        options.problems += stream_problems(options, query.view, query.incarnation, query.topics_elsewhere)
    parsed = SparkQuery(
        replace(query, limits=_limits(options, query.view)),
        options.read(INCLUDE_HEADERS),
        options.read(INCLUDE_TIMESTAMP_MS),
        options.read(_PUSH_DOWN),
        _rates(options),
        _ignored(options, unknown, kind),
    )
    options.check()
    return parsed


def _is_for_brokers(name: str) -> bool:
    """Return whether an option of Spark's Kafka source concerns brokers; the same options serve both sources."""
    return name in _BROKERS or name.startswith(_CLIENT)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _BY_ALIAS, n=1)
    known = ", ".join([*DOCUMENTED.values()][1:])
    hint = f"did you mean {DOCUMENTED[_BY_ALIAS[close[0]]]}?" if close else f"known: {known}"
    return f"{name}: unknown option; {hint}"


def _missing(options: Given, *, has_several_paths: bool) -> list[str]:
    """Return which options are missing, or are given twice."""
    problems = []
    if has_several_paths:
        problems.append("path: a query reads one location, and several are given; union two queries")
    elif "location" not in options and "config" not in options:
        problems.append('path: missing; name the location: .load("s3://bucket/base/prefix"), or file:///dir')
    if "cluster" not in options and "config" not in options:
        problems.append("cluster: missing; it is the cluster's part of the keys in the store")
    chosen = [SPARK.name(name) for name in _SUBSCRIPTIONS if name in options]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "nothing is given"
        problems.append(f"exactly one of {', '.join(map(SPARK.name, _SUBSCRIPTIONS))} is needed; {found}")
    return problems


def _place(options: Given, subscription: Subscription) -> Query:
    """Return a query of nothing, with the location and the connection that the options name."""
    location = options.read(LOCATION_URL)
    place = Query(str(location or ""), options.read(CLUSTER_ID) or "", options.read(ENTROPY_BITS), Subscription())
    if (file := options.read(CONFIG)) is None:
        return place
    from ts_spark.options.cluster_config import completed  # noqa: PLC0415  (pydantic: Spark loads this for any source)

    return completed(place, file, subscription, options.problems)


def _subscription(options: Given) -> Subscription:
    """Return the topics and partitions."""
    if "partitions" in options:
        assigned = options.read(Option("partitions", _ASSIGNED, _NONE_ASSIGNED))
        return subscription_of(options, list(assigned), assigned, "partitions") if assigned else Subscription()
    if "pattern" in options:
        return Subscription(pattern=options.read(Option("pattern", _PATTERN, None)))
    names = options.read(Option("topic", _TOPICS, ()))
    return subscription_of(options, names, None) if names else Subscription()


def _topics(text: str) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("names of topics are expected, with commas between them")
    return names


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


def _assigned(text: str) -> Mapping[str, Any]:
    try:
        value = by_partition(text)
    except ValueError as error:
        raise ValueError(f'JSON like {{"topic":[0,1]}} is expected; {error}') from error
    if not isinstance(value, dict) or not value:
        raise ValueError('JSON like {"topic":[0,1]} is expected, with at least one topic')
    return value


_TOPICS: Final = ValueType(_topics)
_PATTERN: Final[ValueType[re.Pattern[str] | None]] = ValueType(_pattern)
_ASSIGNED: Final = ValueType(_assigned)
_NONE_ASSIGNED: Final[Mapping[str, Any]] = {}


def _bounds(options: Given, topics: Sequence[str], kind: QueryKind | None) -> tuple[Bound, Bound]:
    """Return where partitions start and end; the precedence is that of Spark's Kafka source."""
    edges = BOTH_EDGES[:1] if kind is QueryKind.BATCH else BOTH_EDGES
    start = bound_of(options, "starting", topics, edges) or (Edge.LATEST if kind is QueryKind.STREAM else Edge.EARLIEST)
    if kind is not QueryKind.STREAM:
        return start, bound_of(options, "ending", topics, BOTH_EDGES[1:]) or Edge.LATEST
    ends = [SPARK.name(name) for name in DOCUMENTED if name.startswith("ending_") and name in options]
    options.problems += [f"{name}: a stream has no end; drop it, or use spark.read" for name in ends]
    return start, Edge.LATEST


def _limits(options: Given, view: View) -> SplitLimits:
    if view is View.LATEST:
        options.problems += [
            f"view=latest: one task reads a partition; drop {option.name}"
            for option in (_MIN_PARTITIONS, _MOST_RECORDS)
            if option.name in options
        ]
    return SplitLimits(options.read(_MIN_PARTITIONS), options.read(_MOST_RECORDS))


def _rates(options: Given) -> Rates:
    most, least = options.read(_MOST_OFFSETS), options.read(_LEAST_OFFSETS)
    rates = Rates(most, least, options.read(_LONGEST_WAIT))
    if most is not None and least is not None and least > most:
        options.problems.append(f"minOffsetsPerTrigger={least}: it is above maxOffsetsPerTrigger={most}")
    return rates


def _ignored(options: Given, unknown: Sequence[str], kind: QueryKind | None) -> str | None:
    """Return one sentence about all options without effect; None if every option has an effect."""
    brokers = [_BROKERS.get(name, name) for name in unknown]
    reasons = [f"without a broker: {', '.join(brokers)}"] if brokers else []
    rates = [option.name for option in _RATES if option.name in options] if kind is QueryKind.BATCH else []
    reasons += [f"in a batch query: {', '.join(rates)}"] if rates else []
    return f"options have no effect {'; '.join(reasons)}" if reasons else None
