"""Conditional deletes on S3: DeleteObject with `If-Match`, one object per request.

DeleteObjects has an ETag for each object too, but stores enforce it less. moto ignores it. SeaweedFS compares it first
and deletes later: of 500 objects that another client overwrote at the same time, it removed 11 new ones. With
DeleteObject it removed none.

Other stores ignore the condition or reject the header. The first object that has its ETag shows that: a DeleteObject
with another ETag must not remove it. A store that ignores the condition removes it, which the caller requested. From
then on a HEAD precedes each delete, which has no condition. If another client overwrites an object between the two
requests, the new one is lost: in the same test 145 of 500.
"""

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from botocore import exceptions as sdk

from ts_common.errors import ObjectNotFound, OperatorError, PreconditionFailed, StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import DeleteOutcome, ObjectInfo
from ts_common.store.deletions import DELETED_AT_ONCE, delete_each, is_missing_after
from ts_common.store.s3.error_translation import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_OF_NO_OBJECT = '"00000000000000000000000000000000"'  # an MD5 without a known content
_REJECTED = "NotImplemented"  # the code of a store that does not support the header


class MatchingDeletes:
    """Conditional deletes in one bucket, for any threads.

    Args:
        client: of the SDK; it may repeat requests.
        base: the prefix of all keys.
    """

    def __init__(self, client: "S3Client", bucket: str, base: str, head: Callable[[str], ObjectInfo]) -> None:
        self._client = client
        self._bucket = bucket
        self._base = base
        self._head = head
        self._lock = threading.Lock()
        self._enforced: bool | None = None  # None until an object has shown it; set under the lock

    @property
    def enforced(self) -> bool | None:
        """Whether the store compares ETags; None until an object has shown it."""
        return self._enforced

    def delete(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Delete as the contract describes, eight objects at once."""
        return delete_each(etags, self._delete, threads=DELETED_AT_ONCE)

    def _delete(self, key: str, etag: str) -> bool:
        if self._enforced is None:
            if (found := self._etag_of(key)) != etag:
                return found is None
            self._look(key)
            if self._enforced is None:
                return True  # the object was removed since
        if self._enforced is False and (found := self._etag_of(key)) != etag:
            return found is None
        try:
            self._send(key, etag if self._enforced else None)
        except ObjectNotFound:
            return True
        except PreconditionFailed as error:
            return is_missing_after(error, lambda: self._head(key), etag)
        return True

    def _look(self, key: str) -> None:
        """Find whether the store enforces the condition, by an object that has its ETag and is to be removed."""
        with self._lock:
            if self._enforced is not None:
                return
            try:
                self._send(key, _OF_NO_OBJECT)
                self._enforced = False
            except PreconditionFailed:
                self._enforced = True
            except ObjectNotFound:
                return  # a store that ignores the condition can answer this too
            except OperatorError as error:
                if not _is_unsupported(error):
                    raise
                self._enforced = False

    def _etag_of(self, key: str) -> str | None:
        try:
            return self._head(key).etag
        except ObjectNotFound:
            return None

    def _send(self, key: str, etag: str | None) -> None:
        """Send DeleteObject.

        Raises:
            ObjectNotFound, PreconditionFailed: the object does not exist, or has another ETag.
            StoreUnavailable: a response without S3's status for a delete, of a load balancer for example.
        """
        call = Call("DeleteObject", f"s3://{self._bucket}/{self._base}{key}")
        with translated(call):
            if etag is None:
                answer = self._client.delete_object(Bucket=self._bucket, Key=self._base + key)
            else:
                answer = self._client.delete_object(Bucket=self._bucket, Key=self._base + key, IfMatch=etag)
        if (status := answer["ResponseMetadata"]["HTTPStatusCode"]) != HTTPStatus.NO_CONTENT:
            raise StoreUnavailable(
                f"{call.operation} {call.target}: HTTP {status}; expected 204; check proxies and load balancers in "
                "front of the store"
            )


def _is_unsupported(error: OperatorError) -> bool:
    """Return whether the store does not support the header."""
    cause = error.__cause__
    return isinstance(cause, sdk.ClientError) and cause.response.get("Error", {}).get("Code") == _REJECTED
