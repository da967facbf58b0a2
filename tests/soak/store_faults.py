"""Faults of an agent's requests to the store: errors, lost responses, broken bodies, puts that arrive late."""

from collections.abc import Callable
from functools import partial

from dev.local.proxy.actions import Action, Answer, CutAfter, CutBefore, LandLate, SwallowAnswer, TruncateAnswer
from dev.local.proxy.rules import Rule
from dev.local.waiting import WaitTimedOutError, wait_for
from tests.soak.faults import Fault, Scene

_PROXY = ("proxy-{n}",)
# How long a fault waits for a request to break.
_TIMEOUT_SECONDS = 8.0


def _throttled(scene: Scene) -> bool:
    proxy = scene.stage.proxies[scene.broker]
    refused = proxy.throttle(scene.random.choice([0, 2, 10]))
    scene.wait(1.0, 4.0)
    proxy.clear()
    return refused.fired > 0


def _refused(action: Callable[[], Action], share: float, scene: Scene) -> bool:
    """Fail some requests of all kinds for a while."""
    proxy, fails = scene.stage.proxies[scene.broker], action()
    proxy.script(Rule(fails, when=lambda _: scene.random.random() < share, times=None))
    scene.wait(1.0, 4.0)
    proxy.clear()
    return fails.fired > 0


def _some(action: Callable[[], Action], methods: frozenset[str], scene: Scene) -> bool:
    """Fail the next few requests of a method, once there are any."""
    proxy, fails = scene.stage.proxies[scene.broker], action()
    proxy.script(Rule(fails, methods=methods, times=scene.random.randint(1, 6), skip=scene.random.randint(0, 5)))
    happened = _happens(scene, fails)
    scene.wait(0.0, 2.0)
    proxy.clear()
    return happened


def _truncated(scene: Scene) -> bool:
    """Fail a put, so that the agent reads its position, and truncate that response."""
    proxy, fails = scene.stage.proxies[scene.broker], TruncateAnswer(10)
    proxy.script(Rule(CutBefore(), methods={"PUT"}), Rule(fails, methods={"GET"}, times=scene.random.randint(1, 4)))
    happened = _happens(scene, fails)
    scene.wait(0.0, 2.0)
    proxy.clear()
    return happened


def _late(silent: bool, target: str, scene: Scene) -> bool:
    """Deliver a put after its agent's timeout, and maybe after another agent became the leader."""
    proxy, late = scene.stage.proxies[scene.broker], LandLate(silent=silent)
    proxy.script(Rule(late, methods={"PUT"}, target=target, times=scene.random.randint(1, 3)))
    happened = _happens(scene, late)
    if happened:
        scene.wait(1.0, 7.0)
    proxy.clear()
    late.release()
    return happened


def _happens(scene: Scene, action: Action) -> bool:
    try:
        wait_for(lambda: action.fired > 0 or scene.stage.over.is_set(), "a request", _TIMEOUT_SECONDS)
    except WaitTimedOutError:
        return False
    return action.fired > 0


_PUT = frozenset({"PUT"})

STORE_REPERTOIRE = (
    Fault("s3 says SlowDown", _PROXY, _throttled),
    Fault("s3 answers 500", _PROXY, partial(_refused, lambda: Answer(500, "InternalError"), 0.5)),
    Fault("s3 answers 403", _PROXY, partial(_refused, lambda: Answer(403, "ExpiredToken"), 0.5)),
    Fault("s3 request lost", _PROXY, partial(_some, CutBefore, frozenset[str]())),
    Fault("s3 answer swallowed", _PROXY, partial(_some, SwallowAnswer, _PUT)),
    Fault("s3 body cut", _PROXY, partial(_some, lambda: CutAfter(20_000), _PUT)),
    Fault("s3 answer truncated", _PROXY, _truncated),
    Fault("segment lands late", _PROXY, partial(_late, False, r"\.log$")),
    Fault("commit lands late", _PROXY, partial(_late, False, r"offset\.wm$")),
    Fault("silent put lands late", _PROXY, partial(_late, True, r"\.log$|offset\.wm$")),
)
