"""Failures of Azure's and Google's servers: each raises the error that the caller handles."""

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from awscrt.checksums import crc32c

from dev.local.stores.azurite import ACCOUNT, KEY
from tests.common.store import servers
from tests.common.store.servers import FakeServer
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
from ts_common.store.contract import ByteRange, DeleteOutcome, IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.protection import Protection
from ts_common.store.retry import READ_ATTEMPTS


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a whole response, after which the client does not reuse the connection."""
    return servers.answer(status, body, connection="close", **headers)


DATE = "Sun, 22 Nov 2026 02:33:34 GMT"
SAYS = {"etag": '"0x1"', "x_goog_generation": "1", "last_modified": DATE}


@dataclass(frozen=True)
class Told:
    """A store whose server sends scripted responses.

    Attributes:
        store: opened on the server.
        server: the server.
        kind: "gs" or "az".
    """

    store: ObjectStore
    server: FakeServer
    kind: str

    @property
    def listing_of_nothing(self) -> bytes:
        """The service's response to a listing without objects."""
        said = (
            b"<EnumerationResults><Blobs/></EnumerationResults>"
            if self.kind == "az"
            else b'{"kind": "storage#objects"}'
        )
        return answer("200 OK", said)

    def refusal(self, status: str, azure: str, google: str, message: str = "as told") -> bytes:
        """Return an error response in the service's form."""
        if self.kind == "az":
            return answer(status, f"<Error><Message>{message}</Message></Error>".encode(), x_ms_error_code=azure)
        said = {"error": {"code": int(status[:3]), "message": message, "errors": [{"reason": google}]}}
        return answer(status, json.dumps(said).encode())


@pytest.fixture(params=["gs", "az"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    with FakeServer() as server:
        endpoint = f"BlobEndpoint={server.endpoint}/{ACCOUNT}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName={ACCOUNT};AccountKey={KEY};{endpoint}")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with open_store(f"{request.param}://bucket/base", timeout_seconds=5) as store:
            yield Told(store, server, request.param)


def test_u14_a_put_whose_response_is_lost_is_sent_once_and_its_outcome_is_unknown(told: Told) -> None:
    """A retry could meet its own object and would be rejected."""
    told.server.answers = [b""]
    for condition in (None, IfAbsent(), IfMatch("7")):
        told.server.requests.clear()
        with pytest.raises(OutcomeUnknown, match=r"base/key"):
            told.store.put("key", b"x", condition=condition)
        assert len(told.server.requests) == 1


def test_a_copy_whose_response_is_lost_is_sent_once_and_its_outcome_is_unknown(told: Told) -> None:
    """The service may have copied; so may one that fails with 500, or sends something else."""
    for lost in (b"", answer("500 Internal Server Error"), answer("409 Conflict"), answer("202 Accepted", b"{}")):
        told.server.answers = [lost]
        told.server.requests.clear()
        with pytest.raises(OutcomeUnknown, match=r"base/key to .*base/copy"):
            told.store.copy_if_absent("key", "copy")
        assert len(told.server.requests) == 1


@pytest.mark.parametrize(
    ("status", "azure", "google", "kind"),
    [
        ("404 Not Found", "BlobNotFound", "notFound", ObjectNotFound),
        ("404 Not Found", "CannotVerifyCopySource", "notFound", ObjectNotFound),
        ("409 Conflict", "BlobAlreadyExists", "conditionNotMet", PreconditionFailed),
        ("412 Precondition Failed", "ConditionNotMet", "conditionNotMet", PreconditionFailed),
        ("403 Forbidden", "AuthorizationPermissionMismatch", "forbidden", AccessDenied),
        ("503 Busy", "ServerBusy", "rateLimitExceeded", StoreThrottled),
    ],
)
def test_what_a_refused_copy_means(
    told: Told, status: str, azure: str, google: str, kind: type[TieredStorageError]
) -> None:
    """A "not found" is about the source, where that of a put is about its condition."""
    told.server.answers = [told.refusal(status, azure, google), told.listing_of_nothing]
    with pytest.raises(TieredStorageError, match=r"base/key to .*base/copy") as raised:
        told.store.copy_if_absent("key", "copy")
    assert type(raised.value) is kind


def test_u14_a_server_that_fails_leaves_a_put_unknown_and_a_read_to_be_repeated(told: Told) -> None:
    """500 and 502 leave the outcome of a put open; a read has three attempts before the caller sees an error."""
    for status in ("500 Internal Server Error", "502 Bad Gateway"):
        told.server.answers = [answer(status)]
        told.server.requests.clear()
        with pytest.raises(OutcomeUnknown):
            told.store.put("key", b"x")
        assert len(told.server.requests) == 1
        told.server.requests.clear()
        with pytest.raises(StoreUnavailable):
            told.store.head("key")
        assert len(told.server.requests) == READ_ATTEMPTS


def test_u14_a_read_continues_at_the_next_attempt(told: Told) -> None:
    """A reset is retried."""
    headers = {"etag": '"0x1"', "x_goog_generation": "1", "last_modified": DATE}
    told.server.answers = [b"", answer("200 OK", b"content", **headers)]
    assert told.store.get("key")[0] == b"content"
    assert len(told.server.requests) == 2


def test_u14_a_throttled_request_raises_store_throttled(told: Told) -> None:
    """The wrapper lowers the rate of the process; nothing was written, and the driver does not retry."""
    busy = (
        told.refusal("503 Busy", "ServerBusy", "")
        if told.kind == "az"
        else told.refusal("429 Too Many", "", "rateLimitExceeded")
    )
    told.server.answers = [busy]
    for ask in (lambda: told.store.put("key", b"x"), lambda: told.store.get("key"), lambda: list(told.store.list())):
        told.server.requests.clear()
        with pytest.raises(StoreThrottled):
            ask()
        assert len(told.server.requests) == 1


def test_u14_a_refusal_names_what_to_allow(told: Told) -> None:
    """The error has the operation, the object and the permission."""
    told.server.answers = [told.refusal("403 Forbidden", "AuthorizationPermissionMismatch", "forbidden")]
    with pytest.raises(AccessDenied, match=r"base/key.*allow this identity"):
        told.store.put("key", b"x")
    with pytest.raises(AccessDenied, match=r"allow this identity"):
        list(told.store.list())


def test_a_bucket_whose_settings_are_denied_counts_as_one_with_versions_and_locks(told: Told) -> None:
    """Roles for objects do not include the request; the lock of each object is then read, with the right to read it."""
    told.server.answers = [told.refusal("403 Forbidden", "AuthorizationPermissionMismatch", "forbidden")]
    assert told.store.protection() == Protection(versioned=True, locks=True, default_retention=None)
    with pytest.raises(AccessDenied, match=r"base/key.*allow this identity"):
        told.store.locked(["key"], 0)
    told.server.answers = [answer("200 OK", b"{}" if told.kind == "gs" else b"", **SAYS)]
    with pytest.raises(StoreUnavailable, match="not a response of the store"):
        told.store.protection()


@pytest.mark.parametrize(
    ("status", "azure", "google", "said"),
    [
        ("403 No", "AuthenticationFailed", "", {"az": "account's key or the SAS is wrong"}),
        ("403 No", "AuthorizationFailure", "", {"az": "account's firewall does not allow this host"}),
        ("403 No", "AuthorizationSourceIPMismatch", "", {"az": "SAS does not allow this host's address"}),
        ("403 No", "AuthorizationPermissionMismatch", "forbidden", {"az": "allow this", "gs": "allow this"}),
        ("403 No", "NeverHeardOf", "neverHeardOf", {"az": "gives no reason.*clock", "gs": "gives no reason.*clock"}),
        ("401 No", "InvalidAuthenticationInfo", "authError", {"az": "renew it", "gs": "does not accept this identity"}),
        ("401 No", "", "", {"az": "renew it", "gs": "does not accept this identity"}),
    ],
)
def test_a_wrong_key_and_a_missing_permission_are_distinguished(
    told: Told, status: str, azure: str, google: str, said: dict[str, str]
) -> None:
    """By the service's own codes; a denial without a code lists all possible reasons."""
    if told.kind not in said:
        return
    told.server.answers = [told.refusal(status, azure, google)]
    for ask in (told.store.check, lambda: told.store.put("key", b"x"), lambda: told.store.get("key")):
        with pytest.raises(AccessDenied, match=said[told.kind]):
            ask()


def test_a_wrong_clock_is_reported_where_requests_contain_the_time(told: Told) -> None:
    """Azure's signatures by key contain the time; a token of Google does not, so there access is denied."""
    refusal = told.refusal("403 No", "AuthenticationFailed", "forbidden")
    told.server.answers = [refusal.replace(b"connection:", f"date: {DATE}\r\nconnection:".encode(), 1)]
    kind, said = (WrongClock, r"\d+ s (ahead of|behind) the store's") if told.kind == "az" else (AccessDenied, "allow")
    with pytest.raises(kind, match=said):
        told.store.check()


def test_a_404_of_something_in_between_is_not_an_absent_object(told: Told) -> None:
    """A load balancer without a backend answers so; a missing object would mean "no commit"."""
    told.server.answers = [answer("404 Not Found", b"<html>no backend</html>"), answer("200 OK", b"{}")]
    with pytest.raises(StoreUnavailable):
        told.store.get("key")


def test_a_rejected_condition_is_reported_as_such(told: Told) -> None:
    """412 of both, and 409 BlobAlreadyExists, as Azure answers `If-None-Match: *`."""
    told.server.answers = [told.refusal("412 Failed", "ConditionNotMet", "conditionNotMet")]
    with pytest.raises(PreconditionFailed):
        told.store.put("key", b"x", condition=IfMatch("7"))
    told.server.answers = [told.refusal("409 Conflict", "BlobAlreadyExists", "conflict")]
    with pytest.raises(PreconditionFailed if told.kind == "az" else OutcomeUnknown):
        told.store.put("key", b"x", condition=IfAbsent())


def test_a_transfer_that_ends_early_is_reported_with_its_position(told: Told) -> None:
    """The connection closes after three bytes of ten."""
    headers = {"etag": '"0x1"', "x_goog_generation": "1", "last_modified": DATE, "content_length": "10"}
    told.server.answers = [answer("200 OK", b"abc", **headers)]
    with pytest.raises(StoreUnavailable, match=r"base/key.* of 10"):
        told.store.get("key")


def test_a_range_other_than_the_requested_one_is_rejected(told: Told) -> None:
    """With a proxy that drops the header the caller would receive other bytes."""
    headers = {"etag": '"0x1"', "x_goog_generation": "1", "last_modified": DATE}
    told.server.answers = [answer("200 OK", b"0123456789", **headers)]
    with pytest.raises(OperatorError, match="requested bytes 2-4/10"):
        told.store.get("key", ByteRange(2, 5))


def test_no_connection_is_no_unknown_outcome(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a listening server nothing was written."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{free}")
    endpoint = f"BlobEndpoint=http://127.0.0.1:{free}/{ACCOUNT}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName={ACCOUNT};AccountKey={KEY};{endpoint}")
    with open_store(f"{told.kind}://bucket/base") as store, pytest.raises(StoreUnavailable, match="no connection"):
        store.put("key", b"x", condition=IfAbsent())


def test_what_arrives_changed_is_refused_by_the_store_as_corrupt(told: Told) -> None:
    """Azure answers Md5Mismatch, Google that the CRC-32C does not match; the request has the checksum."""
    google = 'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C'
    told.server.answers = [told.refusal("400 Bad Request", "Md5Mismatch", "invalid", google)]
    with pytest.raises(CorruptData, match="nothing was written"):
        told.store.put("key", b"0123456789", crc32c=crc32c(b"0123456789"))
    sent = base64.b64encode(crc32c(b"0123456789").to_bytes(4, "big"))
    (body,) = told.server.bodies
    assert told.server.headers[0].get("content-md5") == "eB5eJF1ptWaXm4bijSPyxw==" or b'"crc32c": "%s"' % sent in body


def test_small_objects_carry_what_the_store_compares_too(told: Told) -> None:
    """For objects like the commit the driver computes the checksum."""
    told.server.answers = [answer("200 OK", b'{"generation": "1", "updated": "2026-11-22T02:33:34Z"}', **SAYS)]
    told.store.put("offset.wm", b"0123456789")
    sent = base64.b64encode(crc32c(b"0123456789").to_bytes(4, "big"))
    (body,) = told.server.bodies
    assert told.server.headers[0].get("content-md5") == "eB5eJF1ptWaXm4bijSPyxw==" or b'"crc32c": "%s"' % sent in body


def test_an_absent_object_is_reported_as_absent(told: Told) -> None:
    """By the service's code, and after one check of the bucket."""
    absent = told.refusal("404 Not Found", "BlobNotFound", "notFound")
    told.server.answers = [absent, told.listing_of_nothing, absent]
    for _ in range(2):
        with pytest.raises(ObjectNotFound, match="base/key"):
            told.store.get("key")
    assert len(told.server.requests) == 3


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**SAYS, "content_type": "text/html; charset=utf-8"},
        {**SAYS, "last_modified": "yesterday"},
        {"last_modified": DATE},
        {**SAYS, "content_length": "x"},
        {**SAYS, "content_range": "bytes 0-4/*"},
    ],
    ids=["nothing", "a page from a file", "no date", "no etag", "no length", "no size"],
)
def test_an_answer_of_something_in_between_ends_nothing(told: Told, headers: dict[str, str]) -> None:
    """A success without the service's headers: a read is retried later, and the outcome of a put is unknown."""
    told.server.answers = [answer("200 OK", b"<html>welcome</html>", **headers)]
    with pytest.raises(StoreUnavailable, match="base/key"):
        told.store.get("key", ByteRange(0, 5) if "content_range" in headers else None)
    if "content_range" not in headers:
        with pytest.raises(StoreUnavailable, match="base/key"):
            told.store.head("key")


@pytest.mark.parametrize("said", [b"", b"<html>welcome</html>", b"[]", b'{"generation": "1"}', b'{"items": 5}'])
def test_a_success_with_a_meaningless_response_is_an_unknown_outcome(told: Told, said: bytes) -> None:
    """Another server may have answered in place of the store, before or after the request."""
    told.server.answers = [answer("200 OK", said)]
    with pytest.raises(OutcomeUnknown, match="base/key"):
        told.store.put("key", b"x")
    for ask in (lambda: list(told.store.list()), lambda: list(told.store.list_directories()), told.store.check):
        with pytest.raises(StoreUnavailable):
            ask()


def test_u37_a_page_of_a_balancer_deletes_nothing(told: Told) -> None:
    """A web page does not count as a confirmed delete."""
    told.server.answers = [answer("200 OK", b"<html>welcome</html>", content_type="text/html")]
    with pytest.raises(StoreUnavailable, match="key"):
        told.store.delete(["key"])
    outcome = told.store.delete_matching({"key": "7"})
    assert isinstance(outcome.failed["key"], StoreUnavailable)
    assert (outcome.removed, outcome.kept) == ((), ())


def test_a_rejected_delete_keeps_another_object_and_counts_a_missing_one(told: Told) -> None:
    """After a rejection HEAD shows which it is; "not found" needs no further request."""
    rejected = told.refusal("412 Failed", "ConditionNotMet", "conditionNotMet")
    told.server.answers = [rejected, answer("200 OK", b"", etag='"0x2"', x_goog_generation="2", last_modified=DATE)]
    assert told.store.delete_matching({"key": "7"}) == DeleteOutcome((), ("key",), {})
    told.server.answers = [told.listing_of_nothing]
    told.store.check()
    absent = told.refusal("404 Not Found", "BlobNotFound", "notFound")
    told.server.answers = [rejected, absent]
    assert told.store.delete_matching({"key": "7"}) == DeleteOutcome(("key",), (), {})
    count = len(told.server.requests)
    told.server.answers = [absent]
    assert told.store.delete_matching({"key": "7"}) == DeleteOutcome(("key",), (), {})
    assert [line.split()[0] for line in told.server.requests[count:]] == ["DELETE"]
    assert told.server.headers[-1].get("if-match") == ('"7"' if told.kind == "az" else None)
    assert ("ifGenerationMatch=7" in told.server.requests[-1]) == (told.kind == "gs")


def test_u14_a_denied_delete_is_a_failure_of_its_object(told: Told) -> None:
    """The message has the operation, the object and what to allow."""
    told.server.answers = [told.refusal("403 Forbidden", "AuthorizationPermissionMismatch", "forbidden")]
    error = told.store.delete_matching({"key": "7"}).failed["key"]
    assert isinstance(error, AccessDenied)
    assert "base/key" in str(error)
    assert "allow this identity" in str(error)
