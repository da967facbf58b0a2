"""The body of a response to a get, as the contract's `ObjectStream`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from urllib3.exceptions import HTTPError

from ts_common.errors import StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo


class Source(Protocol):
    """A connection that a body arrives on: urllib3's response, or the SDK's `StreamingBody`."""

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""

    def readinto(self, b: memoryview, /) -> int:
        """Fill `b` with the bytes that have arrived, and return their number."""


class ResponseBody:
    """The body of one response, exactly as long as its header specifies.

    Args:
        info: of the whole object.
        source: the connection.
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
        except (HTTPError, OSError) as error:
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
