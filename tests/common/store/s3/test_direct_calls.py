"""Calls without the SDK's events: the same requests and the same responses as the SDK's."""

import hashlib
import io
import socket
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session

from dev.local.ports import LOOPBACK
from tests.common.store.s3.calls import MODIFIED, ok
from tests.common.store.s3.test_listing_parser import page
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import OutcomeUnknown, StoreUnavailable
from ts_common.store.contract import ObjectStore
from ts_common.store.options import AddressingStyle, Connection
from ts_common.store.s3.client import open_clients
from ts_common.store.s3.direct_calls import DirectCalls
from ts_common.store.wrappers.bandwidth import Allowance

KEY = "base/a b+c~d/é.log"
OF_ONE_REQUEST = {"authorization", "x-amz-date", "amz-sdk-invocation-id", "amz-sdk-request", "expect"}
CALLS = [
    pytest.param("get_object", {"Key": KEY}, id="get"),
    pytest.param("get_object", {"Key": KEY, "Range": "bytes=3-7"}, id="range"),
    pytest.param("head_object", {"Key": KEY}, id="head"),
    pytest.param("list_objects_v2", {"Prefix": "base/"}, id="list"),
    pytest.param("list_objects_v2", {"Prefix": "a b/é", "StartAfter": "a b/é+", "Delimiter": "/"}, id="list-after"),
    pytest.param("list_objects_v2", {"Prefix": "", "MaxKeys": 1, "ContinuationToken": "x=/+"}, id="list-on"),
    pytest.param(
        "list_objects_v2", {"Prefix": "a", "OptionalObjectAttributes": ["RestoreStatus", "x"]}, id="list-thaws"
    ),
    pytest.param("put_object", {"Key": KEY, "Body": b"x", "ContentLength": 1, "IfNoneMatch": "*"}, id="if-absent"),
    pytest.param(
        "put_object",
        {
            "Key": KEY,
            "Body": b"content",
            "ContentLength": 7,
            "IfMatch": '"e"',
            "Metadata": {"ts-end": "7"},
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": "key",
            "BucketKeyEnabled": True,
            "StorageClass": "STANDARD_IA",
            "ObjectLockMode": "GOVERNANCE",
            "ObjectLockRetainUntilDate": datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
            "Tagging": "team=a%2Fb",
            "ACL": "bucket-owner-full-control",
            "ChecksumAlgorithm": "CRC32C",
            "ChecksumCRC32C": "AAAAAA==",
        },
        id="put",
    ),
]
STYLES = [AddressingStyle.PATH, AddressingStyle.VIRTUAL]


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names below `localhost` lead to the fake server: not every resolver maps them to the loopback address."""
    resolve = socket.getaddrinfo

    def to_loopback(host: Any, *arguments: Any, **named: Any) -> Any:
        return resolve(LOOPBACK if str(host).endswith("localhost") else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", to_loopback)


@pytest.fixture(params=STYLES)
def direct(fake: FakeServer, request: pytest.FixtureRequest, resolved: None) -> Iterator[DirectCalls]:
    """The client for reads; the SDK's own is its attribute."""
    del resolved
    connection = Connection(request.param, fake.endpoint.replace(LOOPBACK, "localhost"), "eu-west-9")
    clients: Any = open_clients(connection, 5, 4, Allowance())
    yield clients[0]
    for client in clients:
        client.close()


def sent(fake: FakeServer) -> tuple[str, str, list[str], Mapping[str, str], bytes]:
    """Return the last request: method, path, query, headers and body."""
    method, target, _ = fake.requests[-1].split()
    path, _, query = target.partition("?")
    headers = {name: value for name, value in fake.headers[-1].items() if name not in OF_ONE_REQUEST}
    return method, path, sorted(query.split("&")), headers, fake.bodies[-1]


def signed_names(fake: FakeServer) -> set[str]:
    """Return the headers in the signature of the last request."""
    return set(fake.headers[-1]["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";"))


@pytest.mark.parametrize(("method", "arguments"), CALLS)
def test_each_request_is_the_one_that_the_sdk_sends(
    direct: DirectCalls, fake: FakeServer, method: str, arguments: Mapping[str, Any]
) -> None:
    """In both styles: method, path, query, headers and what is signed; the first call sends one request too."""
    fake.answers = [ok(page([]) if method == "list_objects_v2" else b"")]
    getattr(direct, method)(Bucket="archive", **arguments)
    ours, named = sent(fake), signed_names(fake)
    assert len(fake.requests) == 1
    assert "/eu-west-9/s3/aws4_request" in fake.headers[-1]["authorization"]
    getattr(direct._client, method)(Bucket="archive", **arguments)
    assert ours == sent(fake)
    assert named == signed_names(fake) - OF_ONE_REQUEST | {"x-amz-date"}


@pytest.mark.parametrize(("method", "arguments"), CALLS[2:4])
def test_a_bucket_whose_name_ends_like_the_key_of_a_rehearsal_is_itself(
    direct: DirectCalls, fake: FakeServer, method: str, arguments: Mapping[str, Any]
) -> None:
    """A listing has no key in its path: it would be one of the bucket `archive-`."""
    for bucket in ("rehearsal", "archive-rehearsal"):
        fake.answers = [ok(page([]) if method == "list_objects_v2" else b"")]
        getattr(direct, method)(Bucket=bucket, **arguments)
        ours = sent(fake)
        getattr(direct._client, method)(Bucket=bucket, **arguments)
        assert ours == sent(fake)


@pytest.mark.parametrize("size", [0, 100, (16 << 20) + 1])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_put_over_http_is_signed_with_the_digest_of_its_body(
    far: ObjectStore, fake: FakeServer, size: int, *, is_read: bool
) -> None:
    """Bytes and readers, by this client and by the SDK."""
    body = bytes(size)
    fake.answers = [ok(b"")]
    far.put("a", io.BytesIO(body) if is_read else body, size=size)
    assert fake.bodies[-1] == body
    assert fake.headers[-1]["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()


def test_each_field_of_a_response_is_the_sdks(direct: DirectCalls, fake: FakeServer) -> None:
    """Numbers, dates, metadata and all others; for a listing, those that the driver uses."""
    headers = {
        "content_range": "bytes 3-9/70",
        "x_amz_meta_ts-end": "7",
        "x_amz_meta_other": "text",
        "x_amz_storage_class": "GLACIER",
        "x_amz_restore": 'ongoing-request="true"',
        "x_amz_archive_status": "DEEP_ARCHIVE_ACCESS",
        "x_amz_server_side_encryption": "aws:kms",
        "x_amz_server_side_encryption_bucket_key_enabled": "true",
        "x_amz_delete_marker": "false",
        "x_amz_object_lock_mode": "COMPLIANCE",
        "x_amz_object_lock_retain_until_date": "2026-11-30T00:00:00Z",
        "x_amz_version_id": "3",
        "content_type": "binary/octet-stream",
    }
    for method, arguments in (("get_object", {}), ("head_object", {}), ("put_object", {"Body": b"x"})):
        fake.answers = [ok(b"content" if method == "get_object" else b"", **headers)]
        found = [getattr(each, method)(Bucket="b", Key="k", **arguments) for each in (direct, direct._client)]
        bodies = [each.pop("Body").read() for each in found if "Body" in each]
        for each in found:
            each["ResponseMetadata"] = {
                name: each["ResponseMetadata"][name] for name in ("HTTPStatusCode", "HTTPHeaders")
            }
        if method == "put_object":
            assert found[0].pop("Metadata")  # the SDK has none for it
        assert found[0] == found[1]
        assert bodies in ([], [b"content", b"content"])
    fake.answers = [answer("200 OK", page([("base/a", 1, '"e"')]))]
    assert direct.list_objects_v2(Bucket="b")["Contents"] == direct._client.list_objects_v2(Bucket="b")["Contents"]


def test_a_read_that_fails_is_sent_three_times(far: ObjectStore, fake: FakeServer) -> None:
    """As by the SDK: the server fails, breaks the connection, or sends an error in a listing with status 200."""
    for bad in (error("500 Internal Server Error", "InternalError"), b"", error("200 OK", "InternalError")):
        before = len(fake.requests)
        fake.answers = [bad]
        with pytest.raises(StoreUnavailable):
            list(far.list())
        assert len(fake.requests) == before + 3


def test_a_put_with_an_error_or_a_cut_document_in_its_response_is_in_doubt(far: ObjectStore, fake: FakeServer) -> None:
    """S3 can send status 200 first."""
    for body in (b"<Error><Code>InternalError</Code></Error>", b"<Put"):
        fake.answers = [ok(body)]
        with pytest.raises(OutcomeUnknown, match="HTTP 500"):
            far.put("a", b"x")
    assert len(fake.requests) == 2


def test_a_bucket_in_another_region_is_found_by_the_sdk_and_used_from_then_on(
    direct: DirectCalls, fake: FakeServer
) -> None:
    """The next request is signed for that region at once."""
    elsewhere = answer(
        "301 Moved Permanently",
        b"<Error><Code>PermanentRedirect</Code><Message>m</Message></Error>",
        x_amz_bucket_region="ap-south-9",
    )
    fake.answers = [elsewhere, elsewhere, ok(b"content")]
    assert direct.get_object(Bucket="archive", Key="k")["Body"].read() == b"content"
    assert direct.get_object(Bucket="archive", Key="k")["Body"].read() == b"content"
    regions = [headers["authorization"].split("/")[2] for headers in fake.headers]
    assert regions == ["eu-west-9", "eu-west-9", "ap-south-9", "ap-south-9"]


def test_a_client_with_another_signature_leaves_its_calls_to_the_sdk(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the older one of a store that was configured for it in the SDK's files."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-9")
    client = Session().create_client("s3", config=Config(signature_version="s3"))
    fake.answers = [ok(b"content", date=MODIFIED)]
    assert DirectCalls(client).get_object(Bucket="archive", Key="k")["Body"].read() == b"content"
    assert fake.headers[-1]["authorization"].startswith("AWS who:")
    assert "amz-sdk-invocation-id" in fake.headers[-1]
    client.close()


def test_a_large_body_waits_for_the_servers_consent(far: ObjectStore, fake: FakeServer) -> None:
    """The SDK sends it; for a smaller one the consent would be a round trip more."""
    fake.answers = [ok()]
    for size, expected in ((16 << 20, None), ((16 << 20) + 1, "100-continue")):
        far.put("a", bytes(size))
        assert fake.headers[-1].get("expect") == expected
        assert fake.headers[-1]["content-length"] == str(size)


def test_over_tls_a_body_is_not_read_for_its_digest(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    """TLS protects it; the same header as the SDK's."""
    connection = Connection(AddressingStyle.PATH, fake.endpoint.replace("http:", "https:"), "eu-west-9")
    clients: Any = open_clients(connection, 5, 4, Allowance())
    sent: list[AWSPreparedRequest] = []

    class Session:
        """Keeps each request, and answers it."""

        def send(self, request: AWSPreparedRequest) -> AWSResponse:
            sent.append(request)
            nothing: Any = None
            response: Any = AWSResponse(request.url, 200, {"ETag": '"e"'}, nothing)  # type: ignore[arg-type]
            response._content = b""
            return response  # type: ignore[no-any-return]

    for client in clients:
        client.close()
    monkeypatch.setattr(clients[1], "_session", Session())
    monkeypatch.setattr(clients[1]._client._endpoint, "http_session", Session())
    for client in (clients[1], clients[1]._client):
        client.put_object(Bucket="archive", Key="k", Body=b"x", ContentLength=1, ChecksumCRC32C="AAAAAA==")
    digests: list[Any] = [
        {name.lower(): value for name, value in each.headers.items()}["x-amz-content-sha256"] for each in sent
    ]
    assert [each.decode() if isinstance(each, bytes) else each for each in digests] == ["UNSIGNED-PAYLOAD"] * 2


def test_each_attempt_is_signed_at_its_own_time(
    direct: DirectCalls, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store rejects a signature of minutes ago; the SDK pauses between attempts."""
    times = iter(datetime(2026, 11, 30, 15, minute, tzinfo=UTC) for minute in range(60))
    for module in ("botocore.auth", "botocore.crt.auth"):
        monkeypatch.setattr(f"{module}.get_current_datetime", lambda **_: next(times))
    paused: list[float] = []
    monkeypatch.setattr("ts_common.store.s3.direct_calls.time.sleep", paused.append)
    fake.answers = [error("500 Oh", "InternalError"), error("503 Oh", "SlowDown"), ok(b"content")]
    assert direct.get_object(Bucket="archive", Key="k")["Body"].read() == b"content"
    assert len({headers["x-amz-date"] for headers in fake.headers}) == 3
    assert len(paused) == 2


def test_repeated_requests_that_succeed_leave_repetitions_for_others(
    direct: DirectCalls, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK allows a hundred in a row that fail, and counts a success behind one as its return."""
    monkeypatch.setattr("ts_common.store.s3.direct_calls.time.sleep", lambda _: None)
    for _ in range(120):
        fake.answers = [error("500 Oh", "InternalError"), ok()]
        direct.head_object(Bucket="archive", Key="k")


def test_a_put_passes_the_limit_of_the_bandwidth(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bodies count too."""
    taken: list[int] = []

    def take(_: Allowance, size: int) -> int:
        taken.append(size)
        return size

    monkeypatch.setattr(Allowance, "take", take)
    clients: Any = open_clients(Connection(), 5, 4, Allowance(1 << 20))
    fake.answers = [ok()]
    clients[1].put_object(Bucket="archive", Key="k", Body=b"content", ContentLength=7)
    assert sum(taken) == 7
    for client in clients:
        client.close()


def test_the_sdk_rehearses_once(direct: DirectCalls, fake: FakeServer) -> None:
    """For each operation and bucket: it costs more than a request."""
    signed: list[str] = []
    direct.meta.events.register("before-sign.s3", lambda request, **_: signed.append(request.url))
    fake.answers = [ok()]
    for bucket in ("archive", "archive", "other", "archive"):
        direct.head_object(Bucket=bucket, Key="k")
    assert len(signed) == 2
    assert len(fake.requests) == 4


def test_a_response_that_is_not_of_s3_is_not_requested_again(direct: DirectCalls, fake: FakeServer) -> None:
    """As by the SDK: a web page is one until its server is mended."""
    fake.answers = [answer("200 OK", b"<html></html>")]
    with pytest.raises(ResponseParserError):
        direct.list_objects_v2(Bucket="archive")
    assert len(fake.requests) == 1


@pytest.mark.parametrize("status", ["300 Multiple Choices", "304 Not Modified", "305 Use Proxy", "400 Bad Request"])
def test_no_other_status_is_a_success(direct: DirectCalls, fake: FakeServer, status: str) -> None:
    """Whatever headers it has."""
    fake.answers = [answer(status, b"", etag='"e"', last_modified=MODIFIED)]
    with pytest.raises(ClientError):
        direct.get_object(Bucket="archive", Key="k")
    with pytest.raises(ClientError):
        direct.put_object(Bucket="archive", Key="k", Body=b"x", ContentLength=1)


def test_names_of_headers_have_any_case(direct: DirectCalls, fake: FakeServer) -> None:
    """S3 sends `ETag`, others `Etag` and `X-Amz-Meta-Ts-End`."""
    named = b'ETAG: "e"\r\nX-Amz-Meta-Ts-End: 7\r\nContent-Length: 0\r\nLAST-modified: ' + MODIFIED.encode()
    fake.answers = [b"HTTP/1.1 200 OK\r\n" + named + b"\r\n\r\n"]
    found = direct.head_object(Bucket="archive", Key="k")
    assert (found["ETag"], found["Metadata"]) == ('"e"', {"ts-end": "7"})
    assert found["LastModified"].year == 2026


@pytest.mark.parametrize(
    ("method", "status", "code"),
    [
        ("get_object", "301 Moved Permanently", "PermanentRedirect"),
        ("get_object", "403 Forbidden", "PermanentRedirect"),
        ("get_object", "307 Temporary Redirect", "TemporaryRedirect"),
        ("get_object", "400 Bad Request", "AuthorizationHeaderMalformed"),
        ("head_object", "301 Moved Permanently", ""),
        ("head_object", "400 Bad Request", ""),
        ("list_objects_v2", "301 Moved Permanently", "PermanentRedirect"),
        ("put_object", "301 Moved Permanently", "PermanentRedirect"),
    ],
)
def test_each_response_that_names_another_region_is_followed(
    direct: DirectCalls, fake: FakeServer, method: str, status: str, code: str
) -> None:
    """A response to HEAD has no code."""
    body = f"<Error><Code>{code}</Code><Region>ap-south-9</Region></Error>".encode() if code else b""
    elsewhere = answer(status, body, x_amz_bucket_region="ap-south-9")
    fake.answers = [elsewhere, elsewhere, ok(page([]) if method == "list_objects_v2" else b"")]
    arguments = {"list_objects_v2": {}, "put_object": {"Key": "k", "Body": b"x", "ContentLength": 1}}
    getattr(direct, method)(Bucket="archive", **arguments.get(method, {"Key": "k"}))
    assert [headers["authorization"].split("/")[2] for headers in fake.headers][1:] == ["eu-west-9", "ap-south-9"]


def test_another_response_400_ends_a_get(direct: DirectCalls, fake: FakeServer) -> None:
    """It has a code, which names the fault."""
    fake.answers = [error("400 Bad Request", "ExpiredToken")]
    with pytest.raises(ClientError, match="ExpiredToken"):
        direct.get_object(Bucket="archive", Key="k")
    assert len(fake.requests) == 1


def test_a_rehearsal_answers_the_requests_of_its_own_thread_only(direct: DirectCalls, fake: FakeServer) -> None:
    """The others are sent: a delete would else count as done."""
    begun, ends = threading.Event(), threading.Event()

    def wait(**_: object) -> None:
        begun.set()
        ends.wait(10)

    direct.meta.events.register_first("before-sign.s3.HeadObject", wait)
    fake.answers = [ok()]
    rehearsing = threading.Thread(target=direct.head_object, kwargs={"Bucket": "archive", "Key": "k"})
    rehearsing.start()
    assert begun.wait(10)
    direct.head_bucket(Bucket="archive")
    assert len(fake.requests) == 1
    ends.set()
    rehearsing.join()
    assert len(fake.requests) == 2
