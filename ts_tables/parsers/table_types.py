"""The types that columns of tables have, as texts, and how values of other Arrow types get one.

=========================================================  ===========================================================
Arrow                                                      column
=========================================================  ===========================================================
`bool`, `int32`, `int64`, `float`, `double`, `string`,     the same
`binary`, `date32`, decimals of 38 digits at most
`int8`, `int16`, `uint8`, `uint16`; `uint32`; `uint64`     `int32`; `int64`; `decimal(20, 0)`
`halffloat`; longer decimals                               `float`; `string` with all digits
fixed and large binary; large strings; dictionaries        `binary`; `string`; the type of their values
times of day; timestamps                                   microseconds; a value with a part of one is refused
durations                                                  `int64`, microseconds
`list`, `map`, `struct`                                    the same of these
`null`                                                     `string`, always NULL
=========================================================  ===========================================================
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from ts_common.errors import OperatorError
from ts_common.json_objects import check_depth
from ts_reader.schemas.limits import MAX_JSON_DEPTH
from ts_tables.parsers.converted import Converted, halving, shown
from ts_tables.parsers.inference import KINDS

WITHOUT_CASE: Final = "as engines of SQL compare names without case"
_MOST_DIGITS: Final = 38
_NAMED: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "local_timestamp": pa.timestamp("us"),
}
_WIDER: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
_NAMES: Final = {kind: name for name, kind in _NAMED.items()}
_OF_TEXTS: Final = {str(kind): name for kind, name in _NAMES.items()}
_OTHERS: Final = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}


def table_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the column for values of a type.

    Args:
        kind: of Arrow.

    Raises:
        OperatorError: no column can have them.
    """
    types = pa.types
    if kind in _NAMES:
        return kind
    if kind in _OTHERS:
        return _OTHERS[kind]
    if types.is_decimal(kind):
        is_short = types.is_decimal128(kind) and kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return kind if is_short else pa.string()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return table_type(kind.value_type)
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if types.is_duration(kind):
        return pa.int64()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(table_type(kind.value_type))
    if types.is_map(kind):
        return pa.map_(table_type(kind.key_type), table_type(kind.item_type))
    if types.is_struct(kind) and len(kind):
        return pa.struct([(field.name, table_type(field.type)) for field in kind])
    raise OperatorError(f"a column of a table has no type {kind}")


def fitted(array: pa.Array, kind: pa.DataType) -> Converted:
    """Return values with the type of their column; those that it does not have exactly are refused.

    Args:
        array: of any type.
        kind: as `table_type` returns it for that type.
    """
    if array.type == kind:
        return Converted(array)
    reasons: dict[int, str] = {}

    def why(row: int) -> str:
        return f"{shown(str(array[row]))} is no {kind} exactly"

    arrays = halving(lambda start, end: cast_nested(array[start:end], kind), 0, len(array), kind, reasons, why)
    return Converted(pa.concat_arrays(arrays) if arrays else pa.nulls(0, kind), reasons)


def cast_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array with another type.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    types = pa.types
    if types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if types.is_duration(array.type):
        return array.cast(pa.duration("us")).cast(kind)
    if types.is_struct(kind):
        inner = [  # `flatten` returns nulls of another length
            pa.nulls(len(array), field.type) if types.is_null(each.type) else cast_nested(each, field.type)
            for each, field in zip(array.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
    if types.is_list(kind):
        offsets, inner = list_parts(array.cast(pa.list_(array.type.value_type)))
        return pa.ListArray.from_arrays(offsets, cast_nested(inner, kind.value_type), type=kind)
    if types.is_map(kind):
        pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        offsets, pairs = list_parts(array.cast(pa.list_(pair)))
        keys, items = pairs.flatten()
        return pa.MapArray.from_arrays(
            offsets, cast_nested(keys, kind.key_type), cast_nested(items, kind.item_type), type=kind
        )
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError as error:  # of the type, whatever the value is
        raise OperatorError(f"a column of type {kind} cannot have values of {array.type}") from error


def nested_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and those inside of it."""
    yield kind
    for at in range(kind.num_fields):
        yield from nested_types(kind.field(at).type)


def list_parts(array: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Return the offsets of lists, with a null for each null list, and the values of all."""
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], lengths.cumsum()])
    is_null = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets, pa.int32(), mask=is_null), array.flatten()


def type_text(kind: pa.DataType) -> str:
    """Return the text of a column's type: a name, or JSON of a nested one.

    Args:
        kind: as `table_type` returns it.
    """
    found = _fields(kind)
    return found if isinstance(found, str) else orjson.dumps(found).decode()


def text_type(text: str) -> pa.DataType:
    """Return the type of a text.

    Args:
        text: as `type_text` returns it.

    Raises:
        ValueError: it is no such text.
    """
    try:
        check_depth(text.encode(), MAX_JSON_DEPTH)
        return _type(orjson.loads(text) if text.startswith("[") else text)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{shown(text)} is no type of a column") from error


def column_type(kind: str) -> pa.DataType:
    """Return the type of a column that was found.

    Args:
        kind: of its values, as `FoundColumn` has it.

    Raises:
        ValueError: there is no such kind.
    """
    return KINDS[kind] if kind in KINDS else text_type(kind)


def widens(before: str, after: str) -> bool:
    """Return whether each value of a type is one of another type, which a column can get later.

    Source: Iceberg's specification, Schema Evolution: int to long, float to double, and more digits of a decimal.

    Args:
        before: text of the type.
        after: text of the other type.
    """
    return is_wider(text_type(before), text_type(after))


def is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    """Return as `widens`, of types."""
    if pa.types.is_decimal128(before) and pa.types.is_decimal128(after):
        return bool(before.scale == after.scale and before.precision < after.precision)
    return (before, after) in _WIDER


def label_of(text: str) -> str:
    """Return the name of a type, without what it contains."""
    return str(orjson.loads(text)[0]) if text.startswith("[") else text


def one_name(kind: pa.DataType) -> tuple[str, str] | None:
    """Return two members of a struct whose names differ in case at most; None if there are no such.

    Args:
        kind: of a column; structs inside of it count too.
    """
    types = pa.types
    if types.is_map(kind):
        return one_name(kind.key_type) or one_name(kind.item_type)
    if types.is_list(kind):
        return one_name(kind.value_type)
    if not types.is_struct(kind):
        return None
    first: dict[str, str] = {}
    for field in kind:
        if (name := field.name.lower()) in first:
            return first[name], field.name
        first[name] = field.name
    return next((twice for field in kind if (twice := one_name(field.type))), None)


def shown_type(text: str) -> str:
    """Return the name of a type as a definition has it; of a nested one, the text itself.

    Args:
        text: of a type of Arrow.
    """
    return _OF_TEXTS.get(text, text)


def _fields(kind: pa.DataType) -> Any:
    types = pa.types
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_decimal(kind):
        return ["decimal", kind.precision, kind.scale]
    if types.is_list(kind):
        return ["list", _fields(kind.value_type)]
    if types.is_map(kind):
        return ["map", _fields(kind.key_type), _fields(kind.item_type)]
    return ["struct", *([field.name, _fields(field.type)] for field in kind)]


def _type(fields: Any) -> pa.DataType:
    if isinstance(fields, str):
        return _NAMED[fields]
    name, *inner = fields
    return _NESTED[name](inner)


_NESTED: Final[dict[str, Callable[[Any], pa.DataType]]] = {
    "decimal": lambda inner: pa.decimal128(*inner),
    "list": lambda inner: pa.list_(_type(*inner)),
    "map": lambda inner: pa.map_(*(_type(each) for each in inner)),
    "struct": lambda inner: pa.struct([(name, _type(each)) for name, each in inner]),
}
