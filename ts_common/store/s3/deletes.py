"""Unconditional deletes on S3: DeleteObjects, a thousand keys in one request."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ts_common.errors import AccessDenied, StoreUnavailable, TieredStorageError
from ts_common.store.call import Call
from ts_common.store.s3.errors import BY_CODE, needed_permission, translated
from ts_common.store.validation import check_key
from ts_common.wording import clause

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ErrorTypeDef

_AT_ONCE = 1000


def delete_keys(client: "S3Client", bucket: str, base: str, keys: Iterable[str]) -> None:
    """Delete objects as the contract describes.

    Args:
        client: of the SDK; it may repeat requests.
        bucket: its name.
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
