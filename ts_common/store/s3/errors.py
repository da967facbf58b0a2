"""The one translator of botocore's errors to ours.

What decides is whether the request can have had an effect. A refusal is an answer: nothing was written. Anything that
ends a write between "sent" and "answered" (reset, timeout, 5xx but for throttling) leaves it open, whether the write
was conditional or not: `OutcomeUnknown`. The same on a read or a delete, which may be repeated, is `StoreUnavailable`.
A connection that never came about had no effect either way.
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
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
    TieredStorageError,
    WrongClock,
)
from ts_common.store.call import UNFORESEEN, Call
from ts_common.store.http.client import never_connected
from ts_common.store.refusals import is_refused_skew, set_the_clock, skew_of, without_reason

READ = "s3:GetObject on the key, and s3:ListBucket on the bucket: without that S3 answers 403 for absent keys"
NEEDED_PERMISSION = {
    "PutObject": "s3:PutObject",
    "GetObject": READ,
    "HeadObject": READ,
    "HeadBucket": "s3:ListBucket on the bucket",
    "ListObjectsV2": "s3:ListBucket on the bucket",
    "DeleteObjects": "s3:DeleteObject",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration on the bucket",
}

GIVE_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the machine a role"
SET_REGION = "set AWS_REGION or storage.service.endpoint.s3.region"
ASSUME_ROLE = "AssumeRole"
CHECK_ROLE = (
    "storage.service.endpoint.s3.role.arn cannot be assumed: allow this identity sts:AssumeRole on it, and look at its "
    "trust policy (external.id?)"
)
LOOK_AT_BUCKET = "there is no such bucket here: look at its name, and at the endpoint (AWS_ENDPOINT_URL_S3, region)"
WAY_OUT = {
    "InvalidAccessKeyId": "the store does not know this access key: " + GIVE_CREDENTIALS,
    "InvalidClientTokenId": "the store does not know this access key: " + GIVE_CREDENTIALS,
    "SignatureDoesNotMatch": "the secret key is not the one of this access key, or a proxy rewrites the Host header",
    "ExpiredToken": "the credentials have expired: renew them",
    "InvalidToken": "the session token is not valid: renew the credentials",
    "InvalidObjectState": "the object lies in an archive storage class: restore it first",
    "NotImplemented": "this store lacks what was asked for (conditional writes?)",
    "PermanentRedirect": "the bucket is in another region: " + SET_REGION,
    "AuthorizationHeaderMalformed": "the bucket is in another region: " + SET_REGION,
}

BY_CODE: dict[str, type[TieredStorageError]] = {
    "NoSuchKey": ObjectNotFound,
    "NoSuchBucket": BucketMissing,
    "PreconditionFailed": PreconditionFailed,
    "AccessDenied": AccessDenied,
    "ExpiredToken": AccessDenied,
    "InvalidAccessKeyId": AccessDenied,
    "InvalidToken": AccessDenied,
    "SignatureDoesNotMatch": AccessDenied,
    "InvalidObjectState": OperatorError,
    "NotImplemented": OperatorError,
    "BadDigest": CorruptData,
    "InvalidDigest": CorruptData,
    "XAmzContentChecksumMismatch": CorruptData,
    "XAmzContentSHA256Mismatch": CorruptData,
    # Throttling is refused at the door.
    "SlowDown": StoreThrottled,
    "Throttling": StoreThrottled,
    "ThrottlingException": StoreThrottled,
    "RequestLimitExceeded": StoreThrottled,
    "TooManyRequests": StoreThrottled,
}

# For answers without a code (HEAD has no body) and codes of other vendors. A 404 that does not say "NoSuchKey" may come
# from a load balancer without a backend: it must not pass for "there is no such object".
BY_STATUS: dict[int, type[TieredStorageError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: StoreUnavailable,
    412: PreconditionFailed,
    429: StoreThrottled,
}

# A request that S3 did not see through, or could not order against another: 408, 409, and 400 RequestTimeout.
UNDECIDED_STATUS = {408, 409}
UNDECIDED_CODES = {"RequestTimeout", "ConditionalRequestConflict", "OperationAborted"}

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
# What the SDK raises where it takes for granted what it is answered.
SDK_UNFORESEEN = (*UNFORESEEN, AssertionError, RuntimeError)
NO_ANSWER = (sdk.HTTPClientError, sdk.ConnectionError, sdk.IncompleteReadError, ResponseParserError)


@contextmanager
def translated(call: Call) -> Iterator[None]:
    """Raise what botocore raises inside as one of our errors."""
    try:
        yield
    except (sdk.ClientError, sdk.BotoCoreError, ResponseParserError) as error:
        raise translate(error, call) from error
    except RecursionError as error:  # the SDK recurses into each level of an error's XML
        raise _too_deep(call) from error
    except SDK_UNFORESEEN as error:  # STS or a metadata server gave it
        raise call.no_answer(f"{call.operation} {call.target}: no answer that can be used: {error!r}") from error


def translate(error: Exception, call: Call) -> TieredStorageError:
    """Our error for one of botocore's."""
    said = f"{call.operation} {call.target}"
    if isinstance(error, sdk.ClientError):
        return _answered(error, call)
    if isinstance(error, sdk.HTTPClientError) and isinstance(error.kwargs.get("error"), RecursionError):
        return _too_deep(call)  # the SDK recurses into each redirection to another region
    if _never_connected(error):
        return StoreUnavailable(f"{said}: no connection: {error}")
    if isinstance(error, CREDENTIALS) and _has_no_metadata(error):
        return StoreUnavailable(f"{said}: no credentials at this moment: {error}")
    if isinstance(error, sdk.NoCredentialsError) and _is_of_ec2(os.environ):
        return StoreUnavailable(
            f"{said}: no credentials at this moment: this machine is of EC2, whose metadata server gave none; where it "
            f"has no role: {GIVE_CREDENTIALS}"
        )
    if isinstance(error, CREDENTIALS):
        return AccessDenied(f"{said}: no credentials: {error}; {GIVE_CREDENTIALS}")
    if isinstance(error, sdk.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return OperatorError(
            f"{said}: {error}; set AWS_CA_BUNDLE or storage.service.endpoint.s3.ca.bundle to the authority that signed "
            "the certificate"
        )
    if isinstance(error, sdk.SSLError) and any(alert in str(error) for alert in CERTIFICATE_ALERTS):
        return OperatorError(
            f"{said}: {error}; the server asks for a certificate of this side: set "
            "storage.service.endpoint.s3.client.certificate to one that it believes"
        )
    if isinstance(error, NO_ANSWER):
        return call.no_answer(f"{said}: no answer: {error}")
    return OperatorError(f"{said}: the SDK refuses: {error}")


def _too_deep(call: Call) -> TieredStorageError:
    return call.no_answer(
        f"{call.operation} {call.target}: no answer that the store gives: XML that is nested too deep, or one "
        "redirection after another"
    )


def _never_connected(error: Exception) -> bool:
    """Nothing was sent. The SDK's error of a proxy is also what a connection to it that was closed unanswered gives."""
    if isinstance(error, sdk.ProxyConnectionError):
        return never_connected(error.kwargs.get("error"))
    return isinstance(error, NEVER_CONNECTED)


def _has_no_metadata(error: BaseException) -> bool:
    """Whether the machine's or container's own server, which gives credentials, gave none at this moment."""
    told: BaseException | None = error
    while told is not None and not isinstance(told, sdk.MetadataRetrievalError):
        told = told.__cause__ or told.__context__  # the SDK raises another error in its place
    return told is not None


def _is_of_ec2(environment: Mapping[str, str]) -> bool:
    """Whether a machine may have a role without any setting; the SDK tells its metadata server's outage as no role."""
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    try:
        return _VENDOR.read_text().strip() == "Amazon EC2"
    except OSError:
        return False


def status_of(error: sdk.ClientError) -> int:
    """The HTTP status that an error came with; 0 where it came with none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answered(error: sdk.ClientError, call: Call) -> TieredStorageError:
    """Our error for an answer that is a refusal or a failure of the server."""
    status = status_of(error)
    code, message = _texts(error)
    request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "none")
    asked = call.operation if error.operation_name != ASSUME_ROLE else f"{ASSUME_ROLE} for {call.operation}"
    said = f"{asked} {call.target}: {code} (HTTP {status}, request id {request_id}): {message}"
    skew = skew_of(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
    if code == _SKEWED or (status in {401, 403} and is_refused_skew(skew)):  # the answer to a HEAD has only its date
        return WrongClock(f"{said}; {set_the_clock(skew)}")  # the request is refused at the door
    if error.operation_name == ASSUME_ROLE:  # asked before the request, which never went out
        if status >= 500 or BY_CODE.get(code) is StoreThrottled:
            return StoreUnavailable(f"{said}: no role for {call.target}")
        return AccessDenied(f"{said}; {WAY_OUT.get(code, CHECK_ROLE)}")
    if code in UNDECIDED_CODES or status in UNDECIDED_STATUS:
        return call.no_answer(said)
    kind = BY_CODE.get(code) or BY_STATUS.get(status)
    if status == 404 and call.operation == "HeadBucket":
        kind = BucketMissing
    if kind is None and status == 503 and not call.writes:
        kind = StoreThrottled  # the answer to a HEAD has no body that could say more
    if kind is None and status >= 500:
        return call.no_answer(said)
    if kind is ObjectNotFound and call.writes:
        # S3 answers an If-Match over nothing this way.
        return PreconditionFailed(said)
    if kind is AccessDenied:
        return AccessDenied(f"{said}; {_way_in(code, call, skew)}")
    if kind is BucketMissing:
        return BucketMissing(f"{said}; {LOOK_AT_BUCKET}")
    if kind is None or kind is OperatorError:
        return OperatorError(f"{said}; {WAY_OUT.get(code, 'the same request will be refused again')}")
    return kind(said)


def is_without_reason(error: TieredStorageError) -> bool:
    """Whether a refusal of the identity came as the answer to a HEAD does, without a code."""
    cause = error.__cause__
    if not isinstance(error, AccessDenied) or not isinstance(cause, sdk.ClientError):
        return False
    return _texts(cause)[0] in {"", str(status_of(cause)), "Unknown"}


def _texts(error: sdk.ClientError) -> tuple[str, str]:
    """The code and the message of an error; empty where the answer has other XML in their place."""
    found: Mapping[str, object] = error.response.get("Error", {})
    code, message = (found.get(name) for name in ("Code", "Message"))
    return code if isinstance(code, str) else "", message if isinstance(message, str) else ""


def _way_in(code: str, call: Call, skew: float | None) -> str:
    """What to do about a refusal of the identity."""
    if code == "AccessDenied":
        return f"allow this identity {needed_permission(call)}"
    return WAY_OUT.get(code) or without_reason("the access key and its secret", needed_permission(call), skew)


def needed_permission(call: Call) -> str:
    """What an operator has to allow for this call."""
    return NEEDED_PERMISSION.get(call.operation, call.operation)
