"""Copies by S3: requests, responses, and faults between the two."""

from contextlib import closing

import pytest

from dev.local.proxy.actions import CutBefore, LandLate, SwallowAnswer
from dev.local.proxy.s3 import Rule, S3FaultProxy
from dev.local.stores.moto import MotoServer
from dev.local.stores.s3 import S3Server
from dev.local.waiting import wait_for
from tests.common.store.conftest import BUCKET, OpenStore
from tests.common.store.s3.calls import ok
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Acl, Encryption, StorageOptions, Storing

COPIED = answer(
    "200 OK", b'<CopyObjectResult><ETag>"e"</ETag><LastModified>2026-11-21</LastModified></CopyObjectResult>'
)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("412 Precondition Failed", "PreconditionFailed", PreconditionFailed),
        ("404 Not Found", "NoSuchKey", ObjectNotFound),
        ("404 Not Found", "NoSuchBucket", BucketMissing),
        ("404 Not Found", "", StoreUnavailable),
        ("409 Conflict", "ConditionalRequestConflict", OutcomeUnknown),
        ("500 Internal Server Error", "InternalError", OutcomeUnknown),
        ("503 Service Unavailable", "ServiceUnavailable", OutcomeUnknown),
        ("503 Slow Down", "SlowDown", StoreThrottled),
        ("403 Forbidden", "AccessDenied", AccessDenied),
        ("501 Not Implemented", "NotImplemented", OperatorError),
        ("200 OK", "InternalError", OutcomeUnknown),
        ("200 OK", "SlowDown", OutcomeUnknown),
        ("200 OK", "PreconditionFailed", PreconditionFailed),
        ("200 OK", "NoSuchKey", ObjectNotFound),
    ],
)
def test_what_a_refused_copy_means(
    far: ObjectStore, fake: FakeServer, status: str, code: str, kind: type[TieredStorageError]
) -> None:
    """A 404 means the source, an error after a status of success is an error, and no copy is repeated."""
    fake.answers = [error(status, code), answer("200 OK")]
    with pytest.raises(TieredStorageError, match=rf"s3://archive/base/a to s3://archive/base/b: {code}") as raised:
        far.copy_if_absent("a", "b")
    assert type(raised.value) is kind
    assert [line.partition(" ")[0] for line in fake.requests].count("PUT") == 1


def test_a_denied_copy_names_the_permissions(far: ObjectStore, fake: FakeServer) -> None:
    """It reads one object and writes another."""
    fake.answers = [error("403 Forbidden", "AccessDenied"), answer("200 OK")]
    with pytest.raises(AccessDenied, match=r"s3:PutObject on the target.*s3:GetObject"):
        far.copy_if_absent("a", "b")


def test_a_source_above_the_limit_is_named_as_such(far: ObjectStore, fake: FakeServer) -> None:
    """S3's message has the number of bytes, and the error the remedy's limit."""
    fake.answers = [error("400 Bad Request", "InvalidRequest")]
    with pytest.raises(OperatorError, match="S3 copies an object of at most 5 GiB"):
        far.copy_if_absent("a", "b")
    with pytest.raises(OperatorError, match="will reject the same request again"):
        far.put("a", b"x")


@pytest.mark.parametrize(
    "said", [b"", b"<html><body>maintenance</body></html>", b"<CopyObjectResult><ETag>", b"   ", b"<Other/>"]
)
def test_a_success_that_is_no_copy_is_undecided(far: ObjectStore, fake: FakeServer, said: bytes) -> None:
    """A page of a load balancer, and a response that ended early."""
    fake.answers = [answer("200 OK", said)]
    with pytest.raises(OutcomeUnknown):
        far.copy_if_absent("a", "b")
    assert len(fake.requests) == 1


@pytest.mark.parametrize("then", [error("404 Not Found", "NoSuchKey"), error("503 Slow Down", "SlowDown")])
def test_a_copy_that_cannot_be_read_since_is_undecided(far: ObjectStore, fake: FakeServer, then: bytes) -> None:
    """A 404 of the head is not a missing source, and the whole copy is not repeated where it is throttled."""
    fake.answers = [COPIED, then, answer("200 OK")]
    with pytest.raises(OutcomeUnknown, match="copied, but not read since"):
        far.copy_if_absent("a", "b")


def test_a_silent_server_is_given_up_once(far: ObjectStore, fake: FakeServer) -> None:
    """The copy may have happened."""
    with pytest.raises(OutcomeUnknown, match="no response"):
        far.copy_if_absent("a", "b")
    assert len(fake.requests) == 1


def test_a_copy_is_one_request_with_its_condition_and_options(fake: FakeServer) -> None:
    """Encryption, tags and ACL are those of a put; the storage class is for segments."""
    storing = Storing(
        server_side_encryption=Encryption.SSE_S3,
        storage_class="STANDARD_IA",
        tags=(("team", "a b"),),
        acl=Acl.BUCKET_OWNER_FULL_CONTROL,
    )
    confirmed = COPIED.replace(b"\r\n\r\n", b"\r\nx-amz-server-side-encryption: AES256\r\n\r\n", 1)
    fake.answers = [confirmed, ok(b"", content_length="7")]
    with open_store("s3://archive/base", StorageOptions(storing=storing)) as store:
        info = store.copy_if_absent("topic=a b+ü%2F/x", "b")
    assert (info.key, info.size, info.etag) == ("b", 7, '"e"')
    sent = fake.headers[0]
    assert sent["x-amz-copy-source"] == "archive/base/topic%3Da%20b%2B%C3%BC%252F/x"
    assert sent["if-none-match"] == "*"
    assert sent["x-amz-server-side-encryption"] == "AES256"
    assert (sent["x-amz-tagging-directive"], sent["x-amz-tagging"]) == ("REPLACE", "team=a+b")
    assert sent["x-amz-acl"] == "bucket-owner-full-control"
    assert "x-amz-storage-class" not in sent


def test_a_copy_without_the_requested_encryption_is_an_error(fake: FakeServer) -> None:
    """A store without encryption may ignore the request."""
    fake.answers = [COPIED]
    with (
        open_store("s3://archive", StorageOptions(storing=Storing(server_side_encryption=Encryption.SSE_S3))) as store,
        pytest.raises(OperatorError, match="no encryption"),
    ):
        store.copy_if_absent("a", "b")


def test_a_copy_has_the_tags_of_the_options(bucket: str, moto: MotoServer) -> None:
    """It does not have those of its source."""
    with open_store(f"s3://{bucket}", StorageOptions(storing=Storing(tags=(("old", "1"),)))) as store:
        store.put("a", b"x")
    with open_store(f"s3://{bucket}", StorageOptions(storing=Storing(tags=(("new", "a b+c"),)))) as store:
        store.copy_if_absent("a", "b")
    with closing(moto.client()) as client:
        assert client.get_object_tagging(Bucket=bucket, Key="b")["TagSet"] == [{"Key": "new", "Value": "a b+c"}]


def test_a_copy_whose_response_is_lost_may_have_happened(
    aws: S3Server, open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver sends it once, and the caller finds either the target or none."""
    with S3FaultProxy(aws) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        store = open_s3(f"s3://{BUCKET}/lost-copy")
        store.put("a", b"content")
        for fault, target, is_there in ((SwallowAnswer(), "b", True), (CutBefore(), "c", False)):
            proxy.script(Rule(fault, methods={"PUT"}, target=f"/{target}$", times=None))
            with pytest.raises(OutcomeUnknown):
                store.copy_if_absent("a", target)
            assert fault.fired == 1
            assert [info.key for info in store.list(target)] == ([target] if is_there else [])


def test_a_copy_that_lands_after_its_source_was_deleted_writes_nothing(
    aws: S3Server, open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that paused cannot create the final name of a file that was removed."""
    late = LandLate()
    with S3FaultProxy(aws) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        store = open_s3(f"s3://{BUCKET}/late-copy")
        store.put("a", b"content")
        proxy.script(Rule(late, methods={"PUT"}, target="/b$"))
        with pytest.raises(OutcomeUnknown):
            store.copy_if_absent("a", "b")
        store.delete(["a"])
        late.release()
        wait_for(lambda: late.outcomes, "the copy to reach the server")
        assert late.outcomes == (404,)
        assert [info.key for info in store.list()] == []
