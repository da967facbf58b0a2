"""The types of values that several options have."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.json_objects import MAX_DEPTH, MAX_INT32, check_depth
from ts_common.model import is_cluster_id
from ts_common.store.factory import Location, parse_location
from ts_reader.options.given import ValueType

_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)


def one_of(accepted: Mapping[str, _T]) -> ValueType[_T]:
    """Return the type of some words, in any case."""
    folded = {word.lower(): value for word, value in accepted.items()}

    def of(value: Any) -> _T:
        if isinstance(value, str) and value.lower() in folded:
            return folded[value.lower()]
        raise ValueError(f"accepted are {', '.join(accepted)}")

    return ValueType(of)


def member_of(words: type[_E]) -> ValueType[_E]:
    """Return the type of an enumeration's values, in any case."""
    return one_of({each.value: each for each in words})


def whole(least: int, most: int | None = None) -> ValueType[int]:
    """Return the type of the whole numbers in a range."""

    def of(value: Any) -> int:
        if is_number(value) and least <= value and (most is None or value <= most):
            return int(value)
        span = f", at least {least}, is" if most is None else f" from {least} to {most} is"
        raise ValueError(f"a whole number{span} expected")

    return ValueType(of, number_of)


def or_none(accepted: ValueType[_T]) -> ValueType[_T | None]:
    """Return the type that has None too."""

    def of(value: Any) -> _T | None:
        return None if value is None else accepted.of(value)

    return ValueType(of, accepted.of_text)


def number_of(text: str) -> int | str:
    """Return the whole number that a text has; another text as it is."""
    return int(text) if _DIGITS.fullmatch(text) else text


def is_number(value: object) -> bool:
    """Return whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_partition(value: object) -> bool:
    """Return whether a value is the number of a partition."""
    return isinstance(value, int) and is_number(value) and 0 <= value <= MAX_INT32


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("accepted are True and False")  # noqa: TRY004  (a wrong value, whatever its type)
    return value


BOOLEAN: Final = ValueType(_truth, one_of({"true": True, "false": False}).of)


def _location(value: Any) -> Location:
    if not isinstance(value, str):
        raise ValueError("a URL is expected, as in s3://bucket/base/prefix or file:///directory")  # noqa: TRY004  (the same)
    try:
        return parse_location(value)
    except ConfigurationError as error:
        raise ValueError("; ".join(error.problems)) from error


LOCATION: Final = ValueType(_location)


def _cluster(value: Any) -> str:
    if not isinstance(value, str) or not is_cluster_id(value):
        raise ValueError(
            "the cluster's part of the keys is expected: letters, digits, '.', '_' and '-', and no dot at the beginning"
        )
    return value


CLUSTER: Final = ValueType(_cluster)


def column_beside(columns: Iterable[str]) -> ValueType[str]:
    """Return the type of the names that none of some columns has, in any case."""
    folded = {name.lower() for name in columns}

    def of(value: Any) -> str:
        if not isinstance(value, str) or not value or value.lower() in folded:
            raise ValueError("a name is expected that no other column has")
        return value

    return ValueType(of)


def by_partition(text: str) -> Any:
    """Return what a text has for partitions: a number, JSON with partitions by topic, or the text as it is.

    Raises:
        ValueError: the text begins as JSON, and is no JSON object.
    """
    if not text.startswith(("{", "[")):
        return number_of(text)
    check_depth(text.encode(), MAX_DEPTH)
    value = json.loads(text, object_pairs_hook=_members)
    if not isinstance(value, dict):
        raise ValueError("a JSON object is expected")  # noqa: TRY004  (the same)
    return {
        topic: {_partition(name): one for name, one in of.items()} if isinstance(of, dict) else of
        for topic, of in value.items()
    }


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _partition(name: str) -> int | str:
    """Return the partition of its one name; another name as it is: 00 would be another name of 0."""
    return int(name) if name.isdecimal() and len(name) <= 10 and str(int(name)) == name else name


def _properties_file(value: Any) -> Path:
    from ts_reader.reading.cluster_file import SUFFIX  # noqa: PLC0415  (few scans name a file)

    path = Path(value) if isinstance(value, str | PathLike) else Path()
    if path.suffix != SUFFIX or not is_cluster_id(path.stem):
        raise ValueError(f"a file named <clusterId>{SUFFIX} is expected")
    return path


CLUSTER_FILE: Final = ValueType(_properties_file)
