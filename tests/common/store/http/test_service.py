"""What the response of a service means, whichever the service: by its code, by its status, by the clock."""

from email.utils import formatdate

import pytest

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.azure.account import Account
from ts_common.store.azure.blob_service import AzureService
from ts_common.store.call import Call
from ts_common.store.http.client import Response

HOST = "http://account.example.com"
BY_KEY = AzureService("bucket", Account("account", HOST, key=b"key"))
BY_TOKEN = AzureService("bucket", Account("account", HOST, token=lambda: "t0ken"))
READ = Call("Get Blob", "az://bucket/key")
WRITE = Call("Put Blob", "az://bucket/key", writes=True)


def refused(status: int, code: str = "", body: bytes = b"", **headers: str) -> Response:
    return Response(status, {"x-ms-error-code": code, **headers}, body)


@pytest.mark.parametrize(
    ("status", "code", "read", "write"),
    [
        (404, "BlobNotFound", ObjectNotFound, PreconditionFailed),
        (404, "ContainerNotFound", BucketMissing, BucketMissing),
        (409, "BlobAlreadyExists", PreconditionFailed, PreconditionFailed),
        (412, "", PreconditionFailed, PreconditionFailed),
        (503, "ServerBusy", StoreThrottled, StoreThrottled),
        (429, "", StoreThrottled, StoreThrottled),
        (403, "AuthenticationFailed", AccessDenied, AccessDenied),
        (403, "", AccessDenied, AccessDenied),
        (401, "NeverHeardOf", AccessDenied, AccessDenied),
        (400, "Md5Mismatch", CorruptData, CorruptData),
        (400, "NeverHeardOf", OperatorError, OperatorError),
        (409, "BlobArchived", ObjectFrozen, ObjectFrozen),
        (404, "", StoreUnavailable, StoreUnavailable),
        (408, "", StoreUnavailable, OutcomeUnknown),
        (409, "", StoreUnavailable, OutcomeUnknown),
        (500, "InternalError", StoreUnavailable, OutcomeUnknown),
        (503, "", StoreUnavailable, OutcomeUnknown),
    ],
)
def test_a_response_means_the_same_for_each_service(
    status: int, code: str, read: type[TieredStorageError], write: type[TieredStorageError]
) -> None:
    """A listed code decides, then the status; the message has the request, the code and the status."""
    for call, kind in ((READ, read), (WRITE, write)):
        found = BY_KEY.error(refused(status, code, b"<Message>as sent</Message>"), call)
        assert type(found) is kind
        assert str(found).startswith(f"{call.operation} az://bucket/key: {code} (HTTP {status}): as sent")


def test_a_bucket_that_is_missing_is_for_the_operator_to_check() -> None:
    """The service's own hint."""
    assert "check its name and the account" in str(BY_KEY.error(refused(404, "ContainerNotFound"), READ))


def test_a_rejection_that_will_be_repeated_names_what_to_do() -> None:
    """By the code, else that a retry does not help."""
    assert "thaw it with `tsctl thaw TOPIC`" in str(BY_KEY.error(refused(409, "BlobArchived"), READ))
    assert "reject the same request again" in str(BY_KEY.error(refused(400, "NeverHeardOf"), READ))


def test_a_long_text_of_the_service_is_cut() -> None:
    """It may be a web page."""
    assert len(str(BY_KEY.error(refused(400, "", b"<Message>" + b"x" * 100_000), READ))) < 1_000


@pytest.mark.parametrize(
    ("status", "code", "way_out"),
    [
        (403, "AuthorizationPermissionMismatch", "allow this identity Storage Blob Data Contributor on the container"),
        (403, "AuthorizationSourceIPMismatch", "the SAS does not allow this host's address"),
        (401, "NeverHeardOf", "the token or the SAS is invalid, or has expired: renew it"),
        (403, "NeverHeardOf", "the store gives no reason: check the account's key, the SAS or the token"),
    ],
)
def test_a_denial_names_the_way_out_of_its_code_or_the_permission(status: int, code: str, way_out: str) -> None:
    """Without a known code, all that can be wrong."""
    assert f"; {way_out}" in str(BY_KEY.error(refused(status, code), WRITE))


@pytest.mark.parametrize(("service", "kind"), [(BY_KEY, WrongClock), (BY_TOKEN, AccessDenied)])
def test_a_denial_at_another_time_is_that_of_a_wrong_clock(
    service: AzureService, kind: type[TieredStorageError]
) -> None:
    """Only if requests contain the time: a token does not, so there the clock is no reason."""
    assert type(service.error(refused(403, "AuthenticationFailed", date=formatdate(0)), READ)) is kind
    assert type(service.error(refused(403, "AuthenticationFailed", date=formatdate()), READ)) is AccessDenied
