"""From the bytes of a frame to a request."""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from ts_endpoint.protocol.shape import checked
from ts_endpoint.protocol.versions import Api, is_served

_KEY_AND_VERSION: Final = struct.Struct(">hhi")  # with the correlation id


class MalformedRequest(Exception):
    """The bytes are no request of a served version; the connection ends."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client.

    Attributes:
        api: its kind.
        version: of the kind.
        correlation: number that the reply has too.
        client_id: what the client calls itself; None if it has no name.
        body: kio's entity of this version.
    """

    api: Api
    version: int
    correlation: int
    client_id: str | None
    body: Any


@dataclass(frozen=True, slots=True)
class UnservedVersions:
    """An ApiVersions request of a version that is not served; its reply lists those that are.

    Attributes:
        correlation: as of `Request`.
    """

    correlation: int


def parse_request(frame: bytes | bytearray | memoryview) -> Request | UnservedVersions:
    """Return the request in a frame.

    Args:
        frame: without its length.

    Raises:
        MalformedRequest: the request is not served in this version, or its bytes are damaged.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise MalformedRequest(f"{len(frame)} bytes are no request")
    api_key, version, correlation = _KEY_AND_VERSION.unpack_from(frame)
    if not is_served(api_key, version):
        if api_key == Api.API_VERSIONS and version > 0:
            return UnservedVersions(correlation)
        raise MalformedRequest(f"request {api_key} of version {version} is not served")
    schema, read_header, read_body = _readers(api_key, version)
    try:
        sound = checked(bytes(frame), schema)
        header, used = read_header(sound, 0)
        body, _ = read_body(sound, used)
    except (SerialError, ValueError, TypeError, OverflowError, MemoryError, struct.error) as error:
        raise MalformedRequest(f"{Api(api_key).name} of version {version}: {error!r}") from error
    return Request(Api(api_key), version, correlation, getattr(header, "client_id", None), body)


@cache
def _readers(api_key: int, version: int) -> tuple[Any, Any, Any]:
    schema = load_request_schema(api_key, version)
    return schema, entity_reader(schema.__header_schema__), entity_reader(schema)
