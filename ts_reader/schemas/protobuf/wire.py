"""The cells of a Protobuf message, counted in its bytes before the library parses it.

Two bytes are a message inside of another one, and the library reserves room for all its fields at once. So a message
whose bytes allow for too many cells is walked over first. The wire format is that of "Encoding" in Protobuf's
documentation.
"""

from dataclasses import dataclass, field
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from ts_common.wording import counted
from ts_reader.schemas.cell_counts import too_many_cells
from ts_reader.schemas.limits import MAX_CELLS, STRUCT_CELLS

_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_INSIDE: Final = {FieldDescriptor.TYPE_MESSAGE: _BYTES, FieldDescriptor.TYPE_GROUP: _GROUP}
_MAX_LEVELS: Final = 128  # the library parses 100


@dataclass(slots=True, eq=False)
class _Shape:
    """A message type: its cells without those of messages inside of it, and the types of these by their tags."""

    cells: int
    inside: dict[int, "_Shape"] = field(default_factory=dict)


class WireCheck:
    """Checks messages of one type.

    Args:
        pool: of the descriptor; it has its extensions.
    """

    def __init__(self, pool: DescriptorPool, descriptor: Descriptor) -> None:
        shapes: dict[str, _Shape] = {}
        pending = [descriptor]
        self._root = _shape(shapes, descriptor, pending)
        self._widest = 0  # of the types inside of the root
        while pending:
            outer = pending.pop()
            for each in (*outer.fields, *pool.FindAllExtensions(outer)):
                if each.type in _INSIDE:
                    inner = _shape(shapes, each.message_type, pending)
                    shapes[outer.full_name].inside[each.number << 3 | _INSIDE[each.type]] = inner
                    self._widest = max(self._widest, inner.cells)

    def check(self, data: bytes) -> None:
        """Raise `ValueError` if a message has more than `MAX_CELLS` cells, or its bytes are not those of a message."""
        if self._root.cells + len(data) // 2 * self._widest <= MAX_CELLS:
            return
        try:
            _walk(self._root, data)
        except IndexError:
            raise ValueError("the bytes end in the middle of the message") from None


def _shape(shapes: dict[str, _Shape], descriptor: Descriptor, pending: list[Descriptor]) -> _Shape:
    name = descriptor.full_name
    if name not in shapes:
        shapes[name] = _Shape(STRUCT_CELLS + len(descriptor.fields))
        pending.append(descriptor)
    return shapes[name]


def _walk(root: _Shape, data: bytes) -> None:
    cells, position = root.cells, 0
    # Type, end and field number of each open message; 0 as the number: it has a length, so that its end is known.
    stack: list[tuple[_Shape | None, int, int]] = [(root, len(data), 0)]
    while stack:
        shape, end, group = stack[-1]
        if position >= end:
            if position > end or group:
                raise ValueError(f"a message that ends at byte {end} has more bytes")
            stack.pop()
            continue
        tag, position = _varint(data, position)
        kind = tag & 7
        inner = None if shape is None else shape.inside.get(tag)
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind in _FIXED:
            position += _FIXED[kind]
        elif kind == _BYTES:
            size, position = _varint(data, position)
            if size > end - position:
                raise ValueError(f"{counted(size, 'byte')} at position {position} of {end}")
            if inner is None:
                position += size
            else:
                stack.append((inner, position + size, 0))
        elif kind == _GROUP:
            stack.append((inner, end, tag >> 3))
        elif kind == _END and group == tag >> 3:
            stack.pop()
        else:
            raise ValueError(f"a field of wire type {kind}")
        if len(stack) > _MAX_LEVELS:
            raise ValueError(f"messages are nested more than {_MAX_LEVELS} levels deep")
        if inner is not None:
            cells += inner.cells
            if cells > MAX_CELLS:
                raise too_many_cells()


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
