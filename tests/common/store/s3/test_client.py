"""The clients of S3: the URL of a request, proxies, TLS and profiles."""

import io
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c
from urllib3.exceptions import InsecureRequestWarning

from dev.local.certificates import Certificates
from dev.local.ports import LOOPBACK, free_port
from dev.local.stores.s3 import S3Server
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import ConfigurationError, OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import AddressingStyle, Connection, StorageOptions
from ts_common.store.wrappers.bandwidth import Allowance

SECRET = "hunter2"
OK = answer("200 OK", etag='"e"', last_modified="Sat, 21 Nov 2026 04:00:00 GMT")


def reached(location: str, connection: Connection) -> ObjectStore:
    return open_store(location, StorageOptions(connection), timeout_seconds=20)


@pytest.mark.parametrize(
    ("style", "url"),
    [
        (AddressingStyle.PATH, "http://s3.example.com/archive/base/a"),
        (AddressingStyle.VIRTUAL, "http://archive.s3.example.com/base/a"),
    ],
)
def test_requests_are_sent_through_the_proxy_to_the_service_in_the_requested_style(
    fake: FakeServer, style: AddressingStyle, url: str
) -> None:
    """The proxy records the whole URL and its own password; the signature has the region."""
    fake.answers = [OK]
    proxy = fake.endpoint.replace("http://", f"http://me:{SECRET}@")
    connection = Connection(style, "http://s3.example.com", "eu-west-9", proxy=proxy)
    with reached("s3://archive/base", connection) as store:
        store.put("a", b"x")
        store.head("a")
    assert [line.split()[:2] for line in fake.requests] == [["PUT", url], ["HEAD", url]]
    for headers in fake.headers:
        assert headers["proxy-authorization"].startswith("Basic ")
        assert "/eu-west-9/s3/" in headers["authorization"]


@pytest.mark.parametrize("style", [AddressingStyle.PATH, AddressingStyle.VIRTUAL])
def test_a_real_server_finds_the_bucket_in_either_style(
    aws: S3Server, monkeypatch: pytest.MonkeyPatch, style: AddressingStyle
) -> None:
    """With SeaweedFS; not every resolver maps names below `localhost` to the loopback address."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **named: Any) -> Any:
        return resolve(LOOPBACK if str(host).endswith("localhost") else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setenv("NO_PROXY", "localhost")
    with reached(f"s3://contract/{uuid.uuid4().hex}", Connection(style, f"http://localhost:{aws.port}")) as store:
        store.put("a", b"x", metadata={"style": style})
        assert dict(store.head("a").metadata) == {"style": style}
        assert [info.key for info in store.list()] == ["a"]


def test_no_password_of_a_proxy_is_in_an_error(fake: FakeServer) -> None:
    """The cause of the error has none either: the SDK names the proxy without it."""
    del fake
    port = free_port()
    connection = Connection(endpoint_url="http://s3.example.com", proxy=f"http://me:{SECRET}@{LOOPBACK}:{port}")
    with reached("s3://archive/base", connection) as store, pytest.raises(StoreUnavailable) as raised:
        store.head("a")
    assert str(port) in str(raised.value)
    told: BaseException | None = raised.value
    while told is not None:
        assert SECRET not in str(told)
        told = told.__cause__


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[S3Server]:
    """Start a SeaweedFS with https, a certificate of a test authority, and required client certificates."""
    directory = tmp_path_factory.mktemp("secure")
    with S3Server(directory, directory, certificates=certificates) as server:
        server.create_bucket("archive")
        yield server


@pytest.fixture
def mutual(aws: S3Server, secure: S3Server, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Return options with everything that the secure server requires."""
    del aws
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    return Connection(
        endpoint_url=secure.endpoint,
        ca_bundle=str(certificates.authority),
        client_certificate=str(certificates.client),
        client_key=str(certificates.client_key),
    )


def test_a_server_of_a_private_authority_is_accepted_and_accepts_the_client(
    mutual: Connection, secure: S3Server
) -> None:
    """Write, read and list over TLS with certificates on both sides; the server has the object."""
    with reached("s3://archive/tls", mutual) as store:
        store.put("a", b"over TLS", condition=IfAbsent())
        assert store.get("a")[0] == b"over TLS"
    with closing(secure.client()) as client:
        assert client.get_object(Bucket="archive", Key="tls/a")["Body"].read() == b"over TLS"


def test_bodies_over_tls_are_sent_at_the_allowances_rate_too(mutual: Connection) -> None:
    """A body over TLS is not read for a signature; it is sent at the allowance's rate and arrives whole."""
    content = bytes(range(256)) * 2_000
    allowance = Allowance(len(content) // 2)  # in twenty pieces, the first five at once
    with open_store("s3://archive/tls", StorageOptions(mutual), allowance=allowance) as store:
        store.put("rationed", io.BytesIO(content), size=len(content), crc32c=crc32c(content))
        assert store.get("rationed")[0] == content
    assert allowance.waited_seconds > 0


def test_certificate_and_key_may_be_one_file(mutual: Connection, certificates: Certificates, tmp_path: Path) -> None:
    """Many tools write them so."""
    both = tmp_path / "both.pem"
    both.write_bytes(certificates.client.read_bytes() + certificates.client_key.read_bytes())
    with reached("s3://archive/tls", replace(mutual, client_certificate=str(both), client_key=None)) as store:
        store.check()


def test_an_unknown_authority_is_an_operators_matter(mutual: Connection) -> None:
    """The message names the option."""
    told = pytest.raises(OperatorError, match=r"storage\.service\.endpoint\.s3\.ca\.bundle")
    with reached("s3://archive/tls", replace(mutual, ca_bundle=None)) as store, told:
        store.check()


def test_a_server_that_requires_a_certificate_rejects_a_client_without_one(mutual: Connection) -> None:
    """The client may only see a closed connection: with TLS 1.3 the reason races with the request."""
    anonymous = replace(mutual, client_certificate=None, client_key=None)
    with reached("s3://archive/tls", anonymous) as store, pytest.raises(TieredStorageError):
        store.check()


def test_the_certificate_is_not_checked_if_the_option_disables_it(mutual: Connection) -> None:
    """Only `insecure` switches the check off."""
    unseen = replace(mutual, ca_bundle=None, tls_verify=False)
    with reached("s3://archive/tls", unseen) as store, pytest.warns(InsecureRequestWarning):
        store.check()


def test_files_that_are_not_there_are_named_with_their_options(aws: S3Server) -> None:
    """All of them, before any connection."""
    del aws
    connection = Connection(ca_bundle="/no/ca.pem", client_certificate="/no/me.pem", client_key="/no/me.key")
    with pytest.raises(ConfigurationError) as refused:
        reached("s3://contract", connection)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "storage.service.endpoint.s3.ca.bundle=/no/ca.pem",
        "storage.service.endpoint.s3.client.certificate=/no/me.pem",
        "storage.service.endpoint.s3.client.key=/no/me.key",
    ]


# Profiles.


def test_a_profile_gives_credentials_and_an_unknown_one_is_named(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile of the AWS configuration files, as in every tool; it has precedence over the environment."""
    fake.answers = [OK]
    files = tmp_path / "credentials"
    files.write_text("[archive]\naws_access_key_id=of-the-profile\naws_secret_access_key=secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(files))
    with reached("s3://archive", Connection(profile="archive")) as store:
        store.check()
    assert "Credential=of-the-profile/" in fake.headers[-1]["authorization"]
    with pytest.raises(OperatorError, match="nobody"):
        reached("s3://archive", Connection(profile="nobody"))
