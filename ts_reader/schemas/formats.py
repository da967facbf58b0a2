"""A reader's schema of any language, compiled: its Arrow type, and a function from bytes for each writer's schema."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa

from ts_common.errors import CorruptData
from ts_reader.schemas.avro.arrow_types import arrow_type
from ts_reader.schemas.avro.nodes import Node, parse_avro
from ts_reader.schemas.avro.reading import reader_of
from ts_reader.schemas.avro.resolution import Resolver
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.limits import MAX_DEFAULT_BYTES

# The bytes after a frame, and the message indexes of a header, to a value for Arrow; raises ValueError.
Read = Callable[[bytes, bytes | None], object]


class Format(ABC):
    """The reader's schema."""

    arrow_type: pa.DataType

    @abstractmethod
    def reading(self, writer: Bundle | None) -> Read:
        """Return a function from payloads to values, which raises `ValueError` for those that do not decode.

        Args:
            writer: the schema of the payloads; None for that of the reader, and payloads without message indexes.

        Raises:
            CorruptData: the writer's schema is wrong, or no value of it is one of the reader's schema.
        """


class AvroFormat(Format):
    """A reader's schema of Avro."""

    def __init__(self, reader: Bundle) -> None:
        self._bundle = reader
        self._node: Node = parse_avro(reader)
        try:
            reader_of(self._node)
            self.arrow_type = arrow_type(self._node)
        except ValueError as error:
            raise CorruptData(f"{reader.schema}: {error}") from error

    def reading(self, writer: Bundle | None) -> Read:
        """Return a function by Avro's schema resolution."""
        node = self._node if writer is None or writer == self._bundle else parse_avro(writer)
        resolver = Resolver()
        try:
            read = reader_of(node)
            resolution = resolver.resolve(node, self._node)
        except ValueError as error:
            schema = (writer or self._bundle).schema
            raise CorruptData(f"{schema} does not resolve to {self._bundle.schema}: {error}") from error

        def value(data: bytes, _: bytes | None) -> object:
            raw = read(data)
            if resolution is None:
                return raw
            resolver.defaults.left = MAX_DEFAULT_BYTES
            return resolution(raw)

        return value
