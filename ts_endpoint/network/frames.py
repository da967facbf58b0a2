"""The bytes of a frame: its length, and as many bytes."""

from typing import Final

from ts_endpoint.network.channel import Channel
from ts_endpoint.network.ends import ConnectionEnds

LENGTH_BYTES: Final = 4
SMALL_BYTES: Final = 64 << 10  # of the frames whose number is not limited
_FIRST_BYTES: Final = 4 << 10  # the memory of a frame doubles as its bytes arrive, so a wrong length costs nothing
_TLS_HELLO: Final = 0x16030000  # the length that a client of TLS seems to send
_HTTP: Final = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"})


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
