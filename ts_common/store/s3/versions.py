"""List the versions of objects in a bucket, and delete one."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore import exceptions as sdk

from ts_common.errors import ObjectNotFound, StoreUnavailable
from ts_common.store.answers import checked
from ts_common.store.call import Call, strong
from ts_common.store.contract import NO_METADATA, ObjectInfo, ObjectVersion
from ts_common.store.listing import Onward, below
from ts_common.store.s3.error_translation import status_of, translated
from ts_common.store.validation import is_key

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_UNKNOWN = {"NotImplemented", "MethodNotAllowed", "XNotImplemented"}


def list_versions(client: "S3Client", bucket: str, base: str, prefix: str) -> Iterator[ObjectVersion] | None:
    """Return all versions of the objects whose keys begin with `prefix`; None if the server does not support it.

    The versions of one key are consecutive. The first page is read at once, the others with the iterator.

    Args:
        client: for reads.
        base: the prefix of the store's keys in the bucket, empty or ending in `/`.
        prefix: of the keys, below `base`.

    Raises:
        AccessDenied: this identity may not list versions.
        BucketMissing, StoreUnavailable, OperatorError: as for any request.
    """
    call = Call("ListObjectVersions", f"s3://{bucket}/{base}{prefix}")
    with translated(call):
        try:
            first: Mapping[str, Any] = client.list_object_versions(Bucket=bucket, Prefix=base + prefix)
        except sdk.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _UNKNOWN or status_of(error) in {405, 501}:
                return None
            raise
    return _versions(client, call, {"Bucket": bucket, "Prefix": base + prefix}, first, len(base))


def _versions(
    client: "S3Client", call: Call, request: Mapping[str, Any], page: Mapping[str, Any], start: int
) -> Iterator[ObjectVersion]:
    marker: tuple[str, str] = ("", "")
    onward = Onward(call)
    while True:
        with call.understood():
            found = [*_page(page, request["Prefix"], start)]
        yield from found
        if not page.get("IsTruncated"):
            return
        following = page.get("NextKeyMarker") or "", page.get("NextVersionIdMarker") or ""
        if not following[0] or following == marker:
            raise StoreUnavailable(f"{call.operation} {call.target}: the page is truncated and has no new marker")
        if following[0] != marker[0]:  # one object can have more versions than a page
            onward.advance(following[0])
        marker = following
        further: dict[str, Any] = {**request, "KeyMarker": marker[0]}
        if marker[1]:
            further["VersionIdMarker"] = marker[1]
        with translated(call):
            page = client.list_object_versions(**further)


def _page(page: Mapping[str, Any], asked: str, start: int) -> list[ObjectVersion]:
    """Return the versions and delete markers of a page by key, the newest of each key first."""
    found = []
    for each, is_marker in (
        *((version, False) for version in page.get("Versions", ())),
        *((version, True) for version in page.get("DeleteMarkers", ())),
    ):
        key = below(each["Key"], asked)[start:]
        if not is_key(key):
            continue
        size, etag = (0, "-") if is_marker else (each["Size"], strong(each["ETag"]))
        info = checked(ObjectInfo(key, size, etag, each["LastModified"].timestamp(), NO_METADATA))
        found.append(ObjectVersion(info, str(each["VersionId"]), bool(each["IsLatest"]), is_marker))
    return sorted(found, key=lambda each: (each.info.key, not each.is_latest, -each.info.modified))


def delete_version(client: "S3Client", bucket: str, base: str, version: ObjectVersion) -> None:
    """Delete an earlier version of an object.

    Args:
        client: of the SDK; it may repeat requests.
        base: the prefix of all keys.

    Raises:
        AccessDenied: this identity may not delete versions, or the version has a lock.
        ValueError: it is the newest one, or a delete marker; no request was sent.
        BucketMissing, StoreUnavailable, OperatorError: as for any request.
    """
    if version.is_latest or version.is_delete_marker or not version.id:
        raise ValueError(f"{version.info.key}: {version.id!r} is no earlier version with bytes")
    call = Call("DeleteObjectVersion", f"s3://{bucket}/{base}{version.info.key}")
    try:
        with translated(call):
            answer = client.delete_object(Bucket=bucket, Key=base + version.info.key, VersionId=version.id)
    except ObjectNotFound:
        return
    if (status := answer["ResponseMetadata"]["HTTPStatusCode"]) != HTTPStatus.NO_CONTENT:
        raise StoreUnavailable(
            f"{call.operation} {call.target}: HTTP {status}; expected 204; check proxies and load balancers in front "
            "of the store"
        )
