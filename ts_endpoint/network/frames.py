"""The bytes of a frame: its length, and as many bytes. Large messages are parsed and encoded on one thread.

The event loop would parse or encode 40,000 elements in about a second, and no other client would be served. One thread
bounds what such messages need of the processor and of memory, however many clients send them.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ts_endpoint.contract import ConnectionEnds
from ts_endpoint.network.channel import Channel
from ts_endpoint.protocol.replies import Piece, Values, encode_reply
from ts_endpoint.protocol.requests import Request, UnservedVersions, parse_request

LENGTH_BYTES: Final = 4
SMALL_BYTES: Final = 64 << 10  # of the frames whose number is not limited
_FIRST_BYTES: Final = 4 << 10  # the memory of a frame doubles as its bytes arrive, so a wrong length costs nothing
_TLS_HELLO: Final = 0x16030000  # the length that a client of TLS seems to send
_HTTP: Final = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"})
_MANY: Final = 1_000  # elements of a reply: about 10 ms
_AS_ONE: Final = 1 << 10  # bytes in a field count as an element


def size_of(length: bytes, most: int) -> int:
    """Return the bytes of a frame.

    Args:
        length: the 4 bytes before it.
        most: the largest size that is read.

    Raises:
        ConnectionEnds: the frame is larger, or has no bytes.
    """
    size = int.from_bytes(length, "big", signed=True)
    if not 0 < size <= most:
        hint = _hint(size, length)
        raise ConnectionEnds(f"a frame of {size} bytes: from 1 to {most} are expected{hint}", "frame_size")
    return size


async def receive_frame(channel: Channel, size: int) -> bytes:
    """Return a frame of a size.

    Raises:
        ConnectionEnds: the client closed the connection.
        OSError: the connection failed.
    """
    frame = bytearray(min(size, _FIRST_BYTES))
    await fill(channel, memoryview(frame))
    while len(frame) < size:
        chunk = bytearray(min(size - len(frame), len(frame)))
        await fill(channel, memoryview(chunk))
        frame += chunk
    return bytes(frame)  # kio reads no memory that can change


async def fill(channel: Channel, memory: memoryview) -> None:
    """Receive as many bytes as memory has.

    Raises:
        ConnectionEnds: the client closed the connection.
        OSError: the connection failed.
    """
    while memory:
        count = await channel.receive_into(memory)
        if count == 0:
            raise ConnectionEnds("the client closed the connection within a frame", "cut_frame")
        memory = memory[count:]


def _hint(size: int, length: bytes) -> str:
    if size & 0xFFFF0000 == _TLS_HELLO:
        return "; the client seems to use TLS, and this listener has no TLS"
    return "; the client seems to use HTTP" if length in _HTTP else ""


class LargeMessages:
    """The thread of a listener."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large-messages")

    async def parse(self, frame: bytes) -> Request | UnservedVersions:
        """Do as `parse_request`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse_request, frame)

    async def encode(self, request: Request, values: Values) -> list[Piece]:
        """Do as `encode_reply`; a small reply is encoded at once."""
        if _elements(values, _MANY) < _MANY:
            return encode_reply(request, values)
        return await asyncio.get_running_loop().run_in_executor(self._thread, encode_reply, request, values)

    def close(self) -> None:
        """End the thread; no other call may wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _elements(values: Mapping[str, Any], most: int) -> int:
    """Return about how many elements the values of a reply have; counting ends at `most`."""
    count = 0
    for value in values.values():
        if isinstance(value, bytes):
            count += len(value) // _AS_ONE
        elif isinstance(value, list | tuple):
            count += len(value)
            for element in value:
                if count >= most:
                    return count
                if isinstance(element, Mapping):
                    count += _elements(element, most - count)
    return count
