"""Thrift's two formats of bytes, read strictly: each call returns a part of a struct, or raises ValueError.

The sources are `doc/specs/thrift-binary-protocol.md` and `doc/specs/thrift-compact-protocol.md` of Apache Thrift. Where
its writers differ from them, both are read: in lists of the compact protocol, booleans have type 1 or 2, and false is 0
or 2. Time and memory are in proportion to the bytes, whatever they contain.
"""

import struct
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Final

from ts_common.wording import counted
from ts_reader.schemas.cell_counts import too_many_cells
from ts_reader.schemas.limits import MAX_CELLS

MOST_LEVELS: Final = 64  # of a field that the IDL does not have
_STOP: Final = 0
_LONG: Final = 15  # a list of so many items, or more, has its count after its header
_VARINT_BYTES: Final = 10
_SKIPPED: Final = 4  # cells that an item counts which is skipped: it needs the time of so many
_INT16: Final = range(-(1 << 15), 1 << 15)


class Wire(IntEnum):
    """Types of values, with their numbers in the binary protocol."""

    BOOL = 2
    I8 = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    I64 = 10
    BINARY = 11
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15
    UUID = 16


_BYTES: Final = {Wire.I8: 1, Wire.I16: 2, Wire.I32: 4, Wire.I64: 8}
_FIXED: Final = {Wire.BOOL: 1, Wire.I8: 1, Wire.DOUBLE: 8, Wire.UUID: 16}  # bytes of an element, in both protocols
_BINARY_FIXED: Final = {**_FIXED, **_BYTES}
_BINARY_LEAST: Final = {**_BINARY_FIXED, Wire.BINARY: 4, Wire.STRUCT: 1, Wire.MAP: 6, Wire.SET: 5, Wire.LIST: 5}
_COMPACT: Final = {
    1: Wire.BOOL,
    2: Wire.BOOL,
    3: Wire.I8,
    4: Wire.I16,
    5: Wire.I32,
    6: Wire.I64,
    7: Wire.DOUBLE,
    8: Wire.BINARY,
    9: Wire.LIST,
    10: Wire.SET,
    11: Wire.MAP,
    12: Wire.STRUCT,
    13: Wire.UUID,
}
_COMPACT_LEAST: Final = {**dict.fromkeys(Wire, 1), **_FIXED}
_COMPACT_BOOLEANS: Final = {0: False, 1: True, 2: False}
_BIG, _LITTLE = struct.Struct(">d"), struct.Struct("<d")


class WireReader(ABC):
    """Reads the parts of one struct, in their order.

    Args:
        data: the bytes of the struct.
    """

    _least: dict[Wire, int]  # bytes that a value of a type has at least, in a list
    _fixed: dict[Wire, int]  # bytes of values whose number is the same for all of a type, in a list

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._cells = MAX_CELLS

    @abstractmethod
    def field(self, last: int) -> tuple[Wire, int] | None:
        """Return the type and the id of the next field; None at the end of the struct.

        Args:
            last: id of the field before; 0 for the first one.
        """

    @abstractmethod
    def boolean(self) -> bool:
        """Return a boolean."""

    @abstractmethod
    def integer(self, wire: Wire) -> int:
        """Return an integer of one of the types with a number of bits."""

    @abstractmethod
    def double(self) -> float:
        """Return a double."""

    @abstractmethod
    def blob(self) -> bytes:
        """Return text or bytes."""

    @abstractmethod
    def items(self) -> tuple[Wire | None, int]:
        """Return the type and the number of the elements of a list or a set; they follow."""

    @abstractmethod
    def pairs(self) -> tuple[Wire | None, Wire | None, int]:
        """Return the types of the keys and the values of a map, and their number; they follow in turn."""

    def spend(self, cells: int) -> None:
        """Count cells (`ts_reader.schemas.cell_counts`) before they are made; raise ValueError if they are too many."""
        self._cells -= cells
        if self._cells < 0:
            raise too_many_cells()

    def finish(self) -> None:
        """Raise ValueError if bytes follow."""
        if self._at < len(self._data):
            raise ValueError(f"{counted(len(self._data) - self._at, 'byte')} after the struct")

    def skip(self, wire: Wire, level: int = 0) -> None:
        """Skip a value.

        Args:
            wire: its type.
            level: number of values that it is in, up to `MOST_LEVELS`.
        """
        if level > MOST_LEVELS:
            raise ValueError(f"an unknown field has more than {MOST_LEVELS} levels")
        match wire:
            case Wire.BOOL:
                self.boolean()
            case Wire.DOUBLE | Wire.UUID:
                self._take(_FIXED[wire])
            case Wire.BINARY:
                self.blob()
            case Wire.STRUCT:
                last = 0
                while (found := self.field(last)) is not None:
                    inner, last = found
                    self.skip(inner, level + 1)
            case Wire.LIST | Wire.SET:
                element, count = self.items()
                self._skip_all(count, level + 1, element)
            case Wire.MAP:
                key, value, count = self.pairs()
                self._skip_all(count, level + 1, key, value)
            case _:
                self.integer(wire)

    def _skip_all(self, count: int, level: int, *wires: Wire | None) -> None:
        known = [wire for wire in wires if wire is not None]
        if all(wire in self._fixed for wire in known):
            self._take(count * sum(self._fixed[wire] for wire in known))
            return
        self.spend(count * len(known) * _SKIPPED)
        for _ in range(count):
            for wire in known:
                self.skip(wire, level)

    def _counted(self, count: int, *wires: Wire | None) -> int:
        """Return the number of items, if the bytes that follow can have as many."""
        if count == 0:
            return 0
        if None in wires:
            raise ValueError("a list or map has items of an unknown type")
        left = len(self._data) - self._at
        if count < 0 or count * sum(self._least[wire] for wire in wires if wire is not None) > left:
            raise ValueError(f"a list or map of {counted(count, 'item')}, with {counted(left, 'byte')} after its size")
        return count

    def _take(self, count: int) -> bytes:
        start, end = self._at, self._at + count
        if count < 0:
            raise ValueError(f"a length is {count}")
        if end > len(self._data):
            raise ValueError(f"{counted(len(self._data) - start, 'byte')} left; {count} expected")
        self._at = end
        return self._data[start:end]

    def _byte(self) -> int:
        return self._take(1)[0]


class BinaryReader(WireReader):
    """Reads the binary protocol. A struct is the same with and without strict messages."""

    _least = _BINARY_LEAST
    _fixed = _BINARY_FIXED

    def field(self, last: int) -> tuple[Wire, int] | None:
        """Return the next field as `WireReader.field`."""
        del last
        code = self._byte()
        return None if code == _STOP else (_known(_binary_wire(code), code), self.integer(Wire.I16))

    def boolean(self) -> bool:
        """Return a boolean; raise ValueError if it is neither 0 nor 1."""
        found = self._byte()
        if found > 1:
            raise ValueError(f"{found} is no boolean")
        return found == 1

    def integer(self, wire: Wire) -> int:
        """Return an integer."""
        return int.from_bytes(self._take(_BYTES[wire]), "big", signed=True)

    def double(self) -> float:
        """Return a double."""
        found: float = _BIG.unpack(self._take(8))[0]
        return found

    def blob(self) -> bytes:
        """Return text or bytes."""
        return self._take(self.integer(Wire.I32))

    def items(self) -> tuple[Wire | None, int]:
        """Return the type and the number of elements."""
        wire = _binary_wire(self._byte())
        return wire, self._counted(self.integer(Wire.I32), wire)

    def pairs(self) -> tuple[Wire | None, Wire | None, int]:
        """Return the types and the number of keys and values."""
        key, value = _binary_wire(self._byte()), _binary_wire(self._byte())
        return key, value, self._counted(self.integer(Wire.I32), key, value)


class CompactReader(WireReader):
    """Reads the compact protocol."""

    _least = _COMPACT_LEAST
    _fixed = _FIXED

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._flag: bool | None = None  # the value of a boolean field, which its header has

    def field(self, last: int) -> tuple[Wire, int] | None:
        """Return the next field as `WireReader.field`."""
        header = self._byte()
        if header == _STOP:
            return None
        delta, code = divmod(header, 16)
        number = last + delta if delta else _signed(self._varint())
        if number not in _INT16:
            raise ValueError(f"{number} is no id of a field")
        wire = _known(_COMPACT.get(code), code)
        self._flag = code == 1 if wire is Wire.BOOL else None
        return wire, number

    def boolean(self) -> bool:
        """Return a boolean; raise ValueError if an element is neither 0, 1 nor 2."""
        found, self._flag = self._flag, None
        if found is None:
            byte = self._byte()
            found = _COMPACT_BOOLEANS.get(byte)
            if found is None:
                raise ValueError(f"{byte} is no boolean")
        return found

    def integer(self, wire: Wire) -> int:
        """Return an integer; raise ValueError if it has more bits than its type."""
        if wire is Wire.I8:
            return int.from_bytes(self._take(1), "big", signed=True)
        found = _signed(self._varint())
        limit = 1 << (8 * _BYTES[wire] - 1)
        if not -limit <= found < limit:
            raise ValueError(f"{found} is no {wire.name.lower()}")
        return found

    def double(self) -> float:
        """Return a double; its bytes are in the reverse order of the binary protocol's."""
        found: float = _LITTLE.unpack(self._take(8))[0]
        return found

    def blob(self) -> bytes:
        """Return text or bytes."""
        return self._take(self._varint())

    def items(self) -> tuple[Wire | None, int]:
        """Return the type and the number of elements."""
        count, code = divmod(self._byte(), 16)
        wire = _COMPACT.get(code)
        return wire, self._counted(self._varint() if count == _LONG else count, wire)

    def pairs(self) -> tuple[Wire | None, Wire | None, int]:
        """Return the types and the number of keys and values; an empty map has no types."""
        count = self._varint()
        if count == 0:
            return None, None, 0
        key, value = (_COMPACT.get(code) for code in divmod(self._byte(), 16))
        return key, value, self._counted(count, key, value)

    def _varint(self) -> int:
        """Return a number of up to 64 bits, without a sign."""
        found = 0
        for place in range(_VARINT_BYTES):
            byte = self._byte()
            found |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if found.bit_length() > 64:
                    break
                return found
        raise ValueError("a number has more than 64 bits")


def _signed(number: int) -> int:
    """Return the integer of a zigzag number: 0, -1, 1, -2 of 0, 1, 2, 3."""
    return (number >> 1) ^ -(number & 1)


def _binary_wire(code: int) -> Wire | None:
    return Wire(code) if code in _BINARY_LEAST else None


def _known(wire: Wire | None, code: int) -> Wire:
    if wire is None:
        raise ValueError(f"{code} is no type of a field")
    return wire
