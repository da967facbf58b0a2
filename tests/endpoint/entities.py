"""Strategies for kio's entities, by their schemas: any value that the type of a field allows."""

from dataclasses import fields
from datetime import timedelta
from functools import cache
from types import EllipsisType, NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st

TOPICS = st.sampled_from(["t", "", "other", "t~AAAAAAAAAAAAAAAAAAAAAQ", "x" * 249, "\u2603"])
_NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_FEW = 3


@cache
def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for one entity of a schema."""
    return st.builds(
        schema, **{field.name: _values(field.type, field.metadata, field.name) for field in fields(schema)}
    )


def _values(kind: Any, metadata: Any, name: str) -> st.SearchStrategy[Any]:
    if get_origin(kind) is tuple:
        inner = next(each for each in get_args(kind) if not isinstance(each, EllipsisType) and each is not ...)
        return st.lists(_values(inner, metadata, name), max_size=_FEW).map(tuple)
    if get_origin(kind) is UnionType:
        inner = next(each for each in get_args(kind) if each is not NoneType)
        return st.none() | _values(inner, metadata, name)
    if hasattr(kind, "__type__"):
        return entities(kind)
    return _primitive(metadata["kafka_type"], name)


def _primitive(kafka_type: str, name: str) -> st.SearchStrategy[Any]:
    if kafka_type in _NUMBERS:
        limit = 1 << _NUMBERS[kafka_type]
        return st.sampled_from([0, 1, -1, 5, 9, limit - 1, -limit]) | st.integers(-limit, limit - 1)
    if kafka_type == "string":
        return TOPICS if name in {"topic", "name"} else st.text(max_size=10)
    if kafka_type in {"bytes", "records"}:
        return st.binary(max_size=20)
    if kafka_type == "bool":
        return st.booleans()
    if kafka_type == "uuid":
        return st.uuids() | st.just(UUID(int=0))
    if kafka_type in {"timedelta_i32", "timedelta_i64"}:
        return st.sampled_from([timedelta(milliseconds=each) for each in (0, 1, -1, 5, -(1 << 31))])
    raise NotImplementedError(kafka_type)
