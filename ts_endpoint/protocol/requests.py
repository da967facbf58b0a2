"""From the bytes of a frame to a request."""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from ts_common.wording import counted
from ts_endpoint.protocol.shape import checked
from ts_endpoint.protocol.versions import Api, served_versions

_KEY_AND_VERSION: Final = struct.Struct(">hhi")  # with the correlation id


class MalformedRequest(Exception):
    """The bytes are no request; the connection ends."""

    kind = "malformed_request"  # of the end, for the counter


class UnservedRequest(Exception):
    """The request, or this version of it, is not served; the connection ends, as a broker ends it.

    Attributes:
        kind: `unsupported_version` if other versions are served, else `unsupported_request`; for the counter.
    """

    def __init__(self, api_key: int, version: int) -> None:
        served = served_versions(api_key)
        self.kind = "unsupported_request" if served is None else "unsupported_version"
        name = f"request {api_key}" if served is None else Api(api_key).name
        expected = "this kind is not served" if served is None else f"versions {served[0]} to {served[1]} are served"
        super().__init__(f"{name} of version {version}: {expected}; a client must heed the reply to ApiVersions")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client.

    Attributes:
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
        MalformedRequest: its bytes are damaged.
        UnservedRequest: the request is not served in this version.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise MalformedRequest(f"a frame of {counted(len(frame), 'byte')} is no request")
    api_key, version, correlation = _KEY_AND_VERSION.unpack_from(frame)
    served = served_versions(api_key)
    if served is None or not served[0] <= version <= served[1]:
        if api_key == Api.API_VERSIONS:
            return UnservedVersions(correlation)
        raise UnservedRequest(api_key, version)
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
