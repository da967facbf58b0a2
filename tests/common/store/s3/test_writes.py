"""Options of stored objects, as arguments of a put and as the server itself reports them."""

import io
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.store.servers import FakeServer, answer
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import OperatorError
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Acl, Encryption, LockMode, StorageOptions, Storing
from ts_common.store.s3.writes import check_encrypted, lock_arguments, storing_arguments

PARTITION = "prod/t-0/"
SEGMENT = [f"{PARTITION}{100:020d}{suffix}" for suffix in (".index", ".timeindex", ".txnindex", ".log")]
VARIANT = f"{PARTITION}{100:020d}.e7.1a2b3c4d.log"
SMALL = [
    f"{PARTITION}offset.wm",
    f"{PARTITION}log.start",
    f"{PARTITION}gaps/5-9.json",
    f"{PARTITION}segment-metadata/{100:020d}.json",
    ClusterKeys("prod").incarnations("t"),
]
EVERY_KIND = [*SEGMENT, VARIANT, *SMALL]


@pytest.fixture
def server(moto: MotoServer) -> Iterator[Any]:
    """Open a client of moto's S3, to read the stored objects."""
    with closing(moto.client()) as client:
        yield client


def stored(bucket: str, storing: Storing) -> ObjectStore:
    return open_store(f"s3://{bucket}/base", StorageOptions(storing=storing))


def put_every_kind(bucket: str, storing: Storing) -> None:
    with stored(bucket, storing) as store:
        for key in EVERY_KIND:
            store.put(key, io.BytesIO(key.encode()), size=len(key), metadata={"n": "1"}, condition=IfAbsent())


@pytest.mark.parametrize("key_is_named", [True, False])
def test_every_object_is_encrypted_as_requested(bucket: str, moto: MotoServer, server: Any, key_is_named: bool) -> None:
    """SSE-KMS, with the named key or the account's, and its bucket key."""
    with closing(moto.client("kms")) as kms:
        key_id = kms.create_key()["KeyMetadata"]["KeyId"] if key_is_named else None
    put_every_kind(
        bucket, Storing(server_side_encryption=Encryption.SSE_KMS, kms_key_id=key_id, bucket_key_enabled=True)
    )
    for key in EVERY_KIND:
        head = server.head_object(Bucket=bucket, Key=f"base/{key}")
        assert (head["ServerSideEncryption"], head["BucketKeyEnabled"]) == ("aws:kms", True), key
        assert head.get("SSEKMSKeyId") == key_id, key


def test_every_object_is_encrypted_twice_as_requested(bucket: str, server: Any) -> None:
    """DSSE-KMS has no bucket key; moto does not report its key."""
    put_every_kind(bucket, Storing(server_side_encryption=Encryption.DSSE_KMS))
    for key in EVERY_KIND:
        assert server.head_object(Bucket=bucket, Key=f"base/{key}")["ServerSideEncryption"] == "aws:kms:dsse", key


def test_every_object_is_encrypted_by_the_servers_own_key(bucket: str, server: Any) -> None:
    """SSE-S3."""
    put_every_kind(bucket, Storing(server_side_encryption=Encryption.SSE_S3))
    for key in EVERY_KIND:
        assert server.head_object(Bucket=bucket, Key=f"base/{key}")["ServerSideEncryption"] == "AES256", key


def test_the_storage_class_is_for_the_objects_of_segments_alone(bucket: str, server: Any) -> None:
    """Small objects, which each query reads, keep the bucket's class."""
    put_every_kind(bucket, Storing(storage_class="STANDARD_IA"))
    with stored(bucket, Storing(storage_class="STANDARD_IA")) as store:
        for key in (*SEGMENT, VARIANT):
            store.put(key, b"segment", archived=True)
        found = {info.key: info.storage_class for info in store.list()}
        assert found == {**dict.fromkeys(EVERY_KIND), **dict.fromkeys((*SEGMENT, VARIANT), "STANDARD_IA")}
        assert {key: store.head(key).storage_class for key in found} == found
    for key in (*SEGMENT, VARIANT):
        assert server.head_object(Bucket=bucket, Key=f"base/{key}")["StorageClass"] == "STANDARD_IA", key
    for key in SMALL:
        assert "StorageClass" not in server.head_object(Bucket=bucket, Key=f"base/{key}"), key


@pytest.fixture
def lockable(moto: MotoServer) -> str:
    """Create a bucket with object lock."""
    name = f"lockable-{uuid.uuid4().hex[:12]}"
    with closing(moto.client()) as client:
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


@pytest.mark.parametrize("mode", [None, LockMode.COMPLIANCE])
def test_archived_objects_alone_are_retained(lockable: str, server: Any, mode: LockMode | None) -> None:
    """Bytes and readers, from the time of the store on; commits, `log.start` and caches have no lock."""
    storing = Storing(object_lock_mode=mode, object_lock_days=3)
    put_every_kind(lockable, storing)
    with stored(lockable, storing) as store:
        for key in SEGMENT:
            store.put(key, b"segment", archived=True)
        store.put(VARIANT, io.BytesIO(b"segment"), size=7, archived=True)
        now = store.current_time()
    for key in (*SEGMENT, VARIANT):
        head = server.head_object(Bucket=lockable, Key=f"base/{key}")
        assert head["ObjectLockMode"] == (mode or "GOVERNANCE"), key
        assert abs(head["ObjectLockRetainUntilDate"].timestamp() - now - 3 * 86_400) < 60, key
    for key in SMALL:
        assert "ObjectLockMode" not in server.head_object(Bucket=lockable, Key=f"base/{key}"), key


def test_the_end_of_a_lock_is_days_after_the_stores_time() -> None:
    """A fraction of a second is left out: no header has one."""
    arguments = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": datetime(2030, 1, 3, 0, 0, 1, tzinfo=UTC)}
    now = datetime(2030, 1, 1, 0, 0, 1, 600_000, tzinfo=UTC).timestamp()
    assert lock_arguments(Storing(object_lock_days=2), now) == arguments
    assert lock_arguments(Storing(object_lock_mode=LockMode.COMPLIANCE), now) == {}


def test_every_object_bears_the_tags(bucket: str, server: Any) -> None:
    """Names and values are unchanged, with characters that a URL must escape."""
    tags = (("cost center", "a+b = c/d"), ("team", "data@example.com"))
    put_every_kind(bucket, Storing(tags=tags))
    for key in EVERY_KIND:
        found = server.get_object_tagging(Bucket=bucket, Key=f"base/{key}")["TagSet"]
        assert tuple(sorted((tag["Key"], tag["Value"]) for tag in found)) == tags, key


def test_every_object_has_the_acl(bucket: str, server: Any) -> None:
    """A canned one: here all users may read, which no bucket allows by itself."""
    everybody = "http://acs.amazonaws.com/groups/global/AllUsers"

    def readers(key: str) -> set[str]:
        grants = server.get_object_acl(Bucket=bucket, Key=f"base/{key}")["Grants"]
        return {grant["Grantee"].get("URI", "") for grant in grants if grant["Permission"] == "READ"}

    put_every_kind(bucket, Storing(acl=Acl.PUBLIC_READ))
    assert all(everybody in readers(key) for key in EVERY_KIND)
    with stored(bucket, Storing()) as store:
        store.put("plain", b"x")
    assert everybody not in readers("plain")


@pytest.fixture
def fake_answer() -> bytes:
    return answer("200 OK", etag='"e"')


def test_a_store_that_ignores_encryption_is_refused(fake: FakeServer, fake_answer: bytes) -> None:
    """S3 confirms the encryption in its response; a store without a confirmation did not encrypt."""
    fake.answers = [fake_answer]
    ignored = pytest.raises(OperatorError, match=r"server.side.encryption=AES256, but the store confirms no encryption")
    with stored("archive", Storing(server_side_encryption=Encryption.SSE_S3)) as store, ignored:
        store.put("a", b"x")
    with stored("archive", Storing()) as store:
        store.put("a", b"x")


def test_only_options_that_are_set_are_arguments() -> None:
    """The bucket decides on all others."""
    assert storing_arguments(Storing(), archived=True) == {}
    storing = Storing(
        server_side_encryption=Encryption.SSE_KMS,
        kms_key_id="k",
        bucket_key_enabled=False,
        storage_class="STANDARD_IA",
        tags=(("cost center", "a+b"), ("team", "data")),
        acl=Acl.PRIVATE,
    )
    arguments = {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "k",
        "BucketKeyEnabled": False,
        "Tagging": "cost+center=a%2Bb&team=data",
        "ACL": "private",
    }
    assert storing_arguments(storing, archived=False) == arguments
    assert storing_arguments(storing, archived=True) == {**arguments, "StorageClass": "STANDARD_IA"}


@pytest.mark.parametrize(("done", "shown"), [(None, "no encryption"), ("AES256", "AES256")])
def test_another_encryption_than_the_requested_one_is_an_error(done: str | None, shown: str) -> None:
    """The object exists without it, so the operator must act; without a request any encryption is right."""
    answer = {} if done is None else {"ServerSideEncryption": done}
    kms = Storing(server_side_encryption=Encryption.SSE_KMS)
    with pytest.raises(OperatorError, match=f"key: requested .*=aws:kms, but the store confirms {shown}"):
        check_encrypted(kms, answer, "key")
    check_encrypted(kms, {"ServerSideEncryption": "aws:kms"}, "key")
    check_encrypted(Storing(), answer, "key")
