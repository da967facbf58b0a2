"""From values to the bytes of a reply, in the version of its request.

A handler returns the values of the newest version as a mapping, nested as Kafka describes it. A version that lacks a
field leaves it out. Records are passed through as views, so a Fetch reply copies none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from types import EllipsisType, NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32

from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api, served_to

Values = Mapping[str, Any]
Piece = bytes | memoryview

# Fields without a default that nearly every reply has: no throttling and no error.
_USUAL: Final[dict[str, Any]] = {"throttle_time": timedelta(0), "error_code": ErrorCode.none}


class Records:
    """Record batches as views, for the field `records` of a Fetch reply.

    Args:
        views: of the bytes, in order.
    """

    __slots__ = ("_size", "views")

    def __init__(self, views: Sequence[memoryview] = ()) -> None:
        self.views = views
        self._size = sum(view.nbytes for view in views)

    def __len__(self) -> int:
        """Return the bytes."""
        return self._size


class _Sink:
    """What kio writes to: small pieces are joined, and records pass through."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.size = 0
        self._small = bytearray()

    def write(self, data: bytes | Records) -> None:
        """Add bytes, or records."""
        self.size += len(data)
        if isinstance(data, Records):
            self._flush()
            self.pieces += data.views
        else:
            self._small += data

    def finish(self) -> list[Piece]:
        """Return all pieces in order."""
        self._flush()
        return self.pieces

    def _flush(self) -> None:
        if self._small:
            self.pieces.append(bytes(self._small))
            self._small = bytearray()


def encode_reply(request: Request, values: Values) -> list[Piece]:
    """Return the frame of a reply, with its length, in pieces.

    Args:
        request: what it answers.
        values: of its fields, by kio's names; those of other versions are left out.

    Raises:
        TypeError: a field of this version has no value and no default.
    """
    return _frame(request.api, request.version, request.correlation, values)


def encode_unserved_versions(correlation: int) -> list[Piece]:
    """Return the reply to an ApiVersions request of an unserved version: version 0, with the served ones (KIP-511)."""
    return _frame(Api.API_VERSIONS, 0, correlation, {**api_versions(), "error_code": ErrorCode.unsupported_version})


def api_versions(software: str = "", version: str = "") -> Values:
    """Return the values of an ApiVersions reply to a client library of this name and version."""
    return {
        "api_keys": [
            {"api_key": int(api), "min_version": versions[0], "max_version": versions[1]}
            for api, versions in sorted(served_to(software, version).items())
        ]
    }


def _frame(api: Api, version: int, correlation: int, values: Values) -> list[Piece]:
    schema, write_header, write_body = _writers(api, version)
    sink = _Sink()
    write_header(sink, schema.__header_schema__(correlation_id=i32(correlation)))
    write_body(sink, _build(schema, values))
    return [sink.size.to_bytes(4, "big"), *sink.finish()]


@cache
def _writers(api: Api, version: int) -> tuple[Any, Any, Any]:
    schema = load_response_schema(int(api), version)
    return schema, entity_writer(schema.__header_schema__), entity_writer(schema)


def _build(schema: Any, values: Values) -> Any:
    """Return kio's entity with values, converted as the fields of this version need them."""
    found = {}
    for name, nested, is_required in _fields_of(schema):
        if name not in values:
            if is_required:
                if name not in _USUAL:
                    raise TypeError(f"{schema.__name__}.{name} of version {schema.__version__} has no value")
                found[name] = _USUAL[name]
            continue
        value = values[name]
        if nested is None or value is None:
            found[name] = tuple(value) if isinstance(value, list) else value
        elif isinstance(value, Mapping):
            found[name] = _build(nested, value)
        else:
            found[name] = tuple(_build(nested, each) for each in value)
    return schema(**found)


@cache
def _fields_of(schema: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return for each field its name, the type of nested entities, and whether it has no default."""
    return tuple(
        (each.name, _nested(each.type), each.default is MISSING and each.default_factory is MISSING)
        for each in fields(schema)
    )


def _nested(kind: Any) -> Any:
    """Return the entity's type in `T`, `T | None`, `tuple[T, ...]` or `tuple[T, ...] | None`; None without one."""
    if isinstance(kind, type) and hasattr(kind, "__type__"):
        return kind
    if get_origin(kind) in {tuple, UnionType}:
        inner = [each for each in get_args(kind) if each not in {NoneType, ...} and not isinstance(each, EllipsisType)]
        return _nested(inner[0]) if inner else None
    return None
