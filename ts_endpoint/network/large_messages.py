"""Parsing and encoding of large messages on one thread: clients with small ones are served meanwhile.

The event loop would parse or encode 40,000 elements in about a second, and no other client would be served. One thread
bounds what such messages need of the processor and of memory, however many clients send them.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ts_endpoint.protocol.replies import Piece, Values, encode_reply
from ts_endpoint.protocol.requests import Request, UnservedVersions, parse_request

_MANY: Final = 1_000  # elements of a reply: about 10 ms
_AS_ONE: Final = 1 << 10  # bytes in a field count as an element


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
