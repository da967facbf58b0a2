"""Copies that a service has not ended when it responds."""

import json
from collections.abc import Sequence

import pytest

from ts_common.errors import ObjectNotFound, OutcomeUnknown, StoreThrottled, StoreUnavailable, TieredStorageError
from ts_common.store.azure.account import Account
from ts_common.store.azure.blob_service import AzureService
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo
from ts_common.store.gcs.storage_service import GcsService
from ts_common.store.http import copies
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Service

AZURE = AzureService("box", Account("account", "https://host", key=b"key"))
GOOGLE = GcsService("box", "https://host", None)
CALL = Call("copies", "a to b", writes=True, copies=True)
FOUND = {"etag": '"0x1"', "last-modified": "Sun, 22 Nov 2026 02:33:34 GMT", "content-length": "5"}
INFO = ObjectInfo("key", 5, "0x1", 1795314814.0)


def state(said: str, status: int = 200) -> Response:
    return Response(status, {**FOUND, "x-ms-copy-status": said, "x-ms-copy-status-description": "why"})


def rewritten(**fields: object) -> Response:
    return Response(200, {}, json.dumps(fields).encode())


class Sent:
    """The requests that were sent, and the response or the error of each."""

    def __init__(self, *answers: Response | TieredStorageError) -> None:
        self.left = list(answers)
        self.requests: list[tuple[Call, Request]] = []

    def __call__(self, call: Call, request: Request) -> Response:
        self.requests.append((call, request))
        found = self.left.pop(0)
        if isinstance(found, TieredStorageError):
            raise found
        return found

    @property
    def methods(self) -> Sequence[str]:
        return [request.method for _, request in self.requests]

    def copy(self, service: Service) -> ObjectInfo:
        return copies.copy_object(service, self, CALL, "key", "base/a", "base/b")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_PAUSE_SECONDS", 0.0)


def test_a_pending_copy_is_polled_until_it_ends() -> None:
    """Only the first request writes, so only its lost response matters."""
    sent = Sent(state("pending", 202), state("pending"), state("success"))
    assert sent.copy(AZURE) == INFO
    assert sent.methods == ["PUT", "HEAD", "HEAD"]
    assert [call.writes for call, _ in sent.requests] == [True, False, False]


def test_a_copy_that_ended_at_once_is_read_for_its_size() -> None:
    """The properties are those of a later object, if another one replaced it."""
    sent = Sent(state("success", 202), Response(200, FOUND))
    assert sent.copy(AZURE) == INFO
    assert sent.methods == ["PUT", "HEAD"]


@pytest.mark.parametrize("said", ["failed", "aborted"])
def test_a_copy_that_failed_leaves_no_empty_target(said: str) -> None:
    """The service leaves a blob without content; the driver removes that one, and no other."""
    sent = Sent(state("pending", 202), state(said), Response(202, {}))
    with pytest.raises(StoreUnavailable, match=f"{said} why"):
        sent.copy(AZURE)
    assert sent.methods == ["PUT", "HEAD", "DELETE"]
    assert sent.requests[-1][1].headers["if-match"] == '"0x1"'


def test_a_failed_copy_whose_rest_cannot_be_removed_is_undecided() -> None:
    """A caller must not use the target as an object."""
    with pytest.raises(OutcomeUnknown, match="may exist without content"):
        Sent(state("pending", 202), state("failed"), StoreUnavailable("down")).copy(AZURE)


@pytest.mark.parametrize("error", [ObjectNotFound("gone"), StoreUnavailable("down"), StoreThrottled("slow")])
def test_a_copy_whose_end_cannot_be_read_is_undecided(error: TieredStorageError) -> None:
    """A missing target is not a missing source, and the whole copy is not repeated where it is throttled."""
    with pytest.raises(OutcomeUnknown, match="begun, but not read since"):
        Sent(state("pending", 202), error).copy(AZURE)
    with pytest.raises(type(error)):
        Sent(error).copy(AZURE)


@pytest.mark.parametrize(
    ("service", "begun"), [(AZURE, state("pending", 202)), (GOOGLE, rewritten(done=False, rewriteToken="t"))]
)
def test_a_copy_that_never_ends_is_undecided(
    service: Service, begun: Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded."""
    monkeypatch.setattr(copies, "_SECONDS", -1.0)
    with pytest.raises(OutcomeUnknown, match="did not end"):
        Sent(begun).copy(service)


def test_a_large_rewrite_has_several_requests() -> None:
    """Each has the token of the response before; a source that was deleted meanwhile is not found."""
    done = rewritten(done=True, resource={"generation": "7", "size": "5", "updated": "2026-11-22T02:33:34Z"})
    sent = Sent(rewritten(done=False, rewriteToken="t1"), rewritten(done=False, rewriteToken="t2"), done)
    assert sent.copy(GOOGLE) == ObjectInfo("key", 5, "7", 1795314814.0)
    tokens = [request.url.partition("rewriteToken=")[2] for _, request in sent.requests]
    assert tokens == ["", "t1", "t2"]
    assert all(call.writes for call, _ in sent.requests)
    with pytest.raises(ObjectNotFound):
        Sent(rewritten(done=False, rewriteToken="t1"), ObjectNotFound("gone")).copy(GOOGLE)


def test_the_source_of_a_copy_has_the_sas() -> None:
    """The service reads the source with the credentials of its URL; with a key, the account is that of the target."""
    by_sas = AzureService("box", Account("account", "https://host", sas="sv=1&sig=s%2Bs"))
    headers = by_sas.copy("base/a ü", "base/b").headers
    assert headers["x-ms-copy-source"] == "https://host/box/base/a%20%C3%BC?sv=1&sig=s%2Bs"
    assert headers["if-none-match"] == "*"
    assert AZURE.copy("base/a", "base/b").headers["x-ms-copy-source"] == "https://host/box/base/a"
