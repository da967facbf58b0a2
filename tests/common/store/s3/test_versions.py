"""Versions of objects: listed and read from a server, and servers without any."""

from contextlib import closing
from pathlib import Path

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.store.servers import FakeServer, answer, error
from ts_common.errors import AccessDenied, ObjectNotFound, OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectVersion
from ts_common.store.directory.driver import FileStore
from ts_common.store.factory import open_store


def listed(store: ObjectStore, prefix: str = "") -> list[ObjectVersion]:
    versions = store.versions(prefix)
    assert versions is not None
    return list(versions)


def test_versions_are_listed_newest_first_and_read_with_their_metadata(moto: MotoServer, bucket: str) -> None:
    """A delete leaves a marker on top; keys are relative to the store's prefix."""
    with closing(moto.client()) as client, open_store(f"s3://{bucket}/base") as store:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        for data in (b"first", b"second"):
            store.put("d/a", data, metadata={"n": data.decode()})
        store.put("d/b", b"kept")
        store.put("e", b"other")
        store.delete(["d/a"])
        found = listed(store, "d/")
        assert [(each.info.key, each.is_latest, each.is_delete_marker) for each in found] == [
            ("d/a", True, True),
            ("d/a", False, False),
            ("d/a", False, False),
            ("d/b", True, False),
        ]
        contents = {}
        for version in found[1:3]:
            with store.open_version(version) as stream:
                contents[stream.read(100)] = stream.info.metadata["n"]
        assert contents == {b"first": "first", b"second": "second"}
        with store.open_version(found[1], ByteRange(2, 4)) as stream:
            assert (stream.read(9), stream.info.size) == (b"co", 6)
        with store.open_version(found[1], ByteRange(6)) as stream:
            assert (stream.read(9), stream.info.size) == (b"", 6)
        for newest in (found[0], found[3]):  # the marker, and an object that readers find
            with pytest.raises(ValueError, match="no earlier version"):
                store.delete_version(newest)
        for _ in range(2):  # a missing one counts as removed
            store.delete_version(found[1])
        assert listed(store, "d/") == [found[0], *found[2:]]
        with pytest.raises((ObjectNotFound, StoreUnavailable)), store.open_version(found[1]):
            pass


@pytest.mark.parametrize(
    ("status", "code"), [("501 Not Implemented", "NotImplemented"), ("405 Method Not Allowed", "MethodNotAllowed")]
)
def test_a_server_without_versions_lists_none(fake: FakeServer, far: ObjectStore, status: str, code: str) -> None:
    """That differs from an object without earlier versions."""
    fake.answers = [error(status, code)]
    assert far.versions("") is None


def test_a_store_of_another_kind_lists_no_versions(tmp_path: Path) -> None:
    """A directory keeps no bytes that were deleted."""
    with FileStore(tmp_path) as store:
        assert store.versions("") is None
        version = ObjectVersion(ObjectInfo("a", 1, "e", 0.0), "v", False, False)
        with pytest.raises(ObjectNotFound):
            store.open_version(version)
        with pytest.raises(ObjectNotFound):
            store.version_lock(version)
        with pytest.raises(OperatorError, match="no versions that can be deleted"):
            store.delete_version(version)


def test_a_denied_listing_names_the_permission(fake: FakeServer, far: ObjectStore) -> None:
    """It is another one than that of a listing of objects."""
    fake.answers = [error("403 Forbidden", "AccessDenied")]
    with pytest.raises(AccessDenied, match="s3:ListBucketVersions"):
        far.versions("")


PAGE = (
    '<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>true</IsTruncated>{}'
    "<Version><Key>base/a</Key><VersionId>1</VersionId><IsLatest>true</IsLatest>"
    "<LastModified>2026-11-21T04:00:00Z</LastModified><ETag>e</ETag><Size>1</Size></Version></ListVersionsResult>"
)


@pytest.mark.parametrize(
    "body",
    [
        PAGE.format(""),
        PAGE.format("<NextKeyMarker>base/a</NextKeyMarker><NextVersionIdMarker>1</NextVersionIdMarker>"),
        PAGE.format("<NextKeyMarker>base/a</NextKeyMarker>").replace("<ETag>e</ETag>", ""),
        PAGE.format("<NextKeyMarker>base/a</NextKeyMarker>").replace("<Key>base/a", "<Key>elsewhere"),
    ],
    ids=["no marker", "the same marker again", "no ETag", "a key outside the prefix"],
)
def test_a_page_without_what_it_needs_is_no_answer(fake: FakeServer, body: str) -> None:
    """A listing that never ends, or has objects of others, ends with an error that is retried."""
    fake.answers = [answer("200 OK", body.encode())] * 3
    with open_store("s3://archive/base") as store, pytest.raises(TieredStorageError):
        listed(store)
