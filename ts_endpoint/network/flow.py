"""How much may be sent: the bytes in flight of all connections, and the quota of each user.

A handler requests room before it reads the bytes of a large reply. The connection counts the bytes of the reply, and
subtracts them as the kernel accepts them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ts_endpoint.contract import Session

_BURST_SECONDS: Final = 1.0  # a user who was idle may send the bytes of this time at once
_LONGEST_MUTE_SECONDS: Final = 30.0
_MOST_USERS: Final = 10_000
# Replies of other handlers, and single record batches above the limit, may use a quarter of it in addition.
_MOST_LIMITS: Final = 1.25
_SMALL_REPLY: Final = 64 << 10  # the limit of connections bounds these


@dataclass(slots=True)
class _Bucket:
    balance: float  # bytes; negative: debt
    at: float  # when the balance was computed


class Quotas:
    """Bytes a second of each user, over all connections.

    A reply is sent at once. If it exceeds the quota, the connection is muted until the debt is paid, and the reply has
    that time as `throttle_time` (KIP-219).

    Args:
        rate: returns the bytes a second of a user; None for no quota.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: Callable[[str | None], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str | None, _Bucket] = {}

    def allowance(self, user: str | None) -> int | None:
        """Return the bytes that a user may send without debt, 0 in debt; None for no quota."""
        found = self._bucket(user)
        return None if found is None else max(0, int(found[0].balance))

    def charge(self, user: str | None, size: int) -> float:
        """Return the seconds that the connection is muted after a reply.

        Args:
            user: who receives it.
            size: bytes of the reply.
        """
        found = self._bucket(user)
        if found is None:
            return 0.0
        bucket, rate = found
        bucket.balance -= size
        return min(_LONGEST_MUTE_SECONDS, max(0.0, -bucket.balance / rate))

    def _bucket(self, user: str | None) -> tuple[_Bucket, int] | None:
        rate = self._rate(user)
        if rate is None:
            return None
        now = self._clock()
        most = rate * _BURST_SECONDS
        bucket = self._buckets.get(user)
        if bucket is None:
            if len(self._buckets) >= _MOST_USERS:  # users that were removed from their file
                self._buckets.clear()
            bucket = self._buckets[user] = _Bucket(most, now)
        bucket.balance = min(most, bucket.balance + (now - bucket.at) * rate)
        bucket.at = now
        return bucket, rate


class BytesInFlight:
    """Bytes of replies that are in memory and that no client has received, over all connections.

    Attributes:
        limit: above it, handlers get no room.
        used: bytes not yet sent.

    Args:
        limit: bytes.
        quotas: of users; None for no quotas.
    """

    def __init__(self, limit: int, quotas: Quotas | None = None) -> None:
        self.limit = limit
        self.used = 0
        self._quotas = quotas
        self._of: dict[Session, int] = {}

    def room(self, session: Session) -> int:
        """Return how many bytes a reply to a connection may have now, 0 for none."""
        free = max(0, self.limit - self.used)
        allowance = self._quotas.allowance(session.user) if self._quotas is not None else None
        return free if allowance is None else min(free, allowance)

    def replace(self, session: Session, size: int) -> None:
        """Replace the bytes of a connection's last reply by those of its next one."""
        self.used += size - self._of.get(session, 0)
        if size:
            self._of[session] = size
        else:
            self._of.pop(session, None)

    def sent(self, session: Session, count: int) -> None:
        """Subtract bytes that the kernel accepted."""
        self.replace(session, max(0, self._of.get(session, 0) - count))

    def release(self, session: Session) -> None:
        """Subtract all that a connection has."""
        self.replace(session, 0)

    def in_the_way(self, session: Session, size: int) -> Session | None:
        """Return the connection with the largest reply, if a further one would exceed 1.25 of the limit; else None.

        Args:
            session: of the further reply; it is returned if no other reply is as large.
            size: bytes of the further reply.
        """
        if size <= _SMALL_REPLY or self.used - self._of.get(session, 0) + size <= _MOST_LIMITS * self.limit:
            return None
        largest = max(self._of, key=self._of.__getitem__, default=session)
        return largest if self._of.get(largest, 0) >= size else session
