"""Assumed roles: their sessions, and failures of STS."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest

from dev.local.ports import LOOPBACK
from dev.local.stores.moto import MotoServer
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import AccessDenied, StoreUnavailable, TieredStorageError
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Connection, StorageOptions

ROLE = "arn:aws:iam::123456789012:role/archive"


SECRET = "hunter2"


OK = answer("200 OK", etag='"e"', last_modified="Sat, 21 Nov 2026 04:00:00 GMT")


def reached(location: str, connection: Connection) -> ObjectStore:
    return open_store(location, StorageOptions(connection), timeout_seconds=20)


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


def test_a_role_is_assumed_again_before_its_session_ends(fake: FakeServer) -> None:
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


def test_a_failed_renewal_is_one_line_in_the_log(fake: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    """The SDK logs a traceback and raises the error too, which the caller logs with what to do."""
    fake.answers = [assumed("short", 60), OK, refusal("403 Forbidden", "AccessDenied")]
    with reached("s3://archive", Connection(role_arn=ROLE)) as store:
        store.check()
        with pytest.raises(AccessDenied, match=r"role\.arn cannot be assumed"):
            store.check()
    records = [record for record in caplog.records if record.name == "botocore.credentials"]
    assert [record.exc_info for record in records] == [None]
    assert "AccessDenied" in records[0].getMessage()


@pytest.mark.parametrize(
    ("refused", "kind", "said"),
    [
        (refusal("403 Forbidden", "AccessDenied"), AccessDenied, "role.arn cannot be assumed"),
        (refusal("503 Service Unavailable", "ServiceUnavailable"), StoreUnavailable, "no role for"),
        (refusal("400 Bad Request", "Throttling"), StoreUnavailable, "no role for"),
    ],
)
def test_a_role_that_cannot_be_assumed_is_reported_as_such(
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


def test_a_role_needs_credentials_to_be_assumed(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
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
