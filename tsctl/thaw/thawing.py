"""Thaw objects: requests, then waiting. Both can be interrupted and run again; a second run continues.

After the wait all objects are looked at again: a thaw that was in progress may have been requested for fewer days, a
copy can expire while others thaw, and retention removes objects. What needs a request again gets one.

A round of the wait looks at the objects in the order of their keys, and ends early while most of them are frozen: a
thaw needs hours, and each look is a request.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ts_common.errors import OperatorError
from ts_common.store.retry import OPERATION_POLICY
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.wrappers.request_rate import Pace
from ts_common.wording import counted
from ts_reader.reading.parallel import in_threads
from tsctl.thaw.objects import ColdObject, with_states

DAY_SECONDS: Final = 86_400.0
_SLACK_SECONDS: Final = 3_600.0  # a readable copy that expires this much earlier than requested is not extended
_REQUESTS: Final = 16
_LOOKED_AT_ONCE: Final = 256
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_GROWTH: Final = 1.5
_ATTEMPTS: Final = 3  # requests for one object


class Thaw:
    """A thaw of objects, with at most three requests for each.

    The requests of all threads pass one gate, which slows down if the store throttles.

    Args:
        days: how long the objects are to be readable after the wait.
        pause: waits for so many seconds.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        days: int,
        tier: ThawTier,
        *,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._days, self._tier = days, tier
        self._pause, self._clock = pause, clock
        self._pace = Pace()
        self._requests: Counter[str] = Counter()

    def request(self, objects: Iterable[ColdObject], since: float | None = None) -> int:
        """Request what is frozen without a thaw in progress, and longer copies; return the number of requests.

        Args:
            objects: with their states.
            since: when the days begin, seconds since the epoch; None for now.

        Raises:
            OperatorError: the store or an object's class has no such thaw; or an object still needs one after three.
            StoreUnavailable, AccessDenied: a request failed; another run continues.
        """
        until = (self._clock() if since is None else since) + self._days * DAY_SECONDS - _SLACK_SECONDS
        needed = [each for each in objects if _needs(each.state, until)]
        for each in needed:
            self._requests[each.place] += 1
            if self._requests[each.place] > _ATTEMPTS:
                raise OperatorError(
                    f"{each.place}: after {_ATTEMPTS} requests it cannot be read for {counted(self._days, 'day')}; "
                    "check the store's events, then run the command again, with more --days if its copy expired"
                )
        in_threads(self._send, needed, most=_REQUESTS)
        return len(needed)

    def wait(self, objects: Sequence[ColdObject], thawed: Callable[[int], object]) -> list[ColdObject]:
        """Wait until all objects can be read for the days, and return those that still exist.

        Args:
            objects: whose thaws were requested, with the states before.
            thawed: called during the first wait, with how many more of the frozen ones can be read.

        Raises:
            OperatorError, StoreUnavailable, AccessDenied: as `request`.
        """
        self._wait(objects, thawed)
        since = self._clock()  # a fixed time: each extension suffices
        while True:
            found = with_states(objects)
            if not self.request(found, since) and not any(each.state.is_frozen for each in found):
                return found
            self._wait(found, lambda _: None)

    def _send(self, one: ColdObject) -> None:
        days = None if one.thaws_permanently else self._days
        OPERATION_POLICY(lambda: self._pace.request(lambda: one.store.thaw(one.key, days, self._tier)))

    def _wait(self, objects: Iterable[ColdObject], thawed: Callable[[int], object]) -> None:
        """Wait until no object is frozen; the pauses grow to five minutes."""
        waiting = [each for each in objects if each.state.is_frozen]
        seconds = _FIRST_PAUSE_SECONDS
        while waiting := self._still_frozen(waiting, thawed):
            self._pause(seconds)
            seconds = min(seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)

    def _still_frozen(self, waiting: Sequence[ColdObject], thawed: Callable[[int], object]) -> list[ColdObject]:
        """Look at the objects, and return those that are frozen or were not looked at; request lost thaws again."""
        left: list[ColdObject] = []
        for at in range(0, len(waiting), _LOOKED_AT_ONCE):
            lot = waiting[at : at + _LOOKED_AT_ONCE]
            frozen = [each for each in with_states(lot) if each.state.is_frozen]
            self.request(frozen)
            thawed(len(lot) - len(frozen))
            left += frozen
            if 2 * len(frozen) > len(lot):
                return [*left, *waiting[at + _LOOKED_AT_ONCE :]]
        return left


def _needs(state: ThawState, until: float) -> bool:
    """Return whether an object needs a request to be readable until a time."""
    return not state.is_thawing if state.is_frozen else state.until is not None and state.until < until


def check_tier(objects: Iterable[ColdObject], tier: ThawTier) -> None:
    """Reject a tier that a class of frozen objects does not have, before any request costs money.

    Raises:
        OperatorError: S3 has no expedited thaw of DEEP_ARCHIVE.
    """
    classes = {each.state.storage_class or "" for each in objects if each.state.is_frozen and not each.state.is_thawing}
    slow = sorted(name for name in classes if "DEEP_ARCHIVE" in name)
    if tier is ThawTier.EXPEDITED and slow:
        raise OperatorError(f"--tier={tier}: objects of {' and '.join(slow)} have the tiers Bulk and Standard")
