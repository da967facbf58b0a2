"""Thaw objects of S3: RestoreObject, and what HeadObject and a listing show of it.

A listing has the state of the readable copy only if the request has the header `x-amz-optional-object-attributes`
(`LISTED_STATE`). The driver sends it after the first page with an object of an archive class, because other stores can
reject an unknown header.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreObject.html
https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html (x-amz-restore, x-amz-archive-status)
"""

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as sdk

from ts_common.errors import ObjectFrozen, OperatorError, StoreUnavailable, TieredStorageError
from ts_common.store.answers import class_of
from ts_common.store.call import Call
from ts_common.store.lifecycle import ARCHIVE_CLASSES
from ts_common.store.s3.error_translation import translated
from ts_common.store.thaw_state import ThawState, ThawTier

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LISTED_STATE: Final[Mapping[str, Any]] = {"OptionalObjectAttributes": ["RestoreStatus"]}
_ONGOING = re.compile(r'ongoing-request="(true|false)"').search
_EXPIRY = re.compile(r'expiry-date="([^"]*)"').search
_IN_PROGRESS = "RestoreAlreadyInProgress"
_NO_CAPACITY = "GlacierExpeditedRetrievalNotAvailable"


def may_be_frozen(storage_class: str | None) -> bool:
    """Return whether objects of a class need a thaw, by the class alone."""
    return storage_class in ARCHIVE_CLASSES


def state_of(answer: Mapping[str, Any]) -> ThawState:
    """Return the state in a response to HeadObject, in the SDK's form."""
    storage_class = class_of(answer.get("StorageClass"))
    tier = class_of(answer.get("ArchiveStatus"))
    archived = may_be_frozen(storage_class) or tier is not None
    given = answer.get("Restore")
    ongoing = _ONGOING(given) if isinstance(given, str) else None
    until = _until(given) if isinstance(given, str) and ongoing and ongoing[1] == "false" else None
    return ThawState(
        storage_class if tier is None else f"{storage_class}.{tier}",
        is_frozen=archived and until is None,
        is_thawing=archived and ongoing is not None and ongoing[1] == "true",
        until=until if archived else None,
    )


def _until(given: str) -> float:
    """Return when a readable copy expires; a store that names no time, or a wrong one, keeps it."""
    found = _EXPIRY(given)
    try:
        return parsedate_to_datetime(found[1]).timestamp() if found else math.inf
    except (ValueError, OverflowError):
        return math.inf


def restore_object(client: "S3Client", call: Call, bucket: str, key: str, days: int | None, tier: ThawTier) -> None:
    """Send RestoreObject; a thaw in progress counts as done. A readable copy expires `days` from now.

    Args:
        call: the request, for messages.
        days: how long the readable copy is kept; None for INTELLIGENT_TIERING, for which S3 rejects a number.
        tier: how fast.

    Raises:
        OperatorError: the object is in no archive class, or its class has no such tier.
        StoreUnavailable: the request failed, or S3 has no capacity for an expedited thaw at this moment.
        ObjectNotFound, AccessDenied: the request failed.
    """
    request: Any = {"GlacierJobParameters": {"Tier": tier.value}}
    if days is not None:
        request["Days"] = days
    try:
        with translated(call):
            client.restore_object(Bucket=bucket, Key=key, RestoreRequest=request)
    except TieredStorageError as error:
        code = _code(error)
        if code == _IN_PROGRESS:
            return
        if code == _NO_CAPACITY:
            raise StoreUnavailable(f"{error}; use --tier Standard, or run the command again later") from error
        if isinstance(error, ObjectFrozen):  # S3 uses the same code for the opposite
            raise OperatorError(f"{call.operation} {call.target}: {error.__cause__}; it needs no thaw") from error
        raise


def _code(error: BaseException) -> str:
    cause = error.__cause__
    if not isinstance(cause, sdk.ClientError):
        return ""
    code = cause.response.get("Error", {}).get("Code")
    return code if isinstance(code, str) else ""
