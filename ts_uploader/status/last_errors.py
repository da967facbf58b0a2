"""The agent's last errors: one entry for each operation of a partition, the newest first."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ts_common.printable import printable
from ts_common.redaction import redacted
from ts_uploader.messages.results import DeletedPending, DeletedShipped, Failed, Fenced, Result
from ts_uploader.messages.tasks import ShipDeleted

_KEPT = 20
_EXPECTED = 5  # failures in a row of a directory that a broker removes: six seconds
_LONGEST = 1_000  # characters of a message; a store may answer with a whole page


@dataclass(frozen=True, slots=True)
class LastError:
    """One operation that failed.

    Attributes:
        time: time of the last failure, seconds since the epoch.
        operation: the task's class, as in the metric `ts_uploader_errors_total`; or Fenced.
        partition: `<topic>-<partition>`; empty for the agent as a whole.
        message: of the last failure.
        times: number of failures since the entry was added.
    """

    time: float
    operation: str
    partition: str
    message: str
    times: int


class LastErrors:
    """The last errors; the main thread adds them, any thread may read them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards `_kept`
        self._kept: OrderedDict[tuple[str, str], LastError] = OrderedDict()
        self._deletions: dict[tuple[str, str | None], str] = {}  # by partition and topic id

    def take(self, result: Result) -> None:
        """Add the error of a task; ignore results without one."""
        if isinstance(result, DeletedPending | DeletedShipped):
            self._take_deletion(result)
        match result:
            case Failed():
                operation = result.operation
            case DeletedPending() if result.task.attempt:
                operation = ShipDeleted.__name__
            case Fenced():
                operation = type(result).__name__
            case _:
                return
        self.note(operation, str(result.partition), result.reason)

    def note(self, operation: str, partition: str, reason: str) -> None:
        """Add an error; `partition` is empty for an error of the whole agent."""
        with self._lock:
            key = operation, partition
            before = self._kept.pop(key, None)
            times = 1 if before is None else before.times + 1
            self._kept[key] = LastError(self._clock(), *key, _shown(reason), times)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    @property
    def deletions(self) -> list[str]:
        """The partitions of deleted topics whose last records the agent failed to ship several times in a row."""
        with self._lock:
            return list(self._deletions.values())

    def _take_deletion(self, result: DeletedPending | DeletedShipped) -> None:
        key = str(result.partition), result.leadership.topic_id
        with self._lock:
            if isinstance(result, DeletedPending) and result.task.attempt > _EXPECTED:
                self._deletions[key] = f"{result.partition}: {_shown(result.reason)}"
            else:
                self._deletions.pop(key, None)

    def newest(self) -> list[LastError]:
        """Return the errors, the newest first."""
        with self._lock:
            return list(reversed(self._kept.values()))


def _shown(reason: str) -> str:
    """Return a message as pages show it."""
    reason = printable(redacted(reason))
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."
