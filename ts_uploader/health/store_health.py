"""What the stores answer: which requests fail, why, and since when.

A request fails until one of the same operation succeeds in the same directory: a store that denies PUT still answers
LIST, and a policy can deny one topic. A precondition that fails and a missing object are answers of a healthy store.
Metrics count failures by few and fixed reasons, which the class of the error chooses.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

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
    TieredStorageError,
    TopicIdChanged,
    WrongClock,
)
from ts_common.store.wrappers.counted import StoreCounts
from ts_uploader.process.progress import Work, own_work

# Tasks that fail repeat after 30 s at most, and a request can wait a minute: a failure that is older does not repeat.
_CURRENT_SECONDS = 120.0
_LONGEST = 500  # characters of a message


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


@dataclass(frozen=True, slots=True)
class Failing:
    """One kind of request that fails.

    Attributes:
        operation: as metrics name it.
        reason: one of `FAILURE_REASONS`, of the last failure.
        since: the monotonic time when the first request that failed since the last success began.
        last: the monotonic time of the last one.
        times: failures since then.
        message: of the last one.
    """

    location: str
    operation: str
    reason: str
    since: float
    last: float
    times: int
    message: str


class _Own(threading.local):
    """The requests of a thread that are under way.

    Attributes:
        moved: for each, the monotonic time of its last progress.
    """

    def __init__(self) -> None:
        self.moved: list[list[float]] = []


class StoreHealth:
    """The failing requests of all stores of a process; thread-safe.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[tuple[str, str, str], Failing] = {}  # by location, operation and directory
        self._succeeded_at: dict[tuple[str, str], float] = {}  # by location and operation
        self._under_way: dict[int, tuple[list[float], Work | None, str]] = {}
        self._own = _Own()

    def failing(self) -> list[Failing]:
        """Return the requests that fail, the longest first.

        One failure that no task repeats is over once a request of the same operation succeeds elsewhere.
        """
        oldest = self._clock() - _CURRENT_SECONDS
        with self._lock:
            self._failing = {place: each for place, each in self._failing.items() if each.last > oldest}
            found = [
                each
                for each in self._failing.values()
                if each.times > 1 or self._succeeded_at.get((each.location, each.operation), -1.0) < each.last
            ]
        return sorted(found, key=lambda each: each.since)

    def silent(self, excused_at: float) -> tuple[float, str] | None:
        """Return how long a request has had no answer and made no progress, and its store; None without a request.

        An upload of a segment makes progress with each piece that it reads, a listing with each object.

        Args:
            excused_at: the monotonic time when limits last made requests wait.
        """
        with self._lock:
            under_way = list(self._under_way.values())
        now = self._clock()
        moved = ((at[0] if work is None else max(at[0], work.moved_at), location) for at, work, location in under_way)
        return max(((now - max(at, excused_at), location) for at, location in moved), default=None)

    @contextmanager
    def request(self, location: str, operation: str, key: str) -> Iterator[None]:
        """Note whether a store answers a request."""
        place, began = (location, operation, key.rpartition("/")[0]), self._clock()
        moved = [began]
        with self._lock:
            self._under_way[id(moved)] = moved, own_work(), location
        self._own.moved.append(moved)
        try:
            yield
        except GeneratorExit:  # a listing that its caller ended: the store had answered
            self._succeeded(place)
            raise
        except StoreThrottled:  # an answer: the gate sends fewer requests
            raise
        except ObjectFrozen:  # of one object, whose class a lifecycle rule changed
            self._succeeded(place)
            raise
        except (StoreUnavailable, OutcomeUnknown, OperatorError) as error:  # also a key of KMS that is disabled
            self._failed(place, began, error)
            raise
        except TieredStorageError:
            self._succeeded(place)
            raise
        else:
            self._succeeded(place)
        finally:
            with self._lock:
                del self._under_way[id(moved)]
            self._own.moved = [each for each in self._own.moved if each is not moved]

    def arrived(self) -> None:
        """Note that the requests of this thread made progress."""
        now = self._clock()
        for moved in self._own.moved:
            moved[0] = now

    def _succeeded(self, place: tuple[str, str, str]) -> None:
        location, operation, _ = place
        self._succeeded_at[location, operation] = self._clock()
        if place in self._failing:
            with self._lock:
                self._failing.pop(place, None)

    def _failed(self, place: tuple[str, str, str], began: float, error: TieredStorageError) -> None:
        now, message = self._clock(), str(error)[:_LONGEST]
        with self._lock:
            known = self._failing.get(place)
            is_first = known is None or now - known.last >= _CURRENT_SECONDS
            since, times = (began, 1) if known is None or is_first else (known.since, known.times + 1)
            self._failing[place] = Failing(place[0], place[1], failure_reason(error), since, now, times, message)


class WatchedCounts(StoreCounts):
    """The numbers of one store, which are added to those of the process; its failures are noted.

    Args:
        total: the numbers of all stores.
    """

    def __init__(self, total: StoreCounts, health: StoreHealth, location: str) -> None:
        super().__init__()
        self._total = total
        self._health = health
        self._location = location

    def request(self, operation: str) -> None:
        """Count a request."""
        self._total.request(operation)

    def watched(self, operation: str) -> AbstractContextManager[None]:
        """Note whether the store answers a request that is not counted."""
        return self._health.request(self._location, operation, "")

    def arrived(self) -> None:
        """Note that a request made progress."""
        self._health.arrived()

    def received(self, size: int) -> None:
        """Count bytes of an object."""
        self._total.received(size)
        self._health.arrived()

    @contextmanager
    def counted(self, operation: str, key: str = "") -> Iterator[None]:
        """Count a request, and note whether the store answers it."""
        with self._health.request(self._location, operation, key), self._total.counted(operation):
            yield
