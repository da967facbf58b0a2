"""Tokens of Microsoft Entra: their sources, and which failures are denials."""

import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import RequestsTransport

from dev.local.stores.azurite import ACCOUNT
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import (
    AccessDenied,
    ConfigurationError,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.azure.account import account_of
from ts_common.store.azure.tokens import _is_configured, object_of
from ts_common.store.factory import open_store

EMPTY_LISTING = answer("200 OK", b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>")


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    """Start an endpoint of managed identities; retries have no pause."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setattr("azure.core.pipeline.transport.RequestsTransport.sleep", lambda _self, _seconds: None)
    with FakeServer() as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.endpoint}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        server.answers = [given(4102444800)]
        yield server


def given(expires: int) -> bytes:
    """Return a token that is valid until a time."""
    token = {"access_token": "t0ken", "expires_on": str(expires), "resource": "r", "token_type": "Bearer"}
    return answer("200 OK", json.dumps(token).encode(), content_type="application/json")


def test_without_a_key_the_machines_identity_requests_the_token(
    identity: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """azure-identity reads a token from the endpoint of managed identities, once for many requests."""
    with FakeServer() as server:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{server.endpoint}/{ACCOUNT}")
        server.answers = [EMPTY_LISTING]
        with open_store("az://bucket") as store:
            store.check()
            store.check()
    assert [headers["authorization"] for headers in server.headers] == ["Bearer t0ken"] * 2
    assert len(identity.requests) == 1
    assert "resource=https://storage.azure.com" in unquote(identity.requests[0])


AWAY = [b"", answer("500 Internal Server Error"), answer("503 Busy", b"{}", content_type="application/json")]


@pytest.mark.parametrize("away", AWAY)
def test_u14_an_identity_endpoint_that_is_away_is_no_refusal(identity: FakeServer, away: bytes) -> None:
    """The chain raises the error of a denial; the agent must neither end nor require an operator."""
    identity.answers = [away]
    with open_store("az://bucket") as store, pytest.raises(StoreUnavailable, match="no token for account"):
        store.check()


@pytest.mark.parametrize("away", AWAY)
def test_u14_an_identity_endpoint_that_is_unavailable_later_stops_nothing(
    identity: FakeServer, monkeypatch: pytest.MonkeyPatch, away: bytes
) -> None:
    """Only the credential that returned a token before is used then, and its errors are raised unchanged."""
    identity.answers = [given(int(time.time()) + 1)]  # which has expired
    with FakeServer() as server:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{server.endpoint}/{ACCOUNT}")
        server.answers = [EMPTY_LISTING]
        with open_store("az://bucket") as store:
            store.check()
            identity.answers = [away]
            with pytest.raises(StoreUnavailable, match="no token for account"):
                store.check()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, AccessDenied),
        ({"AZURE_CLIENT_ID": "me"}, StoreUnavailable),
        ({"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1"}, StoreUnavailable),
    ],
)
def test_u14_a_metadata_server_that_is_away_is_no_refusal_where_one_should_be(
    identity: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: type[TieredStorageError],
) -> None:
    """Without any configured identity, the operator must configure one."""
    del identity
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_TOKEN_CREDENTIALS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "")  # no `az` with a login
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("azure.identity._credentials.imds.IMDS_AUTHORITY", "http://127.0.0.1:1")
    with open_store("az://bucket") as store, pytest.raises(expected, match="no token for account"):
        store.check()


def test_u14_a_machine_of_azures_should_have_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine needs no setting; its asset tag identifies it."""
    assert not _is_configured({})
    tag = tmp_path / "tag"
    tag.write_text("7783-7084-3265-9085-8269-3286-77\n")
    monkeypatch.setattr("ts_common.store.azure.tokens._ASSET_TAG", tag)
    assert _is_configured({})


def test_u14_entra_that_is_away_is_no_refusal_and_its_refusal_is_one(
    identity: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a client secret, by the SDK's own request; a wrong secret requires an operator."""
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    for name, value in (("TENANT_ID", "t"), ("CLIENT_ID", "c"), ("CLIENT_SECRET", "wrong")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    told: list[bytes | None] = [None]

    def sent(self: RequestsTransport, request: Any, **options: Any) -> Any:
        if told[0] is None:
            raise ServiceRequestError("no route")
        identity.answers = [told[0]]
        request.url = f"{identity.endpoint}/{request.url.partition('://')[2]}"
        return send(self, request, **options)

    send = RequestsTransport.send
    monkeypatch.setattr(RequestsTransport, "send", sent)
    with open_store("az://bucket") as store:
        with pytest.raises(StoreUnavailable, match="no token"):
            store.check()
        told[0] = answer("503 Busy", b"{}", content_type="application/json")
        with pytest.raises(StoreUnavailable, match="no token"):
            store.check()
        said = {"token_endpoint": "https://login/t/token", "authorization_endpoint": "https://login/t", "issuer": "i"}
        refusal = {"error": "invalid_client", "error_description": "AADSTS7000215: the secret is wrong"}
        told[0] = answer("400 Bad Request", json.dumps(said | refusal).encode(), content_type="application/json")
        with pytest.raises(AccessDenied, match="no token"):
            store.check()


def test_without_azure_identity_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra, which a key or a SAS does not require."""
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ts-uploader\[azure\]'"):
        account_of({"AZURE_STORAGE_ACCOUNT": "acc"})


def test_a_token_names_the_object_that_it_was_given_to() -> None:
    """A user and a service principal have an id; a token without one, or that is no JWT, gives no identity."""

    def token(claims: bytes) -> str:
        return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.sig"

    assert object_of(token(b'{"oid":"0a-1","upn":"anna"}')) == "entra:0a-1"
    for other in (
        token(b'{"upn":"anna"}'),
        token(b'{"oid":7}'),
        token(b'{"oid":"a b"}'),
        token(b"\xff"),
        "t0ken",
        "a.*.b",
    ):
        assert object_of(other) is None
