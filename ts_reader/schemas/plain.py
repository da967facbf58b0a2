"""Codecs without a schema: text, JSON, and the integers of Kafka's serializers.

==========  ======================================================================  ==========
`utf8`      text in UTF-8                                                           `string`
`json`      JSON in UTF-8 that was checked, as it is; DuckDB reads it as JSON       `string`
`int`       4 bytes, big-endian and signed, as IntegerSerializer writes them        `int32`
`long`      8 bytes, big-endian and signed, as LongSerializer writes them           `int64`
==========  ======================================================================  ==========
"""

from abc import abstractmethod
from collections.abc import Mapping

import orjson
import pyarrow as pa

from ts_common.errors import ConfigurationError
from ts_common.wording import counted
from ts_reader.schemas.contract import Codec, Decoded, Part
from ts_reader.schemas.limits import MAX_JSON_BYTES
from ts_reader.schemas.rows import ColumnBuilder


class _PlainCodec(Codec):
    """A codec of one function from bytes to a value, which raises `ValueError`."""

    def __init__(self, topic: str, part: Part, options: Mapping[str, str]) -> None:
        if options:
            problem = f"{', '.join(sorted(options))}: a codec without a schema has no options"
            raise ConfigurationError(f"codec of {topic} ({part})", [problem])

    _type: pa.DataType

    @abstractmethod
    def _value(self, data: bytes) -> object: ...

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the decoded column."""
        return self._type

    def decode(self, column: pa.Array, headers: pa.Array | None = None) -> Decoded:  # noqa: ARG002
        """Return the decoded column and the refused rows."""
        builder = ColumnBuilder(self._type)
        for data in column.to_pylist():
            if data is None:
                builder.add(None)
                continue
            try:
                builder.add(self._value(data), len(data))
            except ValueError as error:
                builder.refuse(str(error))
        return builder.finish()


class Utf8Codec(_PlainCodec):
    """Text in UTF-8."""

    _type = pa.string()

    def _value(self, data: bytes) -> str:
        return data.decode("utf-8")


class JsonCodec(_PlainCodec):
    """JSON in UTF-8: checked, and returned as it is."""

    _type = pa.string()

    def _value(self, data: bytes) -> str:
        if len(data) > MAX_JSON_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_JSON_BYTES} are decoded")
        orjson.loads(data)
        return data.decode("utf-8")


class IntegerCodec(_PlainCodec):
    """Four bytes, big-endian and signed."""

    _type = pa.int32()
    _size = 4

    def _value(self, data: bytes) -> int:
        if len(data) != self._size:
            raise ValueError(f"{counted(len(data), 'byte')}; expected an integer of {self._size}")
        return int.from_bytes(data, "big", signed=True)


class LongCodec(IntegerCodec):
    """Eight bytes, big-endian and signed."""

    _type = pa.int64()
    _size = 8
