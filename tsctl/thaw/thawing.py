"""Thaw objects: requests, then waiting. Both can be interrupted and run again; a second run continues.

After the wait all objects are looked at again: a thaw that was in progress may have been requested for fewer days, a
copy can expire while others thaw, and retention removes objects. What needs a request again gets one.

The requests of all threads pass one gate, which slows down if the store throttles. A round of the wait looks at the
objects in the order of their keys, and ends early while most of them are frozen: a thaw needs hours, and each look is a
request.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ts_common.errors import OperatorError
from ts_common.store.retry import OPERATION_POLICY
from ts_common.store.thaw_prices import LIST_PRICES, ThawCost, ThawPrices, thaw_cost
from ts_common.store.thaw_state import ThawTier
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
_ATTEMPTS: Final = 3  # requests for an object whose thaw the store does not show
_ROUNDS: Final = 4  # waits of one command


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about the objects of a range.

    Attributes:
        to_request: frozen, and no thaw is in progress.
        in_progress: frozen, and a thaw is in progress.
        to_extend: their readable copy expires too early.
        readable: they can be read long enough.
        days: how long the objects are to be readable.
        tier: how fast.
    """

    to_request: tuple[ColdObject, ...]
    in_progress: tuple[ColdObject, ...]
    to_extend: tuple[ColdObject, ...]
    readable: tuple[ColdObject, ...]
    days: int
    tier: ThawTier

    @property
    def frozen(self) -> tuple[ColdObject, ...]:
        """The objects that cannot be read now."""
        return (*self.to_request, *self.in_progress)

    @property
    def short(self) -> tuple[ColdObject, ...]:
        """The objects that cannot be read as long as they are to be."""
        return (*self.frozen, *self.to_extend)

    @property
    def requests(self) -> int:
        """How many requests it needs."""
        return len(self.to_request) + len(self.to_extend)


@dataclass(frozen=True, slots=True)
class Thawed:
    """How a thaw ended.

    Attributes:
        readable: the objects, which can be read long enough.
        removed: those that no longer exist.
        again: requests after the first wait.
    """

    readable: tuple[ColdObject, ...]
    removed: tuple[ColdObject, ...]
    again: int


def plan_thaw(objects: Iterable[ColdObject], days: int, tier: ThawTier, now: float) -> Plan:
    """Return what to do about objects.

    Args:
        objects: with their states.
        days: how long they are to be readable.
        tier: how fast.
        now: seconds since the epoch.

    Raises:
        OperatorError: an object's class has no such tier.
    """
    sorted_out: dict[str, list[ColdObject]] = {name: [] for name in ("request", "progress", "extend", "readable")}
    for each in objects:
        state = each.state
        if state.is_frozen:
            sorted_out["progress" if state.is_thawing else "request"].append(each)
        elif state.until is not None and state.until < now + days * DAY_SECONDS - _SLACK_SECONDS:
            sorted_out["extend"].append(each)
        else:
            sorted_out["readable"].append(each)
    for storage_class in sorted({each.state.storage_class or "" for each in sorted_out["request"]}):
        tiers = [known for name, known in LIST_PRICES if name == storage_class]
        if tiers and tier not in tiers:
            raise OperatorError(f"--tier={tier}: objects of {storage_class} have the tiers {' and '.join(tiers)}")
    request, progress, extend, readable = (tuple(found) for found in sorted_out.values())
    return Plan(request, progress, extend, readable, days, tier)


def cost_of(plan: Plan, prices: ThawPrices = LIST_PRICES) -> ThawCost | None:
    """Return what the requests of a plan cost, and how long all its objects need; None if no price is known."""
    classes = Counter(each.state.storage_class for each in plan.frozen)
    amount, least, most = 0.0, 0.0, 0.0
    for storage_class in classes:
        requested = [each.size for each in plan.to_request if each.state.storage_class == storage_class]
        cost = thaw_cost(sum(requested), len(requested), storage_class, plan.tier, prices)
        if cost is None:
            return None
        amount, least, most = amount + cost.amount, max(least, cost.hours[0]), max(most, cost.hours[1])
    return ThawCost(amount, (least, most))


def request_thaws(plan: Plan, advance: Callable[[], object]) -> None:
    """Send the requests of a plan, several at once.

    Args:
        plan: of a range.
        advance: is called after each request, by any thread.

    Raises:
        OperatorError: the store or an object's class has no such thaw.
        StoreUnavailable, AccessDenied: a request failed; the other requests were sent or not, and may be repeated.
    """
    pace = Pace()

    def request(one: ColdObject) -> None:
        days = None if one.thaws_permanently else plan.days
        OPERATION_POLICY(lambda: pace.request(lambda: one.store.thaw(one.key, days, plan.tier)))
        advance()

    in_threads(request, [*plan.to_request, *plan.to_extend], most=_REQUESTS)


def finish_thaw(
    plan: Plan,
    thawed: Callable[[Sequence[ColdObject]], object],
    again: Callable[[Plan], object],
    *,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Thawed:
    """Wait until all objects of a plan can be read for its days, counted from the end of the first wait.

    Args:
        plan: whose requests were sent.
        thawed: is called during the first wait, with the objects that can be read since the last call.
        again: is called with what needs requests or a wait after all, before the requests are sent.
        pause: waits for so many seconds.
        clock: seconds since the epoch.

    Raises:
        OperatorError: as `wait_until_thawed`; or copies expire before the others can be read, repeatedly.
        StoreUnavailable, AccessDenied: a request failed; another run continues.
    """
    everything, requests = (*plan.short, *plan.readable), 0
    since: float | None = None
    rounds = 0
    while True:
        rounds += 1
        wait_until_thawed(plan, thawed if rounds == 1 else lambda _: None, pause)
        found = with_states(everything)
        since = clock() if since is None else since  # a fixed time: each extension suffices
        plan = plan_thaw(found, plan.days, plan.tier, since)
        if not plan.short:
            kept = {_place(each) for each in found}
            return Thawed(plan.readable, tuple(each for each in everything if _place(each) not in kept), requests)
        if rounds == _ROUNDS:
            first = plan.short[0]
            raise OperatorError(
                f"{first.key} in {first.store.location}: its readable copy expires too early, as do those of "
                f"{counted(len(plan.short) - 1, 'other')}, after {_ROUNDS} waits; run the command again "
                "with more --days or a faster --tier"
            )
        again(plan)
        request_thaws(plan, lambda: None)
        requests += plan.requests


def _place(one: ColdObject) -> tuple[int, str]:
    return id(one.store), one.key


def wait_until_thawed(
    plan: Plan, thawed: Callable[[Sequence[ColdObject]], object], pause: Callable[[float], object] = time.sleep
) -> None:
    """Wait until all objects of a plan can be read; the pauses grow to five minutes.

    Args:
        plan: whose requests were sent.
        thawed: is called with the objects that can be read since the last call.
        pause: waits for so many seconds.

    Raises:
        OperatorError: the store shows no thaw of an object, although three were requested.
        StoreUnavailable, AccessDenied: a request failed; another run continues.
    """
    waiting = list(plan.frozen)
    attempts: Counter[str] = Counter()
    seconds = _FIRST_PAUSE_SECONDS
    while waiting:
        waiting = _looked(plan, waiting, attempts, thawed)
        if waiting:
            pause(seconds)
            seconds = min(seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)


def _looked(
    plan: Plan,
    waiting: Sequence[ColdObject],
    attempts: Counter[str],
    thawed: Callable[[Sequence[ColdObject]], object],
) -> list[ColdObject]:
    """Look at the objects, and return those that are still frozen or were not looked at."""
    left: list[ColdObject] = []
    for at in range(0, len(waiting), _LOOKED_AT_ONCE):
        lot = waiting[at : at + _LOOKED_AT_ONCE]
        found = with_states(lot)
        frozen = [each for each in found if each.state.is_frozen]
        left += frozen
        keys = {each.key for each in frozen}
        thawed([each for each in lot if each.key not in keys])
        lost = [each for each in frozen if not each.state.is_thawing]
        for each in lost:
            attempts[each.key] += 1
            if attempts[each.key] >= _ATTEMPTS:
                raise OperatorError(
                    f"{each.key} in {each.store.location}: the store shows no thaw of it after {_ATTEMPTS} requests; "
                    "check the store's events, then run the command again"
                )
        request_thaws(replace(plan, to_request=tuple(lost), to_extend=()), lambda: None)
        if 2 * len(frozen) > len(lot):
            return [*left, *waiting[at + _LOOKED_AT_ONCE :]]
    return left
