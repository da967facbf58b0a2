"""The HTTP client: what it sends again, what it sends once, and which error the caller gets."""

import io
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from urllib3 import exceptions as http

from dev.local.ports import LOOPBACK, free_port
from tests.common.store.bodies import FailingBody
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import AccessDenied, OperatorError, OutcomeUnknown, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.http.bodies import RequestBody
from ts_common.store.http.client import HttpClient, Request, never_connected, no_answer
from ts_common.store.response_body import MOST_BYTES
from ts_common.store.retry import READ_ATTEMPTS

READ = Call("GET Object", "gs://bucket/key")
WRITE = Call("PUT Object", "gs://bucket/key", writes=True)
TIMEOUT_SECONDS = 0.4


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with FakeServer() as opened:
        yield opened


@pytest.fixture
def client(server: FakeServer) -> Iterator[HttpClient]:
    """Open a client that signs each attempt with another number."""
    signed = iter(range(100))

    def authorize(request: Request) -> Request:
        return replace(request, headers={**request.headers, "authorization": f"{next(signed)}"})

    with closing(HttpClient(server.endpoint, authorize, TIMEOUT_SECONDS, 2)) as opened:
        yield opened


def get(server: FakeServer) -> Request:
    return Request("GET", f"{server.endpoint}/key", {"x-a": "b"})


def test_a_response_has_status_headers_and_the_whole_body(client: HttpClient, server: FakeServer) -> None:
    """Names of headers are in lower case; an error of the service is a response too, and no redirection is followed."""
    for status in ("200 OK", "404 Not Found", "307 Temporary Redirect"):
        server.answers = [answer(status, b"content", X_Name="value", location="http://elsewhere/")]
        found = client.send(READ, get(server))
        assert (found.status, found.headers["x-name"], found.body) == (int(status[:3]), "value", b"content")
    assert server.requests == ["GET /key HTTP/1.1"] * 3
    assert server.headers[0]["x-a"] == "b"
    assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("failure", [b"", answer("500 Oh"), answer("502 Bad Gateway")], ids=["reset", "500", "502"])
def test_a_read_is_sent_again_and_signed_again(client: HttpClient, server: FakeServer, failure: bytes) -> None:
    """A signature has the time, and a token may have expired."""
    server.answers = [failure, answer("200 OK", b"content")]
    assert client.send(READ, get(server)).body == b"content"
    assert [headers["authorization"] for headers in server.headers] == ["0", "1"]


def test_the_last_of_three_failures_is_the_callers(client: HttpClient, server: FakeServer) -> None:
    """A response is returned, and a lost one is an error."""
    server.answers = [answer("500 Oh")]
    assert client.send(READ, get(server)).status == 500
    assert len(server.requests) == READ_ATTEMPTS
    server.answers = [b""]
    with pytest.raises(StoreUnavailable, match=r"GET Object gs://bucket/key: no response"):
        client.send(READ, get(server))
    assert len(server.requests) == 2 * READ_ATTEMPTS


@pytest.mark.parametrize("status", ["503 Busy", "429 Too Many Requests", "412 Failed", "403 Forbidden"])
def test_a_throttled_or_rejected_read_is_sent_once(client: HttpClient, server: FakeServer, status: str) -> None:
    """The rate of the whole process falls first; a rejection would be repeated."""
    server.answers = [answer(status), answer("200 OK")]
    assert client.send(READ, get(server)).status == int(status[:3])
    assert len(server.requests) == 1


def test_a_silent_server_costs_one_timeout(client: HttpClient, server: FakeServer) -> None:
    """The caller waits for its timeout, not for three of them."""
    server.answers = [None]
    with pytest.raises(StoreUnavailable, match="no response"):
        client.send(READ, get(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize("failure", [b"", answer("500 Oh")], ids=["reset", "500"])
def test_a_write_is_sent_once(client: HttpClient, server: FakeServer, failure: bytes) -> None:
    """A retry could meet its own object; without a response its outcome is unknown."""
    server.answers = [failure, answer("200 OK")]
    body = RequestBody(io.BytesIO(b"x" * 300_000), 300_000, None, "key")
    request = Request("PUT", f"{server.endpoint}/key", {"content-length": "300000"})
    if failure:
        assert client.send(WRITE, request, body).status == 500
    else:
        with pytest.raises(OutcomeUnknown):
            client.send(WRITE, request, body)
    assert len(server.requests) == 1
    assert len(server.bodies[0]) == 300_000


def test_the_failure_of_a_body_is_the_error(client: HttpClient, server: FakeServer) -> None:
    """The store got an incomplete request, which it cannot have accepted: its outcome is not unknown."""
    request = Request("PUT", f"{server.endpoint}/key", {"content-length": "10"})
    with pytest.raises(OSError, match="Input/output error"):
        client.send(WRITE, request, RequestBody(FailingBody(b"0123456789"), 10, None, "key"))


def test_an_error_of_the_credentials_sends_nothing(server: FakeServer) -> None:
    """It is the caller's, and is not retried."""

    def denied(_request: Request) -> Request:
        raise AccessDenied("no token")

    with closing(HttpClient(server.endpoint, denied, TIMEOUT_SECONDS, 2)) as client, pytest.raises(AccessDenied):
        client.send(READ, get(server))
    assert server.requests == []


@pytest.mark.parametrize("call", [READ, WRITE])
def test_without_a_connection_nothing_happened(client: HttpClient, call: Call) -> None:
    """Neither to a read nor to a write."""
    with pytest.raises(StoreUnavailable, match="no connection"):
        client.send(call, Request("GET", f"http://{LOOPBACK}:{free_port()}/key"))


def test_a_stream_is_read_by_the_caller(client: HttpClient, server: FakeServer) -> None:
    """The body of a success is not read before; that of an error is."""
    server.answers = [answer("200 OK", b"0123456789")]
    with client.streaming(READ, get(server)) as (found, response):
        assert (found.body, response.read(4), response.read(100)) == (b"", b"0123", b"456789")
    server.answers = [answer("404 Not Found", b"reason")]
    with client.streaming(READ, get(server)) as (found, _):
        assert (found.status, found.body) == (404, b"reason")


@pytest.mark.parametrize(("call", "kind"), [(READ, StoreUnavailable), (WRITE, OutcomeUnknown)])
def test_a_response_beyond_the_bounds_is_no_response(
    client: HttpClient, server: FakeServer, call: Call, kind: type[TieredStorageError]
) -> None:
    """No store sends a larger page."""
    server.answers = [answer("200 OK", bytes(MOST_BYTES + 1))]
    with pytest.raises(kind, match=f"not a response of the store: .*more than {MOST_BYTES}"):
        client.send(call, get(server))


def test_closing_ends_the_pause_before_a_retry(client: HttpClient, server: FakeServer) -> None:
    """The remaining attempts follow at once, with new connections."""
    server.answers = [answer("500 Oh")]
    client.close()
    began = time.monotonic()
    for _ in range(10):
        client.send(READ, get(server))
    assert len(server.requests) == 10 * READ_ATTEMPTS
    assert time.monotonic() - began < 2  # the pauses would be three seconds on average


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (http.SSLError("CERTIFICATE_VERIFY_FAILED"), OperatorError, "set SSL_CERT_FILE to the authority"),
        (http.SSLError("unexpected eof"), OutcomeUnknown, "no response"),
        (http.LocationValueError("no host"), OperatorError, "correct its URL"),
        (http.ProtocolError("reset"), OutcomeUnknown, "no response"),
        (http.ReadTimeoutError(None, "", "slow"), OutcomeUnknown, "no response"),  # type: ignore[arg-type]  # no pool
        (http.ConnectTimeoutError("slow"), StoreUnavailable, "no connection"),
    ],
    ids=repr,
)
def test_an_error_of_the_connection_is_one_of_the_project(
    error: Exception, kind: type[TieredStorageError], text: str
) -> None:
    """By what the operator or the caller can do; only without a connection a write has no effect for certain."""
    found = no_answer(error, WRITE)
    assert type(found) is kind
    assert str(found).startswith("PUT Object gs://bucket/key: ")
    assert text in str(found)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http.ConnectTimeoutError("slow"), True),
        (http.NewConnectionError(None, "refused"), True),  # type: ignore[arg-type]  # no connection
        (http.ProxyError("p", OSError("Tunnel connection failed: 403 Forbidden")), True),
        (http.ProxyError("p", http.ConnectTimeoutError("slow")), True),
        (http.ProxyError("p", ConnectionResetError("closed without a response")), False),
        (http.ProtocolError("reset"), False),
        (None, False),
    ],
    ids=repr,
)
def test_only_a_failed_connection_sent_nothing(error: object, *, expected: bool) -> None:
    """A proxy that closes a connection may have passed the request on."""
    assert never_connected(error) is expected
