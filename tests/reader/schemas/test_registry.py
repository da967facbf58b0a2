"""The registry over HTTP: requests, credentials, TLS, and answers of other servers."""

import json
import pickle
import ssl
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dev.local.certificates import Certificates
from tests.common.store.servers import FakeServer, answer
from tests.http_servers import Handler, running
from ts_common.errors import (
    AccessDenied,
    ConfigurationError,
    CorruptData,
    ObjectNotFound,
    OperatorError,
    StoreUnavailable,
    TieredStorageError,
)
from ts_reader.schemas.registry import Registry

SECRET = "hunter2"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """Start a server with scripted responses."""
    with FakeServer() as server:
        yield server


def found(**fields: Any) -> bytes:
    return answer("200 OK", json.dumps({"schema": '"int"', **fields}).encode(), content_type="application/json")


def test_the_requests_are_those_of_the_api(fake: FakeServer) -> None:
    """Subjects are encoded; a context is sent with the id; what was found is not requested again."""
    fake.answers = [found()]
    registry = Registry(f"{fake.endpoint}/")
    for _ in range(2):
        registry.schema(7)
        registry.schema(7, ":.ctx:a/b")
        registry.by_guid(UUID(int=5))
        registry.version("a/b?c", 2)
    for _ in range(2):
        registry.latest("\u00e4")
    fake.answers = [answer("200 OK", b'["b", "a"]')]
    assert registry.subjects() == ["a", "b"]
    assert [line.split(" ")[1] for line in fake.requests] == [
        "/schemas/ids/7",
        "/schemas/ids/7?subject=%3A.ctx%3Aa%2Fb",
        "/schemas/guids/00000000-0000-0000-0000-000000000005",
        "/subjects/a%2Fb%3Fc/versions/2?deleted=true",
        "/subjects/%C3%A4/versions/latest",
        "/subjects/%C3%A4/versions/latest",
        "/subjects",
    ]
    assert registry.schema(7).id == 7


def test_credentials_are_sent_and_never_shown(fake: FakeServer) -> None:
    """Basic and bearer, of a pickled copy too; a rejection names the way out."""
    fake.answers = [found()]
    basic = Registry(fake.endpoint, user="me", password=SECRET)
    bearer = Registry(fake.endpoint, token=SECRET)
    for registry in (basic, bearer):
        registry.schema(1)
        pickle.loads(pickle.dumps(registry)).schema(1)
        assert SECRET not in repr(registry)
    sent = [headers["authorization"] for headers in fake.headers]
    assert sent == ["Basic bWU6aHVudGVyMg=="] * 2 + [f"Bearer {SECRET}"] * 2
    for status in ("401 Unauthorized", "403 Forbidden"):
        fake.answers = [answer(status, b'{"error_code": 40101}')]
        with pytest.raises(AccessDenied, match="check user and password, or the token") as error:
            basic.schema(2)
        assert SECRET not in str(error.value)
        assert fake.endpoint in str(error.value)


@pytest.mark.parametrize("given", [{"user": "me", "password": SECRET}, {"token": SECRET}])
def test_credentials_in_a_response_are_not_shown(fake: FakeServer, given: dict[str, str]) -> None:
    """Some servers return the headers of the request in a page about an error."""
    registry = Registry(fake.endpoint, **given)  # type: ignore[arg-type]  # texts
    echo = f"authorization: Basic bWU6aHVudGVyMg== or Bearer {SECRET}, me:{SECRET}".encode()
    for status in ("404 Not Found", "401 Unauthorized", "500 Internal Server Error"):
        fake.answers = [answer(status, echo)]
        with pytest.raises(TieredStorageError, match=r"\*\*\*") as error:
            registry.schema(2)
        assert SECRET not in str(error.value)
        assert "user" not in given or "bWU6aHVudGVyMg" not in str(error.value)


@pytest.mark.parametrize(
    ("response", "kind", "reason"),
    [
        (answer("404 Not Found", b'{"error_code":40403,"message":"no"}'), ObjectNotFound, "does not have schema id 3"),
        (answer("404 Not Found", b"<html>nginx</html>"), CorruptData, "check that this is the URL"),
        (answer("302 Found", b"", location="http://elsewhere/"), CorruptData, "HTTP 302"),
        (answer("500 Internal Server Error", b"oops\n\x1b[31m"), StoreUnavailable, r"oops\\n\\x1b\[31m; try again"),
        (answer("200 OK", b"<html>", content_type="text/html"), StoreUnavailable, "web page"),
        (answer("200 OK", b"[]"), CorruptData, "not an object"),
        (answer("200 OK", b"{"), CorruptData, "not JSON"),
        (answer("200 OK", b"[" * 100_000), CorruptData, "nested more than"),
        (answer("200 OK", b'{"schema": 5}'), CorruptData, "not a text"),
        (answer("200 OK", b'{"id": 5}'), CorruptData, "no field 'schema'"),
        (found(schemaType="XML"), CorruptData, "'XML'; expected AVRO, PROTOBUF, JSON"),
        (found(references=[{"name": "a", "subject": "b", "version": -2}]), CorruptData, "not a whole number"),
        (found(references=[{}] * 600), CorruptData, "600 references"),
        (found(schema="x" * (3 << 20)), CorruptData, "not a text of at most"),
        (answer("200 OK", b"x", content_length=str(1 << 40)), StoreUnavailable, "no response"),
    ],
)
def test_each_answer_of_a_server_is_a_schema_or_an_error_of_the_project(
    fake: FakeServer, response: bytes, kind: type[TieredStorageError], reason: str
) -> None:
    """One line, with the URL."""
    fake.answers = [response]
    with pytest.raises(kind, match=reason) as error:
        Registry(fake.endpoint).schema(3)
    assert fake.endpoint in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    fake.answers = [answer("200 OK", b'{"a": 1}')]
    with pytest.raises(CorruptData, match="not a list of subjects"):
        Registry(fake.endpoint).subjects()


def test_a_request_to_a_busy_registry_is_retried(fake: FakeServer) -> None:
    """As often as a store; then it is an error."""
    fake.answers = [answer("429 Too Many Requests"), answer("503 Service Unavailable"), found()]
    assert Registry(fake.endpoint).schema(1).text == '"int"'
    fake.answers = [answer("503 Service Unavailable")]
    with pytest.raises(StoreUnavailable, match="HTTP 503"):
        Registry(fake.endpoint).schema(1)
    assert len(fake.requests) == 6


def test_a_silent_registry_times_out(fake: FakeServer) -> None:
    """Within the timeout, once."""
    with pytest.raises(StoreUnavailable, match="no response"):
        Registry(fake.endpoint, timeout_seconds=0.2).schema(1)
    assert len(fake.requests) == 1


def test_a_certificate_is_checked_against_the_given_authorities(tmp_path: Path) -> None:
    """Without them the error names the way out; with them the schema is read."""

    class Schemas(Handler):
        def do_GET(self) -> None:
            self.answer(200, b'{"schema": "\\"int\\""}')

    certificates = Certificates(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), Schemas)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server) as port:
        url = f"https://127.0.0.1:{port}"
        with pytest.raises(OperatorError, match="CERTIFICATE_VERIFY_FAILED"):
            Registry(url).schema(1)
        assert Registry(url, ca_file=certificates.authority).schema(1).text == '"int"'


@pytest.mark.parametrize(
    ("url", "arguments", "reason"),
    [
        ("registry:8081", {}, "a URL as in"),
        ("ftp://registry", {}, "a URL as in"),
        ("http://", {}, "a URL as in"),
        ("http://a:99999999", {}, "a URL as in"),
        ("http://a/?x", {}, "a URL as in"),
        (f"http://me:{SECRET}@a", {}, "give user and password on their own"),
        ("http://a", {"user": "me"}, "needed together"),
        ("http://a", {"user": "me", "password": SECRET, "token": SECRET}, "give one of the two"),
        ("http://a", {"token": f"{SECRET}\n"}, "unprintable"),
        ("http://a", {"ca_file": "/nowhere.pem"}, "there is no such file"),
    ],
)
def test_wrong_arguments_are_problems_of_the_configuration(url: str, arguments: dict[str, Any], reason: str) -> None:
    """No credential is shown."""
    with pytest.raises(ConfigurationError, match=reason) as error:
        Registry(url, **arguments)
    assert SECRET not in str(error.value)
