"""Errors of the SDK as those of the project: denied access, wrong clocks, unavailable metadata servers."""

from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError, ReadTimeoutError, SSLError
from botocore.parsers import ResponseParserError

from dev.local.ports import free_port
from tests.common.store.conftest import OpenStore
from tests.common.store.s3.calls import EVERY_CALL, MODIFIED, Ask
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import (
    AccessDenied,
    CorruptData,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.call import Call
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.s3.error_translation import (
    NEEDED_PERMISSION,
    is_without_reason,
    needed_permission,
    status_of,
    translate,
    translated,
)


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
def test_the_reason_of_a_rejected_head_is_read_with_a_second_request(
    far: ObjectStore, fake: FakeServer, code: str, said: str
) -> None:
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
def test_a_real_store_distinguishes_a_wrong_secret_from_a_wrong_key(
    open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    """With every call, HEAD included; neither is reported as a missing permission."""
    wrong_secret = ("AWS_SECRET_ACCESS_KEY", "secret key does not belong")
    for name, said in (wrong_secret, ("AWS_ACCESS_KEY_ID", "no such access key")):
        with monkeypatch.context() as wrong, pytest.raises(AccessDenied, match=said) as raised:
            wrong.setenv(name, "wrong")
            ask(open_s3("s3://contract/base"))
        assert "allow this identity" not in str(raised.value)


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
    monkeypatch.setattr("ts_common.store.s3.error_translation._VENDOR", tmp_path / "vendor")
    with open_store("s3://archive") as store, pytest.raises(kind, match="set AWS_ACCESS_KEY_ID"):
        store.check()


@pytest.mark.parametrize("alert", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"])
def test_a_received_tls_alert_is_an_operator_error(alert: str) -> None:
    """OpenSSL's names of the alerts; a retry would not help."""
    refused = SSLError(endpoint_url="https://s3", error=OSError(f"[SSL: {alert}] (_ssl.c:2580)"))
    told = translate(refused, Call("HeadBucket", "s3://archive"))
    assert type(told) is OperatorError
    assert "storage.service.endpoint.s3.client.certificate" in str(told)


CALL = Call("PutObject", "s3://archive/key", writes=True)
READ = Call("GetObject", "s3://archive/key")


def client_error(status: int, code: str = "", **fields: object) -> ClientError:
    """Return the SDK's error for a response."""
    metadata = {"HTTPStatusCode": status, "RequestId": "r1", "HTTPHeaders": {}, **fields}
    found = {"Code": code, "Message": "as sent"}
    return ClientError({"Error": found, "ResponseMetadata": metadata}, "PutObject")  # type: ignore[typeddict-item]  # as a dict


@pytest.mark.parametrize(
    ("status", "code", "read", "write"),
    [
        (404, "NoSuchKey", ObjectNotFound, PreconditionFailed),
        (404, "", StoreUnavailable, StoreUnavailable),
        (412, "", PreconditionFailed, PreconditionFailed),
        (400, "XAmzContentChecksumMismatch", CorruptData, CorruptData),
        (409, "ConditionalRequestConflict", StoreUnavailable, OutcomeUnknown),
        (500, "InternalError", StoreUnavailable, OutcomeUnknown),
        (503, "", StoreThrottled, OutcomeUnknown),
        (503, "SlowDown", StoreThrottled, StoreThrottled),
        (418, "Teapot", OperatorError, OperatorError),
    ],
)
def test_a_response_means_what_its_request_can_have_done(
    status: int, code: str, read: type[TieredStorageError], write: type[TieredStorageError]
) -> None:
    """By S3's code, then by its status; the message has the request and its id, for the vendor's support."""
    for call, kind in ((READ, read), (CALL, write)):
        found = translate(client_error(status, code), call)
        assert type(found) is kind
        assert f"{call.operation} s3://archive/key: {code} (HTTP {status}, request id r1): as sent" in str(found)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://s3"), StoreUnavailable),
        (ReadTimeoutError(endpoint_url="http://s3"), OutcomeUnknown),
        (ResponseParserError("not XML"), OutcomeUnknown),
        (ParamValidationError(report="an invalid bucket"), OperatorError),
        (RecursionError("levels"), OutcomeUnknown),
        (KeyError("ETag"), OutcomeUnknown),
        (AssertionError(), OutcomeUnknown),
    ],
    ids=repr,
)
def test_an_error_of_the_sdk_is_one_of_the_project(error: Exception, kind: type[TieredStorageError]) -> None:
    """Plain errors of Python too, which the SDK raises for responses that it does not expect."""
    with pytest.raises(TieredStorageError, match="PutObject s3://archive/key") as raised, translated(CALL):
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


def test_other_errors_pass() -> None:
    """The reader of a body raises those of the disk, and the project its own."""
    for other in (OSError(5, "disk"), PreconditionFailed("412")):
        with pytest.raises(type(other)) as raised, translated(CALL):
            raise other
        assert raised.value is other


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(403, "", True), (403, "403", True), (403, "AccessDenied", False), (404, "", False)],
)
def test_a_denial_without_a_code_is_one_without_a_reason(status: int, code: str, *, expected: bool) -> None:
    """The driver then sends another request for it."""
    assert status_of(client_error(status, code)) == status
    with pytest.raises(TieredStorageError) as raised, translated(READ):
        raise client_error(status, code)
    assert is_without_reason(raised.value) is expected


def test_each_denial_names_the_permission_of_its_request() -> None:
    """A request that the list lacks is named itself."""
    for operation, permission in NEEDED_PERMISSION.items():
        denied = translate(client_error(403, "AccessDenied"), Call(operation, "s3://archive/key"))
        assert f"allow this identity {permission}" in str(denied)
    assert needed_permission(Call("GetObjectTagging", "s3://archive/key")) == "GetObjectTagging"
