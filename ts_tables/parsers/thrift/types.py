"""The types of an IDL, compiled: plain values that another process can have, each with its column and its reading.

=====================================  =======================================================================
IDL                                    column
=====================================  =======================================================================
`bool`; `byte`, `i8`, `i16`, `i32`;    `boolean`; `int`; `long`; `double`
`i64`; `double`
`string`; `binary`                     `string`, of UTF-8; `binary`
enum                                   `string`: the symbol, or the number if the IDL has no symbol of it
`list`, `set`                          `list`
`map`                                  `map` with keys of text: symbols, digits, true and false
struct, exception, union               `struct`; of a union one member has a value
=====================================  =======================================================================
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from ts_reader.schemas.limits import DEFAULT_BYTES, STRUCT_CELLS
from ts_tables.parsers.converted import shown
from ts_tables.parsers.thrift.protocols import Wire, WireReader

Default = bool | int | float | str | bytes | None  # None: it has none


class ThriftType(ABC):
    """A type of an IDL."""

    @property
    @abstractmethod
    def wire(self) -> Wire:
        """The type of its values in the bytes."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType:
        """The type of its column."""

    @property
    @abstractmethod
    def layout(self) -> object:
        """Everything that decides what is read, as a value of JSON."""

    @property
    def cells(self) -> int:
        """The cells of one value, as of `ts_reader.schemas.cell_counts`, without those of items."""
        return 1

    @abstractmethod
    def read(self, reader: WireReader) -> Any:
        """Return a value; raise ValueError if the bytes have none."""


class Name(StrEnum):
    """Types without types inside of them."""

    BOOL = "bool"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"


_ARROW: Final = {
    Name.BOOL: pa.bool_(),
    Name.I8: pa.int32(),
    Name.I16: pa.int32(),
    Name.I32: pa.int32(),
    Name.I64: pa.int64(),
    Name.DOUBLE: pa.float64(),
    Name.STRING: pa.string(),
    Name.BINARY: pa.binary(),
}
_WIRE: Final = {name: Wire.BINARY if name is Name.STRING else Wire[name.name] for name in Name}
_READS: Final[Mapping[Name, Callable[[WireReader], Any]]] = {
    Name.BOOL: lambda reader: reader.boolean(),
    Name.I8: lambda reader: reader.integer(Wire.I8),
    Name.I16: lambda reader: reader.integer(Wire.I16),
    Name.I32: lambda reader: reader.integer(Wire.I32),
    Name.I64: lambda reader: reader.integer(Wire.I64),
    Name.DOUBLE: lambda reader: reader.double(),
    Name.STRING: lambda reader: _text(reader.blob()),
    Name.BINARY: lambda reader: reader.blob(),
}


@dataclass(frozen=True)
class Scalar(ThriftType):
    """A type without types inside of it."""

    name: Name

    @property
    def wire(self) -> Wire:
        """As of `ThriftType`, like the others."""
        return _WIRE[self.name]

    @property
    def arrow(self) -> pa.DataType:
        """The type of its column."""
        return _ARROW[self.name]

    @property
    def layout(self) -> object:
        """Its name."""
        return str(self.name)

    def read(self, reader: WireReader) -> Any:
        """Return a value."""
        return _READS[self.name](reader)


@dataclass(frozen=True)
class Enumeration(ThriftType):
    """An enum.

    Attributes:
        symbols: by number.
    """

    symbols: Mapping[int, str]

    @property
    def wire(self) -> Wire:
        """A number."""
        return Wire.I32

    @property
    def arrow(self) -> pa.DataType:
        """Text."""
        return pa.string()

    @property
    def layout(self) -> object:
        """Its symbols."""
        return ["enum", sorted(self.symbols.items())]

    def text_of(self, number: int) -> str:
        """Return the symbol of a number; the number itself if it has none, as of a later IDL."""
        return self.symbols.get(number) or str(number)

    def read(self, reader: WireReader) -> str:
        """Return a symbol."""
        return self.text_of(reader.integer(Wire.I32))


@dataclass(frozen=True)
class Items(ThriftType):
    """A list or a set.

    Attributes:
        element: the type of its elements.
        is_set: whether it is a set.
    """

    element: ThriftType
    is_set: bool

    @property
    def wire(self) -> Wire:
        """One of both."""
        return Wire.SET if self.is_set else Wire.LIST

    @property
    def arrow(self) -> pa.DataType:
        """A list."""
        return pa.list_(pa.field("element", self.element.arrow))

    @property
    def layout(self) -> object:
        """The type of its elements."""
        return ["set" if self.is_set else "list", self.element.layout]

    def read(self, reader: WireReader) -> list[Any]:
        """Return the elements."""
        wire, count = reader.items()
        if count:
            _check(self.element, wire)
            reader.spend(count * self._cells)
        read = self.element.read
        return [read(reader) for _ in range(count)]

    @cached_property
    def _cells(self) -> int:
        return self.element.cells


@dataclass(frozen=True)
class Pairs(ThriftType):
    """A map.

    Attributes:
        key: the type of its keys; each becomes text.
        value: the type of its values.
    """

    key: ThriftType
    value: ThriftType

    @property
    def wire(self) -> Wire:
        """A map."""
        return Wire.MAP

    @property
    def arrow(self) -> pa.DataType:
        """A map with keys of text."""
        return pa.map_(pa.string(), self.value.arrow)

    @property
    def layout(self) -> object:
        """The types of keys and values."""
        return ["map", self.key.layout, self.value.layout]

    def read(self, reader: WireReader) -> dict[str, Any]:
        """Return the pairs; raise ValueError also if two have one key."""
        key, value, count = reader.pairs()
        if count:
            _check(self.key, key)
            _check(self.value, value)
            reader.spend(count * self._cells)
        found: dict[str, Any] = {}
        for _ in range(count):
            text = _key(self.key.read(reader))
            if text in found:
                raise ValueError(f"two pairs of a map have the key {shown(text)}")
            found[text] = self.value.read(reader)
        return found

    @cached_property
    def _cells(self) -> int:
        return 1 + self.value.cells


@dataclass(frozen=True)
class Field:
    """A field of a struct.

    Attributes:
        required: whether a struct without it is refused.
        default: of a struct without it, in the type of the column.
    """

    number: int
    name: str
    type: ThriftType
    required: bool = False
    default: Default = None

    @property
    def layout(self) -> object:
        """Everything of it, as a value of JSON."""
        default = self.default.hex() if isinstance(self.default, bytes) else self.default
        return [self.number, self.name, self.type.layout, self.required, default]

    @property
    def cells(self) -> int:
        """The cells of a value, and of the default."""
        length = len(self.default) if isinstance(self.default, str | bytes) else 0
        return self.type.cells + length // DEFAULT_BYTES


@dataclass(frozen=True)
class Struct(ThriftType):
    """A struct, an exception or a union.

    Attributes:
        fields: at least one, in the order of the IDL.
        is_union: whether exactly one of them has a value.
    """

    fields: tuple[Field, ...]
    is_union: bool = False

    @property
    def wire(self) -> Wire:
        """A struct."""
        return Wire.STRUCT

    @property
    def arrow(self) -> pa.DataType:
        """A struct."""
        return pa.struct([(field.name, field.type.arrow) for field in self.fields])

    @property
    def layout(self) -> object:
        """Its fields."""
        return ["union" if self.is_union else "struct", [field.layout for field in self.fields]]

    @property
    def cells(self) -> int:
        """The cells of all fields."""
        return STRUCT_CELLS + sum(field.cells for field in self.fields)

    def read(self, reader: WireReader) -> dict[str, Any]:
        """Return the values of its fields by name; those without a value are left out."""
        found: dict[str, Any] = {}
        numbers: set[int] = set()
        last = 0
        while (header := reader.field(last)) is not None:
            wire, last = header
            if last in numbers:
                raise ValueError(f"field {last} is there twice")
            numbers.add(last)
            field = self._by_number.get(last)
            if field is None:
                reader.skip(wire)
                continue
            try:
                _check(field.type, wire)
                found[field.name] = field.type.read(reader)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
        if self.is_union and len(numbers) != 1:
            raise ValueError(f"{len(numbers)} members of a union have a value; exactly one is expected")
        for field in self._others:
            if field.name not in found:
                if field.required:
                    raise ValueError(f"{field.name}: it is missing")
                found[field.name] = field.default
        return found

    @cached_property
    def _by_number(self) -> Mapping[int, Field]:
        return {field.number: field for field in self.fields}

    @cached_property
    def _others(self) -> tuple[Field, ...]:
        """Fields that matter if they are missing."""
        return tuple(each for each in self.fields if each.required or each.default is not None)


def _check(kind: ThriftType, wire: Wire | None) -> None:
    if wire is not kind.wire:
        found = "nothing" if wire is None else wire.name.lower()
        raise ValueError(f"its bytes are of type {found}; the IDL has {kind.wire.name.lower()}")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{shown(data)} is no UTF-8") from None


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
