"""The flavour of a history and its steps, drawn from a seed."""

from collections.abc import Set
from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True)
class Flavour:
    """The kind of a history, drawn from its seed.

    Attributes:
        rolls: records per segment, broker by broker.
        agents: the broker of each agent; one that is listed twice has two agents.
        magic: of the batches.
        transactional: producers write transactions.
        lossy: elections may lose records.
        compacted: the log cleaner runs.
        created_again: the topic may be deleted and created again.
        clock_jumps: the hosts' clocks may be set.
        latest: an archive begins with the active segment.
        late_start: retention has removed records before any agent started.
        tail: agents name the live tail in commits, and have the broker's answers.
    """

    rolls: tuple[int, ...]
    agents: tuple[int, ...]
    magic: int
    transactional: bool
    lossy: bool
    compacted: bool
    created_again: bool
    clock_jumps: bool
    latest: bool
    late_start: int
    tail: bool

    @classmethod
    def of(cls, seed: int) -> "Flavour":
        """Draw the flavour of a seed."""
        rng = Random(f"flavour {seed}")
        magic = 1 if rng.random() < 0.12 else 2
        return cls(
            rolls=rng.choice(((3, 4, 7), (2, 5, 3), (3, 3, 3))),
            agents=rng.choice(((0, 1, 2), (0, 1, 2), (0, 1, 2, 0), (0, 1, 2, 0, 1))),
            magic=magic,
            transactional=magic == 2 and rng.random() < 0.5,
            lossy=magic == 2 and rng.random() < 0.6,
            compacted=rng.random() < 0.65,
            created_again=rng.random() < 0.12,
            clock_jumps=rng.random() < 0.3,
            latest=rng.random() < 0.12,
            late_start=rng.choice((0, 0, 6, 15)),
            tail=rng.random() < 0.4,
        )


@dataclass(frozen=True)
class Step:
    """One step: an act, and the seed of everything that happens in it."""

    act: str
    seed: int


# How often each act is drawn. Agents observe and work most of the time; the acts of one election are drawn together.
_WEIGHTS = {
    "produce": 10,
    "fetch": 6,
    "elect": 6,
    "lose records": 4,
    "retention": 5,
    "compact": 8,
    "rename": 10,
    "unlink": 3,
    "lag": 2,
    "wipe": 1,
    "checkpoint": 10,
    "see": 10,
    "answer": 10,
    "work": 14,
    "lead": 18,
    "lead while cleaning": 4,
    "overtaken": 3,
    "come back over dead files": 2,
    "lead between renames": 3,
    "lead with old figures": 3,
    "sleepy": 6,
    "crash": 3,
    "land": 4,
    "clock": 3,
    "create": 1,
    "rest": 1,
}
_ONLY_AT_THE_TOP: Set[str] = {"create", "rest"}


def draw(seed: int, steps: int, *, calm: bool = False) -> list[Step]:
    """Draw the steps of a history; in a calm one no election loses records."""
    rng, flavour = Random(f"steps {seed}"), Flavour.of(seed)
    if calm:
        flavour = replace(flavour, lossy=False)
    weights = weights_of(flavour)
    drawn = rng.choices(list(weights), list(weights.values()), k=steps)
    return [*(Step(act, rng.randrange(1 << 30)) for act in drawn), Step("rest", 0)]


def weights_of(flavour: Flavour, *, inside_tasks: bool = False) -> dict[str, int]:
    """Return how often each act of a history is drawn: of its steps, or of the acts inside tasks."""
    excluded = _ONLY_AT_THE_TOP if inside_tasks else set()
    return {act: weight for act, weight in _WEIGHTS.items() if _happens(act, flavour) and act not in excluded}


def _happens(act: str, flavour: Flavour) -> bool:
    switches = {
        "lose records": flavour.lossy,
        "wipe": flavour.lossy,
        "compact": flavour.compacted,
        "lead while cleaning": flavour.compacted,
        "overtaken": flavour.lossy,
        "come back over dead files": flavour.lossy,
        "lead between renames": flavour.compacted,
        "lead with old figures": flavour.lossy,
        "clock": flavour.clock_jumps,
        "create": flavour.created_again,
        "answer": flavour.tail,
    }
    return switches.get(act, True)
