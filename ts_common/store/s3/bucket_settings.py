"""Read a bucket's lifecycle rules, and what protects its objects: versions, default retention, the lock of each object.

S3 returns the lock of an object with HEAD, in headers. Without `s3:GetObjectRetention` or `s3:GetObjectLegalHold` it
leaves the header out and answers 200 all the same, as for an object without a lock:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html
So a missing header proves nothing. GetObjectRetention and GetObjectLegalHold then answer what HEAD left out: the lock,
"none", or that the permission is missing. A store without these two requests shows all locks with HEAD.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore import exceptions as sdk

from ts_common.errors import TieredStorageError
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo
from ts_common.store.lifecycle import LifecycleRule, parse_rules
from ts_common.store.protection import Lock, Protection
from ts_common.store.s3.error_translation import status_of, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ENABLED, _SUSPENDED = "Enabled", "Suspended"
_ON, _OFF = "ON", "OFF"
# AWS and MinIO answer the first for an object without a lock, Ceph and SeaweedFS the others.
_NO_LOCK = {"NoSuchObjectLockConfiguration", "ObjectLockConfigurationNotFoundError", "NoSuchObjectLegalHold"}
# The message of AWS's InvalidRequest for a bucket without object lock.
_NO_LOCK_TEXT = re.compile(r"(?i)missing object ?lock").search
_UNSUPPORTED = {"NotImplemented", "MethodNotAllowed", "XNotImplemented"}
_UNSUPPORTED_STATUS = {405, 501}


class BucketProtection:
    """The protection of one bucket and of the objects below one prefix, for any threads.

    Args:
        client: of the SDK; it may repeat requests.
        base: the prefix of all keys, empty or ending in `/`.
        head: the driver's; it finds why a HEAD was rejected.
    """

    def __init__(self, client: "S3Client", bucket: str, base: str, head: Callable[[str], ObjectInfo]) -> None:
        self._client = client
        self._bucket = bucket
        self._base = base
        self._head = head

    def of_bucket(self) -> Protection:
        """Send GetBucketVersioning and GetObjectLockConfiguration.

        Raises:
            AccessDenied: this identity may not read one of the two.
        """
        target, named = f"s3://{self._bucket}", {"Bucket": self._bucket}
        versioning = self._answered(Call("GetBucketVersioning", target), self._client.get_bucket_versioning, named)
        call = Call("GetObjectLockConfiguration", target)
        lock = self._answered(call, self._client.get_object_lock_configuration, named)
        with call.understood():
            found = (lock or {}).get("ObjectLockConfiguration", {})
            locks = found.get("ObjectLockEnabled") == _ENABLED
            # A bucket with suspended versions keeps those that it has, and a delete hides the newest one.
            versioned = locks or (versioning or {}).get("Status") in {_ENABLED, _SUSPENDED}
            return Protection(versioned, locks, _default(found.get("Rule", {}).get("DefaultRetention", {})))

    def lock_of(self, key: str, version: str | None = None) -> Lock | None:
        """Send HeadObject, then the requests for what its response leaves out; None if the object is not locked.

        Args:
            version: id of an earlier version of the object; None for the object.

        Raises:
            AccessDenied: this identity may not read the lock.
            ObjectNotFound: the object or the version does not exist.
        """
        call = self._call("HeadObject" if version is None else "HeadObjectVersion", key)
        try:
            with translated(call):
                named: Any = self._named(key, version)
                answer: Mapping[str, Any] = self._client.head_object(**named)
        except TieredStorageError:
            if version is None:
                self._head(key)  # raises the reason, which a response to HEAD does not have
            raise
        call.refuse_page(answer.get("ContentType"))
        with call.understood():
            mode, until = _retained(answer.get("ObjectLockMode"), answer.get("ObjectLockRetainUntilDate"))
            hold = answer.get("ObjectLockLegalHoldStatus")
        if until is None and hold != _ON:
            mode, until = self._retention(key, version)
        if hold is None:
            hold = self._legal_hold(key, version)
        return None if until is None and hold != _ON else Lock(until, hold == _ON, mode)

    def has_legal_hold(self, key: str, version: str) -> bool:
        """Send GetObjectLegalHold for one version.

        Raises:
            AccessDenied: this identity may not read it.
            ObjectNotFound: the version does not exist.
        """
        return self._legal_hold(key, version) == _ON

    def set_legal_hold(self, key: str, version: str, *, is_held: bool) -> None:
        """Send PutObjectLegalHold for one version.

        Raises:
            AccessDenied: this identity may not write it.
            ObjectNotFound: the version does not exist.
        """
        status: Any = {"Status": _ON if is_held else _OFF}
        with translated(self._call("PutObjectLegalHold", key)):
            self._client.put_object_legal_hold(
                Bucket=self._bucket, Key=self._base + key, VersionId=version, LegalHold=status
            )

    def _retention(self, key: str, version: str | None) -> tuple[str, float | None]:
        call = self._call("GetObjectRetention", key)
        answer = self._answered(call, self._client.get_object_retention, self._named(key, version))
        with call.understood():
            found = (answer or {}).get("Retention", {})
            return _retained(found.get("Mode"), found.get("RetainUntilDate"))

    def _legal_hold(self, key: str, version: str | None = None) -> str | None:
        call = self._call("GetObjectLegalHold", key)
        answer = self._answered(call, self._client.get_object_legal_hold, self._named(key, version))
        with call.understood():
            hold: str | None = (answer or {}).get("LegalHold", {}).get("Status")
            return hold

    def _answered(self, call: Call, request: Any, arguments: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the response to a request; empty if there is no such configuration or lock, None if it is unsupported.

        Raises:
            TieredStorageError: any other error.
        """
        with translated(call):
            try:
                answer: Mapping[str, Any] = request(**arguments)
            except sdk.ClientError as error:
                code, message = (str(error.response.get("Error", {}).get(name, "")) for name in ("Code", "Message"))
                if code in _NO_LOCK or (code == "InvalidRequest" and _NO_LOCK_TEXT(message)):
                    return {}
                if code in _UNSUPPORTED or status_of(error) in _UNSUPPORTED_STATUS:
                    return None
                raise
        return answer

    def _call(self, operation: str, key: str) -> Call:
        return Call(operation, f"s3://{self._bucket}/{self._base}{key}")

    def _named(self, key: str, version: str | None) -> dict[str, str]:
        named = {"Bucket": self._bucket, "Key": self._base + key}
        return named if version is None else {**named, "VersionId": version}


def _retained(mode: object, until: Any) -> tuple[str, float | None]:
    """Return mode and end of a retention; "" and None without one.

    Raises:
        ValueError: it has a mode and no date.
    """
    if until is not None:
        return str(mode or ""), until.timestamp()
    if mode is not None:
        raise ValueError(f"a retention of mode {mode} without a date")
    return "", None


def _default(rule: Mapping[str, Any]) -> str | None:
    """Return the default retention of a bucket as a text."""
    for unit in ("Days", "Years"):
        if count := rule.get(unit):
            return f"{count} {unit.lower().removesuffix('s') if count == 1 else unit.lower()} ({rule.get('Mode')})"
    return None


_NO_RULES = "NoSuchLifecycleConfiguration"
_UNKNOWN = {"NotImplemented", "MethodNotAllowed", "InvalidRequest", "XNotImplemented"}


def read_rules(client: "S3Client", bucket: str, base: str) -> tuple[LifecycleRule, ...] | None:
    """Return a bucket's rules; None if the server does not support them.

    Args:
        client: for reads.
        base: the prefix of the store's keys in the bucket, empty or ending in `/`.

    Raises:
        AccessDenied: this identity may not read the rules.
        BucketMissing, StoreUnavailable, OperatorError: as for any request.
    """
    call = Call("GetBucketLifecycleConfiguration", f"s3://{bucket}")
    with translated(call):
        try:
            answer = client.get_bucket_lifecycle_configuration(Bucket=bucket)
        except sdk.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == _NO_RULES:
                return ()
            if code in _UNKNOWN or status_of(error) in {405, 501}:
                return None
            raise
    with call.understood():
        return parse_rules(answer, base)
