"""Values of Arrow columns as Python objects, also those that Python has no object for."""

from typing import Any

import pyarrow as pa

_BEYOND = (OverflowError, ValueError)  # a date or time that Python's calendar does not have


def values_of(column: pa.Array, *, maps_as_pydicts: str | None = None) -> list[Any]:
    """Return the values of a column; each that contains a time beyond the years 1 to 9999 is text.

    Args:
        column: any.
        maps_as_pydicts: as of `pyarrow.Array.to_pylist`.
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts=maps_as_pydicts)
    except _BEYOND:
        values = [_value(column, place, maps_as_pydicts) for place in range(len(column))]
    return values


def _value(column: pa.Array, place: int, maps_as_pydicts: str | None) -> Any:
    try:
        return column[place].as_py(maps_as_pydicts=maps_as_pydicts)
    except _BEYOND:
        if pa.types.is_timestamp(column.type):
            return f"@{column[place].value} {column.type.unit}"
        return " ".join(column.slice(place, 1).to_string(window=1 << 30, container_window=1 << 30).split())
