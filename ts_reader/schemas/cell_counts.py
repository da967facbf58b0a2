"""Cells: what a decoded value needs in Python and in Arrow, whatever number of bytes it was.

A short value can be large: `[{},{}]` of a schema whose items have a thousand columns is two thousand cells of Arrow.
A cell is eight bytes and a bit of Arrow, and about 64 bytes of Python: a `dict` of many fields has 40 bytes for each,
and one of a single field has 184.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ts_reader.schemas.limits import MAX_CELLS, STRUCT_CELLS

_Count = Callable[[Any], int]


class Cells:
    """Counts the cells of values of one type.

    Attributes:
        row: of a value without the items of its lists and maps; also of a null, which is as wide in Arrow.

    Raises:
        ValueError: one row without any item has more than `MAX_CELLS` cells.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.row = cells_of(arrow_type)
        self._items = _items(arrow_type)
        if self.row > MAX_CELLS:
            raise ValueError(f"each row has {self.row} cells; at most {MAX_CELLS} are decoded")

    def of(self, value: Any) -> int:
        """Return the cells of a value.

        Raises:
            ValueError: they are more than `MAX_CELLS`.
        """
        if self._items is None or value is None:
            return self.row
        cells = self.row + self._items(value)
        if cells > MAX_CELLS:
            raise too_many_cells()
        return cells


def too_many_cells() -> ValueError:
    """Return the error of a value with more than `MAX_CELLS` cells."""
    return ValueError(f"its items have more than {MAX_CELLS} cells, with all columns of their type")


def cells_of(kind: pa.DataType) -> int:
    """Return the cells of one value of a type, without the items of lists and maps inside of it."""
    if pa.types.is_struct(kind):
        return STRUCT_CELLS + sum(cells_of(kind.field(index).type) for index in range(kind.num_fields))
    try:
        width: int = kind.bit_width
    except ValueError:  # of a type whose values have any number of bytes
        return 1
    return max(1, width // 64)


def _items(kind: pa.DataType) -> _Count | None:
    """Return what counts the cells of all items inside of a value; None if each of its items is one cell."""
    if pa.types.is_struct(kind):
        return _of_fields(kind)
    if pa.types.is_map(kind):
        return _of_items(kind.item_type, lambda value: value.values())
    if pa.types.is_list(kind):
        return _of_items(kind.value_type, lambda value: value)
    return None


def _of_fields(kind: pa.DataType) -> _Count | None:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    counted = [(field.name, count) for field in fields if (count := _items(field.type)) is not None]
    if not counted:
        return None

    def cells(value: dict[str, Any]) -> int:
        total = 0
        for name, count in counted:
            inner = value.get(name)
            if inner is not None:
                total += count(inner)
        return total

    return cells


def _of_items(kind: pa.DataType, items_of: Callable[[Any], Any]) -> _Count | None:
    width, inner = cells_of(kind), _items(kind)
    if inner is None:
        return None if width == 1 else lambda value: width * len(value)
    return lambda value: width * len(value) + sum(inner(each) for each in items_of(value) if each is not None)
