"""Depth and cells of a value, found in its bytes before a compiled reader makes Python objects of it."""

from typing import Final

from ts_common.wording import counted
from ts_reader.schemas.avro.arrow_types import not_null
from ts_reader.schemas.avro.nodes import Node
from ts_reader.schemas.cell_counts import too_many_cells
from ts_reader.schemas.limits import MAX_CELLS, MAX_DEPTH, STRUCT_CELLS

_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def check_value(node: Node, data: bytes) -> None:
    """Check the depth of a value and the number of its cells.

    Raises:
        ValueError: values are nested deeper than `MAX_DEPTH`, have more than `MAX_CELLS` cells, or the bytes end early.
    """
    try:
        _Skimmer(data).skip(node, 0, 0)
    except IndexError:
        raise ValueError("the bytes end in the middle of the value") from None


class _Skimmer:
    """Steps over the values of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_CELLS

    def skip(self, node: Node, position: int, depth: int) -> int:
        """Return the position after a value."""
        if depth > 2 * MAX_DEPTH:  # a value has a union or a field between two levels of types
            raise ValueError(f"values are nested more than {2 * MAX_DEPTH} levels deep")
        match node.kind:
            case "record":
                self._spend(STRUCT_CELLS + len(node.fields))
                for field in node.fields:
                    position = self.skip(field.node, position, depth + 1)
                return position
            case "union":
                return self._skip_union(node, position, depth)
            case "array" | "map":
                return self._skip_blocks(node, position, depth)
            case "bytes" | "string":
                size, position = self._long(position)
                return self._onward(position, size)
            case "int" | "long" | "enum":
                return self._long(position)[1]
            case _:
                return self._onward(position, _FIXED_SIZES.get(node.kind, node.size))

    def _spend(self, cells: int) -> None:
        self._left -= cells
        if self._left < 0:
            raise too_many_cells()

    def _skip_union(self, node: Node, position: int, depth: int) -> int:
        index, position = self._long(position)
        if not 0 <= index < len(node.branches):
            raise ValueError(f"branch {index} of a union of {len(node.branches)}")
        if len(not_null(node)) > 1 and node.branches[index].kind != "null":
            self._spend(STRUCT_CELLS)  # an object of one member
        return self.skip(node.branches[index], position, depth + 1)

    def _skip_blocks(self, node: Node, position: int, depth: int) -> int:
        while True:
            count, position = self._long(position)
            if count == 0:
                return position
            if count < 0:
                count, (_, position) = -count, self._long(position)
            for _ in range(count):
                if node.kind == "map":
                    size, position = self._long(position)
                    position = self._onward(position, size)
                position = self.skip(node.inner, position, depth + 1)

    def _onward(self, position: int, size: int) -> int:
        if not 0 <= size <= len(self._data) - position:
            raise ValueError(f"{counted(size, 'byte')} at position {position} of {len(self._data)}")
        return position + size

    def _long(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than ten bytes")
