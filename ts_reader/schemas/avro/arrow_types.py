"""The Arrow type of an Avro schema.

======================================  =====================================================================
Avro                                    Arrow
======================================  =====================================================================
`null`, `boolean`                       `null`, `bool`
`int`, `long`                           `int32`, `int64`
`float`, `double`                       `float`, `double`
`bytes`, `string`                       `binary`, `string`
`fixed`                                 `fixed_size_binary`
`enum`                                  `string`: the symbol
`array`, `map`                          `list`, `map<string, ...>`
`record`                                `struct`; `bool`, true, for a record without fields
`["null", X]`, `[X]`                    X; all columns can be null
other unions                            `struct` with a member for each type but `null`; one of them is not null.
                                        Members are named as their types: `int`, `string`, or a type's name
                                        without its namespace; with it, dots as `_`, where two would be equal
`decimal`                               `decimal128`, above 38 digits `decimal256`, above 76 `string`
`uuid`                                  `string`, 36 characters, whether the type is `string` or `fixed`
`date`                                  `date32`
`time-millis`, `time-micros`            `time32[ms]`, `time64[us]`
`timestamp-millis`, `-micros`, `-nanos` `timestamp[ms]`, `[us]`, `[ns]`, all in UTC
`local-timestamp-...`                   the same without a time zone
`duration`                              `struct<months: int64, days: int64, milliseconds: int64>`
a type inside of itself                 `string`: JSON of the inner value. Bytes are base64, times numbers as Avro
                                        stores them, members of unions objects of one property
======================================  =====================================================================

A time of day beyond 24 hours, and a moment beyond 64 bits of microseconds, refuse their row.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ts_reader.schemas.avro.nodes import Node
from ts_reader.schemas.limits import MAX_COLUMNS, MAX_DEPTH

DURATION: Final = pa.struct([(unit, pa.int64()) for unit in ("months", "days", "milliseconds")])
MAX_DIGITS: Final = 76
_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    "uuid": pa.string(),
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "duration": DURATION,
}


def arrow_type(node: Node) -> pa.DataType:
    """Return the Arrow type of a schema.

    Raises:
        ValueError: it has more than `MAX_COLUMNS` columns, or types nested deeper than `MAX_DEPTH`.
    """
    return _type(node, (), [0])


def _type(node: Node, path: tuple[Node, ...], columns: list[int]) -> pa.DataType:
    columns[0] += 1
    if columns[0] > MAX_COLUMNS:
        raise ValueError(f"more than {MAX_COLUMNS} columns at all levels")
    if len(path) > MAX_DEPTH:
        raise ValueError(f"types are nested more than {MAX_DEPTH} levels deep")
    if node in path:
        return pa.string()
    if node.logical == "decimal":
        return decimal_type(node)
    return _LOGICAL[node.logical] if node.logical else _plain_type(node, (*path, node), columns)


def _plain_type(node: Node, inside: tuple[Node, ...], columns: list[int]) -> pa.DataType:
    """Return the type of a schema without a logical type."""
    match node.kind:
        case "fixed":
            return pa.binary(node.size) if node.size else pa.binary()
        case "array":
            return pa.list_(_type(node.inner, inside, columns))
        case "map":
            return pa.map_(pa.string(), _type(node.inner, inside, columns))
        case "record" if not node.fields:
            return pa.bool_()
        case "record":
            return pa.struct([(field.name, _type(field.node, inside, columns)) for field in node.fields])
        case "union":
            branches = not_null(node)
            if not branches:
                return pa.null()
            if len(branches) == 1:
                return _type(branches[0], inside, columns)
            return pa.struct([(name, _type(branch, inside, columns)) for name, branch in members(branches)])
        case kind:
            return _PRIMITIVES[kind]


def decimal_type(node: Node) -> pa.DataType:
    """Return the Arrow type of a decimal."""
    if node.precision > MAX_DIGITS:
        return pa.string()
    return (pa.decimal128 if node.precision <= 38 else pa.decimal256)(node.precision, node.scale)


def not_null(union: Node) -> list[Node]:
    """Return the branches of a union but `null`."""
    return [branch for branch in union.branches if branch.kind != "null"]


def members(branches: Sequence[Node]) -> list[tuple[str, Node]]:
    """Return name and type of each member of the struct of a union."""
    short = [branch.short_name for branch in branches]
    return [
        (name if short.count(name) == 1 else branch.name.replace(".", "_") or name, branch)
        for name, branch in zip(short, branches, strict=True)
    ]
