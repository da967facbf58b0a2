"""What a put sends over HTTP, and what a get receives."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from awscrt.checksums import crc32c as crc32c_of
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from ts_common.errors import CorruptData, StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import Body, ObjectInfo

# The largest page that a store gives: 5,000 blobs of Azure's, with names of 1,024 characters, are 11 MB.
MOST_BYTES = 16 << 20
MOST_SECONDS = 120.0
_PIECE = 1 << 17


class RequestBody:
    """A body on its way, with what the request puts around it.

    Where its CRC-32C is known it is compared as the bytes pass. The last of them are held back if it is another: the
    request is then shorter than it said, and no server takes it.

    Args:
        body: the object's bytes, as `SizedBody` reads them.
        size: how many.
        crc32c: of the body, where the caller knows it.
        name: of the object, for messages.
        before: what is sent before the body.
        after: what is sent after it.

    Attributes:
        length: of all that is sent, in bytes.
        failure: what broke the body off.
        name: of the object.
    """

    def __init__(
        self, body: Body, size: int, crc32c: int | None, name: str, *, before: bytes = b"", after: bytes = b""
    ) -> None:
        self.length = len(before) + size + len(after)
        self.failure: Exception | None = None
        body.seek(0)
        self._body = body
        self._left = size
        self._expected = crc32c
        self._crc32c = 0
        self.name = name
        self._before = before
        self._after = after

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; empty at the end.

        Raises:
            CorruptData: the body is not the one that its CRC-32C was taken of.
            SegmentChanged, or what the reader raises: as `SizedBody.read`.
        """
        if self._before:
            piece, self._before = self._before, b""
            return piece
        try:
            if self._left:
                return self._next(size)
            if self._expected is not None and self._crc32c != self._expected:
                raise self._other()
        except Exception as failure:
            self.failure = failure
            raise
        piece, self._after = self._after, b""
        return piece

    def _next(self, size: int) -> bytes:
        piece = self._body.read(size)
        self._left -= len(piece)
        if self._expected is not None:
            self._crc32c = crc32c_of(piece, self._crc32c)
            if not self._left and self._crc32c != self._expected:
                raise self._other()
        return piece

    def _other(self) -> CorruptData:
        return CorruptData(
            f"{self.name}: the body's CRC-32C is {self._crc32c:08x}, not {self._expected:08x}; nothing was written"
        )


class ResponseBody:
    """The body of one answer, which must be as long as its header says.

    Args:
        info: of the whole object.
        response: where the body comes from.
        length: of the body, in bytes.
        call: for messages.
    """

    def __init__(self, info: ObjectInfo, response: BaseHTTPResponse, length: int, call: Call) -> None:
        self.info = info
        self._response = response
        self._length = length
        self._left = length
        self._call = call

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        if not wanted:
            return b""
        with self._transfer():
            piece = self._response.read(wanted)
        self._account(len(piece), wanted)
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` as far as the range goes."""
        wanted = min(len(buffer), self._left)
        filled = 0
        while filled < wanted:
            with self._transfer():
                count: int = self._response.readinto(buffer[filled:wanted])
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
            yield
        except (HTTPError, OSError) as error:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: the transfer broke after byte "
                f"{self._length - self._left} of {self._length}: {error}"
            ) from error


class EmptyBody:
    """A range that lies beyond its object."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info

    def read(self, _size: int, /) -> bytes:
        """Nothing."""
        return b""

    def readinto(self, _buffer: memoryview, /) -> int:
        """Nothing."""
        return 0


def read_whole(response: BaseHTTPResponse) -> bytes:
    """The body of an answer that is read as a whole, and not streamed.

    A timeout bounds each receive; here the whole is bounded too, in bytes and in seconds.

    Raises:
        ValueError: it is longer, or takes longer, than any that a store gives.
        urllib3.exceptions.HTTPError, OSError: the transfer broke.
    """
    got: list[bytes] = []
    size = 0
    ends = time.monotonic() + MOST_SECONDS
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > MOST_BYTES:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
        if time.monotonic() > ends:
            raise ValueError(f"an answer that takes more than {MOST_SECONDS:.0f} s")
        got.append(piece)
    return b"".join(got)
