"""Connections to S3: the URL of a request, proxies, TLS and credentials."""

import http.client
import io
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from awscrt.checksums import crc32c
from botocore.exceptions import SSLError
from urllib3.exceptions import InsecureRequestWarning

from tests.common.store.servers import FakeServer, answer
from ts_common.errors import AccessDenied, ConfigurationError, OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import AddressingStyle, Connection, StorageOptions
from ts_common.store.s3.errors import translate
from ts_common.store.wrappers.bandwidth import Allowance
from ts_local.certificates import Certificates
from ts_local.ports import LOOPBACK, free_port
from ts_local.stores.moto import MotoServer
from ts_local.stores.s3 import S3Server

ROLE = "arn:aws:iam::123456789012:role/archive"
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
def test_requests_go_through_the_proxy_to_the_service_in_the_style_that_was_asked_for(
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
    server = S3Server(directory, directory, certificates=certificates)
    server.start()
    try:
        server.create_bucket("archive")
        yield server
    finally:
        server.kill()


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


def test_a_server_of_an_own_authority_is_believed_and_believes_us(mutual: Connection, secure: S3Server) -> None:
    """Write, read and list over TLS with certificates on both sides; the server has the object."""
    with reached("s3://archive/tls", mutual) as store:
        store.put("a", b"over TLS", condition=IfAbsent())
        assert store.get("a")[0] == b"over TLS"
    with closing(secure.client()) as client:
        assert client.get_object(Bucket="archive", Key="tls/a")["Body"].read() == b"over TLS"


def test_bodies_over_tls_take_their_turns_too(mutual: Connection) -> None:
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


def test_a_server_that_asks_for_a_certificate_refuses_who_shows_none(mutual: Connection) -> None:
    """The client may only see a closed connection: with TLS 1.3 the reason races with the request."""
    anonymous = replace(mutual, client_certificate=None, client_key=None)
    with reached("s3://archive/tls", anonymous) as store, pytest.raises(TieredStorageError):
        store.check()


@pytest.mark.parametrize("alert", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"])
def test_a_reason_that_is_heard_is_an_operators_matter(alert: str) -> None:
    """OpenSSL's names of the alerts; a retry would not help."""
    refused = SSLError(endpoint_url="https://s3", error=OSError(f"[SSL: {alert}] (_ssl.c:2580)"))
    told = translate(refused, Call("HeadBucket", "s3://archive"))
    assert type(told) is OperatorError
    assert "storage.service.endpoint.s3.client.certificate" in str(told)


def test_nobody_looks_at_the_certificate_where_that_was_said(mutual: Connection) -> None:
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


# Credentials.


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


def assumed(name: str, seconds: int) -> bytes:
    """Return STS's response: a session with this access key and this duration."""
    expires = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return answer(
        "200 OK",
        f"<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{name}</AccessKeyId>"
        f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>token-{SECRET}</SessionToken>"
        f"<Expiration>{expires}</Expiration></Credentials><AssumedRoleUser><Arn>a</Arn><AssumedRoleId>r</AssumedRoleId>"
        "</AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>".encode(),
        content_type="text/xml",
    )


def refusal(status: str, code: str) -> bytes:
    """Return an error response of STS."""
    said = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    return answer(status, said.encode(), content_type="text/xml")


def test_a_role_is_assumed_anew_before_its_session_ends(fake: FakeServer) -> None:
    """A session of an hour serves all requests; one that ends within minutes is renewed before the next request."""
    fake.answers = [assumed("short", 60), OK, assumed("long", 3600), OK, OK]
    with reached(
        "s3://archive", Connection(role_arn=ROLE, external_id="theirs", role_session_name="broker-1")
    ) as store:
        for _ in range(3):
            store.check()
    signers = [headers["authorization"].split("Credential=")[1].split("/")[0] for headers in fake.headers]
    assert signers == ["who", "short", "who", "long", "long"]
    asked = parse_qs(fake.bodies[0].decode())
    assert {name: asked[name] for name in ("RoleArn", "ExternalId", "RoleSessionName")} == {
        "RoleArn": [ROLE],
        "ExternalId": ["theirs"],
        "RoleSessionName": ["broker-1"],
    }
    assert [headers.get("x-amz-security-token") for headers in fake.headers][3] == f"token-{SECRET}"


@pytest.mark.parametrize(
    ("refused", "kind", "said"),
    [
        (refusal("403 Forbidden", "AccessDenied"), AccessDenied, "role.arn cannot be assumed"),
        (refusal("503 Service Unavailable", "ServiceUnavailable"), StoreUnavailable, "no role for"),
        (refusal("400 Bad Request", "Throttling"), StoreUnavailable, "no role for"),
    ],
)
def test_a_role_that_cannot_be_assumed_is_told_as_that(
    fake: FakeServer, refused: bytes, kind: type[TieredStorageError], said: str
) -> None:
    """The put was not sent, so its outcome is not unknown; no message contains a secret."""
    fake.answers = [refused]
    connection = Connection(role_arn=ROLE, external_id=SECRET)
    with reached("s3://archive", connection) as store, pytest.raises(kind, match=said) as raised:
        store.put("a", b"x")
    assert "AssumeRole" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_role_is_assumed_in_the_region_that_the_environment_names(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only AWS_REGION is set, which the SDK does not read: STS of another region would be called."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    fake.answers = [assumed("short", 3600), OK]
    with reached("s3://archive", Connection(role_arn=ROLE)) as store:
        store.check()
    assert "/eu-west-3/sts/" in fake.headers[0]["authorization"]
    assert "/eu-west-3/s3/" in fake.headers[1]["authorization"]


def test_a_role_needs_somebody_to_assume_it(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    """Without credentials the message names the ways to set them."""
    del fake
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(AccessDenied, match="set AWS_ACCESS_KEY_ID"):
        reached("s3://archive", Connection(role_arn=ROLE)).check()


@pytest.fixture
def only_the_role(moto: MotoServer, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Create a user of moto that may only assume a role, and a role that may use S3; return the role's ARN."""

    def policy(action: str) -> str:
        return f'{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":"{action}","Resource":"*"}}]}}'

    name = f"archive-{bucket}"
    with closing(moto.client("iam")) as iam:
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=policy("sts:AssumeRole"))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy("sts:AssumeRole"))["Role"]["Arn"]
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy("s3:*"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])

    def look_at_rights_after(calls: str) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, moto.port, timeout=20)
        with closing(connection):
            connection.request("POST", "/moto-api/reset-auth", calls.encode())
            assert connection.getresponse().status == http.client.OK

    look_at_rights_after("0")
    try:
        yield role
    finally:
        look_at_rights_after("inf")


def test_who_may_nothing_else_works_as_the_role(only_the_role: str, bucket: str) -> None:
    """With moto's STS and IAM: denied without the role, and every call of the contract works with it."""
    with reached(f"s3://{bucket}/base", Connection()) as store, pytest.raises(AccessDenied):
        store.put("a", b"x")
    with reached(f"s3://{bucket}/base", Connection(role_arn=only_the_role)) as store:
        store.check()
        etag = store.put("a", b"x", condition=IfAbsent()).etag
        assert store.head("a").etag == etag
        assert store.get("a")[0] == b"x"
        assert [info.key for info in store.list()] == ["a"]
