"""Requests and responses of lean connections are those of the SDK's connections."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from io import BytesIO
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import HTTPClientError
from urllib3.exceptions import ProtocolError

from tests.common.store.servers import FakeServer
from tests.matrix import cases
from ts_common.store.http import response_head
from ts_common.store.s3.bounded_session import bound

Send = Callable[..., object]
Opens = Callable[[Mapping[str, Any] | None], Send]
NO_POOLS: Mapping[str, Any] = {}
LONG = b"x" * (1 << 16)
ANSWERS = [
    pytest.param(b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "e"\r\n\r\nabcd', id="more-than-the-length"),
    pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length:3\r\nX-a:  b c \r\n\r\nabc", id="spaces"),
    pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 3\nEmpty:\n\nabc", id="bare-line-feeds"),
    pytest.param(b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", id="no-reason"),
    pytest.param(b"HTTP/1.1 200 OK\r\n\r\nabc", id="until-the-end"),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", id="version-1.0"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", id="close"),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", id="chunked"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", id="two-lengths"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc", id="negative-length"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: three\r\n\r\nabc", id="no-number"),
    pytest.param(b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", id="no-content"),
    pytest.param(b"HTTP/1.1 304 Not Modified\r\n\r\n", id="not-modified"),
    pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc", id="not-found"),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", id="continue"
    ),
    pytest.param(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc", id="interim"),
    pytest.param(b"HTTP/1.1 102 Processing\r\n\r\n" * 400, id="interim-only"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" + b"A: b\r\n" * 101 + b"\r\nabc", id="too-many-headers"),
    pytest.param(b"HTTP/1.1 200 OK\r\nA: " + LONG + b"\r\n\r\nabc", id="long-header"),
    pytest.param(b"HTTP/1.1 200 " + LONG + b"\r\n\r\nabc", id="long-status"),
    pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="short-status"),
    pytest.param(b"HTTP/2 200 OK\r\n\r\n", id="version-2"),
    pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="ssh"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", id="head-cut"),
    pytest.param(b"", id="nothing"),
]


@pytest.fixture(scope="module")
def session() -> botocore.session.Session:
    """One for all clients: it reads the descriptions of services once."""
    return botocore.session.Session()


@pytest.fixture
def opened(fake: FakeServer, session: botocore.session.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opens]:
    """Return what opens a session with these pools, the SDK's own, or lean ones; it returns the outcome."""
    with ExitStack() as stack:

        def open_with(pools: Mapping[str, Any] | None) -> Send:
            if pools is not None:
                monkeypatch.setattr("ts_common.store.s3.bounded_session.POOLS", pools)
            config = Config(read_timeout=5)
            client = stack.enter_context(closing(bound(session.create_client("s3", config=config))))

            def send(method: str, headers: dict[str, str], body: Any = None) -> object:
                request = AWSPreparedRequest(method, f"{fake.endpoint}/b/k%20?x=1", headers, body, True)  # type: ignore[arg-type]
                try:
                    response: Any = client._endpoint.http_session.send(request)
                    content = response.raw.read() if response.status_code < 300 else response.content
                except (HTTPClientError, ProtocolError) as error:
                    return type(error)
                names = {name.lower(): value for name, value in response.headers.items()}
                return response.status_code, names, content

            return send

        yield open_with


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_response_is_read_as_by_urllib3(opened: Opens, fake: FakeServer, method: str, answer: bytes) -> None:
    """Also responses that no store sends: their errors are the same."""
    fake.answers = [answer]
    lean, usual = (opened(pools)(method, {"User-Agent": "a"}) for pools in (None, response_head.POOLS))
    assert lean == usual


def bodies() -> list[Any]:
    return [None, b"", b"abc", BytesIO(b"abc" * 10_000), "text"]


@pytest.mark.parametrize("index", range(len(bodies())))
@pytest.mark.parametrize("method", cases(["PUT", "POST", "GET", "DELETE"], quick=["PUT", "GET"]))
@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("named", [{}, {"host": "other", "Accept-Encoding": "gzip"}, {"Expect": "100-continue"}])
def test_a_request_is_sent_as_by_the_sdk(
    opened: Opens, fake: FakeServer, method: str, index: int, *, framed: bool, named: dict[str, str]
) -> None:
    """With each kind of body, and headers in the place of those that every request has."""
    fake.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]
    sizes = ["0", "0", "3", "30000", "4"]
    headers = {"User-Agent": "a", **named} | ({"Content-Length": sizes[index]} if framed else {})
    outcomes = []
    for pools in (None, NO_POOLS):
        if not framed and index == 3:
            return  # in chunks, which the server does not read
        opened(pools)(method, headers, bodies()[index])
        outcomes.append((fake.requests[-1], fake.headers[-1], fake.bodies[-1]))
    assert outcomes[0] == outcomes[1]


def test_a_header_with_the_end_of_a_line_is_never_sent(opened: Opens, fake: FakeServer) -> None:
    """It would be another header, or another request."""
    assert [opened(pools)("GET", {"A": "b\r\nC: d"}) for pools in (None, NO_POOLS)] == [HTTPClientError] * 2
    assert not fake.requests
