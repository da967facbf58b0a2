"""The HTTP client for stores without an SDK: Azure, Google, WebHDFS.

Retries are those of `ts_common.store.s3.client`, for the same reason. A put is sent once, because a retry after a lost
response meets its own object. Reads and deletes have three attempts, except after a timeout. A throttled request is not
retried here: `ts_common.store.wrappers.request_rate` does that for the whole process.

The translation of an error depends on whether the request can have had an effect, as in
`ts_common.store.s3.error_translation`. Without a connection it had none.

Proxies are read from the environment (`proxies`), authorities from the system or SSL_CERT_FILE.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import urllib3
from urllib3 import exceptions as http

from ts_common.errors import OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.clock import ResponseClock
from ts_common.store.http.bodies import RequestBody
from ts_common.store.http.proxies import pool_for
from ts_common.store.response_body import read_whole
from ts_common.store.retry import request_policy

_BLOCK_BYTES = 128 << 10  # of a body, for each send
_NEVER_CONNECTED = (http.NewConnectionError, http.ConnectTimeoutError)
_TIMED_OUT = (http.ConnectTimeoutError, http.ReadTimeoutError)
_THROTTLED = 503  # the only status from 500 on that requests a lower rate


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        url: complete and encoded.
        headers: names in lower case.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """A response.

    Attributes:
        headers: names in lower case.
        body: complete; empty if the caller reads it as a stream.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


# Adds credentials to a request, again for each attempt. Raises AccessDenied without credentials, StoreUnavailable if
# they cannot be read at this moment.
Authorize = Callable[[Request], Request]


class HttpClient:
    """Requests to one server.

    Args:
        base_url: its URL, which selects the proxy.
        authorize: signs each request.
        timeout_seconds: for each connect, send and receive.
        connections: the number that is kept for reuse.
        ca_file: authorities of the server's certificate, in PEM; None for those of the system or SSL_CERT_FILE.

    Raises:
        ConfigurationError: the environment has an invalid URL of a proxy.
    """

    def __init__(
        self,
        base_url: str,
        authorize: Authorize,
        timeout_seconds: float,
        connections: int,
        *,
        ca_file: str | None = None,
    ) -> None:
        self._authorize = authorize
        self._closed = threading.Event()
        self.clock = ResponseClock()
        settings: dict[str, Any] = {
            "maxsize": connections,
            "timeout": urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds),
            "retries": False,
            "blocksize": _BLOCK_BYTES,
            **({} if ca_file is None else {"ca_certs": ca_file}),
        }
        self._pool = pool_for(base_url, **settings)
        self._policy = request_policy(self._closed, _may_pass, _may_change)

    def send(self, call: Call, request: Request, body: RequestBody | None = None) -> Response:
        """Send a request and return the whole response, whatever its status.

        Raises:
            StoreUnavailable, OutcomeUnknown: no connection, or no response.
            OperatorError: the server's certificate is not trusted.
            TieredStorageError: an error of `authorize`.
        """
        return self._repeated(call, request, body, streams=False)[0]

    @contextmanager
    def streaming(self, call: Call, request: Request) -> Iterator[tuple[Response, urllib3.BaseHTTPResponse]]:
        """Send a request; the caller reads the body of the response, unless its status is an error.

        Raises:
            StoreUnavailable, OperatorError: as `send`.
        """
        answer, response = self._repeated(call, request, None, streams=True)
        try:
            yield answer, response
        finally:
            response.close()  # unread bytes make the connection unusable
            response.release_conn()

    def close(self) -> None:
        """Close the connections; requests that wait for a retry send it at once."""
        self._closed.set()
        self._pool.clear()

    def _repeated(
        self, call: Call, request: Request, body: RequestBody | None, *, streams: bool
    ) -> tuple[Response, urllib3.BaseHTTPResponse]:
        attempt = partial(self._once, call, request, body, streams=streams)
        return attempt() if call.writes else self._policy(attempt)

    def _once(
        self, call: Call, request: Request, body: RequestBody | None, *, streams: bool
    ) -> tuple[Response, urllib3.BaseHTTPResponse]:
        signed = self._authorize(request)
        sent: Any = body  # urllib3 requires only `read`
        try:
            response = self._pool.request(
                signed.method,
                signed.url,
                body=sent,
                headers={"accept-encoding": "identity", **signed.headers},
                preload_content=False,
                decode_content=False,
                redirect=False,
            )
            try:
                content = b"" if streams and response.status < 300 else read_whole(response)
            except BaseException:
                response.close()  # its connection has bytes of this response
                raise
        except (http.HTTPError, OSError) as error:
            if body is not None and body.failure is not None:
                raise body.failure from None  # the body was incomplete, so no store has accepted it
            raise no_answer(error, call) from error
        except ValueError as error:  # a body beyond the bounds, or an invalid address
            raise call.no_answer(f"{call.operation} {call.target}: not a response of the store: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.clock.note(headers.get("date"))
        if not streams:
            response.release_conn()
        return Response(response.status, headers, content), response


def _may_pass(error: BaseException) -> bool:
    """Return whether a retry can succeed after an exception: any failure but a timeout."""
    return isinstance(error, StoreUnavailable) and not isinstance(error.__cause__, _TIMED_OUT)


def _may_change(answer: tuple[Response, object]) -> bool:
    """Return whether the server failed for another reason than throttling."""
    return answer[0].status >= 500 and answer[0].status != _THROTTLED


def no_answer(error: Exception, call: Call) -> TieredStorageError:
    """Return the project's error for one of urllib3."""
    failed = f"{call.operation} {call.target}"
    if isinstance(error, http.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return OperatorError(f"{failed}: {error}; set SSL_CERT_FILE to the authority that signed the certificate")
    if never_connected(error):
        return StoreUnavailable(f"{failed}: no connection: {error}")
    if isinstance(error, http.LocationValueError):
        return OperatorError(f"{failed}: the address of the store is invalid: {error}; correct its URL")
    return call.no_answer(f"{failed}: no response: {error}")


def never_connected(error: object) -> bool:
    """Return whether an error of urllib3 means that there was no connection, so nothing was sent.

    urllib3 also raises `ProxyError` if a proxy closes a connection without a response.
    """
    if isinstance(error, http.ProxyError):
        refused = "Tunnel connection failed" in str(error.original_error)
        return refused or isinstance(error.original_error, _NEVER_CONNECTED)
    return isinstance(error, _NEVER_CONNECTED)
