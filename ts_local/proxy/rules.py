"""Which request meets which action: pure decisions, without a clock or a socket.

Rules are asked in the order in which they were given; the first that matches, and is neither still skipping nor used
up, decides. Each counts its own matches. A request that an earlier rule took is not counted by later ones.
"""

import re
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass

from ts_local.proxy.actions import Action, Answer, Pass
from ts_local.proxy.journal import Request


@dataclass(frozen=True)
class Rule:
    """An action, and the requests that it is for.

    Attributes:
        action: what happens.
        methods: of HTTP; none means any.
        target: a regular expression, searched in "/bucket/key?query", unquoted up to the question mark.
        when: asked of the request besides; it may look at its headers.
        times: how often it fires; None for ever.
        skip: how many matching requests pass before.
    """

    action: Action
    methods: Set[str] = frozenset()
    target: str = ""
    when: Callable[[Request], bool] | None = None
    times: int | None = 1
    skip: int = 0

    def matches(self, request: Request) -> bool:
        """Whether it is for this request."""
        return (
            (not self.methods or request.method in self.methods)
            and re.search(self.target, request.target) is not None
            and (self.when is None or self.when(request))
        )


@dataclass
class _Scripted:
    rule: Rule
    matched: int = 0

    def takes(self, request: Request) -> bool:
        if not self.rule.matches(request):
            return False
        self.matched += 1
        position = self.matched - self.rule.skip
        return position > 0 and (self.rule.times is None or position <= self.rule.times)


@dataclass
class Throttle:
    """A bucket of tokens: `rate` come in each second, `burst` find room, each request takes one.

    Attributes:
        rate: requests per second.
        burst: how many may come at once.
        tokens: left at `at`.
        at: seconds, on any clock that only goes forward.
    """

    rate: float
    burst: float
    tokens: float
    at: float

    def admits(self, now: float) -> bool:
        """Whether there is a token for a request that comes now; it is taken."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Script:
    """The rules of a proxy and its throttle, which stands before them; safe for use from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # Both are owned by whoever holds _guard.
        self._rules: list[_Scripted] = []
        self._throttle: tuple[Throttle, Answer] | None = None
        self._otherwise = Pass()

    def add(self, *rules: Rule) -> None:
        """Ask these after all others."""
        with self._guard:
            self._rules += map(_Scripted, rules)

    def throttle(self, rate: float, burst: int, now: float) -> Answer:
        """Refuse what comes faster than `rate` a second; the answer that counts the refusals."""
        slow_down = Answer(503, "SlowDown", "Please reduce your request rate.")
        with self._guard:
            self._throttle = (Throttle(rate, burst, burst, now), slow_down)
        return slow_down

    def clear(self) -> None:
        """No rule, no throttle."""
        with self._guard:
            self._rules.clear()
            self._throttle = None

    def action_for(self, request: Request, now: float) -> Action:
        """What happens to a request that came at `now`."""
        with self._guard:
            if self._throttle is not None:
                throttle, slow_down = self._throttle
                if not throttle.admits(now):
                    return slow_down
            return next((one.rule.action for one in self._rules if one.takes(request)), self._otherwise)
