"""Parsers of the options' values: each raises ValueError with the expected form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.errors import ConfigurationError
from ts_common.json_objects import MAX_DEPTH, MAX_INT32, MAX_INT64, check_depth
from ts_common.model import is_cluster_id, is_topic_name
from ts_common.store.factory import parse_location
from ts_reader.query.query import Edge, Offsets, Timestamp, Timestamps
from ts_spark.options.spark_query import Kind

_LEAST_BATCH_BYTES: Final = 1 << 20
READ_COMMITTED: Final = "read_committed"
# In the JSON forms, as in Kafka.
_EDGES: Final = {-2: Edge.EARLIEST, -1: Edge.LATEST}


def location(text: str) -> str:
    """Return the URL of a store."""
    try:
        return str(parse_location(text))
    except ConfigurationError as error:
        raise ValueError("; ".join(error.problems)) from error


def cluster(text: str) -> str:
    """Return the cluster's part of the keys."""
    if not is_cluster_id(text):
        raise ValueError("a cluster's name is letters, digits, '.', '_' and '-', and does not begin with a dot")
    return text


def entropy_bits(text: str) -> int:
    """Return a number of entropy bits."""
    if not text.isdecimal() or int(text) > MAX_ENTROPY_BITS:
        raise ValueError(f"a number from 0 to {MAX_ENTROPY_BITS} is expected")
    return int(text)


def topics(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("names of topics are expected, with commas between them")
    for name in names:
        _check_topic(name)
    return names


def _check_topic(name: str) -> None:
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no legal name of a topic")


def pattern(text: str) -> re.Pattern[str]:
    """Return a compiled regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


def assignment(text: str) -> dict[str, tuple[int, ...]]:
    """Return partitions by topic."""
    shape = 'JSON like {"topic":[0,1]} is expected'
    assigned = {}
    for topic, partitions in _json_object(text, shape).items():
        _check_topic(topic)
        numbers = partitions if isinstance(partitions, list) else []
        if not numbers or not all(_is_number(number) and 0 <= number <= MAX_INT32 for number in numbers):
            raise ValueError(f"{shape}; {topic} has {json.dumps(partitions)}")
        assigned[topic] = tuple(sorted(set(numbers)))
    if not assigned:
        raise ValueError(f"{shape}; it names no topic")
    return assigned


def starting_offsets(text: str, kind: Kind | None) -> Edge | Offsets:
    """Return where a query starts."""
    if kind is not Kind.BATCH:
        return _offsets(text, (Edge.EARLIEST, Edge.LATEST))
    if text.lower() == "latest":
        raise ValueError("a batch query cannot start at latest; use earliest or JSON")
    return _offsets(text, (Edge.EARLIEST,), refused="latest, where a batch query cannot start")


def ending_offsets(text: str) -> Edge | Offsets:
    """Return where a query ends."""
    if text.lower() == "earliest":
        raise ValueError("a batch query cannot end at earliest; use latest or JSON")
    return _offsets(text, (Edge.LATEST,), refused="earliest")


def _offsets(text: str, accepted: Sequence[Edge], *, refused: str = "") -> Edge | Offsets:
    """Return an accepted edge, or offsets from JSON; `refused` describes an edge that is not accepted."""
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
            if not _is_partition(partition) or not _is_number(offset) or not min(_EDGES) <= offset <= MAX_INT64:
                raise ValueError(f"{shape}; {topic} has {json.dumps({partition: offset})}")
            if offset < 0 and offset not in numbers:
                ((number, edge),) = numbers.items()
                raise ValueError(f"{topic}-{partition}: {offset} means {refused}; use {edge.value} ({number})")
        by_topic[topic] = {int(partition): numbers.get(at) or int(at) for partition, at in partitions.items()}
    return Offsets(by_topic)


def timestamp(text: str) -> Timestamp:
    """Return a timestamp from milliseconds since 1970."""
    if not text.isdecimal():
        raise ValueError("milliseconds since 1970 are expected")
    return Timestamp(int(text))


def timestamps(text: str) -> Timestamps:
    """Return a timestamp for each partition."""
    shape = 'JSON like {"topic":{"0":1700000000000}} is expected, milliseconds since 1970 for each partition'
    by_topic: dict[str, Mapping[int, int]] = {}
    for topic, partitions in _json_object(text, shape).items():
        _check_topic(topic)
        if not isinstance(partitions, dict):
            raise ValueError(f"{shape}; {topic} has {json.dumps(partitions)}")  # noqa: TRY004  (as below)
        for partition, milliseconds in partitions.items():
            if not _is_partition(partition) or not _is_number(milliseconds) or not 0 <= milliseconds <= MAX_INT64:
                raise ValueError(f"{shape}; {topic} has {json.dumps({partition: milliseconds})}")
        by_topic[topic] = {int(partition): milliseconds for partition, milliseconds in partitions.items()}
    return Timestamps(by_topic)


def batch_bytes(text: str) -> int:
    """Return the bytes that a record batch may use, at least 1 MiB.

    Raises:
        ValueError: the number is less, or the text is no number.
    """
    most = positive(text)
    if most < _LEAST_BATCH_BYTES:
        raise ValueError(f"at least {_LEAST_BATCH_BYTES} bytes are expected")
    return most


def positive(text: str) -> int:
    """Return a number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a number above 0 is expected")
    return int(text)


def strategy(text: str) -> str:
    """Return what happens to a partition without a match."""
    if text.lower() not in {"error", "latest"}:
        raise ValueError("error or latest is expected")
    return text.lower()


def boolean(text: str) -> bool:
    """Return a truth value."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def isolation(text: str) -> str:
    """Return an isolation level."""
    if text.lower() not in {READ_COMMITTED, "read_uncommitted"}:
        raise ValueError("read_committed or read_uncommitted is expected")
    return text.lower()


def _json_object(text: str, shape: str) -> dict[str, Any]:
    try:
        check_depth(text.encode(), MAX_DEPTH)
        value = json.loads(text, object_pairs_hook=_members)
    except ValueError as error:
        raise ValueError(f"{shape}; {error}") from error
    if not isinstance(value, dict):
        raise ValueError(shape)  # noqa: TRY004  (a wrong value of an option, whatever its type)
    return value


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _is_partition(name: str) -> bool:
    """Return whether a name is a partition in its one form: 00 would be another name of 0."""
    return len(name) <= 10 and name.isdecimal() and int(name) <= MAX_INT32 and str(int(name)) == name


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
