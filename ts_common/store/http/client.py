"""One HTTP client for the stores that are spoken to without an SDK: Azure, Google, WebHDFS.

What is repeated is what `s3_client` repeats, for the same reason: a put goes out once, since a put repeated after its
answer was lost meets its own object; reads and deletes are tried three times, except after a timeout. A store that says
that it is asked too fast is not asked again here: `paced` does that for the whole process.

What decides of an error is whether the request can have had an effect, as in `s3_errors`: no connection had none.

Proxies come from the environment (`proxies`), authorities from the system or SSL_CERT_FILE.
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
from ts_common.store.http.bodies import RequestBody, read_whole
from ts_common.store.http.proxies import pool_for
from ts_common.store.retry import request_policy

_BLOCK_BYTES = 128 << 10  # of a body, for each send
_NEVER_CONNECTED = (http.NewConnectionError, http.ConnectTimeoutError)
_TIMED_OUT = (http.ConnectTimeoutError, http.ReadTimeoutError)
_THROTTLED = 503  # of the statuses from 500 on, the one that asks for patience


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: of HTTP.
        url: whole, encoded.
        headers: names in lower case.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer.

    Attributes:
        status: of HTTP.
        headers: names in lower case.
        body: whole; empty where a stream follows.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


# Gives a request what shows who asks, for each attempt anew. Raises AccessDenied without credentials, StoreUnavailable
# where they cannot be had at this moment.
Authorize = Callable[[Request], Request]


class HttpClient:
    """Requests to one server.

    Args:
        base_url: its URL, which decides of the proxy.
        authorize: signs each request.
        timeout_seconds: how long a connect, a send or a receive may stand still.
        connections: how many are kept for reuse.

    Raises:
        ConfigurationError: the environment names a proxy that is none.
    """

    def __init__(self, base_url: str, authorize: Authorize, timeout_seconds: float, connections: int) -> None:
        self._authorize = authorize
        self._closed = threading.Event()
        settings: dict[str, Any] = {
            "maxsize": connections,
            "timeout": urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds),
            "retries": False,
            "blocksize": _BLOCK_BYTES,
        }
        self._pool = pool_for(base_url, **settings)
        self._policy = request_policy(self._closed, _may_pass, _may_change)

    def ask(self, call: Call, request: Request, body: RequestBody | None = None) -> Response:
        """Send a request and read all of its answer, whatever its status.

        Raises:
            StoreUnavailable, OutcomeUnknown: no connection, or no answer.
            OperatorError: the server's certificate is not believed.
            TieredStorageError: what the credentials' side raises.
        """
        return self._repeated(call, request, body, streams=False)[0]

    @contextmanager
    def streaming(self, call: Call, request: Request) -> Iterator[tuple[Response, urllib3.BaseHTTPResponse]]:
        """Send a request, and leave its answer's body to be read; that of a refusal is read already.

        Raises:
            StoreUnavailable, OperatorError: as `ask`.
        """
        answer, response = self._repeated(call, request, None, streams=True)
        try:
            yield answer, response
        finally:
            response.close()  # what was not read is not waited for, so the connection cannot be used again
            response.release_conn()

    def close(self) -> None:
        """Close the connections. Whoever waits for another attempt makes it at once."""
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
        sent: Any = body  # urllib3 wants no more than `read` of it
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
            content = b"" if streams and response.status < 300 else read_whole(response)
        except (http.HTTPError, OSError) as error:
            if body is not None and body.failure is not None:
                raise body.failure from None  # the body broke off, so that no store can have taken it
            raise no_answer(error, call) from error
        except ValueError as error:  # a body without an end, or an address that no request can be sent to
            raise call.no_answer(f"{call.operation} {call.target}: no answer that the store gives: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        if not streams:
            response.release_conn()
        return Response(response.status, headers, content), response


def _may_pass(error: BaseException) -> bool:
    """Whether a failure that is no timeout can be over at the next attempt."""
    return isinstance(error, StoreUnavailable) and not isinstance(error.__cause__, _TIMED_OUT)


def _may_change(answer: tuple[Response, object]) -> bool:
    """Whether the server failed, and was not asked too fast."""
    return answer[0].status >= 500 and answer[0].status != _THROTTLED


def no_answer(error: Exception, call: Call) -> TieredStorageError:
    """Our error for what urllib3 raises."""
    said = f"{call.operation} {call.target}"
    if isinstance(error, http.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return OperatorError(f"{said}: {error}; set SSL_CERT_FILE to the authority that signed the certificate")
    if never_connected(error):
        return StoreUnavailable(f"{said}: no connection: {error}")
    if isinstance(error, http.LocationValueError):
        return OperatorError(f"{said}: the address of the store is none: {error}")
    return call.no_answer(f"{said}: no answer: {error}")


def never_connected(error: object) -> bool:
    """Whether what urllib3 raises says that no connection came about, and so that nothing was sent.

    A connection that was closed without an answer is a `ProxyError` too where it went to a proxy.
    """
    if isinstance(error, http.ProxyError):
        refused = "Tunnel connection failed" in str(error.original_error)
        return refused or isinstance(error.original_error, _NEVER_CONNECTED)
    return isinstance(error, _NEVER_CONNECTED)
