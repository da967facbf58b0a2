"""The arguments of a scan, checked: from Python values to a query. One error lists all problems."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Final

from ts_common.suggestions import nearest
from ts_reader.decode.arrow_schema import COLUMNS, COLUMNS_WITH_HEADERS, HEADERS, MILLISECONDS
from ts_reader.execution.decoded_columns import error_column
from ts_reader.options.given import Given, Option, ValueType
from ts_reader.options.scan_options import (
    INCLUDE_HEADERS,
    INCLUDE_TIMESTAMP_MS,
    bound_of,
    names_of,
    scan_query,
    subscription_of,
)
from ts_reader.options.value_types import one_of, whole
from ts_reader.query.query import Bound, Cut, Edge, Query, SplitLimits
from ts_reader.query.timestamps import milliseconds_of
from ts_reader.schemas.contract import Part

SOURCE: Final = "arguments of scan"
MEMORY_LIMIT: Final = Option("memory_limit", whole(128 << 20), 512 << 20)
# A worker's split: large enough that a hand-over costs nothing, small enough that the last splits end together.
_PACKED_BYTES: Final = 32 << 20
_INCLUDES: Final = {HEADERS: INCLUDE_HEADERS, MILLISECONDS: INCLUDE_TIMESTAMP_MS}
_OTHER_COLUMNS: Final = (*COLUMNS_WITH_HEADERS, MILLISECONDS, *map(error_column, Part))
_MOMENT: Final = ValueType(partial(milliseconds_of, rounds_up=False))
_UNPROVEN: Final = Option("unproven", one_of({"error": True, "warn": False}), True)

TopicArgument = str | Sequence[str] | re.Pattern[str]
PartitionsArgument = Iterable[int] | Mapping[str, Iterable[int]] | None
OffsetArgument = int | str
OffsetsArgument = OffsetArgument | Mapping[int, OffsetArgument] | Mapping[str, Mapping[int, OffsetArgument]]
Moment = date | str | int
KeysArgument = str | bytes | Iterable[str | bytes] | None
TimestampArgument = Moment | Mapping[int, Moment] | Mapping[str, Mapping[int, Moment]] | None


def columns_of(given: Given, columns: Sequence[str] | None, further: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns, in their order.

    Args:
        given: the arguments; receives problems.
        columns: as of `ts_reader.Archive.scan`.
        further: columns that only this scan has.
    """
    included = [name for name, option in _INCLUDES.items() if given.read(option)]
    known = [*COLUMNS, *included, *further]
    if columns is None:
        return tuple(known)
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        given.problems.append(f"columns={columns!r}: a list of names is expected; there are {', '.join(known)}")
        return ()
    for column in columns:
        if column not in known and str(column) in _INCLUDES:
            given.problems.append(f"columns: pass {_INCLUDES[str(column)].name}=True to have {column}")
        elif column not in known:
            hint = nearest(str(column), known) or f"; there are {', '.join(known)}"
            given.problems.append(f"columns: {column!r} is no column{hint}")
    if len(set(map(str, columns))) < len(columns):
        given.problems.append(f"columns={list(columns)!r}: each name once")
    return tuple(columns)


def query_of(given: Given, place: Query, topic: TopicArgument, partitions: PartitionsArgument) -> Query:
    """Return the query of the arguments of `ts_reader.Archive.scan`; their problems are in `given`.

    `place` is a query with the location, the cluster, the connection and the cut. A cut reads committed transactions.
    """
    subscription = subscription_of(given, topic, partitions)
    topics = tuple(subscription.assigned or subscription.topics)
    start = _bound(given, "starting", topics, Edge.EARLIEST)
    end = _bound(given, "ending", topics, Edge.LATEST)
    query = scan_query(given, place, subscription, start, end, _OTHER_COLUMNS)
    return replace(query, limits=SplitLimits(packed_bytes=_PACKED_BYTES))


def _bound(given: Given, side: str, topics: Sequence[str], edge: Edge) -> Bound:
    offsets, timestamp = f"{side}_offsets", f"{side}_timestamp"
    if timestamp in given and offsets in given and given.value(offsets) != edge.value:
        given.problems.append(f"{offsets} and {timestamp}: give one of the two")
    return bound_of(given, side, topics, [edge]) or edge


def keys_of(given: Given, keys: object) -> frozenset[bytes] | None:
    """Return the keys of `key_equals` of `ts_reader.Archive.scan`; problems are in `given`."""
    if keys is None:
        return None
    several: list[object] = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str | bytes) else [keys]
    found = [key.encode() if isinstance(key, str) else key for key in several]
    if wrong := [key for key in found if not isinstance(key, bytes)]:
        given.problems.append(f"key_equals: {wrong[0]!r} is no key; bytes or a text are expected")
    return frozenset(key for key in found if isinstance(key, bytes))


def cut_of(moment: Moment, unproven: str, topics: Sequence[str] | None) -> Cut:
    """Return the cut of the arguments of `ts_reader.Archive.at`.

    Raises:
        ConfigurationError: with every problem of the arguments.
    """
    given = Given({"unproven": unproven}, "arguments of at")
    milliseconds = given.parse("time", moment, _MOMENT, 0)
    fails = given.read(_UNPROVEN)
    names = () if topics is None else names_of(given, "topics", topics)
    given.check()
    return Cut(milliseconds, fails, names)
