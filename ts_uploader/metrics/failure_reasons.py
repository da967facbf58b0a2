"""The reasons that metrics count failures by: few and fixed, told from the class of the error."""

from collections.abc import Mapping

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
    CorruptData,
    DataLoss,
    NewerFormat,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    SegmentChanged,
    StoreThrottled,
    StoreUnavailable,
    TopicIdChanged,
    WrongClock,
)

# In order: the first that an error is an instance of counts.
_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (StoreThrottled, "throttled", "the store is asked too fast, and the process ends before it answered"),
    (WrongClock, "wrong_clock", "the store refuses this host's time"),
    (StoreUnavailable, "unavailable", "the store did not serve: timed out, reset, 5xx"),
    (OutcomeUnknown, "no_answer", "no answer to a write came: it may have happened"),
    (PreconditionFailed, "conflict", "another agent was there first"),
    (ObjectNotFound, "not_found", "an object that should be there is not"),
    (SegmentChanged, "segment_changed", "the broker's files are still not as they should be, after several looks"),
    (CorruptData, "corrupt_data", "bytes on the broker's disk or in the store are not what they should be"),
    (DataLoss, "data_loss", "the broker lost records within one epoch"),
    (AccessDenied, "access_denied", "the store refuses this identity"),
    (BucketMissing, "bucket_missing", "there is no such bucket, container or directory"),
    (TopicIdChanged, "topic_id_changed", "a log goes on under another topic id (KAFKA-14190)"),
    (NewerFormat, "newer_format", "an object was written by a later release"),
    (ConfigurationError, "configuration", "something is configured wrongly"),
    (OSError, "disk", "a file of the broker's cannot be read"),
)
_OTHER = "other"
FAILURE_REASONS: Mapping[str, str] = {name: text for _, name, text in _REASONS} | {_OTHER: "anything else"}


def failure_reason(error: Exception) -> str:
    """The name of an error's reason, one of `FAILURE_REASONS`."""
    return next((name for kind, name, _ in _REASONS if isinstance(error, kind)), _OTHER)
