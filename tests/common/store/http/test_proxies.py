"""Stores behind a proxy: its selection, its credentials, and lost responses."""

import base64
from collections.abc import Callable, Iterator

import pytest
import urllib3
from botocore.exceptions import ProxyConnectionError

from dev.local.ports import LOOPBACK, free_port
from dev.local.stores.azurite import ACCOUNT, KEY
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.http.client import no_answer
from ts_common.store.http.proxies import Pools, proxy_of
from ts_common.store.s3.error_translation import translate

PUT = Call("PUT", "s3://bucket/key", writes=True)
Behind = Callable[[str], ObjectStore]


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Behind:
    """Return a function that opens a store whose service is reached only through a proxy."""
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION"):
        monkeypatch.setenv(f"AWS_{name}", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example.com")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://store.example.com")
    endpoint = f"BlobEndpoint=http://store.example.com/{ACCOUNT}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName={ACCOUNT};AccountKey={KEY};{endpoint}")
    return lambda kind: open_store(f"{kind}://bucket/base", timeout_seconds=5)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, behind: Behind) -> Iterator[FakeServer]:
    """Start the proxy, which answers in place of the service."""
    del behind
    with FakeServer() as server:
        monkeypatch.setenv("HTTP_PROXY", server.endpoint)
        yield server


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_u14_a_put_whose_response_a_proxy_lost_is_reported_as_unknown(
    behind: Behind, proxy: FakeServer, kind: str
) -> None:
    """The put was done: a close without a response is not "no connection", although urllib3 calls it a proxy error."""
    proxy.answers = [b""]
    with behind(kind) as store, pytest.raises(OutcomeUnknown, match="base/key"):
        store.put("key", b"x", condition=IfAbsent())
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_a_proxy_that_is_not_there_is_no_unknown_outcome(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nothing can have been written through it."""
    monkeypatch.setenv("HTTP_PROXY", f"http://{LOOPBACK}:{free_port()}")
    with behind(kind) as store, pytest.raises(StoreUnavailable, match="no connection"):
        store.put("key", b"x", condition=IfAbsent())


def test_a_tunnel_that_a_proxy_refuses_is_no_unknown_outcome(proxy: FakeServer) -> None:
    """The proxy rejected CONNECT, so the put was not sent; urllib3 raises this error."""
    proxy.answers = [answer("403 Forbidden")]
    with (
        urllib3.ProxyManager(proxy.endpoint, retries=False) as pool,
        pytest.raises(urllib3.exceptions.ProxyError) as refused,
    ):
        pool.request("PUT", "https://store.example.com/key", body=b"x")
    for told in (
        no_answer(refused.value, PUT),
        translate(ProxyConnectionError(proxy_url="p", error=refused.value), PUT),
    ):
        assert isinstance(told, StoreUnavailable)
        assert "no connection" in str(told)


@pytest.mark.parametrize("kind", ["gs", "az", "webhdfs"])
def test_a_proxy_is_accepted_without_its_scheme_and_used_with_its_password(
    behind: Behind, proxy: FakeServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As curl reads HTTPS_PROXY; special characters are percent-encoded."""
    monkeypatch.setenv("HTTP_PROXY", proxy.endpoint.replace("http://", "me:p%40ss@"))
    proxy.answers = [answer("403 Forbidden")]
    url = "webhdfs://namenode.example.com:9870/tests" if kind == "webhdfs" else f"{kind}://bucket/base"
    with open_store(url, timeout_seconds=5) as store, pytest.raises(TieredStorageError):
        list(store.list())
    assert proxy.requests[0].split()[1].startswith("http://")
    said = proxy.headers[0]["proxy-authorization"]
    assert base64.b64decode(said.removeprefix("Basic ")) == b"me:p@ss"


@pytest.mark.parametrize("said", ["socks5://proxy:1080", "http://", "http://proxy:port", "://"])
def test_an_invalid_proxy_is_rejected_and_its_password_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Opening the store names the variable."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", said.replace("://", "://me:hunter2@"))
    with pytest.raises(ConfigurationError, match=r"HTTPS_PROXY .*http://proxy:3128") as refused:
        proxy_of("https://storage.googleapis.com")
    assert "hunter2" not in str(refused.value)


def test_a_machines_own_metadata_server_is_never_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would reach its own metadata server or none; other hosts use the proxy unless NO_PROXY names them."""
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", "near.example.com")
    assert proxy_of("http://169.254.169.254/computeMetadata/v1/") is None
    assert proxy_of("http://metadata.google.internal/computeMetadata/v1/") is None
    assert proxy_of("http://near.example.com/") is None
    found = proxy_of("http://far.example.com/")
    assert found is not None
    assert found.url == "http://proxy:3128"


def test_googles_tokens_are_requested_through_the_proxy(
    behind: Behind, proxy: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its password; a gateway without a response is an error."""
    del behind
    monkeypatch.setenv("HTTP_PROXY", proxy.endpoint.replace("http://", "me:hunter2@"))
    proxy.answers = [answer("200 OK", b"{}"), answer("502 Bad Gateway")]
    pools = Pools()
    assert pools.request("POST", "http://oauth2.example.com/token", body=b"x").data == b"{}"
    assert proxy.requests == ["POST http://oauth2.example.com/token HTTP/1.1"]
    assert proxy.headers[0]["proxy-authorization"].startswith("Basic ")
    with pytest.raises(urllib3.exceptions.HTTPError, match="502"):
        pools.request("POST", "http://oauth2.example.com/token", body=b"x")
