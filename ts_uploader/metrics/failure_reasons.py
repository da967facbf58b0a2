"""The reasons that metrics count failures by: few and fixed, chosen by the class of the error."""

from collections.abc import Mapping

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
    CorruptData,
    DataLoss,
    NewerFormat,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    SegmentChanged,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    TopicIdChanged,
    WrongClock,
)

# In order: the first class that an error is an instance of counts.
_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (StoreThrottled, "throttled", "the store throttled a request until the process ended"),
    (WrongClock, "wrong_clock", "the store rejects this host's time"),
    (StoreFull, "full", "the store has no space left, or a quota is used up"),
    (StoreUnavailable, "unavailable", "the store failed: timeout, reset, 5xx"),
    (OutcomeUnknown, "no_answer", "a write was not answered: it may have succeeded"),
    (PreconditionFailed, "conflict", "another agent wrote the object first"),
    (ObjectNotFound, "not_found", "an expected object does not exist"),
    (SegmentChanged, "segment_changed", "the broker's files do not match their listing, after several listings"),
    (CorruptData, "corrupt_data", "data on the broker's disk or in the store is damaged"),
    (DataLoss, "data_loss", "the broker lost records within one epoch"),
    (AccessDenied, "access_denied", "the store denies access to this identity"),
    (BucketMissing, "bucket_missing", "the bucket, container or directory does not exist"),
    (TopicIdChanged, "topic_id_changed", "a log continues under another topic id (KAFKA-14190)"),
    (NewerFormat, "newer_format", "an object was written by a later release"),
    (ObjectFrozen, "object_frozen", "an object is in an archive class of the store (`tsctl thaw`)"),
    (ConfigurationError, "configuration", "the configuration is wrong"),
    (
        OperatorError,
        "rejected",
        "the store rejects a request for another reason: a key of KMS, a storage class, a name",
    ),
    (OSError, "disk", "a file of the broker cannot be read"),
)
_OTHER = "other"
FAILURE_REASONS: Mapping[str, str] = {name: text for _, name, text in _REASONS} | {_OTHER: "anything else"}


def failure_reason(error: Exception) -> str:
    """Return the name of an error's reason, one of `FAILURE_REASONS`."""
    return next((name for kind, name, _ in _REASONS if isinstance(error, kind)), _OTHER)
