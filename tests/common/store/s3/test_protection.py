"""Versions and object lock of real servers, and what S3 leaves out of its responses without a permission."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from dev.local.stores.s3 import S3Server
from tests.common.store.conftest import OpenStore
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import AccessDenied, ObjectNotFound, StoreUnavailable
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.protection import HiddenBytes, Lock, Protection

DATE = "Sun, 22 Nov 2026 02:33:34 GMT"
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)
NOW = UNTIL.timestamp() - 1


def head(**headers: str) -> bytes:
    """Return a response to HeadObject."""
    return answer("200 OK", b"", etag='"e"', last_modified=DATE, **headers)


@pytest.fixture(params=["SeaweedFS", "moto"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Server | MotoServer:
    """Return each of the two servers with object lock, which the environment names."""
    found: S3Server | MotoServer
    if request.param == "moto":
        found = request.getfixturevalue("moto")
    else:
        request.getfixturevalue("aws")
        found = request.getfixturevalue("s3_server")
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def locked(server: S3Server | MotoServer) -> Iterator[tuple[Any, str, ObjectStore]]:
    """Return a client of the server, a bucket with object lock, and a store in it."""
    bucket = f"locked-{uuid.uuid4().hex[:12]}"
    client: Any = server.client()
    with closing(client), open_store(f"s3://{bucket}/base", timeout_seconds=20) as store:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        yield client, bucket, store


def test_a_delete_hides_a_locked_object_and_its_lock_is_found_first(locked: tuple[Any, str, ObjectStore]) -> None:
    """DELETE answers 204 and readers no longer find the object; its bytes stay, as a version that nothing removes."""
    client, bucket, store = locked
    locks: dict[str, dict[str, Any]] = {
        "t-0/retained": {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": UNTIL},
        "t-0/held": {"ObjectLockLegalHoldStatus": "ON"},
    }
    for key, lock in locks.items():
        client.put_object(Bucket=bucket, Key=f"base/{key}", Body=b"12345", **lock)
    assert store.protection() == Protection(versioned=True, locks=True, default_retention=None)
    assert store.locked([*locks, "t-0/never"], NOW) == {
        "t-0/retained": Lock(UNTIL.timestamp(), legal_hold=False, mode="COMPLIANCE"),
        "t-0/held": Lock(None, legal_hold=True, mode=""),
    }
    assert store.locked(["t-0/retained"], UNTIL.timestamp()) == {}
    with pytest.raises(ObjectNotFound):
        store.locked_until("t-0/never")
    assert store.hidden_bytes("t-0/") == HiddenBytes(0, 0, 0)
    for key in locks:
        deleted = client.delete_object(Bucket=bucket, Key=f"base/{key}")
        assert deleted["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.NO_CONTENT
        with pytest.raises(ObjectNotFound):
            store.head(key)
    assert store.hidden_bytes("t-0/") == store.hidden_bytes() == HiddenBytes(2, 10, 2)
    assert store.hidden_bytes("t-1/") == HiddenBytes(0, 0, 0)
    for version in [each for each in store.versions("t-0/") or () if not each.is_delete_marker]:
        found = store.version_lock(version)
        assert found is not None
        assert (found.until, found.legal_hold) == ((UNTIL.timestamp(), False) if found.mode else (None, True))
        with pytest.raises(AccessDenied):
            store.delete_version(version)
    assert store.hidden_bytes("t-0/") == HiddenBytes(2, 10, 2)


def test_a_default_retention_is_read_and_an_object_without_a_lock_has_none(
    s3_server: S3Server, aws: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object is put before the default, and one after it; an identity without the rights cannot read either."""
    bucket = f"locked-{uuid.uuid4().hex[:12]}"
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with closing(s3_server.client()) as client, open_store(f"s3://{bucket}/base", timeout_seconds=20) as store:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        store.put("before", b"x")
        client.put_object_lock_configuration(
            Bucket=bucket,
            ObjectLockConfiguration={
                "ObjectLockEnabled": "Enabled",
                "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}},
            },
        )
        store.put("after", b"x")
        assert store.protection() == Protection(versioned=True, locks=True, default_retention="1 day (GOVERNANCE)")
        assert store.locked_until("before") is None
        lock = store.locked_until("after")
        assert lock is not None
        assert lock.until == pytest.approx(store.head("after").modified + timedelta(days=1).total_seconds(), abs=60)
        assert (lock.legal_hold, lock.mode) == (False, "GOVERNANCE")
    del aws


def test_an_identity_that_may_not_read_the_configuration_is_denied(open_s3: OpenStore) -> None:
    """Otherwise a bucket with object lock would look like one without."""
    with pytest.raises(AccessDenied, match="allow this identity s3:GetBucketObjectLockConfiguration on the bucket"):
        open_s3("s3://contract/base").protection()


def test_a_bucket_without_versions_hides_nothing(moto: MotoServer, bucket: str) -> None:
    """Versions that were suspended still count: the bucket keeps those that it has."""
    with closing(moto.client()) as client, open_store(f"s3://{bucket}/base") as store:
        store.put("a", b"x")
        assert store.protection() == Protection(versioned=False, locks=False, default_retention=None)
        assert store.hidden_bytes() == HiddenBytes(0, 0, 0)
        for status in ("Enabled", "Suspended"):
            client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
            assert store.protection().versioned


def test_more_versions_than_a_page_are_counted(far: ObjectStore, fake: FakeServer) -> None:
    """The versions of one object can end on another page; the next request names key and version."""
    named = f"<VersionId>v</VersionId><LastModified>{UNTIL.isoformat()}</LastModified><IsLatest>"
    version = f"<Version><Key>base/a</Key><ETag>e</ETag>{named}{{}}</IsLatest><Size>{{}}</Size></Version>".format
    marker = f"<DeleteMarker><Key>base/b</Key>{named}true</IsLatest></DeleteMarker>"
    truncated = "<IsTruncated>true</IsTruncated><NextKeyMarker>base/a</NextKeyMarker>"
    more = f"{truncated}<NextVersionIdMarker>{{}}</NextVersionIdMarker>"
    pages = [
        version("true", 1000) + version("false", 1) + more.format("v1"),
        version("false", 20) + more.format("v2"),
        version("false", 300) + marker,
    ]
    fake.answers = [answer("200 OK", f"<ListVersionsResult>{page}</ListVersionsResult>".encode()) for page in pages]
    assert far.hidden_bytes() == HiddenBytes(3, 321, 1)
    assert "key-marker=base%2Fa" in fake.requests[-1]
    assert "version-id-marker=v2" in fake.requests[-1]


def test_a_lock_that_head_omits_is_read_separately(far: ObjectStore, fake: FakeServer) -> None:
    """AWS answers HEAD without the headers to an identity without the permissions, as for an object without a lock."""
    retention = f"<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{UNTIL.isoformat()}</RetainUntilDate></Retention>"
    fake.answers = [
        head(),
        answer("200 OK", retention.encode()),
        error("404 Not Found", "NoSuchObjectLockConfiguration"),
    ]
    assert far.locked_until("a") == Lock(UNTIL.timestamp(), legal_hold=False, mode="COMPLIANCE")
    assert [request.split()[1].partition("?")[2] for request in fake.requests[-2:]] == ["retention", "legal-hold"]


@pytest.mark.parametrize(
    ("answers", "permission"),
    [
        (["403 Forbidden"], "s3:GetObjectRetention on the key"),
        (["404 Not Found", "403 Forbidden"], "s3:GetObjectLegalHold on the key"),
    ],
)
def test_a_missing_permission_is_an_error_and_no_object_without_a_lock(
    far: ObjectStore, fake: FakeServer, answers: list[str], permission: str
) -> None:
    """The message names the permission."""
    codes = {"403 Forbidden": "AccessDenied", "404 Not Found": "NoSuchObjectLockConfiguration"}
    fake.answers = [head(), *(error(status, codes[status]) for status in answers)]
    with pytest.raises(AccessDenied, match=f"s3://archive/base/a: .*allow this identity {permission}"):
        far.locked(["a"], NOW)


def test_a_store_that_does_not_support_the_requests_has_no_lock_that_head_does_not_show(
    far: ObjectStore, fake: FakeServer
) -> None:
    """It has neither versions nor locks, and lists no versions."""
    fake.answers = [head(), *[error("501 Not Implemented", "NotImplemented")] * 5]
    assert far.locked_until("a") is None
    assert far.protection() == Protection(versioned=False, locks=False, default_retention=None)
    assert far.hidden_bytes() is None


@pytest.mark.parametrize(
    "page",
    [
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextKeyMarker>base/a</NextKeyMarker>",
        "<Version><Key>elsewhere/a</Key><IsLatest>false</IsLatest><Size>1</Size></Version>",
        "<Version><Key>base/a</Key><IsLatest>false</IsLatest><Size>-1</Size></Version>",
        "<Version><Key>base/a</Key></Version>",
    ],
)
def test_a_listing_of_versions_that_no_store_sends_is_no_answer(far: ObjectStore, fake: FakeServer, page: str) -> None:
    """A truncated page without a next one, or the same again; another key, a size below zero, missing elements."""
    fake.answers = [answer("200 OK", f"<ListVersionsResult>{page}</ListVersionsResult>".encode())] * 2
    with pytest.raises(StoreUnavailable, match="ListObjectVersions s3://archive/base"):
        far.hidden_bytes()


def test_a_retention_without_a_date_is_no_answer(far: ObjectStore, fake: FakeServer) -> None:
    """The object can be locked: it does not count as one without a lock."""
    fake.answers = [head(x_amz_object_lock_mode="COMPLIANCE")]
    with pytest.raises(StoreUnavailable, match="a retention of mode COMPLIANCE without a date"):
        far.locked_until("a")
