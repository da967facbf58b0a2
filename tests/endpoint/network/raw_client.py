"""A client that sends any bytes, and reads whole frames."""

import asyncio
import contextlib
import io
import ssl
import struct
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from ts_endpoint.protocol.versions import Api


def framed(api: Api, version: int, correlation: int = 1, /, **fields: Any) -> bytes:
    """Return the frame of a request, with its length."""
    schema: Any = load_request_schema(int(api), version)
    header: Any = schema.__header_schema__
    found = io.BytesIO()
    entity_writer(header)(
        found,
        header(request_api_key=int(api), request_api_version=version, correlation_id=correlation, client_id="raw"),
    )
    entity_writer(schema)(found, schema(**fields))
    return len(found.getbuffer()).to_bytes(4, "big") + found.getvalue()


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, bootstrap: str, tls: ssl.SSLContext | None = None) -> "RawClient":
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls, limit=1 << 26))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self) -> bytes:
        """Return the next reply, without its length."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, api: Api, version: int, /, **fields: Any) -> Any:
        """Return kio's entity of a reply."""
        await self.send(framed(api, version, 7, **fields))
        return parsed(api, version, await self.frame())

    async def ended(self) -> bool:
        """Wait for the end of the connection, and return whether nothing was received before."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def parsed(api: Api, version: int, frame: bytes) -> Any:
    schema = load_response_schema(int(api), version)
    _, used = entity_reader(schema.__header_schema__)(frame, 0)
    return entity_reader(schema)(frame, used)[0]
