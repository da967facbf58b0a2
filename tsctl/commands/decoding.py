"""How the bytes of keys, values and header values become JSON.

===============  =========================================================================================
`utf8`           text; the default
`json`           the JSON that the text is, as part of the record's own
`hex`, `base64`  the bytes
`int`, `long`    4 or 8 bytes, big-endian and signed, as Kafka's IntegerSerializer and LongSerializer write
`avro`           Avro's binary encoding of the schema that is given
`avro-framed`    the same behind Confluent's frame: a zero byte and the schema's id, 4 bytes
===============  =========================================================================================

In Avro, bytes and fixed become base64, decimals, UUIDs and times text. With `avro-framed` the id is not looked up: the
schema that is given is the one that is read with.
"""

import binascii
import json
import math
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn

Decoder = Callable[[bytes], object]
FRAME_BYTES: Final = 5


class Form(StrEnum):
    """The form of keys, values or header values."""

    UTF8 = "utf8"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    INT = "int"
    LONG = "long"
    AVRO = "avro"
    AVRO_FRAMED = "avro-framed"


def decoder(form: Form, schema: Path | None, option: str, problems: list[str]) -> Decoder:
    """Return a decoder from bytes to JSON; it raises `ValueError` for bytes that do not have the form.

    Args:
        form: the form of the bytes.
        schema: file of an Avro schema, or None.
        option: the option that names the form (`--key`), for messages.
        problems: receives what is wrong with form and schema.
    """
    framed = form is Form.AVRO_FRAMED
    if form in {Form.AVRO, Form.AVRO_FRAMED}:
        if schema is None:
            problems.append(f"{option}={form}: the schema is missing: give {option}-schema FILE")
            return _base64
        return _avro(schema, option, problems, framed=framed)
    if schema is not None:
        problems.append(f"{option}-schema={schema}: only {option}=avro and {option}=avro-framed accept a schema")
    plain: dict[Form, Decoder] = {
        Form.UTF8: lambda data: data.decode("utf-8"),
        Form.JSON: _json,
        Form.HEX: lambda data: data.hex(),
        Form.BASE64: _base64,
        Form.INT: lambda data: _integer(data, 4),
        Form.LONG: lambda data: _integer(data, 8),
    }
    return plain[form]


def decoded(decode: Decoder, data: bytes | None) -> tuple[object, str | None]:
    """Return the decoded value and None, or the bytes as base64 and the reason."""
    if data is None:
        return None, None
    try:
        return decode(data), None
    except ValueError as error:
        return _base64(data), str(error)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _integer(data: bytes, size: int) -> int:
    if len(data) != size:
        raise ValueError(f"expected an integer of {size} bytes, found {len(data)}")
    return int.from_bytes(data, "big", signed=True)


def _json(data: bytes) -> object:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number of JSON")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse(text[:40])

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse, parse_float=finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _avro(path: Path, option: str, problems: list[str], *, framed: bool) -> Decoder:
    import io  # noqa: PLC0415

    import fastavro  # noqa: PLC0415  (0.3 s, only if Avro is used)

    try:
        schema: Any = fastavro.parse_schema(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        problems.append(f"{option}-schema={path}: cannot be read: {error.strerror}")
        return _base64
    except Exception as error:  # noqa: BLE001  (the library may raise anything for a malformed file)
        problems.append(f"{option}-schema={path}: not an Avro schema: {type(error).__name__}: {error}")
        return _base64

    def decode(data: bytes) -> object:
        if framed and (len(data) < FRAME_BYTES or data[0] != 0):
            raise ValueError("not in Confluent's wire format: expected a zero byte and a schema id of 4 bytes")
        reader = io.BytesIO(data[FRAME_BYTES:] if framed else data)
        try:
            value = fastavro.schemaless_reader(reader, schema, None)
        except Exception as error:
            # For bytes of another format, the library may raise any exception.
            raise ValueError(f"not of the Avro schema: {type(error).__name__}: {error}") from error
        if rest := len(data) - reader.tell() - (FRAME_BYTES if framed else 0):
            raise ValueError(f"not of the Avro schema: {rest} bytes are left over")
        return _plain(value)

    return decode


def _plain(value: object) -> object:
    """Convert Avro's values to JSON's."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _base64(value)
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return str(value)
