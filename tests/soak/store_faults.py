"""What the store does to an agent's requests: refusals, lost answers, broken bodies, puts that land late."""

from collections.abc import Callable
from functools import partial

from tests.soak.faults import Fault, Scene
from ts_local.proxy.actions import Action, Answer, CutAfter, CutBefore, LandLate, SwallowAnswer, TruncateAnswer
from ts_local.proxy.rules import Rule
from ts_local.waiting import WaitTimedOutError, wait_for

_PROXY = ("proxy-{n}",)
# How long a fault waits for a request to befall.
_PATIENCE_SECONDS = 8.0


def _throttled(scene: Scene) -> bool:
    proxy = scene.stage.proxies[scene.broker]
    refused = proxy.throttle(scene.random.choice([0, 2, 10]))
    scene.wait(1.0, 4.0)
    proxy.clear()
    return refused.fired > 0


def _refused(action: Callable[[], Action], share: float, scene: Scene) -> bool:
    """Some requests fail for a while, all kinds of them."""
    proxy, fails = scene.stage.proxies[scene.broker], action()
    proxy.script(Rule(fails, when=lambda _: scene.random.random() < share, times=None))
    scene.wait(1.0, 4.0)
    proxy.clear()
    return fails.fired > 0


def _some(action: Callable[[], Action], methods: frozenset[str], scene: Scene) -> bool:
    """The next few requests of a method fail, once there are any."""
    proxy, fails = scene.stage.proxies[scene.broker], action()
    proxy.script(Rule(fails, methods=methods, times=scene.random.randint(1, 6), skip=scene.random.randint(0, 5)))
    happened = _happens(scene, fails)
    scene.wait(0.0, 2.0)
    proxy.clear()
    return happened


def _truncated(scene: Scene) -> bool:
    """An agent that goes on undisturbed reads nothing: a put fails first, and it looks where it stands."""
    proxy, fails = scene.stage.proxies[scene.broker], TruncateAnswer(10)
    proxy.script(Rule(CutBefore(), methods={"PUT"}), Rule(fails, methods={"GET"}, times=scene.random.randint(1, 4)))
    happened = _happens(scene, fails)
    scene.wait(0.0, 2.0)
    proxy.clear()
    return happened


def _late(silent: bool, target: str, scene: Scene) -> bool:
    """A put lands after its agent gave it up, and maybe after another agent took its place."""
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
        wait_for(lambda: action.fired > 0 or scene.stage.over.is_set(), "a request", _PATIENCE_SECONDS)
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
