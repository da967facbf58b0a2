"""Select the action for each request: pure decisions, without a clock or a socket.

Rules are tried in the order of `add`. The first rule that matches, and is neither skipping nor used up, decides. Each
rule counts its own matches. Later rules do not count a request that an earlier rule decided.
"""

import re
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass

from dev.local.proxy.actions import Action, Answer, Pass
from dev.local.proxy.journal import Request


@dataclass(frozen=True)
class Rule:
    """An action, and the requests that it applies to.

    Attributes:
        action: the fault.
        methods: of HTTP; an empty set means any.
        target: a regular expression, searched in "/bucket/key?query", unquoted up to the question mark.
        when: a further condition on the request, such as on its headers.
        times: how often it fires; None means always.
        skip: number of matching requests that pass before.
    """

    action: Action
    methods: Set[str] = frozenset()
    target: str = ""
    when: Callable[[Request], bool] | None = None
    times: int | None = 1
    skip: int = 0

    def matches(self, request: Request) -> bool:
        """Return whether it applies to this request."""
        return (
            (not self.methods or request.method in self.methods)
            and re.search(self.target, request.target) is not None
            and (self.when is None or self.when(request))
        )


@dataclass
class _Scripted:
    rule: Rule
    matched: int = 0

    def decides(self, request: Request) -> bool:
        if not self.rule.matches(request):
            return False
        self.matched += 1
        position = self.matched - self.rule.skip
        return position > 0 and (self.rule.times is None or position <= self.rule.times)


@dataclass
class Throttle:
    """A token bucket: it gains `rate` tokens per second up to `burst`, and each request uses one.

    Attributes:
        rate: requests per second.
        burst: number of requests that may arrive at once.
        tokens: left at `at`.
        at: seconds, of any monotonic clock.
    """

    rate: float
    burst: float
    tokens: float
    at: float

    def admits(self, now: float) -> bool:
        """Use a token for a request that arrives now, and return whether there was one."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Script:
    """The rules of a proxy, and its throttle, which precedes them; any thread may use it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # Both are guarded by _guard.
        self._rules: list[_Scripted] = []
        self._throttle: tuple[Throttle, Answer] | None = None
        self._otherwise = Pass()

    def add(self, *rules: Rule) -> None:
        """Add rules after all others."""
        with self._guard:
            self._rules += map(_Scripted, rules)

    def throttle(self, rate: float, burst: int, now: float) -> Answer:
        """Reject requests above `rate` per second, and return the action that counts the rejections."""
        slow_down = Answer(503, "SlowDown", "Please reduce your request rate.")
        with self._guard:
            self._throttle = (Throttle(rate, burst, burst, now), slow_down)
        return slow_down

    def clear(self) -> None:
        """Remove all rules and the throttle."""
        with self._guard:
            self._rules.clear()
            self._throttle = None

    def action_for(self, request: Request, now: float) -> Action:
        """Return the action for a request that arrives at `now`."""
        with self._guard:
            if self._throttle is not None:
                throttle, slow_down = self._throttle
                if not throttle.admits(now):
                    return slow_down
            return next((one.rule.action for one in self._rules if one.decides(request)), self._otherwise)
