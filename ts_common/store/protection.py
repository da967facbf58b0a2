"""What keeps the bytes of deleted objects, or refuses their deletion: versions, retention, legal holds. No requests.

In a bucket of S3 with versions, DELETE without a version succeeds for an object that is locked: it hides the object
behind a delete marker, and the bytes stay. A program that deletes therefore reads the locks first.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

_READ_AT_ONCE: Final = 8
_READ_IN_A_ROW: Final = 1000  # keys that the threads get before their locks are read


@dataclass(frozen=True, slots=True)
class Protection:
    """The settings of a bucket that keep what is deleted.

    Attributes:
        versioned: whether the bucket keeps earlier versions, so that the bytes of a deleted object stay.
        locks: whether objects of the bucket can have a retention date or a legal hold.
        default_retention: of new objects, such as "30 days (COMPLIANCE)"; None without one.
    """

    versioned: bool
    locks: bool
    default_retention: str | None


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock of one object.

    Attributes:
        until: seconds since the epoch, by the store's clock, until when it is retained; None without a date.
        legal_hold: whether it is held without an end.
        mode: of the retention, in the store's word (COMPLIANCE, GOVERNANCE); empty without a date.
    """

    until: float | None
    legal_hold: bool
    mode: str

    def holds(self, now: float) -> bool:
        """Return whether the object is locked at a time, in seconds since the epoch."""
        return self.legal_hold or (self.until is not None and self.until > now)

    @property
    def reason(self) -> str:
        """Why the object stays, such as "retained until 2030-01-01 00:00:00 UTC (COMPLIANCE), legal hold"."""
        parts = []
        if self.until is not None:
            mode = f" ({self.mode})" if self.mode else ""
            parts.append(f"retained until {_utc(self.until)}{mode}")
        return ", ".join([*parts, *(["legal hold"] if self.legal_hold else [])])


@dataclass(frozen=True, slots=True)
class HiddenBytes:
    """What a bucket keeps of objects that were deleted or overwritten.

    Attributes:
        objects: number of noncurrent versions.
    """

    objects: int
    bytes: int
    markers: int

    def __add__(self, other: "HiddenBytes") -> "HiddenBytes":
        return HiddenBytes(self.objects + other.objects, self.bytes + other.bytes, self.markers + other.markers)


def _utc(seconds: float) -> str:
    """Return a time; one beyond the calendar as seconds, because a store can retain an object for ever."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):
        return f"{seconds:.0f} s since the epoch"


def locks_held(lock_of: Callable[[str], Lock | None], keys: Iterable[str], now: float) -> dict[str, Lock]:
    """Return the locks that hold at a time, by key, of many objects; eight are read at once.

    Args:
        lock_of: reads the lock of one object, on any thread; its errors are raised.
        keys: read in pieces of a thousand.
        now: seconds since the epoch, by the store's clock.
    """
    remaining = iter(keys)
    found: dict[str, Lock] = {}
    with ThreadPoolExecutor(_READ_AT_ONCE, "store-locks") as pool:
        while chunk := list(islice(remaining, _READ_IN_A_ROW)):
            locks = zip(chunk, pool.map(lock_of, chunk), strict=True)
            found |= {key: lock for key, lock in locks if lock is not None and lock.holds(now)}
    return found
