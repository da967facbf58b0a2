"""Azure: the account, its credentials, and what the service stores."""

import base64
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import RequestsTransport

from tests.common.store.servers import FakeServer, answer
from tests.conftest import AZURE_CONTAINER
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
    CorruptData,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.azure.account import account_of
from ts_common.store.azure.service import given_name, stored_name
from ts_common.store.azure.tokens import _is_configured
from ts_common.store.contract import IfMatch
from ts_common.store.factory import open_store
from ts_common.store.http import driver as http_store
from ts_local.stores.azurite import ACCOUNT, KEY, AzuriteServer


@pytest.mark.parametrize("name", ["ts-end", "ts-time-max", "n", "0", "a_b", "a.b", "x-", "2nd"])
def test_names_of_metadata_come_back_as_they_were(name: str) -> None:
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


def test_a_wrong_key_is_access_denied(azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azurite checks signatures as Azure does; no message contains the key."""
    said = azure.environment()["AZURE_STORAGE_CONNECTION_STRING"].replace(KEY, "d3Jvbmc=")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", said)
    with open_store(f"az://{AZURE_CONTAINER}/denied") as store, pytest.raises(AccessDenied) as raised:
        store.put("key", b"x")
    assert "the key is wrong" in str(raised.value)
    assert "d3Jvbmc" not in str(raised.value)


def test_account_and_key_are_read_as_the_command_line_reads_them() -> None:
    """A connection string first, else the single variables; a SAS with or without its question mark."""
    account = account_of({"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": KEY})
    assert (account.name, account.endpoint) == ("acc", "https://acc.blob.core.windows.net")
    assert account.key is not None
    said = "AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"
    other = account_of({"AZURE_STORAGE_CONNECTION_STRING": said, "AZURE_STORAGE_ACCOUNT": "else"})
    assert (other.endpoint, other.key) == ("https://acc.blob.core.chinacloudapi.cn", b"key")
    sas = account_of({"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=abc"})
    assert sas.sas == "sv=1&sig=abc"
    assert "abc" not in repr(sas)
    assert KEY not in repr(account)


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({}, "the storage account is missing: set AZURE_STORAGE_CONNECTION_STRING"),
        ({"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "no base64!"}, "key of account acc is not base64"),
        (
            {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "a2V5", "AZURE_STORAGE_SERVICE_ENDPOINT": "host"},
            "expected http:// or https://",
        ),
    ],
)
def test_what_names_no_account_is_refused_with_what_to_set(environment: dict[str, str], problem: str) -> None:
    """Opening the store fails before any request."""
    with pytest.raises(ConfigurationError, match=problem):
        account_of(environment)


EMPTY_LISTING = answer("200 OK", b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>")


def test_a_sas_is_sent_with_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows the query of the request, without a signature by key."""
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2023&sig=s%2Bs")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with FakeServer() as server:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{server.endpoint}/{ACCOUNT}")
        server.answers = [EMPTY_LISTING]
        with open_store("az://bucket") as store:
            store.check()
    assert (
        server.requests[0].split()[1] == f"/{ACCOUNT}/bucket?restype=container&comp=list&maxresults=1&sv=2023&sig=s%2Bs"
    )
    assert "authorization" not in server.headers[0]


def sas_of(container: str) -> str:
    """Return a SAS of a container for all operations of the agent, signed as the service's reference describes."""
    said = {"sp": "rcwdl", "se": "2099-01-01T00:00:00Z", "sv": "2023-11-03", "sr": "c"}
    fields = [said["sp"], "", said["se"], f"/blob/{ACCOUNT}/{container}", *[""] * 3, said["sv"], said["sr"], *[""] * 7]
    signature = hmac.digest(base64.b64decode(KEY), "\n".join(fields).encode(), hashlib.sha256)
    return urlencode({**said, "sig": base64.b64encode(signature).decode()})


def test_a_sas_of_the_container_is_enough(azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such SAS allows the container's properties, but it allows all requests of the agent, its check included."""
    connection = azure.environment()["AZURE_STORAGE_CONNECTION_STRING"]
    endpoint = next(part for part in connection.split(";") if part.startswith("BlobEndpoint="))
    for container, expected in ((AZURE_CONTAINER, None), ("missing-container", BucketMissing)):
        said = f"AccountName={ACCOUNT};{endpoint};SharedAccessSignature={sas_of(container)}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", said)
        with open_store(f"az://{container}/sas") as store, raises(expected):
            store.check()
            etag = store.put("key", b"x").etag
            store.put("key", b"content", condition=IfMatch(etag))
            assert store.get("key")[0] == b"content"
            assert [info.key for info in store.list()] == ["key"]


def raises(expected: type[Exception] | None) -> AbstractContextManager[object]:
    return nullcontext() if expected is None else pytest.raises(expected)


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


def test_without_a_key_the_machines_identity_asks(identity: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_u14_an_identity_endpoint_that_goes_away_later_ends_nothing(
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
