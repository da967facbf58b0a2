"""Read the whole head of a response: its status line and headers.

Python's `http.client` has two faults. If the connection ends within the headers, it returns those that have arrived,
and the last one can be cut: a HEAD request then has wrong metadata. And it returns an interim response (1xx), except
100, as if that were the final one. The next request on the connection then gets the response to this one.

https://www.rfc-editor.org/rfc/rfc9110#section-15.2
https://www.rfc-editor.org/rfc/rfc9112#section-8
"""

from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_MOST_LINES: Final = 1000  # of a head, with those of the interim responses before it


class HeadLines:
    """The lines of a head.

    Args:
        begun: whether the status line was read.
    """

    def __init__(self, file: Any, *, begun: bool = False) -> None:
        self.file = file
        self._count = int(begun)

    def readline(self, limit: int, /) -> bytes:
        """Return the next line; the status line can be empty or cut, which `http.client` rejects.

        Raises:
            HTTPException: the connection has ended, or the head has too many lines.
        """
        line: bytes = self.file.readline(limit)
        if self._count and len(line) < limit and not line.endswith(b"\n"):
            raise IncompleteRead(line)
        self._count += 1
        if self._count > _MOST_LINES:
            raise HTTPException(f"the head of a response has more than {_MOST_LINES} lines")
        return line

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class WholeResponse(HTTPResponse):
    """A final response with a whole head; interim responses before it are skipped."""

    def begin(self) -> None:
        """Read the head.

        Raises:
            HTTPException: the head is cut, or malformed.
        """
        read: Any = self
        lines = HeadLines(self.fp)
        read.fp = lines
        try:
            super().begin()
            while self.status < 200:
                read.headers = None  # then the next head is read
                super().begin()
        finally:
            if read.fp is lines:  # not closed by an error
                read.fp = lines.file


class _Connection(HTTPConnection):
    response_class = WholeResponse


class _TlsConnection(HTTPSConnection):
    response_class = WholeResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: Final = {"http": _Pool, "https": _TlsPool}  # of urllib3's `PoolManager`, by scheme
