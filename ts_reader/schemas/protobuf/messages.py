"""The Arrow type of a Protobuf message, and messages as its values, compiled together.

==========================================  ==================================================================
Protobuf                                    Arrow
==========================================  ==================================================================
`int32`, `sint32`, `sfixed32`               `int32`
`int64`, `sint64`, `sfixed64`, `uint32`,    `int64`
`fixed32`
`uint64`, `fixed64`                         `decimal128(20, 0)`
`float`, `double`, `bool`                   `float`, `double`, `bool`
`string`, `bytes`                           `string`, `binary`
enum                                        `string`: the name; the number where the schema has no name
message, group                              `struct`; `bool`, true, for a message without fields
`repeated`, `map<K, V>`                     `list`, `map<K, V>`
member of a `oneof`                         a column of its own; at most one is not null
`google.protobuf.Timestamp`, `Duration`     `timestamp[us, UTC]`, `duration[us]`
`google.protobuf.StringValue` and so on     the type of its value
`google.protobuf.Struct`, `Value`,          `string`: JSON
`ListValue`
`google.protobuf.Any`                       `struct<type_url: string, value: binary>`
a message inside of itself                  `string`: JSON of the inner message
==========================================  ==================================================================

A field that tracks presence (`optional`, of proto2, of a `oneof`, a message) is null where it is absent, even if proto2
declares a default. Any other field has its default, as Protobuf defines it. Fields are found by their numbers, so a
value of another version of the schema needs no resolution. Extensions and unknown fields are left out.

A Timestamp or Duration beyond what Protobuf allows for its nanoseconds, or beyond 64 bits of microseconds, is refused.
So is one with a part of a microsecond, unless the option `nanoseconds=cut` cuts it.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from ts_reader.schemas.limits import MAX_COLUMNS, MAX_DEPTH, MAX_TIME

Convert = Callable[[Any], Any]
Column = tuple[pa.DataType, Convert | None]  # None: as Protobuf's library returns it
_SECOND: Final = 1_000_000_000  # in nanoseconds
_WELL_KNOWN: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{kind}Value" for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SCALARS: Final = {
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
}


class Messages:
    """Compiles descriptors to Arrow types and functions.

    Args:
        cuts: whether nanoseconds are cut.
    """

    def __init__(self, pool: DescriptorPool, *, cuts: bool = False) -> None:
        self._pool = pool
        self._cuts = cuts
        self._columns = 0

    def message(self, descriptor: Descriptor, path: tuple[str, ...] = ()) -> Column:
        """Return the Arrow type of a message, and the function from a message to its value.

        Raises:
            ValueError: it has more than `MAX_COLUMNS` columns, or messages nested deeper than `MAX_DEPTH`.
        """
        self._count()  # first: a message inside of itself, and one without columns, count too
        name = descriptor.full_name
        special = self._well_known(descriptor) if name.startswith(_WELL_KNOWN) else None
        if special is not None:
            return special
        if name in path:
            return pa.string(), self._json
        if len(path) > MAX_DEPTH:
            raise ValueError(f"messages are nested more than {MAX_DEPTH} levels deep")
        if not descriptor.fields:
            return pa.bool_(), lambda _: True
        fields = [(field.name, *self._field(field, (*path, name))) for field in descriptor.fields]
        columns = [(column, get) for column, _, get in fields]

        def value(message: Any) -> dict[str, Any]:
            return {column: get(message) for column, get in columns}

        return pa.struct([(column, kind) for column, kind, _ in fields]), value

    def _count(self) -> None:
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise ValueError(f"more than {MAX_COLUMNS} columns at all levels")

    def _field(self, field: FieldDescriptor, path: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
        """Return the type of a field, and the function from its message to its value."""
        name = field.name
        get = attrgetter(name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key_type, _ = self._value(entry.fields_by_name["key"], path)
            value_type, convert = self._value(entry.fields_by_name["value"], path)
            map_type = pa.map_(key_type, value_type)
            if convert is None:
                return map_type, lambda message: dict(get(message))
            return map_type, lambda message: {key: convert(inner) for key, inner in get(message).items()}
        kind, convert = self._value(field, path)
        if field.is_repeated:
            if convert is None:
                return pa.list_(kind), lambda message: list(get(message))
            return pa.list_(kind), lambda message: [convert(inner) for inner in get(message)]
        if not field.has_presence:
            return kind, get if convert is None else lambda message: convert(get(message))
        if convert is None:
            return kind, lambda message: get(message) if message.HasField(name) else None
        return kind, lambda message: convert(get(message)) if message.HasField(name) else None

    def _value(self, field: FieldDescriptor, path: tuple[str, ...]) -> Column:
        if field.message_type is not None:
            return self.message(field.message_type, path)
        self._count()
        if field.enum_type is not None:
            return pa.string(), _enum(field.enum_type)
        return _SCALARS[field.type], None

    def _well_known(self, descriptor: Descriptor) -> Column | None:
        name = descriptor.full_name.removeprefix(_WELL_KNOWN)
        if name in _WRAPPERS:
            return _SCALARS[descriptor.fields_by_name["value"].type], attrgetter("value")
        match name:
            case "Timestamp":
                return pa.timestamp("us", "UTC"), _timestamp if self._cuts else _in_microseconds(_timestamp)
            case "Duration":
                return pa.duration("us"), _duration if self._cuts else _in_microseconds(_duration)
            case "Struct" | "Value" | "ListValue":
                return pa.string(), self._json
            case _:
                return None

    def _json(self, message: Any) -> str:
        text: str = json_format.MessageToJson(
            message, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=self._pool
        )
        return text


def _in_microseconds(convert: Convert) -> Convert:
    """Return a function that refuses a time with a part of a microsecond."""

    def value(message: Any) -> int:
        found: int = convert(message)
        if message.nanos % 1000:
            raise ValueError(f"{message.nanos} nanoseconds have a part of a microsecond; nanoseconds=cut cuts it")
        return found

    return value


def _timestamp(message: Any) -> int:
    seconds: int = message.seconds
    nanos: int = message.nanos
    micros = seconds * 1_000_000 + nanos // 1000
    if not 0 <= nanos < _SECOND or abs(micros) > MAX_TIME:
        raise ValueError(f"{seconds} seconds and {nanos} nanoseconds are not a Timestamp")
    return micros


def _duration(message: Any) -> int:
    seconds: int = message.seconds
    nanos: int = message.nanos
    micros = abs(seconds) * 1_000_000 + abs(nanos) // 1000  # cut: towards zero
    if abs(nanos) >= _SECOND or seconds * nanos < 0 or micros > MAX_TIME:
        raise ValueError(f"{seconds} seconds and {nanos} nanoseconds are not a Duration")
    return micros if seconds + nanos >= 0 else -micros


def _enum(descriptor: EnumDescriptor) -> Convert:
    names = {value.number: value.name for value in reversed(descriptor.values)}  # of aliases, the first
    return lambda number: names.get(number) or str(number)
