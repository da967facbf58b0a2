"""The S3 server: conditional writes, identities, many buckets."""

import pytest
from botocore.exceptions import ClientError

from dev.local.stores.s3 import S3Server

# `tests/common/store` and each test with a cluster have the same server, and fail without what these tests name.
pytestmark = pytest.mark.full


def test_an_object_is_read_with_its_metadata(s3: S3Server) -> None:
    """Put, ranged get and head agree."""
    client = s3.client()
    client.put_object(Bucket="archive", Key="a/b", Body=b"0123456789", Metadata={"end": "42"})
    got = client.get_object(Bucket="archive", Key="a/b", Range="bytes=2-4")
    with got["Body"] as body:
        assert body.read() == b"234"
    assert client.head_object(Bucket="archive", Key="a/b")["Metadata"] == {"end": "42"}
    client.close()


def test_if_none_match_refuses_to_overwrite(s3: S3Server) -> None:
    """The second conditional put answers 412 and changes nothing."""
    client = s3.client()
    client.put_object(Bucket="archive", Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket="archive", Key="once", Body=b"second", IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    with client.get_object(Bucket="archive", Key="once")["Body"] as body:
        assert body.read() == b"first"
    client.close()


def test_if_match_refuses_a_changed_object(s3: S3Server) -> None:
    """A put on condition of an old ETag answers 412."""
    client = s3.client()
    old = client.put_object(Bucket="archive", Key="commit", Body=b"1")["ETag"]
    client.put_object(Bucket="archive", Key="commit", Body=b"2", IfMatch=old)
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket="archive", Key="commit", Body=b"3", IfMatch=old)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    client.close()


def test_the_restricted_identity_uses_buckets_and_creates_none(s3: S3Server) -> None:
    """It writes to existing buckets and lists them; neither CreateBucket nor a put creates one."""
    client = s3.client(s3.restricted)
    client.put_object(Bucket="archive", Key="mine", Body=b"x")
    client.head_bucket(Bucket="archive")
    listed = client.list_objects_v2(Bucket="archive", Prefix="mine")
    assert [entry["Key"] for entry in listed["Contents"]] == ["mine"]
    client.delete_object(Bucket="archive", Key="mine")
    with pytest.raises(ClientError, match="AccessDenied"):
        client.create_bucket(Bucket="wished")
    with pytest.raises(ClientError):
        client.put_object(Bucket="wished", Key="a", Body=b"x")
    client.close()
    admin = s3.client()
    assert "wished" not in {bucket["Name"] for bucket in admin.list_buckets()["Buckets"]}
    admin.close()


def test_many_buckets_do_not_run_out_of_volumes(s3: S3Server) -> None:
    """Each bucket uses several volumes from its first write; twenty buckets still have theirs."""
    client = s3.client()
    for number in range(20):
        bucket = s3.create_bucket(f"bucket-{number}")
        client.put_object(Bucket=bucket, Key="a", Body=b"x" * 100_000)
    client.close()


def test_objects_survive_kill_and_restart(s3: S3Server) -> None:
    """What was acknowledged is read after kill -9, at the same endpoint."""
    client = s3.client()
    client.put_object(Bucket="archive", Key="kept", Body=b"kept")
    s3.kill()
    s3.start()
    with client.get_object(Bucket="archive", Key="kept")["Body"] as body:
        assert body.read() == b"kept"
    client.close()


def test_the_environment_is_all_that_a_client_needs(s3: S3Server) -> None:
    """Endpoint, key and region, as the AWS chain reads them, whatever the environment contained before."""
    assert s3.environment(s3.restricted) == {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ENDPOINT_URL_S3": s3.endpoint,
        "AWS_SESSION_TOKEN": "",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "AWS_ACCESS_KEY_ID": s3.restricted.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.restricted.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    assert s3.restricted.secret_key not in repr(s3.restricted)
