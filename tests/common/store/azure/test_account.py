"""The account of Azure and its credentials."""

import base64
import hashlib
import hmac
from contextlib import AbstractContextManager, nullcontext
from urllib.parse import urlencode

import pytest

from dev.local.stores.azurite import ACCOUNT, KEY, AzuriteServer
from tests.common.store.servers import FakeServer, answer
from tests.conftest import AZURE_CONTAINER
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
)
from ts_common.store.azure.account import account_of
from ts_common.store.contract import IfMatch
from ts_common.store.factory import open_store


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
            store.copy_if_absent("key", "copy")
            assert store.get("copy")[0] == b"content"


def raises(expected: type[Exception] | None) -> AbstractContextManager[object]:
    return nullcontext() if expected is None else pytest.raises(expected)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"AZURE_STORAGE_KEY": KEY}, "acc/key"),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&skoid=0a-1&sig=s%2Bs"}, "acc/skoid:0a-1"),
        ({"AZURE_STORAGE_SAS_TOKEN": "si=my+policy&sig=s%2Bs"}, "acc/si:my+policy"),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=s%2Bs"}, "acc/sig:b8919ad1fc22c6da"),
    ],
)
def test_credentials_name_whose_they_are(environment: dict[str, str], found: str) -> None:
    """All who have the key are one identity; a SAS is of its user, its policy, or only itself."""
    assert account_of({"AZURE_STORAGE_ACCOUNT": "acc", **environment}).identity() == found
