"""Translate botocore's errors into those of the project.

The translation depends on whether the request can have had an effect. A rejection is a response: the store wrote
nothing. If a write fails between request and response (reset, timeout, 5xx except for throttling), its outcome is
unknown, with a condition or without one: `OutcomeUnknown`. The same failure of a read or a delete, which may be
repeated, is `StoreUnavailable`. A request without a connection had no effect.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.call import UNFORESEEN, Call
from ts_common.store.clock import is_refused_skew, set_the_clock, skew_of, without_reason
from ts_common.store.http.client import never_connected
from ts_common.store.thaw_state import WAY_OUT as WAY_OUT_OF_ICE
from ts_common.wording import clause

READ = "s3:GetObject on the key, and s3:ListBucket on the bucket: without it S3 answers 403 for missing keys"
NEEDED_PERMISSION = {
    "PutObject": "s3:PutObject",
    "CopyObject": f"s3:PutObject on the target, and of the source {READ}",
    "GetObject": READ,
    "HeadObject": READ,
    "HeadBucket": "s3:ListBucket on the bucket",
    "ListObjectsV2": "s3:ListBucket on the bucket",
    "ListObjectVersions": "s3:ListBucketVersions on the bucket",
    "GetObjectVersion": "s3:GetObjectVersion on the key",
    "HeadObjectVersion": "s3:GetObjectVersion on the key",
    "DeleteObjectVersion": "s3:DeleteObjectVersion on the key, unless a lock keeps this version",
    "DeleteObject": "s3:DeleteObject, and s3:GetObject for its condition",
    "DeleteObjects": "s3:DeleteObject",
    "RestoreObject": "s3:RestoreObject on the key",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration on the bucket",
    "GetBucketVersioning": "s3:GetBucketVersioning on the bucket",
    "GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration on the bucket",
    "GetObjectRetention": "s3:GetObjectRetention on the key",
    "GetObjectLegalHold": "s3:GetObjectLegalHold on the key",
    "PutObjectLegalHold": "s3:PutObjectLegalHold on the key",
}

GIVE_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or attach a role to this host"
SET_REGION = "set AWS_REGION or storage.service.endpoint.s3.region"
ASSUME_ROLE = "AssumeRole"
CHECK_ROLE = (
    "storage.service.endpoint.s3.role.arn cannot be assumed: allow this identity sts:AssumeRole on it, and check its "
    "trust policy (external.id?)"
)
CHECK_BUCKET = "the bucket does not exist here: check its name and the endpoint (AWS_ENDPOINT_URL_S3, region)"
WAY_OUT = {
    "InvalidAccessKeyId": "the store has no such access key: " + GIVE_CREDENTIALS,
    "InvalidClientTokenId": "the store has no such access key: " + GIVE_CREDENTIALS,
    "SignatureDoesNotMatch": "the secret key does not belong to this access key, or a proxy rewrites the Host header",
    "ExpiredToken": "the credentials have expired: renew them",
    "InvalidToken": "the session token is invalid: renew the credentials",
    "NotImplemented": "this store does not support the request (conditional writes?)",
    "PermanentRedirect": "the bucket is in another region: " + SET_REGION,
    "AuthorizationHeaderMalformed": "the bucket is in another region: " + SET_REGION,
}

BY_CODE: dict[str, type[TieredStorageError]] = {
    "NoSuchKey": ObjectNotFound,
    "NoSuchVersion": ObjectNotFound,
    "NoSuchBucket": BucketMissing,
    "PreconditionFailed": PreconditionFailed,
    "AccessDenied": AccessDenied,
    "ExpiredToken": AccessDenied,
    "InvalidAccessKeyId": AccessDenied,
    "InvalidToken": AccessDenied,
    "SignatureDoesNotMatch": AccessDenied,
    "InvalidObjectState": ObjectFrozen,
    "ObjectNotInActiveTierError": ObjectFrozen,  # to a copy
    "NotImplemented": OperatorError,
    "BadDigest": CorruptData,
    "InvalidDigest": CorruptData,
    "XAmzContentChecksumMismatch": CorruptData,
    "XAmzContentSHA256Mismatch": CorruptData,
    # Codes of MinIO, Ceph and others; AWS has no such limit.
    "QuotaExceeded": StoreFull,
    "StorageFull": StoreFull,
    "XMinioStorageFull": StoreFull,
    "InsufficientStorage": StoreFull,
    # A throttled request was not started.
    "SlowDown": StoreThrottled,
    "Throttling": StoreThrottled,
    "ThrottlingException": StoreThrottled,
    "RequestLimitExceeded": StoreThrottled,
    "TooManyRequests": StoreThrottled,
}

# For responses without a code (HEAD has no body) and codes of other vendors. A 404 without the code NoSuchKey may be
# sent by a load balancer without a backend: it must not count as a missing object.
BY_STATUS: dict[int, type[TieredStorageError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: StoreUnavailable,
    412: PreconditionFailed,
    429: StoreThrottled,
    507: StoreFull,
}

# S3 did not complete the request, or could not order it against another one: 408, 409, and 400 RequestTimeout.
UNDECIDED_STATUS = {408, 409}
UNDECIDED_CODES = {"RequestTimeout", "ConditionalRequestConflict", "OperationAborted"}

_IN_VAIN = "the store will reject the same request again"
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
_TOO_LARGE = "S3 copies an object of at most 5 GiB: is the source larger?"
# The SDK's status for an error in a response with status 200, which S3 sends if a copy fails after it began.
_EMBEDDED = 500

_SKEWED = "RequestTimeTooSkewed"

NEVER_CONNECTED = (sdk.EndpointConnectionError, sdk.ConnectTimeoutError)
CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.NoAuthTokenError,
    sdk.MetadataRetrievalError,
    sdk.SSOError,
    sdk.LoginError,
    sdk.RefreshWithMFAUnsupportedError,
)
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
CERTIFICATE_ALERTS = ("ALERT_CERTIFICATE_REQUIRED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE")
# Exceptions of the SDK for responses that it does not expect.
SDK_UNFORESEEN = (*UNFORESEEN, AssertionError, RuntimeError)
NO_ANSWER = (sdk.HTTPClientError, sdk.ConnectionError, sdk.IncompleteReadError, ResponseParserError)


@contextmanager
def translated(call: Call) -> Iterator[None]:
    """Raise botocore's errors as those of the project."""
    try:
        yield
    except (sdk.ClientError, sdk.BotoCoreError, ResponseParserError) as error:
        raise translate(error, call) from error
    except RecursionError as error:  # the SDK recurses into each level of an error's XML
        raise _too_deep(call) from error
    except SDK_UNFORESEEN as error:  # for a response of STS or of a metadata server
        raise call.no_answer(f"{call.operation} {call.target}: unusable response: {error!r}") from error


def translate(error: Exception, call: Call) -> TieredStorageError:
    """Return the project's error for one of botocore's."""
    failed = f"{call.operation} {call.target}"
    if isinstance(error, sdk.ClientError):
        return _answered(error, call)
    if isinstance(error, sdk.HTTPClientError) and isinstance(error.kwargs.get("error"), RecursionError):
        return _too_deep(call)  # the SDK recurses into each redirection to another region
    if _never_connected(error):
        return StoreUnavailable(f"{failed}: no connection: {error}")
    if isinstance(error, CREDENTIALS) and _has_no_metadata(error):
        return StoreUnavailable(f"{failed}: no credentials at this moment: {error}")
    if isinstance(error, sdk.NoCredentialsError) and _is_of_ec2(os.environ):
        return StoreUnavailable(
            f"{failed}: no credentials at this moment: the EC2 metadata service returned none; if this instance has no "
            f"IAM role: {GIVE_CREDENTIALS}"
        )
    if isinstance(error, CREDENTIALS):
        return AccessDenied(f"{failed}: no credentials: {error}; {GIVE_CREDENTIALS}")
    if isinstance(error, sdk.SSLError) and (way_out := _certificate(str(error))) is not None:
        return OperatorError(f"{failed}: {error}; {way_out}")
    if isinstance(error, NO_ANSWER):
        return call.no_answer(f"{failed}: no response: {error}")
    return OperatorError(f"{failed}: the SDK rejects the request: {error}")


def _certificate(reason: str) -> str | None:
    """Return what to do about a certificate that either side rejects; None for another failure of TLS."""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "set AWS_CA_BUNDLE or storage.service.endpoint.s3.ca.bundle to the authority that signed the certificate"
    if any(alert in reason for alert in CERTIFICATE_ALERTS):
        return (
            "the server requires a client certificate: set storage.service.endpoint.s3.client.certificate to one that "
            "it accepts"
        )
    return None


def _too_deep(call: Call) -> TieredStorageError:
    return call.no_answer(
        f"{call.operation} {call.target}: unusable response: XML that is nested too deep, or too many redirections"
    )


def _never_connected(error: Exception) -> bool:
    """Return whether the request was not sent.

    A connection that a proxy closes without a response raises the same error of the SDK as a failed one.
    """
    if isinstance(error, sdk.ProxyConnectionError):
        return never_connected(error.kwargs.get("error"))
    return isinstance(error, NEVER_CONNECTED)


def _has_no_metadata(error: BaseException) -> bool:
    """Return whether the metadata server of the host or container returned no credentials."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, sdk.MetadataRetrievalError):
        cause = cause.__cause__ or cause.__context__  # the SDK raises another error in its place
    return cause is not None


def _is_of_ec2(environment: Mapping[str, str]) -> bool:
    """Return whether this host can have a role without any setting: the SDK reports an outage of EC2's as no role."""
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    try:
        return _VENDOR.read_text().strip() == "Amazon EC2"
    except OSError:
        return False


def status_of(error: sdk.ClientError) -> int:
    """Return the HTTP status of an error; 0 without one."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answered(error: sdk.ClientError, call: Call) -> TieredStorageError:
    """Return the project's error for a response that is a rejection or a failure of the server."""
    status = status_of(error)
    code, message = _texts(error)
    request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "none")
    operation = call.operation if error.operation_name != ASSUME_ROLE else f"{ASSUME_ROLE} for {call.operation}"
    failed = f"{operation} {call.target}: {code} (HTTP {status}, request id {request_id}): {clause(message)}"
    skew = skew_of(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
    if code == _SKEWED or (status in {401, 403} and is_refused_skew(skew)):  # a response to HEAD has only its date
        return WrongClock(f"{failed}; {set_the_clock(skew)}")  # the store did not start the request
    if error.operation_name == ASSUME_ROLE:
        return _without_role(failed, code, status, call)
    kind = _kind_of(code, status, call)
    if kind is ObjectNotFound and call.writes and not call.copies:
        # S3 answers so if the object of an If-Match does not exist.
        return PreconditionFailed(failed)
    if kind is AccessDenied:
        return AccessDenied(f"{failed}; {_how_to_allow(code, call, skew)}")
    if kind is BucketMissing:
        return BucketMissing(f"{failed}; {CHECK_BUCKET}")
    if kind is ObjectFrozen:
        return ObjectFrozen(f"{failed}; {_frozen(error)}; {WAY_OUT_OF_ICE}")
    if kind is OperatorError:
        way_out = _TOO_LARGE if call.copies and code == "InvalidRequest" else WAY_OUT.get(code, _IN_VAIN)
        return OperatorError(f"{failed}; {way_out}")
    return kind(failed)


def _without_role(failed: str, code: str, status: int, call: Call) -> TieredStorageError:
    """Return the error if STS gave no role: that precedes the request, which was not sent."""
    if status >= 500 or BY_CODE.get(code) is StoreThrottled:
        return StoreUnavailable(f"{failed}: no role for {call.target}")
    return AccessDenied(f"{failed}; {WAY_OUT.get(code, CHECK_ROLE)}")


def _kind_of(code: str, status: int, call: Call) -> type[TieredStorageError]:
    """Return the error for a code and a status."""
    if code in UNDECIDED_CODES or status in UNDECIDED_STATUS:
        return call.no_answer
    kind = BY_CODE.get(code) or BY_STATUS.get(status)
    if status == 404 and call.operation == "HeadBucket":
        return BucketMissing
    if kind is None and status >= 500:  # a response to HEAD has no body with the code
        return StoreThrottled if status == 503 and not call.writes else call.no_answer
    if kind is StoreThrottled and call.copies and status == _EMBEDDED:
        return call.no_answer  # S3 had begun the copy
    return kind or OperatorError


def is_without_reason(error: TieredStorageError) -> bool:
    """Return whether access was denied without a code, as in a response to HEAD."""
    cause = error.__cause__
    if not isinstance(error, AccessDenied) or not isinstance(cause, sdk.ClientError):
        return False
    return _texts(cause)[0] in {"", str(status_of(cause)), "Unknown"}


def _texts(error: sdk.ClientError) -> tuple[str, str]:
    """Return the code and the message of an error; empty if the response has other XML in their place."""
    found: Mapping[str, object] = error.response.get("Error", {})
    code, message = (found.get(name) for name in ("Code", "Message"))
    return code if isinstance(code, str) else "", message if isinstance(message, str) else ""


def _frozen(error: sdk.ClientError) -> str:
    """Return the class of a frozen object, if the response names it."""
    given: Mapping[str, object] = error.response
    more = given.get("Error")
    fields = {**(more if isinstance(more, dict) else {}), **given}
    named = [each for name in ("StorageClass", "AccessTier") if isinstance(each := fields.get(name), str) and each]
    return f"the object is frozen{', in the storage class ' if named else ''}{' '.join(named)}"


def _how_to_allow(code: str, call: Call, skew: float | None) -> str:
    """Return what to do if access is denied."""
    if code == "AccessDenied":
        return f"allow this identity {needed_permission(call)}"
    return WAY_OUT.get(code) or without_reason("the access key and its secret", needed_permission(call), skew)


def needed_permission(call: Call) -> str:
    """Return the permission that this call requires."""
    return NEEDED_PERMISSION.get(call.operation, call.operation)
