"""Plays the faults, several at once, and restarts agents as a supervisor does.

The first deck has every fault once, in random order, so that each happens within a minute; then further decks
follow. A card waits while its resources are in use; after a while it keeps later cards from using them.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from random import Random

from tests.soak.faults import REPERTOIRE, Fault, Scene
from tests.soak.stage import Stage
from tests.soak.store_faults import STORE_REPERTOIRE

FAULTS = (*REPERTOIRE, *STORE_REPERTOIRE)

_HANDS = 5
_TIMEOUT_SECONDS = 5.0
_AGAIN_SECONDS = 3.0  # until a fault that did not happen is tried again
_LOOK_SECONDS = 0.1
_SUPERVISED_SECONDS = 0.5


class Resources:
    """The resources in use; a name is used by one fault alone, or shared by several."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # Guarded by _guard.
        self._alone: set[str] = set()
        self._together: Counter[str] = Counter()

    def take(self, alone: frozenset[str], together: frozenset[str] = frozenset()) -> bool:
        """Acquire all of the resources, or none."""
        with self._guard:
            broken = self._alone & (alone | together)
            if broken or any(self._together[name] for name in alone):
                return False
            self._alone |= alone
            self._together.update(together)
            return True

    def give(self, alone: frozenset[str], together: frozenset[str] = frozenset()) -> None:
        """Release the resources."""
        with self._guard:
            self._alone -= alone
            self._together.subtract(together)


@dataclass(frozen=True)
class Card:
    """A fault to be played on a broker or its agent.

    Attributes:
        fault: the fault.
        broker: the broker.
        seed: of its random times.
        dealt: its earliest time, on the monotonic clock.
    """

    fault: Fault
    broker: int
    seed: int
    dealt: float

    @property
    def alone(self) -> frozenset[str]:
        """The resources that it breaks."""
        return frozenset(name.format(n=self.broker, o=3 - self.broker) for name in self.fault.alone)

    @property
    def together(self) -> frozenset[str]:
        """The resources that it shares."""
        return frozenset(name.format(n=self.broker, o=3 - self.broker) for name in self.fault.together)


class Runner:
    """Plays faults until `run` ends; then everything is repaired.

    Attributes:
        fired: how often each fault happened, by name.
        first: when each was first repaired, seconds from the beginning.

    Args:
        stage: the stage.
        seed: of the decks and of each fault's times.
        spared: this broker's agent is not ended after the first deck, so that leaks can show.
    """

    def __init__(self, stage: Stage, seed: int, spared: int) -> None:
        self.fired: Counter[str] = Counter()
        self.first: dict[str, float] = {}
        self.resources = Resources()
        self._stage = stage
        self._random = Random(seed)
        self._spared = spared
        self._guard = threading.Lock()
        # Guarded by _guard.
        self._deck: list[Card] = []
        self._decks = 0
        self._in_time = True  # written by the thread in `run`; afterwards only what has not happened is played

    def run(self, seconds: float, longest: float) -> None:
        """Play faults for this time, and until each has happened once, but no longer than `longest`.

        Raises:
            Exception: of a fault or the supervisor.
        """
        stage = self._stage
        began = time.monotonic()
        with ThreadPoolExecutor(_HANDS + 1, thread_name_prefix="fault") as pool:
            hands = [pool.submit(self._play_on) for _ in range(_HANDS)]
            hands.append(pool.submit(self._supervise))
            while not stage.over.wait(_LOOK_SECONDS):
                played = time.monotonic() - began
                self._in_time = played < seconds
                if played >= longest or (played >= seconds and not self.missing()):
                    stage.over.set()
                if any(hand.done() for hand in hands):
                    stage.over.set()
            _results(hands)
        for link in stage.links.values():
            link.heal()
        for proxy in stage.proxies.values():
            proxy.clear()

    def missing(self) -> list[str]:
        """Return the faults that have not happened yet."""
        return [fault.name for fault in FAULTS if not self.fired[fault.name]]

    def _play_on(self) -> None:
        over = self._stage.over
        while not over.is_set():
            card = self._draw()
            if card is None:
                over.wait(_LOOK_SECONDS)
                continue
            try:
                self._play(card)
            finally:
                self.resources.give(card.alone, card.together)

    def _play(self, card: Card) -> None:
        stage, name = self._stage, f"{card.fault.name} ({card.broker})"
        stage.note(f"{name} begins")
        happened = card.fault.play(Scene(stage, card.broker, Random(card.seed)))
        stage.note(f"{name} {'mended' if happened else 'did not happen'}")
        with self._guard:
            if happened:
                self.fired[card.fault.name] += 1
                self.first.setdefault(card.fault.name, time.monotonic() - stage.began)
            elif not self.fired[card.fault.name]:
                self._deck.insert(0, self._card(card.fault, _AGAIN_SECONDS))

    def _draw(self) -> Card | None:
        """Return the first card that can be played now, with its resources acquired."""
        now = time.monotonic()
        with self._guard:
            if not self._deck:
                self._deal()
            alone: set[str] = set()  # reserved for cards that have waited for long
            together: set[str] = set()
            for position, card in enumerate(self._deck):
                if card.dealt > now or (self.fired[card.fault.name] and not self._in_time):
                    continue
                kept = alone & (card.alone | card.together) or together & card.alone
                if not kept and self.resources.take(card.alone, card.together):
                    return self._deck.pop(position)
                overdue = self._decks > 1 and not self.fired[card.fault.name]
                if overdue or now - card.dealt > _TIMEOUT_SECONDS:
                    alone |= card.alone
                    together |= card.together
        return None

    def _deal(self) -> None:
        faults = list(FAULTS)
        self._random.shuffle(faults)
        if not self._decks:  # so that a minute is enough
            faults.sort(key=lambda fault: not fault.long)
        self._decks += 1
        self._deck += map(self._card, faults)

    def _card(self, fault: Fault, later: float = 0.0) -> Card:
        broker = self._random.choice((1, 2))
        if fault.ends_agent and self._decks > 1:
            broker = 3 - self._spared
        return Card(fault, broker, self._random.getrandbits(32), time.monotonic() + later)

    def _supervise(self) -> None:
        while not self._stage.over.wait(_SUPERVISED_SECONDS):
            revive(self._stage, self.resources)


def revive(stage: Stage, resources: Resources) -> None:
    """Start every agent that ended by itself, for example because the store did not answer at its start."""
    for broker, agent in stage.agents.items():
        own = frozenset({f"agent-{broker}"})
        if resources.take(own):
            if not agent.alive:
                stage.note(f"agent-{broker} had ended, and is started")
                agent.launch()
            resources.give(own)


def _results(hands: Sequence["Future[None]"]) -> None:
    wait(hands, return_when=FIRST_EXCEPTION)
    for hand in hands:
        hand.result()
