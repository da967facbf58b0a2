"""Tokens of Google: their sources, and which failures are denials."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.common.store.servers import FakeServer, answer
from ts_common.errors import AccessDenied, ConfigurationError, StoreUnavailable, TieredStorageError
from ts_common.store.gcs.storage_service import GcsService, gcs_service
from ts_common.store.http.driver import HttpStore

ROOT = Path(__file__).parents[4]
SAID = {"access_token": "t0ken", "expires_in": 3600, "token_type": "Bearer", "email": "default", "scopes": []}
TOKEN = answer("200 OK", json.dumps(SAID).encode(), content_type="application/json", metadata_flavor="Google")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """Start the metadata server of a machine of Google, with a token; retries have no pause."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("NO_GCE_CHECK", "")
    monkeypatch.setattr("google.auth._exponential_backoff.time", SimpleNamespace(sleep=lambda _seconds: None))
    with FakeServer() as server:
        host = server.endpoint.removeprefix("http://")
        monkeypatch.setenv("GCE_METADATA_IP", host)
        # google-auth reads GCE_METADATA_HOST once, when it is imported.
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", host)
        server.answers = [TOKEN]
        yield server


def test_the_machines_service_account_requests_the_token(machine: FakeServer) -> None:
    """google-auth reads a token from the metadata server, once for many requests."""
    with FakeServer() as server:
        service = gcs_service("bucket", {})
        told = GcsService("bucket", server.endpoint, service._token)
        server.answers = [answer("200 OK", b'{"kind": "storage#objects"}')]
        with HttpStore(told) as store:
            store.check()
            store.check()
    assert [headers["authorization"] for headers in server.headers] == ["Bearer t0ken"] * 2
    assert sum("token" in line for line in machine.requests) == 1


# Google's token, with only the modules of these distributions.
ASKS_ALONE = """
import sys
from importlib import metadata

listed = set(sys.argv[1:])
bring = metadata.packages_distributions()
missing = {module for module, names in bring.items() if not listed & {name.lower().replace("_", "-") for name in names}}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
from ts_common.store.gcs.storage_service import gcs_service
print(gcs_service("bucket", {})._token())
"""


def test_the_extra_installs_all_that_a_machines_service_account_needs(
    machine: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """google-auth needs `requests` to find it; without it there are no credentials and no reason in the error."""
    monkeypatch.setenv("GCE_METADATA_HOST", machine.endpoint.removeprefix("http://"))
    lines = (ROOT / "requirements/gcs.txt").read_text().splitlines()
    listed = [line.partition("==")[0] for line in lines if "==" in line]
    command = [sys.executable, "-c", ASKS_ALONE, "ts-uploader", *listed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "t0ken", done.stderr


@pytest.mark.parametrize(
    "away",
    [b"", answer("503 Service Unavailable"), answer("502 Bad Gateway"), answer("200 OK", b"<html>no JSON</html>")],
)
def test_u14_a_metadata_server_that_is_away_is_no_refusal(machine: FakeServer, away: bytes) -> None:
    """google-auth raises the error of a denial; the agent must neither end nor require an operator."""
    store = HttpStore(gcs_service("bucket", {}))
    machine.answers = [away]
    with store, pytest.raises(StoreUnavailable, match="no token for Google Cloud Storage"):
        store.check()


def test_a_token_names_its_service_account(token_server: FakeServer) -> None:
    """The e-mail of a service account's file."""
    token_server.answers = [TOKEN]
    with HttpStore(gcs_service("bucket", {})) as store:
        assert store.identity() == "me@project"


def test_a_machine_without_a_service_account_is_reported_with_a_remedy(machine: FakeServer) -> None:
    """The metadata server answers that it has none, so a retry would not help."""
    store = HttpStore(gcs_service("bucket", {}))
    machine.answers = [answer("404 Not Found", b"no such account")]
    with store, pytest.raises(AccessDenied, match="attach a service account"):
        store.check()


@pytest.fixture(scope="module")
def private_key() -> str:
    """Return the private key of a service account, in PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def token_server(
    machine: FakeServer, private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeServer]:
    """Start the token server of a service account's file, which the environment names."""
    del machine
    with FakeServer() as server:
        said = {"type": "service_account", "client_email": "me@project", "private_key": private_key}
        path = tmp_path / "key.json"
        path.write_text(json.dumps(said | {"token_uri": f"{server.endpoint}/token"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        yield server


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (answer("503 Service Unavailable", b"busy"), StoreUnavailable),
        (answer("502 Bad Gateway", b"<html>busy</html>"), StoreUnavailable),
        (b"", StoreUnavailable),
        (
            answer("400 Bad Request", b'{"error": "invalid_grant", "error_description": "no such account"}'),
            AccessDenied,
        ),
    ],
)
def test_u14_a_token_server_that_fails_is_no_refusal(
    token_server: FakeServer, told: bytes, expected: type[TieredStorageError]
) -> None:
    """Only a response with that error is a denial."""
    token_server.answers = [told]
    with HttpStore(gcs_service("bucket", {})) as store, pytest.raises(expected, match="no token"):
        store.check()


def test_without_google_auth_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra, which S3 does not require."""
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ts-uploader\[gcs\]'"):
        gcs_service("bucket", {})


def test_without_credentials_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """google-auth's message names what it reads, and the project's message what to do."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(ConfigurationError, match=r"no credentials.*gcloud auth application-default login"):
        gcs_service("bucket", {})
