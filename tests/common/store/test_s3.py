"""The S3 driver with servers that reject requests, are silent or break connections."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.common.store.conftest import OpenStore
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
    WrongClock,
)
from ts_common.store.contract import ByteRange, IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_local.ports import free_port
from ts_local.s3 import S3Server

MODIFIED = "Sat, 21 Nov 2026 04:00:00 GMT"


def ok(body: bytes = b"", **headers: str) -> bytes:
    return answer("200 OK", body, etag='"e"', last_modified=MODIFIED, **headers)


@pytest.fixture
def far(fake: FakeServer) -> Iterator[ObjectStore]:
    """Open a store on the fake server with a short timeout."""
    del fake
    with open_store("s3://archive/base", timeout_seconds=0.4) as store:
        yield store


EVERY_CALL = [
    pytest.param(lambda store: store.check(), id="check"),
    pytest.param(lambda store: store.put("a", b"x"), id="put"),
    pytest.param(lambda store: store.get("a"), id="get"),
    pytest.param(lambda store: store.head("a"), id="head"),
    pytest.param(lambda store: list(store.list()), id="list"),
    pytest.param(lambda store: list(store.list_directories()), id="list-directories"),
    pytest.param(lambda store: store.delete(["a"]), id="delete"),
]
Ask = Callable[[ObjectStore], object]


@pytest.mark.parametrize("ask", EVERY_CALL)
def test_an_identity_without_rights_is_denied(open_s3: OpenStore, ask: Ask) -> None:
    """Every call names the required permission."""
    with pytest.raises(AccessDenied, match="allow this identity s3:"):
        ask(open_s3("s3://closed/base"))


def test_a_wrong_secret_is_denied(open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the secret key, not a permission."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(AccessDenied, match="the secret key does not belong to this access key"):
        open_s3("s3://contract/base").get("a")


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


def test_keys_that_are_none_of_ours_are_not_listed(open_s3: OpenStore, aws: S3Server) -> None:
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


@pytest.mark.parametrize(
    ("refusal", "date", "said"),
    [
        (error("403 Forbidden", "RequestTimeTooSkewed"), MODIFIED, "s ahead of the store's: set the clock"),
        (error("403 Forbidden", "RequestTimeTooSkewed"), "Sat, 21 Nov 2099 04:00:00 GMT", "s behind the store's"),
        (error("403 Forbidden", "RequestTimeTooSkewed"), None, "differ too much: set the clock"),
        (answer("403 Forbidden"), MODIFIED, "s ahead of the store's: set the clock"),
    ],
    ids=["ahead", "behind", "no date", "a bare one"],
)
def test_u38_a_wrong_clock_is_no_refusal_of_the_identity(
    far: ObjectStore, fake: FakeServer, refusal: bytes, date: str | None, said: str
) -> None:
    """It ends when the clock is set; the response's date shows the difference, also without a code."""
    dated = b"" if date is None else f"date: {date}\r\n".encode()
    fake.answers = [refusal.replace(b"connection:", dated + b"connection:", 1)]
    asks: list[Callable[[], object]] = [lambda: far.put("a", b"x"), lambda: far.get("a")]
    for ask in asks if date is None else [far.check, *asks]:  # a HEAD has only the date
        with pytest.raises(WrongClock, match=said):
            ask()


def test_a_refusal_without_a_reason_names_all_that_it_may_mean(far: ObjectStore, fake: FakeServer) -> None:
    """A key, the clock and a permission; without the clock if the response's date shows that it is right."""
    fake.answers = [answer("403 Forbidden")]
    for ask in (far.check, lambda: far.head("a"), lambda: far.get("a")):
        with pytest.raises(AccessDenied, match=r"check the access key and its secret, set .* clock .*identity s3:"):
            ask()
    fake.answers = [answer("403 Forbidden", date=formatdate(usegmt=True))]
    with pytest.raises(AccessDenied, match=r"check the access key and its secret, and allow this identity s3:List"):
        far.check()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("AccessDenied", r"as told; allow this identity s3:"),
        ("InvalidAccessKeyId", r"as told; the store has no such access key"),
        ("SignatureDoesNotMatch", r"as told; the secret key does not belong to this access key"),
        ("ExpiredToken", r"as told; the credentials have expired"),
    ],
)
def test_what_refuses_a_head_is_asked_for_its_reason(far: ObjectStore, fake: FakeServer, code: str, said: str) -> None:
    """A response to HEAD has no reason: a listing of one returns the bucket's, a GET of one byte the object's."""
    for ask, second in ((far.check, "list-type=2"), (lambda: far.head("a"), "GET /archive/base/a ")):
        fake.answers = [answer("403 Forbidden"), error("403 Forbidden", code)]
        with pytest.raises(AccessDenied, match=said):
            ask()
        assert second in fake.requests[-1]


def test_an_identity_that_may_list_below_its_prefix_alone_passes(far: ObjectStore, fake: FakeServer) -> None:
    """HeadBucket requires the permission to list the whole bucket, which an agent does not need."""
    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    fake.answers = [answer("403 Forbidden"), answer("200 OK", listing)]
    far.check()
    assert "prefix=base%2F" in fake.requests[-1]


@pytest.mark.parametrize("ask", EVERY_CALL)
def test_a_real_store_tells_a_wrong_secret_from_a_wrong_key(
    open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    """With every call, HEAD included; neither is reported as a missing permission."""
    wrong_secret = ("AWS_SECRET_ACCESS_KEY", "secret key does not belong")
    for name, said in (wrong_secret, ("AWS_ACCESS_KEY_ID", "no such access key")):
        with monkeypatch.context() as wrong, pytest.raises(AccessDenied, match=said) as raised:
            wrong.setenv(name, "wrong")
            ask(open_s3("s3://contract/base"))
        assert "allow this identity" not in str(raised.value)


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


def test_a_transfer_that_stands_still_is_unavailable_in_time(far: ObjectStore, fake: FakeServer) -> None:
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


@pytest.mark.parametrize("said", _PAGES.values(), ids=_PAGES.keys())
def test_u37_a_success_that_is_no_answer_of_s3_ends_nothing(far: ObjectStore, fake: FakeServer, said: bytes) -> None:
    """A read may be retried, the outcome of a put is unknown, and a web page does not confirm a delete."""
    fake.answers = [said]
    for read in (far.head, far.get):
        with pytest.raises(StoreUnavailable, match="base/key"):
            read("key")
    if b"etag" not in said:  # the response to a put has no date
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


def test_what_could_not_be_deleted_is_counted(far: ObjectStore, fake: FakeServer) -> None:
    """S3 answers 200 with a list of failures; a missing key is not one."""

    def said(code: str) -> bytes:
        failures = "".join(
            f"<Error><Key>base/{key}</Key><Code>{why}</Code><Message>m</Message></Error>"
            for key, why in (("a", code), ("b", "NoSuchKey"))
        )
        return answer("200 OK", f"<DeleteResult>{failures}</DeleteResult>".encode())

    fake.answers = [said("InternalError")]
    with pytest.raises(StoreUnavailable, match="1 of 3 not deleted, the first is s3://archive/base/a: InternalError"):
        far.delete(["a", "b", "c"])
    fake.answers = [said("AccessDenied")]
    with pytest.raises(AccessDenied, match="s3:DeleteObject"):
        far.delete(["a", "b", "c"])
    fake.answers = [said("NoSuchKey")]
    far.delete(["a", "b", "c"])


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


def test_missing_credentials_are_an_operators_matter(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    """They are read at the first request, and the message names the ways to set them."""
    del fake
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with open_store("s3://archive") as store, pytest.raises(AccessDenied, match="set AWS_ACCESS_KEY_ID"):
        store.check()


def test_u14_a_containers_metadata_server_that_is_away_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch, fake: FakeServer
) -> None:
    """The agent must wait for it, and not end as it does without credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    for away, url in (
        (answer("503 Busy"), fake.endpoint),
        (b"", fake.endpoint),
        (b"", f"http://127.0.0.1:{free_port()}"),
    ):
        fake.answers = [away]
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        with pytest.raises(StoreUnavailable, match="no credentials at this moment"):
            open_store("s3://archive").check()


@pytest.mark.parametrize(
    ("vendor", "disabled", "kind"),
    [("Amazon EC2", "false", StoreUnavailable), ("Amazon EC2", "true", AccessDenied), ("QEMU", "false", AccessDenied)],
)
def test_u14_a_machine_of_ec2_whose_metadata_server_is_away_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
    fake: FakeServer,
    tmp_path: Path,
    vendor: str,
    disabled: str,
    kind: type[TieredStorageError],
) -> None:
    """The SDK then reports that there are no credentials; the message names the ways to set them in both cases."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    fake.answers = [answer("503 Busy")]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fake.endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", disabled)
    (tmp_path / "vendor").write_text(f"{vendor}\n")
    monkeypatch.setattr("ts_common.store.s3.errors._VENDOR", tmp_path / "vendor")
    with open_store("s3://archive") as store, pytest.raises(kind, match="set AWS_ACCESS_KEY_ID"):
        store.check()


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
