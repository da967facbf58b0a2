"""Google's service: the requests to it, and the meaning of its responses."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from dev.local.loopback_http import request
from dev.local.stores.fake_gcs import GcsServer
from tests.conftest import GCS_BUCKET
from ts_common.errors import ObjectNotFound, OperatorError, PreconditionFailed, StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.factory import open_store
from ts_common.store.gcs.storage_service import GcsService, gcs_service
from ts_common.store.http.client import Request, Response
from ts_common.store.http.service import Copying, Page
from ts_common.store.protection import Lock, Protection


@pytest.mark.parametrize("etag", ["0", "00", '"0000"', "not a number", ""])
def test_no_etag_value_means_that_the_object_must_not_exist(google: GcsServer, etag: str) -> None:
    """Generation 0 would mean "if absent"; a commit over a missing object must be rejected."""
    del google
    with open_store(f"gs://{GCS_BUCKET}/zero") as store, pytest.raises(PreconditionFailed):
        store.put("offset.wm", b"x", condition=IfMatch(etag))


def test_a_plain_not_found_is_an_emulators_word_alone() -> None:
    """At Google another server would have sent it, so it does not mean a missing object."""
    told = Response(404, {}, b"Not Found\n")
    call = Call("GET Object", "gs://bucket/key")
    assert isinstance(GcsService("bucket", "http://host", None).error(told, call), ObjectNotFound)
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(told, call), StoreUnavailable)
    said = Response(404, {}, b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>")
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(said, call), ObjectNotFound)


def test_no_cache_may_keep_what_is_written_over() -> None:
    """Google caches public objects for an hour unless they forbid it."""
    put = GcsService("bucket", "http://host", None).put("name", {}, None, None, None)
    assert b'"cacheControl": "no-store"' in put.before


def test_a_copy_requests_that_no_object_has_the_name() -> None:
    """Each request of a copy has the condition, and both names are encoded whole."""
    service = GcsService("box", "http://host", None)
    request = service.copy("base/a b%/ü", "base/c+d")
    path = "http://host/storage/v1/b/box/o/base%2Fa%20b%25%2F%C3%BC/rewriteTo/b/box/o/base%2Fc%2Bd"
    assert (request.method, request.url) == ("POST", f"{path}?ifGenerationMatch=0")
    begun = service.copied("k", "base/a b%/ü", "base/c+d", page(done=False, rewriteToken="t/1"))
    assert begun == Copying(Request("POST", f"{path}?ifGenerationMatch=0&rewriteToken=t%2F1"))
    resource = {"generation": "7", "size": "5", "updated": "2026-11-22T02:33:34Z"}
    done = service.copied("k", "base/a b%/ü", "base/c+d", page(done=True, resource=resource))
    assert done == ObjectInfo("k", 5, "7", 1795314814.0)


@pytest.mark.parametrize(("etag", "generation"), [("7", "7"), ('"7"', "7"), ('"x"', "1"), ("0", "1")])
def test_a_delete_requests_that_the_object_has_its_generation(etag: str, generation: str) -> None:
    """The emulator ignores the condition. An ETag that is no generation matches no object, never every one."""
    service = GcsService("box", "http://host", None)
    url = "http://host/storage/v1/b/box/o/base%2Fa"
    assert service.delete("base/a", etag) == Request("DELETE", f"{url}?ifGenerationMatch={generation}")
    assert service.delete("base/a") == Request("DELETE", url)


SERVICE = GcsService("box", "http://host", lambda: "t0ken")


@pytest.mark.parametrize(
    ("condition", "generation"),
    [(None, []), (IfAbsent(), ["0"]), (IfMatch("7"), ["7"]), (IfMatch('"7"'), ["7"])],
)
def test_a_put_is_one_request_with_its_condition_and_its_checksum(condition: Condition, generation: list[str]) -> None:
    """The properties of the object are before its bytes, and the service compares the checksum with them."""
    put = SERVICE.put("base/a", {"ts-end": "5"}, condition, 0xE3069283, None)
    assert put.request.method == "POST"
    query = parse_qs(urlsplit(put.request.url).query)
    assert query["uploadType"] == ["multipart"]
    assert query.get("ifGenerationMatch", []) == generation
    boundary = put.request.headers["content-type"].partition("boundary=")[2]
    _, properties, bytes_follow = (put.before + b"BYTES" + put.after).decode().split(f"--{boundary}\r\n")
    resource = json.loads(properties.partition("\r\n\r\n")[2])
    assert (resource["name"], resource["metadata"], resource["crc32c"]) == ("base/a", {"ts-end": "5"}, "4waSgw==")
    assert bytes_follow.endswith(f"\r\n\r\nBYTES\r\n--{boundary}--\r\n")


def test_each_request_has_the_token_unless_it_is_for_an_emulator() -> None:
    """The emulator has no accounts."""
    asked = Request("GET", "http://host", {"range": "bytes=0-0"})
    assert SERVICE.authorize(asked).headers == {"range": "bytes=0-0", "authorization": "Bearer t0ken"}
    assert GcsService("box", "http://host", None).authorize(asked) == asked


def page(**fields: object) -> Response:
    return Response(200, {}, json.dumps(fields).encode())


def test_a_page_has_objects_directories_and_the_next_token() -> None:
    """All fields but the kind are optional."""
    item = {"name": "a", "size": "7", "generation": "5", "updated": "2026-11-22T02:33:34Z"}
    items = [item, {**item, "name": "b", "storageClass": "ARCHIVE"}, {**item, "name": "c", "storageClass": "STANDARD"}]
    found = SERVICE.parse_page(page(kind="storage#objects", items=items, prefixes=["d/"], nextPageToken="t"))
    classes = {"a": None, "b": "ARCHIVE", "c": None}
    infos = [ObjectInfo(name, 7, "5", 1795314814.0, storage_class=each) for name, each in classes.items()]
    assert found == Page(infos, ["d/"], "t")
    assert SERVICE.parse_page(page(kind="storage#objects")) == Page([], [], "")


@pytest.mark.parametrize("answer", [page(), page(kind="storage#buckets"), page(kind="storage#objects", items=5)])
def test_json_of_another_kind_is_no_listing(answer: Response) -> None:
    """Without its kind `{}` would be a store without objects."""
    with pytest.raises((LookupError, TypeError, ValueError)):
        SERVICE.parse_page(answer)


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [("http://127.0.0.1:4443/", "http://127.0.0.1:4443"), ("127.0.0.1:4443", "http://127.0.0.1:4443")],
)
def test_the_environment_names_an_emulator(environment: str, endpoint: str) -> None:
    """With or without a scheme, as in Google's own tools; no credentials are read for it."""
    service = gcs_service("box", {"STORAGE_EMULATOR_HOST": environment})
    assert service.base_url == endpoint
    assert service.authorize(Request("GET", endpoint)) == Request("GET", endpoint)


def test_the_retention_of_an_object_is_read(google: GcsServer) -> None:
    """Of an object that retains itself; the emulator deletes it all the same, and Google does not."""
    with open_store(f"gs://{GCS_BUCKET}/locks") as store:
        for key in ("a b/1", "free"):
            store.put(key, b"x")
        retention = {"retention": {"mode": "Locked", "retainUntilTime": "2030-01-01T00:00:00Z"}}
        path = f"/storage/v1/b/{GCS_BUCKET}/o/locks%2Fa%20b%2F1"
        headers = {"content-type": "application/json"}
        status, _ = request(google.port, path, method="PATCH", body=json.dumps(retention), headers=headers)
        assert status == 200
        lock = Lock(1893456000.0, legal_hold=False, mode="Locked")
        assert store.locked(["a b/1", "free", "never"], 0) == {"a b/1": lock}
        assert store.protection() == Protection(versioned=False, locks=False, default_retention=None)


@pytest.mark.parametrize(
    ("resource", "lock"),
    [
        ({}, None),
        ({"temporaryHold": True}, Lock(None, legal_hold=True, mode="")),
        ({"eventBasedHold": True, "temporaryHold": False}, Lock(None, legal_hold=True, mode="")),
        ({"retentionExpirationTime": "1970-01-01T00:00:09Z"}, Lock(9, legal_hold=False, mode="")),
        (
            {
                "retentionExpirationTime": "1970-01-01T00:00:09Z",
                "retention": {"mode": "Unlocked", "retainUntilTime": "1970-01-01T00:00:10Z"},
            },
            Lock(10, legal_hold=False, mode="Unlocked"),
        ),
    ],
)
def test_holds_and_the_later_end_of_two_retentions_are_read(resource: dict[str, object], lock: Lock | None) -> None:
    """The bucket's policy and the object's own retention have an end each."""
    assert GcsService("box", "http://host", None).lock_of(page(kind="storage#object", **resource)) == lock


@pytest.mark.parametrize(
    ("resource", "protection"),
    [
        ({"versioning": {"enabled": True}}, Protection(versioned=True, locks=False, default_retention=None)),
        (
            {"softDeletePolicy": {"retentionDurationSeconds": "604800"}},
            Protection(versioned=True, locks=False, default_retention=None),
        ),
        (
            {"retentionPolicy": {"retentionPeriod": "86400"}, "softDeletePolicy": {"retentionDurationSeconds": "0"}},
            Protection(versioned=False, locks=True, default_retention="86400 s (retention policy)"),
        ),
        ({"objectRetention": {"mode": "Enabled"}}, Protection(versioned=False, locks=True, default_retention=None)),
    ],
)
def test_what_a_bucket_keeps_is_read(resource: dict[str, object], protection: Protection) -> None:
    """Soft delete keeps the bytes of deleted objects as versions do."""
    service = GcsService("box", "http://host", None)
    assert service.protection_of(page(kind="storage#bucket", **resource)) == protection
    with pytest.raises(KeyError):
        service.protection_of(page(**resource))


def test_a_store_that_keeps_an_object_names_the_way_out() -> None:
    """A policy or a hold rejects the delete with 403, which is no missing right."""
    service, call = GcsService("box", "http://host", lambda: "t0ken"), Call("objects.delete", "gs://box/a")
    for reason, way in (("retentionPolicyNotMet", "after its end"), ("objectUnderActiveHold", "release it first")):
        error = {"errors": [{"reason": reason}], "message": "no"}
        found = service.error(Response(403, {}, json.dumps({"error": error}).encode()), call)
        assert type(found) is OperatorError
        assert way in str(found)
