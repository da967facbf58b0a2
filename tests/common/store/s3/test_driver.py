"""The S3 driver with servers that reject requests, are silent or break connections."""

import io
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from dev.local.ports import free_port
from dev.local.stores.moto import MotoServer
from dev.local.stores.s3 import S3Server
from tests.common.store.conftest import OpenStore
from tests.common.store.s3.calls import EVERY_CALL, MODIFIED, Ask, ok
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.contract import ByteRange, IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store


def test_a_missing_bucket_stays_missing_after_a_put(open_s3: OpenStore, aws: S3Server) -> None:
    """The driver creates no bucket."""
    with pytest.raises(BucketMissing):
        open_s3("s3://missing-bucket/base").put("a", b"x")
    client = aws.client()
    names = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    client.close()
    assert "missing-bucket" not in names


def test_a_prefix_is_where_keys_begin(open_s3: OpenStore) -> None:
    """A store lists the keys below its own prefix, relative to it; without a prefix it lists all."""
    open_s3("s3://contract/prefix-test/a").put("k", b"x")
    open_s3("s3://contract/prefix-test/a-b").put("k", b"y")
    assert [info.key for info in open_s3("s3://contract/prefix-test/a").list()] == ["k"]
    assert [info.key for info in open_s3("s3://contract").list("prefix-test/")] == [
        "prefix-test/a-b/k",
        "prefix-test/a/k",
    ]
    assert open_s3("s3://contract").get("prefix-test/a/k")[0] == b"x"


def test_keys_that_the_store_never_writes_are_not_listed(open_s3: OpenStore, aws: S3Server) -> None:
    """Markers of directories, which consoles create, are omitted."""
    client = aws.client()
    for key in ("marked/", "marked/a", "marked/d/"):
        client.put_object(Bucket="contract", Key=key)
    client.close()
    store = open_s3("s3://contract")
    assert [info.key for info in store.list("marked/")] == ["marked/a"]
    assert list(store.list_directories("marked/")) == ["d/"]


# Requests without a response.


@pytest.mark.parametrize("ask", EVERY_CALL)
def test_a_server_that_never_answers_is_given_up_once_and_in_time(
    far: ObjectStore, fake: FakeServer, ask: Ask, request: pytest.FixtureRequest
) -> None:
    """A put may have happened, all else may be retried; the caller waits for one timeout only."""
    kind = OutcomeUnknown if "put" in request.node.callspec.id else StoreUnavailable
    began = time.monotonic()
    with pytest.raises(kind, match="no response"):
        ask(far)
    assert 0.3 < time.monotonic() - began < 2
    assert len(fake.requests) == 1


@pytest.mark.parametrize("condition", [None, IfAbsent(), IfMatch('"e"')])
def test_a_put_that_is_not_answered_may_have_happened(
    far: ObjectStore, fake: FakeServer, condition: IfAbsent | IfMatch | None
) -> None:
    """The connection breaks after the whole request: it is sent once, with a condition or without."""
    fake.answers = [b""]
    with pytest.raises(OutcomeUnknown):
        far.put("a", io.BytesIO(b"x" * 300_000), size=300_000, condition=condition)
    assert len(fake.requests) == 1


@pytest.mark.parametrize("ask", [EVERY_CALL[1], EVERY_CALL[2]])
def test_a_server_that_does_not_listen_is_unavailable(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    """Rejected connections change nothing: a put did not happen either."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with open_store("s3://archive") as store, pytest.raises(StoreUnavailable, match="no connection"):
        ask(store)


def test_a_read_is_repeated_where_the_server_failed(far: ObjectStore, fake: FakeServer) -> None:
    """A 500 on a read is retried; on a put it is an error."""
    fake.answers = [error("500 Internal Server Error", "InternalError"), ok(b"content")]
    assert far.get("a")[0] == b"content"
    fake.answers = [error("500 Internal Server Error", "InternalError"), ok()]
    with pytest.raises(OutcomeUnknown):
        far.put("a", b"x")
    assert len(fake.requests) == 3


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("412 Precondition Failed", "PreconditionFailed", PreconditionFailed),
        ("404 Not Found", "NoSuchKey", PreconditionFailed),
        ("404 Not Found", "NoSuchBucket", BucketMissing),
        ("409 Conflict", "ConditionalRequestConflict", OutcomeUnknown),
        ("409 Conflict", "OperationAborted", OutcomeUnknown),
        ("400 Bad Request", "RequestTimeout", OutcomeUnknown),
        ("500 Internal Server Error", "InternalError", OutcomeUnknown),
        ("503 Service Unavailable", "ServiceUnavailable", OutcomeUnknown),
        ("503 Slow Down", "SlowDown", StoreThrottled),
        ("429 Too Many Requests", "TooManyRequests", StoreThrottled),
        ("400 Bad Request", "ExpiredToken", AccessDenied),
        ("403 Forbidden", "InvalidAccessKeyId", AccessDenied),
        ("501 Not Implemented", "NotImplemented", OperatorError),
        ("400 Bad Request", "EntityTooLarge", OperatorError),
    ],
)
def test_what_a_refused_put_means(
    far: ObjectStore, fake: FakeServer, status: str, code: str, kind: type[TieredStorageError]
) -> None:
    """By S3's own codes; a rejected put did not happen."""
    fake.answers = [error(status, code), answer("200 OK")]
    with pytest.raises(TieredStorageError, match=code) as raised:
        far.put("a", b"x", condition=IfMatch('"e"'))
    assert type(raised.value) is kind


def test_a_page_of_a_balancer_is_no_absent_object(far: ObjectStore, fake: FakeServer) -> None:
    """A 404 without NoSuchKey does not mean a missing object."""
    fake.answers = [answer("404 Not Found", b"<html>no backend</html>", content_type="text/html")]
    with pytest.raises(StoreUnavailable):
        far.get("a")


def test_a_bare_404_is_of_the_object_where_the_bucket_is_there(far: ObjectStore, fake: FakeServer) -> None:
    """HEAD cannot name what is missing, so the bucket is checked until it exists; one that denies access exists."""
    fake.answers = [answer("404 Not Found")]
    with pytest.raises(BucketMissing):
        far.head("a")
    fake.answers = [answer("404 Not Found"), answer("403 Forbidden")]
    with pytest.raises(ObjectNotFound):
        far.head("a")
    fake.answers = [answer("404 Not Found")]
    with pytest.raises(ObjectNotFound):
        far.head("a")
    assert [line.split()[1] for line in fake.requests] == [*["/archive/base/a", "/archive"] * 2, "/archive/base/a"]


# Transfers.


@pytest.mark.parametrize("into", [False, True])
def test_a_transfer_that_is_cut_is_unavailable(far: ObjectStore, fake: FakeServer, into: bool) -> None:
    """Missing bytes are an error of read and readinto, never a short object."""
    fake.answers = [ok(b"x" * 200_000, content_length="300000")]
    with pytest.raises(StoreUnavailable), far.open("a") as stream:
        _drain(stream.readinto if into else stream.read)


def test_a_stalled_transfer_is_reported_as_unavailable_in_time(far: ObjectStore, fake: FakeServer) -> None:
    """The timeout applies to each receive."""
    fake.stalls = True
    fake.answers = [ok(b"x" * 200_000, content_length="300000")]
    began = time.monotonic()
    with pytest.raises(StoreUnavailable), far.open("a") as stream:
        _drain(stream.read)
    assert 0.3 < time.monotonic() - began < 2


def _drain(read: Callable[..., object]) -> None:
    argument = memoryview(bytearray(50_000)) if read.__name__ == "readinto" else 50_000
    while read(argument):
        pass


def test_a_store_that_ignores_ranges_is_refused(far: ObjectStore, fake: FakeServer) -> None:
    """Other bytes than the requested ones are an error; the whole object is right for a range that covers it."""
    fake.answers = [ok(b"0123456789")]
    with pytest.raises(OperatorError, match="requested bytes 3-9/10, but the store sends all 10 bytes"):
        far.get("a", ByteRange(3))
    assert far.get("a", ByteRange(0, 100))[0] == b"0123456789"
    assert far.get("a", ByteRange(-10))[0] == b"0123456789"


_PAGE = b"<html><body>maintenance</body></html>"
_FILE = {"etag": '"6a0f"', "last_modified": MODIFIED}
_PAGES = {
    "a page": answer("200 OK", _PAGE, content_type="text/html"),
    "a page from a file": answer("200 OK", _PAGE, content_type="text/html; charset=utf-8", **_FILE),
    "a page without a type": answer("200 OK", _PAGE),
    "nothing": answer("200 OK"),
    "no date": answer("200 OK", b"x", etag='"e"'),
    "another date": answer("200 OK", b"x", etag='"e"', last_modified="yesterday"),
    "another length": answer("200 OK", b"x", **_FILE).replace(b"content-length: 1", b"content-length: one"),
}


@pytest.mark.usefixtures("dropped_responses")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("said", _PAGES.values(), ids=_PAGES.keys())
def test_u37_a_success_that_is_no_answer_of_s3_ends_nothing(far: ObjectStore, fake: FakeServer, said: bytes) -> None:
    """A read may be retried, the outcome of a put is unknown, and a web page does not confirm a delete."""
    fake.answers = [said]
    for read in (far.head, far.get):
        with pytest.raises(StoreUnavailable, match="base/key"):
            read("key")
    if b"etag" not in said or b"text/html" in said:  # the response to a put has no date
        with pytest.raises(OutcomeUnknown, match="base/key"):
            far.put("key", b"x", condition=IfAbsent())
    for ask in (lambda: list(far.list()), lambda: list(far.list_directories()), lambda: far.delete(["key"])):
        with pytest.raises(StoreUnavailable, match="base/"):
            ask()


def test_a_weak_etag_is_that_of_the_same_object(far: ObjectStore, fake: FakeServer) -> None:
    """A gateway that could compress marks the ETag of a read as weak; the store would reject it in a condition."""
    fake.answers = [answer("200 OK", b"x", etag='W/"e"', last_modified=MODIFIED)]
    assert far.get("a")[1].etag == '"e"'
    assert far.head("a").etag == '"e"'
    etag = far.head("a").etag
    fake.answers = [ok()]
    far.put("a", b"x", condition=IfMatch(etag))
    assert fake.headers[-1]["if-match"] == '"e"'


def test_a_put_carries_its_checksum_and_no_chunks(far: ObjectStore, fake: FakeServer) -> None:
    """A header that every store supports, and an unchanged body."""
    fake.answers = [ok()]
    # The check value of CRC-32C: 0xE3069283.
    far.put("a", io.BytesIO(b"123456789 and more"), size=9, condition=IfAbsent())
    (headers,) = fake.headers
    assert headers["x-amz-checksum-crc32c"] == "4waSgw=="
    assert headers["if-none-match"] == "*"
    assert headers["content-length"] == "9"
    assert "transfer-encoding" not in headers
    assert "aws-chunked" not in headers.get("content-encoding", "")


def test_the_region_is_found_where_other_tools_find_it(
    far: ObjectStore, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS_DEFAULT_REGION, AWS_REGION, and us-east-1 without either."""
    del far
    fake.answers = [ok()]
    for variables, region in (
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-3"}, "eu-west-1"),
        ({"AWS_REGION": "eu-west-3"}, "eu-west-3"),
        ({}, "us-east-1"),
    ):
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with open_store("s3://archive") as store:
            store.check()
        assert f"/{region}/s3/" in fake.headers[-1]["authorization"]


def test_many_threads_share_a_store(open_s3: OpenStore) -> None:
    """Puts, gets and heads at the same time, each with its own object."""
    store = open_s3("s3://contract/threads")
    barrier = threading.Barrier(16)

    def work(number: int) -> bool:
        barrier.wait()
        body = str(number).encode() * 10_000
        store.put(f"{number}", body)
        return bool(store.get(f"{number}")[0] == body and store.head(f"{number}").size == len(body))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_a_bucket_with_a_default_retention_accepts_puts_and_hides_what_is_deleted(moto: MotoServer) -> None:
    """S3 requires the algorithm of the checksum there. A locked object is hidden by a delete, and its bytes stay."""
    name = f"locked-{uuid.uuid4().hex[:8]}"
    retention: Any = {"Mode": "COMPLIANCE", "Days": 1}
    with closing(moto.client()) as client, closing(open_store(f"s3://{name}/base", timeout_seconds=20)) as store:
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}}
        client.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=rule)
        for body in (b"whole", io.BytesIO(b"streamed")):
            store.put("a", body, size=None if isinstance(body, bytes) else 8)
        etag = store.put("a", b"next", condition=IfMatch(store.head("a").etag)).etag
        assert store.delete_matching({"a": etag}).removed == ("a",)
        assert list(store.list()) == []
        versions = client.list_object_versions(Bucket=name)
        assert [each["Size"] for each in versions["Versions"]] == [4, 8, 5]
        assert len(versions["DeleteMarkers"]) >= 1
