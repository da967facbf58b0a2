"""The options of a scan, for all sides: their types and defaults, the rules between them, and the query that they mean.

Each side has its own names for them: `ts_reader.query.query.Wording.names`. `Given` holds what its user wrote.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.json_objects import MAX_INT64
from ts_common.log_format.limits import MAX_BATCH_BYTES, BatchLimit
from ts_common.model import is_topic_name
from ts_common.store.factory import Location
from ts_reader.options.given import Given, Option, ValueType
from ts_reader.options.value_types import (
    BOOLEAN,
    CLUSTER,
    CLUSTER_FILE,
    LOCATION,
    by_partition,
    column_beside,
    is_number,
    is_partition,
    member_of,
    one_of,
    or_none,
    whole,
)
from ts_reader.query.query import (
    Bound,
    CorruptionMode,
    Edge,
    Locations,
    Offset,
    Offsets,
    Query,
    Subscription,
    Timestamp,
    Timestamps,
    Tolerance,
    View,
)
from ts_reader.query.timestamps import milliseconds_of
from ts_reader.reading.incarnation_option import NEWEST, parse_incarnation

CORRUPT_COLUMN: Final = "_corrupt_record"  # as Spark's `spark.sql.columnNameOfCorruptRecord`
LEAST_BATCH_BYTES: Final = 1 << 20
BOTH_EDGES: Final = (Edge.EARLIEST, Edge.LATEST)
_EDGES: Final = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST, -2: Edge.EARLIEST, -1: Edge.LATEST}  # as in Kafka

LOCATION_URL: Final[Option[Location | None]] = Option("location", LOCATION, None)
CLUSTER_ID: Final[Option[str | None]] = Option("cluster", CLUSTER, None)
ENTROPY_BITS: Final = Option("prefix_entropy_bits", or_none(whole(0, MAX_ENTROPY_BITS)), None)
WORKERS: Final = Option("workers", or_none(whole(1)), None)
WITHOUT_MATCH: Final[Option[Edge | None]] = Option(
    "starting_without_match", one_of({"error": None, "latest": Edge.LATEST}), None
)
READ_COMMITTED: Final = Option("isolation_level", one_of({"read_uncommitted": False, "read_committed": True}), False)
INCARNATION: Final = Option("incarnation", ValueType(lambda value: parse_incarnation(str(value))), NEWEST)
VIEW: Final = Option("view", member_of(View), View.LOG)
MODE: Final = Option("mode", member_of(CorruptionMode), CorruptionMode.FAILFAST)
FAIL_ON_DATA_LOSS: Final = Option("fail_on_data_loss", BOOLEAN, True)
TAIL: Final = Option("tail", BOOLEAN, True)
BATCH_BYTES: Final = Option("max_batch_bytes", whole(LEAST_BATCH_BYTES), MAX_BATCH_BYTES)
INCLUDE_HEADERS: Final = Option("include_headers", BOOLEAN, False)
INCLUDE_TIMESTAMP_MS: Final = Option("include_timestamp_ms", BOOLEAN, False)
CONFIG: Final[Option[Path | None]] = Option("config", CLUSTER_FILE, None)

_T = TypeVar("_T")


def scan_query(
    given: Given, place: Query, subscription: Subscription, start: Bound, end: Bound, columns: Iterable[str]
) -> Query:
    """Return the query of the options; their problems are in `given`.

    Args:
        place: a query with the location, the cluster, the connection and the cut. A cut reads committed transactions.
        start: of each partition.
        end: the same.
        columns: names of columns that the column of corrupt batches may not have.
    """
    view, mode = given.read(VIEW), given.read(MODE)
    column = given.read(Option("corrupt_column", column_beside(columns), CORRUPT_COLUMN))
    if view is View.LATEST:
        given.problems += _latest_problems(given, start, mode)
    return replace(
        place,
        subscription=subscription,
        start=start,
        end=end,
        start_without_match=given.read(WITHOUT_MATCH),
        fail_on_data_loss=given.read(FAIL_ON_DATA_LOSS),
        read_committed=given.read(READ_COMMITTED) or place.cut is not None,
        incarnation=given.read(INCARNATION),
        tolerance=Tolerance(mode, column if mode is CorruptionMode.PERMISSIVE else None),
        view=view,
        limit=BatchLimit(given.read(BATCH_BYTES), given.wording.name(BATCH_BYTES.name)),
        wording=given.wording,
        tail=given.read(TAIL),
    )


def _latest_problems(given: Given, start: Bound, mode: CorruptionMode) -> list[str]:
    """Return the options that conflict with the view of the newest records."""
    latest, problems = given.written(VIEW.name, View.LATEST.value), []
    edges = start.by_topic.values() if isinstance(start, Offsets) else ()
    has_start = any(name.startswith("starting_") and name != WITHOUT_MATCH.name for name in given)
    if has_start and start is not Edge.EARLIEST and {edge for of in edges for edge in of.values()} != {Edge.EARLIEST}:
        problems.append(
            f"{latest}: it starts at earliest, because a newest record may be anywhere; drop the starting bound"
        )
    if mode is CorruptionMode.PERMISSIVE:
        name = given.wording.name(MODE.name)
        problems.append(f"{latest}: a corrupt batch has no newest record; use {name} FAILFAST or DROPMALFORMED")
    return problems


def stream_problems(given: Given, view: View, incarnation: str, elsewhere: Locations) -> list[str]:
    """Return why a query cannot be followed as a stream; empty if it can.

    Args:
        view: of the query, like the next two.
        elsewhere: topics in further locations.
    """
    wording, problems = given.wording, []
    if view is View.LATEST:
        latest = given.written(VIEW.name, view.value)
        problems.append(f"{latest}: it needs an end, and {wording.stream} has none; {wording.instead_of_stream}")
    if incarnation != NEWEST:
        name = wording.name(INCARNATION.name)
        problems.append(f"{name}: {wording.stream} reads the newest one; drop it, or {wording.instead_of_stream}")
    if elsewhere:
        there = "; ".join(f"{', '.join(names)} in {endpoint.location}" for endpoint, names in elsewhere)
        problems.append(
            f"config: {wording.stream} reads one location, and the topics are in several ({there}): "
            "start one for each location"
        )
    return problems


def subscription_of(given: Given, topic: Any, partitions: Any, named_by: str = "topic") -> Subscription:
    """Return the topics and partitions of a scan; their problems are in `given`.

    Args:
        topic: a name, several names, or a compiled pattern.
        partitions: numbers, of each topic or by topic; None for all.
        named_by: the option that names the topics.
    """
    label = given.wording.name("partitions")
    if isinstance(topic, re.Pattern):
        if not isinstance(topic.pattern, str):
            given.problems.append(
                f"{given.wording.name('pattern')}={topic!r}: a pattern of text is expected, and this one is of bytes"
            )
        if partitions is not None:
            given.problems.append(f"{label}: a pattern reads all partitions; name the topics, or drop it")
        return Subscription(pattern=topic)
    names = names_of(given, named_by, topic)
    if partitions is None:
        return Subscription(topics=names)
    if not isinstance(partitions, Mapping):
        numbers = given.parse(label, partitions, _PARTITIONS, ())
        return Subscription(assigned=dict.fromkeys(names, numbers))
    if unknown := sorted(set(partitions) - set(names), key=str):
        given.problems.append(f"{label}: {unknown} are not topics of this scan")
    if missing := [name for name in names if name not in partitions]:
        given.problems.append(f"{label}: nothing for {', '.join(missing)}")
    return Subscription(
        assigned={
            name: given.parse(f"{label}[{name!r}]", partitions[name], _PARTITIONS, ())
            for name in names
            if name in partitions
        }
    )


def names_of(given: Given, option: str, value: Any) -> tuple[str, ...]:
    """Return the names of topics, each once; those that are no text are left out."""
    label = given.wording.name(option)
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    names = list(value) if is_list else [value]
    for name in names or [value]:
        if not isinstance(name, str):
            given.problems.append(f"{label}={name!r}: a name, several names or a compiled pattern is expected")
        elif not is_topic_name(name):
            given.problems.append(
                f"{label}={name!r}: not a legal name of a topic; for a pattern use {given.wording.as_pattern}"
            )
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _numbers(value: Any) -> tuple[int, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    numbers = list(value) if is_list else []
    if not numbers or not all(map(is_partition, numbers)):
        raise ValueError("numbers of partitions are expected, as in [0, 3]")
    return tuple(sorted(set(numbers)))


_PARTITIONS: Final = ValueType(_numbers)


def bound_of(given: Given, side: str, topics: Sequence[str], accepted: Collection[Edge]) -> Bound | None:
    """Return where partitions start or end; None if no option has it. All options are checked; times have precedence.

    Args:
        given: the options; receives problems.
        side: "starting" or "ending".
        accepted: the edges that it may have.
    """
    times = [name for name in (f"{side}_timestamp", f"{side}_timestamps") if name in given]
    found: list[Bound | None] = [_timestamps_of(given, name, topics) for name in times]
    if (name := f"{side}_offsets") in given:
        found.append(_offsets_of(given, name, topics, accepted))
    return found[0] if found else None


def _offsets_of(
    given: Given, option: str, topics: Sequence[str], accepted: Collection[Edge]
) -> Edge | Offset | Offsets | None:
    """Return offsets, one offset for all partitions, or an edge; None if the value is wrong."""
    wording = given.wording
    edges = dict(zip(BOTH_EDGES, (wording.earliest, wording.latest), strict=True))
    example = wording.by_partition.format(4711, next(edges[edge] for edge in accepted))
    expected = (
        f"expected {' or '.join(edge.value for edge in accepted)}, an offset, or one of each partition: {example}"
    )

    def offset(one: Any) -> int | Edge:
        if is_number(one) and 0 <= one <= MAX_INT64:
            return int(one)
        word = one.lower() if isinstance(one, str) else one
        edge = _EDGES.get(word) if isinstance(word, str) or is_number(word) else None
        if edge is None:
            raise ValueError(expected)
        if edge not in accepted:
            way, use = ("end", Edge.LATEST) if edge is Edge.EARLIEST else ("start", Edge.EARLIEST)
            raise ValueError(f"it means {edge.value}, where no scan can {way}; use {use.value} ({edges[use]})")
        return edge

    found = _by_partition(given, option, topics, ValueType(offset), expected)
    if isinstance(found, dict):
        return Offsets(found)
    return found if found is None or isinstance(found, Edge) else Offset(found)


def _timestamps_of(given: Given, option: str, topics: Sequence[str]) -> Timestamp | Timestamps | None:
    """Return timestamps; None if the value is wrong."""
    expected = f"expected a time, or one of each partition: {given.wording.by_partition.format(0, 1700000000000)}"

    def milliseconds(one: Any) -> int:
        if (found := milliseconds_of(one)) > MAX_INT64:
            raise ValueError("milliseconds since 1970 are expected, of 64 bits")
        return found

    found = _by_partition(given, option, topics, ValueType(milliseconds), expected)
    return None if found is None else Timestamps(found) if isinstance(found, dict) else Timestamp(found)


def _by_partition(
    given: Given, option: str, topics: Sequence[str], accepted: ValueType[_T], expected: str
) -> _T | dict[str, dict[int, _T]] | None:
    """Return one value for all partitions, or values of partitions by topic; of one topic, its name may be left out."""
    label, value = given.wording.name(option), given.value(option)
    if given.wording.has_texts and isinstance(value, str):
        try:
            value = by_partition(value.strip())
        except ValueError as error:
            given.problems.append(f"{label}={value}: {expected}; {error}")
            return None
    if not isinstance(value, Mapping):
        return given.parse(label, value, accepted, None)
    if value and all(map(is_number, value)):
        if len(topics) != 1:
            given.problems.append(f"{label}: partitions of several topics need their topics: {{'orders': {{0: 1}}}}")
            return {}
        value = {topics[0]: value}
    return {topic: _of_topic(given, f"{label}[{topic!r}]", topic, of, accepted) for topic, of in value.items()}


def _of_topic(given: Given, label: str, topic: Any, values: Any, accepted: ValueType[_T]) -> dict[int, _T]:
    if not isinstance(topic, str) or not isinstance(values, Mapping):
        given.problems.append(f"{label}={values!r}: partitions and their values are expected")
        return {}
    if not is_topic_name(topic):
        given.problems.append(f"{label}: not a legal name of a topic")
    found: dict[int, _T] = {}
    for partition, one in values.items():
        if not is_partition(partition):
            given.problems.append(f"{label}: {partition!r} is not the number of a partition")
        elif (parsed := given.parse(f"{label}[{partition}]", one, accepted, None)) is not None:
            found[partition] = parsed
    return found
