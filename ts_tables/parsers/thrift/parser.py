"""Values that are Thrift structs: the fields of the struct are the columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from ts_common.suggestions import nearest
from ts_reader.schemas.limits import MAX_VALUE_BYTES
from ts_reader.schemas.rows import ColumnBuilder
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import Converted, parsed_of
from ts_tables.parsers.thrift.protocols import BinaryReader, CompactReader
from ts_tables.parsers.thrift.types import Struct


class Protocol(StrEnum):
    """How a struct is bytes."""

    BINARY = "binary"
    COMPACT = "compact"


_READERS: Final = {Protocol.BINARY: BinaryReader, Protocol.COMPACT: CompactReader}
_IDL, _STRUCT, _PROTOCOL = "idl", "struct", "protocol"
_OPTIONS: Final = (_IDL, _STRUCT, _PROTOCOL)


@dataclass(frozen=True, slots=True)
class ThriftOptions:
    """Options of the parser.

    Attributes:
        idl: file of the IDL.
        struct: name of the struct in it.
    """

    idl: Path
    struct: str
    protocol: Protocol


def parse_options(options: Mapping[str, str]) -> ThriftOptions:
    """Return the options, without a look at the file.

    Raises:
        ValueError: one is missing, unknown or wrong.
    """
    for name in options:
        if name not in _OPTIONS:
            accepted = ", ".join(_OPTIONS)
            raise ValueError(f"options.{name}: it is unknown{nearest(name, _OPTIONS)}; accepted are {accepted}")
    for name in (_IDL, _STRUCT):
        if not options.get(name):
            raise ValueError(f"options.{name}: thrift needs one, as {{idl: event.thrift, struct: Event}}")
    protocol = options.get(_PROTOCOL, Protocol.BINARY)
    if protocol not in [*Protocol]:
        hint = nearest(protocol, Protocol)
        raise ValueError(f"options.protocol: {protocol!r} is unknown{hint}; accepted are {', '.join(Protocol)}")
    return ThriftOptions(Path(options[_IDL]), options[_STRUCT], Protocol(protocol))


class ThriftParser(Parser):
    """Parses values that are one struct each. A record without a value is a row of nulls.

    Args:
        protocol: of their bytes.
    """

    def __init__(self, struct: Struct, protocol: Protocol) -> None:
        self._struct = struct
        self._protocol = protocol

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema(list(self._struct.arrow))

    @property
    def layout(self) -> str:
        """The protocol, and the types and ids of all fields."""
        return json.dumps([self._protocol, self._struct.layout])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise `BatchTooLarge` as `Parser.parse`."""
        builder = ColumnBuilder(self._struct.arrow)
        for value in records["value"]:
            data: bytes | None = value.as_py()
            try:
                builder.add(None if data is None else self._decoded(data), len(data or b""))
            except ValueError as error:
                builder.refuse(str(error))
        decoded = builder.finish()
        reasons = {row: reason for row, reason in enumerate(decoded.refused.to_pylist()) if reason is not None}
        columns = [Converted(each) for each in decoded.column.flatten()]
        return parsed_of(self.columns, columns, np.arange(len(decoded.column)), reasons, self.columns.names)

    def _decoded(self, data: bytes) -> dict[str, object]:
        """Return the fields of a value.

        Raises:
            ValueError: it is not exactly one struct, or is larger than is accepted.
        """
        if len(data) > MAX_VALUE_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_VALUE_BYTES} are parsed")
        reader = _READERS[self._protocol](data)
        found = self._struct.read(reader)
        reader.finish()
        return found
