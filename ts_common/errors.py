"""All errors of this project, grouped by the caller's next step.

::

    TieredStorageError
    ├── TransientError             the same call can succeed later
    │   ├── AddressInUse           another process has the address, perhaps an agent that is about to end
    │   ├── LineageUnsettled       an agent is between two writes of a commit that goes back
    │   ├── ShorterView            the archive ends below a position for some time; no record is lost
    │   └── StoreUnavailable
    │       ├── StoreFull          no space, or no quota, is left
    │       ├── StoreThrottled     too many requests: the whole process must send fewer
    │       └── WrongClock         the store rejected the host's time
    ├── StaleStateError            read the state again, then decide
    │   ├── ObjectNotFound         no object has that key
    │   ├── PreconditionFailed     a conditional write was rejected
    │   ├── OutcomeUnknown         a write had no response, and can have succeeded
    │   └── SegmentChanged         the local segment differs from the one that was read, or is missing
    ├── PermanentError             retries do not help; other work continues
    │   ├── CorruptData            bytes that do not have the expected format
    │   └── DataLoss               a range of offsets that no object covers
    └── OperatorError              an operator must act; the message names the remedy
        ├── ConfigurationError     all problems of a configuration at once
        ├── AccessDenied           the store rejects this identity
        ├── BucketMissing          the bucket or directory does not exist, and is not created
        ├── ObjectFrozen           the object is in an archive class, and cannot be read until it is thawed
        ├── TopicIdChanged         an existing topic has another id, and its log continues
        ├── NewerFormat            an object of a later release: upgrade this one
        ├── BatchTooLarge          a record batch needs more memory than an option allows
        └── QueryError             an invalid option, topic or entropy width in a query
"""

from collections.abc import Sequence

from ts_common.printable import printable, printable_lines
from ts_common.redaction import redacted
from ts_common.wording import counted


class TieredStorageError(Exception):
    """Root of all errors that this project raises itself.

    A message often contains text of a library, a user or a store, and is shown in logs, reports, terminals and
    tracebacks. So this class hides credentials in URLs and escapes unprintable characters.
    """

    def __init__(self, *details: object) -> None:
        super().__init__(*(printable_lines(redacted(each)) if isinstance(each, str) else each for each in details))


class TransientError(TieredStorageError):
    """The same call can succeed later."""


class AddressInUse(TransientError):
    """Another process listens on the configured address; it can be an earlier agent that is about to end."""


class LineageUnsettled(TransientError):
    """The lineages of a partition's commit and `log.start` do not fit.

    The agent whose commit went back writes `log.start` next. After a late write, the next leader's agent repairs it.
    """


class ShorterView(TransientError):
    """The view of a partition ends below offsets that it has shown, and its log is the same.

    A new leader has not shipped its live tail yet, or a lost commit was written again. No election removed the records,
    so they are shown again.
    """


class StoreUnavailable(TransientError):
    """The store did not respond, or with a server error: timeout, connection reset, 5xx, throttling.

    A write that can have succeeded is an `OutcomeUnknown` instead.
    """


class StoreFull(StoreUnavailable):
    """The store has no space left, or a quota is used up; nothing was written."""


class StoreThrottled(StoreUnavailable):
    """The store rejected the request because of too many requests; nothing was written."""


class WrongClock(StoreUnavailable):
    """The store rejected the request because of the host's time; requests succeed after its clock is set."""


class StaleStateError(TieredStorageError):
    """The state differs from what the caller read: read it again, then decide."""


class ObjectNotFound(StaleStateError):
    """No object has that key. A missing permission is `AccessDenied` instead."""


class PreconditionFailed(StaleStateError):
    """The store rejected a conditional write; the object is unchanged."""


class OutcomeUnknown(StaleStateError):
    """A write had no response: it can have succeeded, or can still succeed."""


class SegmentChanged(StaleStateError):
    """A local segment was removed, grew, or got other adjacent segments during the read; scan, then decide."""


class PermanentError(TieredStorageError):
    """Retries of the call do not help; other work continues."""


class CorruptData(PermanentError):
    """Bytes that do not have the expected format; the message names the object and the position."""


class DataLoss(PermanentError):
    """A range of offsets below the next offset that no object covers."""


class OperatorError(TieredStorageError):
    """An operator must act; the message names the object, the observation and the remedy."""


class ConfigurationError(OperatorError):
    """An invalid configuration, with all its problems.

    Attributes:
        source: the file, option or set of options with the problems.
        problems: one message each, with the key, its value and the accepted values.
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = printable(redacted(source))
        self.problems = tuple(printable(redacted(problem)) for problem in problems)
        count = counted(len(self.problems), "problem")
        super().__init__("\n".join([f"{self.source}: {count}", *(f"  - {problem}" for problem in self.problems)]))


class AccessDenied(OperatorError):
    """The store rejects this identity, or its credentials are missing or expired."""


class BucketMissing(OperatorError):
    """The bucket, or the directory of a file store, does not exist; this project never creates it."""


class ObjectFrozen(OperatorError):
    """The store rejects reads of an object in an archive class, such as Glacier; an operator must thaw it first.

    A thaw costs money and hours, so nothing begins one unasked. The object is not damaged.
    """


class TopicIdChanged(OperatorError):
    """A partition's log continues under another topic id; nothing was written, and an operator must decide."""


class NewerFormat(OperatorError):
    """A later release wrote an object in a format that this release cannot read; it was not overwritten."""


class BatchTooLarge(OperatorError):
    """A record batch needs more memory than an option allows; the batch is not damaged."""


class QueryError(OperatorError):
    """An invalid query: an unknown option, topic or entropy width."""
