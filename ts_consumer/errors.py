"""From this project's errors to those of confluent-kafka, with the sense that applications expect."""

from confluent_kafka import KafkaError, KafkaException, Message

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
    CorruptData,
    DataLoss,
    ObjectFrozen,
    ObjectNotFound,
    OperatorError,
    PermanentError,
    TieredStorageError,
    TransientError,
)

# librdkafka's own codes, which the binding names with an underscore.
TRANSPORT: int = KafkaError._TRANSPORT
NO_OFFSET_LEFT: int = KafkaError._AUTO_OFFSET_RESET
TRUNCATED: int = KafkaError._LOG_TRUNCATION
LOST: int = KafkaError._BAD_MSG
REFUSED: int = KafkaError._AUTHENTICATION
WRONG_STATE: int = KafkaError._STATE
WRONG_ARGUMENT: int = KafkaError._INVALID_ARG
CONFLICT: int = KafkaError._CONFLICT
TIMED_OUT: int = KafkaError._TIMED_OUT
NO_GROUP: int = KafkaError._UNKNOWN_GROUP
FAILED: int = KafkaError._FAIL
UNKNOWN_TOPIC: int = KafkaError.UNKNOWN_TOPIC_OR_PART


_REFUSALS = frozenset(
    {
        REFUSED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


class SeamRefused(PermanentError):
    """Kafka's log does not continue the records that the application has."""


class NoOffset(PermanentError):
    """No tier has the next offset, and `auto.offset.reset` is `error`."""


class ClusterMissing(OperatorError):
    """The store has other clusters, and not that of `kafka.cluster.id`, which is probably mistyped."""


_CODES = (
    (ClusterMissing, WRONG_ARGUMENT),
    (SeamRefused, TRUNCATED),
    (NoOffset, NO_OFFSET_LEFT),
    (DataLoss, LOST),
    (CorruptData, LOST),
    (AccessDenied, REFUSED),
    (ConfigurationError, WRONG_ARGUMENT),
    (TransientError, TRANSPORT),
    (OperatorError, FAILED),
)


def may_pass(error: BaseException) -> bool:
    """Return whether the same work can succeed later, also after an operator has mended rights or thawed objects."""
    return isinstance(error, KafkaException | TransientError | ObjectNotFound) or needs_an_operator(error)


def needs_an_operator(error: BaseException) -> bool:
    """Return whether an error that may pass is reported at once: nothing but an operator mends it."""
    if isinstance(error, KafkaException):
        return error.args[0].code() in _REFUSALS
    return isinstance(error, AccessDenied | BucketMissing | ClusterMissing | ObjectFrozen)


def kafka_error(error: BaseException) -> KafkaError:
    """Return the error that an application gets."""
    if isinstance(error, KafkaException):
        found: KafkaError = error.args[0]
        return found
    code = next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
    name = "" if isinstance(error, TieredStorageError) else f"{type(error).__name__}: "
    return KafkaError(code, f"archive: {name}{error}", retriable=may_pass(error))


def refusal(code: int, reason: str) -> KafkaException:
    """Return the exception of a call that is refused.

    Args:
        code: of `KafkaError`.
        reason: one sentence.
    """
    return KafkaException(KafkaError(code, reason))


def event(topic: str, partition: int, offset: int, error: BaseException) -> Message:
    """Return an error of a partition as the event that `poll` returns.

    As in librdkafka's events, its text is the value: an event without a value is false, and `if not message` skips it.
    """
    found = kafka_error(error)
    return Message(topic=topic, partition=partition, offset=offset, value=found.str().encode(), error=found)
