"""The frame of a registry around a key or a value: which schema it was written with.

Confluent's wire format (docs.confluent.io, "Wire format" of the serializer page; the classes `SchemaId` and
`DualSchemaIdDeserializer` of confluentinc/schema-registry):

===================  ==============================================================================================
in the value         byte 0, then the schema's id, 4 bytes big-endian; with Protobuf then the message indexes
in a header          `__key_schema_id` or `__value_schema_id`: byte 1, then the schema's GUID, 16 bytes; with Protobuf
                     then the message indexes. Byte 0 and an id are possible too. The value has no frame then
message indexes      zigzag varints: their number, then the place of the message in the file, then the place in that
                     message, and so on; a single 0 is short for the first message
===================  ==============================================================================================

As in `DualSchemaIdDeserializer`, the last such header counts, and without one the frame is in the value.
"""

import struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from ts_common.log_format.varints import read_varint
from ts_reader.schemas.contract import Part
from ts_reader.schemas.limits import MAX_DEPTH

_ID: Final = struct.Struct(">I")
ID_BYTES: Final = 5
_GUID_BYTES: Final = 17
_LONGEST_INDEX: Final = 5  # bytes of an int32 as a varint
_BY_ID, _BY_GUID = 0, 1
_NOT_FRAMED: Final = "not in a registry's frame: expected a zero byte and a schema id of 4 bytes"


class Frame(NamedTuple):
    """What a frame has.

    Attributes:
        schema: id or GUID of the writer's schema.
        indexes: encoded message indexes in a header; None if they are at the start of `payload`.
        payload: the encoded value, with its message indexes if it is Protobuf and they are not in a header.
    """

    schema: int | UUID
    indexes: bytes | None
    payload: bytes


def frame_of(data: bytes, header: bytes | None) -> Frame:
    """Return the frame of a value.

    Args:
        header: the header of the schema id; None without one.

    Raises:
        ValueError: it has no frame.
    """
    if header is None:
        if len(data) < ID_BYTES or data[0] != _BY_ID:
            raise ValueError(_NOT_FRAMED)
        return Frame(_ID.unpack_from(data, 1)[0], None, data[ID_BYTES:])
    if len(header) >= _GUID_BYTES and header[0] == _BY_GUID:
        return Frame(UUID(bytes=header[1:_GUID_BYTES]), header[_GUID_BYTES:], data)
    if len(header) >= ID_BYTES and header[0] == _BY_ID:
        return Frame(_ID.unpack_from(header, 1)[0], header[ID_BYTES:], data)
    raise ValueError("the header of the schema id has neither a zero byte and an id nor a one and a GUID")


def header_name(part: Part) -> str:
    """Return the name of the header with the schema id of a part."""
    return f"__{part}_schema_id"


def last_header(headers: list[dict[str, Any]] | None, name: str) -> bytes | None:
    """Return the value of the last header of a name; None without one."""
    found: bytes | None = None
    for header in headers or ():
        if header["key"] == name and header["value"] is not None:
            found = header["value"]
    return found


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at the start of some bytes, and the number of their bytes.

    Raises:
        ValueError: they are missing, or too many.
    """
    count, position = _varint(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_DEPTH:
        raise ValueError(f"{count} message indexes; from 0 to {MAX_DEPTH} are expected")
    indexes = []
    for _ in range(count):
        index, position = _varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint of at most five bytes, and the position after it."""
    try:
        return read_varint(data[: position + _LONGEST_INDEX], position)
    except IndexError:
        what = "are cut off" if position + _LONGEST_INDEX > len(data) else "have one of more than five bytes"
        raise ValueError(f"the message indexes of Protobuf {what}") from None
