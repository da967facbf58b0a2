"""Azure's service: the requests to it, and what it stores."""

from dataclasses import replace

import pytest

from dev.local.stores.azurite import AzuriteServer
from tests.common.store.servers import FakeServer, answer
from tests.conftest import AZURE_CONTAINER
from ts_common.errors import CorruptData, ObjectFrozen
from ts_common.store.azure.account import Account, account_of
from ts_common.store.azure.blob_service import AzureService, given_name, stored_name
from ts_common.store.contract import Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.factory import open_store
from ts_common.store.http import driver as http_store
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Page
from ts_common.store.protection import Lock, Protection
from ts_common.store.thaw_state import ThawState, ThawTier


@pytest.mark.parametrize("name", ["ts-end", "ts-time-max", "n", "0", "a_b", "a.b", "x-", "2nd"])
def test_names_of_metadata_are_returned_unchanged(name: str) -> None:
    """The service stores identifiers, and the driver returns the original names."""
    assert stored_name(name).isidentifier()
    assert stored_name(name).isascii()
    assert given_name(stored_name(name)) == name


def test_the_store_compares_the_md5_with_what_arrives(azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that change in transit are rejected, and nothing is written."""
    del azure
    with open_store(f"az://{AZURE_CONTAINER}/md5") as store:
        monkeypatch.setattr(http_store, "_md5_of", lambda _body: bytes(16))
        with pytest.raises(CorruptData, match="Md5Mismatch"):
            store.put("key", b"content")
        assert list(store.list()) == []


SERVICE = AzureService("box", Account("account", "http://account.example.com", key=b"key"))


@pytest.mark.parametrize(
    ("condition", "header"),
    [
        (None, {}),
        (IfAbsent(), {"if-none-match": "*"}),
        (IfMatch("0x1"), {"if-match": '"0x1"'}),
        (IfMatch('"0x1"'), {"if-match": '"0x1"'}),
    ],
)
def test_a_put_is_one_request_with_its_condition(condition: Condition, header: dict[str, str]) -> None:
    """An ETag is quoted there, as the service lists it without quotes and sends it with them."""
    put = SERVICE.put("base/t 0/a", {"ts-end": "5"}, condition, None, bytes(16))
    assert (put.request.method, put.request.url) == ("PUT", "http://account.example.com/box/base/t%200/a")
    headers = put.request.headers
    assert {name: value for name, value in headers.items() if name.startswith("if-")} == header
    assert (headers["x-ms-blob-type"], headers["content-md5"]) == ("BlockBlob", "AAAAAAAAAAAAAAAAAAAAAA==")
    assert headers["x-ms-meta-ts_2dend"] == "5"
    assert (put.before, put.after) == (b"", b"")


PROPERTIES = (
    "<Properties><Last-Modified>Sun, 22 Nov 2026 02:33:34 GMT</Last-Modified><Etag>0x1</Etag>"
    "<Content-Length>7</Content-Length></Properties>"
)


def page(blobs: str, root: str = "EnumerationResults") -> Response:
    return Response(200, {}, f"\ufeff<{root}><Blobs>{blobs}</Blobs><NextMarker>m</NextMarker></{root}>".encode())


def test_a_page_has_objects_directories_and_the_next_marker() -> None:
    """Names that XML cannot represent are decoded, and directories of a hierarchical namespace are no objects."""
    archived = PROPERTIES.replace("</P", "<AccessTier>Archive</AccessTier></P")
    found = SERVICE.parse_page(
        page(
            f"<Blob><Name>a&amp;b</Name>{PROPERTIES}</Blob>"
            f'<Blob><Name Encoded="true">a%01</Name>{PROPERTIES}</Blob>'
            f"<Blob><Name>c</Name>{archived}</Blob>"
            "<Blob><Name>d</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>"
            "<BlobPrefix><Name>d/</Name></BlobPrefix>"
        )
    )
    assert found == Page(
        [
            ObjectInfo(name, 7, "0x1", 1795314814.0, storage_class=tier, is_frozen=tier is not None)
            for name, tier in (("a&b", None), ("a\x01", None), ("c", "Archive"))
        ],
        directories=["d/"],
        following="m",
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (page("", "Error"), "expected EnumerationResults"),
        (page("<Blob><Name>a</Name></Blob>"), "a blob without properties"),
        (page("<Blob><Name>a</Name><Properties><Etag>e</Etag></Properties></Blob>"), "without size, ETag or date"),
        (page(f"<Blob>{PROPERTIES}</Blob>"), "a blob without a name"),
        (page("<BlobPrefix><Name/></BlobPrefix>"), "a blob without a name"),
    ],
)
def test_a_page_without_what_it_needs_is_no_listing(answer: Response, problem: str) -> None:
    """It could otherwise be a page without objects."""
    with pytest.raises(ValueError, match=problem):
        SERVICE.parse_page(answer)


class Archiving(AzureService):
    """A service whose thaws do the opposite."""

    def thaw(self, name: str, tier: ThawTier) -> Request:
        request = super().thaw(name, tier)
        return replace(request, headers={**request.headers, "x-ms-access-tier": "Archive"})


def test_an_archived_blob_is_readable_after_its_thaw(azure: AzuriteServer) -> None:
    """Before it a get names the way out; a thaw moves the blob to the hot tier permanently."""
    account = account_of(azure.environment())
    with (
        http_store.HttpStore(AzureService(AZURE_CONTAINER, account), "thaw") as store,
        http_store.HttpStore(Archiving(AZURE_CONTAINER, account), "thaw") as freezer,
    ):
        store.put("a.log", b"content")
        assert not store.thaw_state("a.log").is_frozen
        freezer.thaw("a.log", None, ThawTier.BULK)
        assert [(info.storage_class, info.is_frozen) for info in store.list()] == [("Archive", True)]
        assert store.thaw_state("a.log").is_frozen
        with pytest.raises(ObjectFrozen, match=r"(?s)thaw/a.log: BlobArchived .*tsctl thaw"):
            store.get("a.log")
        store.thaw("a.log", None, ThawTier.EXPEDITED)
        assert store.get("a.log")[0] == b"content"
        assert not store.thaw_state("a.log").is_frozen


def test_a_thaw_of_a_blob_in_progress_counts_as_begun(fake: FakeServer) -> None:
    """The service answers 409, which another request would not change; a bulk thaw has the lower priority."""
    fake.answers = [answer("409 Conflict", x_ms_error_code="BlobBeingRehydrated")]
    service = AzureService("box", Account("account", fake.endpoint, key=b"key"))
    with http_store.HttpStore(service, timeout_seconds=5) as store:
        store.thaw("a.log", 7, ThawTier.BULK)
    assert fake.requests == ["PUT /box/a.log?comp=tier HTTP/1.1"]
    assert fake.headers[0]["x-ms-rehydrate-priority"] == "Standard"


def test_a_pending_rehydration_is_a_thaw_in_progress() -> None:
    """The emulator ends it at once."""
    info = ObjectInfo("a", 7, "0x1", 0.0, storage_class="Archive", is_frozen=True)
    pending = Response(200, {"x-ms-archive-status": "rehydrate-pending-to-hot"}, b"")
    assert SERVICE.thaw_state_of(info, pending) == ThawState("Archive", is_frozen=True, is_thawing=True)


CONTAINER = {"x-ms-has-immutability-policy": "false", "x-ms-has-legal-hold": "false"}


@pytest.mark.parametrize(
    ("headers", "protection"),
    [
        ({}, Protection(versioned=False, locks=False, default_retention=None)),
        ({"x-ms-has-immutability-policy": "true"}, Protection(versioned=False, locks=True, default_retention=None)),
        ({"x-ms-has-legal-hold": "true"}, Protection(versioned=False, locks=True, default_retention=None)),
        (
            {"x-ms-immutable-storage-with-versioning-enabled": "true"},
            Protection(versioned=True, locks=True, default_retention=None),
        ),
    ],
)
def test_the_protection_of_a_container_is_read(headers: dict[str, str], protection: Protection) -> None:
    """It holds for the whole container, or for each version."""
    assert SERVICE.protection_of(Response(200, {**CONTAINER, **headers}, b"")) == protection
    with pytest.raises(KeyError):
        SERVICE.protection_of(Response(200, {}, b""))


def test_the_lock_of_a_blob_is_read() -> None:
    """Azurite cannot lock, so this is by the headers that the documentation has."""
    until = {
        "x-ms-immutability-policy-until-date": "Tue, 01 Jan 2030 00:00:00 GMT",
        "x-ms-immutability-policy-mode": "unlocked",
    }
    assert SERVICE.lock_of(Response(200, until, b"")) == Lock(1893456000.0, legal_hold=False, mode="unlocked")
    held = {"x-ms-legal-hold": "true"}
    assert SERVICE.lock_of(Response(200, held, b"")) == Lock(None, legal_hold=True, mode="")
    assert SERVICE.lock_of(Response(200, {"x-ms-legal-hold": "false"}, b"")) is None


def test_a_container_without_policies_has_no_locks(azure: AzuriteServer) -> None:
    """Azurite answers as the service does."""
    del azure
    with open_store(f"az://{AZURE_CONTAINER}/locks") as store:
        store.put("a", b"x")
        assert store.protection() == Protection(versioned=False, locks=False, default_retention=None)
        assert store.locked_until("a") is None
        assert store.locked(["a", "never"], 0) == {}
