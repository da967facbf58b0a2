"""The body of a response: of a get, as the contract's `ObjectStream`, and one that is read as a whole."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.client import HTTPException
from typing import Any, Protocol

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from ts_common.errors import StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo

# The largest page that a store returns: 5,000 blobs of Azure with names of 1,024 characters are 11 MB.
MOST_BYTES = 16 << 20
MOST_SECONDS = 120.0
_PIECE = 1 << 17


class Source(Protocol):
    """A connection that a body arrives on: urllib3's response, or the SDK's `StreamingBody`."""

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""

    def readinto(self, b: memoryview, /) -> int:
        """Fill `b` with the bytes that have arrived, and return their number."""


class DirectSource:
    """A response of urllib3, whose bytes arrive in the caller's buffer: its own `readinto` reads them, and copies them.

    That is a tenth of the endpoint's processor time without a cache. The body has no content encoding.
    """

    def __init__(self, response: BaseHTTPResponse) -> None:
        self._response = response
        self._file: Any = response._fp  # type: ignore[attr-defined]

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""
        return self._response.read(amt)

    def readinto(self, b: memoryview, /) -> int:
        """Fill `b` with the bytes that have arrived; after the last one the connection is free for another request."""
        count: int = self._file.readinto(b)
        if self._file.isclosed():
            self._response.release_conn()
        return count


class ResponseBody:
    """The body of one response, exactly as long as its header specifies.

    Args:
        info: of the whole object.
        length: of the body, in bytes.
        call: for messages.
        translated: a context manager that translates the errors of `source`, except those of urllib3 and the system.
    """

    def __init__(
        self,
        info: ObjectInfo,
        source: Source,
        length: int,
        call: Call,
        translated: Callable[[Call], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.info = info
        self._source = source
        self._length = length
        self._left = length
        self._call = call
        self._translated = translated

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        if not wanted:
            return b""
        with self._transfer():
            piece = self._source.read(wanted)
        self._account(len(piece), wanted)
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` up to the end of the range, and return the number of bytes."""
        wanted = min(len(buffer), self._left)
        filled = 0
        while filled < wanted:
            with self._transfer():
                count = self._source.readinto(buffer[filled:wanted])
            self._account(count, 1)
            filled += count
        return filled

    def _account(self, count: int, least: int) -> None:
        self._left -= count
        if count < least:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: the transfer ended at byte {self._length - self._left} "
                f"of {self._length}"
            )

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        try:
            with self._translated(self._call):
                yield
        except (HTTPError, HTTPException, OSError) as error:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: the transfer broke after byte "
                f"{self._length - self._left} of {self._length}: {error}"
            ) from error


class EmptyBody:
    """The body of a range beyond the end of its object."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info

    def read(self, _size: int, /) -> bytes:
        """Return no bytes."""
        return b""

    def readinto(self, _buffer: memoryview, /) -> int:
        """Fill nothing, and return 0."""
        return 0


def read_whole(response: BaseHTTPResponse) -> bytes:
    """Return the body of a response, bounded in bytes and in seconds; a timeout bounds only each receive.

    Raises:
        ValueError: it is longer than `MOST_BYTES`, or arrives for more than `MOST_SECONDS`.
        urllib3.exceptions.HTTPError, OSError: the transfer broke.
    """
    got: list[bytes] = []
    size = 0
    ends = time.monotonic() + MOST_SECONDS
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > MOST_BYTES:
            raise ValueError(f"a response of more than {MOST_BYTES} bytes")
        if time.monotonic() > ends:
            raise ValueError(f"a response that lasts more than {MOST_SECONDS:.0f} s")
        got.append(piece)
    return b"".join(got)
