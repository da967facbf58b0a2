"""The arguments of a scan, checked: from Python values to a query. One error lists all problems."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import BatchLimit
from ts_common.model import is_topic_name
from ts_common.suggestions import nearest
from ts_reader.decode.arrow_schema import COLUMNS, COLUMNS_WITH_HEADERS, HEADERS, MILLISECONDS
from ts_reader.execution.columns import error_column
from ts_reader.query.moments import milliseconds_of
from ts_reader.query.policies import Mode, Tolerance, View
from ts_reader.query.query import (
    Bound,
    Cut,
    Edge,
    Offset,
    Offsets,
    Query,
    SplitLimits,
    Subscription,
    Timestamp,
    Timestamps,
)
from ts_reader.reading.incarnation_option import parse_incarnation
from ts_reader.schemas.contract import Part

CORRUPT_COLUMN: Final = "_corrupt_record"
_SOURCE: Final = "arguments of scan"
_LEAST_BATCH_BYTES: Final = 1 << 20
LEAST_MEMORY: Final = 128 << 20
# A worker's split: large enough that a hand-over costs nothing, small enough that the last splits end together.
_PACKED_BYTES: Final = 32 << 20
_INCLUDES: Final = {HEADERS: "include_headers", MILLISECONDS: "include_timestamp_ms"}
_EDGES: Final = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST, -2: Edge.EARLIEST, -1: Edge.LATEST}
_OFFSETS_EXPECTED: Final = (
    'expected "{edge}", an offset, or one of each partition: {{0: 4711, 1: "{edge}"}}, with several topics '
    '{{"orders": {{0: 4711}}}}'
)

TopicArgument = str | Sequence[str] | re.Pattern[str]
PartitionsArgument = Iterable[int] | Mapping[str, Iterable[int]] | None
OffsetArgument = int | str
OffsetsArgument = OffsetArgument | Mapping[int, OffsetArgument] | Mapping[str, Mapping[int, OffsetArgument]]
Moment = date | str | int
TimestampArgument = Moment | Mapping[int, Moment] | Mapping[str, Mapping[int, Moment]] | None

_NO_PARTITIONS: Final[tuple[int, ...]] = ()

_T = TypeVar("_T")


class Arguments:
    """Reads arguments one by one, and collects their problems; `source` names them in the error."""

    def __init__(self, source: str = _SOURCE) -> None:
        self._source = source
        self.problems: list[str] = []

    def check(self) -> None:
        """Raise all problems.

        Raises:
            ConfigurationError: there are some.
        """
        if self.problems:
            raise ConfigurationError(self._source, self.problems)

    def read(self, name: str, value: Any, parse: Callable[[Any], _T], default: _T) -> _T:
        """Return a parsed value; the default if it is wrong."""
        try:
            return parse(value)
        except ValueError as error:
            self.problems.append(f"{name}={value!r}: {error}")
            return default

    def one_of(self, name: str, value: Any, accepted: Mapping[str, _T], default: _T) -> _T:
        """Return the value of a word, in any case."""
        if isinstance(value, str) and value.lower() in accepted:
            return accepted[value.lower()]
        self.problems.append(f"{name}={value!r}: accepted are {', '.join(accepted)}")
        return default

    def boolean(self, name: str, value: Any) -> bool:
        """Return a truth value."""
        if not isinstance(value, bool):
            self.problems.append(f"{name}={value!r}: accepted are True and False")
        return bool(value)

    def number(self, name: str, value: Any, least: int) -> int:
        """Return a whole number."""
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.problems.append(f"{name}={value!r}: a whole number, at least {least}, is expected")
            return least
        return value


def subscription_of(topic: TopicArgument, partitions: PartitionsArgument, arguments: Arguments) -> Subscription:
    """Return the topics and partitions of a scan."""
    if isinstance(topic, re.Pattern):
        text: Any = topic.pattern
        if not isinstance(text, str):
            arguments.problems.append(f"topic={topic!r}: a pattern of text is expected, and this one is of bytes")
        if partitions is not None:
            arguments.problems.append("partitions: a pattern reads all partitions; name the topics, or drop it")
        return Subscription(pattern=topic)
    names = _names(topic, arguments)
    if partitions is None:
        return Subscription(topics=names)
    if not isinstance(partitions, Mapping):
        numbers = arguments.read("partitions", partitions, _partitions, _NO_PARTITIONS)
        return Subscription(assigned=dict.fromkeys(names, numbers))
    if unknown := sorted(set(partitions) - set(names), key=str):
        arguments.problems.append(f"partitions: {unknown} are not topics of this scan")
    assigned = {
        name: arguments.read(f"partitions[{name!r}]", partitions[name], _partitions, _NO_PARTITIONS)
        for name in names
        if name in partitions
    }
    if missing := [name for name in names if name not in partitions]:
        arguments.problems.append(f"partitions: nothing for {', '.join(missing)}")
    return Subscription(assigned=assigned)


def _names(value: Any, arguments: Arguments, argument: str = "topic") -> tuple[str, ...]:
    """Return the names of topics, each once; those that are no text are left out."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    names = list(value) if is_list else [value]
    for name in names or [value]:
        if not isinstance(name, str):
            arguments.problems.append(f"{argument}={name!r}: a name, several names or a compiled pattern is expected")
        elif not is_topic_name(name):
            arguments.problems.append(
                f"{argument}={name!r}: not a legal name of a topic; for a pattern pass re.compile({name!r})"
            )
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _partitions(value: Any) -> tuple[int, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError("numbers of partitions are expected, as in [0, 3]")  # noqa: TRY004  (a wrong value)
    numbers = list(value)
    if not numbers or not all(_is_number(number) and number >= 0 for number in numbers):
        raise ValueError("numbers of partitions are expected, as in [0, 3]")
    return tuple(sorted(set(numbers)))


def offsets_of(name: str, value: Any, topics: Sequence[str], arguments: Arguments) -> Edge | Offset | Offsets:
    """Return offsets, one offset for all partitions, or an edge."""
    refused = Edge.LATEST if name == "starting_offsets" else Edge.EARLIEST

    def edge(one: Any) -> Edge:
        found = _EDGES.get(one.lower() if isinstance(one, str) else one) if isinstance(one, str | int) else None
        if found is None or isinstance(one, bool):
            raise ValueError(_OFFSETS_EXPECTED.format(edge="earliest" if refused is Edge.LATEST else "latest"))
        if found is refused:
            raise ValueError(f"a scan cannot {'start' if refused is Edge.LATEST else 'end'} there")
        return found

    def offset(one: Any) -> int | Edge:
        return one if _is_number(one) and one >= 0 else edge(one)

    if not isinstance(value, Mapping):
        if _is_number(value) and value >= 0:
            return Offset(value)
        return arguments.read(name, value, edge, Edge.EARLIEST)
    return Offsets(_by_topic(name, value, topics, offset, arguments))


def timestamps_of(name: str, value: Any, topics: Sequence[str], arguments: Arguments) -> Timestamp | Timestamps | None:
    """Return timestamps; None for None."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return Timestamps(_by_topic(name, value, topics, milliseconds_of, arguments))
    return Timestamp(arguments.read(name, value, milliseconds_of, 0))


def _by_topic(
    name: str, value: Mapping[Any, Any], topics: Sequence[str], parse: Callable[[Any], _T], arguments: Arguments
) -> dict[str, dict[int, _T]]:
    """Return values of partitions by topic; of one topic, its name may be left out."""
    if value and all(_is_number(number) for number in value):
        if len(topics) != 1:
            arguments.problems.append(f"{name}: partitions of several topics need their topics: {{'orders': {{0: 1}}}}")
            return {}
        value = {topics[0]: value}
    found: dict[str, dict[int, _T]] = {}
    for topic, partitions in value.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            arguments.problems.append(f"{name}[{topic!r}]={partitions!r}: partitions and their values are expected")
            continue
        found[topic] = {}
        for partition, one in partitions.items():
            if not _is_number(partition) or partition < 0:
                arguments.problems.append(f"{name}[{topic!r}]: {partition!r} is not the number of a partition")
                continue
            try:
                found[topic][partition] = parse(one)
            except ValueError as error:
                arguments.problems.append(f"{name}[{topic!r}][{partition}]={one!r}: {error}")
    return found


def columns_of(
    columns: Sequence[str] | None,
    *,
    include_headers: bool,
    include_timestamp_ms: bool,
    further: Sequence[str],
    arguments: Arguments,
) -> tuple[str, ...]:
    """Return the names of the columns, in their order.

    Args:
        columns: as of `ts_reader.Archive.scan`.
        include_headers: the same.
        include_timestamp_ms: the same.
        further: columns that only this scan has.
        arguments: receives problems.
    """
    optional = {HEADERS: include_headers, MILLISECONDS: include_timestamp_ms}
    known = [*COLUMNS, *(name for name, is_included in optional.items() if is_included), *further]
    if columns is None:
        return tuple(known)
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        arguments.problems.append(f"columns={columns!r}: a list of names is expected; there are {', '.join(known)}")
        return ()
    for column in columns:
        if column not in known and str(column) in _INCLUDES:
            arguments.problems.append(f"columns: pass {_INCLUDES[str(column)]}=True to have {column}")
        elif column not in known:
            hint = nearest(str(column), known) or f"; there are {', '.join(known)}"
            arguments.problems.append(f"columns: {column!r} is no column{hint}")
    if len(set(map(str, columns))) < len(columns):
        arguments.problems.append(f"columns={list(columns)!r}: each name once")
    return tuple(columns)


def query_of(
    arguments: Arguments,
    place: Query,
    *,
    topic: TopicArgument,
    partitions: PartitionsArgument,
    starting_offsets: OffsetsArgument,
    ending_offsets: OffsetsArgument,
    starting_timestamp: TimestampArgument,
    ending_timestamp: TimestampArgument,
    starting_without_match: str,
    isolation_level: str,
    incarnation: str,
    view: str,
    mode: str,
    corrupt_column: str,
    fail_on_data_loss: bool,
    max_batch_bytes: int,
) -> Query:
    """Return the query of the arguments of `ts_reader.Archive.scan`; their problems are in `arguments`.

    `place` is a query with the location, the cluster, the connection and the cut. A cut reads committed transactions.
    """
    subscription = subscription_of(topic, partitions, arguments)
    topics = tuple(subscription.assigned or subscription.topics)
    if starting_timestamp is not None and starting_offsets != "earliest":
        arguments.problems.append("starting_offsets and starting_timestamp: give one of the two")
    if ending_timestamp is not None and ending_offsets != "latest":
        arguments.problems.append("ending_offsets and ending_timestamp: give one of the two")
    start: Bound = timestamps_of("starting_timestamp", starting_timestamp, topics, arguments) or offsets_of(
        "starting_offsets", starting_offsets, topics, arguments
    )
    end: Bound = timestamps_of("ending_timestamp", ending_timestamp, topics, arguments) or offsets_of(
        "ending_offsets", ending_offsets, topics, arguments
    )
    chosen_view = arguments.one_of("view", view, {each.value: each for each in View}, View.LOG)
    chosen_mode = arguments.one_of("mode", mode, {each.value.lower(): each for each in Mode}, Mode.FAILFAST)
    raw_column = arguments.read("corrupt_column", corrupt_column, _raw_column, CORRUPT_COLUMN)
    if chosen_view is View.LATEST:
        if start is not Edge.EARLIEST:
            arguments.problems.append(
                'view="latest": it starts at earliest, because a newest record may be anywhere; drop the starting bound'
            )
        if chosen_mode is Mode.PERMISSIVE:
            arguments.problems.append(
                'view="latest": a corrupt batch has no newest record; use mode="FAILFAST" or "DROPMALFORMED"'
            )
    levels = {"read_uncommitted": False, "read_committed": True}
    return Query(
        location=place.location,
        cluster=place.cluster,
        entropy_bits=place.entropy_bits,
        subscription=subscription,
        start=start,
        end=end,
        start_without_match=arguments.one_of(
            "starting_without_match", starting_without_match, {"error": None, "latest": Edge.LATEST}, None
        ),
        fail_on_data_loss=arguments.boolean("fail_on_data_loss", fail_on_data_loss),
        read_committed=arguments.one_of("isolation_level", isolation_level, levels, False) or place.cut is not None,
        limits=SplitLimits(packed_bytes=_PACKED_BYTES),
        incarnation=arguments.read("incarnation", incarnation, _incarnation, ""),
        topics_elsewhere=place.topics_elsewhere,
        connection=place.connection,
        tolerance=Tolerance(chosen_mode, raw_column if chosen_mode is Mode.PERMISSIVE else None),
        view=chosen_view,
        wording=place.wording,
        limit=BatchLimit(
            arguments.number("max_batch_bytes", max_batch_bytes, _LEAST_BATCH_BYTES), place.wording.max_batch_bytes
        ),
        cut=place.cut,
    )


def cut_of(moment: Moment, unproven: str, topics: Sequence[str] | None) -> Cut:
    """Return the cut of the arguments of `ts_reader.Archive.at`.

    Raises:
        ConfigurationError: with every problem of the arguments.
    """
    arguments = Arguments("arguments of at")
    milliseconds = arguments.read("time", moment, partial(milliseconds_of, rounds_up=False), 0)
    fails = arguments.one_of("unproven", unproven, {"error": True, "warn": False}, True)
    names = () if topics is None else _names(topics, arguments, "topics")
    arguments.check()
    return Cut(milliseconds, fails, names)


def _incarnation(value: Any) -> str:
    return parse_incarnation(str(value))


def _raw_column(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not value
        or value in {*COLUMNS_WITH_HEADERS, MILLISECONDS, *map(error_column, Part)}
    ):
        raise ValueError("a name is expected that no other column has")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
