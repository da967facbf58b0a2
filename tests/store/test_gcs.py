"""Google: who asks, and what the service is asked for."""

import json
import sys

import pytest

from tests.conftest import GCS_BUCKET
from tests.store.servers import FakeServer, answer
from ts_common.errors import ConfigurationError, ObjectNotFound, PreconditionFailed, StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import IfMatch
from ts_common.store.factory import open_store
from ts_common.store.gcs import GcsService, gcs_service
from ts_common.store.http_client import Answer
from ts_common.store.http_store import HttpStore
from ts_local.fake_gcs import GcsServer


@pytest.mark.parametrize("etag", ["0", "00", '"0000"', "no number", ""])
def test_no_etag_means_that_nothing_may_stand_there(google: GcsServer, etag: str) -> None:
    """Generation 0 does; a commit over something that is gone must be refused."""
    del google
    with open_store(f"gs://{GCS_BUCKET}/zero") as store, pytest.raises(PreconditionFailed):
        store.put("offset.wm", b"x", condition=IfMatch(etag))


def test_a_plain_not_found_is_an_emulators_word_alone() -> None:
    """From Google it would be something in between that answers, and no absent object."""
    told = Answer(404, {}, b"Not Found\n")
    call = Call("GET Object", "gs://bucket/key")
    assert isinstance(GcsService("bucket", "http://host", None).error(told, call), ObjectNotFound)
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(told, call), StoreUnavailable)
    said = Answer(404, {}, b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>")
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(said, call), ObjectNotFound)


def test_no_cache_may_keep_what_is_written_over() -> None:
    """Google keeps public objects for an hour unless they say otherwise."""
    put = GcsService("bucket", "http://host", None).put("name", {}, None, None, None)
    assert b'"cacheControl": "no-store"' in put.before


def test_the_machines_service_account_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """google-auth gets a token where machines of Google's get theirs, once for many requests."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("NO_GCE_CHECK", "")
    with FakeServer() as machine, FakeServer() as server:
        host = machine.endpoint.removeprefix("http://")
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setenv("GCE_METADATA_ROOT", host)
        monkeypatch.setenv("GCE_METADATA_IP", host)
        said = {"access_token": "t0ken", "expires_in": 3600, "token_type": "Bearer", "email": "default", "scopes": []}
        token = json.dumps(said).encode()
        machine.answers = [answer("200 OK", token, content_type="application/json", metadata_flavor="Google")]
        service = gcs_service("bucket", {})
        told = GcsService("bucket", server.endpoint, service._token)
        server.answers = [answer("200 OK", b"{}")]
        with HttpStore(told) as store:
            store.check()
            store.check()
    assert [headers["authorization"] for headers in server.headers] == ["Bearer t0ken"] * 2
    assert sum("token" in line for line in machine.requests) == 1


def test_without_google_auth_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: whoever ships to S3 does not need it."""
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ts-uploader\[gcs\]'"):
        gcs_service("bucket", {})


def test_without_credentials_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that google-auth looks at is named by its own message, and what to do by ours."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(ConfigurationError, match=r"no credentials.*gcloud auth application-default login"):
        gcs_service("bucket", {})
