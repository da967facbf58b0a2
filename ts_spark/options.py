"""The options of a query, in the words of Spark's own Kafka source.

Spark hands option names over in lower case, so they are compared without case and named in messages as documented.
All problems of a query's options are told at once.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id, is_topic_name
from ts_common.object_keys import MAX_ENTROPY_BITS
from ts_common.store.factory import parse_location
from ts_spark.cluster_config import Locations, Place, completed
from ts_spark.incarnation import NEWEST, parse_incarnation
from ts_spark.modes import CORRUPT_COLUMN, STRICT, Mode, Tolerance, View, parse_corrupt_column, parse_mode, parse_view
from ts_spark.rates import Rates, parse_duration

SOURCE: Final = "options of kafka_segments"
_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_PASSED_BY_SPARK: Final = frozenset({"serialization.format"})  # of tables and views, in their options
_SEVERAL_PATHS: Final = "paths"  # what Spark makes of .load([...])
_TABLE_OPTION: Final = "option."  # before each name that CREATE TABLE hands over
_NO_TABLE: Final = "CREATE TABLE is not supported; use CREATE TEMPORARY VIEW ... USING kafka_segments OPTIONS (...)"
_ISOLATION: Final = "kafka.isolation.level"
_READ_COMMITTED: Final = "read_committed"
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_T = TypeVar("_T")


class Kind(Enum):
    """Which of a query's options mean anything: it ends, or it goes on."""

    BATCH = "batch"
    STREAM = "stream"


class Edge(Enum):
    """A place in each partition that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


# In the JSON forms, as in Kafka.
_EDGES: Final = {-2: Edge.EARLIEST, -1: Edge.LATEST}


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition that is asked for; `Edge` where -2 or -1 was written."""

    by_topic: Mapping[str, Mapping[int, int | Edge]]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record with this timestamp (ms) or a later one."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Timestamps:
    """As `Timestamp`, for each partition that is asked for."""

    by_topic: Mapping[str, Mapping[int, int]]


Bound = Edge | Offsets | Timestamp | Timestamps


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions; one of the three is given.

    Attributes:
        topics: whole topics, by name.
        pattern: whole topics, by a regular expression over the whole name.
        assigned: single partitions by topic.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How large a task may be.

    Attributes:
        least: tasks that are wanted at least, as far as there are offsets for them; None for no wish.
        most_offsets: of one task; None for no bound.
    """

    least: int | None = None
    most_offsets: int | None = None


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The validated options.

    Attributes:
        location: of the store, a URL.
        cluster: whose topics.
        entropy_bits: of the store's keys; 0 means none.
        subscription: which partitions.
        start: the first offset of each.
        end: the offset after the last of each.
        start_without_match: where a partition begins that holds no record of the starting timestamp or later; None
            means that this is an error.
        include_headers: whether there is a column `headers`.
        fail_on_data_loss: whether offsets that are gone end the query.
        read_committed: whether records of aborted and of undecided transactions are left out.
        limits: how large a task may be.
        incarnation: which life of each topic, as `ts_spark.incarnation.parse_incarnation` says.
        push_down_predicate: whether filters may leave out what they do not want; see `ts_spark.filters`.
        topics_elsewhere: other locations and the topics that lie there; see `ts_spark.locations`.
        rates: how large a stream's batch may be.
        ignored: options that mean nothing to a query of this kind, and harm nothing.
        tolerance: what is done with corrupt batches.
        view: which records are rows.
    """

    location: str
    cluster: str
    entropy_bits: int
    subscription: Subscription
    start: Bound
    end: Bound
    start_without_match: Edge | None
    include_headers: bool
    fail_on_data_loss: bool
    read_committed: bool
    limits: SplitLimits
    rates: Rates
    ignored: tuple[str, ...] = ()
    incarnation: str = NEWEST
    push_down_predicate: bool = False
    topics_elsewhere: Locations = ()
    tolerance: Tolerance = STRICT
    view: View = View.LOG


def parse_options(given: Mapping[str, str], kind: Kind | None = Kind.BATCH) -> QueryOptions:
    """Check and read a query's options.

    Args:
        given: as Spark hands them over.
        kind: of the query; None where Spark has not said it yet: what only one kind refuses passes.

    Raises:
        ConfigurationError: with every problem that they have.
    """
    if any(name.lower().startswith(_TABLE_OPTION) for name in given):
        raise ConfigurationError(SOURCE, [_NO_TABLE])
    reader = _Reader(given)
    location = reader.read("path", _location)
    cluster = reader.read("cluster", _cluster)
    if not reader.given("path") and not reader.given(_SEVERAL_PATHS) and not reader.given("config"):
        reader.problems.append('path: missing; name the location: .load("s3://bucket/base/prefix"), or file:///dir')
    if not reader.given("cluster") and not reader.given("config"):
        reader.problems.append("cluster: missing; it is the cluster's part of the keys in the store")
    entropy_bits = reader.read("prefixEntropyBits", _entropy_bits)
    chosen = [name for name in _SUBSCRIPTIONS if reader.given(name)]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        reader.problems.append(f"exactly one of {', '.join(_SUBSCRIPTIONS)} is needed; {found}")
    topics = reader.read("subscribe", _topics)
    pattern = reader.read("subscribePattern", _pattern)
    assigned = reader.read("assign", _assignment)
    start = _first(
        reader.read("startingTimestamp", _timestamp),
        reader.read("startingOffsetsByTimestamp", _timestamps),
        reader.read("startingOffsets", lambda text: _starting_offsets(text, kind)),
    )
    if kind is Kind.STREAM:
        refused = [name for name in _ENDS if reader.given(name)]
        reader.problems += [f"{name}: a stream has no end; drop it, or use spark.read" for name in refused]
    end = _first(
        reader.read("endingTimestamp", _timestamp),
        reader.read("endingOffsetsByTimestamp", _timestamps),
        reader.read("endingOffsets", _ending_offsets),
    )
    limits = SplitLimits(reader.read("minPartitions", _positive), reader.read("maxRecordsPerPartition", _positive))
    rates = _rates(reader)
    strategy = reader.read("startingOffsetsByTimestampStrategy", _strategy)
    include_headers = reader.read("includeHeaders", _boolean)
    fail_on_data_loss = reader.read("failOnDataLoss", _boolean)
    isolation = reader.read(_ISOLATION, _isolation)
    incarnation = reader.read("incarnation", parse_incarnation)
    push_down = reader.read("pushDownPredicate", _boolean)
    place = Place(location, cluster, entropy_bits)
    if (file := reader.read("config", str)) is not None:
        place = completed(place, file, topics or assigned or (None if pattern else ()), reader.problems)
    if kind is Kind.STREAM and (incarnation or NEWEST) != NEWEST:
        reader.problems.append("incarnation: a stream follows the newest one; drop it, or use spark.read")
    if kind is Kind.STREAM and place.topics_elsewhere:
        there = "; ".join(f"{', '.join(names)} in {url}" for url, names in place.topics_elsewhere)
        reader.problems.append(
            f"config: a stream reads one location, and the topics lie in several ({there}): start one each"
        )
    mode = reader.read("mode", parse_mode) or Mode.FAILFAST
    corrupt_column = reader.read("columnNameOfCorruptRecord", parse_corrupt_column) or CORRUPT_COLUMN
    view = reader.read("view", parse_view) or View.LOG
    if view is View.LATEST:
        reader.problems += _latest_problems(reader, start, mode, kind)
    if reader.problems or place.location is None or place.cluster is None:
        raise ConfigurationError(SOURCE, reader.problems)
    return QueryOptions(
        location=place.location,
        cluster=place.cluster,
        entropy_bits=place.entropy_bits or 0,
        subscription=Subscription(topics or (), pattern, assigned),
        start=start or (Edge.LATEST if kind is Kind.STREAM else Edge.EARLIEST),
        end=end or Edge.LATEST,
        start_without_match=Edge.LATEST if strategy == "latest" else None,
        include_headers=bool(include_headers),
        fail_on_data_loss=fail_on_data_loss is not False,
        read_committed=isolation == _READ_COMMITTED,
        limits=limits,
        incarnation=incarnation or NEWEST,
        push_down_predicate=bool(push_down),
        topics_elsewhere=place.topics_elsewhere,
        rates=rates,
        ignored=tuple(name for name in _RATES if reader.given(name)) if kind is Kind.BATCH else (),
        tolerance=Tolerance(mode, corrupt_column if mode is Mode.PERMISSIVE else None),
        view=view,
    )


class _Reader:
    """Takes options one by one, and collects what is wrong with them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        known = {*_DOCUMENTED, *_PASSED_BY_SPARK, _SEVERAL_PATHS}
        self.problems = [_unknown(name) for name in self._values if name not in known]
        if _SEVERAL_PATHS in self._values:
            self.problems.append("path: one location is read, and several are given; union two queries")

    def given(self, name: str) -> bool:
        return name.lower() in self._values

    def read(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        """The value of an option, or None where it is absent or wrong."""
        text = self._values.get(name.lower())
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            self.problems.append(f"{name}={text}: {error}")
            return None


def _unknown(name: str) -> str:
    if name.startswith("kafka."):
        return f"{name}: there is no broker in the path: drop it ({_ISOLATION} is the one that counts here)"
    close = difflib.get_close_matches(name, _DOCUMENTED, n=1)
    known = ", ".join(_NAMES[1:])
    return f"{name}: unknown option; " + (f"did you mean {_DOCUMENTED[close[0]]}?" if close else f"known: {known}")


def _location(text: str) -> str:
    try:
        return str(parse_location(text))
    except ConfigurationError as error:
        raise ValueError("; ".join(error.problems)) from error


def _cluster(text: str) -> str:
    if not is_cluster_id(text):
        raise ValueError("a cluster's name is letters, digits, '.', '_' and '-', and does not begin with a dot")
    return text


def _entropy_bits(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_ENTROPY_BITS:
        raise ValueError(f"a number from 0 to {MAX_ENTROPY_BITS} is expected")
    return int(text)


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("names of topics are expected, with commas between them")
    for name in names:
        _check_topic(name)
    return names


def _check_topic(name: str) -> None:
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no legal name of a topic")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    shape = 'JSON like {"topic":[0,1]} is expected'
    assigned = {}
    for topic, partitions in _json_object(text, shape).items():
        _check_topic(topic)
        numbers = partitions if isinstance(partitions, list) else []
        if not numbers or not all(_is_number(number) and number >= 0 for number in numbers):
            raise ValueError(f"{shape}; {topic} has {json.dumps(partitions)}")
        assigned[topic] = tuple(sorted(set(numbers)))
    if not assigned:
        raise ValueError(f"{shape}; it names no topic")
    return assigned


def _starting_offsets(text: str, kind: Kind | None) -> Edge | Offsets:
    if kind is not Kind.BATCH:
        return _offsets(text, (Edge.EARLIEST, Edge.LATEST))
    if text.lower() == "latest":
        raise ValueError("a batch query cannot start at latest; use earliest or JSON")
    return _offsets(text, (Edge.EARLIEST,), refused="latest, where a batch query cannot start")


def _ending_offsets(text: str) -> Edge | Offsets:
    if text.lower() == "earliest":
        raise ValueError("a batch query cannot end at earliest; use latest or JSON")
    return _offsets(text, (Edge.LATEST,), refused="earliest")


def _offsets(text: str, accepted: Sequence[Edge], *, refused: str = "") -> Edge | Offsets:
    """One of the accepted words, or JSON with them or offsets; `refused` says what another word would mean."""
    words = {edge.value: edge for edge in accepted}
    if text.lower() in words:
        return words[text.lower()]
    numbers = {number: edge for number, edge in _EDGES.items() if edge in accepted}
    shape = f'{" or ".join([*words, "JSON"])} like {{"topic":{{"0":23,"1":{min(numbers)}}}}} is expected'
    by_topic: dict[str, Mapping[int, int | Edge]] = {}
    for topic, partitions in _json_object(text, shape).items():
        _check_topic(topic)
        if not isinstance(partitions, dict):
            raise ValueError(f"{shape}; {topic} has {json.dumps(partitions)}")  # noqa: TRY004  (as below)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not _is_number(offset) or offset < min(_EDGES):
                raise ValueError(f"{shape}; {topic} has {json.dumps({partition: offset})}")
            if offset < 0 and offset not in numbers:
                ((number, edge),) = numbers.items()
                raise ValueError(f"{topic}-{partition}: {offset} means {refused}; use {edge.value} ({number})")
        by_topic[topic] = {int(partition): numbers.get(at) or int(at) for partition, at in partitions.items()}
    return Offsets(by_topic)


def _rates(reader: _Reader) -> Rates:
    most = reader.read("maxOffsetsPerTrigger", _positive)
    least = reader.read("minOffsetsPerTrigger", _positive)
    longest = reader.read("maxTriggerDelay", parse_duration)
    if most is not None and least is not None and least > most:
        reader.problems.append(f"minOffsetsPerTrigger={least}: it is above maxOffsetsPerTrigger={most}")
    return Rates(most, least) if longest is None else Rates(most, least, longest)


def _timestamp(text: str) -> Timestamp:
    if not text.isdecimal():
        raise ValueError("milliseconds since 1970 are expected")
    return Timestamp(int(text))


def _timestamps(text: str) -> Timestamps:
    shape = 'JSON like {"topic":{"0":1700000000000}} is expected, milliseconds since 1970 for each partition'
    by_topic: dict[str, Mapping[int, int]] = {}
    for topic, partitions in _json_object(text, shape).items():
        _check_topic(topic)
        if not isinstance(partitions, dict):
            raise ValueError(f"{shape}; {topic} has {json.dumps(partitions)}")  # noqa: TRY004  (as below)
        for partition, milliseconds in partitions.items():
            if not partition.isdecimal() or not _is_number(milliseconds) or milliseconds < 0:
                raise ValueError(f"{shape}; {topic} has {json.dumps({partition: milliseconds})}")
        by_topic[topic] = {int(partition): milliseconds for partition, milliseconds in partitions.items()}
    return Timestamps(by_topic)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a number above 0 is expected")
    return int(text)


def _first(*bounds: Bound | None) -> Bound | None:
    """The one that wins where several are given, as in Spark's Kafka source; all of them have been checked."""
    return next((bound for bound in bounds if bound is not None), None)


def _strategy(text: str) -> str:
    if text.lower() not in {"error", "latest"}:
        raise ValueError("error or latest is expected")
    return text.lower()


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _isolation(text: str) -> str:
    if text.lower() not in {_READ_COMMITTED, "read_uncommitted"}:
        raise ValueError("read_committed or read_uncommitted is expected")
    return text.lower()


def _latest_problems(reader: _Reader, start: Bound | None, mode: Mode, kind: Kind | None) -> list[str]:
    """What does not go together with view=latest."""
    if kind is Kind.STREAM:
        return ["view=latest: it is as of an end, and a stream has none; use spark.read"]
    problems = []
    begins = start.by_topic.values() if isinstance(start, Offsets) else ()
    is_earliest = {edge for partitions in begins for edge in partitions.values()} == {Edge.EARLIEST}
    if start is not None and start is not Edge.EARLIEST and not is_earliest:
        problems.append(
            "view=latest: it begins at earliest: a newest record may stand anywhere; drop the starting bound"
        )
    problems += [
        f"view=latest: one task reads a partition; drop {name}"
        for name in ("minPartitions", "maxRecordsPerPartition")
        if reader.given(name)
    ]
    if mode is Mode.PERMISSIVE:
        problems.append("view=latest: a corrupt batch has no newest record; use mode FAILFAST or DROPMALFORMED")
    return problems


def _json_object(text: str, shape: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{shape}; {error}") from error
    if not isinstance(value, dict):
        raise ValueError(shape)  # noqa: TRY004  (a wrong value of an option, whatever its type)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
    "failOnDataLoss",
    "config",
    "incarnation",
    "pushDownPredicate",
    _ISOLATION,
    "mode",
    "columnNameOfCorruptRecord",
    "view",
)
_DOCUMENTED: Final = {name.lower(): name for name in _NAMES}
