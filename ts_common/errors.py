"""Every error of ours, grouped by what its receiver does next.

::

    TieredStorageError
    ├── TransientError               the same call may succeed later, unchanged
    │   ├── AddressInUse           another program listens there, perhaps an agent that is about to end
    │   ├── LineageUnsettled       an agent is between two writes of a commit that goes back
    │   └── StoreUnavailable
    │       ├── StoreThrottled     asked too fast: everybody has to ask less
    │       └── WrongClock         refused for this machine's time, until somebody sets its clock
    ├── StaleStateError           read the state again, then decide
    │   ├── ObjectNotFound         nothing under that key
    │   ├── PreconditionFailed     it did not happen: somebody else was there first
    │   ├── OutcomeUnknown         it may have happened: no answer came
    │   └── SegmentChanged         the local file is not the one that was looked at, or is gone
    ├── PermanentError              no repetition helps; others go on
    │   ├── CorruptData            bytes that are not what their format says
    │   └── DataLoss               a range of offsets that nobody holds
    └── OperatorError            somebody must act: the message says on what, and how
        ├── ConfigurationError     all problems of a configuration at once
        ├── AccessDenied           the store refuses this identity
        ├── BucketMissing          no such bucket or directory; nothing here creates one
        ├── TopicIdChanged         a living topic bears another id, and its log goes on
        ├── NewerFormat            an object of a later release: upgrade this one
        ├── BatchTooLarge          a record batch needs more memory than an option allows
        └── QueryError             a reader's option, topic or width that cannot be answered
"""

from collections.abc import Sequence

from ts_common.printable import printable, printable_lines
from ts_common.redaction import redacted


class TieredStorageError(Exception):
    """Root of every error that this project raises on purpose.

    A message often contains what a library, a user or a store returned, and ends in logs, reports, terminals and other
    people's tracebacks. So credentials in URLs are hidden here, and unprintable characters are escaped.
    """

    def __init__(self, *told: object) -> None:
        super().__init__(*(printable_lines(redacted(each)) if isinstance(each, str) else each for each in told))


class TransientError(TieredStorageError):
    """The same call may succeed later, unchanged."""


class AddressInUse(TransientError):
    """Another program listens on an address of ours; it may be a former agent that is about to end."""


class LineageUnsettled(TransientError):
    """A partition's commit and its `log.start` are of lineages that do not belong together.

    An agent takes the commit back and writes `log.start` next; after a late write the next leader's agent repairs it.
    """


class StoreUnavailable(TransientError):
    """The object store did not serve: throttled, timed out, reset, 5xx. Nothing was changed by a read;
    a write that may have happened is an `OutcomeUnknown` instead.
    """


class StoreThrottled(StoreUnavailable):
    """The store is asked too fast and refused this request at the door; nothing was written."""


class WrongClock(StoreUnavailable):
    """The store refuses this machine's time. Nothing was done, and requests succeed once the clock is set."""


class StaleStateError(TieredStorageError):
    """The state is not what the caller thought: read it again, then decide."""


class ObjectNotFound(StaleStateError):
    """There is no object under that key. Only this means so: no permission is `AccessDenied`."""


class PreconditionFailed(StaleStateError):
    """A conditional write was refused; the object is as somebody else left it."""


class OutcomeUnknown(StaleStateError):
    """A write whose answer never came: it may have happened, or may still."""


class SegmentChanged(StaleStateError):
    """A local segment vanished, grew, or got other neighbours while it was read; scan, then decide."""


class PermanentError(TieredStorageError):
    """No repetition of this call helps; the rest of the work goes on."""


class CorruptData(PermanentError):
    """Bytes that are not what their format says. The message names the thing and the position."""


class DataLoss(PermanentError):
    """A range of offsets below the next offset that no object holds."""


class OperatorError(TieredStorageError):
    """Somebody must act. The message names the thing, what was found, and the way out."""


class ConfigurationError(OperatorError):
    """A configuration that is refused, with every problem that it has.

    Attributes:
        source: the file or option set the problems were found in.
        problems: one sentence each, naming the key, what was found and what is accepted.
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = printable(redacted(source))
        self.problems = tuple(printable(redacted(problem)) for problem in problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        super().__init__("\n".join([f"{self.source}: {count}", *(f"  - {problem}" for problem in self.problems)]))


class AccessDenied(OperatorError):
    """The store refuses this identity, or its credentials are missing or expired."""


class BucketMissing(OperatorError):
    """The bucket (or the directory of a file store) does not exist, and nothing here creates it."""


class TopicIdChanged(OperatorError):
    """A partition's log goes on under another topic id; nothing was written, and an operator decides what it is."""


class NewerFormat(OperatorError):
    """An object in the store is written in a way that only a later release knows; nothing was written over it."""


class BatchTooLarge(OperatorError):
    """A record batch needs more memory than its reader may take for one. The batch is not damaged."""


class QueryError(OperatorError):
    """A query that cannot be answered as asked: unknown option, topic or entropy width."""
