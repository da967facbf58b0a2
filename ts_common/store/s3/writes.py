"""Write on S3: the options of `Storing` as arguments of PutObject, copies, and deletes of many keys.

Encryption, tags and ACL apply to every object. The storage class and the object lock apply only to archived objects,
which are written once. All others are small, are overwritten often and are read by each query. The colder classes
charge at least 128 KiB and thirty days for each object, and each read by its bytes. A lock would keep each version.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ts_common.errors import AccessDenied, OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.options import LockMode, Storing, option_key
from ts_common.store.s3.error_translation import BY_CODE, needed_permission, translated
from ts_common.store.validation import check_key
from ts_common.wording import clause

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ErrorTypeDef


def storing_arguments(storing: Storing, *, archived: bool) -> dict[str, Any]:
    """Return arguments of PutObject, by S3's names; none for an option that is not set.

    Args:
        storing: how objects are stored.
        archived: whether the storage class applies to this object.
    """
    arguments: dict[str, Any] = {
        "ServerSideEncryption": storing.server_side_encryption,
        "SSEKMSKeyId": storing.kms_key_id,
        "BucketKeyEnabled": storing.bucket_key_enabled,
        "StorageClass": storing.storage_class if archived else None,
        "Tagging": urlencode(storing.tags) or None,
        "ACL": storing.acl,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def lock_arguments(storing: Storing, now: float) -> dict[str, Any]:
    """Return the arguments of PutObject that retain an archived object; none without `object_lock_days`.

    S3 accepts them only with a checksum or an MD5 of the body, which each put of the driver has:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html

    Args:
        storing: how objects are stored.
        now: seconds since the epoch, by the store's clock.
    """
    if storing.object_lock_days is None:
        return {}
    until = datetime.fromtimestamp(now, UTC) + timedelta(days=storing.object_lock_days)
    mode = storing.object_lock_mode or LockMode.GOVERNANCE
    return {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": until.replace(microsecond=0)}


def check_encrypted(storing: Storing, answer: Mapping[str, Any], target: str) -> None:
    """Check that the response confirms the encryption: a store without encryption may ignore the request.

    Raises:
        OperatorError: the store wrote the object with another encryption, or without one.
    """
    requested, done = storing.server_side_encryption, answer.get("ServerSideEncryption")
    if requested is not None and done != requested:
        raise OperatorError(
            f"{target}: requested {option_key('server_side_encryption')}={requested}, but the store confirms "
            f"{done or 'no encryption'}: the object was written without the requested encryption; use a store that "
            "supports it, or drop the option"
        )


def copy_object(client: "S3Client", call: Call, bucket: str, source: str, target: str, storing: Storing) -> None:
    """Send CopyObject once, with the condition that the target does not exist.

    S3 answers 200 before a copy ends, and sends white space until then. If the copy fails after that, the body of the
    response is an error. The SDK raises it as one with status 500. S3 copies up to 5 GiB in one request.

    Args:
        client: sends each request once.
        call: the request, for messages.
        source: whole key of the object.
        target: whole key of the copy.
        storing: how the copy is stored.

    Raises:
        TieredStorageError: as `ObjectStore.copy_if_absent`.
    """
    request: dict[str, Any] = {
        "CopySource": {"Bucket": bucket, "Key": source},
        "IfNoneMatch": "*",
        # Tags are those of the options. To copy the source's would require another permission, to read them.
        "TaggingDirective": "REPLACE",
        **storing_arguments(storing, archived=False),
    }
    with translated(call):
        answer = client.copy_object(Bucket=bucket, Key=target, **request)
    with call.understood():  # a web page has no ETag
        answer["CopyObjectResult"]["ETag"]
    check_encrypted(storing, answer, call.target)


_AT_ONCE = 1000


def delete_keys(client: "S3Client", bucket: str, base: str, keys: Iterable[str]) -> None:
    """Delete objects as the contract describes, by DeleteObjects: a thousand keys in one request.

    Args:
        client: of the SDK; it may repeat requests.
        base: the prefix of all keys.
        keys: read in pieces of a thousand.

    Raises:
        AccessDenied, StoreUnavailable: the first failure is that; the others were deleted.
    """
    failed: list[ErrorTypeDef] = []
    count = 0
    remaining = iter(keys)
    while chunk := [check_key(key) for key in islice(remaining, _AT_ONCE)]:
        with translated(Call("DeleteObjects", f"s3://{bucket}/{base}{chunk[0]}")):
            answer = client.delete_objects(
                Bucket=bucket, Delete={"Objects": [{"Key": base + key} for key in chunk], "Quiet": True}
            )
        count += len(chunk)
        failed += [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
    if failed:
        raise _not_deleted(bucket, failed, count)


def _not_deleted(bucket: str, failed: Sequence["ErrorTypeDef"], count: int) -> TieredStorageError:
    first = failed[0]
    call = Call("DeleteObjects", f"s3://{bucket}/{first.get('Key', '?')}")
    message = (
        f"{call.operation}: {len(failed)} of {count} not deleted, the first is {call.target}: "
        f"{first.get('Code', '')}: {clause(first.get('Message', ''))}"
    )
    if BY_CODE.get(first.get("Code", "")) is AccessDenied:
        return AccessDenied(f"{message}; allow this identity {needed_permission(call)}")
    return StoreUnavailable(message)
