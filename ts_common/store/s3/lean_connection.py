"""Connections that send a request and read the head of its response with a third of the usual processor time.

The standard library parses the head of a response as an email, and urllib3 and the SDK copy and check each header
several times. For a small object that is half of the cost of a request. Pools, TLS, proxies, timeouts, bodies and
errors are those of urllib3 and the SDK. A request through a proxy for http, or one that waits for the server's consent,
is sent by them too.
"""

import re
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, LineTooLong, UnknownProtocol
from typing import Any, Final

import urllib3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection

from ts_common.store.http.response_head import HeadLines, WholeResponse

_LINE: Final = 1 << 16  # bytes of a line and number of lines that the standard library accepts
_LINES: Final = 100
_WITHOUT_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_PIECE: Final = 1 << 17  # bytes that one timeout limits
_IN_NO_LINE: Final = re.compile(r"[\0\r\n]").search
_BLANK: Final = " \t\r\n"
_END: Final = frozenset({b"\r\n", b"\n", b""})


class _Response(HTTPResponse):
    """A response with another reader of its head, which finds what `WholeResponse` finds."""

    headers: Any
    msg: Any

    def begin(self) -> None:
        """Read the head.

        Raises:
            HTTPException: the head is cut, or malformed.
        """
        read: Any = self
        status, lines = 0, HeadLines(self.fp)
        read.fp = lines
        try:
            while status < HTTPStatus.OK:
                protocol, status, reason = read._read_status()
                if not protocol.startswith("HTTP/1."):
                    raise UnknownProtocol(protocol)
                headers = _read_headers(lines)
        finally:
            if read.fp is lines:  # not closed by an error
                read.fp = lines.file
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if protocol == "HTTP/1.0" else 11
        self.headers = self.msg = headers
        self.chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = headers.get("content-length", "").partition(",")[0].strip()
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        if status in _WITHOUT_BODY or read._method == "HEAD":
            self.length = 0
        ends = not self.chunked and self.length is None
        self.will_close = ends or read._check_close()


def _read_headers(head: HeadLines) -> HTTPHeaderDict:
    """Return the headers up to the empty line.

    Raises:
        HTTPException: they are cut, or too long.
    """
    headers = HTTPHeaderDict()
    for _ in range(_LINES + 1):
        line = head.readline(_LINE + 1)
        if len(line) > _LINE:
            raise LineTooLong("header line")
        if line in _END:
            return headers
        name, colon, value = line.decode("iso-8859-1").partition(":")
        if colon and name[:1] not in _BLANK:  # lines that continue another are obsolete, and of no header that is used
            headers.add(name, value.lstrip(" \t").rstrip("\r\n"))
    raise HTTPException(f"got more than {_LINES} headers")


class _Lean(HTTPConnection):
    """A mixin of the SDK's connections."""

    response_class = WholeResponse  # to a request that the SDK sends
    _sent: tuple[str, str] | None = None  # method and target of the request that was sent here
    _unread: _Response | None = None

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        """Send a request, as urllib3's connection.

        Raises:
            OSError, HTTPException: as urllib3's.
        """
        self._sent = None
        has_end = "Content-Length" in headers or (body is None and method in {"GET", "HEAD", "DELETE"})
        is_plain = body is None or isinstance(body, bytes) or hasattr(body, "read")
        if not url.startswith("/") or "Expect" in headers or not has_end or not is_plain:
            super().request(method, url, body, headers, **options)
            return
        lines = [f"{method} {url} HTTP/1.1", *(f"{name}: {_text(value)}" for name, value in headers.items())]
        given = {name.lower() for name in headers}
        if "host" not in given:
            lines.append(f"Host: {self._host_field()}")
        if "accept-encoding" not in given:
            lines.append("Accept-Encoding: identity")
        if any(map(_IN_NO_LINE, lines)):
            raise ValueError(f"{method} {url}: a header contains the end of a line")
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self.timeout)
        head = "\r\n".join((*lines, "\r\n")).encode("iso-8859-1")
        self._sent = method, url
        if isinstance(body, bytes):
            self.sock.sendall(head + body[:_PIECE])
            for at in range(_PIECE, len(body), _PIECE):
                self.sock.sendall(memoryview(body)[at : at + _PIECE])
            return
        self.sock.sendall(head)
        while body is not None and (piece := body.read(_PIECE)):
            self.sock.sendall(piece)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        """Return the response, as urllib3's connection.

        Raises:
            OSError, HTTPException: as urllib3's.
        """
        if self._sent is None:
            return super().getresponse()
        (method, url), self._sent = self._sent, None
        self.sock.settimeout(self.timeout)
        shutdown = self.sock.shutdown
        response = self._unread = _Response(self.sock, method=method)
        response.begin()
        if response.will_close:
            self._unread = None  # it keeps the socket
            self.close()
        return urllib3.HTTPResponse(
            body=response,
            headers=response.headers,
            status=response.status,
            version=response.version,
            reason=response.reason,
            preload_content=False,
            decode_content=False,
            original_response=response,
            enforce_content_length=False,
            request_method=method,
            request_url=url,
            sock_shutdown=shutdown,
        )

    def close(self) -> None:
        """Close the connection."""
        unread, self._unread = self._unread, None
        if unread is not None:
            unread.close()
        super().close()

    def _consume_headers(self, fp: Any) -> None:
        """Read the headers of a response 100. At the end of the connection, the SDK's method reads forever."""
        lines = HeadLines(fp, begun=True)
        while lines.readline(_LINE) not in _END:
            pass

    def _host_field(self) -> str:
        host, port = (self._tunnel_host, self._tunnel_port) if self._tunnel_host else (self.host, self.port)
        name = host if host.isascii() else host.encode("idna").decode()
        name = f"[{name.partition('%')[0]}]" if ":" in name else name
        return name if port == self.default_port else f"{name}:{port}"


def _text(value: Any) -> str:
    return value.decode("iso-8859-1") if isinstance(value, bytes) else str(value)


class _LeanHTTPConnection(_Lean, AWSHTTPConnection):  # type: ignore[misc]
    """Without TLS."""


class _LeanHTTPSConnection(_Lean, AWSHTTPSConnection):  # type: ignore[misc]
    """With TLS."""


class _HTTPPool(AWSHTTPConnectionPool):
    ConnectionCls = _LeanHTTPConnection


class _HTTPSPool(AWSHTTPSConnectionPool):
    ConnectionCls = _LeanHTTPSConnection


POOLS: Final = {"http": _HTTPPool, "https": _HTTPSPool}
