"""The last errors of an agent, for whoever looks at it: each operation of a partition once, the newest first."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ts_common.printable import printable
from ts_common.redaction import redacted
from ts_uploader.tasks import Failed, Fenced, Result

_KEPT = 20
_LONGEST = 1_000  # characters of a message; a store may answer with a page


@dataclass(frozen=True, slots=True)
class LastError:
    """One operation that failed, and was or will be tried again.

    Attributes:
        time: of the last failure, seconds since the epoch.
        operation: the task's class, as in the metric `ts_uploader_errors_total`; Fenced where a leadership was given
        up. partition: `<topic>-<partition>`; empty for the agent as a whole. message: of the last failure. times: how
        often it failed since it was first among the last ones.
    """

    time: float
    operation: str
    partition: str
    message: str
    times: int


class LastErrors:
    """Keeps the last ones; the agent's main thread takes them in, any may read them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards what follows
        self._kept: OrderedDict[tuple[str, str], LastError] = OrderedDict()

    def take(self, result: Result) -> None:
        """Take in what became of a task; what went well changes nothing."""
        match result:
            case Failed():
                operation = result.operation
            case Fenced():
                operation = type(result).__name__
            case _:
                return
        self.note(operation, str(result.partition), result.reason)

    def note(self, operation: str, partition: str, reason: str) -> None:
        """Keep an error; `partition` is empty for one that is of no partition."""
        with self._lock:
            key = operation, partition
            before = self._kept.pop(key, None)
            reason = printable(redacted(reason))
            message = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."
            times = 1 if before is None else before.times + 1
            self._kept[key] = LastError(self._clock(), *key, message, times)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def newest(self) -> list[LastError]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._kept.values()))
